"""From a checked configuration to a model: the one table of translation models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from attnkit.models.config import ModelConfig
from attnkit.models.rnn import RnnTranslator
from attnkit.models.transformer import Transformer
from attnkit.models.translation import TranslationModel

MODELS: dict[str, Callable[[Any, int, int], nn.Module]] = {"transformer": Transformer, "rnn": RnnTranslator}
"""Kind -> model, made from its configuration and the sizes of the source and the target vocabulary."""


def build_model(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> TranslationModel:
    """Return a freshly initialised model; ValueError where sizes and configuration do not fit."""
    # Each class steps over its own kind of state, which a protocol cannot say.
    return cast(TranslationModel, MODELS[config.kind](config, src_vocab_size, tgt_vocab_size))
