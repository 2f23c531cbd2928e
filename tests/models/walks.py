"""Random walks of beams through a Transformer's stepwise decoding, to be compared with its full pass."""

from __future__ import annotations

import torch
from torch import Tensor

from attnkit.models.transformer import Transformer, TransformerState

V, STEPS, K = 23, 11, 3


def sources() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    mask = torch.arange(6) < torch.tensor([6, 2, 4, 1])[:, None]
    return torch.randint(4, V, (4, 6)).masked_fill(~mask, 0), mask


class Walk:
    """A random walk of beams that keeps every beam's words beside the state, to be run through the full pass."""

    def __init__(self, model: Transformer, record: bool = False) -> None:
        self.model = model
        self.src, self.mask = sources()
        self.state: TransformerState = model.start(self.src, self.mask, K, STEPS, record)
        self.words = torch.zeros(4, 1, 0, dtype=torch.int64)
        self.hidden = torch.empty(0)

    def step(self) -> None:
        batch, beams = self.words.shape[:2]
        prev = torch.randint(4, V, (batch, beams))
        self.words = torch.cat((self.words, prev[:, :, None]), dim=2)
        self.hidden, self.state = self.model.step(prev, self.state)

    def reorder_beams(self, n_beams: int) -> None:
        parents = torch.randint(0, self.words.shape[1], (len(self.words), n_beams))
        self.words = self.words.gather(1, parents[:, :, None].expand(-1, -1, self.words.shape[2]))
        self.state = self.state.reorder_beams(parents)

    def select_rows(self, sentences: Tensor) -> None:
        self.src, self.mask, self.words = self.src[sentences], self.mask[sentences], self.words[sentences]
        self.state = self.state.select_rows(sentences)

    def full(self) -> Tensor:
        """Return what the full pass says of every beam's last word, (B, K, D)."""
        beams = self.words.shape[1]
        columns = [self.model.hidden(self.src, self.mask, self.words[:, k])[:, -1] for k in range(beams)]
        return torch.stack(columns, dim=1)
