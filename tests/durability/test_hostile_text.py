"""Text that no tool should choke on, or be quiet about: each case ends with its code and says where the trouble is."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

N = 12
LINES = [f"{i} {i + 1} {i + 2}".encode() for i in range(N)]
GOOD = b"\n".join(LINES) + b"\n"

Spoilt = Callable[[bytes, str, int], bytes]


def place(bad: bytes, where: str, line: int) -> bytes:
    """Return the text with bytes put at the start, in the middle or at the end of a line (counted from 1)."""
    lines = list(LINES)
    at = {"start": 0, "middle": 2, "end": len(lines[line - 1])}[where]
    lines[line - 1] = lines[line - 1][:at] + bad + lines[line - 1][at:]
    return b"\n".join(lines)


BAD = {
    "overlong of two": b"\xc0\xaf",
    "overlong of three": b"\xe0\x80\xaf",
    "overlong of four": b"\xf0\x80\x80\xaf",
    "overlong NUL": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "CESU-8": b"\xed\xa0\xbd\xed\xb8\x80",
    "truncated of two": b"\xc3",
    "truncated of three": b"\xe2\x82",
    "truncated of four": b"\xf0\x9f\x98",
    "continuation": b"\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "six bytes": b"\xfc\x84\x80\x80\x80\x80",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "0xFE": b"\xfe",
    "0xFF": b"\xff",
    "Latin-1": b"\xe9",
}
PLACES = [("start", 2), ("middle", 1), ("end", 7), ("middle", N), ("start", N), ("end", N), ("end", 1)]
COMMANDS = {
    "check": ("check bad good", 3, "source: line with bytes that are not UTF-8"),
    "vocab": ("vocab good bad -o v.json", 3, "is not UTF-8 (byte {column} of the line)"),
    "translate": ("translate {run} -i bad -o out", 0, "invalid bytes replaced with U+FFFD"),
    "translate strictly": ("translate {run} --strict -i bad -o out", 3, "is not UTF-8 (byte {column} of the line)"),
    "score": ("score {run} good bad -o out", 3, "is not UTF-8 (byte {column} of the line)"),
    "back-translate": ("back-translate {run} bad -o out --keep-flagged", 3, "is not UTF-8 (byte {column} of the line)"),
    "score-bleu": ("score-bleu good bad", 3, "is not UTF-8 (byte {column} of the line)"),
    "train": ("train --src good --tgt bad -o run --preset tiny", 3, "1 line with bytes that are not UTF-8"),
}
FORMS = [(form, PLACES[i % len(PLACES)], name) for i, form in enumerate(BAD) for name in COMMANDS]


RARELY = ("translate strictly", "score", "train")
"""Commands that meet every fourth form only, but under the mark."""


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("form", "at", "name"),
    [
        pytest.param(
            *case,
            id=f"{case[0]}-{case[2]}",
            marks=pytest.mark.slow if case[2] in RARELY and list(BAD).index(case[0]) % 4 else (),
        )
        for case in FORMS
    ],
)
def test_bytes_that_are_no_utf8(
    attnkit: Any, trained: Path, tmp_path: Path, form: str, at: tuple[str, int], name: str
) -> None:
    where, line = at
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "bad").write_bytes(place(BAD[form], where, line))
    command, code, words = COMMANDS[name]
    ended = attnkit(command.format(run=trained).split(), tmp_path)
    column = {"start": 0, "middle": 2, "end": len(LINES[line - 1])}[where] + 1
    place_said = f"line {line}" if name == "check" else f"bad:{line}"
    ended.check(code, words.format(column=column), place_said)
    left = {path.name for path in tmp_path.iterdir()} - {"good", "bad"}
    assert left == ({"out"} if code == 0 else set())
    if code == 0:
        assert (tmp_path / "out").read_bytes().count(b"\n") == N


TEXT = GOOD.decode()
ENCODINGS: dict[str, tuple[bytes, str]] = {
    "UTF-16 LE": (b"\xff\xfe" + TEXT.encode("utf-16-le"), "looks like UTF-16"),
    "UTF-16 BE": (b"\xfe\xff" + TEXT.encode("utf-16-be"), "looks like UTF-16"),
    "UTF-16 LE without a mark": (TEXT.encode("utf-16-le"), "looks like UTF-16"),
    "UTF-16 BE without a mark": (TEXT.encode("utf-16-be"), "looks like UTF-16"),
    "UTF-32 LE": (b"\xff\xfe\0\0" + TEXT.encode("utf-32-le"), "looks like UTF-32"),
    "UTF-32 BE": (b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"), "looks like UTF-32"),
    "gzip, misnamed": (gzip.compress(GOOD), "add .gz to its name"),
    "xz, misnamed": (lzma.compress(GOOD), "add .xz to its name"),
    "bzip2, misnamed": (bz2.compress(GOOD * 9), "add .bz2 to its name"),
    "a program": (b"\x7fELF\x02\x01\x01\0\0\0\xff\0", "looks binary"),
}


@pytest.mark.parametrize("command", ["check bad good", "score-bleu good bad", "vocab bad -o v.json"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_that_are_something_else(attnkit: Any, tmp_path: Path, encoding: str, command: str) -> None:
    content, words = ENCODINGS[encoding]
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "bad").write_bytes(content)
    attnkit(command.split(), tmp_path).check(3, words, "line 1" if command.startswith("check") else "bad:1")


ODD: dict[str, tuple[bytes, str]] = {
    "byte-order mark": (b"\xef\xbb\xbf" + GOOD, "byte-order mark at the start"),
    "byte-order mark inside": (place(b"\xef\xbb\xbf", "middle", 3), "line with a U+FEFF inside"),
    "two byte-order marks": (b"\xef\xbb\xbf" * 2 + GOOD, "line with a U+FEFF inside"),
    "CRLF": (GOOD.replace(b"\n", b"\r\n"), r"lines that end in \r\n"),
    "CR alone": (place(b"\r", "middle", 3), r"line with a \r inside"),
    "CR twice": (GOOD.replace(b"\n", b"\r\r\n"), r"lines with a \r inside"),
    "NUL": (place(b"\0", "middle", 3), "line with control characters"),
    "escape sequence": (place(b"\x1b]0;x\x07\x1b[31m", "start", 3), "<U+001B>]0;x<U+0007>"),
    "U+2028": (place("\u2028".encode(), "middle", 3), "<U+2028>"),
    "U+2029": (place("\u2029".encode(), "end", 3), "<U+2029>"),
    "U+0085": (place("\x85".encode(), "start", 3), "<U+0085>"),
    "vertical tab": (place(b"\v", "middle", 3), "other tools would split"),
    "form feed": (place(b"\f", "end", 3), "other tools would split"),
    "right to left": (place("\u202e".encode(), "middle", 3), "usable for training"),
    "U+FFFF": (place("\uffff".encode(), "middle", 3), "usable for training"),
    "no last line feed": (GOOD[:-1], "usable for training"),
    "special tokens": (place(b" <s> </s> <unk> <pad> [MASK] [CLS] <0x41> <unused0> ", "end", 3), "usable for training"),
    "token spaces": (place(" \u2581\u2581 \u0120the @@ ## </w>".encode(), "end", 3), "usable for training"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ODD)
def test_odd_text_is_told_and_kept(attnkit: Any, trained: Path, tmp_path: Path, name: str) -> None:
    r"""Checked, made a vocabulary of that spells it, translated line by line: lines end at \n and nowhere else."""
    content, words = ODD[name]
    n = content.count(b"\n") + (not content.endswith(b"\n"))
    (tmp_path / "good").write_bytes((GOOD + b"1 2 3\n")[: None if n > N else len(GOOD)])
    (tmp_path / "odd").write_bytes(content)
    attnkit(["check", "odd", "good", "--max-ratio", "1000"], tmp_path).check(0, words)
    attnkit(["vocab", "odd", "-o", "v.json", "--size", "300", "--json"], tmp_path).check(0, '"n_unknown": 0')
    ended = attnkit(["translate", trained, "-i", "odd"], tmp_path)
    ended.check(0)
    assert ended.out.count("\n") == n and ended.out.endswith("\n")


SAME = "output file {a} is also an input file"
SOURCES: dict[str, tuple[str, int, tuple[str, ...], str]] = {
    # command; exit code; words; what makes the input
    "missing": ("check a {tgt}", 2, ("no such file: a",), ""),
    "folder as text": ("check a {tgt}", 2, ("a is a folder",), "os.mkdir('a')"),
    "folder to translate": ("translate {run} -i a", 2, ("a has no files",), "os.mkdir('a')"),
    "folder to score": ("score-bleu {tgt} a", 2, ("a is a folder",), "os.mkdir('a')"),
    "folder to train on": ("train --src a --tgt {tgt} -o run", 2, ("a is a folder",), "os.mkdir('a')"),
    "a file as folder": ("check a/b {tgt}", 2, ("no such file: a/b",), "open('a', 'w')"),
    "pipe to check": ("check a {tgt}", 2, ("a can be read only once",), "os.mkfifo('a')"),
    "pipe to train on": ("train --src a --tgt {tgt} -o run", 2, ("a can be read only once",), "os.mkfifo('a')"),
    "pipe for a vocabulary": ("vocab a -o v.json", 2, ("a can be read only once",), "os.mkfifo('a')"),
    "pipe as vocabulary": ("check {src} {tgt} --vocab a", 4, ("a",), "os.mkfifo('a')"),
    "/dev/zero to check": ("check /dev/zero {tgt}", 2, ("read only once",), ""),
    "/dev/zero to translate": ("translate {run} -i /dev/zero", 3, ("more than 67,108,864 bytes", "/dev/zero:1"), ""),
    "/dev/zero to score": ("score-bleu /dev/zero {tgt}", 3, ("more than 67,108,864 bytes", "/dev/zero:1"), ""),
    "/dev/zero as pairs": ("score {run} {src} /dev/zero", 3, ("more than 67,108,864 bytes", "/dev/zero:1"), ""),
    "/dev/zero as prefixes": ("translate {run} -i {src} --target-prefix /dev/zero", 3, ("/dev/zero:1",), ""),
    "/dev/zero as vocabulary": ("check {src} {tgt} --vocab /dev/zero", 4, ("/dev/zero",), ""),
    "/dev/null to translate": ("translate {run} -i /dev/null", 0, (), ""),
    "/dev/null to score": ("score-bleu /dev/null /dev/null", 3, ("/dev/null", "empty"), ""),
    "/dev/null to train on": ("train --src /dev/null --tgt {tgt} -o run", 2, ("read only once",), ""),
    "empty to check": ("check a {tgt}", 3, ("no lines",), "open('a', 'w')"),
    "empty to train on": ("train --src a --tgt {tgt} -o run", 3, ("this file is empty", "at a"), "open('a', 'w')"),
    "empty to validate on": (
        "train --src {src} --tgt {tgt} --valid-src a --valid-tgt a -o run",
        3,
        ("no lines", "at a"),
        "open('a', 'w')",
    ),
    "empty for a vocabulary": ("vocab a -o v.json", 3, ("no text", "help: "), "open('a', 'w')"),
    "empty to translate": ("translate {run} -i a", 0, (), "open('a', 'w')"),
    "empty to score": ("score-bleu a a", 3, ("the file is empty", "at a"), "open('a', 'w')"),
    "empty pairs": ("score {run} a a", 0, ("0 pairs",), "open('a', 'w')"),
    "off by one to check": ("check a {tgt}", 3, ("line without a partner",), "cut('a', -1)"),
    "off by one to train on": ("train --src a --tgt {tgt} -o run", 3, ("has 159 lines", "has 160"), "cut('a', -1)"),
    "off by one to score": ("score {run} {src} a -o out", 3, ("a has 159",), "cut('a', -1)"),
    "off by one references": ("score-bleu {src} a", 3, ("has 159",), "cut('a', -1)"),
    "too few prefixes": (
        "translate {run} -i {src} --target-prefix a",
        3,
        ("only 159 target prefixes",),
        "cut('a', -1)",
    ),
    "output is input": (
        "translate {run} -i a -o a",
        2,
        ("output file a is also an input file", "another name"),
        "cut('a', 9)",
    ),
    "output is a link to input": (
        "translate {run} -i a -o b",
        2,
        ("b is also an input",),
        "cut('a', 9); os.symlink('a', 'b')",
    ),
    "output is a pair": ("score {run} {src} a -o a", 2, ("output file a is also an input file",), "cut('a', 9)"),
    "output is the prefixes": (
        "translate {run} -i {src} --target-prefix a -o a",
        2,
        ("a is also an input",),
        "cut('a', 9)",
    ),
    "vocabulary is input": ("vocab a -o a", 2, ("output file a is also an input file",), "cut('a', 9)"),
    "run is input": ("train --src a --tgt {tgt} -o a", 4, ("a is not a folder",), "cut('a', 160)"),
    "name with an escape": (["check", "\x1b[31m\nerror:", "{tgt}"], 2, ("no such file: <U+001B>[31m error:",), ""),
    "name of bytes": (["check", "\udcff", "{tgt}"], 2, ("no such file",), ""),
    "name without end": (["check", "x" * 100_000, "{tgt}"], 2, ("no such file: xxx",), ""),
    "name of many folders": (["train", "--src", "x/" * 3000, "--tgt", "{tgt}"], 2, ("no such file: x/x/",), ""),
    "empty name": (["score-bleu", "", "{tgt}"], 2, ("is a folder",), ""),
}
CUT = "cut = lambda name, n: open(name, 'wb').write(b'\\n'.join(open({src!r}, 'rb').read().split(b'\\n')[:160][:n]))\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SOURCES)
def test_files_that_are_no_text(attnkit: Any, workshop: Any, trained: Path, tmp_path: Path, name: str) -> None:
    command, code, words, make = SOURCES[name]
    names = {"src": str(workshop.file("train.src")), "tgt": str(workshop.file("train.tgt")), "run": str(trained)}
    arguments = [word.format(**names) for word in (command.split() if isinstance(command, str) else command)]
    ended = attnkit(arguments, tmp_path, before=CUT.format(**names) + make)
    ended.check(code, *words)
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"a", "b", "run"} and not (tmp_path / "run" / "data").exists()
    if "put is" in name or "is input" in name:
        kept = (tmp_path / "a").read_text().split("\n")
        assert kept == workshop.file("train.src").read_text().split("\n")[: len(kept)] and len(kept) >= 9


WHOLE = b"".join(b"%d line\n" % i for i in range(3000))
PACKED: dict[str, tuple[str, bytes, int, str]] = {
    # name of the file; content; exit code; words
    "no gzip": ("a.gz", WHOLE, 3, "damaged or truncated"),
    "truncated gzip": ("a.gz", gzip.compress(WHOLE)[:-30], 3, "damaged or truncated"),
    "gzip without its checksum": ("a.gz", gzip.compress(WHOLE)[:-8], 3, "damaged or truncated"),
    "gzip with a wrong checksum": ("a.gz", gzip.compress(WHOLE)[:-8] + b"\0" * 8, 3, "damaged or truncated"),
    "gzip and garbage": ("a.gz", gzip.compress(WHOLE) + b"garbage", 3, "damaged or truncated"),
    "gzip of one byte": ("a.gz", b"\x1f", 3, "damaged or truncated"),
    "truncated xz": ("a.xz", lzma.compress(WHOLE)[:-30], 3, "damaged or truncated"),
    "no xz": ("a.xz", WHOLE, 3, "damaged or truncated"),
    "truncated bzip2": ("a.bz2", bz2.compress(WHOLE)[:-30], 3, "damaged"),
    "no bzip2": ("a.bz2", WHOLE, 3, "damaged"),
    "two gzips in one": ("a.gz", gzip.compress(WHOLE[:99]) + gzip.compress(WHOLE[99:]), 0, "No problems were found"),
    "gzip in capitals": ("a.GZ", gzip.compress(WHOLE), 0, "No problems were found"),
}


@pytest.mark.parametrize("name", PACKED)
def test_compressed_files(attnkit: Any, tmp_path: Path, name: str) -> None:
    path, content, code, words = PACKED[name]
    (tmp_path / path).write_bytes(content)
    (tmp_path / "b").write_bytes(WHOLE.upper())  # no copies, which would be a finding
    attnkit(["check", path, "b"], tmp_path).check(code, words, *([f"at {path}"] if code else []))
    ended = attnkit(["vocab", path, "-o", "v.json"], tmp_path)
    ended.check(code, *([f"at {path}"] if code else ["3,000 lines"]))
    assert (tmp_path / "v.json").exists() == (code == 0)


LONG: dict[str, tuple[bytes, str, int, str]] = {
    # content of file a; command; exit code; words
    "10 MB to check": (b"ab c " * 2_000_000, "check a a", 0, "line of more than 2,000 characters"),
    "10 MB for a vocabulary": (b"ab c " * 2_000_000, "vocab a -o v.json --size 300", 0, "4,000,001 tokens (a:1)"),
    "10 MB to score": (b"a" * 10_000_000, "score-bleu a a", 0, "100.0"),
    "10 MB of blanks to translate": (b" " * 10_000_000, "translate {run} -i a", 0, ""),
    "blank lines to check": (b"\n" * 1_000_000, "check a a", 3, "1,000,000  pairs of blank lines"),
    "blank lines for a vocabulary": (b"\n" * 1_000_000, "vocab a -o v.json", 3, "no text"),
    "blank lines to train on": (b"\n" * 1_000_000, "train --src a --tgt a -o run", 3, "none usable for training"),
    "many blank lines to translate": (b"\n" * 100_000, "translate {run} -i a", 0, ""),
    "blank lines to translate": (b"\n" * 1_000_000, "translate {run} -i a", 0, ""),
}


SLOW = ("10 MB for a vocabulary", "blank lines to train on", "blank lines to translate", "10 MB to score")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in LONG])
def test_long_lines_and_many(attnkit: Any, trained: Path, tmp_path: Path, name: str) -> None:
    content, command, code, words = LONG[name]
    (tmp_path / "a").write_bytes(content)
    ended = attnkit(command.format(run=trained).split(), tmp_path)
    ended.check(code, words)
    if "translate" in name:
        assert ended.out.count("\n") == content.count(b"\n") + (not content.endswith(b"\n"))
