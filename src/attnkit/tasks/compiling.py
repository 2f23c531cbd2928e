"""A model's layers compiled by torch: fewer and larger kernels on a GPU; on CPUs it has gained nothing so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from attnkit.errors import SystemFailure, UsageError
from attnkit.models.layers import blocks_of
from attnkit.tasks.run_config import RunConfig


def compile_layers(module: nn.Module, config: RunConfig) -> None:
    """Let the layers of a model be compiled when they first compute, if the configuration says so.

    Each by itself: they are alike, so that one compilation serves them all. Names and weights stay as they are.

    Raises:
        UsageError: the model has no layers of this kind.
    """
    if not config.compiled:
        return
    blocks = blocks_of(module)
    if not blocks:
        raise UsageError("this kind of model has no layers to compile", where="compiled", help="leave it out")
    for block in blocks:
        block.compile()


@contextmanager
def compiling(config: RunConfig) -> Iterator[None]:
    """Tell of a compiler that is missing or fails in the words of a user.

    Raises:
        SystemFailure: in place of what the compiler raises.
    """
    if not config.compiled:
        yield
        return
    from torch._dynamo.exc import TorchDynamoException  # takes its time to import

    try:
        yield
    except TorchDynamoException as error:
        reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise SystemFailure(
            f"torch could not compile the model: {reason.strip()[:200]}",
            where="compiled",
            help="set compiled to false, or install what torch compiles with (a C++ compiler; Triton on a GPU)",
        ) from error
