"""Training driver of all tasks: lock, prepare, restore, train, save, finish.

A task provides a ``TrainingSession``, which decides what is computed and with which library. Torch-free.
"""

from collections.abc import Generator
from contextlib import closing

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.checkpointing import RunWriter, stop_error
from attnkit.engine.events import Event, TrainingFinished, TrainingStarted, TrainRequest, ValidationFinished
from attnkit.engine.task import task_of
from attnkit.errors import UsageError
from attnkit.runtime.signals import release_free_memory

__all__ = ["Event", "StatusEvent", "TrainRequest", "TrainingFinished", "TrainingStarted", "ValidationFinished", "train"]

_RELEASE_EVERY = 20  # steps; each release takes about a millisecond


def train(request: TrainRequest) -> Generator[Event, None, None]:
    """Train a new run, or resume a run with the same configuration; yield events.

    Raises ``UsageError`` if the folder contains a run with another configuration, ``DivergedError`` if ten consecutive
    steps were not finite, ``StoppedError`` after a stop request, with a checkpoint saved by this or an earlier call.
    """
    if request.init_from is not None and request.init_from.resolve() == request.path.resolve():
        raise UsageError("a run cannot be initialized from itself", where="--init-from", help="choose another -o")
    if getattr(request.config, "tensorboard", False):
        from attnkit.engine.tensorboard import check_tensorboard

        check_tensorboard()
    # Imports and checks come before anything is locked or written and before other ranks wait.
    task = task_of(request.config)
    session = task.session(request)
    if session is None:
        from attnkit.engine.gradient_session import GradientSession  # imports torch

        session = GradientSession(task, request)
    with session.join() as ranks, closing(session), RunWriter(request, session, ranks) as writer:
        yield from map(WarningEvent, writer.warnings)
        n_warnings = len(writer.warnings)
        # Running the same command on a finished run repairs it and reports its result. One that was ended between its
        # last step and its end is resumed, if anything is missing.
        if writer.run_state.finished is not None and (
            writer.was_finished or task.is_complete(request.config, request.path)
        ):
            writer.repair_finished()
            yield session.outcome(writer.run_state, already=True)
            return
        with ranks.guard_collectives():
            # Data: rank 0 encodes the text while the others wait, then every rank maps it.
            with ranks.synchronized():
                if writer.is_writer:
                    yield from session.prepare(writer)
            # Model and optimizer: new, from another run, or from the newest checkpoint.
            with ranks.synchronized():
                messages = session.setup(writer)
            yield from [*messages, *map(WarningEvent, writer.warnings[n_warnings:])]
            yield session.started()
            # Training loop: a record is saved before it is yielded, so the caller may stop at any record.
            records = session.records()
            while True:
                record = None
                with session.step_errors():
                    # The loop computes inside next(): errors surface here, not where the record is used.
                    record = next(records, None)
                if record is None:
                    break
                session.log_and_save(record, writer)
                if session.step % _RELEASE_EVERY == 0:
                    release_free_memory()
                yield session.event(record)
            # Saved again, as the stop may have come between two scheduled saves.
            if session.state.finished == "stopped":
                writer.save()
                raise stop_error(session.step)
            yield from session.finalize(writer)
            writer.finish()
            yield session.outcome(writer.run_state, already=False)
