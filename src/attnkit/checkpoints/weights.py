"""Weights in safetensors files, with checks of size, header and finite values."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from attnkit.checkpoints.adapters import ADAPTER, adapter_layout, is_adapter, whole_weights
from attnkit.checkpoints.arrays import Layout, merge_adapter, misfit, read_entries
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.errors import RunError
from attnkit.training.flat_optimizer import buffers_of

OPTIMIZER = "optimizer.safetensors"
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}
"""Dtypes of tensors in checkpoints -> safetensors names."""


def tensors_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: parameters (tied ones once) and buffers."""
    return dict(model.named_parameters()) | buffers_of(model)


def read_tensors(checkpoint: Checkpoint, file: str, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a file's tensors; raise ``RunError`` if they are unexpected or not finite.

    Adapters are merged into the weights of ``model.safetensors``.
    """
    if file == MODEL and is_adapter(checkpoint):
        tensors = read_tensors(whole_weights(checkpoint), MODEL, expected)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.dtype == torch.float32}
        merge_adapter(checkpoint, arrays)
        return tensors | {name: torch.from_numpy(array) for name, array in arrays.items()}
    raw, _ = read_entries(checkpoint, file, layout_of(expected))
    try:
        tensors = safetensors.torch.load(raw)
    except (ValueError, safetensors.SafetensorError) as error:
        raise misfit(checkpoint, file, str(error)) from error
    broken = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if broken and file in (MODEL, ADAPTER):
        raise RunError(f"the weights '{broken[0]}' are not finite", where=str(checkpoint.path))
    return tensors


def layout_of(tensors: Mapping[str, Tensor]) -> Layout:
    """Return the names, dtypes and shapes of tensors."""
    return {name: (DTYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}


def held_weights(checkpoint: Checkpoint, expected: Mapping[str, Tensor]) -> tuple[str, Mapping[str, Tensor]]:
    """Return the weight file of a checkpoint and its tensors, for a model's tensors.

    Those of an adapter are its factors and the weights beside them, on "meta".
    """
    if not is_adapter(checkpoint):
        return MODEL, expected
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    held = adapter_layout(checkpoint, shapes).shapes
    return ADAPTER, {name: torch.empty(shape, device="meta", requires_grad=True) for name, shape in held.items()}


def load_weights(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Copy weights into a model; raise ``RunError`` for misfit or non-finite weights."""
    # The checkpoint must have exactly these names and shapes.
    own = tensors_of(model)
    tensors = read_tensors(checkpoint, MODEL, own)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def safetensors_header(shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Return the start of a safetensors file of float32 tensors, in their order."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


def to_chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file of float32 tensors, which are not copied.

    Its bytes are those of ``to_bytes``, so that the same weights have the same checksum.
    """
    ordered = dict(sorted(tensors.items()))
    yield safetensors_header({name: tensor.shape for name, tensor in ordered.items()})
    for tensor in ordered.values():
        assert tensor.dtype == torch.float32
        yield tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors in the safetensors format."""
    # safetensors rejects views, and tied or flat parameters are views of one buffer.
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
