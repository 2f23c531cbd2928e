"""From a checked configuration to a model: the one table of translation models."""

from __future__ import annotations

from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.rnn import Recurrent
from attnkit.models.transformer import Transformer

MODELS: dict[str, type[Transformer] | type[Recurrent]] = {"transformer": Transformer, "rnn": Recurrent}


def build_model(
    config: TransformerConfig | RnnConfig, src_vocab_size: int, tgt_vocab_size: int
) -> Transformer | Recurrent:
    """Return a freshly initialised model; ValueError where sizes and configuration do not fit.

    Both classes are translation models in the sense of models.translation.
    """
    if isinstance(config, TransformerConfig):
        return Transformer(config, src_vocab_size, tgt_vocab_size)
    return Recurrent(config, src_vocab_size, tgt_vocab_size)
