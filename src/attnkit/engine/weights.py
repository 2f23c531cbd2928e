"""Copy the weights of a checkpoint into a model, check them, and serialize tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import safetensors.torch
import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import MODEL, OPTIMIZER, read_tensors, tensors_of
from attnkit.engine.checkpoint_metadata import read_averaged, read_state
from attnkit.engine.run_config import RunConfig
from attnkit.models.translation import TranslationModel


def load_weights(model: torch.nn.Module | TranslationModel, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into a model.

    Raises:
        RunError: The weights do not fit the model or are not finite.
    """
    # Names and shapes that the checkpoint must have, no more and no less.
    own = tensors_of(model)
    tensors = read_tensors(checkpoint, MODEL, own)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as safetensors bytes."""
    # safetensors refuses views; tied or flat parameters are views of one buffer.
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def find_weight_errors(
    checkpoint: Checkpoint, model: torch.nn.Module | TranslationModel, config: RunConfig
) -> Iterator[str]:
    """Yield why the weights, moments or state of a checkpoint cannot be used; the first errors are raised."""
    expected = tensors_of(model)
    read_tensors(checkpoint, MODEL, expected)
    if checkpoint.name == "averaged":
        read_averaged(checkpoint)
        return
    read_state(checkpoint)
    if checkpoint.step == 0 and OPTIMIZER not in checkpoint.manifest.files:
        return  # an imported run, not trained yet
    # Buffers have no moments.
    trained = {name: tensor for name, tensor in expected.items() if isinstance(tensor, torch.nn.Parameter)}
    kinds = ["exp_avg", "exp_avg_sq", *(["weights"] if config.optimization.ema_decay is not None else [])]
    buffers = {f"{kind}.{name}": tensor for kind in kinds for name, tensor in trained.items()}
    for name, tensor in read_tensors(checkpoint, OPTIMIZER, buffers).items():
        if not bool(torch.isfinite(tensor).all()):
            yield f"{OPTIMIZER} of checkpoint {checkpoint.name} cannot be used: '{name}' is not finite"
            return
