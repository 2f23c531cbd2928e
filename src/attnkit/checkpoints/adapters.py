"""Checkpoints of adapters: files, base weights and merging. Torch-free.

A checkpoint of an adapter has ``adapter.safetensors`` instead of ``model.safetensors``. RUN/base has the weights that
it adapts, and ``adapter.json`` of each checkpoint their checksum.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

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


def describe_adapter(run: Path, lora: LoraConfig) -> bytes:
    """Return ``adapter.json`` of a run with its base in RUN/base."""
    entry = open_checkpoint(run / BASE, BASE).entry(MODEL)
    return AdapterDescription(base=entry, lora=lora).model_dump_json(indent=1).encode()


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


def adapter_layout(checkpoint: Checkpoint, shapes: Shapes) -> tuple[LoraConfig, dict[str, list[RowBlock]], Shapes]:
    """Return the settings, adapted blocks and factor shapes for a model's weights."""
    lora = read_description(checkpoint).lora
    try:
        return lora, adapted_blocks(shapes, lora), factor_shapes(shapes, lora)
    except ValueError as error:
        raise RunError(f"the adapter does not fit the model: {error}", where=str(checkpoint.path)) from error


def merge_factors(weights: Arrays, factors: Arrays, lora: LoraConfig, blocks: Mapping[str, list[RowBlock]]) -> None:
    """Merge adapters into a model's weights, in place."""
    for name, parts in blocks.items():
        a, b = factor_names(name)
        merge(weights[name], (factors[a], factors[b]), parts, lora.scale)


def n_factors(shapes: Shapes) -> int:
    """Return the number of trained weights."""
    return sum(math.prod(shape) for shape in shapes.values())
