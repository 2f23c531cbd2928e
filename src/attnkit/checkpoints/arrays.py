"""Checked reading of a checkpoint's safetensors files. Torch-free."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.checkpoints.adapters import ADAPTER, adapter_layout, is_adapter, merge_factors, whole_weights
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.errors import RunError
from attnkit.io.safe_read import ITEM_BYTES, TensorEntry, parse_json, tensor_entries
from attnkit.models.config import ModelConfig
from attnkit.models.layer_config import ties_sides

Layout = Mapping[str, tuple[str, tuple[int, ...]]]  #: expected tensors: name -> (dtype, shape), by safetensors names
_PREFIX = 8  # bytes at the start of a file that give the length of its header
_ENTRY = 1 << 10  # maximum header bytes per tensor


def check_file_holds_weights(checkpoint: Checkpoint, config: ModelConfig, vocab_sizes: tuple[int, int]) -> None:
    """Raise ``RunError`` if the weight file is too small or a vocabulary does not fit.

    It is called before the model is built, so that a crafted configuration cannot exhaust the memory.
    """
    if ties_sides(config.tie_embeddings) and vocab_sizes[0] != vocab_sizes[1]:
        raise misfit(
            checkpoint,
            MODEL,
            f"a joint vocabulary is needed, not two with {vocab_sizes[0]} and {vocab_sizes[1]} entries",
        )
    check_min_parameters(checkpoint, config.min_parameters(*vocab_sizes))


def check_min_parameters(checkpoint: Checkpoint, n_weights: int) -> None:
    """Raise ``RunError`` if the weight file is too short for ``n_weights`` numbers."""
    checkpoint = whole_weights(checkpoint)
    size, least = checkpoint.entry(MODEL).size, 4 * n_weights
    if size < least:
        raise misfit(checkpoint, MODEL, f"the file has {size:,} bytes, expected at least {least:,}")


def read_entries(checkpoint: Checkpoint, file: str, expected: Layout) -> tuple[bytes, dict[str, TensorEntry]]:
    """Return a file's bytes and tensor entries; raise ``RunError`` if unexpected."""
    size = checkpoint.entry(file).size
    least = sum(ITEM_BYTES[dtype] * math.prod(shape) for dtype, shape in expected.values())
    # Check the size before anything is read.
    if not least < size <= least + _PREFIX + _ENTRY * (1 + len(expected)):
        raise misfit(checkpoint, file, f"the file has {size:,} bytes, expected about {least:,}")
    raw = checkpoint.read(file)
    try:
        return raw, check_header(raw, expected)
    except ValueError as error:
        raise misfit(checkpoint, file, str(error)) from error


def read_arrays(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Return a model's weights; raise ``RunError`` if unexpected or not finite.

    Adapters are merged.
    """
    arrays = _read_floats(whole_weights(checkpoint), MODEL, shapes)
    if is_adapter(checkpoint):
        merge_adapter(checkpoint, arrays)
    return arrays


def merge_adapter(checkpoint: Checkpoint, weights: dict[str, NDArray[np.float32]]) -> None:
    """Replace adapted weights by their merged copies; raise ``RunError`` for a misfit."""
    layout = adapter_layout(checkpoint, {name: array.shape for name, array in weights.items()})
    tensors = _read_floats(checkpoint, ADAPTER, layout.shapes)
    weights |= {name: weights[name].copy() for name in layout.blocks}  # the file's bytes cannot be written
    merge_factors(weights, tensors, layout)


def _read_floats(checkpoint: Checkpoint, file: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return float32 arrays of a file; raise ``RunError`` if unexpected or not finite."""
    raw, entries = read_entries(checkpoint, file, {name: ("F32", shape) for name, shape in shapes.items()})
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in entries.items():
        array = np.frombuffer(raw, "<f4", math.prod(entry.shape), entry.begin).reshape(entry.shape)
        if not np.isfinite(array).all():
            raise RunError(f"the weights '{name}' are not finite", where=str(checkpoint.path))
        arrays[name] = array
    return arrays


def check_header(raw: bytes, expected: Layout) -> dict[str, TensorEntry]:
    """Return the entries of safetensors bytes; raise ``ValueError`` if unexpected."""
    n_header = int.from_bytes(raw[:_PREFIX], "little")
    begin = _PREFIX + n_header
    if not begin <= len(raw) or n_header > _ENTRY * (1 + len(expected)):
        raise ValueError("the header is too long")
    header = parse_json(raw[_PREFIX:begin])
    entries = tensor_entries(header, begin, len(raw))
    if odd := header.keys() ^ expected.keys():
        raise ValueError(f"tensor '{min(odd)[:80]}' is {'missing' if min(odd) in expected else 'unknown'}")
    for name, wanted in expected.items():
        if entries[name][:2] != wanted:
            stored, shape = entries[name][:2]
            raise ValueError(f"'{name}' is {stored} {[*shape]}"[:80] + f", not {wanted[0]} {[*wanted[1]]}")
    return entries


def misfit(checkpoint: Checkpoint, file: str, why: str) -> RunError:
    """Return the error of weights that do not fit the configuration."""
    what = f"the weights do not fit the configuration: {why}"
    help = "leave out --set model.KEY, or copy the run anew: its files do not belong together"
    return RunError(what, where=str(checkpoint.path / file), help=help)
