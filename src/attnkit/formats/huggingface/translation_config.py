"""``config.json`` of translation models of transformers, to be read. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import RunError
from attnkit.formats.huggingface.t5 import KEYS, T5Kind, t5_config
from attnkit.models.config import DecoderStart, TransformerConfig
from attnkit.models.layer_config import Tied
from attnkit.models.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH

UNITS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
"""Activation in transformers -> name in attnkit."""
WITH_CODES = ("m2m_100", "mbart")
"""Model types with a code of the language before each text; their decoders start from EOS."""
Kind = Literal["marian", "m2m_100", "mbart", "t5", "mt5"]
TRANSLATORS: tuple[Kind, ...] = ("marian", "m2m_100", "mbart", "t5", "mt5")
"""Model types of translation models that can be imported."""
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


class _MBart(_M2m):
    """Configuration keys of mBART-50, with their defaults."""

    vocab_size: int = Field(default=50265, gt=0, le=1 << 20)
    activation: str = Field(default="gelu", alias="activation_function")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    scale_embedding: bool = False
    decoder_start_token_id: int | None = Field(default=None, ge=0, lt=1 << 20)  # type: ignore[assignment]


_KEYS: dict[str, type[_Marian]] = {"marian": _Marian, "m2m_100": _M2m, "mbart": _MBart}
_LAYOUTS: dict[str, dict[str, object]] = {
    "marian": {},
    "m2m_100": {"norm": "pre", "positions": "fairseq"},
    "mbart": {
        "norm": "pre",
        "positions": "learned",
        "position_offset": 2,
        "embedding_norm": True,
        "target_embedding_norm": True,
    },
}
"""Kind -> what all its models have in common."""
_POST = {"static_position_embeddings": True, "normalize_embedding": False, "add_final_layer_norm": False}
_FIXED: dict[str, dict[str, bool]] = {"marian": _POST | {"normalize_before": False}, "m2m_100": _POST, "mbart": {}}
"""Kind -> keys of the first files, whose other values no published model has; transformers ignores those of mBART."""


def refuse_code(tree: Mapping[str, Any], where: str) -> None:
    """Raise ``RunError`` if the model of a ``config.json`` is code of its folder."""
    if "auto_map" in tree:
        what = "the model is code of the folder (auto_map), which attnkit does not run"
        kind = str(tree.get("model_type"))[:40]
        raise RunError(what, where=where, help=f"remove auto_map if it is a {kind} of transformers")


def read_translator(tree: Mapping[str, Any], where: str) -> ForeignTranslator:
    """Convert the ``config.json`` of a translation model.

    Raises ``RunError`` if it is invalid, or has a setting that attnkit's models do not have.
    """
    refuse_code(tree, where)
    try:
        kind: Kind = next(kind for kind in TRANSLATORS if kind == tree.get("model_type"))
        if kind == "t5" or kind == "mt5":
            return _read_t5(tree, kind)
        keys = _KEYS[kind].model_validate(tree)
        sizes = keys.vocab_size, keys.decoder_vocab_size or keys.vocab_size
        _check(keys, kind, sizes)
        tied: Tied = "all" if keys.share_encoder_decoder_embeddings else "target"
        start: DecoderStart = "zero" if keys.decoder_start_token_id == keys.pad_token_id else "bos"
        start = "eos" if kind in WITH_CODES else start
        values = {name: value for name, value in keys if name in TransformerConfig.model_fields} | _LAYOUTS[kind]
        values |= {"activation": UNITS[keys.activation], "decoder_start": start}
        if values.get("positions") == "learned":
            values["max_length"] = keys.max_position_embeddings
        config = TransformerConfig(**values, tie_embeddings=tied if keys.tie_word_embeddings else "none")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "config.json"
        what = first["msg"].removeprefix("Value error, ")
        raise RunError(f"the model cannot be imported: {key}: {what}", where=where) from error
    n_beams = _beams(keys.num_beams)
    ids = keys.pad_token_id, keys.eos_token_id
    return ForeignTranslator(kind, config, sizes, *ids, keys.max_position_embeddings, n_beams)


def _read_t5(tree: Mapping[str, Any], kind: T5Kind) -> ForeignTranslator:
    """Convert the configuration of a T5; raise as ``read_translator``."""
    keys = KEYS[kind].model_validate(tree)
    sizes, ids = (keys.vocab_size, keys.vocab_size), (keys.pad_token_id, keys.eos_token_id)
    return ForeignTranslator(kind, t5_config(keys, kind), sizes, *ids, MOST_POSITIONS, _beams(keys.num_beams))


def _beams(n: int | None) -> int | None:
    return n if n is not None and 1 <= n <= 64 else None


def _check(keys: _Marian, kind: Kind, sizes: tuple[int, int]) -> None:
    """Raise ``RunError`` for the first setting that attnkit's model lacks."""
    start: int | None = keys.decoder_start_token_id
    if kind in WITH_CODES and start is not None:  # mBART without this key is trained from EOS too
        start = keys.eos_token_id
    for key, value, wanted in (
        ("scale_embedding", keys.scale_embedding, True),
        ("activation_function", keys.activation, keys.activation if keys.activation in UNITS else ", ".join(UNITS)),
        ("decoder_attention_heads", keys.decoder_attention_heads, keys.n_heads),
        ("decoder_ffn_dim", keys.decoder_ffn_dim, keys.d_ff),
        ("decoder_vocab_size", sizes[1], sizes[keys.share_encoder_decoder_embeddings - 1]),
        ("decoder_start_token_id", keys.decoder_start_token_id, start),
        *((key, getattr(keys, key), wanted) for key, wanted in _FIXED[kind].items()),
    ):
        if value != wanted:
            raise RunError(f"unsupported {key} {value} for {kind}", where=key, help=f"supported: {wanted}")
    if kind in WITH_CODES and not keys.share_encoder_decoder_embeddings:
        what = f"unsupported share_encoder_decoder_embeddings False for {kind}"
        raise RunError(what, where="share_encoder_decoder_embeddings", help="supported: True")
    if keys.share_encoder_decoder_embeddings and not keys.tie_word_embeddings:
        what = "unsupported tie_word_embeddings False with shared embeddings of encoder and decoder"
        raise RunError(what, where="tie_word_embeddings", help="supported: both true, or both false")
