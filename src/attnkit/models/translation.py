"""What every translation model offers: a training pass, and stepwise decoding over a state that it alone understands.

Letters: B batch, S source length, T target length, D model width, V vocabulary, K beam (parents per sentence).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor, nn


class DecoderState(Protocol):
    """What one model remembers of the sentences being decoded. Methods may change it in place: use what they return."""

    @property
    def attention(self) -> Tensor | None:
        """Return the last step's weights (B, K, S), mean over heads; None unless start was told to record."""
        ...

    def reorder_beams(self, parents: Tensor) -> DecoderState:
        """Let beam k of sentence b go on from its old beam parents[b, k] (B, K); the first call may widen 1 to K."""
        ...

    def select_rows(self, sentences: Tensor) -> DecoderState:
        """Keep only the given rows of the batch, in the given order; sentences is (n,) int64."""
        ...


class TranslationModel(Protocol):
    """An nn.Module that turns source and target ids into features, and features into logits."""

    output: nn.Linear

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return the features (B, T, D) that output turns into logits, for src (B, S) and tgt_in (B, T).

        src_mask (B, S) is True at real tokens; None means that there is no padding.
        """
        ...

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given words (..., len(ids))."""
        ...

    def attention_weights(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Return the attention weights of the full pass, without dropout or gradients, computed as they are written.

        They are (B, L, H, T, S) under the names encoder, decoder and cross, of which a model has those that it has.
        Rows of padding words are there and mean nothing.
        """
        ...

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> DecoderState:
        """Encode the sources once and return a state for at most n_beams beams and max_length steps."""
        ...

    def step(self, prev: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return the features (B, K, D) after the words prev (B, K): K is 1 until reorder has widened the state."""
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
