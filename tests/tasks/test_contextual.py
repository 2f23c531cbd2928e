"""A word's contextual vectors against a loop that reads each sentence alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language import configure

from attnkit.analysis.contextual import compare_contexts, encoder_of
from attnkit.engine.loading import load_model
from attnkit.errors import DataError
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.text.tokenizer import Tokenizer

SENTENCES = ["some people came home", "then (People) came"]


@pytest.fixture(scope="module")
def bert(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("bert") / "run"
    given = ["limits.max_steps=2", "optimization.learning_rate=0.3", "optimization.warmup_steps=1", "model.n_layers=2"]
    workshop.train(configure("mlm", [workshop.file("text.txt")], *given), run)
    return run


def by_hand(run: Path, sentence: str, layer: int, pieces: list[str]) -> np.ndarray[Any, Any]:
    """Return the mean over the places where these pieces occur in a sentence one behind the other."""
    opened = load_model(run, "mlm", device="cpu")
    tokenizer = Tokenizer.from_json((run / "tokenizer.json").read_bytes())
    (ids,) = tokenizer.encode([sentence])
    assert len(ids) <= 22, "one window"
    shown = tokenizer.tokens(ids)
    (start,) = [i for i in range(len(shown)) if shown[i : i + len(pieces)] == pieces]
    with torch.no_grad():
        row = torch.tensor([[BOS_ID, *ids, EOS_ID]])
        hidden = opened.model.hidden(row, PackedLayout.unpacked(1), layers=layer)[0]
    return hidden[1 + start : 1 + start + len(pieces)].double().mean(0).numpy()


def spelled(tokenizer: Tokenizer, word: str) -> list[str]:
    """Return the pieces of a word; a space that is a piece of its own is not the word's."""
    pieces = tokenizer.tokens(tokenizer.encode([word])[0])
    return pieces[1:] if pieces[0] == "▁" else pieces


@pytest.mark.parametrize("layer", [0, 1, None])
def test_a_word_is_the_mean_of_its_pieces_in_its_sentence(bert: Path, layer: int | None) -> None:
    found = compare_contexts(bert, SENTENCES, "people", encoder_of(bert, layer))
    assert found.found == ["people", "People"] and found.contextual is not None
    tokenizer = Tokenizer.from_json((bert / "tokenizer.json").read_bytes())
    for sentence, form, vector in zip(SENTENCES, found.found, found.contextual, strict=True):
        pieces = spelled(tokenizer, form)
        expected = by_hand(bert, sentence, 2 if layer is None else layer, pieces)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)
    weights = load_model(bert, "mlm", device="cpu").model.embedding.weight.detach().numpy()
    ids = [id for id in tokenizer.encode(["people"])[0] if tokenizer.tokens([id]) != ["▁"]]
    assert found.pieces == tokenizer.tokens(ids)
    np.testing.assert_allclose(found.static, weights[ids].mean(0), atol=1e-6)
    one, other = map(np.array, found.contextual)
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert found.cosines[0].contextual == pytest.approx(cosine) and found.cosines[0].static == 1


def test_a_place_without_pieces_is_told(bert: Path) -> None:
    encoder = encoder_of(bert, 0)
    assert encoder is not None
    with pytest.raises(DataError, match="has no tokens in this vocabulary"):
        encoder("people", 3, 3)
