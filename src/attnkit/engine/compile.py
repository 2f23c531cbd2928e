"""Compile a model's layers with ``torch.compile``: fewer kernels on a GPU, no measured gain on a CPU."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
from torch import nn

from attnkit.engine.run_config import RunConfig
from attnkit.errors import SystemFailure
from attnkit.models.layers import transformer_layers

_MAX_VARIANTS = 64
"""Compiled variants per layer: batch contents, mode and precision give at most a dozen."""
_Found = TypeVar("_Found")


class CompilerFailure(SystemFailure):
    """The compiler that torch needs is missing, failed, or was ended by a signal to the process group."""


def compile_layers(module: nn.Module, config: RunConfig, device: torch.device) -> None:
    """Mark each layer for compilation at its first call, if ``torch_compile`` is set.

    Layers are compiled one by one: they are alike, so one compilation serves them all. Sizes are dynamic from the
    start, so a step's result does not depend on the steps before it. Parameter names do not change.
    """
    if not config.torch_compile:
        return
    import torch._dynamo  # slow to import

    if device.type != "cpu":  # on a CPU torch compiles in threads of this process
        _start_workers()
    # Beyond the limit torch falls back to eager code silently.
    torch._dynamo.config.recompile_limit = max(_MAX_VARIANTS, torch._dynamo.config.recompile_limit)
    for block in transformer_layers(module):
        block.compile(dynamic=True)


def _start_workers() -> None:
    """Start torch's compiler processes with SIGTERM blocked.

    SIGTERM often goes to a whole process group. If it ended the compiler processes, the training would wait for them
    forever instead of stopping after its step. They end with their parent.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if hasattr(signal, "pthread_sigmask") else None
    try:
        with suppress(ImportError, AttributeError):  # private names of torch; without them the processes start later
            from torch._inductor.async_compile import AsyncCompile

            AsyncCompile.warm_pool()
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_eager(call: Callable[[nn.Module], _Found], config: RunConfig) -> Callable[[nn.Module], _Found]:
    """Return ``call`` without compiled code: evaluation has batches of many sizes, each a new compilation."""
    if not config.torch_compile:
        return call

    def plain(model: nn.Module) -> _Found:
        # A stance, not a copy: the compiled layers stay ready for the next step.
        with torch.compiler.set_stance("force_eager"):
            return call(model)

    return plain


@contextmanager
def compile_errors(config: RunConfig) -> Iterator[None]:
    """Turn errors of torch's compiler into a ``CompilerFailure`` with a help line."""
    if not config.torch_compile:
        yield
        return
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    try:
        yield
    except TorchDynamoException as error:
        message = [line.strip() for line in str(error).splitlines() if line.strip()]  # the backend, then its message
        raise CompilerFailure(
            f"torch could not compile the model: {' '.join(message[:2])[:200]}",
            where="torch_compile",
            help="set torch_compile to false, or install torch's compiler (a C++ compiler; Triton on a GPU)",
        ) from error
