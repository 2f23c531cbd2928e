"""The run folder's side of training word vectors: what a run is compared with, restored from, and leaves. Torch-free.

A run that could not begin leaves nothing: neither a folder that was not there before, nor an old run moved aside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.logs import State as Word
from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import dump_yaml
from attnkit.data.words import Encoded
from attnkit.engine.checkpoint_metadata import check_serializable
from attnkit.engine.stopping import signal_to_stop
from attnkit.errors import AttnkitError, RunError, StoppedError, UsageError, exit_code
from attnkit.io import atomic
from attnkit.io.safe_read import file_equals
from attnkit.tasks.word2vec.card import card
from attnkit.tasks.word2vec.checkpoint import COPIES, State, contents, read_config, read_state
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import Matrices, Shapes
from attnkit.tasks.word2vec.resolve import differences

_KEPT = 2
"""Checkpoints: the newest, and one to fall back on."""


class Word2VecRunWriter:
    """Holds the folder's lock while it is entered."""

    def __init__(self, path: Path, config: Word2VecConfig, overwrite: bool, stops: bool) -> None:
        """Take a folder; ``stops`` says that signals are to be stops once something is saved."""
        self.folder = RunFolder(path)
        self.config = config
        self.checkpoint: Checkpoint | None = None
        """The newest that verifies; None before the first save."""
        self.state = State()
        """What it says."""
        self.warnings: list[str] = []
        self._overwrite, self._stops = overwrite, stops
        self._lock = ExitStack()
        self._aside: Path | None = None
        self._made: list[Path] = []
        self._fresh = self._locked = self._entered = self._complete = False
        self.words = b""
        """What ``words.tsv`` of its checkpoints holds."""

    def __enter__(self) -> Word2VecRunWriter:
        try:
            self._take()
            self._open()
        except BaseException as error:
            self._end(error)
            raise
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def _take(self) -> None:
        """Lock the folder, made where it is missing; what is to be overwritten goes aside."""
        check_serializable(self.config)
        path = self.folder.path
        if self._overwrite and self.folder.exists():
            self._aside = self.folder.move_aside()
        self._fresh = not self.folder.exists()
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        self._lock.enter_context(self.folder.lock())
        self._locked = True

    def _open(self) -> None:
        """Find out where the run stands, refuse one that was begun otherwise, write the configuration down."""
        self.checkpoint, self.warnings = self.folder.newest()
        path, text = self.folder.path / "config.yaml", dump_yaml(self.config).encode()
        if self.checkpoint is not None:
            self.state = read_state(self.checkpoint)
            if changed := differences(read_config(self.checkpoint), self.config):
                raise UsageError(
                    f"this run was started with other settings: {'; '.join(changed)}",
                    where=str(self.folder.path),
                    help="use the same settings to go on, another -o, or --overwrite to start anew",
                )
        elif os.path.lexists(path) and not file_equals(path, text):
            atomic.remove_tree(self.folder.data_path)
        self.folder.write_copy(path.name, text)

    def restore(self, encoded: Encoded, n_steps: int) -> State:
        """Return the state to go on from. Raises ``RunError`` where the text is not the one that was trained on."""
        self.words = encoded.words.to_bytes()
        if self.checkpoint is None:
            self.folder.truncate_metrics(0)
            self.state = State(n_steps=n_steps, raw=encoded.n_raw, fingerprint=encoded.store.fingerprint)
            return self.state
        if (self.state.fingerprint, self.state.n_steps) != (encoded.store.fingerprint, n_steps):
            raise RunError(
                "the encoded text differs from the text that this run was trained on",
                where=str(self.folder.data_path),
                help="put the old text back, or start anew with --overwrite",
            )
        self.warnings += self.folder.truncate_metrics(self.state.metrics_size)
        return self.state

    def log(self, record: Mapping[str, object], seconds: float) -> None:
        """Append to the logs what another run of the same command would write as well, and what the clock says."""
        self.folder.append_metrics(record)
        self.folder.append_timings({"step": record["step"], "seconds": round(seconds, 3)})

    def save(self, matrices: Matrices, shapes: Shapes, state: State) -> None:
        """Write a checkpoint of this moment, then drop what is too old."""
        self.state = state.model_copy(update={"metrics_size": self.folder.metrics_size})
        self.checkpoint = self.folder.save(state.step, contents(self.config, self.words, matrices, shapes, self.state))
        for name in COPIES:
            if not (self.folder.path / name).exists():
                self.folder.write_copy(name, self.words)
        self.folder.apply_retention(_KEPT, 0, {})
        if not state.finished:
            self._write_status("running")

    def finish(self) -> None:
        """Say in the folder that the run is complete; done again, it mends what a kill after the last save left."""
        self._complete = True
        assert self.checkpoint is not None
        for name in COPIES:
            if not (self.folder.path / name).exists():
                self.folder.write_copy(name, self.checkpoint.read(name))
        self.folder.apply_retention(_KEPT, 0, {})
        text = card(self.folder.path.name, self.config, self.state)
        self.folder.write_copy("README.md", text.encode("utf-8", "backslashreplace"))
        self._write_status("finished", "all epochs are done", 0)

    def _end(self, error: BaseException | None) -> None:
        stop: StoppedError | None = None
        try:
            if error is not None and self._locked and not self._complete:
                stop = signal_to_stop(error, self.checkpoint.step if self.checkpoint else 0, 1) if self._stops else None
                with suppress(AttnkitError):  # what cannot be mended is not worth another error
                    self._clear_up(stop or error)
        finally:
            self._lock.close()
        if stop is not None:
            raise stop from error

    def _clear_up(self, error: BaseException) -> None:
        """Take away a run that never began, but encoded text that a signal alone has kept from being used."""
        code = exit_code(error)
        useful = code in (130, 143) and self.folder.data_path.exists()
        if isinstance(error, GeneratorExit):
            return
        if self.checkpoint is not None or useful or not self._fresh:
            if self._entered:  # what was refused before says nothing of the run
                state: Word = "stopped" if code in (75, 130, 143) else "failed"
                self._write_status(state, str(error).encode("utf-8", "backslashreplace").decode(), code)
            return
        remove_made(self.folder.path, self._made)
        if self._aside is not None and not self.folder.path.exists():
            atomic.move(self._aside, self.folder.path)

    def _write_status(self, state: Word, reason: str = "", code: int | None = None) -> None:
        self.folder.write_status(Status(state=state, step=self.state.step, reason=reason, exit_code=code))


def remove_made(path: Path, made: Sequence[Path]) -> None:
    """Remove a folder if it was made, else what lies in it, and those of its parents that were made and are empty."""
    if not made:
        for entry in path.iterdir():
            atomic.remove_tree(entry)
    for folder in made:
        if folder == path or not any(folder.iterdir()):
            atomic.remove_tree(folder)
