"""TensorBoard logging (``tensorboard: true``; needs the extra ``tensorboard``)."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnkit.checkpoints.run_folder import check_not_symlink
from attnkit.errors import UsageError
from attnkit.training.records import EvaluationRecord, StepRecord

_EVERY = 10  # steps


def check_tensorboard() -> None:
    """Raise ``UsageError`` if the package is missing; imports neither it nor torch."""
    try:
        found = find_spec("tensorboard")
    except ValueError:  # a module without a specification
        found = None
    if found is None:
        what, help = "TensorBoard is not installed", 'pip install "attnkit[tensorboard]", or leave out --tensorboard'
        raise UsageError(what, where="tensorboard", help=help)


class TensorBoardLogger:
    """Writer of TensorBoard event files."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Open event files; purge scalars after ``step``, at which training resumes."""
        check_not_symlink(folder)
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, record: StepRecord | EvaluationRecord) -> None:
        """Write the scalars of a record."""
        if isinstance(record, EvaluationRecord):
            # Development scores once per evaluation, training metrics every tenth step.
            for name, value in record.metrics.items():
                self._writer.add_scalar(f"dev/{name}", value, record.step)
        elif record.step % _EVERY == 0:
            for name in ("loss", "learning_rate", "grad_norm"):
                self._writer.add_scalar(f"train/{name}", getattr(record, name), record.step)

    def close(self) -> None:
        """Close the event files."""
        self._writer.close()
