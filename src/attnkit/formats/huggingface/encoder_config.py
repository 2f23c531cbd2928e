"""Configuration keys of DistilBERT and ELECTRA in transformers. Torch-free.

Field names are attnkit's. Aliases, defaults and order follow config.json.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

from attnkit.models.language_config import BertConfig
from attnkit.models.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH

Tree = dict[str, Any]
DISTILBERT_EPS = 1e-12  #: epsilon of the norms of DistilBERT, which is no key


class DistilBertKeys(BaseModel, extra="ignore", strict=True):
    """Configuration keys of DistilBERT."""

    vocab_size: int = Field(gt=0, le=1 << 20)
    d_model: int = Field(default=768, gt=0, le=MOST_WIDTH, alias="dim")
    n_layers: int = Field(default=6, gt=0, le=MOST_LAYERS)
    n_heads: int = Field(default=12, gt=0, le=MOST_WIDTH)
    d_ff: int = Field(default=3072, gt=0, le=MOST_WIDTH, alias="hidden_dim")
    activation: str = "gelu"
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    max_length: int = Field(default=512, gt=1, le=MOST_POSITIONS, alias="max_position_embeddings")
    sinusoidal_pos_embds: bool = False
    tie_embeddings: bool = Field(default=True, alias="tie_word_embeddings")
    pad_token_id: int | None = None

    def others(self) -> Tree:
        """Return the settings that follow from the model type or from other keys."""
        positions = "sinusoidal" if self.sinusoidal_pos_embds else "learned"
        return {"positions": positions, "n_segments": 1, "norm_eps": DISTILBERT_EPS, "pooler": "relu"}


class BertKeys(BaseModel, extra="ignore", strict=True):
    """Configuration keys of BERT, RoBERTa and XLM-RoBERTa."""

    vocab_size: int = Field(gt=0, le=1 << 20)
    d_model: int = Field(default=768, gt=0, le=MOST_WIDTH, alias="hidden_size")
    n_layers: int = Field(default=12, gt=0, le=MOST_LAYERS, alias="num_hidden_layers")
    n_heads: int = Field(default=12, gt=0, le=MOST_WIDTH, alias="num_attention_heads")
    d_ff: int = Field(default=3072, gt=0, le=MOST_WIDTH, alias="intermediate_size")
    activation: str = Field(default="gelu", alias="hidden_act")
    dropout: float = Field(default=0.1, ge=0, lt=1, alias="hidden_dropout_prob")
    attention_dropout: float = Field(default=0.1, ge=0, lt=1, alias="attention_probs_dropout_prob")
    max_length: int = Field(default=512, gt=1, le=MOST_POSITIONS, alias="max_position_embeddings")
    n_segments: int = Field(default=2, ge=1, le=16, alias="type_vocab_size")
    norm_eps: float = Field(default=1e-12, gt=0, lt=1, alias="layer_norm_eps")
    tie_embeddings: bool = Field(default=True, alias="tie_word_embeddings")
    pad_token_id: int | None = None
    embedding_size: int | None = None
    rotary_value: bool = False
    is_decoder: bool = False
    position_embedding_type: str = "absolute"

    def others(self) -> Tree:
        """Return the settings that follow from the model type or from other keys."""
        return {"positions": "learned"}


class RoFormerKeys(BertKeys):
    """Configuration keys of RoFormer."""

    def others(self) -> Tree:
        """Return the settings that follow from the model type or from other keys."""
        return {"positions": "rotary"}


class ElectraKeys(BertKeys):
    """Configuration keys of ELECTRA."""

    d_model: int = Field(default=256, gt=0, le=MOST_WIDTH, alias="hidden_size")
    n_heads: int = Field(default=4, gt=0, le=MOST_WIDTH, alias="num_attention_heads")
    d_ff: int = Field(default=1024, gt=0, le=MOST_WIDTH, alias="intermediate_size")
    # The head of the generator uses gelu whatever the activation of the layers.
    activation: Literal["gelu"] = Field(default="gelu", alias="hidden_act")
    embedding_size: int = Field(default=128, gt=0, le=MOST_WIDTH)
    is_decoder: Literal[False] = False
    position_embedding_type: Literal["absolute"] = "absolute"

    def others(self) -> Tree:
        """Return the settings that follow from the model type or from other keys."""
        narrow = None if self.embedding_size == self.d_model else self.embedding_size
        return {"positions": "learned", "d_embedding": narrow, "pooler": "gelu"}


def described(config: BertConfig, kind: str) -> Tree:
    """Return values of keys of a model type that no setting has under the same name."""
    if kind == "electra":
        return {"embedding_size": config.embedding_width}
    if kind == "distilbert":
        return {"sinusoidal_pos_embds": config.positions == "sinusoidal"}
    return {"embedding_size": config.d_model, "rotary_value": False} if kind == "roformer" else {}


def is_distilbert(config: BertConfig) -> bool:
    """Return whether a model has what every DistilBERT has."""
    own = config.pooler == "relu" and config.d_embedding is None and config.positions in ("learned", "sinusoidal")
    return own and config.n_segments == 1 and config.norm_eps == DISTILBERT_EPS


def is_electra(config: BertConfig) -> bool:
    """Return whether a model has what every ELECTRA has."""
    return config.pooler == "gelu" and config.activation == "gelu" and config.positions == "learned"
