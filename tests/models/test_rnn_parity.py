"""The decoder equals a naive loop over steps, written here from the papers with torch.nn's cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from formulas import Formula, weigh
from torch import Tensor, nn

from attnkit.models.attention.config import ALIGNMENT_NAMES, AttentionOptions
from attnkit.models.config import RnnConfig
from attnkit.models.recurrent import weights_of
from attnkit.models.rnn import RnnTranslator

NAIVE_CELLS: dict[str, Any] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn": nn.RNNCell}
LENGTHS = [4, 6, 1]
SRC = torch.tensor([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2], [2, 0, 0, 0, 0, 0]])
TGT = torch.tensor([[1, 5, 9, 4, 4], [1, 6, 7, 8, 12], [1, 10, 3, 3, 7]])
WAYS = [
    ("none", "previous", False),
    ("additive", "previous", False),
    ("general", "previous", False),
    ("dot", "current", False),
    ("general", "current", False),
    ("additive", "current", True),
    ("dot", "current", True),
]


def build(**fields: Any) -> RnnTranslator:
    """Build a small model in float64 whose biases are not zero, so that a forgotten one shows."""
    torch.manual_seed(3)
    config = RnnConfig(**{"d_model": 6, "d_hidden": 8, "dropout": 0.0, "tie_embeddings": "none", **fields})
    model = RnnTranslator(config, 13, 13).double()
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def naive_cells(model: RnnTranslator, cell: str) -> list[Any]:
    """Return torch.nn's one-step cells with the decoder's weights."""
    cells = []
    for layer in model.decoder.layers:
        weights = weights_of(layer)
        copy = NAIVE_CELLS[cell](weights.input.shape[1], weights.hidden.shape[1]).double()
        copy.weight_ih.data, copy.weight_hh.data = weights.input.data, weights.hidden.data
        copy.bias_ih.data, copy.bias_hh.data = weights.input_bias.data, weights.hidden_bias.data
        cells.append(copy)
    return cells


def naive_attention(model: RnnTranslator, fields: dict[str, Any], query: Tensor, values: Tensor) -> Tensor:
    """Return the context (d,) of one query (d,) over the values (S, d) of one sentence without padding."""
    align, kind, distribution = model.decoder.align, fields["alignment"], fields.get("distribution", "softmax")
    if kind != "additive" or distribution != "softmax":
        formula = Formula(kind, align, fields.get("attention_options", AttentionOptions()), 0, 1)
        q = query.tolist()
        scores = [formula(q, value.tolist(), i) for i, value in enumerate(values)]
        weights = torch.tensor(weigh(distribution, scores, q, model.decoder.distribute, 0, 1), dtype=torch.float64)
    else:  # in tensors, for gradients
        inner = [align.query.weight @ query + align.keys.weight @ value + align.keys.bias for value in values]
        powers = torch.stack([align.weight @ torch.tanh(each) for each in inner]).exp()
        weights = powers / powers.sum()
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def naive_features(model: RnnTranslator, fields: dict[str, Any], row: int) -> Tensor:
    """Return features (T, D) of one sentence alone, step by step."""
    scale = 6**0.5
    length = LENGTHS[row]
    values, finals = model.encoder(model.src_embedding.weight[SRC[row : row + 1, :length]] * scale, None)
    n_layers = fields.get("decoder_layers", 1)
    assert model.bridge is None
    zeros = tuple(torch.zeros_like(part) for part in finals[-1])
    states = {"last": [finals[-1]] * n_layers, "layers": finals, "zeros": [zeros] * n_layers}[fields["decoder_init"]]
    plain, luong = fields["alignment"] == "none", fields["attention_query"] == "current"
    joined = fields.get("feed_context", plain or not luong)
    values, summary = values[0], finals[-1][0][0]
    lstm = fields["cell"] == "lstm"
    state = [part if lstm else part[0] for part in states]
    cells, readout = naive_cells(model, fields["cell"]), model.decoder.readout
    fed, features = torch.zeros(6, dtype=torch.float64), []
    for word in TGT[row]:
        embedded = model.tgt_embedding.weight[word] * scale
        top = (state[-1][0] if lstm else state[-1])[0]
        context = summary
        if not plain and not luong:
            context = naive_attention(model, fields, top, values)
        inputs = [embedded] + [context] * joined + [fed] * fields["input_feeding"]
        below = torch.cat(inputs)[None]
        for index, cell in enumerate(cells):
            state[index] = cell(below, state[index])
            below = state[index][0] if lstm else state[index]
        if plain:
            read = [embedded, below[0], summary] if joined else [embedded, below[0]]
        elif luong:
            read = [below[0], naive_attention(model, fields, below[0], values)]
        else:
            read = [embedded, below[0], context]
        fed = torch.tanh(readout.weight @ torch.cat(read) + readout.bias)
        features.append(fed)
    return torch.stack(features)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize(("alignment", "query", "feeding"), WAYS)
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_features_equal_a_naive_loop(cell: str, alignment: str, query: str, feeding: bool, n_layers: int) -> None:
    """Bahdanau, Luong with and without input feeding, and no attention, on each sentence of a ragged batch."""
    fields = {"cell": cell, "alignment": alignment, "attention_query": query, "input_feeding": feeding}
    fields |= {
        "encoder_layers": n_layers,
        "decoder_layers": n_layers,
        "decoder_init": "layers" if n_layers == 2 else "last",
    }
    model = build(**fields)
    features = model.hidden(SRC, SRC != 0, TGT)
    for row in range(len(LENGTHS)):
        torch.testing.assert_close(features[row], naive_features(model, fields, row), rtol=0, atol=1e-12)


FUNCTIONS = [{"alignment": name} for name in ALIGNMENT_NAMES]
FUNCTIONS += [{"alignment": "general", "distribution": name} for name in ("local", "hard", "sparsemax", "entmax15")]
FUNCTIONS += [{"alignment": "concat", "distribution": "local"}, {"alignment": "dot", "distribution": "sigmoid"}]
FUNCTIONS += [{"alignment": "kernel", "distribution": "normalize"}]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: "-".join(function.values()))
@pytest.mark.parametrize(("query", "feeding"), [("previous", False), ("current", False), ("current", True)])
def test_every_function_equals_a_naive_loop(function: dict[str, str], query: str, feeding: bool) -> None:
    """Luong's concat, his window (local-p) and all the others, in the place of Bahdanau's and in Luong's."""
    options = AttentionOptions(window=2, d_hidden=5, n_features=8)
    fields = {"cell": "gru", "attention_query": query, "input_feeding": feeding, "decoder_init": "last", **function}
    fields["attention_options"] = options
    model = build(**fields)
    features = model.hidden(SRC, SRC != 0, TGT)
    for row in range(len(LENGTHS)):
        torch.testing.assert_close(features[row], naive_features(model, fields, row), rtol=0, atol=1e-9)


@pytest.mark.parametrize("concatenate", [False, True])
@pytest.mark.parametrize("start", ["last", "layers", "zeros"])
@pytest.mark.parametrize(("alignment", "query", "feeding"), [WAYS[0], WAYS[1], WAYS[4], WAYS[5]])
def test_starts_and_inputs_equal_a_naive_loop(
    alignment: str, query: str, feeding: bool, start: str, concatenate: bool
) -> None:
    """The decoder's start, and the context joined to every step's input or not."""
    if (alignment, start, concatenate) == ("none", "zeros", False):
        pytest.skip("refused: the decoder would know nothing")
    fields = {
        "cell": "lstm",
        "alignment": alignment,
        "attention_query": query,
        "input_feeding": feeding,
        "decoder_init": start,
    }
    fields |= {"feed_context": concatenate, "encoder_layers": 2, "decoder_layers": 2}
    model = build(**fields)
    features = model.hidden(SRC, SRC != 0, TGT)
    for row in range(len(LENGTHS)):
        torch.testing.assert_close(features[row], naive_features(model, fields, row), rtol=0, atol=1e-12)


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_equal_those_of_the_naive_loop(cell: str, feeding: bool) -> None:
    """What is hoisted out of the loop changes no gradient."""
    fields = {"cell": cell, "alignment": "additive", "attention_query": "current" if feeding else "previous"}
    fields |= {"input_feeding": feeding, "decoder_init": "last"}
    model = build(**fields)
    parameters = [model.src_embedding.weight, model.tgt_embedding.weight, model.decoder.readout.weight]
    weighting = torch.randn(3, 5, 6, dtype=torch.float64)
    ours = torch.autograd.grad((model.hidden(SRC, SRC != 0, TGT) * weighting).sum(), parameters)
    naive = torch.stack([naive_features(model, fields, row) for row in range(3)])
    theirs = torch.autograd.grad((naive * weighting).sum(), parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_bridge_is_a_linear_map_and_tanh_of_all_final_states(cell: str) -> None:
    """One encoder layer starts three decoder layers."""
    model = build(cell=cell, encoder_layers=2, decoder_layers=3)
    assert model.bridge is not None
    finals = [tuple(torch.randn(2, 8, dtype=torch.float64) for _ in range(1 + (cell == "lstm"))) for _ in range(2)]
    states = model.bridge(finals)
    assert len(states) == 3
    for part, linear in enumerate(model.bridge.maps):
        joined = torch.cat([finals[0][part], finals[1][part]], dim=1)
        expected = torch.tanh(joined @ linear.weight.T + linear.bias)
        torch.testing.assert_close(torch.cat([state[part] for state in states], dim=1), expected)
