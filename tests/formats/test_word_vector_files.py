"""Word vectors in every format: bytes written out by hand are read, ours come back, broken ones are reported."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import VectorTable, recognised
from attnkit.formats.word_vectors.tensors import read_tensors, words_of, write_tensors
from attnkit.formats.word_vectors.text import (
    metadata_text,
    read_binary,
    read_projector,
    read_text,
    without_header,
    write_binary,
    write_lines,
    write_projector,
)

ROWS = np.array([[0.1, -2.5, 3e-7], [1.0, 1 / 3, -0.0], [7.25, 1e20, -1e-30]], np.float32)
WORDS = ["the", "größe", "x%s"]
TABLE = VectorTable(WORDS, ROWS, np.array([9, 5, 5]))


def written(write: Callable[..., None], *given: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    write(stream, *given, **options)
    return stream.getvalue()


def text(raw: bytes) -> VectorTable:
    return read_text(io.BytesIO(raw), "a.txt")


def same(table: VectorTable | None) -> None:
    assert table is not None
    assert table.words == WORDS
    assert np.asarray(table.rows[:]).tobytes() == ROWS.tobytes()


def packed(word: bytes, *numbers: float) -> bytes:
    return word + b" " + struct.pack(f"<{len(numbers)}f", *numbers)


# --- what others write


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["as gensim", "as word2vec.c"])
def test_binary_as_others_write_it(end: bytes) -> None:
    raw = b"2 3\n" + packed(b"king", 1, 32, 2.5) + end + packed("né".encode(), -1, 0, 8) + end
    table = read_binary(raw, "a.bin")
    assert table.words == ["king", "né"]
    assert table.rows[:].tolist() == [[1, 32, 2.5], [-1, 0, 8]]
    assert table.rows[1].tolist() == [-1, 0, 8]
    assert table.rows[np.array([1, 0, 1])].tolist() == [[-1, 0, 8], [1, 32, 2.5], [-1, 0, 8]]
    assert recognised(raw, "a") == "word2vec-binary"


def test_binary_rows_may_hold_spaces_and_line_feeds() -> None:
    tricky = struct.unpack("<3f", b" \n  \n\n\n\n    ")
    table = read_binary(b"2 3\n" + packed(b"a", *tricky) + b"\n" + packed(b"b", *tricky) + b"\n", "a.bin")
    assert table.words == ["a", "b"] and table.rows[:].tobytes() == b" \n  \n\n\n\n    " * 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"2 2\nking 1 2.5\nqueen -1 1e-3\n", ["king", "queen"]),  # word2vec, gensim
        (b"2 2\nking 1 2.5 \nqueen -1 1e-3 \n", ["king", "queen"]),  # fastText ends rows with a space
        (b"king 1 2.5\r\nqueen -1 .001", ["king", "queen"]),  # GloVe: no header
        (b"king 1 2.5\nat name@x 1 -1 1e-3\n", None),
        (b"king 1 2.5\n. . -1 1e-3\n", ["king", ". ."]),  # words with spaces occur in GloVe's 840B
        (b"2 2\nking\t1\t2.5\n\nqueen\t-1\t1e-3\n\n", ["king", "queen"]),
        ("2 2\n1\u00a02 1 2.5\n\u3000 -1 1e-3\n".encode(), ["1\u00a02", "\u3000"]),  # only ASCII separates
    ],
)
def test_text_as_others_write_it(raw: bytes, words: list[str] | None) -> None:
    if words is None:  # a number more than the others have, not a word with a space
        with pytest.raises(DataError, match="numbers, not 2"):
            text(raw)
        return
    table = text(raw)
    assert table.words == words
    assert table.rows[:].tolist() == [[1, 2.5], [-1, np.float32(1e-3)]]
    assert recognised(raw, "a") == ("word2vec" if raw.startswith(b"2 2\n") else "glove")


def test_many_rows_are_read_in_groups() -> None:
    n, width = 3000, 200
    rows = np.random.default_rng(1).normal(size=(n, width)).astype(np.float32)
    table = VectorTable([f"w{i}" for i in range(n)], rows)
    again = text(written(write_lines, table))
    assert again.words == table.words and np.array_equal(again.rows[:], rows)


# --- what is written comes back


def test_text_comes_back_to_the_last_bit() -> None:
    raw = written(write_lines, TABLE)
    assert raw.startswith(b"3 3\nthe 0.100000001 -2.5 ")
    same(text(raw))
    same(text(written(write_lines, TABLE, head=False)))


def test_binary_comes_back() -> None:
    raw = written(write_binary, TABLE)
    assert raw.startswith(b"3 3\n" + packed(b"the", *ROWS[0]) + b"\n")
    same(read_binary(raw, "a.bin"))


def test_tensors_are_read_by_the_library_and_come_back() -> None:
    raw = written(write_tensors, TABLE)
    found = load_tensors(raw)
    assert np.array_equal(found["vectors"], ROWS) and found["counts"].tolist() == [9, 5, 5]
    assert found["words"].tobytes().decode() == "\n".join(WORDS)
    table = read_tensors(raw, "a.safetensors")[1]
    same(table)
    assert table is not None and table.counts is not None and table.counts.tolist() == [9, 5, 5]
    assert recognised(raw, "a") == "safetensors"
    assert int.from_bytes(raw[:8], "little") % 8 == 0  # so that what is mapped is aligned


def test_tensors_of_others_hold_rows_alone() -> None:
    raw = save_tensors({"embedding.weight": ROWS[:2].astype(np.float16)})
    rows, table = read_tensors(raw, "a")
    assert table is None and np.array_equal(rows, ROWS[:2].astype(np.float16))
    with pytest.raises(DataError, match="ambiguous"):
        read_tensors(save_tensors({"a": ROWS, "b": ROWS}), "a")


def test_projector_comes_back() -> None:
    raw = written(write_projector, TABLE)
    assert np.array_equal(read_projector(io.BytesIO(raw), "vectors.tsv"), ROWS)
    metadata = metadata_text(TABLE)
    assert metadata.startswith(b"word\tcount\nthe\t9\n")
    assert words_of(without_header(metadata, 3), 3, "m") == WORDS
    bare = metadata_text(VectorTable(WORDS, ROWS))
    assert bare == "the\ngröße\nx%s\n".encode() and without_header(bare, 3) == bare


@pytest.mark.parametrize("word", ["new york", "a\tb", "a\nb", ""])
def test_words_that_a_format_cannot_keep_are_refused(word: str) -> None:
    table = VectorTable(["the", word, "b"], ROWS)
    for write in (write_lines, write_binary):
        with pytest.raises(DataError, match="cannot represent"):
            written(write, table)
    if word != "new york":
        with pytest.raises(DataError, match="cannot represent"):
            written(write_tensors, table)
    else:
        table_again = read_tensors(written(write_tensors, table), "a")[1]
        assert table_again is not None and table_again.words == table.words


# --- broken files


BROKEN_TEXT = {
    "nothing": (b"", "no vectors", None),
    "a header alone": (b"2 3\n", "declares 2 words, but the file has 0", 1),
    "cut off": (b"3 2\na 1 2\nb 1 2\n", "declares 3 words, but the file has 2", 1),
    "longer than said": (b"1 2\na 1 2\nb 1 2\n", "declares 1 words, but the file has 2", 1),
    "too few numbers": (b"2 2\na 1 2\nb 1\n", "1 numbers, not 2", 3),
    "cut off in a row": (b"a 1 2\nb 1", "1 numbers, not 2", 2),
    "too many numbers": (b"a 1 2\nb 1 2 3\n", "3 numbers, not 2", 2),
    "no number": (b"a 1 2\nb 1 x2\n", "'x2' is not a number", 2),
    "a number missing": (b"a 1 2\nb 1  2\n", "numbers, not 2|missing", 2),
    "not a number": (b"a 1 2\nb nan 2\n", "nan is infinite, NaN or too large", 2),
    "infinite": (b"a 1 2\nb 1 -inf\n", "-inf is infinite, NaN or too large", 2),
    "too large": (b"a 1 2\nb 1e60 2\n", "too large for float32", 2),
    "twice": (b"2 1\nab 1\nab 2\n", "duplicate word 'ab': also on line 2", 3),
    "a word alone": (b"a\n", "invalid vector size 0", 1),
    "no word": (b"a 1 2\n 1 2\n", "no word", 2),
    "not UTF-8": (b"a 1 2\nb\xff 1 2\n", "0xFF in a word is not UTF-8", 2),
    "a huge width": (b"1 99999999\na 1\n", "invalid vector size 99,999,999", 1),
    "a huge number of words": (b"999999999999 1\na 1\n", "declares 999,999,999,999 words", 1),
}


@pytest.mark.parametrize("case", BROKEN_TEXT)
def test_broken_text(case: str) -> None:
    raw, said, line = BROKEN_TEXT[case]
    with pytest.raises(DataError, match=said) as found:
        text(raw)
    assert found.value.where is not None
    assert found.value.where.startswith(f"a.txt:{line}" if line else "a.txt")


GOOD = b"2 2\n" + packed(b"a", 1, 2) + packed(b"b", 3, 4)
BROKEN_BINARY = {
    "cut off in a row": (GOOD[:-1], "truncated here", "row 2 of 2"),
    "cut off in a word": (GOOD[:-9], "truncated here", "row 2 of 2"),
    "cut off before a row": (GOOD[:-10], "truncated here", "row 2 of 2"),
    "longer than said": (GOOD + packed(b"c", 5, 6), "10 extra bytes after the last", "a.bin"),
    "a huge width": (b"2 99999999\n" + GOOD[4:], "words of width 99,999,999", "a.bin"),
    "too wide for the file": (b"2 60000\n" + GOOD[4:], "truncated here", "row 1 of 2"),
    "a huge number of words": (b"999999999999 2\n" + GOOD[4:], "truncated here", "row 3 of 999,999,999,999"),
    "no words": (b"0 2\n", "declares 0 words", "a.bin"),
    "no sizes": (b"king 2\n", "the header is missing", "a.bin"),
    "nothing": (b"", "the header is missing", "a.bin"),
    "no end of a word": (b"1 2\n" + b"a" * 9000, "no word ends within", "row 1"),
    "no word": (b"1 2\n" + packed(b"", 1, 2), "no word", "row 1"),
    "not UTF-8": (b"1 2\n" + packed(b"\xff", 1, 2), "0xFF in a word is not UTF-8", "row:1"),
}


@pytest.mark.parametrize("case", BROKEN_BINARY)
def test_broken_binary(case: str) -> None:
    raw, said, where = BROKEN_BINARY[case]
    with pytest.raises(DataError, match=said) as found:
        read_binary(raw, "a.bin")
    assert found.value.where is not None and where in found.value.where


def test_rows_are_found_alike_by_jumping_and_by_walking() -> None:
    rows = np.random.default_rng(3).integers(9, 34, (50, 8), np.uint8)  # full of spaces and line feeds
    random = np.random.default_rng(4)
    words = [bytes(random.integers(97, 123, random.integers(1, 12), np.uint8)) for _ in rows]
    for seen in range(40):
        feeds = (
            random.integers(0, 2, 51) if seen > 2 else np.full(51, int(seen > 0))
        )  # as others write it, then in disorder
        feeds[0] &= seen > 20
        feeds[-1] &= seen != 2
        parts = [b"\n" * f + w + b" " + r.tobytes() for f, w, r in zip(feeds, words, rows, strict=False)]
        table = read_binary(b"50 2\n" + b"".join(parts) + b"\n" * feeds[-1], "a")
        assert table.rows[:].tobytes() == rows.tobytes() and table.words == [word.decode() for word in words]


def test_every_cut_of_a_binary_file_is_refused() -> None:
    for n in range(len(GOOD)):
        with pytest.raises(DataError):
            read_binary(GOOD[:n], "a.bin")


def tensors(header: Any, data: bytes = b"") -> bytes:
    raw = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(raw).to_bytes(8, "little") + raw + data


F32 = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
BROKEN_TENSORS = {
    "a long header": (1 << 40).to_bytes(8, "little") + b"{}",
    "not JSON": tensors(b"{x"),
    "cut off": tensors({"vectors": F32}, bytes(15)),
    "another size": tensors({"vectors": {**F32, "shape": [3, 2]}}, bytes(16)),
    "a negative size": tensors({"vectors": {**F32, "shape": [-2, -2]}}, bytes(16)),
    "a negative place": tensors({"vectors": {**F32, "data_offsets": [-16, 0]}}, bytes(16)),
    "no shape": tensors({"vectors": {"dtype": "F32", "data_offsets": [0, 16]}}, bytes(16)),
    "a list": tensors([1, 2]),
    "no entry": tensors({"vectors": 3}),
    "nothing": b"",
    "one dimension": save_tensors({"vectors": ROWS[0]}),
    "words of another number": save_tensors({"vectors": ROWS, "words": np.frombuffer(b"a\nb", np.uint8)}),
    "counts of another number": save_tensors(
        {"vectors": ROWS, "words": np.frombuffer(b"a\nb\nc", np.uint8), "counts": np.array([1])}
    ),
}


@pytest.mark.parametrize("case", BROKEN_TENSORS)
def test_broken_tensors(case: str) -> None:
    with pytest.raises(DataError) as found:
        read_tensors(BROKEN_TENSORS[case], "a.safetensors")
    assert str(found.value.where).startswith("a.safetensors")


def test_broken_projector_rows() -> None:
    for raw, said, line in (
        (b"1\t2\n3\n", "1 numbers, not 2", 2),
        (b"1\t2\n3\tx\n", "'x' is not a number", 2),
        (b"1\t2\nnan\t1\n", "nan is infinite, NaN or too large", 2),
        (b"1\t2\n\n", "1 numbers, not 2", 2),
    ):
        with pytest.raises(DataError, match=said) as found:
            read_projector(io.BytesIO(raw), "v.tsv")
        assert found.value.where == f"v.tsv:{line}"


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"\xba\x16\x4f\x2f" + bytes(60), "fastText's own format"),
        (b"\x80\x04\x95" + bytes(60), "a pickle"),
        (b"\x7fELF" + bytes(60), "not a file of word vectors"),
        (b"", "this file is empty"),
        (b"-5 100\n" + packed(b"a", *range(1, 101)), "invalid header: -5 words of width 100"),
        (b"5 -3\na 1 2\n", "invalid header: 5 words of width -3"),
        (b"99999999999999999999 2\na 1 2\n", "invalid header: 99999999999999999999 words"),
    ],
)
def test_files_of_another_kind_are_named(begin: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        recognised(begin, "a")


def test_numbers_are_words_too() -> None:
    assert recognised(b"-5 100\n7 3\n", "a") == "glove"


@pytest.mark.parametrize("begin", [b"\xff" * 60, b"king 1 2\n", b"2 3\nking 1 2 3\n", bytes(60)])
def test_a_broken_file_of_arrays_is_not_taken_for_text(begin: bytes) -> None:
    for name in ("a.safetensors", "dir/a.NPY"):
        with pytest.raises(DataError, match="invalid header"):
            recognised(begin, name)


def test_tensors_with_a_senseless_header_are_told_as_such() -> None:
    raw = tensors({"vectors": F32}, bytes(16))
    assert recognised((1 << 40).to_bytes(8, "little") + raw[8:], "a") == "safetensors"


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_written_on(number: float) -> None:
    rows = np.ones((5, 2), np.float32)
    rows[3, 1] = number
    raw = b"5 2\n" + b"".join(packed(b"w%d" % i, *row) for i, row in enumerate(rows.tolist()))
    table = replace(read_binary(raw, "a.bin"), name="a.bin")
    for write in (write_lines, write_binary, write_tensors, write_projector):
        with pytest.raises(DataError, match="not finite") as found:
            written(write, table)
        assert found.value.where == "a.bin, vector 4"
