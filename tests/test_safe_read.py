"""safe_read.py: plain files only, nothing left open, JSON read strictly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from attnkit.io.safe_read import open_regular_file, parse_json, tensor_entries


def test_what_is_no_plain_file_is_a_value_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(ValueError, match="not a regular file"), open_regular_file(path):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("text", ["1e999", "-1e999", "[0.5, 1e400]", "NaN", "-Infinity", "9" * 5000])
def test_numbers_that_are_not_finite_or_endless_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text.encode())


def test_numbers_that_are_finite_are_read_as_ever() -> None:
    text = b"[1e308, -0.0, 5e-324, 0.1, 1e-999, 12345678901234567890]"
    assert parse_json(text) == json.loads(text)


def test_a_shape_of_many_long_numbers_is_refused_without_computing_its_product() -> None:
    """The product of a thousand numbers of 4,000 digits takes minutes; this ends at once."""
    entry = {"dtype": "F32", "shape": [10**4000] * 1000, "data_offsets": [0, 4]}
    with pytest.raises(ValueError, match="'a' has no shape or no byte range"):
        tensor_entries({"a": entry}, 8, 12)
