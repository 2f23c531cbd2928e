"""What a model is taken to hold at least, before it is built for a file of weights."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from attnkit.models.attention.config import ALIGNMENT_NAMES, AttentionOptions
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.translation import build_model

OPTIONS = AttentionOptions(max_source=50, deep_layers=6)


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_no_model_has_fewer_weights_than_it_is_taken_to_have(kind: str) -> None:
    """And none many more: below half of a file's size, what is built takes no more memory than what is read."""
    small: dict[str, Any] = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3}
    configs: list[Any] = [
        TransformerConfig(**small, d_ff=48, positions=positions, tie_embeddings=tied)
        for positions, tied in itertools.product(("sinusoidal", "learned"), ("none", "target", "all"))
    ]
    if kind == "rnn":
        starts = (("bridge", True, "additive"), ("last", False, "none"), ("bridge", False, "general"))
        cells = ("rnn", "gru", "lstm")
        configs = [
            RnnConfig(
                **small,
                d_hidden=40,
                cell=cell,
                decoder_init=start,
                bidirectional=both,
                alignment=alignment,
                tie_embeddings=tied,
            )
            for (start, both, alignment), cell, tied in itertools.product(starts, cells, ("none", "all"))
        ]
        configs += [
            RnnConfig(
                **small, d_hidden=40, alignment=name, attention_options=OPTIONS, feed_context=joined, decoder_init=start
            )
            for name, joined, start in itertools.product(("none", *ALIGNMENT_NAMES), (True, False), ("bridge", "last"))
        ]
    else:
        configs += [TransformerConfig(**small, alignment=name, attention_options=OPTIONS) for name in ALIGNMENT_NAMES]
        t5: dict[str, Any] = {"bias": False, "glu": True, "normalization": "rms", "head_width": 24, "d_ff": 48}
        configs += [TransformerConfig(**small, **t5, tie_embeddings=tied) for tied in ("none", "inputs", "all")]
        configs.append(TransformerConfig(**small, alignment=("deep", "dot", "location", "concat")))
    for config in configs:
        sizes = (50, 50) if config.tie_embeddings in ("inputs", "all") else (50, 70)
        model: Any = build_model(config, *sizes)
        n = sum(parameter.numel() for parameter in model.parameters())
        assert n / 2 <= config.min_parameters(*sizes) <= n, config
