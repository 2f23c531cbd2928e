"""Tables of texts and labels are told from text that has tabs or commas for other reasons."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from attnkit.text.label_columns import table_warning

ROOT = Path(__file__).parents[2]
PROSE = "rain fell over the old harbour while nobody on the quay had seen such water rise before noon"
WORDS = PROSE.split()
SENTENCES = [f"{' '.join(WORDS[i % 7 : 5 + i % 11])} {i}." for i in range(60)]
REVIEWS = [f"{text}\t{('bad', 'good', 'good')[i % 3]}" for i, text in enumerate(SENTENCES)]
POEM = [f"{text}{',' * (i % 2)}" for i, text in enumerate(SENTENCES)]
GO = ["func main() {", "\tfor i := 0; i < 9; i++ {", "\t\tfmt.Println(i)", "\t}", "}", ""] * 10
ASSEMBLY = [f"\tmov\teax, {i % 8}" for i in range(60)]


def warn(folder: Path, name: str, lines: Sequence[str]) -> str | None:
    path = folder / name
    (gzip.open if name.endswith(".gz") else open)(path, "wb").write("".join(f"{line}\n" for line in lines).encode())
    return table_warning(path)


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("train.txt", REVIEWS, r"\('good', 'bad'\) .*cut -f1 .*train.txt > text.txt$"),
        ("train", ["text\tlabel", *REVIEWS], r"\('good', 'bad'\)"),
        ("train", [line for row in REVIEWS for line in (row, "")], r"\('good', 'bad'\)"),  # blank lines between
        ("train.tsv", [f"{i}\t{row}" for i, row in enumerate(REVIEWS)], r"\('good', 'bad'\) .*train.tsv:2$"),
        ("train", [f"{text}\t{i % 8}" for i, text in enumerate(SENTENCES)], r"\('0', '1', '2', …\)"),
        ("train", [f"{text}\tnews" for text in SENTENCES], r"\('news'\)"),  # sorted by label, first lines
        ("train.txt.gz", REVIEWS, r"\('good', 'bad'\) are read as text; give a file with the text alone$"),
        ("train.CSV", [f'"{t}, he said",{i % 2}' for i, t in enumerate(SENTENCES)], r"\('0', '1'\) .*train.CSV:1$"),
        ("train.csv", [f"{t};{i % 2}" for i, t in enumerate(SENTENCES)], r"\('0', '1'\)"),
        ("train.csv", [row for t in SENTENCES for row in (f'"{t}', f'{t}",x')], r"\('x'\)"),  # cells of two lines
        ("pairs.tsv", [f"{t}\t{t[::-1]}" for t in SENTENCES], r"looks like a table: all of its 2 columns are read as"),
        (
            "labels.tsv",
            [f"{('bad', 'good')[i % 2]}\t{t}" for i, t in enumerate(SENTENCES)],
            r"2 columns .*labels.tsv:2$",
        ),
    ],
)
def test_tables_are_found(name: str, lines: list[str], expected: str, tmp_path: Path) -> None:
    found = warn(tmp_path, name, lines)
    assert found is not None and found.startswith(f"{tmp_path / name} looks like a table: ")
    assert re.search(expected, found) and "\n" not in found


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("plain", SENTENCES),
        ("plain.txt", ["Yes.", "No."] * 30),
        ("poem", POEM),
        ("poem", [f"\t{line}" for line in POEM]),
        ("poem", [f"{line}\t" for line in POEM]),
        ("poem", [f"{line}\t{i}" for i, line in enumerate(POEM)]),  # numbered lines
        ("dialogue", [f"{'AB'[i % 2]}\t{text}" for i, text in enumerate(SENTENCES)]),
        ("dialogue", [f"{'AB'[i % 2]}\t{('Yes.', 'No.', 'Why?')[i % 3]}" for i in range(60)]),
        ("dialogue", [f"{text}\t{other}" for text, other in pairwise(SENTENCES)]),
        ("dialogue", [f"{i // 60:02}:{i % 60:02}\tAnn\t{text}" for i, text in enumerate(SENTENCES)]),
        ("dialogue", [*REVIEWS, "a line without a tab"]),
        ("code.go", GO),
        ("code.s", ASSEMBLY),
        ("code.s", ["\tnop\tret"] * 60),
        ("prose", [f"{text}, {('good', 'bad')[i % 2]}" for i, text in enumerate(SENTENCES)]),  # commas, not named .csv
        ("short", REVIEWS[:9]),
        ("text.tsv", SENTENCES),
        ("text.csv", [text for text in SENTENCES if "," not in text]),
        ("text.csv", [f"{text}{', or so' * (i % 3)}" for i, text in enumerate(SENTENCES)]),
        ("text.csv", ['"an open quote, ', *SENTENCES]),
        ("empty.csv", []),
    ],
)
def test_text_is_not_taken_for_a_table(name: str, lines: list[str], tmp_path: Path) -> None:
    assert warn(tmp_path, name, lines) is None


def test_sources_and_pages_of_this_repository_are_text() -> None:
    paths = [path for folder in ("src", "docs") for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    assert len(paths) > 400
    assert [warning for path in paths if (warning := table_warning(path))] == []


def test_only_the_beginning_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("".join(f"{i} {line}\n" for i, line in enumerate(REVIEWS * 20)).encode() + b"\xff not UTF-8\n")
    assert table_warning(path) is not None
