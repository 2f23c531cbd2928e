"""The interface of translation models, and the table that builds one from its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from torch import Tensor, nn

from attnkit.models.config import ModelConfig
from attnkit.protocols import Decodable


class TranslationModel(Decodable, Protocol):
    """An nn.Module that turns source and target ids into features, and features into logits."""

    # Loss functions multiply by it themselves, chunk by chunk.
    output: nn.Linear

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return the features (B, T, D) that output turns into logits, for src (B, S) and tgt_in (B, T).

        src_mask (B, S) is True at real tokens; None without padding.
        """
        ...

    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Return the attention weights of the full pass, without dropout or gradients, computed as they are written.

        They are (B, L, H, T, S) under the names encoder, decoder and cross, of which a model has those that it has.
        Rows of padding words are there and mean nothing.
        """
        ...

    # What the rooms above use of nn.Module itself.
    training: bool

    def train(self, mode: bool = True) -> Any:
        """Switch dropout on or off."""
        ...

    def eval(self) -> Any:
        """Switch dropout off."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Iterate over the parameters, each once."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the named tensors of the model."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Copy named tensors into the model."""
        ...


MODELS = {"transformer": "transformer:Transformer", "rnn": "rnn:RnnTranslator"}
"""Kind -> module and class of the model, built from its configuration and the sizes of both vocabularies."""


def build_model(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> TranslationModel:
    """Return a freshly initialised model; ValueError where sizes and configuration do not fit."""
    module, name = MODELS[config.kind].split(":")
    model_class = getattr(import_module(f"attnkit.models.{module}"), name)
    # Each class steps over its own kind of state, which a protocol cannot say.
    return cast(TranslationModel, model_class(config, src_vocab_size, tgt_vocab_size))
