"""Model cards: the header of Hugging Face's hub, and the facts of the run."""

from __future__ import annotations

import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import yaml
from safetensors.numpy import load_file

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.model_card import count_parameters
from attnkit.runtime.devices import name_device


def read_card(run: Path) -> tuple[dict[str, Any], dict[str, str], str]:
    """Return the header, the table of facts and the whole text of a card."""
    text = (run / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    rows = [line.strip("| ").split(" | ") for line in body.split("## Data")[0].splitlines() if line.startswith("| ")]
    return yaml.safe_load(header), {row[0]: row[1] for row in rows if len(row) == 2}, text


def test_a_translator_tells_its_size_version_and_signatures(trained: Path) -> None:
    header, facts, text = read_card(trained)
    assert header == {
        "library_name": "attnkit", "pipeline_tag": "translation", "tags": ["attnkit", "translation"],
        "metrics": ["bleu", "chrf"],
    }  # fmt: skip
    assert "# language: " in text and "# license: " in text  # comments, until somebody fills them in
    weights = load_file(RunFolder(trained).checkpoint()[0].path / "model.safetensors")
    assert facts["parameters"] == f"{sum(array.size for array in weights.values()):,}"
    assert facts["attnkit"] == version("attnkit") and facts["device"] == "cpu" and "CPUs" in facts["machine"]
    made = datetime.date.fromisoformat(facts["finished"])
    today = datetime.datetime.now(datetime.timezone.utc).date()
    assert today - datetime.timedelta(days=1) <= made <= today
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        metric.corpus_score(["a"], [["a"]])
        assert f"|{metric.get_signature()}`" in text


def test_word_vectors_have_the_same_header(workshop: Any, tmp_path: Path) -> None:
    from attnkit.engine.resolve import resolve

    flags = {"task": "word2vec", "data.files": [str(workshop.file("train.src"))], "data.min_count": 1}
    workshop.train(resolve({**flags, "dim": 4, "epochs": 1, "threads": 1}).config, tmp_path / "vectors")
    header, facts, _ = read_card(tmp_path / "vectors")
    assert (header["pipeline_tag"], header["tags"]) == ("feature-extraction", ["attnkit", "feature-extraction"])
    checkpoint = RunFolder(tmp_path / "vectors").checkpoint()[0]
    assert facts["parameters"] == f"{count_parameters(checkpoint):,}" != "0" and "device" not in facts


def test_a_card_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert name_device(torch.device("cuda", 1)) == "cuda (GPU 1)" and name_device(torch.device("cpu")) == "cpu"
