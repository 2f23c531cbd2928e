"""Co-occurrences against counting word by word, whatever the memory and whoever counts."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from attnkit.data import cooccurrence as on_disk
from attnkit.data.cooccurrence import count_pairs
from attnkit.data.store import Store, write_store
from attnkit.kernels import cooccurrence as module
from attnkit.kernels.cooccurrence import Run, combine, merge, scramble, unscramble
from attnkit.kernels.glove import Cooccurrences

V, WINDOW = 60, 4


@pytest.fixture(scope="module")
def lines() -> list[list[int]]:
    draw = np.random.default_rng(5)
    return [np.minimum(draw.geometric(0.08, draw.integers(1, 40)) - 1, V - 1).tolist() for _ in range(120)]


@pytest.fixture
def store(lines: list[list[int]], tmp_path: Path) -> Store:
    return write_store(tmp_path / "store", [lines], V)


@pytest.fixture(params=["table", "sorting"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sorting":
        monkeypatch.setattr(module, "compiled_loop", lambda: None)
    return str(request.param)


def counted_naively(lines: list[list[int]]) -> dict[tuple[int, int], Fraction]:
    """Return X_ij of every word i and every word j of its context, on either side."""
    found: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for line in lines:
        for t, word in enumerate(line):
            for s in range(max(0, t - WINDOW), min(len(line), t + WINDOW + 1)):
                if s != t:
                    found[word, line[s]] += Fraction(1, abs(s - t))
    return found


def small(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    """Let a counter hold few pairs, and stretches be short, so that much is spilled."""
    monkeypatch.setattr(module, "_MIN_SLOTS", slots)
    monkeypatch.setattr(module, "_STRETCH", 256)
    monkeypatch.setattr(on_disk, "_STRETCH", 100)


@pytest.mark.parametrize("slots", [30, 400, 1 << 15])
def test_equals_a_naive_count(
    lines: list[list[int]], store: Store, way: str, slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, slots)
    mapped: list[str] = []
    map_file = on_disk._map
    monkeypatch.setattr(on_disk, "_map", lambda path, *rest: mapped.append(path.name) or map_file(path, *rest))
    low, high, counts = count_pairs(tmp_path / "pairs", store, WINDOW, 40 * slots, print)
    assert any(name.startswith("run-") for name in mapped) == (slots < 1 << 15)
    naive = counted_naively(lines)
    assert (low <= high).all()
    assert len(low) == len({*zip(low.tolist(), high.tolist(), strict=True)}) == sum(i <= j for i, j in naive)
    for i, j, count in zip(low.tolist(), high.tolist(), counts.tolist(), strict=True):
        assert naive[i, j] == naive[j, i]
        np.testing.assert_allclose(count, float(naive[i, j]), rtol=1e-7)
    assert sorted(path.name for path in (tmp_path / "pairs").iterdir()) == [
        *("counts.bin", "high.bin", "index.json", "low.bin")
    ]


def test_the_bytes_do_not_tell_how_they_were_counted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for slots in (30, 200, 1 << 15):
        for loop in (module.compiled_loop, lambda: None):
            with monkeypatch.context() as patch:
                small(patch, slots)
                patch.setattr(module, "compiled_loop", loop)
                folder = tmp_path / f"{slots}{loop()}"[-40:].replace("/", "")
                count_pairs(folder, store, WINDOW, 40 * slots, print)
                found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(found) == 6
    assert all(one == found[0] for one in found)


def test_pairs_lie_in_no_order(store: Store, tmp_path: Path) -> None:
    low, high, counts = count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, print)
    order = np.arange(len(low))
    for values in (low, high, counts):
        assert abs(np.corrcoef(order, values)[0, 1]) < 4 / np.sqrt(len(low))


def test_counts_are_kept_and_taken_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    first = count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, told.append)
    assert told.pop() == "merging co-occurrences" and told.pop() == "counting co-occurrences, 100 %"
    told.clear()
    again = count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, told.append)
    assert not told and same(first, again)
    other = count_pairs(tmp_path / "pairs", store, WINDOW + 1, 1 << 20, told.append)
    assert told and not same(first, other)
    told.clear()
    (tmp_path / "pairs" / "low.bin").write_bytes(b"cut")
    assert same(first, count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, told.append)) and told


def test_pairs_of_other_words_are_counted_anew(store: Store, tmp_path: Path) -> None:
    first = Cooccurrences(*(part.copy() for part in count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, print)))
    other_count = np.float32(0.7).tobytes()
    for name, value in (
        ("high.bin", b"\xff\xff\xff\x00"),
        ("counts.bin", b"\x00\x00\xc0\x7f"),
        ("counts.bin", other_count),
    ):
        path = tmp_path / "pairs" / name
        path.write_bytes(value + path.read_bytes()[4:])
        assert same(first, count_pairs(tmp_path / "pairs", store, WINDOW, 1 << 20, print))


def same(one: Cooccurrences, other: Cooccurrences) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_is_scrambled_can_be_undone() -> None:
    keys = np.array([*range(1000), 2**64 - 1, 2**63, 2**31 * 5 + 7], np.uint64)
    np.testing.assert_array_equal(unscramble(scramble(keys)), keys)
    assert int(scramble(np.zeros(1, np.uint64))[0]) == 0xE220A8397B1DCDAF  # SplitMix64's first number from 0


@pytest.mark.parametrize("most", [1, 3, 10, 1000])
def test_merged_in_any_steps(most: int) -> None:
    draw = np.random.default_rng(0)
    raw = [Run(draw.integers(0, 50, n).astype(np.uint64), draw.integers(1, 9, n).astype(np.uint64)) for n in (0, 9, 60)]
    runs = [combine([run]) for run in raw]
    blocks = list(merge(runs, most))
    assert all(len(block.hashes) <= max(most, len(runs)) for block in blocks)
    whole = combine(raw)
    np.testing.assert_array_equal(np.concatenate([block.hashes for block in blocks]), whole.hashes)
    np.testing.assert_array_equal(np.concatenate([block.units for block in blocks]), whole.units)
    totals: dict[int, int] = defaultdict(int)
    for run in raw:
        for key, units in zip(run.hashes.tolist(), run.units.tolist(), strict=True):
            totals[key] += units
    assert dict(sorted(totals.items())) == dict(zip(whole.hashes.tolist(), whole.units.tolist(), strict=True))
