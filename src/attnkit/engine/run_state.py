"""State of a run, read from its folder: newest and best checkpoint, scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_averaged, read_bounded, read_run_config, read_state
from attnkit.engine.resolve import differences
from attnkit.engine.run_config import RunSettings
from attnkit.errors import UsageError

Scores = dict[int, dict[str, float]]


@dataclass
class RunState:
    """State of a run: its newest checkpoint and all development scores."""

    folder: RunFolder
    config: RunSettings  #: the requested configuration
    checkpoint: Checkpoint | None = None  #: newest valid checkpoint when opened; None before the first save
    stored: dict[str, Any] = field(default_factory=dict)  #: content of its ``state.json``
    scores: Scores = field(default_factory=dict)  #: step -> development scores, updated during training
    warnings: list[str] = field(default_factory=list)  #: damage to newer checkpoints, and other warnings

    @classmethod
    def load(cls, folder: RunFolder, config: RunSettings) -> RunState:
        """Load the state of a run. Raises ``RunError`` if all checkpoints are damaged."""
        # Damaged newer checkpoints are skipped with a warning.
        checkpoint, warnings = folder.newest()
        if checkpoint is None:
            return cls(folder, config, warnings=warnings)
        # Validated, as the folder may come from an unknown source.
        stored = read_state(checkpoint)
        scores = {int(step): metrics for step, metrics in stored["scores"].items()}
        return cls(folder, config, checkpoint, stored, scores, warnings)

    def texts(self) -> dict[str, bytes]:
        """Return the vocabulary and label files of the checkpoint, name -> content."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            return {}
        named = {name: most for name, most in TEXT_FILES.items() if name in checkpoint.manifest.files}
        return {name: read_bounded(checkpoint, name, most) for name, most in named.items()}

    def check_compatible(self, init_from: Path | None) -> None:
        """Raise ``UsageError`` if the run was started with other settings or weights."""
        if self.checkpoint is None:
            return
        changed = differences(read_run_config(self.checkpoint), self.config)
        # "" for random weights, None if unknown; init_from is None if the run is resumed without the option.
        stored: str | None = self.stored.get("init_from")
        if init_from is not None and stored is not None:
            if not init_from.exists():
                self.warnings.append(f"no such run: {init_from}; resuming without it")
            elif (given := weights_fingerprint(RunFolder(init_from).checkpoint()[0])) != stored:
                old = f"weights {stored[:12]}" if stored else "none"
                changed.append(f"--init-from: {old} -> weights {given[:12]} (not needed to resume)")
        if changed:
            raise UsageError(
                f"this run was started with other settings: {'; '.join(changed)}",
                where=str(self.folder.path),
                help="use the same settings to resume, another -o, or --overwrite to start over",
            )

    @property
    def step(self) -> int:
        """Step of the newest checkpoint."""
        return self.checkpoint.step if self.checkpoint is not None else 0

    @property
    def best(self) -> str:
        """Name of the checkpoint that commands load by default."""
        return self.folder.best_name() or "last"

    def best_scores(self) -> Mapping[str, float]:
        """Return the development scores of the best checkpoint."""
        if (name := self.best) == "averaged":
            return self._averaged()[1]
        # ``step-N``, or ``last`` for the newest.
        return self.scores.get(self.step if name == "last" else int(name.removeprefix("step-")), {})

    @property
    def finished(self) -> str | None:
        """Reason why training ended, if no work is left; None otherwise."""
        if self.checkpoint is None:
            return None
        counters = self.stored["counters"]
        reason: str | None = counters["finished"]
        # Changed limits reopen a finished run.
        same = read_run_config(self.checkpoint).limits == self.config.limits
        # The run may have been killed between saving and evaluating the last step.
        if reason == "stopped" or counters.get("eval_pending") or not same:
            return None
        # The configured average may be missing or older than the newest checkpoint.
        there = (self.folder.path / "averaged").exists()
        return reason if self.n_averaged() < 2 or (there and self._averaged()[0] == self.step) else None

    def expected_best(self) -> str | None:
        """Return the checkpoint that ``best`` must name at the end, or None if deleted."""
        counters = self.stored["counters"]
        if self.n_averaged() > 1:
            step, metrics = self._averaged()
            if step == self.step and metrics and self.is_as_good(metrics, counters["best"]):
                return "averaged"
        best = counters.get("best_step")
        return f"step-{best}" if best in self.folder.steps() else None

    def is_as_good(self, metrics: Mapping[str, float], best: float | None) -> bool:
        """Return whether an average is at least as good as ``best`` by ``limits.metric``."""
        limits = self.config.limits
        sign = 1 if limits.higher_is_better else -1
        return best is None or sign * metrics[limits.metric] >= sign * best

    def scheduled_steps(self) -> list[int]:
        """Return the steps of checkpoints that an uninterrupted run would also save."""
        return scheduled_steps(self.folder.steps(), self.scores, self.config.checkpoints.save_every)

    def n_averaged(self) -> int:
        """Return the number of checkpoints to average."""
        return min(self.config.checkpoints.average, len(self.scheduled_steps()))

    def _averaged(self) -> tuple[int, dict[str, float]]:
        """Return the averaged checkpoint's step and its scores, empty if not evaluated."""
        # An averaged checkpoint has the step of the newest checkpoint at the time of averaging.
        checkpoint = self.folder.checkpoint("averaged")[0]
        return checkpoint.step, read_averaged(checkpoint)["metrics"]


def scheduled_steps(steps: Sequence[int], scored: Collection[int], every: int | None) -> list[int]:
    """Return the steps at which an uninterrupted run would also save.

    Checkpoints saved by an interruption must not affect the result.

    >>> scheduled_steps([4, 6, 7, 8], scored={4, 8}, every=3)
    [4, 6, 8]

    ``scored`` are the evaluated steps; every evaluation is followed by a save. ``every`` is ``checkpoints.save_every``.
    """
    return [step for step in steps if step in scored or (every is not None and step % every == 0)]


def weights_fingerprint(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of a checkpoint's weights, which identifies moved runs, too."""
    # Taken from the manifest, without reading the weights.
    return fingerprint_of(checkpoint)
