"""A model's layers compiled by torch: fewer and larger kernels on a GPU; on CPUs it has gained nothing so far."""

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
"""Of the code of a layer: by what batches hold, training and precision there are a dozen at most."""
_Found = TypeVar("_Found")


class CompilerFailure(SystemFailure):
    """What torch compiles with is missing or failed, or was ended by a signal that came to all processes."""


def compile_layers(module: nn.Module, config: RunConfig, device: torch.device) -> None:
    """Let the layers of a model be compiled when they first compute, if the configuration says so.

    Each by itself: they are alike, so that one compilation serves them all, for sizes of any kind from the beginning.
    So what a step computes does not depend on the steps before it. Names and weights stay as they are.
    """
    if not config.torch_compile:
        return
    import torch._dynamo  # takes its time to import

    if device.type != "cpu":  # where it compiles in threads of this process
        _start_workers()
    torch._dynamo.config.recompile_limit = max(_MAX_VARIANTS, torch._dynamo.config.recompile_limit)
    for block in transformer_layers(module):
        block.compile(dynamic=True)


def _start_workers() -> None:
    """Start the processes that torch compiles in so that they do not hear SIGTERM.

    It often goes to a whole group of processes. Without them the training would wait forever for what they compile,
    rather than stop after its step. They end when their parent does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if hasattr(signal, "pthread_sigmask") else None
    try:
        with suppress(ImportError, AttributeError):  # torch's own names; without them it starts the processes later
            from torch._inductor.async_compile import AsyncCompile

            AsyncCompile.warm_pool()
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_eager(call: Callable[[nn.Module], _Found], config: RunConfig) -> Callable[[nn.Module], _Found]:
    """Return a function of a model that computes without what was compiled: for scores, of batches of all sizes."""
    if not config.torch_compile:
        return call

    def plain(model: nn.Module) -> _Found:
        with torch.compiler.set_stance("force_eager"):
            return call(model)

    return plain


@contextmanager
def compile_errors(config: RunConfig) -> Iterator[None]:
    """Tell of a compiler that is missing or fails in the words of a user.

    Raises:
        CompilerFailure: in place of what the compiler raises.
    """
    if not config.torch_compile:
        yield
        return
    from torch._dynamo.exc import TorchDynamoException  # takes its time to import

    try:
        yield
    except TorchDynamoException as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]  # which system, then what it says
        raise CompilerFailure(
            f"torch could not compile the model: {' '.join(said[:2])[:200]}",
            where="torch_compile",
            help="set torch_compile to false, or install what torch compiles with (a C++ compiler; Triton on a GPU)",
        ) from error
