"""Working memory of compiled loops.

Letters: D model width, A heads times head width, A' those of keys and values, F inner width, M rows, L layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from attnkit.compiled.packed_layers import PackedLayers
from attnkit.kernels.layout import Buffers
from attnkit.kernels.simd import packing


class Memory:
    """Arrays that compiled loops read and write; they live as long as this."""

    def __init__(self) -> None:
        self._owned: list[NDArray[Any]] = []

    def bytes(self, n: int) -> int:
        """Return the address of n bytes of zeros, a multiple of 64."""
        return self.array(np.uint8, n).ctypes.data

    def array(self, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
        """Return an array of zeros that begins at a multiple of 64 bytes."""
        self._owned.append(packing.zeros(shape, dtype))
        return self._owned[-1]

    def buffers(self, packed: PackedLayers, n_rows: int, n_positions: int) -> Buffers:
        """Return buffers of a thread for up to ``n_rows`` tokens at a time.

        Each attends to ``n_positions`` or fewer.
        """
        # Tiles read and write whole, and scores are made of four keys: a few rows more than there can be.
        m = n_rows + max(4, packed.target.extra_rows)
        n_places = -(-n_positions // 16) * 16 + 16
        d, a, k, f = packed.d_model, packed.d_heads, packed.d_kept, packed.d_inner
        n_columns = f + packed.gated * f  # of the first product of a feed-forward sublayer
        x = self.bytes(4 * m * d)
        identity = self.array(np.int32, n_places)
        identity[:] = np.arange(n_places)
        return Buffers(
            x=x,
            normed=x if packed.sizes.norm == "post" else self.bytes(4 * m * d),
            encoded=self.bytes(m * max(d, a, f) * packed.lane_bytes),
            scales=self.bytes(4 * m),
            y=self.bytes(4 * m * d),
            wide=self.bytes(4 * m * max(a + 2 * k, n_columns, 2 * packed.n_decoder_layers * a)),
            kept=self.bytes(m * 2 * k * packed.kept_bytes),
            context=self.bytes(4 * m * a),
            lists=self.bytes(
                (m // packing.SPARSE_ROWS[packed.precision] + 1) * packing.list_bytes(f, packed.precision)
            ),
            weights=self.bytes(4 * n_places * packed.sizes.n_heads),
            identity=identity.ctypes.data,
        )
