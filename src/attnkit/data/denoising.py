"""Auto-encoder datasets of lines or vectors, with reproducible input noise."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from attnkit.data.arrays import MAX_COLUMNS, Vectors
from attnkit.data.config import NoiseConfig
from attnkit.data.pairs import PairBatch, make_batch
from attnkit.data.permutation import Floats, Ids, Sizes, uniform_per_token
from attnkit.data.store import FORMAT, Store, ranges, read_index
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.io.safe_read import open_regular_file
from attnkit.protocols import UNK_ID


class Noise:
    """Reproducible input noise of one epoch."""

    def __init__(self, config: NoiseConfig, seed: int, epoch: int) -> None:
        self.config = config
        self._key = (seed, epoch)

    def corrupt_tokens(self, ids: Ids, lengths: Ids, rows: Ids, blank: int) -> tuple[Ids, Ids]:
        """Return noisy copies of concatenated rows, and the length of each copy.

        Args:
            ids: (n,) Tokens of all rows, concatenated.
            lengths: (B,) Length of each row.
            rows: (B,) Index of each row in the corpus.
            blank: Id that replaces masked tokens.
        """
        config = self.config
        owner = np.repeat(np.arange(len(rows)), lengths)  # (n,) the row of each token in the batch
        places = ranges(np.zeros_like(lengths), lengths)  # (n,) its position in the row
        if config.word_dropout:
            coins = uniform_per_token("noise drop", self._key, rows, owner, places)
            highest = np.zeros(len(rows))
            np.maximum.at(highest, owner, coins)
            # The token with the highest draw of its row is always kept, so no row becomes empty.
            kept = (coins >= config.word_dropout) | (coins == highest[owner])
            ids, owner, places = ids[kept], owner[kept], places[kept]
        else:
            ids = ids.copy()
        if config.mask_prob:
            coins = uniform_per_token("noise mask", self._key, rows, owner, places)
            ids[coins < config.mask_prob] = blank
        if config.shuffle_prob:
            coins = uniform_per_token("noise shuffle", self._key, rows, owner, places)
            moved = np.flatnonzero(coins < config.shuffle_prob)
            keys = uniform_per_token("noise order", self._key, rows, owner[moved], places[moved])
            ids[moved] = ids[moved[np.lexsort((keys, owner[moved]))]]  # within each row
        return ids, np.bincount(owner, minlength=len(rows)).astype(np.int64)

    def corrupt_vectors(self, vectors: Vectors, rows: Ids, mean: Vectors) -> Vectors:
        """Return copies of vectors (B, d) with masked numbers set to the mean (d,)."""
        width = vectors.shape[1]
        owner, columns = np.divmod(np.arange(vectors.size), width)
        coins = uniform_per_token("noise mask", self._key, rows, owner, columns)
        return np.where(coins.reshape(vectors.shape) < self.config.mask_prob, mean, vectors)


class LineDataset:
    """Encoded lines and their noisy copies; satisfies ``loader.Dataset``."""

    def __init__(self, store: Store, noise: NoiseConfig) -> None:
        self.store = store
        self.noise = noise

    def __len__(self) -> int:
        return len(self.store)

    @property
    def fingerprint(self) -> str:
        """Hash of all ids and line boundaries."""
        return self.store.fingerprint

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """Return input and target lengths (n,), EOS included; noise may shorten inputs."""
        lengths = self.store.lengths
        lengths += 1
        return lengths, lengths

    def batch(self, indices: Ids, seed: int, epoch: int) -> PairBatch:
        """Return the lines at ``indices``, with this epoch's noisy copies as inputs."""
        clean = self.store.gather(indices)
        if not self.noise.any:
            return make_batch(clean, clean)
        return make_batch(Noise(self.noise, seed, epoch).corrupt_tokens(*clean, indices, UNK_ID), clean)

    def clean(self, indices: Ids) -> PairBatch:
        """Return the lines at ``indices`` as inputs and targets, without noise."""
        rows = self.store.gather(indices)
        return make_batch(rows, rows)

    def counts(self, indices: Ids, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of tokens at ``indices``, EOS included."""
        return {"nll": int(self.lengths[1][indices].sum())}


_BLOCK = 1 << 12  # rows per block


class _VectorsIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``index.json``."""

    format: Literal[1]
    rows: int = Field(gt=0, lt=1 << 40)
    width: int = Field(gt=0, le=MAX_COLUMNS)
    sha256: str


@dataclass(frozen=True)
class VectorBatch:
    """A batch of noisy and clean vectors, (B, d) float32 each."""

    noisy: Tensor  #: input of the model
    clean: Tensor  #: target; the same tensor as ``noisy`` if there is no noise

    def to(self, device: torch.device | str) -> VectorBatch:
        """Return the batch on another device."""
        clean = self.clean.to(device, non_blocking=True)
        return VectorBatch(clean if self.noisy is self.clean else self.noisy.to(device, non_blocking=True), clean)


class VectorDataset:
    """Vectors stored by ``write_vectors``; satisfies ``loader.Dataset``."""

    def __init__(self, vectors: Vectors, digest: str, noise: NoiseConfig) -> None:
        self.vectors = vectors
        """(n, d) view of the file."""
        self.fingerprint = digest
        self.noise = noise

    @classmethod
    def open(cls, folder: Path, noise: NoiseConfig) -> VectorDataset:
        """Map a folder and check the file size; raise ``RunError`` if it is damaged."""
        index = read_index(folder / "index.json", _VectorsIndex)
        try:
            with open_regular_file(folder / "vectors.bin") as stream:
                shape = (index.rows, index.width)
                if stream.seek(0, 2) != 4 * index.rows * index.width:
                    raise ValueError("vectors.bin has the wrong size")
                vectors = np.memmap(stream, "<f4", "r", 0, shape).view(np.ndarray)
        except (OSError, ValueError) as error:
            raise RunError("the stored vectors are damaged", where=str(folder)) from error
        return cls(vectors, index.sha256, noise)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return int(self.vectors.shape[1])

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """Return input and target lengths (n,): every vector counts as one token."""
        ones = np.ones(len(self), np.int32)
        return ones, ones

    def batch(self, indices: Ids, seed: int, epoch: int) -> VectorBatch:
        """Return the vectors at ``indices``, with this epoch's noisy copies as inputs."""
        clean = self.vectors[indices].astype(np.float32)
        target = torch.from_numpy(clean)
        if not self.noise.any:
            return VectorBatch(target, target)
        noisy = Noise(self.noise, seed, epoch).corrupt_vectors(clean, indices, self.mean.astype(np.float32))
        return VectorBatch(torch.from_numpy(noisy), target)

    def counts(self, indices: Ids, seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of vector elements at ``indices``."""
        return {"error": len(indices) * self.width}

    @functools.cached_property
    def mean(self) -> Floats:
        """Return the mean of each column (d,), computed block by block."""
        total = np.zeros(self.width)
        for start in range(0, len(self), _BLOCK):
            total += self.vectors[start : start + _BLOCK].sum(0, dtype=np.float64)
        return total / len(self)

    def spread(self, around: Floats) -> float:
        """Return the mean squared difference of all vectors from ``around`` (d,)."""
        total = 0.0
        for start in range(0, len(self), _BLOCK):
            total += float(np.square(self.vectors[start : start + _BLOCK] - around).sum())
        return total / (len(self) * self.width)


def write_vectors(folder: Path, blocks: Iterable[Vectors]) -> int:
    """Write blocks of vectors (n, d) to a new folder and return their total number.

    If there are no vectors, the files are empty and the caller must reject them.
    """
    digest, n_rows, width = hashlib.sha256(), 0, 0
    atomic.make_dirs(folder)
    with atomic.create_exclusive(folder / "vectors.bin") as stream:
        for block in blocks:
            if not len(block):
                continue
            data = np.ascontiguousarray(block, "<f4").tobytes()
            digest.update(data)
            stream.write(data)
            n_rows, width = n_rows + len(block), block.shape[1]
    digest.update(str(width).encode())
    index: dict[str, Any] = {"format": FORMAT, "rows": n_rows, "width": width, "sha256": digest.hexdigest()}
    atomic.write_new_file(folder / "index.json", json.dumps(index).encode())
    return n_rows
