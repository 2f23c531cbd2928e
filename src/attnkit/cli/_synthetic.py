"""Shared part of the commands that write training pairs: the job and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig
    from attnkit.tasks.translation.synthetic_output import SyntheticReport


def read_options(given: Mapping[str, Any]) -> tuple[SyntheticConfig, dict[str, Any]]:
    """Return the settings of pairs and of the search among a command's options.

    Raises ``UsageError`` for an invalid value; nothing is loaded.
    """
    from attnkit.config import validate
    from attnkit.decoding.config import SearchConfig, check_search_options
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig

    own = {name: value for name, value in given.items() if name in SyntheticConfig.model_fields and value is not None}
    config = validate(SyntheticConfig, own, {name: f"--{name.replace('_', '-')}" for name in own})
    search = {name: value for name, value in given.items() if name in SearchConfig.model_fields}
    search = {name: value for name, value in search.items() if value is not None and value is not False}
    check_search_options(search)
    return config, search


def run_job(
    write: Callable[..., SyntheticReport], sources: Sequence[Path], output: Path, json: bool, overwrite: bool
) -> None:
    """Write the pairs of a job, show its progress and print its report.

    ``write`` takes functions for warnings, lines done and lines of an earlier process; ``sources`` are the files whose
    lines are counted.
    """
    from attnkit.io.job_folder import is_finished

    is_again = is_finished(output) and not overwrite
    with console.StatusLine(plain_every=60.0) as status:
        follow = {"show": console.follow_lines(status, sources)}

        def resumed(n_lines: int) -> None:
            status.say(f"resuming after line {n_lines:,}")
            follow["show"] = console.follow_lines(status, sources, n_lines)

        report = write(status.warn, lambda n_lines: follow["show"](n_lines), resumed)
    console.result(dumps(asdict(report), indent=1) if json else as_text(report, output))
    if is_again:
        console.info(f"{output} is finished; add --overwrite to start again")
    if not json:
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
