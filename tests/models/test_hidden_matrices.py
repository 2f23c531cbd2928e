"""Which weights Muon trains, in every model, and the maps that each of them holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from attnkit.models import (
    Bert,
    BertConfig,
    ElectraConfig,
    Gpt,
    GptConfig,
    HanConfig,
    HierarchicalAttentionNetwork,
    MlpAutoencoderConfig,
    RnnAutoencoderConfig,
    RnnConfig,
    RnnTranslator,
    SequenceAutoencoder,
    SequenceClassifier,
    SpanPredictor,
    TokenTagger,
    Transformer,
    TransformerConfig,
    VectorAutoencoder,
)
from attnkit.models.electra import build_pretrained
from attnkit.models.hidden_matrices import hidden_matrices

SIZE: dict[str, Any] = {"d_model": 16, "n_heads": 4, "d_ff": 24}
SIDES = {**SIZE, "encoder_layers": 2, "decoder_layers": 3}
BERT = BertConfig(**SIZE, n_layers=2)
MODELS: dict[str, Any] = {
    "transformer": lambda: Transformer(TransformerConfig(**SIDES, positions="learned"), 50, 50),
    "transformer, untied": lambda: Transformer(
        TransformerConfig(**SIDES, positions="relative", tie_embeddings="none"), 50, 60
    ),
    "transformer, own functions": lambda: Transformer(
        TransformerConfig(**SIDES, alignment=("general", "general", "additive", "location")), 50, 50
    ),
    "transformer, heads of their own width": lambda: Transformer(
        TransformerConfig(**SIDES, head_width=6, glu=True, bias=False, normalization="rms"), 50, 50
    ),
    "transformer, narrow heads": lambda: Transformer(TransformerConfig(**SIDES, head_width=3), 50, 50),
    "transformer, wide heads": lambda: Transformer(TransformerConfig(**SIDES, head_width=5), 50, 50),
    "rnn": lambda: RnnTranslator(RnnConfig(d_model=8, d_hidden=12, cell="lstm", alignment="additive"), 50, 50),
    "bert": lambda: Bert(BERT.model_copy(update={"next_sentence": True, "d_embedding": 8}), 50),
    "electra": lambda: build_pretrained(BERT, 50, ElectraConfig()),
    "gpt": lambda: Gpt(GptConfig(**SIZE, n_layers=2, n_key_value_heads=2, tie_embeddings=False), 50),
    "classifier": lambda: SequenceClassifier(BERT, 50, 3),
    "tagger": lambda: TokenTagger(BERT, 50, 3),
    "span predictor": lambda: SpanPredictor(BERT, 50),
    "han": lambda: HierarchicalAttentionNetwork(HanConfig(d_model=8), 50, 4),
    "lines": lambda: SequenceAutoencoder(RnnAutoencoderConfig(d_model=8), 50),
    "vectors": lambda: VectorAutoencoder(MlpAutoencoderConfig(d_hidden=(12, 6), d_code=3), 20),
}
OUTSIDE = ("embedding.", "words.weight", "places.", "segments.", "context")
OUTSIDE += ("positions.table", "bias.table", "align.table")
"""Embeddings, tables of positions (one of them that of location-based attention), and the query of a HAN."""
ENDS = {"output.weight", "next_sentence.output.weight", "detector.output.weight", "generator.output.weight"}
ENDS |= {"encoder.0.weight", "decoder.6.weight"}
"""Output layers; of vectors, also the layer that reads them."""


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_is_hidden_or_at_an_end(name: str) -> None:
    model = MODELS[name]()
    found = hidden_matrices(model)
    shapes = {key: parameter.shape for key, parameter in model.named_parameters()}
    others = {key for key, shape in shapes.items() if len(shape) > 1} - found.keys()
    assert found and others
    assert [key for key in sorted(others) if key not in ENDS and not any(part in key for part in OUTSIDE)] == []
    assert [key for key in found if key in ENDS or any(part in key for part in OUTSIDE)] == []
    for key, rows in found.items():
        assert sum(rows) == math.prod(shapes[key][:-1]), key
        assert min(rows) > 1, key


def test_maps_of_a_fused_weight_are_separate() -> None:
    found = hidden_matrices(MODELS["transformer"]())
    assert found["encoder.layers.1.attention.projection.weight"] == (16, 16, 16)  # query, key, value
    assert found["decoder.layers.2.cross.projection.weight"] == (16,)
    assert found["decoder.memory.weight"] == (16,) * 6  # key and value of three layers
    assert found["decoder.layers.0.feed_forward.up.weight"] == (24,)
    for name, width in (("transformer, heads of their own width", 24), ("transformer, narrow heads", 12)):
        found = hidden_matrices(MODELS[name]())
        assert found["decoder.memory.weight"] == (width,) * 6
        assert found["encoder.layers.1.attention.projection.weight"] == (width,) * 3
    assert hidden_matrices(MODELS["gpt"]())["layers.0.attention.projection.weight"] == (16, 8, 8)
    cells = hidden_matrices(MODELS["rnn"]())
    assert cells["decoder.layers.0.weight_hh_l0"] == (12,) * 4  # the gates of an LSTM


def test_weights_per_head_are_a_map_per_head() -> None:
    model = MODELS["transformer, own functions"]()
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    found = hidden_matrices(model)
    heads = {name: rows for name, rows in found.items() if len(shapes[name]) == 3}
    assert {rows for name, rows in heads.items() if ".groups.0." in name} == {(4, 4)}  # two heads of width 4
    assert all(len(rows) == shapes[name][0] for name, rows in heads.items())


def test_frozen_and_thin_matrices_are_left_out() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(1, 5), nn.Linear(5, 2))
    assert hidden_matrices(model) == {"1.weight": (3,), "4.weight": (2,)}
    model[1].weight.requires_grad_(False)
    assert hidden_matrices(model) == {"4.weight": (2,)}
    assert hidden_matrices(VectorAutoencoder(MlpAutoencoderConfig(d_hidden=(), d_code=3), 20)) == {}
