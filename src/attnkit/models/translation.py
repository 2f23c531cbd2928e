"""The base class of translation models, and the table that builds one from its configuration.

Letters: B batch, S source length, T target length, D width of features, V vocabulary, K beams, L layers, H heads.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from attnkit.models.config import ModelConfig
from attnkit.models.linear import some_outputs


class TranslationModel(nn.Module):
    """Source and target ids to features, and features to logits; ``protocols.Decodable`` says how it decodes."""

    # Loss functions multiply by it themselves, chunk by chunk.
    output: nn.Linear

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return the decoder states (B, T, D) before the output layer, for src (B, S) and tgt_in (B, T).

        src_mask (B, S) is True at real tokens, with padding on the right only; None without padding.
        """
        raise NotImplementedError

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D), or only those of ``ids`` (..., len(ids))."""
        return some_outputs(self.output, hidden, ids)

    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Return the attention weights of the full pass, without dropout or gradients, computed from the definition.

        The shapes are (B, L, H, T, S); the keys are encoder, decoder and cross, as far as the model has them.
        Rows of padding positions are undefined.
        """
        raise NotImplementedError

    # States are Any here: a model takes back only its own kind.
    def start(self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False) -> Any:
        """Encode the sources (B, S) once; return a state for at most n_beams beams and max_length steps."""
        raise NotImplementedError

    def step(self, prev: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the features (B, K, D) after the tokens prev (B, K), and the new state."""
        raise NotImplementedError


MODELS = {"transformer": "transformer:Transformer", "rnn": "rnn:RnnTranslator"}
"""Kind -> module and class of the model, built from its configuration and the sizes of both vocabularies."""


def build_model(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> TranslationModel:
    """Return a freshly initialised model; ValueError where sizes and configuration do not fit."""
    module, name = MODELS[config.kind].split(":")
    model_class = getattr(import_module(f"attnkit.models.{module}"), name)
    return model_class(config, src_vocab_size, tgt_vocab_size)  # type: ignore[no-any-return]
