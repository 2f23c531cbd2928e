"""What the recurrent model promises search and training: stepping, beams, padding, tying, plain errors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from attnkit.models.config import RnnConfig
from attnkit.models.rnn import RnnTranslator

SRC = torch.tensor([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2], [2, 0, 0, 0, 0, 0]])
MASK = SRC != 0
TGT = torch.tensor([[1, 5, 9, 4, 4], [1, 6, 7, 8, 12], [1, 10, 3, 3, 7]])
WAYS = [("none", "previous", False)]
WAYS += [(alignment, "previous", False) for alignment in ("dot", "general", "additive")]
WAYS += [(alignment, "current", feeding) for alignment in ("dot", "general", "additive") for feeding in (False, True)]


def build(**fields: Any) -> RnnTranslator:
    """Build a small model in float64 with dropout off."""
    torch.manual_seed(5)
    return RnnTranslator(RnnConfig(**{"d_model": 6, "d_hidden": 8, **fields}), 13, 13).double().eval()


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize(("alignment", "query", "feeding"), WAYS)
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_stepping_equals_the_full_pass(cell: str, alignment: str, query: str, feeding: bool, n_layers: int) -> None:
    """Word by word gives the features of the training pass."""
    model = build(
        cell=cell,
        alignment=alignment,
        attention_query=query,
        input_feeding=feeding,
        encoder_layers=2,
        decoder_layers=n_layers,
    )
    features = model.hidden(SRC, MASK, TGT)
    state = model.start(SRC, MASK, n_beams=1, max_length=5)
    for at in range(TGT.shape[1]):
        stepped, state = model.step(TGT[:, at : at + 1], state)
        torch.testing.assert_close(stepped[:, 0], features[:, at], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("alignment", "query", "feeding"), WAYS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_beams_follow_their_parents(cell: str, alignment: str, query: str, feeding: bool) -> None:
    """After widening, crossing over and dropping a sentence, every beam has the features of its own history."""
    model = build(cell=cell, alignment=alignment, attention_query=query, input_feeding=feeding, decoder_layers=2)
    state = model.start(SRC, MASK, n_beams=3, max_length=4, record=True)
    history = torch.ones(3, 1, 1, dtype=torch.int64)
    _, state = model.step(history[:, :, -1], state)
    moves = [([[0, 0, 0]] * 3, None), ([[2, 0, 0], [1, 1, 0], [0, 2, 1]], [2, 0]), ([[1, 0, 2]] * 2, None)]
    src, mask = SRC, MASK
    for parents, kept in moves:
        rows = torch.tensor(parents)
        state = state.reorder_beams(rows)
        history = history.gather(1, rows[:, :, None].expand(-1, -1, history.shape[2]))
        if kept:
            state, history = state.select_rows(torch.tensor(kept)), history[kept]
            src, mask = src[kept], mask[kept]
        words = torch.randint(4, 13, history.shape[:2])
        history = torch.cat([history, words[:, :, None]], dim=2)
        features, state = model.step(words, state)
        for beam in range(3):
            full = model.hidden(src, mask, history[:, beam])
            torch.testing.assert_close(features[:, beam], full[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("query", ["previous", "current"])
def test_recorded_attention_is_a_distribution_over_real_words(query: str) -> None:
    """Weights (B, K, S) sum to one and padding gets none; nothing is kept unless asked for; beams carry theirs."""
    model = build(attention_query=query)
    words = torch.ones(3, 1, dtype=torch.int64)
    _, state = model.step(words, model.start(SRC, MASK, 2, 3, record=True))
    weights = state.attention
    assert weights is not None
    assert weights.shape == (3, 1, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, dtype=torch.float64))
    assert torch.all(weights[:, 0][~MASK] == 0)
    assert torch.all(weights[:, 0][MASK] > 0)
    widened = state.reorder_beams(torch.zeros(3, 2, dtype=torch.int64)).select_rows(torch.tensor([1])).attention
    assert widened is not None
    assert torch.equal(widened[0, 1], weights[1, 0])
    assert model.step(words, model.start(SRC, MASK, 2, 3))[1].attention is None
    assert (
        build(alignment="none").step(words, build(alignment="none").start(SRC, MASK, 2, 3, True))[1].attention is None
    )


def test_keys_are_prepared_once_per_sentence() -> None:
    """Beams share their sentence's keys and values: no tensor of the source grows with the beam."""
    model = build()
    calls = []
    assert model.decoder.align is not None
    model.decoder.align.keys.register_forward_hook(lambda *_: calls.append(1))
    state = model.start(SRC, MASK, n_beams=4, max_length=9)
    before = state.source
    for at in range(3):
        _, state = model.step(torch.ones(3, 4 if at else 1, dtype=torch.int64), state)
        state = state.reorder_beams(torch.zeros(3, 4, dtype=torch.int64))
    assert len(calls) == 1
    assert state.source is before


@pytest.mark.parametrize(
    ("cell", "way", "bidirectional"), list(itertools.product(["gru", "lstm", "rnn"], WAYS, [False, True]))
)
def test_padding_and_batch_mates_change_nothing(cell: str, way: tuple[str, str, bool], bidirectional: bool) -> None:
    """Each sentence alone, without padding, has the features that it has in the batch."""
    alignment, query, feeding = way
    model = build(
        cell=cell,
        alignment=alignment,
        attention_query=query,
        input_feeding=feeding,
        bidirectional=bidirectional,
        encoder_layers=2,
    )
    together = model.hidden(SRC, MASK, TGT)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = model.hidden(SRC[row : row + 1, :length], None, TGT[row : row + 1, :3])
        torch.testing.assert_close(together[row, :3], alone[0], rtol=0, atol=1e-12)


def gradients(model: RnnTranslator, src: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the gradient of a weighted sum of features for every parameter but the output layer's."""
    loss = (model.hidden(src, mask, TGT) * torch.linspace(-1, 1, 6, dtype=torch.float64)).sum()
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("query", ["previous", "current"])
def test_padding_changes_no_gradient(cell: str, query: str) -> None:
    """Two more columns of padding, holding any word at all, leave every gradient as it was."""
    model = build(cell=cell, attention_query=query, tie_embeddings="target")
    padded = torch.cat([SRC, torch.full((3, 2), 11)], dim=1)
    mask = torch.cat([MASK, torch.zeros(3, 2, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(gradients(model, padded, mask), gradients(model, SRC, MASK), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("tied", "matrices"), [("none", 3), ("target", 2), ("all", 1)])
def test_tied_embeddings_are_one_matrix(tied: str, matrices: int) -> None:
    """As many matrices of the vocabulary's height as the configuration says."""
    model = build(tie_embeddings=tied)
    assert sum(parameter.shape == (13, 6) for parameter in model.parameters()) == matrices
    assert model.output.bias.shape == (13,)


def test_head_of_a_shortlist_is_part_of_the_whole() -> None:
    """Logits of chosen words equal their columns among all."""
    model = build()
    features, ids = torch.randn(2, 3, 6, dtype=torch.float64), torch.tensor([7, 0, 12])
    torch.testing.assert_close(model.head(features, ids), model.head(features)[..., ids])


def test_layer_by_layer_needs_as_many_layers() -> None:
    """A mismatch is told in a plain sentence that names the way out."""
    with pytest.raises(ValueError, match="equal encoder_layers and decoder_layers, not 1 and 2; decoder_init=bridge"):
        RnnConfig(decoder_init="layers", encoder_layers=1, decoder_layers=2)


def test_two_directions_need_an_even_width() -> None:
    """Half of an odd width is told where the width is given, not where the model is built."""
    with pytest.raises(ValueError, match="even d_hidden, not 7"):
        RnnConfig(d_hidden=7)
    assert RnnConfig(d_hidden=7, bidirectional=False).d_hidden == 7


def test_one_matrix_needs_one_vocabulary() -> None:
    """Tying all of them with two vocabularies is refused."""
    with pytest.raises(ValueError, match="a joint vocabulary, not two with 13 and 14"):
        RnnTranslator(RnnConfig(tie_embeddings="all"), 13, 14)


def test_start_from_the_last_layer_feeds_every_layer() -> None:
    """Two encoder layers and three decoder layers need no bridge when all start from the last one."""
    model = build(decoder_init="last", encoder_layers=2, decoder_layers=3)
    states = model.start(SRC, MASK, 1, 5).layers
    assert len(states) == 3
    assert all(torch.equal(state[0], states[0][0]) for state in states)


@pytest.mark.parametrize("part", ["dropout", "encoder", "decoder"])
def test_dropout_acts_in_training_alone(part: str) -> None:
    """Two training passes differ, in each part that has dropout; two evaluations do not."""
    model = build(dropout=0.5, encoder_layers=2)
    assert torch.equal(model.hidden(SRC, MASK, TGT), model.hidden(SRC, MASK, TGT))
    model.get_submodule(part).train()
    assert not torch.equal(model.hidden(SRC, MASK, TGT), model.hidden(SRC, MASK, TGT))
