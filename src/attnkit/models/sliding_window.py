"""GPT over texts that outgrow its window: when that is full its newer half is read anew, and the text goes on.

Where documents are longer than a training row, GPT learns from rows that begin in the middle of one: so a window that
does is nothing new to it. Letters: B texts, T tokens of a text, D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnkit.models.gpt import Gpt, PromptState


@dataclass
class WindowState:
    """What the model has read, and the words that it has read it in."""

    inner: PromptState
    words: Tensor
    """(B, T) what is in the window."""

    @property
    def attention(self) -> Tensor | None:
        """Return None: there is no source to look at."""
        return None

    def reorder_beams(self, parents: Tensor) -> WindowState:
        """Stay: there is one beam a text."""
        return self

    def select_rows(self, sentences: Tensor) -> WindowState:
        """Keep only these rows of the batch, in this order."""
        self.inner, self.words = self.inner.select_rows(sentences), self.words.index_select(0, sentences)
        return self


class SlidingWindowLM:
    """A GPT that sees at most ``window`` tokens, whatever becomes of the text; for searches of one beam a text.

    The n-th word is predicted from those that a naive reader has before it who, whenever more than ``window`` tokens
    are before him, forgets all but the last ``window // 2``.
    """

    def __init__(self, model: Gpt, window: int) -> None:
        """Take the model, and the most tokens that it is to see at once, 2 or more."""
        self.model, self.window = model, window

    def start(
        self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False
    ) -> WindowState:
        """Read the last ``window`` tokens of prompts (B, T) of one length; the first step reads the very last.

        Raises:
            ValueError: more beams than one are asked for, or there is padding.
        """
        if n_beams != 1:
            raise ValueError("a sliding window takes one beam per text: repeat the text in several rows")
        words = src[:, -self.window :]
        # Room for as many steps as the window has left.
        return WindowState(self.model.start(words, src_mask, 1, self.window - words.shape[1]), words)

    def step(self, prev: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        """Return features (B, 1, D) after the words prev (B, 1), and the state that has taken them in."""
        if state.inner.last is None:
            state.words = torch.cat((state.words, prev), dim=1)
            # Positions are absolute, so cached keys cannot be shifted: the newer half is read again.
            if state.words.shape[1] > self.window:
                state.words = state.words[:, -(self.window // 2) :]
                state.inner = self.model.start(state.words, None, 1, self.window - state.words.shape[1])
        hidden, state.inner = self.model.step(prev, state.inner)
        return hidden, state

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D)."""
        return self.model.head(hidden, ids)
