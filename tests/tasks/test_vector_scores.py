"""Scores of word vectors and classes of words, against loops over the definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit import Vectors
from attnkit.errors import DataError
from attnkit.tasks.word2vec.evaluate import (
    Known,
    Section,
    WordPair,
    kind_of,
    read_analogies,
    read_pairs,
    score_analogies,
    score_pairs,
)
from attnkit.tasks.word2vec.project import cluster_words

V, D = 60, 6
WORDS = [f"w{i}" for i in range(V)]
ROWS = np.random.default_rng(8).normal(size=(V, D)).astype(np.float32)
QUESTIONS = [tuple(f"w{i}" for i in row) for row in np.random.default_rng(2).integers(0, V, (400, 4))]


def unit(row: Any) -> Any:
    row = np.asarray(row, np.float64)
    return row / np.sqrt(row @ row)


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(WORDS, ROWS)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def naive_answer(question: tuple[str, ...], n: int, product: bool) -> str:
    """Return the best of the first ``n`` words by the formulas of Levy and Goldberg 2014."""
    a, b, c = (unit(ROWS[WORDS.index(word)]) for word in question[:3])
    best, found = -np.inf, ""
    for word, row in zip(WORDS[:n], ROWS, strict=False):
        near = [float(unit(row) @ other) for other in (a, b, c)]
        score = near[1] - near[0] + near[2]
        if product:
            score = (1 + near[1]) / 2 * (1 + near[2]) / 2 / ((1 + near[0]) / 2 + 1e-6)
        if word not in question[:3] and score > best:
            best, found = score, word
    return found


@pytest.mark.parametrize("method", ["add", "mul"])
def test_analogies_equal_a_loop(vectors: Vectors, method: Any) -> None:
    n = 50
    known = [q for q in QUESTIONS if all(int(word[1:]) < n for word in q)]
    # Of every other question the answer is the one that the loop finds, so that some are right.
    made = [(*q[:3], naive_answer(q, n, method == "mul")) if i % 2 else q for i, q in enumerate(known)]
    right = sum(naive_answer(q, n, method == "mul") == q[3] for q in made)
    unknown = [("w1", "w2", "w3", "w55"), ("w1", "w2", "w3", "x")]
    sections = [Section("a", [*made, *unknown]), Section("gram1-b", made[:7]), Section("none", unknown[:1])]  # type: ignore[list-item]
    found = score_analogies(vectors, sections, Known(n), method)
    assert (found.sections[0].right, found.sections[0].known, found.sections[0].unknown) == (right, len(made), 2)
    assert right >= len(made) // 2 and found.sections[2].accuracy is None
    assert [group.name for group in found.groups] == ["semantic", "syntactic"]
    assert found.groups[1].known == 7 and found.total.known == len(made) + 7 and found.total.unknown == 3


def test_case_is_folded_as_gensim_does() -> None:
    rows = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1], [1, 1]], np.float32)
    vectors = Vectors(["King", "man", "king", "woman", "QUEEN"], rows)
    judged = (("king", "Man", 1.0), ("KING", "woman", 2.0), ("queen", "man", 3.0), ("x", "man", 9.0))
    pairs = [WordPair(*pair) for pair in judged]
    folded, told = score_pairs(vectors, pairs), score_pairs(vectors, pairs, Known(fold=False))
    assert (folded.known, folded.unknown) == (3, 1)
    assert folded.spearman == pytest.approx(1) and folded.pearson is not None  # "king" is the first of both: row 0
    assert (told.known, told.spearman) == (0, None)
    # The other spelling of a word of the question is not an answer; the answer may be spelt in any case.
    scores = score_analogies(vectors, [Section("a", [("man", "king", "woman", "queen")])])
    assert scores.total.right == 1


def test_pairs_of_known_words_alone_count(vectors: Vectors) -> None:
    judged = (("w1", "w2", 1.0), ("w3", "w4", 5.0), ("w5", "w6", 2.0), ("w1", "w59", 3.0))
    pairs = [WordPair(*pair) for pair in judged]
    found = score_pairs(vectors, pairs, Known(30))
    cosines = [float(unit(ROWS[a]) @ unit(ROWS[b])) for a, b in ((1, 2), (3, 4), (5, 6))]
    assert found.pearson == pytest.approx(float(np.corrcoef(cosines, [1, 5, 2])[0, 1]))
    assert (found.known, found.unknown) == (3, 1)
    assert score_pairs(vectors, pairs[:1]).spearman is None
    assert score_pairs(vectors, [WordPair("w1", "w2", 1.0), WordPair("w3", "w4", 1.0)]).spearman is None


def test_words_without_a_row_are_composed_where_that_is_known_how() -> None:
    """Unseen words point in a direction by their first letter; what is asked for by hand is what comes out."""
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], np.float32)
    letters = {"a": np.array([0, 1, 1], np.float32), "k": np.array([2, 0, 0.2], np.float32)}
    vectors = Vectors(["king", "man", "far", "aunt"], rows, unseen=lambda word: letters.get(word[0]))
    judged = (("king", "man", 1), ("Kin", "king", 9), ("ant", "aunt", 4), ("king", "x", 5))
    pairs = [WordPair(*pair) for pair in judged]
    left_out = score_pairs(vectors, pairs)
    assert (left_out.known, left_out.composed, left_out.unknown) == (1, 0, 3)
    found = score_pairs(vectors, pairs, Known(compose=True))
    assert (found.known, found.composed, found.unknown) == (3, 2, 1)
    cosines = [0.0, 2 / np.hypot(2, 0.2), float(unit([0, 1, 1]) @ unit([1, 1, 0]))]
    assert found.pearson == pytest.approx(float(np.corrcoef(cosines, [1, 9, 4])[0, 1]))
    # Beyond the first words one has its own row: nobody would compose that.
    judged = (("king", "aunt", 1), ("man", "aunt", 2), ("kin", "man", 0))
    pairs = [WordPair(*pair) for pair in judged]
    few = score_pairs(vectors, pairs, Known(2, compose=True))
    assert (few.known, few.composed) == (3, 3)
    assert few.pearson == pytest.approx(float(np.corrcoef([0.5**0.5, 0.5**0.5, 0], [1, 2, 0])[0, 1]))
    # An answer must have a row among the first ones; "kin" - "king" + "man" is nearest to man itself, then to aunt.
    questions = [("king", "kin", "man", "aunt"), ("king", "kin", "man", "ant"), ("king", "x", "man", "aunt")]
    scores = score_analogies(vectors, [Section("a", questions)], Known(compose=True)).total
    assert (scores.right, scores.known, scores.composed, scores.unknown) == (1, 1, 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "love\tsex\t6.77\ntiger\tcat\t7.35\n",
        "# comment\nWord 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n",
        "love sex 6.77\n\ntiger   cat 7.35\n",
        "word1\tword2\tPOS\tSimLex999\tconc\nlove\tsex\tN\t6.77\t3\ntiger\tcat\tN\t7.35\t1\n",
        "love;sex;6.77\ntiger;cat;7.35\r\n",
    ],
)
def test_pairs_in_every_layout(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "a", text)
    assert (
        read_pairs(path) == [WordPair("love", "sex", 6.77), WordPair("tiger", "cat", 7.35)] and kind_of(path) == "pairs"
    )


def test_analogies_with_and_without_sections(tmp_path: Path) -> None:
    path = written(tmp_path / "a", ": capitals\nAthens Greece Oslo Norway\n\n: gram1\na b c d\n")
    found = read_analogies(path)
    assert found == [
        Section("capitals", [("Athens", "Greece", "Oslo", "Norway")]),
        Section("gram1", [("a", "b", "c", "d")]),
    ]
    scores = score_analogies(Vectors(WORDS, ROWS), found)
    assert [(group.name, group.unknown) for group in scores.groups] == [("semantic", 1), ("syntactic", 1)]
    bare = written(tmp_path / "b", "a b c d\n")
    assert kind_of(bare) == kind_of(path) == "analogies" and read_analogies(bare)[0].name == "all"


@pytest.mark.parametrize(
    ("read", "text", "said", "line"),
    [
        (read_pairs, "a\tb\t1\nc\td\n", "not two words and a number", 2),
        (read_pairs, "a\tb\t1\nc\td\tx\n", "not two words and a number", 2),
        (read_pairs, "a\tb\t1\nc\t\t2\n", "not two words and a number", 2),
        (read_pairs, "a\tb\t1\nc\td\tnan\n", "not two words and a number", 2),
        (read_pairs, "a b\nc d\n", "not two words and a number", 2),
        (read_pairs, "", "no pairs", None),
        (read_analogies, ": a\na b c\n", "not an analogy", 2),
        (read_analogies, ": a\n", "no analogies", None),
        (kind_of, "\n", "no questions", None),
    ],
)
def test_broken_questions(tmp_path: Path, read: Any, text: str, said: str, line: int | None) -> None:
    path = written(tmp_path / "a", text)
    with pytest.raises(DataError, match=said) as found:
        read(path)
    assert found.value.where == (f"{path}:{line}" if line else str(path))


# --- classes


def test_words_apart_are_classes_of_their_own() -> None:
    random = np.random.default_rng(1)
    truth = random.integers(0, 5, 400)
    rows = (10 * np.eye(5)[truth] + random.normal(size=(400, 5))) * random.uniform(0.1, 9, (400, 1))
    vectors = Vectors([f"w{i}" for i in range(400)], rows.astype(np.float32))
    found = cluster_words(vectors, 400, 5)
    assert found.converged
    pairs = set(zip(found.labels.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == 5 and found.labels[0] == 0
    firsts = [int(np.flatnonzero(found.labels == label)[0]) for label in range(5)]
    assert firsts == sorted(firsts)


def test_a_settled_result_is_a_fixed_point(vectors: Vectors) -> None:
    """Every word is in the class whose mean is nearest, by a plain loop."""
    found = cluster_words(vectors, V, 7, seed=3)
    assert found.converged
    units = [unit(row) for row in ROWS]
    means = [np.mean([u for u, label in zip(units, found.labels, strict=True) if label == k], 0) for k in range(7)]
    assert [min(range(7), key=lambda k: float(np.sum((u - means[k]) ** 2))) for u in units] == found.labels.tolist()
    cosines = [float(u @ unit(means[k])) for u, k in zip(units, found.labels, strict=True)]
    assert found.nearness == pytest.approx(cosines, abs=1e-5)


def test_the_seed_decides_and_more_classes_come_nearer(vectors: Vectors) -> None:
    one, again, other = (cluster_words(vectors, V, 6, seed=seed) for seed in (1, 1, 2))
    assert one.labels.tolist() == again.labels.tolist() and one.labels.tolist() != other.labels.tolist()
    each = cluster_words(vectors, V, V)
    assert sorted(each.labels.tolist()) == list(range(V)) and each.nearness == pytest.approx(1, abs=1e-5)


def test_the_same_word_many_times_still_makes_classes() -> None:
    rows = np.ones((20, 3), np.float32)
    found = cluster_words(Vectors([f"w{i}" for i in range(20)], rows), 20, 4)
    assert set(found.labels.tolist()) <= set(range(4)) and np.isfinite(found.nearness).all()
