"""The hierarchical attention network against loops over every document, sentence and word."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from attnkit.data.labeled import batch_of
from attnkit.models.documents import HierarchicalAttention
from attnkit.models.documents_config import HanConfig

V, L = 30, 3
CONFIG = HanConfig(d_model=6, d_word=8, d_sentence=10, d_attention=7, dropout=0.3)
DRAWN = random.Random(4)
DOCUMENTS = [
    [[DRAWN.randrange(4, V) for _ in range(DRAWN.randint(1, 6))] for _ in range(n_sentences)]
    for n_sentences in (3, 1, 5, 2, 4)
]


@pytest.fixture(scope="module")
def model() -> HierarchicalAttention:
    torch.manual_seed(1)
    found = HierarchicalAttention(CONFIG, V, L).double().eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return found


def gru(layer: Any, inputs: list[Tensor], backwards: bool) -> list[Tensor]:
    """Run one direction word by word, from Cho's equations in cuDNN's form."""
    weights = [layer.get_parameter(f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    state = torch.zeros(layer.hidden_size, dtype=torch.float64)
    found = []
    for x in reversed(inputs) if backwards else inputs:
        into, back = weights[0] @ x + weights[2], weights[1] @ state + weights[3]
        (r_in, z_in, n_in), (r_h, z_h, n_h) = into.chunk(3), back.chunk(3)
        reset, update = torch.sigmoid(r_in + r_h), torch.sigmoid(z_in + z_h)
        state = (1 - update) * torch.tanh(n_in + reset * n_h) + update * state
        found.append(state)
    return found[::-1] if backwards else found


def both(encoder: Any, inputs: list[Tensor]) -> list[Tensor]:
    ahead, back = gru(encoder.forwards[0], inputs, False), gru(encoder.backwards[0], inputs, True)
    return [torch.cat(pair) for pair in zip(ahead, back, strict=True)]


def pool(attention: Any, states: list[Tensor]) -> tuple[Tensor, list[float]]:
    """Weigh states one by one: u = tanh(W h + b), a = exp(u·c) / Σ exp(u·c)."""
    exps = [
        torch.exp(torch.tanh(attention.project.weight @ h + attention.project.bias) @ attention.context) for h in states
    ]
    total = sum(exps, torch.zeros((), dtype=torch.float64))
    weights = [float(e / total) for e in exps]
    return sum((w * h for w, h in zip(weights, states, strict=True)), torch.zeros_like(states[0])), weights


def naive(model: Any, document: list[list[int]]) -> tuple[Tensor, list[list[float]], list[float]]:
    vectors, of_words = [], []
    for sentence in document:
        pooled, weights = pool(model.word_attention, both(model.words, [model.embedding.weight[i] for i in sentence]))
        vectors.append(pooled)
        of_words.append(weights)
    feature, of_sentences = pool(model.sentence_attention, both(model.sentences, vectors))
    return feature, of_words, of_sentences


@torch.no_grad()
def test_it_is_the_loop_over_sentences_and_words(model: HierarchicalAttention) -> None:
    inputs = batch_of(DOCUMENTS).inputs
    found, looked = model.hidden(*inputs), model.look(*inputs)
    for i, document in enumerate(DOCUMENTS):
        feature, of_words, of_sentences = naive(model, document)
        torch.testing.assert_close(found[i], feature, rtol=1e-9, atol=1e-12)
        rows = [looked["word"][i, 0, 0, s, : len(words)].tolist() for s, words in enumerate(document)]
        assert all(a == pytest.approx(b, rel=1e-9) for a, b in zip(rows, of_words, strict=True))
        assert looked["sentence"][i, 0, 0, 0, : len(document)].tolist() == pytest.approx(of_sentences, rel=1e-9)


@torch.no_grad()
def test_weights_sum_to_one_over_what_is_real_and_are_zero_elsewhere(model: HierarchicalAttention) -> None:
    documents = [*DOCUMENTS, []]
    looked = model.look(*batch_of(documents).inputs)
    word, sentence = looked["word"], looked["sentence"]
    assert word.shape == (6, 1, 1, 5, 6) and sentence.shape == (6, 1, 1, 1, 5)
    for i, document in enumerate(documents):
        for s in range(5):
            n = len(document[s]) if s < len(document) else 0
            assert (word[i, 0, 0, s, n:] == 0).all()
            assert float(word[i, 0, 0, s].sum()) == pytest.approx(float(n > 0), abs=1e-9)
        assert (sentence[i, 0, 0, 0, len(document) :] == 0).all()
        assert float(sentence[i].sum()) == pytest.approx(float(bool(document)), abs=1e-9)


@torch.no_grad()
def test_padding_and_batch_mates_change_nothing(model: HierarchicalAttention) -> None:
    whole = model.hidden(*batch_of(DOCUMENTS).inputs)
    for i, document in enumerate(DOCUMENTS):
        torch.testing.assert_close(model.hidden(*batch_of([document]).inputs)[0], whole[i], rtol=1e-9, atol=1e-12)
    words, word_mask, places, sentence_mask = batch_of(DOCUMENTS).inputs
    n, width = words.shape
    wider = torch.full((n + 2, width + 3), 9)
    wider[:n, :width] = words.masked_fill(~word_mask, 9)  # what stands at padding must not matter
    mask = torch.zeros(n + 2, width + 3, dtype=torch.bool)
    mask[:n, :width] = word_mask
    more = torch.cat([places.masked_fill(~sentence_mask, n + 1), torch.full((len(places), 2), n + 1)], 1)
    real = torch.cat([sentence_mask, torch.zeros(len(places), 2, dtype=torch.bool)], 1)
    torch.testing.assert_close(model.hidden(wider, mask, more, real), whole, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_a_document_without_words_has_a_finite_answer(model: HierarchicalAttention) -> None:
    assert torch.equal(model.hidden(*batch_of([[]]).inputs), torch.zeros(1, 10, dtype=torch.float64))


def test_gradients_reach_every_parameter_and_ignore_padding(model: HierarchicalAttention) -> None:
    model.zero_grad()
    torch.nn.functional.cross_entropy(
        model.output(model.hidden(*batch_of([*DOCUMENTS, []]).inputs)), torch.tensor([0, 1, 2, 0, 1, 2])
    ).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(g is not None and bool(torch.isfinite(g).all()) and bool(g.any()) for g in gradients.values())
    table = gradients["embedding.weight"]
    assert table is not None and not table[0].any(), "padding is no word"


def test_dropout_is_off_while_it_looks_and_on_in_training(model: HierarchicalAttention) -> None:
    inputs = batch_of(DOCUMENTS).inputs
    calm = model.look(*inputs)["word"]
    model.train()
    try:
        assert torch.equal(model.look(*inputs)["word"], calm) and model.training
        assert not torch.equal(model.hidden(*inputs), model.hidden(*inputs))
    finally:
        model.eval()


def test_least_weights_are_a_lower_bound_near_the_truth() -> None:
    n = sum(parameter.numel() for parameter in HierarchicalAttention(CONFIG, V, L).parameters())
    assert 0.8 * n < CONFIG.least_weights(V, L) <= n
