"""Writing of run folders: lock, checkpoints, logs, status, card. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import BaseModel

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.checkpoints.logs import ORIGINS_NAME, State, Status, origins_text, read_origins, read_status
from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.checkpoints.torchrun import failure_facts, is_of_this_launch, launch_facts
from attnkit.config import dump_yaml, flatten
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.checkpoint_metadata import check_serializable, read_run_config
from attnkit.engine.events import TrainRequest
from attnkit.engine.registry import load_symbol, task_spec
from attnkit.engine.run_state import RunState, weights_fingerprint
from attnkit.errors import AttnkitError, RunError, StoppedError, exit_code
from attnkit.io import atomic
from attnkit.io.safe_read import file_equals

_USELESS = (2, 3)  #: exit codes for unusable settings and text, after which encoded data is useless


def stop_error(step: int) -> StoppedError:
    """Return the error for a requested stop after a checkpoint was saved."""
    return StoppedError(f"stopped at step {step}; everything is saved", help="run the same command again to resume")


# A protocol, as the module of ``TrainingSession`` imports ``RunWriter`` and import cycles are not allowed.
class SavedSession(Protocol):
    """Members of ``TrainingSession`` that are needed for saving and restoring it."""

    state: Any

    @property
    def step(self) -> int: ...

    def counters(self) -> dict[str, Any]: ...

    def snapshot(self) -> Callable[[], Mapping[str, Content]]: ...

    def restore(self, checkpoint: Checkpoint, counters: Mapping[str, Any]) -> None: ...

    def model_card(self, state: RunState, counters: Mapping[str, Any]) -> str: ...


class RunWriter:
    """Writer of a run folder during training; a context manager that holds its lock.

    Every rank reads the folder, but only rank 0 writes. Each write is a ``synchronized`` block: if rank 0 fails, all
    ranks fail. If a run cannot start, a new folder is removed and an old run moved back. With ``request.stop``, a
    signal becomes a requested stop if a step has been saved; under torchrun, always.
    """

    def __init__(self, request: TrainRequest, session: SavedSession, ranks: ProcessGroup) -> None:
        self.folder = RunFolder(request.path)
        self.request, self.config = request, request.config
        self._model = cast(BaseModel, request.config)
        self.session, self.ranks = session, ranks
        self.is_writer = ranks.rank == 0
        # Also for a single rank, which torchrun would restart, too.
        self._launched = ranks.world > 1 or bool(launch_facts())
        self.run_state = RunState(self.folder, self.config)
        self.source: Checkpoint | None = None
        """Checkpoint of ``--init-from``, for a new run."""
        self.origin: str | None = ""
        """Fingerprint of the initial weights; "" for random weights, None if unknown."""
        self._lock = ExitStack()
        # Progress of this call, which determines what it leaves behind.
        self._saved: int | None = None
        self._locked, self._complete, self._fingerprint = False, False, ""
        self._texts: Mapping[str, bytes] = {}
        self._is_new = False
        self._created: list[Path] = []
        self._aside: Path | None = None

    @property
    def warnings(self) -> list[str]:
        """Warnings so far."""
        return self.run_state.warnings

    @property
    def was_finished(self) -> bool:
        """Whether an earlier call came to its end."""
        status = read_status(self.folder.path)
        return status is not None and status.state == "finished"

    def __enter__(self) -> RunWriter:
        request, folder, config = self.request, self.folder, self.config
        try:
            with self.ranks.synchronized():
                if self.is_writer:
                    check_serializable(self._model)
                    # A restart by torchrun repeats --overwrite, which must not move aside a run of the same launch.
                    if request.overwrite and is_run(folder.path) and not is_of_this_launch(read_status(folder.path)):
                        self._aside = folder.move_aside()
                    self._is_new = not is_run(folder.path)
                    self._created = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
                    self._lock.enter_context(folder.lock())
            self._locked = True
            # An existing run must match the request; a new run must match its initial weights.
            with self.ranks.synchronized():
                self.run_state = RunState.load(folder, config)
                if self.run_state.checkpoint is not None:
                    self.run_state.check_compatible(request.init_from)
                    self.origin = self.run_state.stored.get("init_from")
                elif request.init_from is not None:
                    self.source, warnings = RunFolder(request.init_from).checkpoint()
                    spec = task_spec(config.task, config.model_kind)
                    read_run_config(self.source, config.task, *spec.init_from_tasks)  # rejects other tasks
                    load_symbol(spec.task_path).check_compatible(self.source, config)
                    self.warnings.extend(warnings)
                    self.origin = weights_fingerprint(self.source)
            with self.ranks.synchronized():
                if self.is_writer:
                    self._write_config()
        except BaseException as error:
            # Without torchrun, the user has seen the message.
            self._leave(error, noted=self._locked and self._launched)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error, noted=error is not None and not isinstance(error, GeneratorExit))

    def _leave(self, error: BaseException | None, noted: bool) -> None:
        # A finished run already has its status; without the lock, the run is not ours.
        open_run = self._locked and not self._complete
        stop: StoppedError | None = None
        # Exit codes of SIGINT and SIGTERM.
        if open_run and self.request.stop is not None and exit_code(error) in (130, 143):
            if step := self._saved_step():
                stop = stop_error(step)
            elif self._launched:  # exits with 0, or torchrun would restart all processes
                help = "run the same command again to start over"
                stop = StoppedError("stopped before anything was saved", help=help)
        # status.json is written while the lock is held, so that it cannot overwrite that of the next run.
        if self.is_writer and error is not None and open_run:
            reason = stop or error
            # Report the original error rather than, say, a full disk.
            with suppress(AttnkitError):
                if self._is_unstarted(reason):
                    self._remove_unstarted()
                elif noted:
                    # 75: stopped on request; 130 and 143: ended by a signal.
                    state: State = "stopped" if (code := exit_code(reason)) in (75, 130, 143) else "failed"
                    # A path may contain lone surrogates.
                    text = str(reason).encode("utf-8", "backslashreplace").decode()
                    self._write_status(state, self._saved_step(), text, code, failure_facts(reason))
        self._lock.close()
        if stop is not None:
            raise stop from error

    def _saved_step(self) -> int:
        return self._saved or self.run_state.step or max(self.folder.steps(), default=0)

    def _is_unstarted(self, error: BaseException) -> bool:
        """Return whether this call created the run and nothing in it is worth keeping."""
        if not self._is_new or self._saved_step() or self._launched:
            return False
        # Encoded data, which may take hours, is kept after a full disk or a kill.
        useful = self.folder.data_path.exists() and exit_code(error) not in _USELESS
        return not useful and not isinstance(error, GeneratorExit)

    def _remove_unstarted(self) -> None:
        """Remove what this call created, and move an old run back."""
        path = self.folder.path
        # A folder that existed before is kept; only its contents belong to this run.
        for entry in [] if self._created else list(path.iterdir()):
            atomic.remove_tree(entry)
        for folder in self._created:
            if folder == path or not any(folder.iterdir()):
                atomic.remove_tree(folder)
        if self._aside is not None and not path.exists():
            atomic.move(self._aside, path)

    def _write_config(self) -> None:
        """Write the configuration; delete data that was encoded with another one."""
        # A copy for the user; checkpoints contain their own.
        path, text = self.folder.path / "config.yaml", self._config_file
        is_known = os.path.lexists(path)
        is_same = is_known and file_equals(path, text)
        if self.run_state.checkpoint is None and is_known and not is_same:
            # Without a checkpoint, nothing depends on the data yet.
            atomic.remove_tree(self.folder.data_path)
        if self.request.origins:
            # Before the configuration, which says that origins are known.
            self.folder.write_copy(ORIGINS_NAME, origins_text(self._origins(is_same)))
        self.folder.write_copy(path.name, text)
        if launch_facts() and self.run_state.finished is None:
            self._write_status("running", self.run_state.step)

    def _origins(self, is_same: bool) -> dict[str, str]:
        """Return the origins of settings; a resumed run keeps those of unchanged values.

        ``is_same``: the folder has this configuration, perhaps of a run that was killed before its first checkpoint.
        """
        origins, checkpoint = dict(self.request.origins), self.run_state.checkpoint
        known = None if checkpoint is None and not is_same else read_origins(self.folder.path)
        if checkpoint is None or known is None:
            return known or origins
        before, after = (
            flatten(cast(BaseModel, config).model_dump(mode="json"))
            for config in (read_run_config(checkpoint), self.config)
        )
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        kept = {key: origin for key, origin in known.items() if key not in changed}
        return kept | {key: origin for key, origin in origins.items() if key in changed}

    def restore(self, fingerprint: str, texts: Mapping[str, bytes]) -> None:
        """Restore a fresh session from the newest checkpoint, if any.

        ``texts`` are the vocabulary and label files of every checkpoint, name -> content. Raises ``RunError`` if the
        fingerprint of the encoded data differs from that of the checkpoint.
        """
        self._fingerprint, self._texts = fingerprint, texts
        checkpoint, stored = self.run_state.checkpoint, self.run_state.stored
        if checkpoint is None:
            if self.is_writer:
                # A run that was killed before its first checkpoint starts over with an empty log.
                self.folder.truncate_metrics(0)
            return
        # The position counts rows of the encoded text, so the text must be the same.
        if stored["fingerprint"] != fingerprint:
            raise RunError(
                "the encoded text differs from the text that this run was trained on",
                where=str(self.folder.data_path),
                help="restore the old text, or start over with --overwrite",
            )
        self.session.restore(checkpoint, stored["counters"])
        self._saved = self.session.step
        if self.is_writer:
            self.warnings.extend(self.folder.truncate_metrics(stored["metrics_size"]))
            # The run may have been killed between saving a checkpoint and updating ``best``.
            if (best := stored["counters"].get("best_step")) in self.folder.steps():
                self.folder.set_best(f"step-{best}")

    def save(self) -> None:
        """Write a checkpoint and apply retention; called on all ranks."""
        # Outside the block: gathering sharded tensors is a collective of all ranks.
        snapshot = self.session.snapshot()
        with self.ranks.synchronized():
            if self.is_writer:
                self.write(snapshot)

    def write(self, snapshot: Callable[[], Mapping[str, Content]]) -> None:
        """Write a checkpoint of ``TrainingSession.snapshot``; called only on rank 0."""
        session, scores = self.session, self.run_state.scores
        # Already saved, unless an evaluation or the end of the run has changed the state since.
        if self._saved == session.step and session.state.finished in (None, "stopped") and not scores.get(session.step):
            return
        # Contents of state.json.
        stored = {
            "counters": session.counters(),
            "fingerprint": self._fingerprint,
            "init_from": self.origin,
            # Restoring truncates the log to this size; later lines are logged again.
            "metrics_size": self.folder.metrics_size,
            "scores": scores,
        }
        self.folder.save(session.step, {**self._text_files(stored), **snapshot()})
        self._saved = session.step
        self._write_copies()
        self._write_status("running", session.step)
        self._rotate()

    def write_averaged(self, stored: Mapping[str, Any], contents: Mapping[str, Content]) -> None:
        """Write the averaged checkpoint; called only on rank 0."""
        self.folder.save_averaged(self.session.step, {**self._text_files(stored), **contents})

    def _rotate(self) -> None:
        """Delete old checkpoints; unscheduled ones do not displace scheduled ones."""
        limits, kept = self.config.limits, self.config.checkpoints
        # Ascending steps of all checkpoints on disk.
        present = self.folder.steps()
        oldest = (self.run_state.scheduled_steps() or present)[-max(kept.keep_last, kept.average) :][0]
        self.folder.apply_retention(
            sum(step >= oldest for step in present),
            kept.keep_best,
            {step: scores[limits.metric] for step, scores in self.run_state.scores.items()},
            lower_is_better=not limits.higher_is_better,
        )

    def finish(self) -> None:
        """Mark the run as finished: write the model card and ``status.json``."""
        with self.ranks.synchronized():
            if self.is_writer:
                self._write_summary(self.session.counters())
        self._complete = True

    def repair_finished(self) -> None:
        """Complete a finished run that was killed after its last save."""
        self._complete = True
        with self.ranks.synchronized():
            if not self.is_writer:
                return
            # Current and expected target of ``best``.
            name, best = self.folder.best_name(), self.run_state.expected_best()
            if best is not None and name not in (best, "averaged"):  # keep an average that was made later
                self.folder.set_best(best)
            status = read_status(self.folder.path)
            self._texts = self.run_state.texts()
            copied = all((self.folder.path / copy).exists() for copy in ("README.md", *self._texts))
            if status is None or status.state != "finished" or not copied:
                self._write_summary(self.run_state.stored["counters"])

    def _write_summary(self, counters: Mapping[str, Any]) -> None:
        """Write the model card, then the status.

        The status is written last because it declares the run complete. Copies and retention are repeated, since a kill
        may have interrupted the last save.
        """
        self._write_copies()
        step = counters["step"]
        if self.folder.steps()[-1:] == [step]:  # a newer checkpoint must be damaged: keep it for inspection
            self._rotate()
        card = self.session.model_card(self.run_state, counters)
        self.folder.write_copy("README.md", card.encode("utf-8", "backslashreplace"))
        self._write_status("finished", step, f"reached the limit of {counters['finished']}", 0)

    @cached_property
    def _config_file(self) -> bytes:
        # Kept: writing YAML takes as long as a few steps of a small model.
        return dump_yaml(self._model).encode()

    def _text_files(self, stored: Mapping[str, Any]) -> dict[str, bytes]:
        # Sorted keys, so that equal states give equal bytes.
        return {
            "config.yaml": self._config_file,
            "state.json": json.dumps(stored, sort_keys=True).encode(),
            **self._texts,
        }

    def _write_copies(self) -> None:
        for name, content in self._texts.items():
            if not (self.folder.path / name).exists():
                self.folder.write_copy(name, content)

    def _write_status(
        self, state: State, step: int, reason: str = "", code: int | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        facts = dict(launch_facts() if facts is None else facts)
        self.folder.write_status(Status(state=state, step=step, reason=reason, exit_code=code, facts=facts))
