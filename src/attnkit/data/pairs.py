"""Encoded source-target pairs and their padded batches."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from attnkit.data.batch_plan import draw
from attnkit.data.config import DataConfig
from attnkit.data.loader import Sampler, TensorBatch
from attnkit.data.permutation import Bools, Ids, Sizes
from attnkit.data.store import FORMAT, Store, StoreWriter, read_index, store_writer
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID
from attnkit.text.encoding import EncodedLines

Ragged = tuple[Ids, Ids]  #: concatenated ids, and the length of each row


@dataclass(frozen=True)
class PairBatch(TensorBatch):
    """A padded batch of B pairs with N target tokens; lengths S and T include EOS."""

    src: Tensor  #: (B, S) int64, ids and EOS
    src_mask: Tensor | None  #: (B, S) bool, True at tokens; None if there is no padding
    tgt_in: Tensor  #: (B, T) int64, BOS and ids
    positions: Tensor  #: (N,) int64, flat indices into (B, T) of the positions that have a target
    targets: Tensor  #: (N,) int64, ids and EOS, in the order of ``positions``


@dataclass(frozen=True)
class Dropped:
    """Pairs left out of the training data because of their lengths in tokens."""

    too_long: int = 0
    ratio: int = 0

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


class _PairsIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``pairs.json``."""

    format: Literal[1]
    corpora: list[Annotated[int, Field(ge=0)]]
    dropped: Dropped


class Pairs:
    """Two parallel stores: row i of the target translates row i of the source."""

    def __init__(
        self, src: Store, tgt: Store, corpora: Sequence[int] | None = None, dropped: Dropped | None = None
    ) -> None:
        if len(src) != len(tgt):
            raise ValueError(f"{len(src)} source rows for {len(tgt)} target rows")
        self.src = src
        self.tgt = tgt
        self.corpora = (len(src),) if corpora is None else tuple(corpora)
        """Number of pairs per corpus, in corpus order."""
        self.dropped = dropped or Dropped()

    @classmethod
    def open(cls, folder: Path) -> Pairs:
        """Open the output of ``write_pairs``; raise ``RunError`` if a file is damaged."""
        path = folder / "pairs.json"
        index = read_index(path, _PairsIndex)
        src, tgt = Store.open(folder / "src"), Store.open(folder / "tgt")
        if not len(src) == len(tgt) == sum(index.corpora):
            what = "the encoded text is damaged: pairs.json does not match the two stores"
            raise RunError(what, where=str(path))
        return cls(src, tgt, index.corpora, index.dropped)

    def __len__(self) -> int:
        return len(self.src)

    @functools.cached_property
    def lengths(self) -> tuple[Sizes, Sizes]:
        """Return source and target lengths (n,), EOS included, in 8 bytes per pair."""
        src, tgt = self.src.lengths, self.tgt.lengths
        src += 1
        tgt += 1
        return src, tgt

    @property
    def fingerprint(self) -> str:
        """Hash of all ids, line boundaries and corpus boundaries."""
        parts = [self.src.fingerprint, self.tgt.fingerprint, self.corpora]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def batch(self, indices: Ids, seed: int = 0, epoch: int = 0) -> PairBatch:
        """Return the padded batch at ``indices``; raise ``ValueError`` if it is empty."""
        if not len(indices):
            raise ValueError("an empty batch has no tensors")
        return make_batch(*self.rows(indices, seed, epoch))

    def rows(self, indices: Ids, seed: int, epoch: int) -> tuple[Ragged, Ragged]:
        """Return the sources and targets at ``indices``, without special tokens."""
        return self.src.gather(indices), self.tgt.gather(indices)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the number of target tokens at ``indices``, EOS included."""
        return {"nll": int(self.lengths[1][indices].sum())}

    def sampler(self, weights: Sequence[float] | None) -> Sampler | None:
        """Return a sampler by corpus weights (``batch_plan.draw``); None: all pairs once."""
        if weights is not None and len(weights) != len(self.corpora):
            raise ValueError(f"{len(weights)} weights for {len(self.corpora)} corpora")
        if weights is None or set(weights) == {1.0}:
            return None
        return lambda seed, epoch: draw(self.corpora, weights, seed=seed, epoch=epoch)


def make_batch(src_rows: Ragged, tgt_rows: Ragged) -> PairBatch:
    """Build a padded batch from the rows of sources and targets."""
    src, src_real = _pad(*src_rows)
    tgt, tgt_real = _pad(*tgt_rows)
    tgt_in = np.full_like(tgt, PAD_ID)
    tgt_in[:, 0] = BOS_ID
    tgt_in[:, 1:] = np.where(tgt_real[:, 1:], tgt[:, :-1], PAD_ID)
    positions = np.flatnonzero(tgt_real)
    return PairBatch(
        src=torch.from_numpy(src),
        src_mask=None if src_real.all() else torch.from_numpy(src_real),
        tgt_in=torch.from_numpy(tgt_in),
        positions=torch.from_numpy(positions.astype(np.int64, copy=False)),
        targets=torch.from_numpy(tgt.reshape(-1)[positions]),
    )


def _pad(ids: Ids, lengths: Ids) -> tuple[Ids, Bools]:
    """Append EOS, pad rows to (B, longest + 1); return them and their token mask."""
    columns = np.arange(int(lengths.max()) + 1)
    padded = np.full((len(lengths), len(columns)), PAD_ID, np.int64)
    # Boolean indexing takes positions row by row, in the order of the concatenated ids.
    padded[columns < lengths[:, None]] = ids
    padded[np.arange(len(lengths)), lengths] = EOS_ID
    return padded, columns <= lengths[:, None]


def write_pairs(
    folder: Path, corpora: Sequence[Iterable[Sequence[EncodedLines]]], vocab_sizes: tuple[int, int], config: DataConfig
) -> Pairs:
    """Write encoded pairs within the length limits in bounded memory; open them.

    Args:
        folder: Folder to create atomically.
        corpora: For each pair of files, batches of sources and targets without special tokens.
        vocab_sizes: Sizes of the source and target vocabularies.
        config: Length limits ``max_length`` and ``max_ratio``; the counts of dropped pairs are stored.
    """
    kept: list[int] = []
    dropped = Dropped()
    with atomic.atomic_dir(folder) as temporary:
        for side in ("src", "tgt"):
            atomic.make_dirs(temporary / side)
        with (
            store_writer(temporary / "src", vocab_sizes[0]) as src,
            store_writer(temporary / "tgt", vocab_sizes[1]) as tgt,
        ):
            for batches in corpora:
                n_kept = 0
                for rows in batches:
                    n_added, dropped = _add((src, tgt), rows, config, dropped)
                    n_kept += n_added
                kept.append(n_kept)
        index: dict[str, Any] = {"format": FORMAT, "corpora": kept, "dropped": asdict(dropped)}
        atomic.write_new_file(temporary / "pairs.json", json.dumps(index).encode())
    return Pairs.open(folder)


def _add(
    writers: tuple[StoreWriter, StoreWriter], rows: Sequence[EncodedLines], config: DataConfig, dropped: Dropped
) -> tuple[int, Dropped]:
    src, tgt = (side.lengths.astype(np.int64) for side in rows)
    longest, shortest = np.maximum(src, tgt), np.minimum(src, tgt)
    fits = longest <= config.max_length
    keep = fits & (longest + 1 <= config.max_ratio * (shortest + 1))
    for writer, side in zip(writers, rows, strict=True):
        writer.add_encoded(side.select(keep))
    n_kept, n_fit = int(keep.sum()), int(fits.sum())
    return n_kept, Dropped(dropped.too_long + len(src) - n_fit, dropped.ratio + n_fit - n_kept)
