"""Checkpoints of adapters: files, base weights and merging. Torch-free.

A checkpoint of an adapter has ``adapter.safetensors`` instead of ``model.safetensors``: the factors, and weights that
are trained in full beside them, such as a new head. RUN/base has the weights that it adapts, and ``adapter.json`` of
each checkpoint their checksum.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from attnkit.checkpoints.checkpoint import MODEL, Checkpoint, open_checkpoint
from attnkit.errors import RunError
from attnkit.io.safe_read import Entry
from attnkit.models.lora import LoraConfig, RowBlock, adapted_blocks, factor_names, factor_shapes, merge

ADAPTER = "adapter.safetensors"
DESCRIPTION = "adapter.json"
BASE = "base"  #: folder of a run, a checkpoint of the weights alone
_MAX_DESCRIPTION = 1 << 16  # bytes

Shapes = Mapping[str, tuple[int, ...]]
Arrays = Mapping[str, NDArray[np.float32]]


class AdapterDescription(BaseModel, frozen=True, extra="forbid", strict=True):
    """Content of ``adapter.json``."""

    base: Entry
    """Size and SHA-256 of the base's ``model.safetensors``."""
    lora: LoraConfig
    """Settings of the adapters."""
    whole: tuple[str, ...] = ()
    """Names of weights that are trained in full, and replace those of the base."""


class AdapterLayout(NamedTuple):
    """What the file of an adapter holds, and where it belongs in a model's weights."""

    lora: LoraConfig
    blocks: dict[str, list[RowBlock]]  #: weight name -> adapted rows
    shapes: Shapes  #: of all tensors of the file
    whole: tuple[str, ...]  #: names of weights that are replaced


def is_adapter(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint holds adapters instead of all weights."""
    return ADAPTER in checkpoint.manifest.files


def read_description(checkpoint: Checkpoint) -> AdapterDescription:
    """Return the description of an adapter; raise ``RunError`` if it is invalid."""
    where = str(checkpoint.path / DESCRIPTION)
    if checkpoint.entry(DESCRIPTION).size > _MAX_DESCRIPTION:
        raise RunError(f"invalid {DESCRIPTION}: too large", where=where)
    try:
        return AdapterDescription.model_validate_json(checkpoint.read(DESCRIPTION))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"
        raise RunError(f"invalid {DESCRIPTION}: {why}", where=where) from error


def describe_adapter(run: Path, lora: LoraConfig, whole: Iterable[str]) -> bytes:
    """Return ``adapter.json`` of a run with its base in RUN/base."""
    entry = open_checkpoint(run / BASE, BASE).entry(MODEL)
    described = AdapterDescription(base=entry, lora=lora, whole=tuple(sorted(whole)))
    return described.model_dump_json(indent=1).encode()


def whole_weights(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with all weights: itself, or the base of an adapter.

    Raises ``RunError`` if the base is missing or is not the one that the adapter was trained on.
    """
    if not is_adapter(checkpoint):
        return checkpoint
    run = checkpoint.path.parent if checkpoint.name == "averaged" else checkpoint.path.parent.parent
    base = checkpoint.base
    if base is None:
        if not (run / BASE).exists():
            help = f"give the run that it adapts, and --adapter {run}"
            raise RunError("the base of this adapter is missing", where=str(run / BASE), help=help)
        base = open_checkpoint(run / BASE, BASE)
    if base.entry(MODEL) != read_description(checkpoint).base:
        raise RunError("this adapter was trained on other weights", where=f"{run} on {base.path}")
    return base


def fingerprint_of(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 that identifies all weights, from the manifest alone."""
    if not is_adapter(checkpoint):
        return checkpoint.entry(MODEL).sha256
    both = read_description(checkpoint).base.sha256 + checkpoint.entry(ADAPTER).sha256
    return hashlib.sha256(both.encode()).hexdigest()


def adapter_layout(checkpoint: Checkpoint, shapes: Shapes) -> AdapterLayout:
    """Return the layout of an adapter's file; raise ``RunError`` for a misfit."""
    described = read_description(checkpoint)
    try:
        blocks = adapted_blocks(shapes, described.lora)
        held: dict[str, tuple[int, ...]] = {**factor_shapes(shapes, described.lora)}
        for name in described.whole:
            if name not in shapes or name in blocks or name in held:
                raise ValueError(f"'{name[:80]}' is {'adapted or named twice' if name in shapes else 'unknown'}")
            held[name] = shapes[name]
    except ValueError as error:
        raise RunError(f"the adapter does not fit the model: {error}", where=str(checkpoint.path)) from error
    return AdapterLayout(described.lora, blocks, held, described.whole)


def merge_factors(weights: dict[str, NDArray[np.float32]], file: Arrays, layout: AdapterLayout) -> None:
    """Merge an adapter into a model's weights, in place."""
    for name, parts in layout.blocks.items():
        a, b = factor_names(name)
        merge(weights[name], (file[a], file[b]), parts, layout.lora.scale)
    weights |= {name: file[name].copy() for name in layout.whole}


def n_factors(shapes: Shapes) -> int:
    """Return the number of trained weights."""
    return sum(math.prod(shape) for shape in shapes.values())
