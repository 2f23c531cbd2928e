"""Calls on word vectors, against values worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnkit
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.word2vec.evaluate import AnalogyScores, PairScores

# Angles of 0, 10, 30 and 90 degrees: the nearer two words are, the higher their cosine.
ANGLES = {"a": 0.0, "b": 10.0, "c": 30.0, "d": 90.0}


def circle() -> attnkit.Vectors:
    rows = [[np.cos(np.radians(angle)), np.sin(np.radians(angle))] for angle in ANGLES.values()]
    return attnkit.Vectors(list(ANGLES), np.array(rows, np.float32))


def test_similarities_and_analogies_are_scored(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\t9\na\tc\t5\na\td\t1\na\tx\t3\n")
    found = attnkit.evaluate_vectors(circle(), tmp_path / "pairs.tsv")
    assert isinstance(found, PairScores) and (found.known, found.unknown) == (3, 1)
    cosines = [np.cos(np.radians(ANGLES[word])) for word in "bcd"]
    assert found.spearman == pytest.approx(1.0) and found.pearson == pytest.approx(
        np.corrcoef(cosines, [9, 5, 1])[0, 1]
    )
    words = ["man", "king", "woman", "queen", "far"]
    rows = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1], [-1, -1, 0]], np.float32)
    (tmp_path / "analogies.txt").write_text(": royal\nman king woman queen\nman king woman far\n")
    scores = attnkit.evaluate_vectors(attnkit.Vectors(words, rows), tmp_path / "analogies.txt")
    assert isinstance(scores, AnalogyScores) and (scores.total.right, scores.total.known) == (1, 2)
    assert json.loads(json.dumps(scores.to_dict()))["sections"][0]["name"] == "royal"


def test_words_are_clustered() -> None:
    found = attnkit.cluster(circle(), 2)
    assert found.classes == {"a": 0, "b": 0, "c": 0, "d": 1} and found.converged
    assert found.cosines[3] == pytest.approx(1.0) and [*attnkit.cluster(circle(), 1, n_words=2).classes] == ["a", "b"]
    with pytest.raises(UsageError, match="cannot form 5 clusters from 4 words"):
        attnkit.cluster(circle(), 5)


def test_phrases_are_joined_and_joined_again(tmp_path: Path) -> None:
    text, joined, saved, again = (tmp_path / name for name in ("text", "joined", "phrases.tsv", "again"))
    text.write_text("we love new york\nnew york is old\n" * 10 + "york is new\n")
    found = attnkit.phrases(text, joined, settings={"min_count": 15, "threshold": 0.1}, save=saved)
    assert joined.read_text().startswith("we love new_york\nnew_york is old\n") and found.n_read - found.n_written == 20
    assert json.loads(json.dumps(found.to_dict()))["words_read"] == found.n_read
    attnkit.phrases(text, again, given=saved)
    assert again.read_text() == joined.read_text()
    with pytest.raises(UsageError, match="given phrases exclude settings"):
        attnkit.phrases(text, again, given=saved, settings={"passes": 2})


def test_contexts_of_a_word(tmp_path: Path) -> None:
    circle().save(tmp_path / "v.txt")
    found = attnkit.compare_context(tmp_path / "v.txt", ["a b", "b c"], "b")
    assert found.contextual is None and found.cosines[0].static == 1 and len(found.static) == 2
    with pytest.raises(RunError, match="is not a run of BERT or GPT"):
        attnkit.compare_context(tmp_path / "v.txt", ["a b", "b c"], "b", encoder=tmp_path / "v.txt")
    with pytest.raises(UsageError, match="word vectors have no layers"):
        attnkit.compare_context(tmp_path / "v.txt", ["a b", "b c"], "b", layer=1)
    with pytest.raises(DataError, match="does not occur in this sentence"):
        attnkit.compare_context(tmp_path / "v.txt", ["a b", "c d"], "b")
