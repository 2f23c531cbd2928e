"""Shared part of the commands that write training pairs: the job and its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from attnkit.cli import options
from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig
    from attnkit.tasks.translation.synthetic_output import SyntheticReport


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Options of all commands that write training pairs."""

    beam_size: options.BeamSize = None
    length_penalty: options.LengthPenalty = None
    max_length: options.MaxLength = None
    keep_flagged: options.KeepFlagged = False
    min_log_prob: options.MinLogProb = None
    split: options.Split = "auto"
    device: options.Device = "auto"
    precision: options.Precision = "float32"
    engine: options.Engine = "auto"
    threads: options.Threads = None
    overwrite: Annotated[bool, Option(help="Replace an earlier result in the folder.")] = False
    quiet: options.Quiet = False
    json: options.Json = False

    @property
    def request(self) -> dict[str, Any]:
        """Return the options that are fields of a request as they are."""
        return {
            name: getattr(self, name) for name in ("device", "precision", "engine", "threads", "split", "overwrite")
        }


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options of a search that may sample."""

    sampling: options.Sampling = False
    temperature: options.Temperature = None
    top_k: options.TopK = None
    top_p: options.TopP = None
    seed: options.SamplingSeed = None


@dataclass(frozen=True, kw_only=True)
class SampledPairOptions(PairOptions, SamplingOptions):
    """Options of commands whose translations can be sampled."""


def read_options(shared: PairOptions, **own: Any) -> tuple[SyntheticConfig, dict[str, Any]]:
    """Return the settings of pairs and of the search among a command's options.

    ``own`` are options of the command alone. Raises ``UsageError`` for an invalid value; nothing is loaded.
    """
    from attnkit.config import validate
    from attnkit.decoding.config import SearchConfig, check_search_options
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig

    given = {name: value for name, value in (asdict(shared) | own).items() if value is not None}
    pairs = {name: value for name, value in given.items() if name in SyntheticConfig.model_fields}
    config = validate(SyntheticConfig, pairs, {name: f"--{name.replace('_', '-')}" for name in pairs})
    search = {name: value for name, value in given.items() if name in SearchConfig.model_fields}
    search = {name: value for name, value in search.items() if value is not False}
    check_search_options(search)
    return config, search


def run_job(write: Callable[..., SyntheticReport], sources: Sequence[Path], output: Path, shared: PairOptions) -> None:
    """Write the pairs of a job, show its progress and print its report.

    ``write`` takes functions for warnings, lines done and lines of an earlier process; ``sources`` are the files whose
    lines are counted.
    """
    from attnkit.io.job_folder import is_finished

    is_again = is_finished(output) and not shared.overwrite
    with console.StatusLine(plain_every=60.0) as status:
        follow = {"show": console.follow_lines(status, sources)}

        def resumed(n_lines: int) -> None:
            status.say(f"resuming after line {n_lines:,}")
            follow["show"] = console.follow_lines(status, sources, n_lines)

        report = write(status.warn, lambda n_lines: follow["show"](n_lines), resumed)
    console.result(dumps(asdict(report), indent=1) if shared.json else as_text(report, output))
    if is_again:
        console.info(f"{output} is finished; add --overwrite to start again")
    if not shared.json:
        sides = "--src", output / "pairs.src", "--tgt", output / "pairs.tgt"
        console.info(f"try: {console.command('train', '--src', 'a.src', '--tgt', 'a.tgt', *sides)}")


def as_text(report: SyntheticReport, output: Path) -> str:
    """Format the counts."""
    rows = [(f"{report.n_lines:,}", "lines read"), (f"{report.kept:,}", f"pairs kept in {output}")]
    by_count = sorted(report.dropped.items(), key=lambda item: (-item[1], item[0]))
    rows += [(f"{count:,}", f"dropped: {reason.replace('_', ' ')}") for reason, count in by_count]
    if report.reference_bleu is not None:
        rows.append((f"{report.reference_bleu:.1f}", "mean sentence BLEU of the kept translations"))
    width = max(len(count) for count, _ in rows)
    return "\n".join(f"{count:>{width}}  {text}" for count, text in rows)
