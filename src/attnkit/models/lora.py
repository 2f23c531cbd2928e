"""LoRA (Hu et al. 2021): settings, adapted rows, merging. Torch-free.

An adapted weight is W + (alpha / r) B A (equation 3), with B (rows, r) and A (r, columns). Weights that hold several
maps, such as query, key and value, have a block of rows per map, each with its own B and A. The factors of a weight are
stored together: A (n r, columns) and B (n rows, r) for n blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate, cycle, pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, field_validator

MAX_RANK, MAX_ALPHA = 1024, 1e6
MapName = Literal["query", "key", "value", "output", "up", "gate", "down", "cells", "alignment", "bridge", "readout"]
"""Linear maps of the models: the first seven of Transformers, the others of recurrent models."""
_TRANSFORMER: tuple[MapName, ...] = ("query", "key", "value", "output", "up", "gate", "down")
KIND_MAPS: Mapping[str, tuple[MapName, ...]] = {
    "transformer": _TRANSFORMER,
    "bert": _TRANSFORMER,
    "gpt": _TRANSFORMER,
    "rnn": ("cells", "alignment", "bridge", "readout"),
}
"""Kind of model -> maps that may take adapters."""
Shapes = Mapping[str, tuple[int, ...]]

# The end of a weight's name, and the maps of its blocks of rows; of the memory's, repeated for all layers.
_WEIGHTS: tuple[tuple[str, tuple[MapName, ...]], ...] = (
    (r"attention\.projection\.weight", ("query", "key", "value")),
    (r"cross\.projection\.weight", ("query",)),
    (r"decoder\.memory\.weight", ("key", "value")),  # of all layers
    (r"(attention|cross)\.output\.weight", ("output",)),
    (r"feed_forward\.up\.weight", ("up",)),
    (r"feed_forward\.gate\.weight", ("gate",)),
    (r"feed_forward\.down\.weight", ("down",)),
    (r"(forwards|backwards|layers)\.\d+\.weight_[ih]h_l0", ("cells",)),
    (r"decoder\.align\.(keys|query)\.weight", ("alignment",)),
    (r"bridge\.maps\.\d+\.weight", ("bridge",)),
    (r"decoder\.readout\.weight", ("readout",)),
)
_PATTERNS = [(re.compile(rf"(.*\.)?{end}"), maps) for end, maps in _WEIGHTS]


class LoraConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Low-rank adapters (Hu et al. 2021), which are trained instead of the weights."""

    kind: Literal["lora"] = "lora"
    """Kind of adapter."""
    rank: int = Field(default=8, ge=1, le=MAX_RANK)
    """Rank r of the adapters; their size grows with it."""
    alpha: float = Field(default=16.0, gt=0, le=MAX_ALPHA)
    """Strength of the adapters, which are multiplied by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of the adapters' input; not applied to recurrent cells."""
    maps: tuple[MapName, ...] | None = Field(default=None, min_length=1)
    """Linear maps with adapters. Transformers: query, key, value, output, up, gate, down; recurrent models: cells,
    alignment, bridge, readout. Null: all that the model has."""

    @field_validator("maps")
    @classmethod
    def _check_maps(cls, maps: tuple[MapName, ...] | None) -> tuple[MapName, ...] | None:
        if maps is not None and len(set(maps)) < len(maps):
            raise ValueError("a map is named twice")
        return maps

    @property
    def scale(self) -> float:
        """Factor alpha / r of the adapters."""
        return self.alpha / self.rank


def check_adapter(lora: LoraConfig | None, kind: str, fsdp: bool) -> None:
    """Raise ``ValueError`` if adapters do not fit a kind of model or FSDP."""
    if lora is None:
        return
    if fsdp:
        raise ValueError("adapters cannot be trained with fsdp")
    if odd := [name for name in lora.maps or () if name not in KIND_MAPS[kind]]:
        raise ValueError(f"adapter.maps: '{odd[0]}' is not a map of {kind}; {', '.join(KIND_MAPS[kind])}")


class RowBlock(NamedTuple):
    """Rows of a weight that one pair of factors adapts."""

    map: MapName
    rows: slice


def adapted_blocks(shapes: Shapes, config: LoraConfig) -> dict[str, list[RowBlock]]:
    """Return weight name -> adapted blocks of rows, for parameters given by name.

    Raises ``ValueError`` if no parameter belongs to a map of ``maps``.
    """
    adapted: dict[str, list[RowBlock]] = {}
    for name, shape in shapes.items():
        blocks = row_blocks(name, shapes) if len(shape) == 2 else []
        if kept := [block for block in blocks if config.maps is None or block.map in config.maps]:
            adapted[name] = kept
    found = {block.map for blocks in adapted.values() for block in blocks}
    if missing := [name for name in config.maps or () if name not in found]:
        raise ValueError(f"the model has no map '{missing[0]}'")
    if not adapted:
        raise ValueError("the model has no map that takes an adapter")
    return adapted


def row_blocks(name: str, shapes: Shapes) -> list[RowBlock]:
    """Return the maps that a weight holds in blocks of rows, if they have names."""
    maps = next((maps for pattern, maps in _PATTERNS if pattern.fullmatch(name)), ())
    if not maps:
        return []
    ends = [0, *accumulate(_block_sizes(name, shapes, len(maps)))]
    return [RowBlock(m, slice(*rows)) for m, rows in zip(cycle(maps), pairwise(ends), strict=False)]


def _block_sizes(name: str, shapes: Shapes, n_maps: int) -> list[int]:
    """Return the number of rows of each block of a weight."""
    n_rows = shapes[name][0]
    if n_maps == 1:  # a map that stands alone may have any shape
        return [n_rows]
    if n_maps == 3:
        # As many rows of queries as the output map has columns; keys and values may have fewer heads.
        n_queries = shapes[name.removesuffix("projection.weight") + "output.weight"][1]
        n_kept = (n_rows - n_queries) // 2
        return [n_queries, n_kept, n_kept]
    # Keys and values of each layer, as wide as all heads together, which need not be the width of the model.
    layers = name.removesuffix("memory.weight") + "layers."
    n_layers = len({other.removeprefix(layers).partition(".")[0] for other in shapes if other.startswith(layers)})
    return [n_rows // (2 * n_layers)] * (2 * n_layers)


def factor_names(weight: str) -> tuple[str, str]:
    """Return the names of a weight's factors A and B.

    >>> factor_names("bridge.maps.0.weight")
    ('bridge.maps.0.lora.weight.A', 'bridge.maps.0.lora.weight.B')
    """
    module, _, own = weight.rpartition(".")
    return f"{module}.lora.{own}.A", f"{module}.lora.{own}.B"


def factor_shapes(shapes: Shapes, config: LoraConfig) -> dict[str, tuple[int, int]]:
    """Return name -> shape of all factors, for a model's parameters given by name."""
    factors = {}
    for name, blocks in adapted_blocks(shapes, config).items():
        n_rows = sum(block.rows.stop - block.rows.start for block in blocks)
        a, b = factor_names(name)
        factors[a], factors[b] = (len(blocks) * config.rank, shapes[name][1]), (n_rows, config.rank)
    return factors


def merge(
    weight: NDArray[np.float32],
    factors: tuple[NDArray[np.float32], NDArray[np.float32]],
    blocks: list[RowBlock],
    scale: float,
) -> None:
    """Add scale · B A to the blocks of a weight (rows, columns), in place."""
    a = np.split(factors[0], len(blocks))
    b = np.split(factors[1], np.cumsum([block.rows.stop - block.rows.start for block in blocks])[:-1])
    for block, own_a, own_b in zip(blocks, a, b, strict=True):
        weight[block.rows] += np.float32(scale) * (own_b @ own_a)
