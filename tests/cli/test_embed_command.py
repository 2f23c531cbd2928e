"""``attnkit embed`` with BERT and GPT, as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from attnkit import Vectors

Call = Callable[..., tuple[int, str, str]]
TEXT = "the film\n\n  \nüñí 4\r\n" + "again " * 40 + "\nlast"


@pytest.fixture(scope="module")
def bert(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("bert") / "run"
    workshop.train(workshop.configure_task("masked tokens", limits__max_steps=1), run)
    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_all_formats_hold_the_same_numbers(call: Call, bert: Path, text: Path, tmp_path: Path) -> None:
    for name in ("a.npy", "a.safetensors", "a.tsv", "a.csv", "upper.NPY"):
        code, out, err = call("embed", bert, text, "-o", tmp_path / name)
        assert (code, out) == (0, "") and "carriage return" in err
    rows = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert (tmp_path / "upper.NPY").read_bytes() == (tmp_path / "a.npy").read_bytes()
    assert rows.shape == (6, 16) and rows.dtype == np.float32 and not rows[1].any() and rows[0].any()
    assert np.array_equal(load_file(tmp_path / "a.safetensors")["vectors"], rows)
    assert np.array_equal(np.loadtxt(tmp_path / "a.tsv", delimiter="\t", dtype=np.float32), rows)
    assert np.array_equal(np.loadtxt(tmp_path / "a.csv", delimiter=",", dtype=np.float32), rows)
    code, out, _ = call("embed", bert, text, "--json", "--what", "cls", "--layer", 0)
    found = [json.loads(line) for line in out.splitlines()]
    assert [row["text"] for row in found] == ["the film", "", "  ", "üñí 4", "again " * 40, "last"]
    first = np.array([row["numbers"] for row in found])
    assert code == 0 and np.allclose(first, first[0]), "before any layer [CLS] has seen nothing"
    (tmp_path / "none.txt").touch()
    for name in ("z.npy", "z.safetensors"):
        assert call("embed", bert, tmp_path / "none.txt", "-o", tmp_path / name) == (0, "", "")
    assert load_file(tmp_path / "z.safetensors")["vectors"].shape == (0, 16)


def test_the_table_is_a_file_of_word_vectors(call: Call, bert: Path, tmp_path: Path) -> None:
    for name in ("a.npy", "a.safetensors", "a.bin", "a.txt", "a.tsv"):
        assert call("embed", bert, "--what", "static", "-o", tmp_path / name) == (0, "", ""), name
    weights = load_file(next((bert / "checkpoints").glob("step-*")) / "model.safetensors")["embedding.weight"]
    loaded = {name: Vectors.load(tmp_path / name) for name in ("a.npy", "a.safetensors", "a.bin", "a.txt")}
    for name, vectors in loaded.items():
        assert np.array_equal(vectors.vectors[:], weights), name
        assert "▁the" in vectors
    rows = [line.split("\t") for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == loaded["a.bin"].index_to_key
    assert np.array_equal(np.array([row[1:] for row in rows], np.float32), weights)
    code, out, _ = call("embed", bert, "--what", "static", "--json")
    assert code == 0 and json.loads(out.splitlines()[1])["piece"] == "<s>"
    code, out, _ = call("word2vec", "similar", tmp_path / "a.safetensors", "▁the", "-n", 3)
    assert code == 0 and len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["BERT", "{text}", "--layer", "7"], 2, "this model has no layer 7"),
        (["BERT", "{text}", "--layer", "-1"], 2, "greater than or equal to 0"),
        (["BERT", "{text}", "--what", "all"], 2, "all"),
        (["BERT", "{text}", "--what", "static"], 2, "--what static embeds the vocabulary, not lines"),
        (["BERT", "--what", "static", "--layer", "1"], 2, "--layer cannot be combined with --what static"),
        (["BERT", "--what", "static", "-o", "{out}.csv"], 2, "tokens may contain commas"),
        (["BERT", "{text}", "--reconstruct"], 2, "cannot reconstruct lines"),
        (["BERT", "{text}", "-o", "{out}.safetensors", "--json"], 2, "a .safetensors file cannot store JSON"),
        (["BERT", "{out}.npy"], 2, "no such file"),
        (["TRANSLATOR", "{text}", "--what", "mean"], 4, "not an auto-encoder"),
        (["LINES", "{text}", "--what", "mean"], 2, "auto-encoders do not support --what and --layer"),
    ],
)
def test_what_is_refused_and_how(
    call: Call,
    bert: Path,
    trained: Path,
    workshop: Any,
    text: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    places = {"BERT": bert, "TRANSLATOR": trained, "{text}": text}
    if arguments[0] == "LINES":
        workshop.train(workshop.configure_task("lines", limits__max_steps=1), tmp_path / "lines")
        places["LINES"] = tmp_path / "lines"
    words = [str(places.get(word, word)).replace("{out}", str(tmp_path / "out")) for word in arguments]
    found, out, err = call("embed", *words)
    assert (found, out) == (code, "") and said in err, err
    assert err.count("\n") <= 4 and not list(tmp_path.glob("out*"))
