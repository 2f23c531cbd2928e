"""What models begin with that others have learnt, as it is typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit import Vectors

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("command", ["pretrain-mlm", "pretrain-clm", "train"])
def test_a_dry_run_refuses_what_the_run_would(call: Call, workshop: Any, tmp_path: Path, command: str) -> None:
    vectors, run = tmp_path / "vectors.safetensors", tmp_path / "run"
    Vectors(["the", "7"], np.ones((2, 12), np.float32)).save(vectors)
    if command == "train":
        words = workshop.arguments("transformer", run)
    else:
        words = [command, workshop.file("text.txt"), "-o", run, "--set", "model.d_model=16", "--preset", "tiny"]
    for more in ([], ["--dry-run"]):
        code, out, err = call(*words, "--set", f"model.embeddings={vectors}", *more)
        assert (code, out) == (2, "") and not run.exists()
        assert f"the vectors of {vectors} have 12 numbers, the model's embeddings 16\n  at model.embeddings\n" in err
        assert "help: --set model.d_model=12, or vectors of the model's width" in err
