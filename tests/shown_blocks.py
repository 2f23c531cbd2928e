"""Blocks of pages: the ones marked ``run`` are run in order, and what the next ``text`` block shows is compared.

The fence of the text says how: ``text`` alone means the same text; ``text within 10 percent``, numbers that far from
those shown; ``text half of the lines``, at least half of the lines are found, in this order; ``text but for numbers``,
the same words, for tables of trained weights; ``text by first words``, the same first word in each line, for sampled
sentences. ``…`` stands for any text within a line, and for any lines as a line of its own.
"""

from __future__ import annotations

import importlib
import io
import math
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnkit.cli.main import main
from attnkit.progress import console

BLOCK = re.compile(
    r"^```(?P<kind>sh|python) run\n(?P<code>.*?)^```\n(?:\n```text(?P<how>[\w ]*)\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.-])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A block to run, with the output that its page shows, if it shows any."""

    kind: str
    code: str
    shown: str | None
    percent: float
    half: bool
    words_only: bool = False
    first_words: bool = False


def blocks_to_run(text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        how = found["how"] or ""
        within = re.search(r"within (\d+) percent", how)
        yield Block(
            found["kind"],
            found["code"],
            found["shown"],
            float(within[1]) if within else 0.0,
            "half of the lines" in how,
            "but for numbers" in how,
            "by first words" in how,
        )


def lines_of(code: str) -> list[str]:
    """Return the commands of a block: continued lines joined, ``<<EOF`` with its text, no comments or blank lines."""
    commands = re.findall(r"^(.*<<EOF\n(?:.*\n)*?EOF|.*)\n", re.sub(r"\\\n *", "", code), re.MULTILINE)
    return [command for command in commands if command.strip() and not command.startswith("#")]


def type_in(line: str) -> int:
    """Run a command and return its exit code: ours in this process, others by the shell."""
    if not line.startswith("attnkit ") or re.search(r" [>|<] ", line):
        shown = re.sub(r"(^|[|&;] *|do +)attnkit ", rf"\1{shlex.quote(sys.executable)} -m attnkit ", line)
        shown = re.sub(r"^torchrun ", f"{shlex.quote(sys.executable)} -m torch.distributed.run ", shown)
        done = subprocess.run(
            shown, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        sys.stdout.write(done.stdout)
        return done.returncode
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setattr(console, "PATIENCE", math.inf)  # pages show no progress of machines that need seconds
        main()
    return int(ended.value.code or 0)


@contextmanager
def all_output() -> Iterator[Callable[[], str]]:
    """Collect both streams in one file, in the order of a terminal; yields what returns the text so far."""
    with tempfile.TemporaryFile() as file:
        stream = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
        with redirect_stdout(stream), redirect_stderr(stream):

            def text() -> str:
                stream.flush()
                file.seek(0)
                return file.read().decode("utf-8")

            yield text
        stream.detach()


def run_block(block: Block, names: dict[str, object], page: str, change: Callable[[str], str] | None = None) -> None:
    """Run a block; fails on another exit code than the line says, or another output than shown.

    Where ``change`` shortens the commands, the output is another one, and is not compared.
    """
    with all_output() as text:
        if block.kind == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # of a corpus that is too small
                exec(compile(block.code, page, "exec"), names)
        else:
            for line in lines_of(block.code):
                command, _, code = line.partition("  # exit ")
                ended = type_in(change(command) if change and not code else command)
                assert ended == int(code or 0), f"{page}: {line}\n{text()}"
        printed = text()
    if block.shown is not None and not change:
        assert agrees(block, printed), (
            f"{page}: this block\n{block.code}\nprinted\n{printed}\ninstead of\n{block.shown}"
        )


def agrees(block: Block, printed: str) -> bool:
    """Return whether an output is the one shown, as far as the fence asks for."""
    assert block.shown is not None
    shown, lines = block.shown.rstrip().splitlines(), [line.rstrip() for line in printed.rstrip().splitlines()]
    if block.words_only:
        shown, lines = [without_numbers(line) for line in shown], [without_numbers(line) for line in lines]
    if block.first_words:
        shown, lines = [first_word(line) for line in shown], [first_word(line) for line in lines]
    if block.half:
        wanted = [line for line in shown if line.strip() not in ("", "…")]
        return 2 * longest_common(wanted, lines, block.percent) >= len(wanted) > 0
    return lines_agree(shown, lines, block.percent)


def without_numbers(line: str) -> str:
    """Return a line without its numbers, and without the dots that stand for small ones in tables."""
    return " ".join(word for word in line.split() if not re.fullmatch(r"[-\d.,()]+", word))


def first_word(line: str) -> str:
    return (line.split() or [""])[0]


def lines_agree(shown: list[str], printed: list[str], percent: float) -> bool:
    """Return whether the lines agree, where a line ``…`` stands for any number of lines."""
    reached = {0}  # numbers of printed lines that the shown ones so far may cover
    for line in shown:
        if line.strip() == "…":
            reached = set(range(min(reached), len(printed) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(printed) and line_agrees(line, printed[n], percent)}
        if not reached:
            return False
    return len(printed) in reached


def longest_common(shown: list[str], printed: list[str], percent: float) -> int:
    """Return how many shown lines are printed, in this order."""
    row = [0] * (len(printed) + 1)
    for line in shown:
        new = [0]
        for n, other in enumerate(printed):
            new.append(max(new[n], row[n + 1], row[n] + line_agrees(line, other, percent)))
        row = new
    return row[-1]


def line_agrees(shown: str, printed: str, percent: float) -> bool:
    """Return whether two lines agree, where ``…`` stands for any text and numbers may differ by ``percent``."""
    pattern, numbers, last = "", [], 0
    shown = re.sub(r" +", " ", shown.rstrip()) if percent else shown.rstrip()  # columns move with the digits
    printed = re.sub(r" +", " ", printed) if percent else printed
    for found in NUMBER.finditer(shown) if percent else ():
        pattern += re.escape(shown[last : found.start()]) + r"(-?[\d,]+(?:\.\d+)?)"
        numbers.append(value(found[0]))
        last = found.end()
    pattern = (pattern + re.escape(shown[last:])).replace("…", ".*?")
    match = re.fullmatch(pattern, printed)
    if match is None:
        return False
    return all(
        abs(value(text) - number) <= percent / 100 * abs(number) + 1e-9
        for text, number in zip(match.groups(), numbers, strict=True)
    )


def value(text: str) -> float:
    return float(text.replace(",", ""))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```\n", "", text, flags=re.DOTALL | re.MULTILINE)


def unknown_formulas(text: str) -> list[str]:
    """Return the formulas of a page of which a command, or a table's &, is left in the site as it is written."""
    pytest.importorskip("latex2mathml")
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
    try:
        to_mathml = importlib.import_module("mathml").to_mathml
    finally:
        sys.path.pop(0)
    text = re.sub(r"`[^`\n]+`", "", without_blocks(text))
    displayed = re.findall(r"^\$\$\n(.+?)\n\$\$$", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"\$([^$\n]+)\$", re.sub(r"^\$\$\n.+?\n\$\$$", "", text, flags=re.DOTALL | re.MULTILINE))
    return [formula for formula in [*displayed, *inline] if re.search(r"\\|>&<", to_mathml(formula))]
