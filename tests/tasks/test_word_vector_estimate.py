"""What a dry run says of a run: counts of all text that is short, and of more as it begins."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attnkit.data.words import encode_words
from attnkit.engine.resolve import resolve
from attnkit.errors import DataError, UsageError
from attnkit.tasks.word2vec import task as module


class Estimate(NamedTuple):
    """Figures of a dry run; the number of words with a vector, and which share was counted, are read from its note."""

    n_raw: int
    n_words: int
    share: float
    memory: int
    disk: int
    seconds: float | None


def told(path: Path | str, **changes: Any) -> Estimate | None:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    found = module.TASK.dry_run(resolve({"task": "word2vec", "data.files": [str(path)], "threads": 1, **given}).config)
    if found is None:
        return None
    note = re.fullmatch(r"(about )?([\d,]+) words get a vector \(counted in (.+)\)", found.note)
    assert note is not None and found.n_examples == found.tokens_per_epoch and found.disk is not None
    whole = note[3] == "all text"
    assert bool(note[1]) != whole
    share = 1.0 if whole else float(note[3].removeprefix("the first ").removesuffix("% of the text")) / 100
    n_words = int(note[2].replace(",", ""))
    return Estimate(found.n_examples, n_words, share, found.memory, found.disk, found.seconds)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 40,000 words as unevenly frequent as in real text."""
    drawn = np.random.default_rng(3).zipf(1.3, (4000, 10))
    path = tmp_path_factory.mktemp("estimate") / "text.txt"
    path.write_text("".join(" ".join(f"W{n}" for n in line if n < 10**6) + "\n" for line in drawn))
    return path


def test_short_text_is_counted(path: Path, tmp_path: Path) -> None:
    found = told(path, data__lower=True, dim=50)
    config = resolve({"task": "word2vec", "data.files": [str(path)], "data.lower": True}).config.data
    encoded = encode_words(tmp_path / "words", [path], config)
    assert found is not None and found.share == 1
    assert (found.n_raw, found.n_words) == (encoded.n_raw, len(encoded.words))
    assert told(path, data__max_vocab=20).n_words == 20  # type: ignore[union-attr]


def test_long_text_is_told_by_its_beginning(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, packed = told(path), tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes() * 12))
    assert whole is not None
    monkeypatch.setattr(module, "SAMPLE", 60_000)
    found = told(path)
    assert found is not None and 0.1 < found.share < 0.6
    assert found.n_raw == pytest.approx(whole.n_raw, rel=0.05)
    assert found.n_words == pytest.approx(whole.n_words, rel=0.35)
    monkeypatch.setattr(module, "SAMPLE", 500_000)
    found = told(packed)  # the reader is always some ahead of what it has unpacked
    assert found is not None and found.share < 0.9
    assert found.n_raw == pytest.approx(12 * whole.n_raw, rel=0.35)


def test_more_of_everything_takes_more(path: Path) -> None:
    base = told(path)
    assert base is not None and base.seconds
    for changes in ({"dim": 200}, {"subwords.buckets": 500_000}, {"deterministic": True, "threads": 2}):
        found = told(path, **changes)
        assert found is not None and found.memory > base.memory and found.disk >= base.disk
    for changes in ({"epochs": 50}, {"window": 20}, {"exact": True}, {"loss": "full"}, {"method": "cbow", "dim": 900}):
        found = told(path, **changes)
        assert found is not None and found.seconds and found.seconds > base.seconds, changes
    glove = told(path, method="glove", glove__memory=2.0)
    assert glove is not None and glove.seconds is None and glove.memory > 2e9


def test_what_a_run_would_refuse_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_text("1 2\na 0.5 0.25\n")
    (tmp_path / "few.txt").write_text("a b\n" * 9)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(path.read_bytes())[:3000])
    with pytest.raises(UsageError, match="have dimension 2, not 100"):
        told(path, init_from=str(tmp_path / "wide.txt"))
    with pytest.raises(UsageError, match="exceeds the 1 other words"):
        told(tmp_path / "few.txt")
    with pytest.raises(UsageError, match="no such file"):
        told(tmp_path / "none.txt")
    with pytest.raises(DataError, match="damaged or truncated"):
        told(tmp_path / "cut.gz")
    assert told("-") is None
