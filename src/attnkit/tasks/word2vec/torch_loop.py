"""Training word vectors in torch: where numba is missing, on CUDA, and for what has no compiled loop.

Some words are worked on together, under the weights that those before them left. A piece holds the words and windows
that it holds for the compiled loops; negatives are other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.data.words import Encoded
from attnkit.kernels.sampling import key_of
from attnkit.kernels.windows_in_numpy import windows
from attnkit.kernels.word2vec import PieceStats, Text, Weights
from attnkit.models.word2vec import Word2Vec
from attnkit.runtime.devices import choose_device, set_threads
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.lookup_tables import FEW, tables
from attnkit.tasks.word2vec.torch_steps import BLOCK, Batch, Lookups, Steps

_MOST = {"cpu": 256, "cuda": 4096}
"""Places that are worked on together."""
_HELD = 64
"""Words that are held against all others together: each moves every row, and more at once from the same weights
overshoot until nothing is a number."""


class TorchLoops:
    """Trains on pieces of text as ``kernels.word2vec.Loops`` does."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded) -> None:
        """Prepare what is looked up by word. Raises ``UsageError`` where the device cannot be had."""
        few = len(encoded.words) < FEW and config.method == "skip-gram" and config.loss == "negative"
        self._config = config.model_copy(update={"exact": True}) if few else config
        self._device = choose_device("cpu" if config.device == "auto" else config.device)
        self.where = f"torch, {self._device.type}"
        if self._device.type == "cpu":
            set_threads(config.threads)  # which the last bits of what it computes depend on
            self.where += f", {config.threads} thread{'s'[: config.threads != 1]}"
        found = tables(config, encoded)
        self._keep = found.keep
        numbers = (found.prob, found.alias, found.path_starts, found.nodes, found.codes)
        self._lookups = Lookups(*(self._tensor(array.astype(np.int64)) for array in numbers))
        self._held: tuple[Weights, Tensor, Tensor] | None = None
        # Of a small vocabulary every word would meet itself again and again in a large batch.
        self._size = min(max(len(encoded.words) // 8, BLOCK), _MOST[self._device.type])
        if config.loss == "full":
            usual = 1 if config.method == "cbow" else config.window + 1 if config.dynamic_window else 2 * config.window
            self._size = min(self._size, max(1, _HELD // usual))

    def piece(
        self, weights: Weights, text: Text, span: tuple[int, int], key: int, alphas: tuple[float, float]
    ) -> PieceStats:
        """Train on the centre words at the positions [span[0], span[1]); on CUDA ``settle`` brings the weights back.

        The learning rate falls in steps, one for each batch. With loss full the terms are -log P(o|c), one for each
        pair (or place of CBOW); J(θ) of the notes, a mean over places, is loss / words where nothing is left out and
        windows are not drawn.
        """
        window = self._config.window
        knobs = (window, self._config.dynamic_window)
        words, at, left, right, first, last = windows((text.ids, text.starts), (*span, key), knobs, self._keep)
        steps = Steps(self._config, self._model(weights), self._lookups, key_of(key, span[0]) >> 1)
        parts = [self._tensor(part.astype(np.int64)) for part in (words, left, right)]
        places = first + np.flatnonzero((left + right)[first:last])
        for begin in range(0, len(places), self._size):
            here = places[begin : begin + self._size]
            done = (int(at[here[0]]) - span[0]) / (span[1] - span[0])
            steps.step(_gather(parts, self._tensor(here), window), alphas[0] + (alphas[1] - alphas[0]) * done)
        return PieceStats(float(steps.loss), steps.terms, last - first)

    def settle(self) -> None:
        """Copy what another device holds into the matrices that it came from."""
        if self._held is not None:
            weights, inputs, outputs = self._held
            torch.from_numpy(weights.inputs).copy_(inputs)
            torch.from_numpy(weights.outputs).copy_(outputs)
            self._held = None

    def _model(self, weights: Weights) -> Word2Vec:
        """Return a model on the matrices; on the CPU it shares their memory."""
        inputs, outputs = torch.from_numpy(weights.inputs), torch.from_numpy(weights.outputs)
        if self._device.type != "cpu":
            if self._held is None:
                self._held = weights, inputs.to(self._device), outputs.to(self._device)
            inputs, outputs = self._held[1:]
        return Word2Vec(inputs, outputs, self._config.context, self._config.dim)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _gather(parts: Sequence[Tensor], places: Tensor, window: int) -> Batch:
    """Return places of (words, left, right) with what is around them."""
    words, left, right = parts
    ahead = torch.arange(1, window + 1, device=words.device)
    offsets = torch.cat([-ahead.flip(0), ahead])
    mask = torch.cat([ahead.flip(0) <= left[places, None], ahead <= right[places, None]], 1)
    context = words[(places.unsqueeze(1) + offsets).clamp(0, len(words) - 1)]
    return Batch(words[places], context, mask)
