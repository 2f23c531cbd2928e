"""Write a training run to its folder: lock, checkpoints, logs, status and model card; restore from it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.logs import State, Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.torchrun import failure_facts, is_of_this_launch, launch_facts
from attnkit.checkpoints.weights import MODEL, OPTIMIZER, read_tensors
from attnkit.config import dump_yaml
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.averaging import mean_of
from attnkit.engine.checkpoint_metadata import check_serializable, check_task
from attnkit.engine.model_card import model_card
from attnkit.engine.run_config import RunConfig
from attnkit.engine.run_state import RunState, weights_fingerprint
from attnkit.engine.stopping import is_launched_by_torchrun, signal_to_stop
from attnkit.engine.task import task_of
from attnkit.engine.weights import to_bytes
from attnkit.errors import AttnkitError, RunError, exit_code
from attnkit.io import atomic
from attnkit.io.safe_read import file_equals
from attnkit.training.loop import EvaluationRecord, StepRecord
from attnkit.training.parameter_store import Tensors
from attnkit.training.state import TrainState

_LOG_EVERY = 10  # steps


class RunWriter:
    """Writer of a run folder during training; a context manager that holds its lock.

    Every rank reads the folder and rank 0 alone writes it. Each write is a ``synchronized`` block: if rank 0 fails, all
    ranks fail.
    """

    def __init__(
        self, path: Path, config: RunConfig, ranks: ProcessGroup, overwrite: bool, init_from: Path | None, stops: bool
    ) -> None:
        """Store the parts; ``stops`` turns signals into requested stops, see ``signal_to_stop``."""
        self.folder = RunFolder(path)
        self.config, self.ranks, self.task = config, ranks, task_of(config.task)
        self.overwrite, self.init_from, self.handles_signals = overwrite, init_from, stops
        self.run_state = RunState(self.folder, config)
        self.source: Checkpoint | None = None
        """Checkpoint of ``--init-from``, for a new run."""
        self.origin: str | None = ""
        """Fingerprint of the initial weights; "" for random ones, None if unknown."""
        # Released in reverse order; the lock comes off last.
        self._resources = ExitStack()
        self._saved: int | None = None
        self._locked, self._complete, self._fingerprint = False, False, ""
        self._texts: Mapping[str, bytes] = {}

    @property
    def is_writer(self) -> bool:
        """Whether this rank writes the folder."""
        return self.ranks.rank == 0

    @property
    def warnings(self) -> list[str]:
        """Warnings so far."""
        return self.run_state.warnings

    def __enter__(self) -> RunWriter:
        try:
            with self.ranks.synchronized():
                if self.is_writer:
                    self._lock()
            self._locked = True
            with self.ranks.synchronized():
                self._load_state()
            with self.ranks.synchronized():
                if self.is_writer:
                    self._write_config()
        except BaseException as error:
            self._leave(
                error, noted=self._locked and is_launched_by_torchrun(self.ranks.world)
            )  # a person has read the message
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error, noted=error is not None and not isinstance(error, GeneratorExit))

    def _leave(self, error: BaseException | None, noted: bool) -> None:
        told = self.handles_signals and self._locked and not self._complete
        stop = signal_to_stop(error, self._saved_step(), self.ranks.world) if told else None
        # status.json is written while the lock is still held: the next run must not be overwritten.
        if self.is_writer and error is not None and noted and not self._complete:
            self._record_exit(stop or error)
        self._resources.close()
        if stop is not None:
            raise stop from error

    def _saved_step(self) -> int:
        return self._saved or self.run_state.step or max(self.folder.steps(), default=0)

    def _lock(self) -> None:
        """Lock the folder; with ``overwrite``, move an old run aside first."""
        check_serializable(self.config)
        # A restart by torchrun repeats --overwrite: it must not move aside what this launch has trained.
        if self.overwrite and self.folder.exists() and not is_of_this_launch(self.folder.read_status()):
            self.folder.move_aside()
        self._resources.enter_context(self.folder.lock())

    def _load_state(self) -> None:
        """Load the state of the run; check that it fits the request, or open the source of a new run's weights."""
        self.run_state = RunState.load(self.folder, self.config)
        if self.run_state.checkpoint is not None:
            self.run_state.check_compatible(self.init_from)
            self.origin = self.run_state.stored.get("init_from")
        elif self.init_from is not None:
            self.source, warnings = RunFolder(self.init_from).checkpoint()
            check_task(self.source, self.config.task)
            self.task.check_compatible(self.source, self.config)
            self.warnings.extend(warnings)
            self.origin = weights_fingerprint(self.source)

    def _write_config(self) -> None:
        """Write the configuration; delete data that was encoded under another one."""
        path, text = self.folder.path / "config.yaml", dump_yaml(self.config).encode()
        if self.run_state.checkpoint is None and os.path.lexists(path) and not file_equals(path, text):
            # Without a checkpoint nothing depends on the data yet.
            atomic.remove_tree(self.folder.data_path)
        self.folder.write_copy(path.name, text)
        if launch_facts() and self.run_state.finished is None:
            self._write_status("running", self.run_state.step)

    def vocabulary_source(self) -> Checkpoint | None:
        """Return the checkpoint that provides the vocabularies; None if they are still to be trained."""
        return self.run_state.checkpoint or self.source

    def restore(self, state: TrainState, fingerprint: str, texts: Mapping[str, bytes]) -> None:
        """Restore a fresh state from the newest checkpoint, if any.

        Raises:
            RunError: The data differs from that of the checkpoint.
        """
        self._fingerprint, self._texts = fingerprint, texts
        checkpoint, stored = self.run_state.checkpoint, self.run_state.stored
        if checkpoint is None:
            if self.is_writer:
                # A run that was killed before its first checkpoint starts over, and so does its log.
                self.folder.truncate_metrics(0)
            return
        # The position counts rows of the encoded text: other text, other rows.
        if stored["fingerprint"] != fingerprint:
            raise RunError(
                "the encoded text differs from the text that this run was trained on",
                where=str(self.folder.data_path),
                help="restore the old text, or start over with --overwrite",
            )
        shapes = state.weights.shapes()
        model, optimizer = map(read_tensors, [checkpoint] * 2, (MODEL, OPTIMIZER), shapes)
        state.restore(model, optimizer, stored["counters"])
        self._saved = state.step
        if self.is_writer:
            self.warnings.extend(self.folder.truncate_metrics(stored["metrics_size"]))
            # A kill between the save and the update of ``best`` must not decide which checkpoint is the best.
            if state.best_step in self.folder.steps():
                self.folder.set_best(f"step-{state.best_step}")

    def log_and_save(self, record: StepRecord | EvaluationRecord, state: TrainState) -> None:
        """Log a record and save a checkpoint if one is due."""
        every = self.config.checkpoints.save_every
        if isinstance(record, EvaluationRecord):
            # Outside the block: gathering sharded tensors is a collective of all ranks.
            tensors, self.run_state.scores[record.step] = state.tensors(), record.metrics
            with self.ranks.synchronized():
                if self.is_writer:
                    self._log_evaluation(record, state, tensors)
            return
        logs = record.step % _LOG_EVERY == 0 or record.skipped
        saves = every is not None and record.step % every == 0
        if logs or saves:  # depends on the step alone: all ranks enter the block, or none
            saved = state.tensors() if saves else None
            with self.ranks.synchronized():
                if logs and self.is_writer:
                    # Progress may depend on the clock; metrics.jsonl holds deterministic fields only.
                    kept = {key: value for key, value in record._asdict().items() if key != "progress"}
                    self.folder.append_metrics({"kind": "step", **kept})
                if saved is not None and self.is_writer:
                    self._save(state, saved)

    def _log_evaluation(self, record: EvaluationRecord, state: TrainState, tensors: Tensors) -> None:
        self.folder.append_metrics({"kind": "evaluation", "step": record.step, "epoch": record.epoch, **record.metrics})
        self.folder.append_timings({"step": record.step, "minutes": state.minutes, "tokens": state.tokens})
        self._save(state, tensors)
        if record.improved:
            self.folder.set_best(f"step-{record.step}")

    def save(self, state: TrainState) -> None:
        """Write a checkpoint and apply retention."""
        tensors = state.tensors()
        with self.ranks.synchronized():
            if self.is_writer:
                self._save(state, tensors)

    def _save(self, state: TrainState, tensors: Tensors) -> None:
        scores = self.run_state.scores
        # Saved already, unless an evaluation or the end of the run changed the state since.
        if self._saved == state.step and state.finished in (None, "stopped") and not scores.get(state.step):
            return
        model, optimizer = tensors
        stored = {
            "counters": state.counters(),
            "fingerprint": self._fingerprint,
            "init_from": self.origin,
            # Lines logged after this checkpoint are cut off when it is restored: they will be logged again.
            "metrics_size": self.folder.metrics_size,
            "scores": scores,
        }
        contents = {
            **self._text_files(stored),
            "model.safetensors": to_bytes(model),
            "optimizer.safetensors": to_bytes(optimizer),
        }
        self.folder.save(state.step, contents)
        self._saved = state.step
        self._write_copies()
        self._write_status("running", state.step)
        self._rotate()

    def _rotate(self) -> None:
        """Delete old checkpoints; one that a stop saved does not displace a scheduled one."""
        limits, kept = self.config.limits, self.config.checkpoints
        present = self.folder.steps()
        oldest = (self.run_state.scheduled_steps() or present)[-max(kept.keep_last, kept.average) :][0]
        self.folder.apply_retention(
            sum(step >= oldest for step in present),
            kept.keep_best,
            {step: scores[limits.metric] for step, scores in self.run_state.scores.items()},
            lower_is_better=not limits.higher_is_better,
        )

    def average(self, state: TrainState, evaluate: Callable[[torch.nn.Module], Mapping[str, float]]) -> None:
        """Save the mean of the newest checkpoints; name it ``best`` if its metric is at least as good."""
        with self.ranks.synchronized():
            steps = self.run_state.scheduled_steps()[-self.config.checkpoints.average :]
            # A generator: one checkpoint at a time is in memory.
            checkpoints = (self.folder.checkpoint(f"step-{step}")[0] for step in steps)
            mean = mean_of(checkpoints, state.weights.shapes()[0])
        with torch.no_grad(), state.weights.use_weights(mean) as model:
            metrics = dict(evaluate(model))
        with self.ranks.synchronized():
            if not self.is_writer:
                return
            stored = {"averaged": steps, "metrics": metrics}
            self.folder.save_averaged(state.step, {**self._text_files(stored), "model.safetensors": to_bytes(mean)})
            # Ties go to the average.
            if self.run_state.is_as_good(metrics, state.best):
                self.folder.set_best("averaged")

    def finish(self, state: TrainState) -> None:
        """Say in the folder that the run is complete."""
        with self.ranks.synchronized():
            if self.is_writer:
                self._write_summary(state)
        self._complete = True

    def repair_finished(self) -> None:
        """Do for a finished run what a kill after its last save left undone, from naming the best to the status."""
        self._complete = True
        with self.ranks.synchronized():
            if not self.is_writer:
                return
            name, best = self.folder.best_name(), self.run_state.expected_best()
            if best is not None and name not in (best, "averaged"):  # an average that somebody made later stays named
                self.folder.set_best(best)
            status = self.folder.read_status()
            if status is None or status.state != "finished":
                self._texts = self.run_state.texts()
                self._write_summary(SimpleNamespace(**self.run_state.stored["counters"]))

    def _write_summary(self, state: Any) -> None:
        """Write the model card, then the status; ``state`` is a ``TrainState`` or its counters.

        The status comes last: it says that all else is written. Copies and retention are repeated, since a kill during
        the last save may have prevented them.
        """
        standing = self.run_state
        self._write_copies()
        if self.folder.steps()[-1:] == [
            state.step
        ]:  # a newer checkpoint would be a damaged one: keep it for inspection
            self._rotate()
        name = self.folder.path.name
        about = self.task.model_card(self.config, name)
        card = model_card(about, name, self.config.seed, standing.best, standing.best_scores(), state)
        self.folder.write_copy("README.md", card.encode())
        self._write_status("finished", state.step, f"reached the limit of {state.finished}", 0)

    def _text_files(self, stored: Mapping[str, Any]) -> dict[str, bytes]:
        return {
            "config.yaml": dump_yaml(self.config).encode(),
            # Sorted keys: equal states give equal bytes.
            "state.json": json.dumps(stored, sort_keys=True).encode(),
            **self._texts,
        }

    def _write_copies(self) -> None:
        for name, content in self._texts.items():
            if not (self.folder.path / name).exists():
                self.folder.write_copy(name, content)

    def _record_exit(self, error: BaseException) -> None:
        """Write a failure or a stop to status.json; a failure to do so is ignored."""
        # The first error is the one to report, not that the disk is full as well.
        with suppress(AttnkitError):
            state: State = "stopped" if (code := exit_code(error)) in (75, 130, 143) else "failed"
            reason = str(error).encode("utf-8", "backslashreplace").decode()  # a path may hold lone surrogates
            step, facts = self._saved_step(), failure_facts(error)
            self.folder.write_status(Status(state=state, step=step, reason=reason, exit_code=code, facts=facts))

    def _write_status(self, state: State, step: int, reason: str = "", code: int | None = None) -> None:
        self.folder.write_status(Status(state=state, step=step, reason=reason, exit_code=code, facts=launch_facts()))
