"""``attnkit word2vec similar | analogy | odd-one | distance | evaluate | cluster | convert`` as they are typed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attnkit import Vectors

Call = Callable[..., tuple[int, str, str]]
WORDS = {
    "king": [1, 1, 0, 0],
    "queen": [1, -1, 0, 0],
    "man": [0.2, 1, 0.3, 0],
    "woman": [0.2, -1, 0.3, 0],
    "apple": [0, 0, 1, 1],
    "pear": [0, 0.1, 1, 0.9],
    "plum": [0, 0, 0.9, 1],
    "new york": [0, 0, -1, 1],
    "x" * 300: [0, 0, -1, 0.2],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "vectors.safetensors"
    Vectors(list(WORDS), np.array(list(WORDS.values()), np.float32)).save(found)
    return found


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_similar(call: Call, path: Path) -> None:
    code, out, err = call("word2vec", "similar", path, "apple", "-n", 2)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [["plum", "0.9986"], ["pear", "0.9959"]]
    code, out, _ = call("word2vec", "similar", path, "king", "new york", "--json", "-n", 1)
    found = [json.loads(line) for line in out.splitlines()]
    assert [item["query"] for item in found] == ["king", "new york"] and found[0]["neighbours"][0]["word"] == "man"
    code, out, _ = call("word2vec", "similar", path, "king", "new york", "-n", 9)
    assert code == 0 and "king\n" in out and "\nnew york\n" in out and max(map(len, out.splitlines())) < 80
    code, out, _ = call("word2vec", "similar", path, "apple", "--top", 3)
    assert len(out.splitlines()) == 3


def test_queries_of_standard_input(call: Call, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "apple\n\nkign\nking woman\n")
    code, out, err = call("word2vec", "similar", path, "-n", 1)
    assert code == 0 and out.splitlines()[:2] == ["apple", "  plum  0.9986"] and out.splitlines()[2] == "king woman"
    assert "no vector for 'kign'" in err and "similar spellings: king" in err
    typed(monkeypatch, "kign\nman king woman\n")
    code, out, _ = call("word2vec", "analogy", path, "-n", 1, "--json")
    first, second = map(json.loads, out.splitlines())
    assert code == 0 and first["error"] and second["neighbours"][0]["word"] == "queen"


@pytest.mark.parametrize("method", ["add", "mul"])
@pytest.mark.parametrize("words", ["man king woman", "king - man + woman", "man : king :: woman : ?"])
def test_analogy(call: Call, path: Path, method: str, words: str) -> None:
    code, out, _ = call("word2vec", "analogy", path, *words.split(), "--method", method, "-n", 1)
    assert code == 0 and out.split()[0] == "queen"


def test_odd_one_and_distance(call: Call, path: Path) -> None:
    code, out, err = call("word2vec", "odd-one", path, "apple", "pear", "king", "plum")
    assert (code, out) == (0, "king\n") and "plum" in err
    code, out, _ = call("word2vec", "odd-one", path, "apple", "pear", "king", "--json")
    assert json.loads(out)["odd"] == "king" and set(json.loads(out)["cosines"]) == {"apple", "pear", "king"}
    code, out, _ = call("word2vec", "distance", path, "king", "queen")
    assert [line.split() for line in out.splitlines()] == [
        ["cosine", "0.0000"],
        ["distance", "1.0000"],
        ["euclidean", "2.0000"],
    ]
    assert json.loads(call("word2vec", "distance", path, "king", "queen", "--json")[1])["words"] == ["king", "queen"]


def test_evaluate(call: Call, path: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("Word 1,Word 2,Score\nking,man,8\napple,plum,9\nking,queen,1\nking,no,3\n")
    (tmp_path / "analogies").write_text(
        ": family\nman king woman queen\nman king woman no\n: gram1\nman king apple pear\n"
    )
    files = (tmp_path / "pairs.csv", tmp_path / "analogies")
    code, out, _ = call("word2vec", "evaluate", path, *files, "--sections")
    rows = [line.split(maxsplit=3) for line in out.splitlines()]
    assert code == 0 and rows[1] == ["pairs.csv", "3", "1", rows[1][3]] and rows[1][3].startswith("Spearman 1.0000, ")
    assert rows[2][:3] == ["analogies", "2", "1"] and ["family", "1", "1", "100.0% right"] in rows
    assert max(map(len, out.splitlines())) < 80
    pairs, analogies = map(json.loads, call("word2vec", "evaluate", path, *files, "--json")[1].splitlines())
    assert pairs["kind"] == "pairs" and pairs["spearman"] == pytest.approx(1) and pairs["unknown"] == 1
    assert analogies["kind"] == "analogies" and (analogies["known"], analogies["unknown"]) == (2, 1)
    assert [group["name"] for group in analogies["groups"]] == ["semantic", "syntactic"]
    code, out, _ = call("word2vec", "evaluate", path, files[0], "--top", 2)
    assert "none" in out and code == 0  # one pair alone is known


def test_cluster(call: Call, path: Path, tmp_path: Path) -> None:
    code, out, err = call("word2vec", "cluster", path, "-k", 3, "--top", 7)
    labels = dict(line.rsplit(" ", 1) for line in out.splitlines())
    assert code == 0 and labels["king"] == labels["man"] == "0" and labels["queen"] == labels["woman"] == "1"
    assert labels["apple"] == labels["pear"] == labels["plum"] == "2" and "7 words, 3 clusters" in err
    code, out, _ = call("word2vec", "cluster", path, "-k", 3, "--top", 7, "-o", tmp_path / "c", "--by-class")
    assert [line.split()[1] for line in (tmp_path / "c").read_text().splitlines()] == list("0011222") and out == ""
    code, out, _ = call("word2vec", "cluster", path, "-k", 3, "--summary")
    assert len(out.splitlines()) == 3 and max(map(len, out.splitlines())) < 80
    items = [json.loads(line) for line in call("word2vec", "cluster", path, "-k", 9, "--json")[1].splitlines()]
    assert [item["word"] for item in items] == list(WORDS) and {item["class"] for item in items} == set(range(9))


def test_convert(call: Call, path: Path, tmp_path: Path) -> None:
    for name, to in (("a.npy", ()), ("folder", ()), ("a.xyz", ("--to", "safetensors"))):
        code, out, _ = call("word2vec", "convert", path, tmp_path / name, *to, "--json")
        assert code == 0 and json.loads(out)["words"] == len(WORDS)
        source = tmp_path / name
        assert Vectors.load(source)["new york"].tolist() == WORDS["new york"]
    code, _, err = call("word2vec", "convert", path, tmp_path / "a.bin")
    assert code == 3 and "'new york' contains white space" in err and "--space" in err
    assert not list(tmp_path.glob("a.bin*")) and not list(tmp_path.glob(".tmp*"))
    code, out, _ = call("word2vec", "convert", path, tmp_path / "a.bin", "--space", "_", "--top", 8)
    assert code == 0 and out.endswith("8 words, 4 dimensions (word2vec-binary)\n")
    assert Vectors.load(tmp_path / "a.bin")["new_york"].tolist() == WORDS["new york"]


def test_errors(call: Call, path: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("2 2\na 1 2\nb 1 x\n")
    (tmp_path / "pairs").write_text("king queen\n")
    for arguments, code, said in (
        (["similar", path, "kign"], 3, "similar spellings: king"),
        (["similar", tmp_path / "bad", "a"], 3, "bad:3"),
        (["similar", tmp_path / "none", "a"], 2, "no such file"),
        (["similar", tmp_path, "a"], 4, "no word vectors in the folder"),
        (["analogy", path, "king", "man"], 2, "an analogy has three words, not 2"),
        (["analogy", path, "king", "+", "man", "woman"], 2, "missing + or - before 'woman'"),
        (["odd-one", path, "king", "man", "king"], 2, "three"),
        (["distance", path, "king", "nobody"], 3, "no vector for 'nobody'"),
        (["evaluate", path, tmp_path / "pairs"], 3, "pairs:1|no pairs"),
        (["evaluate", path, tmp_path / "missing"], 2, "no such file"),
        (["cluster", path, "-k", 10], 2, "cannot form 10 clusters from 9 words"),
        (["cluster", path, "-k", 2, "-o", path], 2, "is also an input file"),
        (["convert", path, path], 2, "is also an input file"),
        (["convert", path, tmp_path / "a.xyz"], 2, "unknown suffix"),
        (
            ["convert", path, tmp_path / "a.txt", "--space", " "],
            2,
            "--space must be a non-empty string without white space",
        ),
        (["convert", path, tmp_path / "no" / "a.npy"], 5, "cannot write"),
    ):
        found, out, err = call("word2vec", *arguments)
        assert (found, out) == (code, ""), (arguments, err)
        assert any(part in err for part in said.split("|")) and err.startswith("error: ") and err.count("\n") <= 3, err
