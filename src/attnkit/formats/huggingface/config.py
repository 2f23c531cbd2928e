"""``config.json`` of transformers. Torch-free.

Translation models are only written here: to read them, see ``translation_config``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import RunError
from attnkit.formats.huggingface.encoder_config import BertKeys, DistilBertKeys, ElectraKeys, RoFormerKeys, described
from attnkit.formats.huggingface.llama import LlamaKeys, MistralKeys
from attnkit.formats.huggingface.modernbert import ModernBertKeys, modernbert_values, rope_parameters
from attnkit.formats.huggingface.translation_config import TRANSLATORS, refuse_code
from attnkit.models.config import TransformerConfig
from attnkit.models.language_config import BertConfig, GptConfig, UnitName
from attnkit.models.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Tree = dict[str, Any]
ACTIVATIONS: dict[str, str] = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
"""Name in attnkit -> name in transformers."""
UNITS: dict[str, UnitName] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Name in transformers -> name in attnkit."""
Kind = Literal[
    "bert", "roberta", "xlm-roberta", "roformer", "distilbert", "electra", "modernbert", "gpt2", "llama", "mistral"
]
"""Model types that can be imported, beside translation models."""
SUPPORTED: tuple[Kind, ...] = get_args(Kind)
ROBERTAS = ("roberta", "xlm-roberta")  #: with two separators, and positions counted from the id of padding
CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "roformer": "RoFormer",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
}
"""Model type of an encoder -> start of its class names."""
_SPECIALS = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
_GENERATION = {**_SPECIALS, "decoder_start_token_id": BOS_ID, "forced_eos_token_id": None}


# Field names are attnkit's. Aliases, defaults, limits and order follow config.json.
class _Gpt(BaseModel, extra="ignore", strict=True):
    """Configuration keys of GPT-2."""

    vocab_size: int = Field(gt=0, le=1 << 20)
    d_model: int = Field(default=768, gt=0, le=MOST_WIDTH, alias="n_embd")
    n_layers: int = Field(default=12, gt=0, le=MOST_LAYERS, alias="n_layer")
    n_heads: int = Field(default=12, gt=0, le=MOST_WIDTH, alias="n_head")
    d_ff: int | None = Field(default=None, gt=0, le=MOST_WIDTH, alias="n_inner")
    max_length: int = Field(default=1024, gt=1, le=MOST_POSITIONS, alias="n_positions")
    activation: str = Field(default="gelu_new", alias="activation_function")
    embd_pdrop: Any = None  # written, not read: attnkit has one rate for embeddings and sublayers
    dropout: float = Field(default=0.1, ge=0, lt=1, alias="resid_pdrop")
    attention_dropout: float = Field(default=0.1, ge=0, lt=1, alias="attn_pdrop")
    norm_eps: float = Field(default=1e-5, gt=0, lt=1, alias="layer_norm_epsilon")
    tie_embeddings: bool = Field(default=True, alias="tie_word_embeddings")
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False

    def others(self) -> Tree:
        """Return the settings that follow from other keys."""
        return {"d_ff": self.d_ff or 4 * self.d_model}


Keys = BertKeys | DistilBertKeys | ModernBertKeys | _Gpt | LlamaKeys
_KEYS: dict[str, type[Keys]] = {
    **dict.fromkeys(("bert", *ROBERTAS), BertKeys),
    "roformer": RoFormerKeys,
    "distilbert": DistilBertKeys,
    "electra": ElectraKeys,
    "modernbert": ModernBertKeys,
    "gpt2": _Gpt,
    "llama": LlamaKeys,
    "mistral": MistralKeys,
}


def _written(keys: type[Keys], config: BertConfig | GptConfig, others: Tree) -> Tree:
    """Return ``config`` under the keys of transformers, with the values in ``others``."""
    values = {**config.model_dump(), "activation": ACTIVATIONS[config.activation], **others}
    return {field.alias or name: values[name] for name, field in keys.model_fields.items() if name in values}


def bert_json(config: BertConfig, kind: str, vocab_size: int, architecture: str, labels: Sequence[str] = ()) -> Tree:
    """Return the configuration of an encoder; ``labels`` in output order."""
    others: Tree = {"vocab_size": vocab_size, "pad_token_id": PAD_ID, **described(config, kind)}
    keys = _KEYS[kind]
    if kind == "modernbert":
        others |= modernbert_values(config, ACTIVATIONS[config.activation])
    tree = {"architectures": [architecture], "model_type": kind, **_written(keys, config, others)}
    if kind == "modernbert":
        tree["rope_parameters"] = rope_parameters(config)
    if labels:
        tree["id2label"] = {str(i): label for i, label in enumerate(labels)}
        tree["label2id"] = {label: i for i, label in enumerate(labels)}
    return tree


def gpt_json(config: GptConfig, vocab_size: int) -> Tree:
    """Return the configuration of a GPT-2."""
    values = _written(_Gpt, config, {"vocab_size": vocab_size, "embd_pdrop": config.dropout})
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **values, **_SPECIALS}


def marian_json(
    config: TransformerConfig, vocab_sizes: tuple[int, int], longest: int, ids: Mapping[str, int | None] | None = None
) -> Tree:
    """Return the configuration of a Marian with at most ``longest`` tokens per text.

    ``ids`` are those of the special tokens by key; None: attnkit's.
    """
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
        **(generation_ids(config) if ids is None else ids),
    }


def coded_json(
    config: TransformerConfig, kind: str, vocab_size: int, longest: int, ids: Mapping[str, int | None]
) -> Tree:
    """Return the configuration of an M2M100, NLLB-200 or mBART-50."""
    architecture = {"m2m_100": "M2M100", "mbart": "MBart"}[kind] + "ForConditionalGeneration"
    tree = marian_json(config, (vocab_size, vocab_size), longest, ids)
    for key in ("decoder_vocab_size", "share_encoder_decoder_embeddings"):
        del tree[key]
    return {**tree, "architectures": [architecture], "model_type": kind}


def generation_ids(config: TransformerConfig) -> dict[str, int | None]:
    """Return the ids of attnkit's special tokens by key, of a translation model."""
    return _GENERATION | ({"decoder_start_token_id": EOS_ID} if config.decoder_start == "eos" else {})


def generation_json(longest: int | None = None, config: TransformerConfig | None = None) -> Tree:
    """Return ``generation_config.json``; a translator's has a maximum length."""
    own = _SPECIALS if config is None else {**generation_ids(config), "max_length": longest}
    return {**own, "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID]}


@dataclass(frozen=True)
class ForeignModel:
    """Model described by a ``config.json``."""

    kind: Kind
    config: BertConfig | GptConfig
    vocab_size: int
    skipped: int = 0  #: unused rows at the start of the position table


@contextmanager
def naming_types() -> Iterator[None]:
    """Add the model types that are taken to the help of a refused folder, once."""
    try:
        yield
    except RunError as error:
        types = ", ".join((*SUPPORTED, *TRANSLATORS))
        if types not in (error.help or ""):
            error.help = f"model types: {types}" if error.help is None else f"{error.help}; model types: {types}"
        raise


def read(tree: Any, where: str) -> ForeignModel:
    """Convert a ``config.json`` tree; raise ``RunError`` if invalid or unsupported."""
    kind = tree.get("model_type") if isinstance(tree, Mapping) else None
    if kind not in SUPPORTED:
        what = "model_type is missing" if kind is None else f"unsupported model_type '{str(kind)[:40]}'"
        raise RunError(what, where=where, help=f"supported: {', '.join((*SUPPORTED, *TRANSLATORS))}")
    refuse_code(tree, where)
    try:
        keys = _KEYS[kind].model_validate(tree)
        skipped = _check_bert(keys, kind) if isinstance(keys, BertKeys) and kind != "electra" else 0
        ours = GptConfig if isinstance(keys, _Gpt | LlamaKeys) else BertConfig
        values = {name: value for name, value in keys if name in ours.model_fields}
        values |= {"activation": UNITS[keys.activation], "max_length": keys.max_length - skipped, **keys.others()}
        return ForeignModel(kind, ours(**values), keys.vocab_size, skipped)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "config.json"
        what = first["msg"].removeprefix("Value error, ")
        raise RunError(f"the model cannot be imported: {key}: {what}", where=where) from error
    except KeyError as error:
        help = f"supported: {', '.join(UNITS)}"
        raise RunError(f"unsupported activation {error}", where=where, help=help) from error


def _check_bert(keys: BertKeys, kind: Kind) -> int:
    """Check for unsupported settings; return the number of unused position rows."""
    for key, value, wanted in (
        ("is_decoder", keys.is_decoder, False),
        ("position_embedding_type", keys.position_embedding_type, "absolute"),
        ("rotary_value", keys.rotary_value, False),
        ("embedding_size", keys.embedding_size or keys.d_model, keys.d_model),
        # RoBERTa's head uses gelu whatever the activation of the layers.
        ("hidden_act", keys.activation, "gelu" if kind in ROBERTAS else keys.activation),
    ):
        if value != wanted:
            raise RunError(f"unsupported {key} {value} for {kind}", where=key, help=f"supported: {wanted}")
    return first_position(kind, keys.pad_token_id)


def first_position(kind: str, pad_token_id: int | None) -> int:
    """Return the number of unused rows at the start of the position table."""
    if kind not in ROBERTAS:
        return 0
    return (1 if pad_token_id is None else pad_token_id) + 1
