"""``config.json`` of T5 and mT5 of transformers. Torch-free.

T5 v1.1 and Flan-T5 are of model type t5 too; they differ in settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from attnkit.errors import RunError
from attnkit.models.config import TransformerConfig
from attnkit.models.limits import MOST_HEAD_WIDTH, MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH

T5Kind = Literal["t5", "mt5"]
T5_KINDS: tuple[T5Kind, ...] = ("t5", "mt5")
Tree = dict[str, Any]
_UNITS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
"""Activation in transformers -> name in attnkit."""
LAYOUT: Tree = {
    "norm": "pre",
    "normalization": "rms",
    "positions": "relative",
    "alignment": "dot",
    "distribution": "softmax",
    "bias": False,
    "scaled_input": False,
    "output_bias": False,
    "decoder_start": "bos",
    "embedding_norm": False,
    "target_embedding_norm": False,
    "pattern": "none",
}
"""What all T5 have in common. They start from padding, whose row is that of our BOS."""


class T5Keys(BaseModel, extra="ignore", strict=True):
    """Configuration keys of T5, with attnkit's names where there is one."""

    vocab_size: int = Field(default=32128, gt=0, le=1 << 20)
    d_model: int = Field(default=512, gt=0, le=MOST_WIDTH)
    head_width: int = Field(default=64, gt=0, le=MOST_HEAD_WIDTH, alias="d_kv")
    d_ff: int = Field(default=2048, gt=0, le=MOST_WIDTH)
    encoder_layers: int = Field(default=6, gt=0, le=MOST_LAYERS, alias="num_layers")
    decoder_layers: int | None = Field(default=None, gt=0, le=MOST_LAYERS, alias="num_decoder_layers")
    n_heads: int = Field(default=8, gt=0, le=MOST_WIDTH, alias="num_heads")
    relative_buckets: int = Field(default=32, ge=4, le=4096, alias="relative_attention_num_buckets")
    relative_distance: int = Field(default=128, gt=1, le=MOST_POSITIONS, alias="relative_attention_max_distance")
    dropout: float = Field(default=0.1, ge=0, lt=1, alias="dropout_rate")
    norm_eps: float = Field(default=1e-6, gt=0, lt=1, alias="layer_norm_epsilon")
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: int = Field(default=0, ge=0, lt=1 << 20)
    eos_token_id: int = Field(default=1, ge=0, lt=1 << 20)
    decoder_start_token_id: int | None = Field(default=None, ge=0, lt=1 << 20)
    num_beams: int | None = None


class MT5Keys(T5Keys):
    """Configuration keys of mT5, with their defaults."""

    vocab_size: int = Field(default=250112, gt=0, le=1 << 20)
    d_ff: int = Field(default=1024, gt=0, le=MOST_WIDTH)
    encoder_layers: int = Field(default=8, gt=0, le=MOST_LAYERS, alias="num_layers")
    n_heads: int = Field(default=6, gt=0, le=MOST_WIDTH, alias="num_heads")
    feed_forward_proj: str = "gated-gelu"


KEYS: dict[T5Kind, type[T5Keys]] = {"t5": T5Keys, "mt5": MT5Keys}


def t5_config(keys: T5Keys, kind: T5Kind) -> TransformerConfig:
    """Return the Transformer of a T5; raise ``RunError`` for a setting that it lacks.

    Embeddings are taken to be tied as the configuration says, which the weights may show to be wrong.
    """
    gate, _, unit = keys.feed_forward_proj.rpartition("-")
    named = {"gelu": "gelu_new"}.get(unit, unit) if gate else unit  # gated-gelu is the approximation by tanh
    given = named if keys.dense_act_fn is None else keys.dense_act_fn
    start = keys.pad_token_id if keys.decoder_start_token_id is None else keys.decoder_start_token_id
    for key, value, is_taken, wanted in (
        ("feed_forward_proj", keys.feed_forward_proj, gate in ("", "gated") and named in _UNITS, "relu, gated-gelu"),
        ("dense_act_fn", given, given == named, named),
        ("decoder_start_token_id", start, start == keys.pad_token_id, keys.pad_token_id),
    ):
        if not is_taken:
            raise RunError(f"unsupported {key} {value} for {kind}", where=key, help=f"supported: {wanted}")
    scaled = keys.tie_word_embeddings if keys.scale_decoder_outputs is None else keys.scale_decoder_outputs
    sizes = ("d_model", "head_width", "d_ff", "encoder_layers", "n_heads", "relative_buckets", "relative_distance")
    rates = ("dropout", "attention_dropout", "activation_dropout", "stack_dropout")
    values: Tree = {name: getattr(keys, name) for name in (*sizes, "norm_eps")}
    values |= LAYOUT | dict.fromkeys(rates, keys.dropout) | {"activation": _UNITS[named], "glu": gate == "gated"}
    values["decoder_layers"] = keys.decoder_layers or keys.encoder_layers
    values["scaled_output"] = scaled and kind == "t5"  # transformers never scales those of mT5
    return TransformerConfig(**values, tie_embeddings="all" if keys.tie_word_embeddings else "inputs")


def is_t5(config: Any) -> bool:
    """Return whether a model has the layout of T5 or mT5."""
    if not isinstance(config, TransformerConfig) or config.tie_embeddings not in ("inputs", "all"):
        return False
    fixed = all(getattr(config, key) == value for key, value in LAYOUT.items() if key != "alignment")
    return fixed and config.score_scale == 1.0 and _projection(config) is not None


def _projection(config: TransformerConfig) -> str | None:
    """Return the name of the feed-forward sublayer in transformers, if it has one."""
    named = {ours: theirs for theirs, ours in _UNITS.items()}[config.activation]
    if not config.glu:
        return named
    return {"gelu_new": "gated-gelu", "gelu": None}.get(named, f"gated-{named}")


def t5_json(config: TransformerConfig, kind: str, vocab_size: int, ids: Mapping[str, int | None]) -> Tree:
    """Return the configuration of a T5, or of an mT5."""
    names = {field.alias or name: name for name, field in T5Keys.model_fields.items()}
    own = {key: getattr(config, name) for key, name in names.items() if name in TransformerConfig.model_fields}
    scaled = {"scale_decoder_outputs": config.scaled_output} if kind == "t5" else {}
    return {
        "architectures": ["T5ForConditionalGeneration" if kind == "t5" else "MT5ForConditionalGeneration"],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
        **own,
        "d_kv": config.d_head,
        "feed_forward_proj": _projection(config),
        # The first readers of this file scale the output if embeddings are tied.
        "tie_word_embeddings": config.scaled_output if kind == "t5" else config.tie_embeddings == "all",
        **scaled,
        **ids,
    }
