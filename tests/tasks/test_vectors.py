"""``Vectors`` against loops over the definitions: neighbours, products, odd ones; where they come from and go to."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit import Vectors
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import dump_yaml
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.text.word_vocabulary import Subwords, WordVocabulary

V, D = 70, 8
WORDS = [f"w{i}" for i in range(V)]
ROWS = np.random.default_rng(5).normal(size=(V, D)).astype(np.float32)


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(WORDS, ROWS)


def cosine(a: Any, b: Any) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def unit(row: Any) -> Any:
    row = np.asarray(row, np.float64)
    return row / np.sqrt(row @ row)


def naive(score: Callable[[Any], float], asked: set[str], n: int) -> list[tuple[str, float]]:
    """Return the best words by a score of their rows, those of the question left out."""
    found = [(word, score(row)) for word, row in zip(WORDS, ROWS, strict=True) if word not in asked]
    return sorted(found, key=lambda pair: -pair[1])[:n]


def equal(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_words_and_rows(vectors: Vectors) -> None:
    assert len(vectors) == V and vectors.vector_size == D and "w3" in vectors and "x" not in vectors
    assert vectors["w3"].tolist() == ROWS[3].tolist() == vectors.get_vector(3).tolist()
    assert vectors[["w3", "w1"]].tolist() == ROWS[[3, 1]].tolist()
    assert vectors.get_vector("w3", norm=True) == pytest.approx(unit(ROWS[3]), abs=1e-6)
    assert vectors.key_to_index["w9"] == 9 and vectors.index_to_key[9] == "w9"
    assert vectors.unit(np.arange(V)) == pytest.approx(ROWS / np.linalg.norm(ROWS, axis=1)[:, None], abs=1e-6)


def test_neighbours_equal_a_loop(vectors: Vectors) -> None:
    equal(vectors.most_similar("w4", topn=7), naive(lambda row: cosine(row, ROWS[4]), {"w4"}, 7))
    goal = unit(ROWS[1]) + unit(ROWS[2]) - unit(ROWS[3])
    expected = naive(lambda row: cosine(row, goal), {"w1", "w2", "w3"}, 5)
    equal(vectors.most_similar(positive=["w1", "w2"], negative=["w3"], topn=5), expected)
    goal = 0.3 * unit(ROWS[1]) + 2 * unit(ROWS[2])
    expected = naive(lambda row: cosine(row, goal), {"w1", "w2"}, 5)
    equal(vectors.most_similar([("w1", 0.3), ("w2", 2)], topn=5), expected)
    equal(vectors.most_similar([ROWS[4]], topn=3), naive(lambda row: cosine(row, ROWS[4]), set(), 3))
    first = [pair for pair in naive(lambda row: cosine(row, ROWS[4]), {"w4"}, V) if int(pair[0][1:]) < 20]
    equal(vectors.most_similar("w4", topn=V, restrict_vocab=20), first)
    assert len(vectors.most_similar("w4", topn=1000)) == V - 1 and vectors.most_similar("w4", topn=0) == []


def test_products_of_cosines_equal_a_loop(vectors: Vectors) -> None:
    def score(row: Any) -> float:
        near = [(1 + cosine(row, ROWS[i])) / 2 for i in (1, 2, 3)]
        return near[0] * near[1] / (near[2] + 1e-6)

    found = vectors.most_similar_cosmul(positive=["w1", "w2"], negative=["w3"], topn=6)
    equal(found, naive(score, {"w1", "w2", "w3"}, 6))


def test_two_words_and_groups(vectors: Vectors) -> None:
    assert vectors.similarity("w1", "w2") == pytest.approx(cosine(ROWS[1], ROWS[2]), abs=1e-6)
    assert vectors.distance("w1", "w2") == pytest.approx(1 - cosine(ROWS[1], ROWS[2]), abs=1e-6)
    groups = cosine(ROWS[1] + ROWS[2], ROWS[3] + ROWS[4] + ROWS[5])
    assert vectors.n_similarity(["w1", "w2"], ["w3", "w4", "w5"]) == pytest.approx(groups, abs=1e-6)
    mean = sum(unit(ROWS[i]) for i in range(6))
    odd = min(range(6), key=lambda i: cosine(ROWS[i], mean))
    assert vectors.doesnt_match(WORDS[:6]) == f"w{odd}"


def test_equal_scores_come_in_the_order_of_the_words() -> None:
    vectors = Vectors(list("abcdef"), np.array([[1, 0], [0, 1], [2, 0], [0, 3], [5, 0], [0, 0]], np.float32))
    assert vectors.most_similar("a", topn=4) == [("c", 1.0), ("e", 1.0), ("b", 0.0), ("d", 0.0)]
    assert vectors.most_similar("f", topn=2) == [("a", 0.0), ("b", 0.0)]  # a row of zeros has no direction


def test_long_and_short_rows_are_compared_as_any() -> None:
    vectors = Vectors(list("abc"), np.array([[1e25, 1e25], [1e-25, 1e-25], [1, -1]], np.float32))
    assert vectors.similarity("a", "b") == pytest.approx(1) and vectors.similarity("a", "c") == pytest.approx(0)
    assert vectors.most_similar("c", topn=2)[0][1] == pytest.approx(0)


def test_unknown_words_are_told_with_near_spellings() -> None:
    vectors = Vectors(["the", "Motel", "hotel", "restaurant"], np.eye(4, dtype=np.float32))
    with pytest.raises(DataError, match="no vector for 'motel'") as found:
        vectors.most_similar("motel")
    assert isinstance(found.value, KeyError) and str(found.value) == "no vector for 'motel'"
    assert found.value.help == "similar spellings: Motel, hotel"
    with pytest.raises(KeyError):
        vectors["restaurnat"]


def test_words_that_stand_twice_and_rows_that_are_not_finite() -> None:
    with pytest.raises(DataError, match="duplicate word 'a'") as found:
        Vectors(["a", "b", "a"], np.eye(3, dtype=np.float32), name="x")
    assert found.value.where == "x, words 1 and 3"
    rows = np.eye(3, dtype=np.float32)
    rows[1, 1] = np.nan
    with pytest.raises(DataError, match="not finite") as found:
        Vectors(["a", "b", "c"], rows, name="x").most_similar("a")
    assert found.value.where == "x, vector 2"


# --- where they come from


@pytest.mark.parametrize("name", ["a.txt", "a.bin", "a.vec", "a.glove", "a.safetensors", "a.npy", "folder"])
@pytest.mark.parametrize("mmap", [True, False])
def test_every_format_comes_back(vectors: Vectors, tmp_path: Path, name: str, mmap: bool) -> None:
    vectors.save(tmp_path / name)
    again = Vectors.load(tmp_path / name, mmap=mmap)
    assert again.index_to_key == WORDS and np.array_equal(again.vectors[:], ROWS)
    assert isinstance(again.vectors, np.ndarray) or mmap
    assert again.most_similar("w4") == vectors.most_similar("w4")
    assert not list(tmp_path.glob(".tmp*"))


def test_packed_files_are_unpacked(vectors: Vectors, tmp_path: Path) -> None:
    for name, pack in (("a.txt", gzip.compress), ("a.bin", gzip.compress), ("a.safetensors", bz2.compress)):
        vectors.save(tmp_path / name)
        packed = tmp_path / f"{name}.{'bz2' if pack is bz2.compress else 'gz'}"
        packed.write_bytes(pack((tmp_path / name).read_bytes()))
        assert np.array_equal(Vectors.load(packed).vectors[:], ROWS)


def test_both_formats_of_word2vec_come_back(vectors: Vectors, tmp_path: Path) -> None:
    for format in ("word2vec", "word2vec-binary"):
        vectors.save(tmp_path / "a", format)
        assert np.array_equal(Vectors.load(tmp_path / "a").vectors[:], ROWS)


def test_words_beside_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS[:2].astype(np.float64))
    with pytest.raises(DataError, match="has no word list") as found:
        Vectors.load(tmp_path / "a.npy")
    assert "a.words.txt" in str(found.value.help)
    (tmp_path / "a.words.txt").write_text("x\ny\nz\n")
    with pytest.raises(DataError, match="3 words for 2 rows"):
        Vectors.load(tmp_path / "a.npy")
    (tmp_path / "a.words.txt").write_text("x\t5\ny\t3\n")
    assert Vectors.load(tmp_path / "a.npy")["y"].tolist() == ROWS[1].tolist()


def test_what_is_missing_or_something_else_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    for name, kind in (("none.bin", UsageError), ("folder", RunError), ("empty", DataError)):
        with pytest.raises(kind):
            Vectors.load(tmp_path / name)
    with pytest.raises(UsageError, match="unknown suffix"):
        Vectors(WORDS, ROWS).save(tmp_path / "a.xyz")
    with pytest.raises(UsageError, match="not an empty folder"):
        Vectors(WORDS, ROWS).save(tmp_path)


@pytest.mark.parametrize("name", ["a.bin", "a.npy", "a.safetensors"])
def test_a_vector_that_is_not_finite_is_told_as_soon_as_it_is_used(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    Vectors(WORDS, ROWS).save(path)
    place = path.read_bytes().index(ROWS[6].tobytes())
    path.write_bytes(path.read_bytes()[: place + 4] + b"\0\0\xc0\x7f" + path.read_bytes()[place + 8 :])
    vectors = Vectors.load(path)
    assert vectors["w5"].tolist() == ROWS[5].tolist()  # what is mapped is not read before
    uses: list[Callable[[], Any]] = [
        lambda: vectors["w6"],
        lambda: vectors.n_similarity(["w1"], ["w6", "w2"]),
        lambda: vectors.most_similar("w1"),
        lambda: vectors.save(tmp_path / "b.txt"),
        lambda: Vectors.load(path, mmap=False),
    ]
    for use in uses:
        with pytest.raises(DataError, match="not finite") as found:
            use()
        assert found.value.where == f"{path}, vector 7"
    assert not (tmp_path / "b.txt").exists()


@pytest.mark.parametrize("ending", ["txt.gz", "bin.gz", "txt.xz", "safetensors.xz", "vec.bz2"])
def test_a_packed_file_that_is_cut_short_is_told(tmp_path: Path, ending: str) -> None:
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[ending[-3:].strip(".")]
    plain = tmp_path / f"a.{ending.rsplit('.', 1)[0]}"
    Vectors(WORDS, ROWS).save(plain)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(pack(plain.read_bytes())[:-30])
    with pytest.raises(DataError, match="damaged or truncated") as found:
        Vectors.load(path)
    assert "download it again" in str(found.value.help)


def saved_run(path: Path, **settings: Any) -> dict[str, Any]:
    """Save a run of random matrices; return them."""
    config = Word2VecConfig.model_validate({"data": {"files": ("a.txt",)}, "dim": D, **settings})
    words = WordVocabulary(WORDS, np.arange(V, 0, -1))
    shapes = mats.shapes(config, V)
    matrices = mats.empty(shapes)
    random = np.random.default_rng(2)
    for name, shape in shapes.items():
        matrices[name][:, : shape.width] = random.normal(size=(shape.n, shape.width))
    folder = RunFolder(path)
    with folder.lock():
        weights = partial(mats.content, matrices, shapes)
        texts = {"config.yaml": dump_yaml(config).encode(), "words.tsv": words.to_bytes()}
        folder.save(7, {**texts, mats.FILE: weights})
    return matrices


def test_a_run_and_its_checkpoint(tmp_path: Path) -> None:
    matrices = saved_run(tmp_path / "run")
    for path, mmap in (("run", True), ("run", False), ("run/checkpoints/step-7", True)):
        vectors = Vectors.load(tmp_path / path, mmap=mmap)
        assert vectors.index_to_key == WORDS and np.array_equal(vectors.vectors, matrices["inputs"][:, :D])
        assert vectors.counts is not None and vectors.counts[:3].tolist() == [70, 69, 68]
    weights = tmp_path / "run/checkpoints/step-7/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(RunError, match="is damaged"):
        Vectors.load(tmp_path / "run/checkpoints/step-7")


def test_words_of_ngrams_are_means_and_unseen_ones_have_a_vector(tmp_path: Path) -> None:
    matrices = saved_run(tmp_path / "run", subwords={"min_n": 2, "max_n": 3, "buckets": 50})
    inputs = matrices["inputs"][:, :D]
    vectors, cut = Vectors.load(tmp_path / "run"), Subwords(2, 3, 50)
    expected = np.mean([inputs[6], *(inputs[V + b] for b in cut.buckets("w6"))], axis=0)
    assert vectors["w6"] == pytest.approx(expected, abs=1e-5)
    assert "w666" not in vectors
    assert vectors["w666"] == pytest.approx(inputs[V + cut.buckets("w666")].mean(0), abs=1e-5)
    assert len(vectors.most_similar("w666", topn=3)) == 3


def test_asking_and_converting_load_neither_torch_nor_numba(tmp_path: Path) -> None:
    Vectors(WORDS, ROWS).save(tmp_path / "a.bin")
    saved_run(tmp_path / "run")
    code = f"""
import sys, attnkit
from attnkit.tasks.word2vec import project
from attnkit.tasks.word2vec import evaluate as questions
from attnkit.tasks.word2vec import (evaluate as evaluation)
for path in {[str(tmp_path / "a.bin"), str(tmp_path / "run")]!r}:
    vectors = attnkit.Vectors.load(path)
    vectors.most_similar("w1")
    vectors.save({str(tmp_path / "b.safetensors")!r})
assert not {{"torch", "numba"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
