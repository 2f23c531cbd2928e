"""From a checked configuration to a model: the one table of translation models."""

from __future__ import annotations

from typing import cast

from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.rnn import Recurrent
from attnkit.models.transformer import Transformer
from attnkit.models.translation import TranslationModel

MODELS: dict[str, type[Transformer] | type[Recurrent]] = {"transformer": Transformer, "rnn": Recurrent}


def build_model(config: TransformerConfig | RnnConfig, src_vocab_size: int, tgt_vocab_size: int) -> TranslationModel:
    """Return a freshly initialised model; ValueError where sizes and configuration do not fit."""
    model = MODELS[config.kind](config, src_vocab_size, tgt_vocab_size)  # type: ignore[arg-type]
    # Each class steps over its own kind of state, which a protocol cannot say.
    return cast(TranslationModel, model)
