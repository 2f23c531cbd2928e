"""``config.json`` of BERT, RoFormer, RoBERTa, GPT-2 and Marian, both ways, and what they do not have. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import RunError
from attnkit.models.config import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH, ModelConfig, TransformerConfig
from attnkit.models.language_config import BertConfig, GptConfig, LanguageConfig, UnitName
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Tree = dict[str, Any]
ACTIVATIONS: dict[str, str] = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
"""Our name -> theirs."""
UNITS: dict[str, UnitName] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their name -> ours."""
Kind = Literal["bert", "roberta", "roformer", "gpt2"]
"""The types of models that can be imported."""


def refusal(key: str, what: str, help: str) -> RunError:
    """Return the error for what the other side has nothing for."""
    return RunError(f"transformers has {what}", where=key, help=help)


def refuse_language(config: LanguageConfig) -> None:
    """Raise ``RunError``, naming the key, where a model is none that transformers has as BERT or GPT-2."""
    bert = isinstance(config, BertConfig)
    name, norm = ("BERT", "post") if bert else ("GPT-2", "pre")
    if config.norm != norm:
        raise refusal("model.norm", f"no {name} with norms of the kind '{config.norm}'", f"it takes norm {norm}")
    kinds = ("learned", "sinusoidal", *(["rotary"] if bert else []))
    if config.positions not in kinds:
        takes = f"it takes {', '.join(kinds[:-1])} and {kinds[-1]} positions"
        raise refusal("model.positions", f"no {name} with {config.positions} positions", takes)
    if config.glu:
        raise refusal("model.glu", f"no {name} with gated units", "it takes glu false")
    if not config.plain_attention:
        where, takes = "model.alignment, model.distribution", "it takes alignment scaled_dot with distribution softmax"
        raise refusal(where, f"no {name} with another attention than scaled dot products with softmax", takes)


def refuse_translation(config: ModelConfig) -> None:
    """Raise ``RunError``, naming the key, where a translation model is none that transformers has as Marian."""
    if not isinstance(config, TransformerConfig):
        raise refusal("model.kind", f"no translation model of the kind '{config.kind}'", "it takes kind transformer")
    if config.norm != "post":
        raise refusal("model.norm", "no Marian with norms before the sublayers", "it takes norm post")
    if config.positions != "sinusoidal":
        takes = "it takes sinusoidal positions"
        raise refusal("model.positions", f"no Marian with {config.positions} positions", takes)
    if not config.plain_attention:
        where, takes = "model.alignment, model.distribution", "it takes alignment scaled_dot with distribution softmax"
        raise refusal(where, "no Marian with another attention than scaled dot products with softmax", takes)
    if config.pattern != "none":
        raise refusal("model.pattern", "no Marian with sparse patterns of attention", "it takes pattern none")
    if config.embedding_norm:
        raise refusal("model.embedding_norm", "no Marian with norms on embeddings", "it takes embedding_norm false")
    if config.norm_eps != 1e-5:
        raise refusal("model.norm_eps", f"no Marian with norm_eps {config.norm_eps}", "it takes norm_eps 1e-5")


def bert_json(config: BertConfig, kind: str, vocab_size: int, architecture: str, labels: Sequence[str] = ()) -> Tree:
    """Return the configuration of a model of the kind bert or roformer; labels in the order of the outputs."""
    return {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.n_segments,
        "layer_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "pad_token_id": PAD_ID,
        **({"embedding_size": config.d_model, "rotary_value": False} if kind == "roformer" else {}),
        **_labelled(labels),
    }


def gpt_json(config: GptConfig, vocab_size: int) -> Tree:
    """Return the configuration of a GPT-2."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocab_size,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.max_length,
        "activation_function": ACTIVATIONS[config.activation],
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
    }


def marian_json(config: TransformerConfig, vocab_sizes: tuple[int, int], longest: int) -> Tree:
    """Return the configuration of a Marian that reads and writes at most ``longest`` tokens."""
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": vocab_sizes[0],
        "decoder_vocab_size": vocab_sizes[1],
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": longest,
        **_generation(),
    }


def generation_json(longest: int | None = None) -> Tree:
    """Return ``generation_config.json``: what begins and ends a text, and the ids that nothing may be made of.

    Args:
        longest: most tokens of a translation; None for a language model.
    """
    own = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    own = own if longest is None else {**_generation(), "max_length": longest}
    return {**own, "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID]}


def _generation() -> Tree:
    return {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }


def _labelled(labels: Sequence[str]) -> Tree:
    if not labels:
        return {}
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


class _Bert(BaseModel, extra="ignore", strict=True):
    """What we read of BERT's, RoBERTa's and RoFormer's, with the defaults that they have there."""

    vocab_size: int = Field(gt=0, le=1 << 20)
    hidden_size: int = Field(default=768, gt=0, le=MOST_WIDTH)
    num_hidden_layers: int = Field(default=12, gt=0, le=MOST_LAYERS)
    num_attention_heads: int = Field(default=12, gt=0, le=MOST_WIDTH)
    intermediate_size: int = Field(default=3072, gt=0, le=MOST_WIDTH)
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = Field(default=0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float = Field(default=0.1, ge=0, lt=1)
    max_position_embeddings: int = Field(default=512, gt=1, le=MOST_POSITIONS)
    type_vocab_size: int = Field(default=2, ge=1, le=16)
    layer_norm_eps: float = Field(default=1e-12, gt=0, lt=1)
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True
    is_decoder: bool = False
    position_embedding_type: str = "absolute"
    rotary_value: bool = False
    embedding_size: int | None = None


class _Gpt(BaseModel, extra="ignore", strict=True):
    """What we read of GPT-2's, with the defaults that they have there."""

    vocab_size: int = Field(gt=0, le=1 << 20)
    n_positions: int = Field(default=1024, gt=1, le=MOST_POSITIONS)
    n_embd: int = Field(default=768, gt=0, le=MOST_WIDTH)
    n_layer: int = Field(default=12, gt=0, le=MOST_LAYERS)
    n_head: int = Field(default=12, gt=0, le=MOST_WIDTH)
    n_inner: int | None = Field(default=None, gt=0, le=MOST_WIDTH)
    activation_function: str = "gelu_new"
    resid_pdrop: float = Field(default=0.1, ge=0, lt=1)
    attn_pdrop: float = Field(default=0.1, ge=0, lt=1)
    layer_norm_epsilon: float = Field(default=1e-5, gt=0, lt=1)
    tie_word_embeddings: bool = True
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False


@dataclass(frozen=True)
class ForeignModel:
    """What a ``config.json`` says."""

    kind: Kind
    config: BertConfig | GptConfig
    vocab_size: int
    skipped: int = 0
    """Rows of the position table before the first position."""


def read(tree: Any, where: str) -> ForeignModel:
    """Return what a ``config.json`` describes.

    Raises:
        RunError: another architecture, a size that makes no sense, or something that we have no counterpart for.
    """
    kind = tree.get("model_type") if isinstance(tree, Mapping) else None
    if kind not in ("bert", "roberta", "roformer", "gpt2"):
        what = "this names no model_type" if kind is None else f"attnkit has no model of the type '{str(kind)[:40]}'"
        raise RunError(what, where=where, help="it imports the types bert, roberta, roformer and gpt2")
    try:
        return _gpt(_Gpt.model_validate(tree)) if kind == "gpt2" else _bert(_Bert.model_validate(tree), kind)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "config.json"
        what = first["msg"].removeprefix("Value error, ")
        raise RunError(f"the model cannot be imported: {key}: {what}", where=where) from error
    except KeyError as error:
        help = f"it takes {', '.join(UNITS)}"
        raise RunError(f"attnkit has no activation {error}", where=where, help=help) from error


def _bert(found: _Bert, kind: Kind) -> ForeignModel:
    for key, value, wanted in (
        ("is_decoder", found.is_decoder, False),
        ("position_embedding_type", found.position_embedding_type, "absolute"),
        ("rotary_value", found.rotary_value, False),
        ("embedding_size", found.embedding_size or found.hidden_size, found.hidden_size),
    ):
        if value != wanted:
            raise RunError(f"attnkit has no {kind} with {key} {value}", where=key, help=f"it takes {wanted}")
    if kind == "roberta" and found.hidden_act != "gelu":  # its head has gelu whatever the layers have
        what = f"attnkit has no roberta with hidden_act {found.hidden_act}"
        raise RunError(what, where="hidden_act", help="it takes gelu")
    skipped = 0 if kind != "roberta" else (1 if found.pad_token_id is None else found.pad_token_id) + 1
    config = BertConfig(
        d_model=found.hidden_size,
        n_heads=found.num_attention_heads,
        n_layers=found.num_hidden_layers,
        d_ff=found.intermediate_size,
        norm_eps=found.layer_norm_eps,
        activation=UNITS[found.hidden_act],
        dropout=float(found.hidden_dropout_prob),
        attention_dropout=float(found.attention_probs_dropout_prob),
        tie_embeddings=found.tie_word_embeddings,
        positions="rotary" if kind == "roformer" else "learned",
        max_length=found.max_position_embeddings - skipped,
        n_segments=found.type_vocab_size,
    )
    return ForeignModel(kind, config, found.vocab_size, skipped)


def _gpt(found: _Gpt) -> ForeignModel:
    config = GptConfig(
        d_model=found.n_embd,
        n_heads=found.n_head,
        n_layers=found.n_layer,
        d_ff=found.n_inner or 4 * found.n_embd,
        norm_eps=found.layer_norm_epsilon,
        activation=UNITS[found.activation_function],
        dropout=float(found.resid_pdrop),
        attention_dropout=float(found.attn_pdrop),
        tie_embeddings=found.tie_word_embeddings,
        max_length=found.n_positions,
    )
    return ForeignModel("gpt2", config, found.vocab_size)
