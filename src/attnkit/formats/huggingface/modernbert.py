"""Configuration and tensor names of ModernBERT in transformers. Torch-free.

A ModernBERT (Warner et al. 2024) is a pre-norm BERT with rotary positions of two bases, global and local layers, gated
units and few biases.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.models.language_config import BertConfig
from attnkit.models.layer_config import ROPE_BASE
from attnkit.models.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH

Tree = dict[str, Any]
GLOBAL_BASE, GLOBAL, LOCAL = 160000.0, "full_attention", "sliding_attention"
_BASES = {GLOBAL: ("global_rope_theta", GLOBAL_BASE), LOCAL: ("local_rope_theta", ROPE_BASE)}
"""Type of layer -> older key of its base, and the default."""


class ModernBertKeys(BaseModel, extra="ignore", strict=True):
    """Configuration keys of ModernBERT; defaults are those of transformers."""

    vocab_size: int = Field(default=50368, gt=0, le=1 << 20)
    d_model: int = Field(default=768, gt=0, le=MOST_WIDTH, alias="hidden_size")
    d_ff: int = Field(default=1152, gt=0, le=MOST_WIDTH, alias="intermediate_size")
    n_layers: int = Field(default=22, gt=0, le=MOST_LAYERS, alias="num_hidden_layers")
    n_heads: int = Field(default=12, gt=0, le=MOST_WIDTH, alias="num_attention_heads")
    activation: str = Field(default="gelu", alias="hidden_activation")
    max_length: int = Field(default=8192, gt=1, le=MOST_POSITIONS, alias="max_position_embeddings")
    norm_eps: float = Field(default=1e-5, gt=0, lt=1)
    norm_bias: bool = False
    bias: bool = Field(default=False, alias="attention_bias")
    mlp_bias: bool = False
    head_bias: bool = Field(default=False, alias="classifier_bias")
    decoder_bias: Literal[True] = True
    # Layers.
    local_window: int = Field(default=128, ge=2, le=MOST_POSITIONS, alias="local_attention")
    global_every: int = Field(default=3, gt=0, le=MOST_LAYERS, alias="global_attn_every_n_layers")
    layer_types: list[str] | None = Field(default=None, max_length=MOST_LAYERS)
    # In transformers 5, rope_parameters replaces the next two.
    rope_base: float = Field(default=GLOBAL_BASE, gt=1, le=1e9, alias="global_rope_theta")
    local_rope_base: float = Field(default=ROPE_BASE, gt=1, le=1e9, alias="local_rope_theta")
    # Dropout: attnkit has one rate for embeddings and sublayers.
    dropout: float = Field(default=0.0, ge=0, lt=1, alias="embedding_dropout")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation_dropout: float = Field(default=0.0, ge=0, lt=1, alias="mlp_dropout")
    # Heads.
    classifier_activation: str = "gelu"
    classifier_pooling: Literal["cls", "mean"] = "cls"
    tie_embeddings: bool = Field(default=True, alias="tie_word_embeddings")
    pad_token_id: int | None = None
    head_dim: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, tree: Any) -> Any:
        """Write ``rope_parameters`` and ``layer_types`` under the older names."""
        if not isinstance(tree, Mapping):
            return tree
        given, changed = tree.get("rope_parameters"), dict(tree)
        rope = {} if given is None else given
        if not isinstance(rope, Mapping) or not all(isinstance(rope[key] or {}, Mapping) for key in rope):
            raise ValueError("rope_parameters is not a mapping of mappings")
        if rope.keys() - _BASES:
            raise ValueError(f"rope_parameters must have {GLOBAL} and {LOCAL} only")
        steps = [(tree.get("rope_scaling"), set[str]()), *((step, {"rope_theta"}) for step in rope.values())]
        for step, others in [(step, others) for step, others in steps if isinstance(step, Mapping)]:
            kind = step.get("rope_type", step.get("type", "default"))
            if kind != "default" or step.keys() - {"rope_type", "type"} - others:
                raise ValueError(f"positions are scaled (rope_type '{str(kind)[:40]}'); supported: default")
        for name, (key, default) in _BASES.items():
            changed[key] = (rope.get(name) or {}).get("rope_theta", tree.get(key, default))
        types, every = tree.get("layer_types"), tree.get("global_attn_every_n_layers", 3)
        if isinstance(types, list) and (type(every) is not int or every < 1 or types != layer_types(len(types), every)):
            # The step is the distance of the first two global layers.
            changed["global_attn_every_n_layers"] = types.index(GLOBAL, 1) if GLOBAL in types[1:] else len(types)
        return changed

    @model_validator(mode="after")
    def _is_supported(self) -> "ModernBertKeys":
        if self.layer_types is not None and self.layer_types != layer_types(self.n_layers, self.global_every):
            what = f"layer_types must be {GLOBAL} every n-th layer from the first on, else {LOCAL}"
            raise ValueError(f"{what}, for each of {self.n_layers} layers")
        if self.head_dim not in (None, self.d_model // self.n_heads):
            raise ValueError(f"head_dim {self.head_dim} is not hidden_size / num_attention_heads")
        if self.mlp_bias != self.bias:
            raise ValueError("attention_bias and mlp_bias differ; supported: both true, or both false")
        if self.classifier_activation != self.activation:
            raise ValueError(f"classifier_activation must be that of the layers, {self.activation[:40]}")
        return self

    def others(self) -> Tree:
        """Return the settings that follow from the model type or from other keys."""
        return {**_FIXED, "pooling": "mean" if self.classifier_pooling == "mean" else "first"}


_FIXED: Tree = {
    "norm": "pre",
    "embedding_norm": True,
    "positions": "rotary",
    "glu": True,
    "n_segments": 1,
    "pooler": "mlm_head",
    "d_embedding": None,
}
"""Fields of ``BertConfig`` that are the same in every ModernBERT."""
NAMED = ", ".join(f"{key} {str(value).lower()}" for key, value in _FIXED.items() if value is not None)


def is_modernbert(config: BertConfig) -> bool:
    """Return whether a model can be written as a ModernBERT."""
    same = all(getattr(config, key) == value for key, value in _FIXED.items())
    return same and config.local_window is not None and config.plain_attention


def layer_types(n_layers: int, every: int) -> list[str]:
    """Return the types of layers by which transformers chooses masks and bases.

    >>> layer_types(4, 3)
    ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention']
    """
    return [LOCAL if layer % every else GLOBAL for layer in range(n_layers)]


def modernbert_values(config: BertConfig, activation: str) -> Tree:
    """Return values of keys that no setting has under the same name."""
    return {
        "mlp_bias": config.bias,
        "decoder_bias": True,
        "classifier_activation": activation,
        "classifier_pooling": "mean" if config.pooling == "mean" else "cls",
        "layer_types": layer_types(config.n_layers, config.global_every),
    }


def rope_parameters(config: BertConfig) -> Tree:
    """Return the bases of global and local layers as transformers 5 reads them."""
    bases = {GLOBAL: config.rope_base, LOCAL: config.local_rope_base}
    return {name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()}


MAPS = {"attention.projection": "attn.Wqkv", "attention.output": "attn.Wo", "feed_forward.down": "mlp.Wo"}
"""Linear map of a layer -> name in transformers; queries, keys and values are in one, in the same order."""
GATED = ("feed_forward.up", "feed_forward.gate"), "mlp.Wi"
"""Two of our maps, the first with the activation -> one in transformers, the rows of both."""
NORMS = {"around_attention.norm": "attn_norm", "around_feed_forward.norm": "mlp_norm"}
HEAD = {"linear": "head.dense", "norm": "head.norm"}
"""Part of the masked-LM head or pooler -> name in transformers."""
