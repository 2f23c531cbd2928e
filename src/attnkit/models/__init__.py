"""Model architectures, from token ids to tensors; each has a configuration.

Configurations are checked when they are made and import no torch; classes are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.models.attention.config import ALIGNMENT_NAMES, DISTRIBUTION_NAMES, AttentionOptions
    from attnkit.models.autoencoder import SequenceAutoencoder, VectorAutoencoder
    from attnkit.models.bert import Bert, SequenceClassifier, SpanPredictor, TokenTagger
    from attnkit.models.config import RnnConfig, TransformerConfig
    from attnkit.models.electra import Electra
    from attnkit.models.gpt import Gpt
    from attnkit.models.han import HierarchicalAttentionNetwork
    from attnkit.models.language_config import BertConfig, ElectraConfig, GptConfig
    from attnkit.models.layers import PackedLayout
    from attnkit.models.recurrent_config import HanConfig, MlpAutoencoderConfig, RnnAutoencoderConfig
    from attnkit.models.rnn import RnnTranslator
    from attnkit.models.transformer import Transformer
    from attnkit.models.translation import TranslationModel

__all__ = [
    "ALIGNMENT_NAMES",
    "DISTRIBUTION_NAMES",
    "AttentionOptions",
    "Bert",
    "BertConfig",
    "Electra",
    "ElectraConfig",
    "Gpt",
    "GptConfig",
    "HanConfig",
    "HierarchicalAttentionNetwork",
    "MlpAutoencoderConfig",
    "PackedLayout",
    "RnnAutoencoderConfig",
    "RnnConfig",
    "RnnTranslator",
    "SequenceAutoencoder",
    "SequenceClassifier",
    "SpanPredictor",
    "TokenTagger",
    "Transformer",
    "TransformerConfig",
    "TranslationModel",
    "VectorAutoencoder",
]
_MODULES = {
    "attention.config": ("ALIGNMENT_NAMES", "DISTRIBUTION_NAMES", "AttentionOptions"),
    "autoencoder": ("SequenceAutoencoder", "VectorAutoencoder"),
    "bert": ("Bert", "SequenceClassifier", "SpanPredictor", "TokenTagger"),
    "config": ("RnnConfig", "TransformerConfig"),
    "electra": ("Electra",),
    "gpt": ("Gpt",),
    "han": ("HierarchicalAttentionNetwork",),
    "language_config": ("BertConfig", "ElectraConfig", "GptConfig"),
    "layers": ("PackedLayout",),
    "recurrent_config": ("HanConfig", "MlpAutoencoderConfig", "RnnAutoencoderConfig"),
    "rnn": ("RnnTranslator",),
    "transformer": ("Transformer",),
    "translation": ("TranslationModel",),
}


def __getattr__(name: str) -> Any:
    """Import a class on access."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"attnkit.models.{module}"), name)
    raise AttributeError(f"module 'attnkit.models' has no attribute {name!r}")
