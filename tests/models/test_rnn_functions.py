"""Recurrent models of every build: they train, step as the full pass does, and show where they look."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from attnkit.models.attention.config import ALIGNMENT_NAMES, DISTRIBUTION_NAMES, AttentionOptions, incompatibility
from attnkit.models.config import RnnConfig
from attnkit.models.rnn import RnnTranslator

SRC = torch.tensor([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2], [2, 0, 0, 0, 0, 0]])
MASK = SRC != 0
TGT = torch.tensor([[1, 5, 9, 4, 4], [1, 6, 7, 8, 12], [1, 10, 3, 3, 7]])
SMALL = AttentionOptions(d_hidden=4, n_features=8, max_source=16, window=2)


def build(**fields: Any) -> RnnTranslator:
    """Build a small model in float64 with dropout off."""
    torch.manual_seed(5)
    sizes = {"d_model": 6, "d_hidden": 8, "attention_options": SMALL}
    return RnnTranslator(RnnConfig(**{**sizes, **fields}), 13, 13).double().eval()


def check(fields: dict[str, Any]) -> None:
    """Assert that a model steps as its full pass does, and that one step of training moves it and keeps it finite."""
    model = build(**fields)
    features = model.hidden(SRC, MASK, TGT)
    state = model.start(SRC, MASK, n_beams=1, max_length=5)
    for at in range(TGT.shape[1]):
        stepped, state = model.step(TGT[:, at : at + 1], state)
        torch.testing.assert_close(stepped[:, 0], features[:, at], rtol=0, atol=1e-11)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(2):
        logits = model.head(model.train().hidden(SRC, MASK, TGT))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), TGT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def builds() -> list[dict[str, Any]]:
    """Return every cell x layers x direction x start x context x alignment that is allowed."""
    found = []
    contexts = [("previous", False, None), ("previous", False, False), ("current", False, None)]
    contexts += [("current", False, True), ("current", True, None)]
    for cell, layers, both, start, context, alignment in itertools.product(
        ("rnn", "gru", "lstm"),
        (1, 2),
        (False, True),
        ("bridge", "layers", "last", "zeros"),
        contexts,
        ("none", *ALIGNMENT_NAMES),
    ):
        query, feeding, concatenate = context
        if alignment == "none" and (query == "current" or (start == "zeros" and concatenate is False)):
            continue
        found.append(
            {
                **{"cell": cell, "encoder_layers": layers, "decoder_layers": layers, "bidirectional": both},
                **{
                    "decoder_init": start,
                    "attention_query": query,
                    "input_feeding": feeding,
                    "feed_context": concatenate,
                },
                **{"alignment": alignment, "dropout": 0.0},
            }
        )
    return found


SAMPLE = builds()[::53]
"""A fixed part of them; 53 is prime to the sizes of all choices, so that every value of every choice occurs."""


def test_the_sample_has_every_choice() -> None:
    for key in SAMPLE[0]:
        assert {each[key] for each in SAMPLE} == {each[key] for each in builds()}, key
    assert 40 <= len(SAMPLE) <= 60


@pytest.mark.parametrize("fields", SAMPLE, ids=lambda fields: "-".join(str(value) for value in fields.values()))
def test_a_build_trains_and_steps_as_its_full_pass(fields: dict[str, Any]) -> None:
    check(fields)


@pytest.mark.slow
def test_every_fifth_build_trains_and_steps_as_its_full_pass() -> None:
    for fields in builds()[2::5]:  # 5 is prime to the sizes of all choices
        check(fields)


PAIRS = [
    (name, distribution)
    for name, distribution in itertools.product(ALIGNMENT_NAMES, DISTRIBUTION_NAMES)
    if incompatibility(name, distribution, SMALL) is None
    and (distribution == "softmax" or name in ("kernel", "concat"))
]


@pytest.mark.parametrize(("name", "distribution"), PAIRS)
@pytest.mark.parametrize("query", ["previous", "current"])
def test_padding_and_batch_mates_change_nothing(name: str, distribution: str, query: str) -> None:
    """Each sentence alone, without padding, has the features that it has in the batch, whatever the padding holds."""
    model = build(alignment=name, distribution=distribution, attention_query=query)
    together = model.hidden(SRC, MASK, TGT)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = model.hidden(SRC[row : row + 1, :length], None, TGT[row : row + 1, :3])
        torch.testing.assert_close(together[row, :3], alone[0], rtol=0, atol=1e-12)
    other = model.hidden(SRC.masked_fill(~MASK, 9), MASK, TGT)
    torch.testing.assert_close(other, together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALIGNMENT_NAMES)
def test_beams_follow_their_parents(name: str) -> None:
    """After crossing over and dropping a sentence, every beam has the features of its own history."""
    model = build(alignment=name, distribution="local", attention_query="current", input_feeding=True)
    state = model.start(SRC, MASK, n_beams=2, max_length=4)
    history = torch.ones(3, 1, 1, dtype=torch.int64)
    _, state = model.step(history[:, :, -1], state)
    src, mask = SRC, MASK
    for parents, kept in ([[0, 0]] * 3, None), ([[1, 0], [1, 1], [0, 1]], [2, 0]), ([[1, 0]] * 2, None):
        rows = torch.tensor(parents)
        state = state.reorder_beams(rows)
        history = history.gather(1, rows[:, :, None].expand(-1, -1, history.shape[2]))
        if kept:
            state, history = state.select_rows(torch.tensor(kept)), history[kept]
            src, mask = src[kept], mask[kept]
        words = torch.randint(4, 13, history.shape[:2])
        history = torch.cat([history, words[:, :, None]], dim=2)
        features, state = model.step(words, state)
        for beam in range(2):
            full = model.hidden(src, mask, history[:, beam])
            torch.testing.assert_close(features[:, beam], full[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("query", "feeding"), [("previous", False), ("current", False), ("current", True)])
def test_look_is_what_the_full_pass_weighs(query: str, feeding: bool) -> None:
    """Weights that the full pass itself computes, caught on their way, and dropout that is off and stays on."""
    model = build(attention_query=query, input_feeding=feeding, dropout=0.5)
    caught = []
    real = model.decoder.distribute

    def spy(*given: Any) -> Any:
        caught.append(real(*given))
        return caught[-1]

    model.decoder.distribute = spy
    model.hidden(SRC, MASK, TGT)
    expected = torch.cat(caught, dim=2)[:, None]  # (B, 1, 1, T, S)
    model.decoder.distribute = real
    found = model.train().attention_weights(SRC, MASK, TGT)
    assert list(found) == ["cross"] and model.training
    torch.testing.assert_close(found["cross"], expected.detach(), rtol=0, atol=1e-12)
    assert not found["cross"].requires_grad
    assert bool((found["cross"][:, 0, 0].transpose(1, 2)[~MASK] == 0).all())
    assert build(alignment="none").attention_weights(SRC, MASK, TGT) == {}
