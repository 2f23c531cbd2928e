r"""Lines end at \n and nowhere else, whatever the file holds, and every oddity is counted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.errors import DataError, SystemFailure, UsageError
from attnkit.text.files import is_stream
from attnkit.text.lines import LineReader, check_not_streams, count_lines, is_blank, open_binary, read_lines
from attnkit.text.parallel import first_suspicious_line, read_parallel


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@given(lines=st.lists(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=5)))
def test_only_line_feeds_end_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("lines") / "a", "".join(line + "\n" for line in lines))
    expected = [line[:-1] if line.endswith("\r") else line for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert list(read_lines(path)) == expected


FEW = ["\0\n", "\0a\n", "a\0\nb\n", "a\0b\0c\0\n", "\0\n" * 40, "\0a\0\n" * 3, "\0" * 40, "a" * 40 + "\0" * 19]


@pytest.mark.parametrize("text", FEW)
def test_nul_is_a_character_like_others(tmp_path: Path, text: str) -> None:
    assert list(read_lines(write(tmp_path / "a", text))) == text.splitlines()


@pytest.mark.parametrize(
    "lines", ["the dog ran over the hill\n", "1\n\n22\nthe dog ran away\n", "Zoë öffnet die Tür\n", "12" * 8]
)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_told_by_the_first_lines(tmp_path: Path, lines: str, encoding: str) -> None:
    path = write(tmp_path / "a", lines.encode(encoding))
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert "UTF-16" in str(caught.value.help)
    reader = LineReader(path, on_bad="replace")
    assert len(list(reader)) >= lines.count("\n") and "UTF-16" in str(reader.counts.guess)


@pytest.mark.parametrize("block", ["a", "aa\n", "\n", "aaaa\naaaaaa\n"])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    """Up to the longest that a line may be, across the blocks in which they are counted."""
    monkeypatch.setattr("attnkit.text.lines.MAX_BYTES", (1 << 20) + 2)
    for n in ((1 << 20) - 5, (1 << 20) + 1, (1 << 20) + 2, (1 << 20) + 3):
        for end in ("", "\n"):
            path = write(tmp_path / "a", block + "x" * n + end)
            try:
                expected: object = len(list(read_lines(path)))
            except DataError as error:
                expected = error.lines()
            try:
                found: object = count_lines(path)
            except DataError as error:
                found = error.lines()
            assert found == expected, n


def test_a_last_line_needs_no_line_feed(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", "x\n\ny"))) == ["x", "", "y"]
    assert list(read_lines(write(tmp_path / "a", ""))) == []
    assert list(read_lines(write(tmp_path / "a", "\n"))) == [""]


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    reader = LineReader(write(tmp_path / "a", b"\xef\xbb\xbfa\r\nb\n\xff\n\xfe\r\n"), on_bad="replace")
    assert list(reader) == ["a", "b", "\ufffd", "\ufffd"]
    counts = reader.counts
    assert (counts.n_lines, counts.n_carriage_returns, counts.n_bad, counts.first_bad) == (4, 2, 2, 3)
    assert counts.byte_order_mark


def test_bad_bytes_are_refused_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.en", b"fine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"byte 0xE9 is not UTF-8 \(byte 4 of the line\)") as caught:
        list(read_lines(path))
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        ("hei".encode("utf-16"), "UTF-16"),
        (gzip.compress(b"a\n", mtime=0), "add .gz to its name"),
        (b"\x7fELF\x80\0\0", "looks binary"),
        (b"caf\xe9", "iconv"),
    ],
)
def test_the_kind_of_an_unreadable_file_is_guessed(tmp_path: Path, content: bytes, guess: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_lines(write(tmp_path / "a", content)))
    assert guess in str(caught.value.help)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files(tmp_path: Path, suffix: str, pack) -> None:
    text = "".join(f"line {i}\n" for i in range(5000))
    path = write(tmp_path / f"a{suffix}", pack(text.encode()))
    assert list(read_lines(path)) == text.splitlines()
    assert count_lines(path) == 5000
    for damaged in (pack(text.encode())[:-20], b"no such thing " * 9):
        with pytest.raises(DataError, match="damaged"):
            list(read_lines(write(path, damaged)))
        with pytest.raises(DataError, match="damaged"):
            count_lines(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert list(read_lines(Path("-"))) == ["a", "b"]


def test_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SystemFailure, match="standard input: it is closed"):
        open_binary(Path("-"))
    assert not is_stream(Path("-"))


def test_what_can_be_read_only_once_is_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pipe = write(tmp_path / "a", "x\n"), tmp_path / "pipe"
    os.mkfifo(pipe)
    check_not_streams([path, tmp_path, tmp_path / "missing"])
    for stream in (pipe, Path("-"), Path("/dev/null")):
        with pytest.raises(UsageError, match="read only once") as caught:
            check_not_streams([path, stream])
        assert caught.value.help == "write it to a file first"
    with path.open() as redirected:  # as after `< a`: at once, but not twice
        monkeypatch.setattr("sys.stdin", redirected)
        assert not is_stream(Path("-"))
        with pytest.raises(UsageError, match="standard input"):
            check_not_streams([Path("-")])


def test_missing_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path / "train.en", "")
    with pytest.raises(UsageError, match="no such file") as caught:
        open_binary(tmp_path / "trian.en")
    assert "did you mean" in str(caught.value.help)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is a folder without text files"):
        list(read_lines(tmp_path / "empty"))


SRC = [f"sentence {'x' * (i * 7 % 40)} {i if i % 5 == 0 else ''}{'?' if i % 3 else '.'}" for i in range(200)]
TGT = [f"Satz {'y' * (i * 7 % 40)} {i if i % 5 == 0 else ''}{'?' if i % 3 else '.'}" for i in range(200)]


def pair(folder: Path, src: list[str], tgt: list[str]) -> tuple[Path, Path]:
    return write(folder / "a.src", "\n".join(src) + "\n"), write(folder / "a.tgt", "\n".join(tgt) + "\n")


def test_pairs_are_read_together(tmp_path: Path) -> None:
    assert list(read_parallel(*pair(tmp_path, SRC, TGT))) == list(zip(SRC, TGT, strict=True))


@pytest.mark.parametrize("at", [0, 1, 57, 120, 199])
@pytest.mark.parametrize("n_lost", [1, 3])
def test_where_files_part_is_guessed(tmp_path: Path, at: int, n_lost: int) -> None:
    shorter = SRC[:at] + SRC[at + n_lost :]
    src, tgt = pair(tmp_path, shorter, TGT)
    assert abs(first_suspicious_line(src, tgt) - (at + 1)) <= 1
    assert abs(first_suspicious_line(tgt, src) - (at + 1)) <= 1


def test_different_numbers_of_lines_are_refused_with_both_counts(tmp_path: Path) -> None:
    src, tgt = pair(tmp_path, SRC[:57] + SRC[58:], TGT)
    with pytest.raises(DataError, match=r"has 199 lines and .* has 200") as caught:
        list(read_parallel(src, tgt))
    assert str(caught.value.where).startswith("near line 58 (estimated")
    src, tgt = pair(tmp_path, SRC, TGT[:150])
    with pytest.raises(DataError) as caught:
        list(read_parallel(src, tgt))
    assert str(caught.value.where).startswith("line 151, which has no partner")


@pytest.mark.parametrize(
    "line", ["", " \t", "\ufe0f", "\u034f", "\x00", "\u200b \u00ad", "\u1160\uffa0", "\U000e0061\U000e007f"]
)
def test_lines_without_anything_to_see_are_blank(line: str) -> None:
    assert is_blank(line)
    assert not is_blank(f"{line}a") and not is_blank(f"{line}❤\ufe0f")
