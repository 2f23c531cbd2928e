"""A translator that has learnt something says the same in transformers, from text to text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.tasks.translation.translator import load_translator

SETTINGS: dict[str, list[str]] = {"joint": [], "separate": ["joint_vocabulary=false", "model.tie_embeddings=target"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_text_is_equal(
    name: str, digits: Path, train_on_digits: Callable[[Path, list[str]], Path], tmp_path: Path
) -> None:
    run = train_on_digits(tmp_path / "run", SETTINGS[name])
    folder = export_huggingface(run, tmp_path / "hub").path
    lines = (digits / "test.src").read_text().splitlines()[:200]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    target = PreTrainedTokenizerFast.from_pretrained(folder / ("target" if name == "separate" else ""))
    for beams in (1, 4):
        expected = load_translator([run], device="cpu").translate(
            lines, beam_size=beams, length_penalty=1.0, max_length=30
        )
        inputs = tokenizer(lines, return_tensors="pt", padding=True)
        with torch.no_grad():
            ids = model.generate(**inputs, num_beams=beams, max_length=31, early_stopping=beams > 1)
        found = target.batch_decode(ids, skip_special_tokens=True)
        assert len(set(expected)) > 100, "the toy model must have learnt to say different things"
        different = sum(mine != theirs for mine, theirs in zip(expected, found, strict=True))
        assert different <= (0 if beams == 1 else 4), beams  # the two searches end beams by rules of their own
