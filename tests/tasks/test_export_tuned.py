"""Fine-tuned runs in transformers: the same rows, the same logits, the same labels as ``attnkit predict`` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

from finetuned import WORDS, opened, predicted, random_run, write
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from attnkit.conversion.export_huggingface import export_huggingface

LABELS = ["bad", "fine", "good"]
TAGS = ["O", "B-PER", "I-PER"]
TEXTS = [" ".join(WORDS[:6]), "ada", "größer als  london, fox?", "", "über 日本 😀", " ".join(WORDS * 3)]
PAIRS = [("ada lives", "who?"), ("", "fox"), ("the lazy dog", "the quick brown fox jumps over")]
NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-5}


def exported(tmp_path: Path, task: str, labels: list[str], auto: Any) -> tuple[Path, Any, Any]:
    """Return a run, and the model and the tokenizer that transformers makes of it."""
    run = random_run(tmp_path / "run", task, labels)
    folder = export_huggingface(run, tmp_path / "hub").path
    theirs, told = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return run, theirs.eval(), AutoTokenizer.from_pretrained(folder)


def read(inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return inputs["input_ids"], inputs["attention_mask"].bool(), inputs["token_type_ids"]


def test_a_classifier_is_the_same_there(tmp_path: Path) -> None:
    run, theirs, tokenizer = exported(tmp_path, "text-classification", LABELS, AutoModelForSequenceClassification)
    assert theirs.config.id2label == dict(enumerate(LABELS))
    model, _ = opened(run, "text-classification")
    singles = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    pairs = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, truncation=True, return_tensors="pt")
    assert singles["input_ids"].shape[1] == 24, "the longest text is cut there too"
    found = []
    for inputs in (singles, pairs):
        with torch.no_grad():
            logits = theirs(**inputs).logits
            torch.testing.assert_close(model(*read(inputs)), logits, **NEAR)
        found += [LABELS[i] for i in logits.argmax(-1).tolist()]
    assert len(set(found)) > 1
    files = write(tmp_path / "texts.txt", *TEXTS), write(tmp_path / "pairs.txt", *map("\t".join, PAIRS))
    ours = predicted(run, files[0]) + predicted(run, files[1], format="pairs")
    assert [line.split("\t")[0] for line in ours] == found


def test_a_tagger_is_the_same_there(tmp_path: Path) -> None:
    run, theirs, tokenizer = exported(tmp_path, "token-classification", TAGS, AutoModelForTokenClassification)
    assert theirs.config.id2label == dict(enumerate(TAGS))
    sentences = [WORDS[:5], ["ada"], ["größer", "hund", "london"]]
    inputs = tokenizer([" ".join(words) for words in sentences], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**inputs).logits
        ids, real, _ = read(inputs)
        torch.testing.assert_close(opened(run, "token-classification")[0](ids, real)[real], logits[real], **NEAR)
    found = []
    for row, words in enumerate(sentences):
        own = inputs.word_ids(row)
        firsts = [own.index(number) for number in range(len(words))]
        found.append(" ".join(TAGS[i] for i in logits[row, firsts].argmax(-1).tolist()))
    assert predicted(run, write(tmp_path / "words.txt", *map(" ".join, sentences))) == found


def test_a_reader_is_the_same_there(tmp_path: Path) -> None:
    run, theirs, tokenizer = exported(tmp_path, "question-answering", [], AutoModelForQuestionAnswering)
    inputs = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    ids, real, segments = read(inputs)
    with torch.no_grad():
        found = theirs(**inputs)
        begins, ends = opened(run, "question-answering")[0](ids, real, segments, real)
    torch.testing.assert_close(found.start_logits[real], begins[real], **NEAR)
    torch.testing.assert_close(found.end_logits[real], ends[real], **NEAR)
    asked = write(tmp_path / "a.jsonl", *(json.dumps({"question": q, "context": c}) for q, c in PAIRS))
    for row, line in enumerate(predicted(run, asked)):
        place = [i for i, own in enumerate(inputs.sequence_ids(row)) if own == 1]
        scores = {(i, j): float(begins[row, i] + ends[row, j]) for i in place for j in place if i <= j}
        i, j = max(scores, key=scores.__getitem__)
        begin, end = inputs.token_to_chars(row, i).start, inputs.token_to_chars(row, j).end
        assert line.split("\t")[0] == PAIRS[row][1][begin:end].strip()
