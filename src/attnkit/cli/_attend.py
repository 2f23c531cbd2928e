"""What ``attnkit attend`` does around its answer: refuse what cannot be meant, write files, print maps.

Holds no command of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnkit.cli import console
from attnkit.errors import UsageError
from attnkit.models.attention.config import ALIGNMENT_NAMES, AlignmentName, DistributionName

if TYPE_CHECKING:
    from attnkit.analysis.attention_request import AttentionReport, MapSelection
    from attnkit.analysis.write_figures import Paths
    from attnkit.plotting.attention_maps import AttentionExample

Mode = Literal["example", "look", "compare"]
MODES: dict[Mode, str] = {"example": "--example cat", "look": "attend RUN TEXT", "compare": "--compare"}
"""Mode -> what it is called."""
_RUN: tuple[Mode, ...] = ("look", "compare")
_FUNCTIONS: tuple[Mode, ...] = ("example", "compare")
OPTIONS: dict[str, tuple[Mode, ...]] = {
    "--target": _RUN,
    "--html": _RUN,
    "--svg": _RUN,
    "--png": _RUN,
    "--pdf": _RUN,
    "--kind": _RUN,
    "--layer": _RUN,
    "--head": _RUN,
    "--beam-size": _RUN,
    "--alignment": _FUNCTIONS,
    "--distribution": _FUNCTIONS,
    "--seed": _FUNCTIONS,
    "--checkpoint": _RUN,
    "--device": _RUN,
}
"""Option -> the modes that have it."""


def render(answer: AttentionReport, shown: MapSelection, json: bool, paths: Paths) -> None:
    """Write the files that are asked for, and print what there is to print."""
    from attnkit.analysis.attention_request import checked, gather
    from attnkit.analysis.write_figures import write_files

    for warning in answer.warnings:
        console.warn(warning)
    written = any(paths)
    sentences: Iterable[AttentionExample] = checked(answer.sentences, shown)
    if written:
        sentences = held = gather(sentences)
        write_files(held, answer.facts, shown, paths, console.info)
    for sentence in sentences:
        show(sentence, answer.facts, shown, json, written)
    for warning in answer.afterwards():
        console.warn(warning)


def mode_of(example: str | None, compare: bool) -> Mode:
    """Return what is asked for."""
    return "example" if example is not None else "compare" if compare else "look"


def refuse_foreign(mode: Mode, given: Mapping[str, Any]) -> None:
    """Raise a UsageError for an option without a meaning in a mode, or beside another; ``given`` is by ``OPTIONS``."""
    there = {option for option, value in given.items() if value not in (None, [], "auto")}
    for option in OPTIONS:
        if option in there and mode not in OPTIONS[option]:
            help = f"{option} belongs to {' or to '.join(MODES[owner] for owner in OPTIONS[option])}"
            raise UsageError(f"{MODES[mode]} has no {option}", where=option, help=help)
    if {"--target", "--beam-size"} <= there:
        raise UsageError("a translation that is given is not searched for", where="--beam-size", help="leave one out")


def refuse(run: Path | None, text: Sequence[str], outputs: Sequence[Path], example: str | None, compare: bool) -> None:
    """Say what cannot be meant before torch is loaded."""
    from attnkit.text.lines import STDIN, check_not_overwriting

    if example is not None and (run is not None or outputs or compare):
        raise UsageError("the example needs no run and makes no files", where="--example", help="leave out the others")
    if example is None and (run is None or not text):
        raise UsageError(
            "there is nothing to look at", help='attnkit attend RUN "a sentence", or attnkit attend --example cat'
        )
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError("two outputs have one name", help="give each a name of its own")
    for path in outputs:
        if run is not None and run.resolve() in path.resolve().parents:
            raise UsageError(f"{path} lies in the run folder", help="write it elsewhere")
        check_not_overwriting(path, [STDIN] if "-" in text else [])


def alignment_names(given: Sequence[str]) -> list[AlignmentName]:
    """Return names of alignment functions. Raises ``UsageError`` for one that there is not."""
    names = [name for name in ALIGNMENT_NAMES if name in given]
    for name in given:
        if name not in ALIGNMENT_NAMES:
            close = difflib.get_close_matches(name, ALIGNMENT_NAMES, n=1)
            help = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(ALIGNMENT_NAMES)}"
            raise UsageError(f"no alignment function '{name[:40]}'", where="--alignment", help=help)
    return names


def show(sentence: AttentionExample, facts: Mapping[str, str], shown: MapSelection, json: bool, written: bool) -> None:
    """Print a sentence: every weight as JSON, or the maps that were chosen, unless a file holds them."""
    from attnkit.analysis.attention_request import pick
    from attnkit.plotting.attention_maps import as_dictionary
    from attnkit.plotting.terminal import sentence_maps

    if json:
        console.result(dumps({**facts, **as_dictionary(sentence)}, ensure_ascii=False))
    elif not written:
        width = console.width() if console.supports_color() else 80
        drawn = sentence_maps(sentence, pick(sentence, shown), colour=console.supports_color(), width=width)
        console.result(f"{drawn}\n")


def walk(alignments: Sequence[AlignmentName], distribution: DistributionName, seed: int, json: bool) -> None:
    """Print the notes' example, step by step, for each alignment function."""
    from attnkit.analysis.worked_example import worked_example
    from attnkit.plotting.worked_example import render_example

    for name in alignments:
        found = worked_example(name, distribution, seed)
        console.result(dumps(found.as_dictionary(), ensure_ascii=False) if json else render_example(found))
