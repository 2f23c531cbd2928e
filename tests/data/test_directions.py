"""Directions of a configuration, and sampling by temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.data.batch_plan import draw
from attnkit.data.config import DataConfig
from attnkit.data.directions import FilePair, temperature_weights
from attnkit.engine.resolve import resolve
from attnkit.errors import UsageError


def data(**keys: Any) -> DataConfig:
    return DataConfig(src=("a.en", "b.en"), tgt=("a.de", "b.fr"), directions=("en:de", "en:fr"), **keys)


def test_both_directions_of_each_pair_of_files() -> None:
    config = data(bidirectional=True)
    assert config.training_pairs == [
        FilePair("a.en", "a.de", "en:de", 0),
        FilePair("b.en", "b.fr", "en:fr", 1),
        FilePair("a.de", "a.en", "de:en", 0),
        FilePair("b.fr", "b.en", "fr:en", 1),
    ]
    assert config.target_languages == ("de", "fr", "en") and config.known_directions == (
        "en:de", "en:fr", "de:en", "fr:en",
    )  # fmt: skip
    plain = DataConfig(src=("a",), tgt=("b",))
    assert plain.training_pairs == [FilePair("a", "b")] and plain.target_languages == plain.known_directions == ()


def test_files_given_both_ways_hold_out_the_same_lines() -> None:
    files = {"src": ("a.en", "b.en", "a.de"), "tgt": ("a.de", "b.fr", "a.en")}
    config = DataConfig(**files, directions=("en:de", "en:fr", "de:en"))
    assert [pair.number for pair in config.training_pairs] == [0, 1, 0]


def test_shares_of_directions_follow_the_temperature() -> None:
    """Arivazhagan et al. 2019: the share of a direction is proportional to p**(1/T)."""
    config = data(bidirectional=True, weights=(1.0, 2.0), temperature=5.0)
    sizes = [60_000, 200, 60_000, 200]
    found = config.sampling_weights(sizes)
    assert found is not None
    counted = np.array([60_000, 400, 60_000, 400], float)  # with the weights
    shares = (counted / counted.sum()) ** 0.2
    shares /= shares.sum()
    drawn = draw(sizes, found, seed=1, epoch=0)
    edges = np.cumsum([0, *sizes])
    observed = np.histogram(drawn, edges)[0]
    assert observed / observed.sum() == pytest.approx(shares, rel=2e-3)
    assert observed.sum() == pytest.approx(counted.sum(), rel=1e-4), "the epoch keeps its length"


def test_two_corpora_of_one_direction_share_its_part() -> None:
    found = temperature_weights(["a:b", "a:b", "a:c"], [300, 100, 100], [1.0, 1.0, 1.0], 2.0)
    assert found[0] == found[1]
    sizes = [weight * n for weight, n in zip(found, [300, 100, 100], strict=True)]
    assert (sizes[0] + sizes[1]) / sizes[2] == pytest.approx(2.0)  # (400 / 100) ** (1 / 2)
    assert temperature_weights(["a:b", "a:c"], [10, 0], [1.0, 1.0], 3.0) == pytest.approx([1.0, 0.0])


def test_without_a_temperature_weights_are_passes() -> None:
    assert data().sampling_weights([5, 7]) is None
    assert data(weights=(1.0, 3.0), bidirectional=True).sampling_weights([5, 7, 5, 7]) == [1.0, 3.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bidirectional": True}, "needs to know the languages"),
        ({"temperature": 2.0}, "temperature needs directions"),
        ({"directions": ("en:de", "en:fr")}, "directions has 2 values for 1 pairs"),
        ({"directions": ("en-de",)}, "'en-de' is not of the form en:de"),
        ({"directions": ("en:en",), "bidirectional": True}, "has one language"),
        ({"directions": ("en:de",), "valid_src": ("v",), "valid_tgt": ("w",)}, "need valid_directions"),
        (
            {"directions": ("en:de",), "valid_src": ("v",), "valid_tgt": ("w",), "valid_directions": ("en:fr",)},
            "no training files have the target language fr",
        ),
        ({"valid_src": ("v",), "valid_tgt": ("w",), "valid_directions": ("en:fr",)}, "valid_directions needs"),
    ],
)
def test_contradictions_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataConfig(src=("a",), tgt=("b",), **keys)


def test_pairs_of_a_file_and_of_flags_are_the_same(tmp_path: Path) -> None:
    for name in ("a.en", "a.de", "v.en", "v.de"):
        (tmp_path / name).write_text("x\ny\n")
    names = {name: str(tmp_path / name) for name in ("a.en", "a.de", "v.en", "v.de")}
    (tmp_path / "run.yaml").write_text(
        f"data:\n  pairs:\n    - [en:de, {names['a.en']}, {names['a.de']}]\n"
        f"    - [de:en, {names['a.de']}, {names['a.en']}]\n"
        f"  valid_pairs: [[en:de, {names['v.en']}, {names['v.de']}]]\n  temperature: 3\n"
    )
    from_file = resolve({}, file=tmp_path / "run.yaml").config.data
    rows = [["en:de", names["a.en"], names["a.de"]], ["de:en", names["a.de"], names["a.en"]]]
    flags = {"data.pairs": rows, "data.valid_pairs": [["en:de", names["v.en"], names["v.de"]]]}
    assert resolve(flags, sets=["data.temperature=3"]).config.data == from_file
    assert from_file.directions == ("en:de", "de:en") and from_file.valid_directions == ("en:de",)
    assert from_file.src == (names["a.en"], names["a.de"])
    (tmp_path / "run.yaml").write_text("data:\n  pairs: [[en:de, a.en]]\n")
    with pytest.raises(UsageError, match="must be a list of lists such as"):
        resolve({}, file=tmp_path / "run.yaml")


def test_suffixes_name_the_languages_of_bidirectional_files(tmp_path: Path) -> None:
    for name in ("a.en.gz", "a.de", "a"):
        (tmp_path / name).write_bytes(b"x\n" if name != "a.en.gz" else __import__("gzip").compress(b"x\n"))
    flags = {"data.src": [str(tmp_path / "a.en.gz")], "data.tgt": [str(tmp_path / "a.de")]}
    found = resolve({**flags, "data.bidirectional": True}).config.data
    assert found.directions == ("en:de",)
    valid = {"data.valid_src": flags["data.src"], "data.valid_tgt": flags["data.tgt"]}
    assert resolve({**flags, **valid, "data.bidirectional": True}).config.data.valid_directions == ("en:de",)
    with pytest.raises(UsageError, match="needs to know the languages"):
        resolve({**flags, "data.src": [str(tmp_path / "a")], "data.bidirectional": True})
