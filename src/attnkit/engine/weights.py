"""Copy the weights of a checkpoint into a model, and serialize tensors."""

from __future__ import annotations

from collections.abc import Mapping

import safetensors.torch
import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import MODEL, read_tensors, tensors_of
from attnkit.models.translation import TranslationModel


def load_weights(model: torch.nn.Module | TranslationModel, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into a model.

    Raises:
        RunError: The weights do not fit the model or are not finite.
    """
    own = tensors_of(model)
    tensors = read_tensors(checkpoint, MODEL, own)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as safetensors bytes."""
    # safetensors refuses views; tied or flat parameters are views of one buffer.
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
