"""What a run of word vectors lacks is told before its text is read, and what does not go together is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnkit.engine.resolve import resolve
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import UsageError
from attnkit.tasks.word2vec import session as module
from attnkit.tasks.word2vec import workload as work
from attnkit.tasks.word2vec.vector_files import width_at

LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a GPU": ({"device": "cuda"}, "no CUDA device"),
    "vectors": ({"init_from": "none.vec"}, "no such file: none.vec"),
    "vectors that can be read again": ({"init_from": "-"}, "standard input can be read only once"),
    "numba": ({"subwords": {}}, "subwords need numba"),
}


@pytest.mark.parametrize("case", LACKS)
def test_what_is_missing_is_told_before_text_is_read(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: Any) -> None:
        raise AssertionError("the text was read")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "encode_words", read)
    monkeypatch.setattr(work, "has_numba", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    changes, words = LACKS[case]
    request = TrainRequest(
        resolve({"task": "word2vec", "data.files": ["text.txt"], **changes}).config, tmp_path / "run"
    )
    with pytest.raises(UsageError, match=words):
        list(train(request))
    assert not request.path.exists()
    if case != "numba":  # nothing else is refused
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        Path("text.txt").write_text("a b\n")
        Path("none.vec").write_text(f"a{' 1' * 100}\n")
        with pytest.raises(UsageError if case.endswith("again") else AssertionError):
            list(train(request))


def test_vectors_of_another_width_are_told_before_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attnkit import Vectors

    monkeypatch.setattr(module, "encode_words", None)
    vectors = Vectors(["a", "b"], np.ones((2, 7), np.float32))
    for name in ("a.bin", "a.txt", "a.glove", "a.npy", "a.safetensors", "folder", "folder/vectors.tsv", "a.txt.gz"):
        path = tmp_path / name
        if not path.exists():
            vectors.save(tmp_path / name.removesuffix(".gz"))
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress((tmp_path / "a.txt").read_bytes()))
        assert width_at(path) == 7
        request = TrainRequest(
            resolve({"task": "word2vec", "data.files": ["text.txt"], "init_from": str(path)}).config, tmp_path / "run"
        )
        with pytest.raises(UsageError, match="have dimension 7, not 100") as found:
            list(train(request))
        assert found.value.help == "use --dim 7"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "words", "key"),
    [
        ({"method": "glove", "device": "cuda"}, "device=cuda cannot be combined with method=glove: leave it", "device"),
        (
            {"device": "cuda", "deterministic": True},
            "deterministic and device=cuda cannot be combined: leave one of them out",
            "deterministic",
        ),
        ({"method": "glove", "loss": "full"}, "loss cannot be set with method=glove: leave it out", "loss"),
        ({"method": "skip-gram", "context": "sum"}, "context requires method=cbow: add it, or leave", "context"),
        ({"method": "cbow", "exact": True}, "exact requires method=skip-gram with loss=negative: add", "exact"),
        ({"loss": "full", "subwords": {}}, "subwords requires .*: leave subwords out otherwise", "subwords"),
        ({"alpha": 0.01, "min_alpha": 0.02}, "min_alpha=0.02 is more than alpha=0.01", "min_alpha"),
    ],
)
def test_what_does_not_go_together_is_refused_and_named(changes: dict[str, Any], words: str, key: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        resolve({"task": "word2vec", "data.files": ["text.txt"], **changes})
    assert found.value.where is not None and found.value.where.split(" ")[0] == key
