"""What models start with that others have learnt, as it is typed."""

from __future__ import annotations

import json
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
        assert f"the vectors of {vectors} have width 12, the embeddings 16\n  at model.embeddings\n" in err
        assert "help: add --set model.d_model=12, or give vectors of the model's width" in err


def test_a_dry_run_of_one_that_goes_on_reads_no_vectors(call: Call, workshop: Any, tmp_path: Path) -> None:
    vectors, run = tmp_path / "vectors.safetensors", tmp_path / "run"
    Vectors(list("0123456789"), np.ones((10, 16), np.float32)).save(vectors)
    words = [*workshop.arguments("transformer", run, limits__max_steps=1), "--set", f"model.embeddings={vectors}"]
    assert call(*words)[0] == 0
    vectors.unlink()
    assert call(*words, "--dry-run")[0] == 0
    assert call(*words, "--dry-run", "--overwrite")[0] == 2


def test_a_dry_run_needs_no_validation_file_that_is_encoded(call: Call, workshop: Any, tmp_path: Path) -> None:
    """Like the run itself, which resumes from RUN/data."""
    bert, run, dev = tmp_path / "bert", tmp_path / "run", tmp_path / "dev.tsv"
    workshop.train(workshop.configure_task("masked tokens", limits__max_steps=1), bert)
    for path in (tmp_path / "train.tsv", dev):
        path.write_text("label\ttext\n" + "odd\t1 2 3\neven\t2 2 4\n" * 9)
    words = ["finetune", bert, "--task", "text-classification", "--train", tmp_path / "train.tsv", "--dev", dev]
    words += ["-o", run, "--device", "cpu", "--max-steps", "1"]
    assert call(*words)[0] == 0
    dev.unlink()
    assert call(*words, "--dry-run")[0] == 0
    assert call(*words[:-1], "2")[0] == 0
    code, _, err = call(*words[:8], "-o", tmp_path / "other", "--device", "cpu", "--dry-run")
    assert code == 2 and "dev.tsv" in err, err


def test_a_translator_begins_with_a_bert(call: Call, workshop: Any, tmp_path: Path) -> None:
    bert, run = tmp_path / "bert", tmp_path / "run"
    workshop.train(workshop.configure_task("masked tokens", limits__max_steps=1), bert)
    files = ["--src", workshop.file("train.src"), "--tgt", workshop.file("train.tgt")]
    sets = ["limits.max_steps=2", "optimization.batch_tokens=300", "device=cpu", "threads=1", "model.decoder_layers=1"]
    words = ["train", *files, "-o", run, "--init-from", bert, "--preset", "tiny"]
    words += [word for one in sets for word in ("--set", one)]
    code, out, _ = call(*words, "--dry-run", "--json")
    shown = json.loads(out)["configuration"]
    assert code == 0 and shown["model.d_model"] == {"value": 16, "origin": f"--init-from {bert}"}
    assert shown["model.embedding_norm"]["value"] is True and shown["joint_vocabulary"]["value"] is False
    code, out, err = call(*words)
    assert code == 0 and "building the target vocabulary" in err, err
    assert (run / "tokenizer.json").read_bytes() == (bert / "tokenizer.json").read_bytes()
    code, out, _ = call("translate", run, "-i", workshop.file("valid.src"), "--beam-size", 1)
    assert code == 0 and len(out.splitlines()) == 8
    for more in ([], ["--dry-run"]):
        code, out, err = call(*words[:5], "-o", tmp_path / "no", *words[7:], "--set", "model.n_heads=4", *more)
        assert (code, out) == (2, "") and "model.n_heads is 4, but the encoder of" in err, err
        assert not (tmp_path / "no/data").exists() and err.count("\n") == 3
    code, _, err = call("export", run, "--to", "huggingface", tmp_path / "hf")
    assert code == 4 and "model.positions" in err, err
    pytest.importorskip("ctranslate2")
    assert call("export", run, "--to", "ctranslate2", tmp_path / "ct2")[0] == 0
