"""Turn requests and signals to stop into errors with an exit code."""

from __future__ import annotations

from attnkit.checkpoints.torchrun import launch_facts
from attnkit.errors import StoppedError, exit_code


def stop_error(step: int) -> StoppedError:
    """Return the error of a requested stop after a saved checkpoint."""
    return StoppedError(f"stopped at step {step}; everything is saved", help="run the same command again to resume")


def is_launched_by_torchrun(world: int) -> bool:
    """Return whether this process is one of several ranks or was started by torchrun."""
    return world > 1 or bool(launch_facts())


def signal_to_stop(error: BaseException | None, step: int, world: int) -> StoppedError | None:
    """Return the requested stop that a signal's exception stands for, or None.

    A signal is a requested stop if ``step`` is saved. Under a launcher it always is: torchrun restarts processes that a
    signal ended.
    """
    if exit_code(error) not in (130, 143):
        return None
    if step:
        return stop_error(step)
    if is_launched_by_torchrun(world):
        return StoppedError("stopped before anything was saved", help="run the same command again to start over")
    return None
