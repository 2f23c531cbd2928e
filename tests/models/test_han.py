"""The hierarchical attention network against loops over every document, sentence and word."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from formulas import Formula, cover, weigh
from torch import Tensor

from attnkit.data.text_classification import document_batch
from attnkit.models.attention.config import ALIGNMENT_NAMES, DISTRIBUTION_NAMES, AttentionOptions, incompatibility
from attnkit.models.han import HierarchicalAttentionNetwork
from attnkit.models.recurrent_config import HanConfig

V, L = 30, 3
CONFIG = HanConfig(d_model=6, d_word=8, d_sentence=10, d_attention=7, dropout=0.3)
DRAWN = random.Random(4)
DOCUMENTS = [
    [[DRAWN.randrange(4, V) for _ in range(DRAWN.randint(1, 6))] for _ in range(n_sentences)]
    for n_sentences in (3, 1, 5, 2, 4)
]


@pytest.fixture(scope="module")
def model() -> HierarchicalAttentionNetwork:
    torch.manual_seed(1)
    found = HierarchicalAttentionNetwork(CONFIG, V, L).double().eval()
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
def test_it_is_the_loop_over_sentences_and_words(model: HierarchicalAttentionNetwork) -> None:
    inputs = document_batch(DOCUMENTS).inputs
    found, looked = model.hidden(*inputs), model.attention_weights(*inputs)
    for i, document in enumerate(DOCUMENTS):
        feature, of_words, of_sentences = naive(model, document)
        torch.testing.assert_close(found[i], feature, rtol=1e-9, atol=1e-12)
        rows = [looked["word"][i, 0, 0, s, : len(words)].tolist() for s, words in enumerate(document)]
        assert all(a == pytest.approx(b, rel=1e-9) for a, b in zip(rows, of_words, strict=True))
        assert looked["sentence"][i, 0, 0, 0, : len(document)].tolist() == pytest.approx(of_sentences, rel=1e-9)


@torch.no_grad()
def test_weights_sum_to_one_over_what_is_real_and_are_zero_elsewhere(model: HierarchicalAttentionNetwork) -> None:
    documents = [*DOCUMENTS, []]
    looked = model.attention_weights(*document_batch(documents).inputs)
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
def test_padding_and_batch_mates_change_nothing(model: HierarchicalAttentionNetwork) -> None:
    whole = model.hidden(*document_batch(DOCUMENTS).inputs)
    for i, document in enumerate(DOCUMENTS):
        torch.testing.assert_close(model.hidden(*document_batch([document]).inputs)[0], whole[i], rtol=1e-9, atol=1e-12)
    words, word_mask, places, sentence_mask = document_batch(DOCUMENTS).inputs
    n, width = words.shape
    wider = torch.full((n + 2, width + 3), 9)
    wider[:n, :width] = words.masked_fill(~word_mask, 9)  # what stands at padding must not matter
    mask = torch.zeros(n + 2, width + 3, dtype=torch.bool)
    mask[:n, :width] = word_mask
    more = torch.cat([places.masked_fill(~sentence_mask, n + 1), torch.full((len(places), 2), n + 1)], 1)
    real = torch.cat([sentence_mask, torch.zeros(len(places), 2, dtype=torch.bool)], 1)
    torch.testing.assert_close(model.hidden(wider, mask, more, real), whole, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_a_document_without_words_has_a_finite_answer(model: HierarchicalAttentionNetwork) -> None:
    assert torch.equal(model.hidden(*document_batch([[]]).inputs), torch.zeros(1, 10, dtype=torch.float64))


def test_gradients_reach_every_parameter_and_ignore_padding(model: HierarchicalAttentionNetwork) -> None:
    model.zero_grad()
    torch.nn.functional.cross_entropy(
        model.output(model.hidden(*document_batch([*DOCUMENTS, []]).inputs)), torch.tensor([0, 1, 2, 0, 1, 2])
    ).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(g is not None and bool(torch.isfinite(g).all()) and bool(g.any()) for g in gradients.values())
    table = gradients["embedding.weight"]
    assert table is not None and not table[0].any(), "padding is not a word"


def test_dropout_is_off_while_it_looks_and_on_in_training(model: HierarchicalAttentionNetwork) -> None:
    inputs = document_batch(DOCUMENTS).inputs
    calm = model.attention_weights(*inputs)["word"]
    model.train()
    try:
        assert torch.equal(model.attention_weights(*inputs)["word"], calm) and model.training
        assert not torch.equal(model.hidden(*inputs), model.hidden(*inputs))
    finally:
        model.eval()


def test_least_weights_are_a_lower_bound_near_the_truth() -> None:
    n = sum(parameter.numel() for parameter in HierarchicalAttentionNetwork(CONFIG, V, L).parameters())
    assert 0.8 * n < CONFIG.min_parameters(V, L) <= n


OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    ("similarity", "normalize"): {"similarity": "gaussian"},
    ("activated_general", "normalize"): {"activation": "softplus"},
}
"""What a pair needs to have a meaning."""


def options_of(alignment: str, distribution: str) -> AttentionOptions:
    given = {"d_hidden": 5, "n_features": 8, "window": 2, "max_source": 9}
    return AttentionOptions.model_validate({**given, **OTHERS.get((alignment, distribution), {})})


PAIRS = [
    (alignment, distribution)
    for alignment, distribution in itertools.product(ALIGNMENT_NAMES, DISTRIBUTION_NAMES)
    if incompatibility(alignment, distribution, options_of(alignment, distribution)) is None
]


NORMALIZED = [pair for pair in PAIRS if pair[1] == "normalize"]
COVER = list(dict.fromkeys([*cover(PAIRS), ("scaled_dot", "softmax"), *NORMALIZED]))


def build(alignment: str, distribution: str) -> HierarchicalAttentionNetwork:
    """Return a model of a pair, none of whose weights is zero."""
    torch.manual_seed(3)
    chosen: dict[str, Any] = {"alignment": alignment, "distribution": distribution, "dropout": 0.0}
    config = CONFIG.model_copy(update={**chosen, "attention_options": options_of(alignment, distribution)})
    found = HierarchicalAttentionNetwork(config, V, L).double()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return found


def by_formula(attention: Any, names: tuple[str, str], states: Tensor) -> list[float]:
    """Weigh states (S, d) number by number: the context vector asks, tanh(W h + b) are the keys."""
    formula = Formula(names[0], attention.align, options_of(*names), 0, 1)
    query = attention.context.tolist()
    keys = [torch.tanh(attention.project.weight @ h + attention.project.bias).tolist() for h in states]
    scores = [formula(query, key, place) for place, key in enumerate(keys)]
    return weigh(names[1], scores, query, attention.distribute, 0, 1)


def test_there_are_as_many_pairs_as_for_other_models() -> None:
    assert len(PAIRS) == 75


@pytest.mark.parametrize("names", COVER, ids="-".join)
@torch.no_grad()
def test_pairs_weigh_as_their_formulas(names: tuple[str, str]) -> None:
    model = build(*names).eval()
    for attention, width in ((model.word_attention, 8), (model.sentence_attention, 10)):
        states, lengths = torch.randn(3, 5, width, dtype=torch.float64), [5, 2, 0]
        pooled, weights = attention(states, torch.arange(5) < torch.tensor(lengths)[:, None])
        for row, length in enumerate(lengths):
            expected = by_formula(attention, names, states[row, :length])
            assert weights[row].tolist() == pytest.approx([*expected, *[0.0] * (5 - length)], abs=1e-9)
            mean = sum((w * h for w, h in zip(expected, states[row], strict=False)), torch.zeros(width).double())
            torch.testing.assert_close(pooled[row], mean, rtol=0, atol=1e-9)


@pytest.mark.parametrize("names", COVER, ids="-".join)
def test_pairs_train(names: tuple[str, str]) -> None:
    """A step moves the loss down, and all that the scores depend on has a finite gradient."""
    model, inputs, labels = build(*names), document_batch([*DOCUMENTS, []]).inputs, torch.tensor([0, 1, 2, 0, 1, 2])

    def loss() -> Tensor:
        return torch.nn.functional.cross_entropy(model.output(model.hidden(*inputs)), labels)

    before = loss()
    before.backward()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None or "attention" in name, name
            if parameter.grad is not None:
                assert bool(parameter.grad.isfinite().all()), name
                parameter -= 0.02 * parameter.grad
        assert float(loss()) < float(before)


def test_the_default_is_dot_and_holds_nothing_more() -> None:
    """The paper's pair in few operations is that of the tables; its weights have the names that they had."""
    plain = build("dot", "softmax")
    names = {"word_attention.project.weight", "word_attention.project.bias", "word_attention.context"}
    assert {name for name in plain.state_dict() if name.startswith("word_attention")} == names
    states, mask = torch.randn(2, 4, 8, dtype=torch.float64), torch.tensor([[True] * 4, [True, False, False, False]])
    pooled, weights = plain.word_attention(states, mask)
    plain.word_attention.plain = False
    again, others = plain.word_attention(states, mask)
    torch.testing.assert_close((again, others), (pooled, weights), rtol=0, atol=1e-12)


def test_a_pair_without_meaning_is_refused_and_location_has_an_end() -> None:
    with pytest.raises(ValueError, match="dot cannot be combined with distribution normalize"):
        HanConfig(distribution="normalize")
    located = HanConfig(alignment="location", attention_options=AttentionOptions(max_source=7))
    assert (located.max_positions, HanConfig().max_positions) == (7, None)


@pytest.mark.parametrize("alignment", ALIGNMENT_NAMES)
def test_least_weights_count_the_functions_matrices(alignment: str) -> None:
    options = AttentionOptions(max_source=40, deep_layers=6)
    config = CONFIG.model_copy(update={"alignment": alignment, "attention_options": options})
    n = sum(parameter.numel() for parameter in HierarchicalAttentionNetwork(config, V, L).parameters())
    assert 0.8 * n < config.min_parameters(V, L) <= n
