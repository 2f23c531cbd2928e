"""Choice of the search engine: compiled loops (CPU) or torch.

In layers: a search that compiled loops support runs in them as a whole; of any other search they compute the steps, and
torch chooses the words; models that they do not support are torch's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from attnkit.compiled.search import CompiledSearch, reason_against_model
from attnkit.engine.engine_choice import BY_TORCH, GPU, NO_COMPILER, Engine, check_torch_may, is_cpu, number_of_threads
from attnkit.engine.search_backend import Found, LineSegment, SearchBackend, SearchJob, WholeSearch, can_search_whole
from attnkit.errors import SystemFailure, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.protocols import EOS_ID, Scorer
from attnkit.tasks.translation.loading import OpenedRun, load_opened, pack_weights

if TYPE_CHECKING:
    import torch

    from attnkit.compiled.packed_transformer import PackedTransformer
    from attnkit.compiled.translator import CompiledTranslator
    from attnkit.tasks.translation.loading import LoadedRun


class EngineSearch:
    """Search backend in compiled loops for the models they support, else in torch."""

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

        ``notify`` receives a note if compiled loops were possible for the device, but not for the model. Raises
        ``UsageError`` for an unknown precision; loading raises it if the engine or the precision is not available.
        """
        if precision not in get_args(Precision):
            raise UsageError(f"unknown precision '{precision}'", help=f"choose from {', '.join(get_args(Precision))}")
        self.runs, self.device, self.precision, self.threads = list(runs), device, precision, threads
        self._engine, self._notify, self._n_threads = engine, notify, number_of_threads(threads)
        self._n_whole = self._n_threads  # of whole searches
        self._whole: SearchBackend | None = None
        self._searcher: CompiledSearch | None = None  # of ``_whole``
        self._steps: SearchBackend | None = None
        self._translators: list[CompiledTranslator] = []
        self._torch: SearchBackend | None = None
        self._packed: list[PackedTransformer] | None = None
        self._loaded: list[LoadedRun] | None = None
        self._reason = self._reason_against_runs()
        self._lock = threading.RLock()  # of loading: callers may share a translator

    def _reason_against_runs(self) -> str | None:
        """Return why the models cannot be searched in compiled loops."""
        if self._engine == "torch":
            return BY_TORCH
        if not is_cpu(self.device):
            return GPU
        reasons = [reason_against_model(run.config.model) for run in self.runs]
        return next(filter(None, reasons), None)

    def replicate(self) -> EngineSearch:
        """Return a search with the same weights, and working memory of its own."""
        with self._lock:
            other = copy(self)
        other._lock = threading.RLock()
        other._whole, other._steps, other._searcher, other._translators = None, None, None, []
        return other

    def set_threads(self, n_threads: int) -> None:
        """Use so many threads for whole searches in compiled loops from now on."""
        self._n_whole = n_threads
        if self._searcher is not None:
            self._searcher.n_threads = n_threads

    @property
    def chosen(self) -> Literal["compiled", "torch"]:
        """Engine that searches: that of the loaded models."""
        return "compiled" if self._reason is None else "torch"

    @property
    def place(self) -> str:
        """Device of the models, once loaded."""
        return "cpu" if self._reason is None or self._loaded is None else str(self._loaded[0].device)

    def load(self, job: SearchJob | None = None, *, prefixes: bool = False, shortlists: bool = False) -> None:
        """Load the models, for a search if known; raise ``RunError`` for bad weights."""
        given = LineSegment(0, 0, [], [EOS_ID] * prefixes, np.empty(0, np.int32) if shortlists else None)
        self._backend(len(self.runs) == 1 and (job is None or self._can_search_whole(job, [given])))

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield the hypotheses of each segment, best first, batch by batch."""
        whole = False
        if self._reason is None:
            remaining, first = iter(batches), None
            for batch in remaining:
                if batch:
                    first = list(batch)
                    break
                yield []
            if first is None:  # blank lines alone, which say nothing of the search
                return
            batches = chain([first], remaining)
            # Only if the whole search is possible so far are all lines read before the first is searched.
            if self._can_search_whole(job, first):
                batches = [list(batch) for batch in batches]
                whole = self._can_search_whole(job, chain.from_iterable(batches))
        yield from self._backend(whole).search_all(batches, job)

    def _can_search_whole(self, job: SearchJob, parts: Iterable[LineSegment]) -> bool:
        """Return whether compiled loops have the whole search, not only its steps."""
        usual = job.config.n_words in (None, self.runs[0].tgt_tokenizer.n_words)
        return usual and len(self.runs) == 1 and can_search_whole(job, parts)

    def _backend(self, whole: bool) -> SearchBackend:
        """Return the backend of a search, loaded."""
        with self._lock:
            return self._load_backend(whole)

    def _load_backend(self, whole: bool) -> SearchBackend:
        if self._reason is None:
            try:
                return self._load_whole() if whole else self._load_steps()
            except SystemFailure as error:  # no compiler, or no memory for it
                if self._engine == "compiled" or self.precision == "int8":
                    raise
                self._reason = NO_COMPILER
                self._notify(f"{error.what}; using torch, which is slower")
        if self._torch is None:
            check_torch_may(self._reason, self._engine, self.precision, self._notify)
            from attnkit.engine.seq2seq import LocalSearch

            loaded = self.load_models()
            self._torch = LocalSearch([run.model for run in loaded], loaded[0].device)
        return self._torch

    def _load_whole(self) -> SearchBackend:
        if self._whole is None:
            (packed,) = self._pack()
            self._searcher = CompiledSearch(packed, n_threads=self._n_whole, notify=self._notify)
            self._whole = WholeSearch(self._searcher)
        return self._whole

    def _load_steps(self) -> SearchBackend:
        if self._steps is None:
            import torch

            from attnkit.compiled.translator import CompiledTranslator
            from attnkit.engine.seq2seq import StepSearch
            from attnkit.runtime.devices import set_threads

            set_threads(self.threads)
            n, notify = self._n_threads, self._notify
            self._translators = [CompiledTranslator(packed, n_threads=n, notify=notify) for packed in self._pack()]
            self._steps = StepSearch(self._translators, torch.device("cpu"))
        return self._steps

    def _pack(self) -> list[PackedTransformer]:
        """Pack the weights, once for whole searches and for steps."""
        if self._packed is None:
            self._packed = [pack_weights(run, self.precision) for run in self.runs]
        return self._packed

    def load_scorer(self) -> tuple[Scorer, torch.device]:
        """Load the first model for scoring, and its device."""
        if self._backend(whole=False) is self._steps:
            import torch

            return self._translators[0], torch.device("cpu")
        loaded = self.load_models()[0]
        return loaded.model, loaded.device

    def load_models(self) -> list[LoadedRun]:
        """Load the models of torch, once."""
        if self._loaded is None:
            from attnkit.runtime.devices import set_threads

            set_threads(self.threads)
            self._loaded = [load_opened(run, device=self.device, precision=self.precision) for run in self.runs]
        return self._loaded
