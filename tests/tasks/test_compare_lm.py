"""BERT and GPT on one text: each place against a pass of its own over exactly what the model may see there."""

from __future__ import annotations

import math
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
from attnkit.tasks.language_modeling.compare import compare

TEXT = "the lazy dog sleeps, the fox doesn't sleep"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("contrast")
    found = {}
    for name, kind, task, options in (
        ("bert", "bpe", "mlm", {"positions": "learned"}),
        ("gpt", "wordpiece", "clm", {}),
        ("back", "bpe", "clm", {"direction": "right-to-left"}),
    ):
        torch.manual_seed(6)
        words = vocabulary(kind)
        config = configure(task, words, **options)
        model = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
        found[name] = save_run(folder / name, config, shaken(model), words)
    return found


@pytest.mark.parametrize("gpt", ["gpt", "back"])
def test_each_place_is_a_pass_over_what_may_be_seen(runs: dict[str, Path], gpt: str) -> None:
    guessed = compare((runs["bert"], runs[gpt]), TEXT, top=4)
    assert compare((runs[gpt], runs["bert"]), TEXT, top=4) == guessed
    for name, one in zip(("bert", gpt), guessed, strict=True):
        opened = load_model(runs[name], "mlm" if name == "bert" else "clm", device="cpu")
        model: Any = opened.model
        tokenizer = read_tokenizer(opened.checkpoint)
        ids = tokenizer.encode([TEXT])[0]
        assert [place.piece for place in one.places] == tokenizer.tokens(ids)
        starts = [i for i, piece in enumerate(tokenizer.tokens(ids)) if piece.startswith("▁") or piece == ","]
        for i, place in enumerate(one.places):
            if name == "bert":  # all tokens of the word are masked
                a = max(start for start in starts if start <= i)
                b = min([start for start in starts if start > i], default=len(ids))
                row, at = [1, *ids[:a], *[4] * (b - a), *ids[b:], 2], i + 1
            else:
                row, at = ([1, *ids[:i]], -1) if name == "gpt" else ([1, *ids[:i:-1]], -1)
            with torch.no_grad():
                logits = model.head(model.hidden(torch.tensor([row]), PackedLayout.unpacked(1))[0, at]).double()
            probs = logits.softmax(-1)
            assert place.probability == pytest.approx(float(probs[ids[i]]), rel=1e-4)
            order = probs.argsort(descending=True).tolist()
            assert place.rank == order.index(ids[i]) + 1
            assert [guess.piece for guess in place.guesses] == tokenizer.tokens(order[:4])
            assert [g.probability for g in place.guesses] == pytest.approx(probs[order[:4]].tolist(), rel=1e-4)
            if name == "bert":
                word = tokenizer.decode([ids[a:b]])[0]
                assert place.before + word + place.after == TEXT
            else:
                assert (
                    TEXT.startswith(place.before + place.piece.replace("▁", "")) if name == "gpt" else not place.before
                )
                assert TEXT.endswith(place.after) and (place.after == "") == (name == "gpt" or i == len(ids) - 1)
        log_probs = [math.log(place.probability) for place in one.places]
        assert one.perplexity == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)))
        assert one.n_correct == sum(place.guesses[0].piece == place.piece for place in one.places)
    assert [one.sees for one in guessed] == [
        "all other words",
        "those after it" if gpt == "back" else "those before it",
    ]


@pytest.mark.parametrize(
    ("names", "text", "error", "said"),
    [
        (("bert", "bert"), TEXT, RunError, "'mlm', not a language model"),
        (("gpt", "back"), TEXT, RunError, "'clm', not a masked language model"),
        (("bert", "gpt"), " ", DataError, "no text"),
        (("bert", "gpt"), "the [MASK]", DataError, r"contains \[MASK\]"),
        (("bert", "gpt"), "the " * 39 + "the", DataError, "42 tokens including special tokens"),
    ],
)
def test_what_cannot_be_compared(
    runs: dict[str, Path], names: tuple[str, str], text: str, error: Any, said: str
) -> None:
    with pytest.raises(error, match=said):
        compare((runs[names[0]], runs[names[1]]), text)
