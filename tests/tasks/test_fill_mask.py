"""Guesses for masks: the softmax of all logits of the whole line, computed by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_runs import configure, save_run, shaken, vocabulary

from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, RunError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.text.masked_lines import encode_masked

MASK = "[MASK]"
LINES = [
    f"the quick {MASK} fox jumps over the {MASK} dog",
    f"{MASK}",
    f"the lazy {MASK}",
    f"{MASK} {MASK} doesn't sleep, the {MASK}",
]


def save(path: Path, kind: str = "bpe", **model: Any) -> Path:
    torch.manual_seed(4)
    words = vocabulary(kind)
    config = configure("mlm", words, **model)
    return save_run(path, config, shaken(Bert(config.model, words.vocab_size)), words)


@pytest.mark.parametrize(
    ("kind", "model"), [("bpe", {}), ("char", {"max_length": 90}), ("word", {"positions": "alibi"})]
)
def test_probabilities_are_the_softmax_over_the_whole_line(tmp_path: Path, kind: str, model: dict[str, Any]) -> None:
    opened = load_model(save(tmp_path / "run", kind, **model), "mlm", device="cpu")
    tokenizer = read_tokenizer(opened.checkpoint)
    filler = FillMaskPipeline(opened, top=10_000)
    found = filler.fill(LINES)
    model_of: Any = opened.model
    for line, filled in zip(LINES, found, strict=True):
        row = torch.tensor([[1, *encode_masked(tokenizer, line, MASK), 2]])
        with torch.no_grad():
            logits = model_of.head(model_of.hidden(row, PackedLayout.unpacked(1)))[0].double()
        all_of_it = logits.exp() / logits.exp().sum(-1, keepdim=True)
        places = (row[0] == tokenizer.token_id(MASK)).nonzero()[:, 0].tolist()
        assert len(places) == len(filled.masks) == line.count(MASK)
        for place, guesses in zip(places, filled.masks, strict=True):
            usable = [id for id in range(5, tokenizer.vocab_size) if tokenizer.bytes_of(id)]
            best = sorted(usable, key=lambda id: -float(all_of_it[place, id]))
            assert [guess.piece for guess in guesses[:20]] == tokenizer.tokens(best[:20])
            expected = [float(all_of_it[place, id]) for id in best]
            assert [guess.probability for guess in guesses] == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_a_line_is_guessed_alike_alone_and_among_others(tmp_path: Path) -> None:
    opened = load_model(save(tmp_path / "run"), "mlm", device="cpu")
    filler = FillMaskPipeline(replace(opened, model=opened.model.double()), top=3)
    for line, among in zip(LINES, filler.fill(LINES), strict=True):
        alone = filler.fill([line])[0]
        assert (alone.text, alone.filled) == (among.text, among.filled)
        for own, other in zip(alone.masks, among.masks, strict=True):
            assert [g.probability for g in own] == pytest.approx([g.probability for g in other], rel=1e-9)


def test_guesses_are_shown_in_their_line(tmp_path: Path) -> None:
    filled = FillMaskPipeline(load_model(save(tmp_path / "run"), "mlm", device="cpu"), top=2).fill(
        [f"the {MASK} dog {MASK}."]
    )[0]
    first, second = filled.masks
    for guess in first:
        text = re.sub("<0x(..)>", lambda found: chr(int(found[1], 16)), guess.piece.replace("▁", " "))
        assert guess.text == f"the{text} dog {MASK}."
    assert filled.text == f"the {MASK} dog {MASK}." and MASK in second[0].text and MASK not in filled.filled
    assert filled.filled.startswith(first[0].text.split(" dog")[0])


def test_lines_that_cannot_be_guessed(tmp_path: Path) -> None:
    run = save(tmp_path / "run", positions="learned")
    filler = FillMaskPipeline(load_model(run, "mlm", device="cpu"))
    with pytest.raises(DataError, match=r"no \[MASK\] in this line") as error:
        filler.fill([LINES[0], "no mask"], 7, "standard input")
    assert error.value.where == "standard input, line 8"
    longest = f"{MASK}" + " the" * 37  # and both ends: 40 positions
    assert filler.fill([longest])[0].text == longest
    with pytest.raises(DataError, match="41 tokens including special tokens, more than the maximum of 40"):
        filler.fill([longest + " the"])
    far = FillMaskPipeline(load_model(save(tmp_path / "far", positions="rotary"), "mlm", device="cpu"))
    assert far.fill([longest + " the"])[0].text == longest + " the"
    with pytest.raises(DataError, match=r"more than the maximum of 512"):
        far.fill([longest + " the" * 480])
    with pytest.raises(RunError, match="not a masked language model"):
        torch.manual_seed(1)
        words = vocabulary()
        config = configure("clm", words)
        save_run(tmp_path / "gpt", config, Gpt(config.model, words.vocab_size), words)
        load_model(tmp_path / "gpt", "mlm")
