"""Choice of the search engine: compiled loops (CPU) or torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from attnkit.engine.compiled import reason_against_job, reason_against_model
from attnkit.engine.search_backend import Found, LineSegment, SearchBackend, SearchJob
from attnkit.errors import SystemFailure, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.protocols import EOS_ID
from attnkit.runtime.signals import usable_cpus

if TYPE_CHECKING:
    from attnkit.tasks.translation.loading import LoadedRun, OpenedRun

Engine = Literal["auto", "compiled", "torch"]
_BY_TORCH = "--engine torch"
__all__ = ["Engine", "EngineSearch", "Precision"]
# Device files of NVIDIA and AMD drivers: where there is neither, torch need not be asked for a GPU.
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class EngineSearch:
    """Search backend that takes compiled loops where they exist, and torch elsewhere."""

    def __init__(
        self,
        runs: Sequence[OpenedRun],
        device: str = "auto",
        precision: Precision = "float32",
        *,
        engine: Engine = "auto",
        threads: int | None = None,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Choose an engine for the models; nothing is loaded yet.

        ``notify`` receives a note if compiled loops were possible for the device, but not for the model or the search.
        Raises ``UsageError`` if the precision or the engine is not available.
        """
        if precision not in get_args(Precision):
            raise UsageError(f"unknown precision '{precision}'", help=f"choose from {', '.join(get_args(Precision))}")
        self.runs, self.device, self.precision, self.threads = list(runs), device, precision, threads
        self._engine, self._notify = engine, notify
        self._compiled: SearchBackend | None = None
        self._torch: SearchBackend | None = None
        self._loaded: list[LoadedRun] | None = None
        self._noted: set[str] = set()
        self._reason = self._reason_against_runs()

    def _reason_against_runs(self) -> str | None:
        """Return why the models cannot be searched in compiled loops."""
        if self._engine == "torch":
            return _BY_TORCH
        if not _is_cpu(self.device):
            return "a GPU"
        if len(self.runs) > 1:
            return "an ensemble"
        return reason_against_model(self.runs[0].config.model)

    def load(self, job: SearchJob | None = None, *, prefixes: bool = False, shortlists: bool = False) -> None:
        """Load the models, for a search if known; raise ``RunError`` for bad weights."""
        reason = self._reason
        if reason is None and job is not None:
            given = LineSegment(0, 0, [], [EOS_ID] * prefixes, np.empty(0, np.int32) if shortlists else None)
            reason = self._reason = self._reason_against(job, [given])
        self._backend(reason)

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield the hypotheses of each segment, best first, batch by batch."""
        reason = self._reason
        if reason is None:
            batches = [list(batch) for batch in batches]
            if not any(batches):  # blank lines alone, which say nothing of the search
                return
            reason = self._reason_against(job, (part for batch in batches for part in batch))
        yield from self._backend(reason).search_all(batches, job)

    def _reason_against(self, job: SearchJob, parts: Iterable[LineSegment]) -> str | None:
        """Return a property of a search that compiled loops do not support, or None."""
        usual = self.runs[0].tgt_tokenizer.n_words
        return "n_words" if job.config.n_words not in (None, usual) else reason_against_job(job, parts)

    def _backend(self, reason: str | None) -> SearchBackend:
        """Return the compiled backend, or torch's if there is a reason against it."""
        if reason is None:
            try:
                return self._load_compiled()
            except SystemFailure as error:  # no compiler, or no memory for it
                if self._engine == "compiled" or self.precision == "int8":
                    raise
                self._reason = "this machine"
                self._noted.add(self._reason)
                self._notify(f"{error.what}; using torch, which is slower")
                return self._load_torch()
        if self._engine == "compiled":
            help = "use --device cpu" if reason == "a GPU" else "use --engine auto"
            raise UsageError(f"compiled search does not support {reason}", where="--engine", help=help)
        if self.precision == "int8":
            help = {"a GPU": "use --device cpu", _BY_TORCH: "use --engine auto"}.get(reason, "use --precision float32")
            raise UsageError(
                f"int8 needs compiled search, which does not support {reason}", where="--precision", help=help
            )
        if self._engine == "auto" and reason not in (*self._noted, "a GPU"):
            self._noted.add(reason)
            self._notify(f"compiled search does not support {reason}; using torch, which is slower")
        return self._load_torch()

    def _load_compiled(self) -> SearchBackend:
        if self._compiled is None:
            from attnkit.tasks.translation.loading import load_compiled

            # More threads than CPUs would take memory and save no time.
            n_threads = min(self.threads or usable_cpus(), usable_cpus())
            self._compiled = load_compiled(self.runs[0], self.precision, n_threads, self._notify)
        return self._compiled

    def _load_torch(self) -> SearchBackend:
        if self._torch is None:
            from attnkit.engine.seq2seq import LocalSearch

            loaded = self.load_models()
            self._torch = LocalSearch([run.model for run in loaded], loaded[0].device)
        return self._torch

    def load_models(self) -> list[LoadedRun]:
        """Load the models of torch, once; those of an int8 search in float32."""
        if self._loaded is None:
            from attnkit.runtime.devices import set_threads
            from attnkit.tasks.translation.loading import load_opened

            set_threads(self.threads)
            precision = "float32" if self.precision == "int8" else self.precision
            self._loaded = [load_opened(run, device=self.device, precision=precision) for run in self.runs]
        return self._loaded


def _is_cpu(device: str) -> bool:
    """Return whether the device is the CPU; ask torch only if there may be a GPU."""
    if device != "auto":
        return device == "cpu"
    if not any(Path(driver).exists() for driver in _GPU_DRIVERS):
        return True
    from attnkit.runtime.devices import choose_device

    return choose_device(device).type == "cpu"
