"""What a run of word vectors lacks is told before its text is read, and what does not go together is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from attnkit.errors import UsageError
from attnkit.tasks.word_vectors import train as module
from attnkit.tasks.word_vectors import work
from attnkit.tasks.word_vectors.resolve import resolve
from attnkit.tasks.word_vectors.train import Request, train

LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a GPU": ({"device": "cuda"}, "no CUDA device"),
    "vectors": ({"init_from": "none.vec"}, "there is no file none.vec"),
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
    monkeypatch.setattr(module, "encoded_text", read)
    monkeypatch.setattr(work, "has_numba", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    changes, words = LACKS[case]
    request = Request(resolve({"data.files": ["text.txt"], **changes}).config, tmp_path / "run")
    with pytest.raises(UsageError, match=words):
        list(train(request))
    assert not request.path.exists()
    if case != "numba":  # nothing else is refused
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        for name in ("none.vec", "text.txt"):
            Path(name).write_text("a b\n")
        with pytest.raises(UsageError if case.endswith("again") else AssertionError):
            list(train(request))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "glove", "device": "cuda"}, "device: glove is computed on the CPU"),
        ({"deterministic": True, "device": "cuda"}, "deterministic: a GPU adds up in no fixed order"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve({"data.files": ["text.txt"], **changes})
