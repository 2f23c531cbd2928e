"""What was fine-tuned in transformers is a run that predicts: the same logits, the same labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import transformers
from test_huggingface_import import NEAR, bert_folder, roberta_folder, roformer_folder

from attnkit.tasks.documents import read_labels
from attnkit.tasks.export_huggingface import export_huggingface
from attnkit.tasks.import_huggingface import import_huggingface
from attnkit.tasks.import_vocabulary import read_vocabulary
from attnkit.tasks.opened import open_run
from attnkit.tasks.verify import verify_run

TUNED: dict[str, tuple[str, Any]] = {
    "BertForSequenceClassification": ("text-classify", {"id2label": {0: "no", 1: "yes", 2: "who knows"}}),
    "RobertaForSequenceClassification": ("text-classify", {}),
    "BertForTokenClassification": ("tag", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    "RobertaForTokenClassification": ("tag", {}),
    "BertForQuestionAnswering": ("answer", {}),
    "RobertaForQuestionAnswering": ("answer", {}),
    "RoFormerForSequenceClassification": ("text-classify", {}),
    "RoFormerForTokenClassification": ("tag", {}),
    "RoFormerForQuestionAnswering": ("answer", {}),
}
FOLDERS = {"Bert": bert_folder, "Roberta": roberta_folder, "RoFormer": roformer_folder}


@pytest.mark.parametrize("name", TUNED)
def test_what_was_fine_tuned_there_predicts_here(name: str, tmp_path: Path) -> None:
    task, labels = TUNED[name]
    make = next(folder for kind, folder in FOLDERS.items() if name.startswith(kind))
    theirs = make(tmp_path / "hub", getattr(transformers, name), **labels)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert done.command == "predict" and done.warnings == ()
    opened = open_run(tmp_path / "run", task, device="cpu")
    if task != "answer":
        assert read_labels(opened.checkpoint).labels == list(theirs.config.id2label.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    order = read_vocabulary(tmp_path / "hub", theirs.config.model_type, theirs.config.vocab_size).order
    back = {there: here for here, there in enumerate(order) if there is not None}
    inputs = tokenizer(["the fox dog", "fox"], padding=True, return_tensors="pt")
    real = inputs.attention_mask.bool()
    ids = torch.tensor([[back[id] for id in row] for row in inputs.input_ids.tolist()])
    with torch.no_grad():
        found = theirs(**inputs)
        if task == "answer":
            begins, ends = opened.model(ids, real, torch.zeros_like(ids), real)
            torch.testing.assert_close(begins[real], found.start_logits[real], **NEAR)
            torch.testing.assert_close(ends[real], found.end_logits[real], **NEAR)
            return
        kept = real if task == "tag" else slice(None)
        torch.testing.assert_close(opened.model(ids, real)[kept], found.logits[kept], **NEAR)
    assert found.logits.std() > 0.05, "the test needs a model that says something"
    verified = verify_run(tmp_path / "run")
    assert not verified.n_bad
    again = export_huggingface(tmp_path / "run", tmp_path / "again").path
    assert json.loads((again / "config.json").read_text())["id2label"] == {
        str(i): n for i, n in theirs.config.id2label.items()
    }


@pytest.mark.parametrize("changes", [{"problem_type": "multi_label_classification"}, {"num_labels": 1}])
def test_outputs_that_are_no_labels_are_left_there(changes: dict[str, Any], tmp_path: Path) -> None:
    bert_folder(tmp_path / "hub", transformers.BertForSequenceClassification, **changes)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert any("its head 'classifier' was left there" in text for text in done.warnings)
    open_run(tmp_path / "run", "mlm", device="cpu")
