"""``config.json`` of translation models of transformers, to be read. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import RunError
from attnkit.models.config import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH, DecoderStart, Tied, TransformerConfig

TRANSLATORS = ("marian", "m2m_100")  #: model types of translation models that can be imported
UNITS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
"""Activation in transformers -> name in attnkit."""
Kind = Literal["marian", "m2m_100"]
_TOKEN = Field(ge=0, lt=1 << 20)


@dataclass(frozen=True)
class ForeignTranslator:
    """Translation model described by a ``config.json``."""

    kind: Kind
    config: TransformerConfig
    vocab_sizes: tuple[int, int]  #: rows of the embeddings of source and target
    pad_id: int
    eos_id: int
    max_positions: int  #: longest text in tokens, with EOS
    n_beams: int | None  #: hypotheses of the beam search, if the model names a number


# Field names are attnkit's where there is one. Aliases, defaults and order follow config.json.
class _Marian(BaseModel, extra="ignore", strict=True):
    """Configuration keys of Marian."""

    vocab_size: int = Field(default=58101, gt=0, le=1 << 20)
    decoder_vocab_size: int | None = Field(default=None, gt=0, le=1 << 20)
    d_model: int = Field(default=1024, gt=0, le=MOST_WIDTH)
    encoder_layers: int = Field(default=12, gt=0, le=MOST_LAYERS)
    decoder_layers: int = Field(default=12, gt=0, le=MOST_LAYERS)
    n_heads: int = Field(default=16, gt=0, le=MOST_WIDTH, alias="encoder_attention_heads")
    decoder_attention_heads: int = 16
    d_ff: int = Field(default=4096, gt=0, le=MOST_WIDTH, alias="encoder_ffn_dim")
    decoder_ffn_dim: int = 4096
    activation: str = Field(default="gelu", alias="activation_function")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    max_position_embeddings: int = Field(default=1024, gt=1, le=MOST_POSITIONS)
    pad_token_id: int = _TOKEN
    eos_token_id: int = Field(default=0, ge=0, lt=1 << 20)
    decoder_start_token_id: int = _TOKEN
    num_beams: int | None = None
    # Keys of the first files, whose other values no published model has.
    static_position_embeddings: bool = True
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False
    add_bias_logits: bool = False


class _M2m(_Marian):
    """Configuration keys of M2M100 and NLLB-200, with their defaults."""

    vocab_size: int = Field(default=128112, gt=0, le=1 << 20)
    activation: str = Field(default="relu", alias="activation_function")
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    scale_embedding: bool = True
    pad_token_id: int = Field(default=1, ge=0, lt=1 << 20)
    eos_token_id: int = Field(default=2, ge=0, lt=1 << 20)
    decoder_start_token_id: int = Field(default=2, ge=0, lt=1 << 20)


def read_translator(tree: Mapping[str, Any], where: str) -> ForeignTranslator:
    """Convert the ``config.json`` of a translation model.

    Raises ``RunError`` if it is invalid, or has a setting that attnkit's models do not have.
    """
    try:
        kind: Kind = "m2m_100" if tree.get("model_type") == "m2m_100" else "marian"
        keys = (_M2m if kind == "m2m_100" else _Marian).model_validate(tree)
        sizes = keys.vocab_size, keys.decoder_vocab_size or keys.vocab_size
        _check(keys, kind, sizes)
        tied: Tied = "all" if keys.share_encoder_decoder_embeddings else "target"
        start: DecoderStart = "zero" if keys.decoder_start_token_id == keys.pad_token_id else "bos"
        values = {name: value for name, value in keys if name in TransformerConfig.model_fields}
        if kind == "m2m_100":
            start = "eos"
            values |= {"norm": "pre", "positions": "fairseq"}
        values |= {"activation": UNITS[keys.activation], "decoder_start": start}
        config = TransformerConfig(**values, tie_embeddings=tied if keys.tie_word_embeddings else "none")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "config.json"
        what = first["msg"].removeprefix("Value error, ")
        raise RunError(f"the model cannot be imported: {key}: {what}", where=where) from error
    n_beams = keys.num_beams if keys.num_beams is not None and 1 <= keys.num_beams <= 64 else None
    ids = keys.pad_token_id, keys.eos_token_id
    return ForeignTranslator(kind, config, sizes, *ids, keys.max_position_embeddings, n_beams)


def _check(keys: _Marian, kind: Kind, sizes: tuple[int, int]) -> None:
    """Raise ``RunError`` for the first setting that attnkit's model lacks."""
    for key, value, wanted in (
        ("scale_embedding", keys.scale_embedding, True),
        ("activation_function", keys.activation, keys.activation if keys.activation in UNITS else ", ".join(UNITS)),
        ("decoder_attention_heads", keys.decoder_attention_heads, keys.n_heads),
        ("decoder_ffn_dim", keys.decoder_ffn_dim, keys.d_ff),
        ("decoder_vocab_size", sizes[1], sizes[keys.share_encoder_decoder_embeddings - 1]),
        ("static_position_embeddings", keys.static_position_embeddings, True),
        ("normalize_before", keys.normalize_before, keys.normalize_before if kind == "m2m_100" else False),
        ("decoder_start_token_id", keys.decoder_start_token_id, _start(keys, kind)),
        ("normalize_embedding", keys.normalize_embedding, False),
        ("add_final_layer_norm", keys.add_final_layer_norm, False),
    ):
        if value != wanted:
            raise RunError(f"unsupported {key} {value} for {kind}", where=key, help=f"supported: {wanted}")
    if kind == "m2m_100" and not keys.share_encoder_decoder_embeddings:
        what = "unsupported share_encoder_decoder_embeddings False for m2m_100"
        raise RunError(what, where="share_encoder_decoder_embeddings", help="supported: True")
    if keys.share_encoder_decoder_embeddings and not keys.tie_word_embeddings:
        what = "unsupported tie_word_embeddings False with shared embeddings of encoder and decoder"
        raise RunError(what, where="tie_word_embeddings", help="supported: both true, or both false")


def _start(keys: _Marian, kind: Kind) -> int:
    """Return the first token of the decoder that attnkit has for a kind of model."""
    return keys.eos_token_id if kind == "m2m_100" else keys.decoder_start_token_id
