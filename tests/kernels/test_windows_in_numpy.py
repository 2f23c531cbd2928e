"""Windows without a loop against the loop, run as plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.kernels import sampling


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop run as it is written: compiled code has tests of its own."""
    for name in ("below", "random_bits", "stays"):
        marked = getattr(sampling, name)
        monkeypatch.setattr(sampling, name, getattr(marked, "py_func", marked))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("span", [(0, 60), (0, 17), (17, 18), (18, 41), (41, 60), (59, 60)])
def test_equals_the_loop(dynamic: bool, span: tuple[int, int]) -> None:
    draw = np.random.default_rng(4)
    ids = draw.integers(0, 5, 60).astype(np.uint16)
    starts = np.array([0, 1, 1, 30, 32, 60])
    keep = np.array([2**32 - 1, 2**31, 2**30, 2**28, 2**31], np.uint32)
    loop = getattr(sampling.windows, "py_func", sampling.windows)
    for key in range(8):
        with np.errstate(over="ignore"):
            words, at, left, right, first, last = loop((ids, starts), (*span, key), (3, dynamic), keep)
        found = sampling.windows_in_numpy((ids, starts), (*span, key), (3, dynamic), keep)
        ours = dict(zip(("words", "at", "left", "right"), found[:4], strict=True))
        own = slice(found[4], found[5])
        assert last - first == found[5] - found[4]
        for name, theirs in (("words", words), ("at", at), ("left", left), ("right", right)):
            np.testing.assert_array_equal(ours[name][own], theirs[first:last])
        for k in range(found[4], found[5]):  # what the windows hold, beyond the piece too
            here = ours["words"][k - ours["left"][k] : k + ours["right"][k] + 1]
            n = k - found[4] + first
            np.testing.assert_array_equal(here, words[n - left[n] : n + right[n] + 1])
