"""Where a run stands, by what its folder holds: how far it came, what is best, what is left to do. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.averaging import scheduled_steps
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_averaged, read_bounded, read_run_config, read_state
from attnkit.engine.resolve import differences
from attnkit.engine.run_config import RunConfig
from attnkit.errors import UsageError
from attnkit.text.vocabulary_schema import MAX_BYTES

Scores = dict[int, dict[str, float]]


@dataclass
class RunState:
    """What was found in a run folder, and the scores that came in since."""

    folder: RunFolder
    config: RunConfig
    """What is asked of the run now."""
    checkpoint: Checkpoint | None = None
    """The newest that verifies; None before the first save."""
    stored: dict[str, Any] = field(default_factory=dict)
    """What its ``state.json`` says."""
    scores: Scores = field(default_factory=dict)
    """Step to development scores, of every evaluation so far."""
    warnings: list[str] = field(default_factory=list)
    """What was wrong with newer checkpoints, and the like."""

    @classmethod
    def load(cls, folder: RunFolder, config: RunConfig) -> RunState:
        """Return where a run stands. Raises ``RunError`` when checkpoints were saved and none can be used."""
        checkpoint, warnings = folder.newest()
        if checkpoint is None:
            return cls(folder, config, warnings=warnings)
        stored = read_state(checkpoint)
        scores = {int(step): found for step, found in stored["scores"].items()}
        return cls(folder, config, checkpoint, stored, scores, warnings)

    def texts(self) -> dict[str, bytes]:
        """Return what the checkpoint holds besides weights, vocabularies and the like, by the names of the files."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            return {}
        names = [name for name in TEXT_FILES if name in checkpoint.manifest.files]
        return {name: read_bounded(checkpoint, name, MAX_BYTES) for name in names}

    def check_compatible(self, init_from: Path | None) -> None:
        """Raise ``UsageError`` where the run was begun with other settings, or other weights, than are asked for."""
        if self.checkpoint is None:
            return
        changed = differences(read_run_config(self.checkpoint), self.config) + self._init_from_difference(init_from)
        if changed:
            raise UsageError(
                f"this run was begun with other settings: {'; '.join(changed)}",
                where=str(self.folder.path),
                help="use the same settings to go on, another -o, or --overwrite to start anew",
            )

    def _init_from_difference(self, init_from: Path | None) -> list[str]:
        """Return ``--init-from: old -> new`` where the run it names has other weights than this one began with."""
        began: str | None = self.stored.get("init_from")
        if init_from is None or began is None:
            return []
        if not init_from.exists():
            self.warnings.append(f"there is no run {init_from}; this one goes on with what it holds")
            return []
        found = weights_fingerprint(RunFolder(init_from).checkpoint()[0])
        old = f"weights {began[:12]}" if began else "none"
        said = f"--init-from: {old} -> weights {found[:12]} (a run that goes on needs none)"
        return [said] if found != began else []

    @property
    def step(self) -> int:
        """Steps taken, by the newest checkpoint."""
        return self.checkpoint.step if self.checkpoint is not None else 0

    @property
    def best(self) -> str:
        """What ``translate`` takes."""
        return self.folder.best_name() or "last"

    def best_scores(self) -> Mapping[str, float]:
        """Return the development scores of the best checkpoint."""
        name = self.best
        if name == "averaged":
            return self._averaged()[1]
        step = int(name.removeprefix("step-")) if name.startswith("step-") else self.step
        return self.scores.get(step, {})

    @property
    def finished(self) -> str | None:
        """Why the run ended, if it did and nothing is left to do."""
        if self.checkpoint is None:
            return None
        counters = self.stored["counters"]
        reason: str | None = counters["finished"]
        same = read_run_config(self.checkpoint).limits == self.config.limits
        # The last step may have been saved before it was evaluated, and nothing after it.
        done = reason != "stopped" and not counters["eval_pending"] and same
        return reason if done and not self._average_pending() else None

    def expected_best(self) -> str | None:
        """Return which checkpoint ``best`` has to name at the end, the average included; None if it is gone."""
        counters = self.stored["counters"]
        if self.n_averaged() > 1:
            step, metrics = self._averaged()
            if step == self.step and metrics and self.is_as_good(metrics, counters["best"]):
                return "averaged"
        return f"step-{counters['best_step']}" if counters["best_step"] in self.folder.steps() else None

    def is_as_good(self, metrics: Mapping[str, float], best: float | None) -> bool:
        """Return whether an average of these scores is as good as the best checkpoint, by ``limits.metric``."""
        limits = self.config.limits
        sign = 1 if limits.higher_is_better else -1
        return best is None or sign * metrics[limits.metric] >= sign * best

    def scheduled_steps(self) -> list[int]:
        """Return the steps of the checkpoints that do not owe their being to a stop."""
        return scheduled_steps(self.folder.steps(), self.scores, self.config.checkpoints.save_every)

    def n_averaged(self) -> int:
        """Return how many checkpoints there are to average, at most as many as asked for."""
        return min(self.config.checkpoints.average, len(self.scheduled_steps()))

    def _average_pending(self) -> bool:
        """Return whether an average is wanted that is missing or older than the newest checkpoint."""
        if self.n_averaged() < 2:
            return False
        return not (self.folder.path / "averaged").exists() or self._averaged()[0] != self.step

    def _averaged(self) -> tuple[int, dict[str, float]]:
        """Return the step of the averaged checkpoint and its development scores, none where nobody took them."""
        checkpoint = self.folder.checkpoint("averaged")[0]
        return checkpoint.step, read_averaged(checkpoint)["metrics"]


def weights_fingerprint(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of a checkpoint's weights: by it a run knows another again that was moved."""
    return checkpoint.entry("model.safetensors").sha256
