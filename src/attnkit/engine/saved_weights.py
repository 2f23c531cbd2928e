"""Weights in the checkpoints of a run: all of them, or adapters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnkit.checkpoints.adapters import ADAPTER, DESCRIPTION, describe_adapter, whole_weights
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint, Content
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import OPTIMIZER, load_weights, read_tensors, tensors_of, to_bytes
from attnkit.data.prepared_dir import StatusEvent
from attnkit.errors import UsageError
from attnkit.models.lora import LoraConfig
from attnkit.training.flat_optimizer import Tensors

if TYPE_CHECKING:
    from attnkit.training.state import ParameterStore


class SavedWeights:
    """Weights and optimizer state of a run, in the form of its checkpoints.

    With adapters, checkpoints hold all that is trained and its moments; the frozen weights lie in RUN/base.
    """

    def __init__(self, store: ParameterStore, folder: RunFolder, lora: LoraConfig | None) -> None:
        self._store, self._folder, self._lora = store, folder, lora
        self.file = MODEL if lora is None else ADAPTER
        self._trained = {name for name, parameter in store.model.named_parameters() if parameter.requires_grad}

    def snapshot(self) -> Callable[[], Mapping[str, Content]]:
        """Return a function that serializes the weights before the next step."""
        # Views, which the next step changes.
        model, optimizer = self._held(self._store.tensors())
        return lambda: {**self.contents(model), OPTIMIZER: to_bytes(optimizer)}

    def contents(self, model: Mapping[str, Tensor]) -> dict[str, Content]:
        """Return the files of the given weights or adapters."""
        if self._lora is None:
            return {self.file: to_bytes(model)}
        whole = [name for name in self._trained if ".lora." not in name]
        return {self.file: to_bytes(model), DESCRIPTION: describe_adapter(self._folder.path, self._lora, whole)}

    def read(self, checkpoint: Checkpoint) -> Tensors:
        """Return all weights and the optimizer state of a checkpoint."""
        own = self._store.shapes()
        model, optimizer = (
            read_tensors(checkpoint, file, held)
            for file, held in zip((self.file, OPTIMIZER), self._held(own), strict=True)
        )
        # The frozen weights are those that the model already has.
        return {**own[0], **model}, {**own[1], **optimizer}

    def average(self, checkpoints: Iterable[Checkpoint]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the mean of checkpoints as they hold it, and as all weights.

        Of adapters, it is the mean of each factor.
        """
        from attnkit.engine.averaging import average

        own = self._store.shapes()
        held = self._held(own)[0]
        mean = average(read_tensors(checkpoint, self.file, held) for checkpoint in checkpoints)
        return mean, {**own[0], **mean}

    def _held(self, tensors: Tensors) -> Tensors:
        if self._lora is None:
            return tensors
        model, optimizer = tensors
        return (
            {name: tensor for name, tensor in model.items() if name in self._trained},
            # "exp_avg.NAME"
            {name: tensor for name, tensor in optimizer.items() if name.partition(".")[2] in self._trained},
        )


def set_up_adapters(
    model: torch.nn.Module, lora: LoraConfig, folder: RunFolder, resumed: Checkpoint | None, is_writer: bool
) -> None:
    """Add adapters to a model with the initial weights, which are saved in RUN/base.

    For a resumed run, the weights are loaded from there. Raises ``UsageError`` if the model has no such maps.
    """
    if resumed is not None:
        load_weights(model, whole_weights(resumed))
    elif is_writer:
        folder.save_base({MODEL: to_bytes(tensors_of(model))})
    add_adapters(model, lora)


def count_trained(model: torch.nn.Module) -> StatusEvent:
    """Return how many weights a run of adapters trains, and how many are a head's."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    trained = {name: sizes[name] for name, parameter in model.named_parameters() if parameter.requires_grad}
    n_factors = sum(size for name, size in sizes.items() if ".lora." in name)
    n_whole = sum(trained.values()) - n_factors
    head = f" and a head of {n_whole:,}" if n_whole else ""
    share = (n_factors + n_whole) / (sum(sizes.values()) - n_factors)
    return StatusEvent(f"training adapters of {n_factors:,} weights{head}, {share:.1%} of the model's")


def add_adapters(model: torch.nn.Module, lora: LoraConfig) -> None:
    """Freeze a model and add adapters; raise ``UsageError`` if it has no such maps."""
    from attnkit.models.lora_layers import add_lora  # imported here: most runs have no adapters

    try:
        add_lora(model, lora)
    except ValueError as error:
        raise UsageError(str(error), where="adapter.maps", help="leave adapter.maps out for all maps") from error
