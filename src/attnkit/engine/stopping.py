"""What it means to be asked to stop: by a signal, before training listens for one, or while it does."""

from __future__ import annotations

from attnkit.checkpoints.torchrun import launch_facts
from attnkit.errors import StoppedError, exit_code


def stop_error(step: int) -> StoppedError:
    """Return the error that tells of a stop with a checkpoint."""
    return StoppedError(f"stopped at step {step}; everything is saved", help="the same command again goes on")


def is_launched_by_torchrun(world: int) -> bool:
    """Return whether something other than a person started this process: one of several, or torchrun's."""
    return world > 1 or bool(launch_facts())


def signal_to_stop(error: BaseException | None, step: int, world: int) -> StoppedError | None:
    """Return the stop that a signal's exception amounts to; None where it is none, and ends a command as any other.

    It is one where nothing is lost, since ``step`` is saved, or where a launcher would undo it by starting anew.
    """
    if exit_code(error) not in (130, 143):
        return None
    if step:
        return stop_error(step)
    if is_launched_by_torchrun(world):
        return StoppedError("stopped before anything was saved", help="the same command again starts afresh")
    return None
