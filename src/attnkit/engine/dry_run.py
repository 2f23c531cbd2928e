"""Estimate a training run without running it: parameters, memory, tokens per epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from attnkit.engine.run_config import RunConfig
from attnkit.engine.task import RunEstimate
from attnkit.runtime.devices import choose_device, choose_precision

_INITIALIZERS = (torch.Tensor.normal_, torch.Tensor.uniform_)


class SkipWeightInit(TorchFunctionMode):
    """Skips the random initialization of weights.

    On the meta device initialization has no effect, but it imports torch's compiler, which takes a second.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # The tensor is returned unchanged, as initializers do.
        if func in _INITIALIZERS or getattr(func, "__module__", "") == "torch.nn.init":
            return (kwargs or {}).get("tensor", *args[:1])
        return func(*args, **(kwargs or {}))


def estimate(
    config: RunConfig, n_examples: int, tokens: float, build: Callable[[], Any], n_classes: int, unit: str = "pairs"
) -> RunEstimate:
    """Return the figures of a run of ``tokens`` per epoch, for a model with ``n_classes`` outputs."""
    # Shapes without memory: parameters are counted, never allocated.
    with torch.device("meta"), SkipWeightInit():
        model = build()
    # Tied weights are one parameter.
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    return RunEstimate(
        n_examples=n_examples,
        n_parameters=n_parameters,
        tokens_per_epoch=round(tokens),
        # 0.93: batches of whole sentences fill about that much of batch_tokens.
        steps_per_epoch=max(1, round(tokens / (0.93 * config.optimization.batch_tokens))),
        memory=memory(config, n_parameters, n_classes, precision.itemsize),
        device=device.type,
        precision=str(precision).removeprefix("torch."),
        unit=unit,
    )


def memory(config: RunConfig, n_parameters: int, vocab_size: int, itemsize: int) -> int:
    """Estimate the bytes of weights, optimizer, gradients and activations of one micro-batch."""
    # float32 weight, gradient and two Adam moments: 16 bytes per parameter.
    state = 16 + (2 * itemsize if itemsize < 4 else 0) + (4 if config.optimization.ema_decay else 0)
    # Activations live for one micro-batch.
    tokens = config.optimization.batch_tokens / config.optimization.gradient_accumulation_steps
    activations: float = tokens * config.model.activation_floats_per_token * itemsize
    # Cross-entropy is computed in chunks over a reused buffer, hence the bound.
    logits = min(tokens * vocab_size * 4, 64e6)
    # 350 MB: the process without a model, torch imported.
    return round(n_parameters * state + activations + logits + 350e6)


# Lines per file that are encoded to estimate tokens.
SAMPLE = 20_000
