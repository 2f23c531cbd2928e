"""What a training run would be, without running it: parameters, memory, tokens an epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from attnkit.engine.run_config import RunConfig
from attnkit.runtime.devices import choose_device, choose_precision

_INITIALIZERS = (torch.Tensor.normal_, torch.Tensor.uniform_)


@dataclass(frozen=True)
class RunEstimate:
    """Figures of a run to be."""

    n_examples: int
    n_parameters: int
    tokens_per_epoch: int
    """Source and target tokens, estimated from the first lines of each file."""
    steps_per_epoch: int
    memory: int
    """Bytes that training takes at its height, estimated."""
    device: str
    precision: str
    unit: str = "pairs"
    """What an example is, for people."""


class SkipWeightInit(TorchFunctionMode):
    """Leaves out the drawing of weights: without memory it does nothing but import torch's compiler, for a second."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _INITIALIZERS or getattr(func, "__module__", "") == "torch.nn.init":
            return (kwargs or {}).get("tensor", *args[:1])
        return func(*args, **(kwargs or {}))


def estimate(
    config: RunConfig, n_examples: int, tokens: float, build: Callable[[], Any], n_classes: int, unit: str = "pairs"
) -> RunEstimate:
    """Return the figures of a run over so many tokens an epoch, for a model that chooses among ``n_classes``."""
    with torch.device("meta"), SkipWeightInit():
        model = build()
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    return RunEstimate(
        n_examples=n_examples,
        n_parameters=n_parameters,
        tokens_per_epoch=round(tokens),
        steps_per_epoch=max(1, round(tokens / (0.93 * config.optimization.batch_tokens))),
        memory=memory(config, n_parameters, n_classes, precision.itemsize),
        device=device.type,
        precision=str(precision).removeprefix("torch."),
        unit=unit,
    )


def memory(config: RunConfig, n_parameters: int, vocab_size: int, itemsize: int) -> int:
    """Estimate the bytes of weights, optimizer, gradients and activations of one micro-batch."""
    state = 16 + (2 * itemsize if itemsize < 4 else 0) + (4 if config.optimization.ema_decay else 0)
    tokens = config.optimization.batch_tokens / config.optimization.gradient_accumulation_steps
    activations: float = tokens * config.model.activation_floats_per_token * itemsize
    logits = min(tokens * vocab_size * 4, 64e6)
    return round(n_parameters * state + activations + logits + 350e6)


SAMPLE = 20_000
