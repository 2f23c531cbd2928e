"""``word2vec project``, ``one-hot`` and ``compare-context``, as they are called."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = Callable[..., tuple[int, str, str]]
WORDS = ["the", "motel", "hotel", "apple", "inn", *(f"w{i}" for i in range(35))]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = np.random.default_rng(1).normal(size=(len(WORDS), 8))
    drawn[1], drawn[2] = [3, 4, 0, 0, 0, 0, 0, 0], [4, 3, 0, 0, 0, 0, 0, 0]
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, drawn.tolist(), strict=True)]
    path.write_text("\n".join([f"{len(WORDS)} 8", *rows]) + "\n")
    return path


def test_the_notes_point(call: Call, vectors: Path) -> None:
    """By hand: 3·4 + 4·3 = 24, lengths 5 and 5, cosine 0.96; as one-hot vectors 0."""
    code, out, _ = call("word2vec", "one-hot", "motel", "hotel", vectors, "--json")
    found = json.loads(out)
    assert code == 0 and (found["vocab_size"], found["dim"], found["places"]) == (40, 8, {"motel": 2, "hotel": 3})
    (pair,) = found["pairs"]
    assert (pair["words"], pair["one_hot_dot"]) == (["motel", "hotel"], 0)
    assert pair["dot"] == pytest.approx(24) and pair["cosine"] == pytest.approx(0.96)
    code, out, _ = call("word2vec", "one-hot", "Motel", "hotel", "apple", vectors)
    assert code == 0 and "motel  = [0 1 0 … 0 0]" in out and "1 at 3 of 40" in out
    assert "cos(motel, hotel)  0" in out and "0.9600" in out and out.count("cos(") == 3


def test_one_hot_vectors_in_short() -> None:
    from attnkit.tasks.word2vec.one_hot import abbreviate_one_hot

    assert abbreviate_one_hot(2, 4) == "[0 1 0 0]"
    assert abbreviate_one_hot(11, 500) == "[0 0 … 0 1 0 … 0 0]"
    assert abbreviate_one_hot(1, 500) == "[1 0 … 0 0]" and abbreviate_one_hot(500, 500) == "[0 0 … 0 1]"


def test_words_that_are_not_there(call: Call, vectors: Path) -> None:
    code, out, err = call("word2vec", "one-hot", "motl", "hotel", vectors)
    assert (code, out) == (3, "") and "no vector for 'motl'" in err and "motel" in err
    code, _, err = call("word2vec", "one-hot", "motel", "hotel")
    assert code == 2 and "no such run or file: hotel" in err and "the last argument is a run or vector file" in err
    code, _, err = call("word2vec", "one-hot", "hotel", "Hotel", vectors)
    assert code == 2 and "at least two different words are required" in err


def test_one_vector_in_every_sentence(call: Call, vectors: Path) -> None:
    asked = ("word2vec", "compare-context", vectors, "I eat an apple.", "Apple released iOS.", "--word", "apple")
    code, out, _ = call(*asked)
    assert code == 0 and "“Apple”" in out and "static cosine 1.0000 (the same vector)" in out
    assert "one vector per word, the same in every sentence" in out
    code, out, _ = call(*asked, "--json")
    found = json.loads(out)
    assert (found["word"], found["found"], found["contextual"]) == ("apple", ["apple", "Apple"], None)
    assert len(found["static"]) == 8
    assert found["cosines"] == [{"sentences": [1, 2], "static": 1.0, "contextual": None}]


def test_an_encoder_gives_a_vector_a_sentence(vectors: Path) -> None:
    from attnkit.analysis.contextual import compare_contexts

    asked = []

    def encoder(sentence: str, start: int, stop: int) -> np.ndarray:
        asked.append(sentence[start:stop])
        return np.array([1.0, 0.0] if "eat" in sentence else [1.0, 1.0], np.float32)

    found = compare_contexts(vectors, ["I eat an apple.", "pineapple, Apple"], "apple", encoder)
    assert asked == ["apple", "Apple"]
    assert found.contextual == [[1.0, 0.0], [1.0, 1.0]]
    assert found.cosines[0].contextual == pytest.approx(0.5**0.5)


def test_sentences_without_the_word(call: Call, vectors: Path) -> None:
    code, _, err = call("word2vec", "compare-context", vectors, "an apple", "a pineapple", "--word", "apple")
    assert code == 3 and "'apple' does not occur in this sentence: a pineapple" in err and "sentence:2" in err
    code, _, err = call("word2vec", "compare-context", vectors, "apples fall", "an apple", "--word", "apple")
    assert code == 3 and "sentence:1" in err
    code, _, err = call("word2vec", "compare-context", vectors, "an apple", "--word", "apple")
    assert code == 2 and "at least two sentences are required" in err


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_coordinates_as_lines(call: Call, vectors: Path, tmp_path: Path, method: str) -> None:
    asked = ("word2vec", "project", vectors, "--format", "tsv", "--method", method)
    asked += ("--perplexity", 5, "--steps", 250) if method == "tsne" else ()
    code, out, _ = call(*asked)
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and [row[0] for row in rows] == WORDS and {len(row) for row in rows} == {3}
    assert np.isfinite(np.array([row[1:] for row in rows], float)).all()
    code, _, err = call(*asked, "-o", tmp_path / "words.tsv", "--words", 20)
    assert code == 0 and "20 words" in err
    assert len((tmp_path / "words.tsv").read_text().splitlines()) == 20


def test_a_page(call: Call, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("word2vec", "project", vectors)
    assert (code, out) == (0, "") and "wrote projection.html" in err
    page = (tmp_path / "projection.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "the first 40 of 40" in page and "principal components" in page


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--words", 30_000], 2, "pca shows at most 20,000 words"),
        (["--method", "tsne", "--words", 60000], 2, "tsne shows at most 20,000 words"),
        (["--method", "tsne"], 2, "a perplexity of 30 is too large for 40 words"),
        (["--words", 2], 2, "--words"),
    ],
)
def test_what_cannot_be_shown(
    call: Call, vectors: Path, tmp_path: Path, flags: list[object], code: int, message: str
) -> None:
    found, out, err = call("word2vec", "project", vectors, "-o", tmp_path / "page.html", *flags)
    assert (found, out) == (code, "") and message in err
    assert not (tmp_path / "page.html").exists()


def test_too_little_for_a_map(call: Call, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("2 3\na 1 2 3\nb 3 2 1\n")
    code, _, err = call("word2vec", "project", tmp_path / "two.txt", "-o", tmp_path / "page.html")
    assert code == 3 and "cannot project 2 words of vector size 3" in err


def test_the_vectors_are_not_written_over(call: Call, vectors: Path) -> None:
    before = vectors.read_bytes()
    code, _, err = call("word2vec", "project", vectors, "-o", vectors)
    assert code == 2 and "is also an input file" in err and vectors.read_bytes() == before


def test_no_torch_is_loaded(vectors: Path, tmp_path: Path) -> None:
    code = "import sys; from attnkit.cli.main import app; app(sys.argv[1:], standalone_mode=False); "
    code += "assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    for asked in (["project", vectors, "-o", tmp_path / "page.html"], ["one-hot", "motel", "hotel", vectors]):
        subprocess.run([sys.executable, "-c", code, "word2vec", *map(str, asked)], check=True, timeout=60)


def test_bert_beside_word_vectors_and_alone(call: Call, vectors: Path, workshop: Any, tmp_path: Path) -> None:
    bert, lines = tmp_path / "bert", tmp_path / "lines"
    workshop.train(workshop.configure_task("masked tokens", limits__max_steps=1), bert)
    sentences = ("the inn", "about the Inn again")
    both = ("word2vec", "compare-context", vectors, *sentences, "--word", "inn", "--encoder", bert)
    found = json.loads(call(*both, "--json")[1])
    assert len(found["static"]) == 8 and [len(one) for one in found["contextual"]] == [16, 16]
    assert found["pieces"] is None and -1 <= found["cosines"][0]["contextual"] < 1
    other = json.loads(call(*both, "--json", "--layer", 0)[1])
    assert other["contextual"] != found["contextual"] and other["static"] == found["static"]
    alone = ("word2vec", "compare-context", bert, *sentences, "--word", "inn")
    found = json.loads(call(*alone, "--json")[1])
    assert len(found["static"]) == 16 and found["pieces"] and len(found["contextual"]) == 2
    code, out, _ = call(*alone)
    assert code == 0 and "contextual cosine" in out and "static: inn (i n n) = [" in out
    assert "contextual, sentence 2:" in out and max(map(len, out.splitlines())) <= 80
    workshop.train(workshop.configure_task("lines", limits__max_steps=1), lines)
    for arguments, expected, said in (
        ((*both[:-1], vectors), 4, "is not a run of BERT or GPT"),
        ((*both[:-1], lines), 4, "is not a run of BERT or GPT"),
        ((*both[:-2], "--layer", "1"), 2, "word vectors have no layers"),
        ((*alone, "--layer", "2"), 2, "this model has no layer 2"),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (expected, "") and said in err, err
