"""The output layer in compiled loops.

Letters: M rows, D model width, V vocabulary, N columns, K inputs, P columns of a panel.
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from attnkit.compiled.packed_layers import PackedLayers
from attnkit.compiled.rows import check_ids
from attnkit.compiled.workers import Job, Workers
from attnkit.kernels.layout import OUTPUT, Model
from attnkit.kernels.simd.packing import LOWEST, PackedWeights, aligned, padded


class OutputLayer:
    """Output layer of a packed model."""

    def __init__(self, packed: PackedLayers, workers: Workers, vocab_size: int) -> None:
        self._packed, self._workers, self._vocab_size = packed, workers, vocab_size
        self._memory = threading.local()  # of the caller's threads
        self._chosen: tuple[Tensor, PackedWeights, Model] | None = None

    def logits(self, hidden: Tensor, ids: Tensor | None) -> Tensor:
        """Return logits (..., V) of features (..., D), or (..., len(ids)) for ``ids``.

        They last until the next call of the same thread.
        """
        packed, n_rows, extra = self._packed, hidden[..., 0].numel(), self._packed.target.extra_rows
        n_words = self._vocab_size if ids is None else len(ids)
        # Tiles read and write whole.
        rows = torch.zeros(n_rows + extra, packed.d_model)
        rows[:n_rows, : hidden.shape[-1]] = hidden.reshape(n_rows, -1)
        with self._workers.lock:
            found = self._room(n_rows + extra, padded(n_words))
            model = packed.model(1).prepared if ids is None else self._restricted(ids)
            # A thread's rows begin at a multiple of a tile, so that none writes into another's.
            tile = packed.tile.rows
            share = -(-n_rows // (tile * self._workers.n_threads)) * tile
            buffers = self._workers.buffers(share, 1)

            def run(first: int) -> Job:
                x, out = (t.data_ptr() + 4 * first * t.shape[1] for t in (rows, found))
                n = min(share, n_rows - first)
                return lambda thread: self._workers.library.call("project", model, x, n, buffers[thread], out)

            self._workers.run([run(first) for first in range(0, n_rows, max(1, share))])
        return found[:n_rows, :n_words].view(*hidden.shape[:-1], n_words)

    def _room(self, n_rows: int, n_words: int) -> Tensor:
        """Return a tensor (n_rows, n_words); new memory would cost as much as the product."""
        room: Tensor | None = getattr(self._memory, "room", None)
        if room is None or room.numel() < n_rows * n_words:
            room = self._memory.room = torch.empty(n_rows * n_words)
        return room[: n_rows * n_words].view(n_rows, n_words)

    def _restricted(self, ids: Tensor) -> Model:
        """Return the model with an output layer of some words.

        The last one is kept, since a search needs it at every step.
        """
        if self._chosen is None or self._chosen[0] is not ids:
            check_ids(ids.numpy(), self._vocab_size)
            columns = np.zeros(padded(len(ids)), np.int64)
            columns[: len(ids)] = ids.numpy()
            whole, p = self._packed.output, self._packed.tile.panel
            # (N / P, K / GROUP, P, GROUP): columns of one word are in one panel.
            words = whole.weights[columns // p, :, columns % p]  # (n, K / GROUP, GROUP)
            weights = words.reshape(-1, p, *words.shape[1:]).transpose(0, 2, 1, 3)
            rest = [part[columns] for part in whole[1:]]
            rest[-1][len(ids) :] = LOWEST
            own = PackedWeights(aligned(weights), *map(aligned, rest))
            model = self._packed.model(1).model
            products = model.products.copy()
            products[OUTPUT, :5] = [*(part.ctypes.data for part in own), len(columns)]
            self._chosen = ids, own, model._replace(products=products)
        return self._chosen[2]
