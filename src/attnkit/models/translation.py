"""Base class of translation models, and their construction from configurations.

Letters: B batch, S source length, T target length, D width of features, V vocabulary, K beams, L layers, H heads.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from attnkit.models.config import ModelConfig
from attnkit.models.linear import some_outputs


class TranslationModel(nn.Module):
    """Base class of translation models; decoding follows ``protocols.Decodable``."""

    # Loss functions apply this layer themselves, chunk by chunk.
    output: nn.Linear
    first_target: int = 0  #: ids below are never targets and have no logits

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return decoder features (B, T, D) for src (B, S) and tgt_in (B, T).

        ``src_mask`` (B, S) is False at padding, which is on the right; None without padding.
        """
        raise NotImplementedError

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given ids."""
        return some_outputs(self.output, hidden, ids)

    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Return attention weights (B, L, H, T, S) of the full pass, without dropout.

        The keys are encoder, decoder and cross, as far as the model has them. Weights are computed from the definition
        and have no gradients; rows at padding are undefined.
        """
        raise NotImplementedError

    # States are Any here: a model accepts only its own kind.
    def start(self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False) -> Any:
        """Encode src (B, S); return a state for up to n_beams beams and max_length steps."""
        raise NotImplementedError

    def step(self, prev: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the features (B, K, D) after the tokens prev (B, K), and the new state."""
        raise NotImplementedError


MODELS = {"transformer": "transformer:Transformer", "rnn": "rnn:RnnTranslator"}
"""Kind -> module and class of the model, called with its configuration and the sizes of both vocabularies."""


def build_model(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> TranslationModel:
    """Build an untrained model; ValueError if the vocabulary sizes do not fit."""
    module, name = MODELS[config.kind].split(":")
    model_class = getattr(import_module(f"attnkit.models.{module}"), name)
    return model_class(config, src_vocab_size, tgt_vocab_size)  # type: ignore[no-any-return]
