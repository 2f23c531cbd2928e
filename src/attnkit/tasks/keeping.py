"""The run folder's side of training: what a run is compared with, restored from, and what it leaves on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from attnkit import files
from attnkit.config import dump_yaml
from attnkit.errors import AttnkitError, RunError, UsageError, exit_code
from attnkit.runs.checkpoint import Checkpoint
from attnkit.runs.folder import RunFolder
from attnkit.runs.launch import is_of_this_launch, launch_facts
from attnkit.runs.logs import Fact, State, Status
from attnkit.runtime import Ranks
from attnkit.tasks.card import model_card
from attnkit.tasks.config import TranslationConfig
from attnkit.tasks.load import read_config
from attnkit.tasks.resolve import differences
from attnkit.training.averaging import average
from attnkit.training.loop import EvaluationRecord, StepRecord
from attnkit.training.state import TrainState

Scores = dict[int, dict[str, float]]

_LOG_EVERY = 10  # steps


class Keeper:
    """Holds the folder's lock while it is entered. Every rank reads; rank 0 alone writes. All fail together."""

    def __init__(self, path: Path, config: TranslationConfig, ranks: Ranks, *, overwrite: bool) -> None:
        self.folder = RunFolder(path)
        self.config = config
        self.ranks = ranks
        self.overwrite = overwrite
        self.warnings: list[str] = []
        self._resources = ExitStack()
        self._checkpoint: Checkpoint | None = None
        self._stored: dict[str, Any] = {}
        self._scores: Scores = {}
        self._saved: int | None = None
        self._fingerprint = ""
        self._texts: Mapping[str, bytes] = {}

    @property
    def writes(self) -> bool:
        """Whether this rank is the one that writes."""
        return self.ranks.rank == 0

    def __enter__(self) -> Keeper:
        locked = False
        try:
            with self.ranks.together():
                if self.writes:
                    self._take()
                    locked = True
            with self.ranks.together():
                self._open()
            with self.ranks.together():
                if self.writes:
                    self._begin()
        except BaseException as error:
            if locked and launch_facts():  # a person has read the message; torchrun has not
                self._note_end(error)
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.writes and error is not None and not isinstance(error, GeneratorExit):
            self._note_end(error)
        self._resources.close()

    def _take(self) -> None:
        """Lock the folder. What is to be overwritten goes aside, unless an earlier attempt of this launch began it."""
        if self.overwrite and self.folder.exists() and not is_of_this_launch(self.folder.read_status()):
            self.folder.move_aside()
        self._resources.enter_context(self.folder.lock())

    def _open(self) -> None:
        """Find the newest checkpoint and refuse a run of another configuration."""
        self._checkpoint, self.warnings = self.folder.newest()
        if self._checkpoint is not None:
            self._stored = json.loads(self._checkpoint.read("state.json"))
            self._scores = {int(step): scores for step, scores in self._stored["scores"].items()}
            if changed := differences(read_config(self._checkpoint), self.config):
                raise UsageError(
                    f"this run was begun with other settings: {'; '.join(changed)}",
                    where=str(self.folder.path),
                    help="use the same settings to go on, another -o, or --overwrite to start anew",
                )

    def _begin(self) -> None:
        """Write the configuration down; text encoded under another one, of a run that never got to train, goes."""
        path = self.folder.path / "config.yaml"
        text = dump_yaml(self.config).encode()
        if self._checkpoint is None and path.exists() and path.read_bytes() != text:
            files.remove_tree(self.folder.data_path)
        self.folder.write_copy(path.name, text)
        if launch_facts() and self.finished is None:
            self._write_status("running", self.step)

    @property
    def step(self) -> int:
        """Steps taken so far, by the newest checkpoint."""
        return self._checkpoint.step if self._checkpoint is not None else 0

    @property
    def best(self) -> str:
        """What ``translate`` takes."""
        return self.folder.best_name() or "last"

    def best_scores(self) -> Mapping[str, float]:
        """Return the development scores of the best checkpoint."""
        name = self.best
        if name == "averaged":
            return dict(json.loads(self.folder.checkpoint("averaged")[0].read("state.json"))["metrics"])
        step = int(name.removeprefix("step-")) if name.startswith("step-") else self.step
        return self._scores.get(step, {})

    @property
    def finished(self) -> str | None:
        """Why the run ended, if it did and nothing is left to do."""
        if self._checkpoint is None:
            return None
        reason: str | None = self._stored["counters"]["finished"]
        same = read_config(self._checkpoint).limits == self.config.limits
        return reason if reason != "stopped" and same and not self._average_pending() else None

    def _average_pending(self) -> bool:
        """Return whether an average is wanted that is missing or older than the newest checkpoint."""
        if self.config.checkpoints.average < 2:
            return False
        there = (self.folder.path / "averaged").exists()
        return not there or self.folder.checkpoint("averaged")[0].step != self.step

    def restore(self, state: TrainState, fingerprint: str, texts: Mapping[str, bytes]) -> None:
        """Bring a fresh state to where the newest checkpoint was. Raises ``RunError`` if the data is not the same."""
        self._fingerprint, self._texts = fingerprint, texts
        if self._checkpoint is None:
            if self.writes:
                self.folder.truncate_metrics(0)
            return
        if self._stored["fingerprint"] != fingerprint:
            raise RunError(
                "the encoded text is not the one this run was trained on",
                where=str(self.folder.data_path),
                help="put the old text back, or start anew with --overwrite",
            )
        model, optimizer = (
            safetensors.torch.load(self._checkpoint.read(f"{name}.safetensors")) for name in ("model", "optimizer")
        )
        state.restore(model, optimizer, self._stored["counters"])
        self._saved = state.step
        if self.writes:
            self.warnings += self.folder.truncate_metrics(self._stored["metrics_size"])
            # A kill between a save and the naming of the best, or an older average, must not decide what is best.
            if state.best_step in self.folder.steps():
                self.folder.set_best(f"step-{state.best_step}")

    def keep(self, record: StepRecord | EvaluationRecord, state: TrainState) -> None:
        """Log a record; save where the configuration says so."""
        every = self.config.checkpoints.save_every
        if isinstance(record, EvaluationRecord):
            self._scores[record.step] = record.metrics
            with self.ranks.together():
                if self.writes:
                    self._keep_scores(record, state)
            return
        logs = record.step % _LOG_EVERY == 0 or record.skipped
        saves = every is not None and record.step % every == 0
        if logs or saves:  # on every rank or on none
            with self.ranks.together():
                if logs and self.writes:
                    kept = {key: value for key, value in record._asdict().items() if key != "progress"}
                    self.folder.append_metrics({"kind": "step", **kept})
                if saves and self.writes:
                    self._save(state)

    def _keep_scores(self, record: EvaluationRecord, state: TrainState) -> None:
        self.folder.append_metrics({"kind": "evaluation", "step": record.step, "epoch": record.epoch, **record.metrics})
        self.folder.append_timings({"step": record.step, "minutes": state.minutes, "tokens": state.tokens})
        self._save(state)
        if record.improved:
            self.folder.set_best(f"step-{record.step}")

    def save(self, state: TrainState) -> None:
        """Write a checkpoint of this moment, then drop what retention lets go."""
        with self.ranks.together():
            if self.writes:
                self._save(state)

    def _save(self, state: TrainState) -> None:
        if self._saved == state.step and not state.finished and not self._scores.get(state.step):
            return
        model, optimizer = state.tensors()
        stored = {
            "counters": state.counters(),
            "fingerprint": self._fingerprint,
            "metrics_size": self.folder.metrics_size,
            "scores": self._scores,
        }
        contents = {
            **self._described(stored),
            "model.safetensors": to_bytes(model),
            "optimizer.safetensors": to_bytes(optimizer),
        }
        self.folder.save(state.step, contents)
        self._saved = state.step
        self._write_copies()
        self._write_status("running", state.step)
        limits, kept = self.config.limits, self.config.checkpoints
        present = self.folder.steps()
        oldest = (self._planned() or present)[-max(kept.keep_last, kept.average) :][0]
        self.folder.rotate(
            sum(step >= oldest for step in present),
            kept.keep_best,
            {step: scores[limits.metric] for step, scores in self._scores.items()},
            lower_is_better=not limits.higher_is_better,
        )

    def _planned(self) -> list[int]:
        """Return the checkpoints that an uninterrupted run has too: what a stop saved must not change any result."""
        every = self.config.checkpoints.save_every
        return [s for s in self.folder.steps() if s in self._scores or (every is not None and s % every == 0)]

    def n_averaged(self) -> int:
        """Return how many checkpoints there are to average, at most as many as asked for."""
        return min(self.config.checkpoints.average, len(self._planned()))

    def average(self, state: TrainState, evaluate: Callable[[], Mapping[str, float]]) -> None:
        """Save the mean of the newest checkpoints, and make it the best if its metric is."""
        with self.ranks.together():
            steps = self._planned()[-self.config.checkpoints.average :]
            checkpoints = [self.folder.checkpoint(f"step-{step}")[0] for step in steps]
            mean = average(safetensors.torch.load(checkpoint.read("model.safetensors")) for checkpoint in checkpoints)
            flat = torch.zeros_like(state.flat.master)
            for name, view in state.flat.views(flat).items():
                view.copy_(mean[name])
        with torch.no_grad(), state.flat.showing(flat):
            metrics = dict(evaluate())
        with self.ranks.together():
            if not self.writes:
                return
            stored = {"averaged": steps, "metrics": metrics}
            self.folder.save_averaged(state.step, {**self._described(stored), "model.safetensors": to_bytes(mean)})
            metric = self.config.limits.metric
            sign = 1 if self.config.limits.higher_is_better else -1
            if state.best is None or sign * metrics[metric] >= sign * state.best:
                self.folder.set_best("averaged")

    def finish(self, state: TrainState) -> None:
        """Say in the folder that the run is complete."""
        with self.ranks.together():
            if self.writes:
                self._write_status("finished", state.step, f"reached the limit of {state.finished}", 0)
                card = model_card(self.config, self.folder.path.name, self.best, self.best_scores(), state)
                self.folder.write_copy("README.md", card.encode())

    def _described(self, stored: Mapping[str, Any]) -> dict[str, bytes]:
        return {
            "config.yaml": dump_yaml(self.config).encode(),
            "state.json": json.dumps(stored, sort_keys=True).encode(),
            **self._texts,
        }

    def _write_copies(self) -> None:
        for name, content in self._texts.items():
            if not (self.folder.path / name).exists():
                self.folder.write_copy(name, content)

    def _note_end(self, error: BaseException) -> None:
        """Leave word of a failure or a stop for launchers; what cannot be written is not worth another error."""
        code = exit_code(error)
        with suppress(AttnkitError):
            state: State = "stopped" if code in (75, 130, 143) else "failed"
            self._write_status(state, self._saved or self.step, str(error), code)

    def _write_status(self, state: State, step: int, reason: str = "", code: int | None = None) -> None:
        facts = dict[str, Fact](launch_facts())
        self.folder.write_status(Status(state=state, step=step, reason=reason, exit_code=code, facts=facts))


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as safetensors bytes; views become whole tensors on the CPU."""
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
