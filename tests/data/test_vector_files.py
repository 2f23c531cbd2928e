"""Vectors from files: what is read, and what hostile ones are answered with."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.data.arrays import map_npy, read_vectors
from attnkit.errors import DataError, UsageError

WIDE = np.arange(12.0).reshape(4, 3)


def read(path: Path, width: int | None = None) -> Any:
    return np.concatenate(list(read_vectors(path, width)))


def saved(array: Any, pickled: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=pickled)
    return stream.getvalue()


@pytest.mark.parametrize(
    "array",
    [WIDE, WIDE.astype(np.float16), WIDE.astype(">f8"), np.asfortranarray(WIDE), WIDE.astype(np.int8), WIDE > 3],
    ids=["float64", "float16", "big-endian", "fortran", "int8", "bool"],
)
def test_npy_files_give_the_rows_that_numpy_reads(tmp_path: Path, array: Any) -> None:
    (tmp_path / "a.npy").write_bytes(saved(array))
    assert (read(tmp_path / "a.npy") == array.astype(np.float32)).all()
    assert len(map_npy(tmp_path / "a.npy")) == 4


def test_rows_of_many_blocks_come_in_order(tmp_path: Path) -> None:
    rows = np.arange(300_000, dtype=np.float32).reshape(-1, 2)
    (tmp_path / "a.npy").write_bytes(saved(rows))
    (tmp_path / "a.csv").write_text("".join(f"{a},{b}\n" for a, b in rows.tolist()))
    for name in ("a.npy", "a.csv"):
        assert len(list(read_vectors(tmp_path / name))) > 1
        assert (read(tmp_path / name) == rows).all()


@pytest.mark.parametrize(
    "text", ["1,2\n3,4\n", "x,y\n1,2\n3,4\n", "\ufeffx,y\r\n 1 , 2e0\r\n3,+4", '"a","b"\n1,2\n3,4\n']
)
def test_csv_files_may_have_a_header(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert read(tmp_path / "a.csv").tolist() == [[1, 2], [3, 4]]


def header(shape: str, descr: str = "'<f4'", n_data: int = 0, length: int | None = None) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if length is None else length) + text + bytes(n_data)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "claims more than there is": (lambda: header("(1000000000000, 4)"), "not a readable .npy file"),
    "claims less": (lambda: header("(1, 4)", n_data=17), "declares 16 bytes, but the file has 17"),
    "claims more than a number holds": (
        lambda: header("(9223372036854775807, 9223372036854775807)"),
        "not a readable .npy file",
    ),
    "negative": (lambda: header("(-1, 4)"), "not a readable .npy file"),
    "no rows": (lambda: header("(0, 4)"), "has shape"),
    "one dimension": (lambda: saved(np.arange(4.0)), "has shape"),
    "three dimensions": (lambda: saved(np.zeros((2, 2, 2))), "has shape"),
    "objects": (lambda: saved(np.array([[{}, 1]], object), pickled=True), "Python objects in dtype"),
    "words": (lambda: saved(np.array([["a", "b"]])), "not numbers"),
    "complex": (lambda: saved(WIDE.astype(complex)), "not numbers"),
    "fields": (lambda: header("(1, 1)", "[('a', '<f4')]", 4), "not numbers"),
    "a header that runs code": (
        lambda: header("(1, __import__('os').system('true'))", n_data=4),
        "not a readable .npy file",
    ),
    "a nested header": (lambda: header("(" * 3000 + ")" * 3000, n_data=4), "not a readable .npy file"),
    "a header beyond its file": (lambda: header("(1, 1)", length=60_000), "not a readable .npy file"),
    "a long header": (lambda: b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31), "not a readable .npy file"),
    "of another version": (lambda: b"\x93NUMPY\x09\x00" + bytes(100), "not a readable .npy file"),
    "text": (lambda: b"1,2\n3,4\n", "not a readable .npy file"),
    "nothing": (lambda: b"", "not a readable .npy file"),
    "not a number": (lambda: saved(np.array([[1.0, 2.0], [1.0, np.nan]])), "not finite"),
    "endless": (lambda: saved(np.array([[np.inf, 2.0]])), "not finite"),
    "too large for 32 bits": (lambda: saved(np.array([[1e300, 2.0]])), "too large for float32"),
    "too wide": (lambda: saved(np.zeros((1, 70_000), np.int8)), "more than 65,536"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_npy_files_are_refused(tmp_path: Path, case: str) -> None:
    make, said = HOSTILE[case]
    path = tmp_path / "a.npy"
    path.write_bytes(make())
    with pytest.raises(DataError) as found:
        read(path)
    assert said in found.value.what and str(path) in str(found.value.where)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("", "no vectors", None),
        ("x,y\n", "no vectors", None),
        ("1,2\n3\n", "1 numbers, not 2", 2),
        ("1,2\n3,4,5\n", "3 numbers, not 2", 2),
        ("1,2\nx,y\n", "'x' is not a number", 2),
        ("1,abc\n3,4\n", "'abc' is not a number", 1),
        ("1,2\n\n3,4\n", "a number is missing", 2),
        ("\n1,2\n", "a number is missing", 1),
        ("1,\n", "a number is missing", 1),
        ("1,nan\n", "not finite", 1),
        ("a,b\n1,2\n3,-inf\n", "not finite", 3),
    ],
)
def test_hostile_csv_files_are_refused(tmp_path: Path, text: str, said: str, line: int | None) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError) as found:
        read(path)
    assert said in found.value.what
    assert found.value.where == (f"{path}:{line}" if line else str(path))


def test_another_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(saved(WIDE))
    with pytest.raises(DataError, match="3 numbers, not 5"):
        read(tmp_path / "a.npy", 5)


def test_missing_files_and_folders_are_told(tmp_path: Path) -> None:
    (tmp_path / "b.npy").mkdir()
    for name in ("a.npy", "a.csv", "b.npy"):
        with pytest.raises(UsageError):
            read(tmp_path / name)


def test_a_sparse_giant_takes_no_memory(tmp_path: Path) -> None:
    """16 GB that are not there: the first block comes without the others."""
    path = tmp_path / "a.npy"
    begin = header("(1000000000, 4)")
    path.write_bytes(begin)
    try:
        with path.open("r+b") as stream:
            stream.truncate(len(begin) + 16_000_000_000)
    except OSError:
        pytest.skip("no sparse files here")
    block = next(read_vectors(path))
    assert block.nbytes < 1 << 23 and isinstance(block, np.ndarray)
