"""Texts of an exported GPT: transformers' own ``generate`` chooses the same tokens, and its fill-mask pipeline too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

from hub_runs import configure, save_run, shaken, vocabulary
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.engine.loading import load_model
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.tasks.language_modeling.generate import Generator
from attnkit.tasks.language_modeling.generate import search_config as settings

WORDS = vocabulary()
PROMPTS = ["the quick brown", "", "größer als der", "the lazy dog sleeps, the fox"]


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_transformers_writes_on_alike(tmp_path: Path, penalty: float) -> None:
    torch.manual_seed(8)
    config = configure("clm", WORDS, tie_embeddings=False)
    run = save_run(tmp_path / "run", config, shaken(Gpt(config.model, WORDS.vocab_size)), WORDS)
    theirs: Any = AutoModelForCausalLM.from_pretrained(export_huggingface(run, tmp_path / "hub").path).double()
    opened = load_model(run, "clm", device="cpu")
    search = settings({"max_length": 20, "repetition_penalty": penalty})
    made = Generator(replace(opened, model=opened.model.double()), search)
    barred = [0, 1, *range(WORDS.vocab_size - WORDS.n_unused, WORDS.vocab_size)]
    kinds = set()
    for prompt, answer in zip(PROMPTS, made.generate(PROMPTS), strict=True):
        row = torch.tensor([made.encode(prompt)])
        found = theirs.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=20,
            do_sample=False,
            repetition_penalty=penalty,
            suppress_tokens=barred,
            eos_token_id=2,
            pad_token_id=0,
        )[0, row.shape[1] :].tolist()
        text = answer[0]
        assert text.pieces == WORDS.tokens(id for id in found if id != 2)
        assert text.end == ("end" if 2 in found else "length")
        kinds |= set(text.pieces)
    assert len(kinds) > 5, "the test needs a model that says something"


def test_the_pipeline_fills_alike(tmp_path: Path) -> None:
    torch.manual_seed(9)
    config = configure("mlm", WORDS)
    run = save_run(tmp_path / "run", config, shaken(Bert(config.model, WORDS.vocab_size)), WORDS)
    folder = export_huggingface(run, tmp_path / "hub").path
    theirs = pipeline(
        "fill-mask",
        model=AutoModelForMaskedLM.from_pretrained(folder),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        top_k=WORDS.vocab_size,
        device="cpu",
    )
    filler = FillMaskPipeline(load_model(run, "mlm", device="cpu"), top=5)
    for line in ("the lazy[MASK] sleeps, the fox doesn't", "the quick brown fox[MASK]"):
        theirs_of = {one["token"]: one["score"] for one in theirs(line)}
        guesses = filler.fill([line.replace("[MASK]", " [MASK]")])[0].masks[0]
        ids = {WORDS.tokens([id])[0]: id for id in reversed(range(WORDS.vocab_size))}
        for guess in guesses:
            assert guess.probability == pytest.approx(theirs_of[ids[guess.piece]], rel=1e-4)
        usable = [score for id, score in theirs_of.items() if id > 4 and WORDS.bytes_of(id)]
        assert max(usable) == pytest.approx(guesses[0].probability, rel=1e-4)
