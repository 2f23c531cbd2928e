"""Configuration and tensor names of Llama and Mistral in transformers. Torch-free.

A Llama (Touvron et al. 2023) is a GPT with RMSNorm, rotary positions, gated units and heads of keys and values for
groups of queries. A Mistral (Jiang et al. 2023) has the same layout, without biases; its window of attention must not
be shorter than its texts.
"""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, Field, model_validator

from attnkit.models.language_config import GptConfig
from attnkit.models.layer_config import ROPE_BASE
from attnkit.models.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from attnkit.models.position_tables import ScalingName

Tree = dict[str, Any]


class LlamaKeys(BaseModel, extra="ignore", strict=True):
    """Configuration keys of Llama; defaults are those of transformers."""

    vocab_size: int = Field(default=32000, gt=0, le=1 << 20)
    d_model: int = Field(default=4096, gt=0, le=MOST_WIDTH, alias="hidden_size")
    n_layers: int = Field(default=32, gt=0, le=MOST_LAYERS, alias="num_hidden_layers")
    n_heads: int = Field(default=32, gt=0, le=MOST_WIDTH, alias="num_attention_heads")
    n_key_value_heads: int | None = Field(default=None, gt=0, le=MOST_WIDTH, alias="num_key_value_heads")
    d_ff: int = Field(default=11008, gt=0, le=MOST_WIDTH, alias="intermediate_size")
    activation: str = Field(default="silu", alias="hidden_act")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    max_length: int = Field(default=2048, gt=1, le=MOST_POSITIONS, alias="max_position_embeddings")
    norm_eps: float = Field(default=1e-6, gt=0, lt=1, alias="rms_norm_eps")
    tie_embeddings: bool = Field(default=False, alias="tie_word_embeddings")
    bias: bool = Field(default=False, alias="attention_bias")
    mlp_bias: bool = False
    head_dim: int | None = Field(default=None, gt=0)
    # In transformers 5, rope_parameters replaces the next two.
    rope_base: float = Field(default=ROPE_BASE, gt=1, le=1e9, alias="rope_theta")
    rope_scaling: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, tree: Any) -> Any:
        """Write positions under the older names, in transformers' precedence."""
        if not isinstance(tree, Mapping):
            return tree
        found: Any = next((part for key in ("rope_scaling", "rope_parameters") if (part := tree.get(key))), {})
        if not isinstance(found, Mapping):
            raise ValueError("rope_scaling or rope_parameters is not a mapping")
        base = found.get("rope_theta", tree.get("rope_theta", ROPE_BASE))
        rest = {"partial_rotary_factor": tree.get("partial_rotary_factor"), **found}
        rest.pop("rope_theta", None)
        return {**tree, "rope_theta": base, "rope_scaling": rest}

    @model_validator(mode="after")
    def _is_supported(self) -> "LlamaKeys":
        if self.mlp_bias != self.bias:
            raise ValueError("attention_bias and mlp_bias differ; supported: both true, or both false")
        scaling = self.rope_scaling or {}
        if self.rope_type not in ("default", *get_args(ScalingName)):
            what = f"positions are scaled (rope_type '{self.rope_type[:40]}')"
            raise ValueError(f"{what}; supported: default, {', '.join(get_args(ScalingName))}")
        if (share := scaling.get("partial_rotary_factor")) not in (None, 1):
            raise ValueError(f"only a part of each head is rotated (partial_rotary_factor {str(share)[:40]})")
        return self

    @property
    def rope_type(self) -> str:
        """Name of the scaling of positions."""
        scaling = self.rope_scaling or {}
        return str(scaling.get("rope_type", scaling.get("type", "default")))

    def others(self) -> Tree:
        """Return the settings that follow from other keys."""
        own = self.head_dim if self.head_dim and self.head_dim * self.n_heads != self.d_model else None
        return {"dropout": 0.0, "head_width": own, "rope_scaling": self._scaling(), **_FIXED}

    def _scaling(self) -> Tree | None:
        """Return the scaling of positions under attnkit's names."""
        if self.rope_type == "default":
            return None
        scaling = {"original_max_position_embeddings": self.max_length, **(self.rope_scaling or {})}
        return {"kind": self.rope_type} | {ours: scaling[key] for key, ours in _SCALING.items() if key in scaling}


class MistralKeys(LlamaKeys):
    """Configuration keys of Mistral; defaults are those of transformers."""

    n_key_value_heads: int | None = Field(default=8, gt=0, le=MOST_WIDTH, alias="num_key_value_heads")
    d_ff: int = Field(default=14336, gt=0, le=MOST_WIDTH, alias="intermediate_size")
    max_length: int = Field(default=131072, gt=1, le=MOST_POSITIONS, alias="max_position_embeddings")
    sliding_window: int | None = Field(default=4096, gt=0)

    @model_validator(mode="after")
    def _sees_all(self) -> "MistralKeys":
        if self.sliding_window is not None and self.sliding_window < self.max_length:
            what = f"sliding_window {self.sliding_window} is below max_position_embeddings {self.max_length}"
            raise ValueError(f"{what}: a token would not attend to all before it; supported: null, or no less")
        return self


LLAMAS = ("llama", "mistral")  #: model types of this layout
_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_length",
}
"""Key of a scaling in transformers -> field of ``RopeScaling``."""
_FIXED: Tree = {"positions": "rotary", "norm": "pre", "normalization": "rms", "glu": True}
"""Fields of ``GptConfig`` that are the same in every Llama."""
LLAMA_KEYS = "positions rotary, norm pre, normalization rms and glu true"  #: the same for people


def is_llama(config: GptConfig) -> bool:
    """Return whether a model can be written as a Llama."""
    fixed = all(getattr(config, key) == value for key, value in _FIXED.items())
    # transformers requires the last, whatever the width of heads.
    return fixed and config.plain_attention and config.d_model % config.n_heads == 0


def llama_json(
    config: GptConfig, vocab_size: int, activation: str, ids: Mapping[str, int | None], kind: str = "llama"
) -> Tree:
    """Return a ``config.json``; ``ids`` has ids of special tokens by key."""
    rope: Tree = {"rope_type": "default", "rope_theta": config.rope_base}
    if (scaling := config.rope_scaling) is not None:
        rope["rope_type"] = scaling.kind
        # Linear scaling has a factor alone.
        keys = list(_SCALING.items())[: 1 if scaling.kind == "linear" else None]
        rope |= {key: getattr(scaling, ours) for key, ours in keys}
    biases = {"attention_bias": config.bias, "mlp_bias": config.bias}
    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kept_heads,
        "head_dim": config.d_head,
        "intermediate_size": config.d_ff,
        "hidden_act": activation,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        **(biases if kind == "llama" else {"sliding_window": None}),
        "rope_theta": config.rope_base,
        "rope_parameters": rope,
        **ids,
    }


MAPS = {
    "attention.output": "self_attn.o_proj",
    # Our activation is that of the map "up", and theirs that of the map "gate".
    "feed_forward.up": "mlp.gate_proj",
    "feed_forward.gate": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
"""Linear map of a layer -> name in transformers; queries, keys and values are in one of ours."""
QUERY_KEY_VALUE = tuple(f"self_attn.{part}_proj" for part in "qkv")
NORMS = {"around_attention.norm": "input_layernorm", "around_feed_forward.norm": "post_attention_layernorm"}
