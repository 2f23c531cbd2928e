"""Write TensorBoard event files (``tensorboard: true``; needs the extra ``tensorboard``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnkit.checkpoints.run_folder import check_not_symlink
from attnkit.errors import UsageError
from attnkit.training.records import EvaluationRecord, StepRecord

_EVERY = 10  # steps


class TensorBoardLogger:
    """Writes scalars to a folder; without a folder it writes nothing."""

    def __init__(self, folder: Path | None, step: int = 0) -> None:
        """Open the event files; scalars of steps after ``step``, at which training resumes, are purged."""
        self._writer: Any = None
        if folder is None:
            return
        check_not_symlink(folder)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                "TensorBoard is not installed", where="tensorboard", help='pip install "attnkit[tensorboard]"'
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, record: StepRecord | EvaluationRecord) -> None:
        """Write the scalars of a record."""
        if self._writer is None:
            return
        if isinstance(record, EvaluationRecord):
            for name, value in record.metrics.items():
                self._writer.add_scalar(f"dev/{name}", value, record.step)
        elif record.step % _EVERY == 0:
            for name in ("loss", "learning_rate", "grad_norm"):
                self._writer.add_scalar(f"train/{name}", getattr(record, name), record.step)

    def close(self) -> None:
        """Close the event files."""
        if self._writer is not None:
            self._writer.close()
