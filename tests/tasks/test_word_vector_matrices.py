"""The matrices of word vectors as they are saved: what any reader of safetensors reads, and nothing else comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from attnkit.checkpoints.checkpoint import Checkpoint, write_checkpoint
from attnkit.errors import RunError
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import FILE, Matrices, MatrixShape, content, draw, empty, fill, read, shapes

SHAPES = {"inputs": MatrixShape(5000, 20), "outputs": MatrixShape(4999, 20)}


@pytest.fixture
def matrices() -> Matrices:
    found = empty(SHAPES)
    for number, matrix in enumerate(found.values()):
        draw(matrix, 20, [number], 20)
    return found


def saved(folder: Path, raw: bytes) -> Checkpoint:
    return write_checkpoint(folder / "step-1", "step-1", 1, {FILE: raw})


def test_other_readers_read_what_is_saved(matrices: Matrices, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "step-1", "step-1", 1, {FILE: lambda: content(matrices, SHAPES)})
    checkpoint.verify()
    found = safetensors.numpy.load(checkpoint.read(FILE))
    assert found.keys() == SHAPES.keys()
    for name, matrix in matrices.items():
        assert np.array_equal(found[name], matrix[:, :20])
    again = empty(SHAPES)
    fill(again, SHAPES, checkpoint)
    assert all(np.array_equal(again[name], matrix) for name, matrix in matrices.items())
    assert checkpoint.read(FILE).index(matrices["inputs"][0, :20].tobytes()) % 64 == 0  # it can be mapped


def test_drawn_rows_lie_within_half_a_width(matrices: Matrices) -> None:
    inputs = matrices["inputs"]
    assert (inputs[:, 20:] == 0).all()
    assert 0.99 * 0.025 < np.abs(inputs[:, :20]).max() <= 0.025
    assert abs(inputs[:, :20].std() - 0.05 / np.sqrt(12)) < 1e-4


def with_header(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def changed(raw: bytes) -> bytes:
        n = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + n])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + raw[8 + n :]

    return changed


def with_nan(raw: bytes) -> bytes:
    return raw[:-4] + np.float32(np.nan).tobytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw[:-4], "bytes, expected"),
        (lambda raw: raw[: len(raw) // 2], "the file has 400,056 bytes"),
        (lambda raw: (1 << 40).to_bytes(8, "little") + raw[8:], "too long"),
        (with_header(lambda header: header.pop("outputs")), "does not contain inputs"),
        (with_header(lambda header: header["inputs"].update(shape=[20, 5000])), "'inputs' is not a float32 matrix"),  # type: ignore[attr-defined]
        (with_header(lambda header: header["outputs"].update(dtype="F16")), "'outputs' is not a float32 matrix"),  # type: ignore[attr-defined]
        (lambda raw: raw + b"\0" * 4, "bytes, expected"),
        (with_nan, "'outputs' are not finite"),
    ],
)
def test_what_is_no_such_file_is_refused(
    change: Callable[[bytes], bytes], words: str, matrices: Matrices, tmp_path: Path
) -> None:
    raw = b"".join(content(matrices, SHAPES))
    assert len(read(saved(tmp_path, raw), SHAPES)) == 2
    with pytest.raises(RunError, match=words):
        read(saved(tmp_path, change(raw)), SHAPES)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"inputs": (10, 7), "outputs": (10, 7)}),
        ({"loss": "hierarchical"}, {"inputs": (10, 7), "outputs": (9, 7)}),
        ({"subwords": {"buckets": 30}}, {"inputs": (40, 7), "outputs": (10, 7)}),
        ({"method": "cbow", "context": "concat", "window": 2}, {"inputs": (10, 7), "outputs": (10, 28)}),
    ],
)
def test_shapes(settings: dict[str, object], expected: dict[str, tuple[int, int]]) -> None:
    config = Word2VecConfig.model_validate({"data": {"files": ("a",)}, "dim": 7, **settings})
    assert {name: (shape.n, shape.width) for name, shape in shapes(config, 10).items()} == expected
