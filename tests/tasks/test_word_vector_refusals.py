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
    "vectors": ({"init_from": "none.vec"}, "no file none.vec"),
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
        with pytest.raises(UsageError, match="have 7 numbers, not 100") as found:
            list(train(request))
        assert found.value.help == "use --dim 7"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "glove", "device": "cuda"}, "device=cuda cannot be combined with method=glove"),
        ({"deterministic": True, "device": "cuda"}, "deterministic and device=cuda cannot be combined"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve({"task": "word2vec", "data.files": ["text.txt"], **changes})
