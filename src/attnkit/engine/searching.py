"""Batches of encoded lines to hypotheses, in this process or in several of one thread each. Knows no text."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.errors import SystemFailure
from attnkit.models.translation import TranslationModel
from attnkit.protocols import EOS_ID, PAD_ID
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_subprocess import defer_signals

Found = list[list[Hypothesis]]
LoadModel = Callable[[Path], TranslationModel]
"""Loads the model of a run on the CPU."""
_NOTICE = 0.05  # seconds
_PATIENCE = 5.0  # seconds


@dataclass(frozen=True)
class LineSegment:
    """A line, or the part of an over-long one, as the search takes it."""

    line: int
    """Number of the line in the whole input; with ``number`` it keys the sampling."""
    number: int
    """Place among the parts of the line."""
    ids: list[int]
    prefix: list[int]
    allowed: NDArray[np.int32] | None = None
    """The only target ids that may come besides the end and the prefix; None: all."""


@dataclass(frozen=True)
class SearchJob:
    """What is asked of the search."""

    config: SearchConfig
    record: bool = False


class SearchBackend(Protocol):
    """Searches batches, giving their results in the order of the batches."""

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield, for each batch, the hypotheses of each part, best first."""
        ...


class LocalSearch:
    """Searches in this process."""

    def __init__(self, models: Sequence[TranslationModel], device: torch.device) -> None:
        self.models = list(models)
        self.device = device

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        for parts in batches:
            yield self.search_batch(parts, job)

    def search_batch(self, parts: Sequence[LineSegment], job: SearchJob) -> Found:
        """Return the hypotheses of each part, best first."""
        src, mask = pad_sources([part.ids for part in parts], self.device)
        prefix = pad_prefixes([part.prefix for part in parts], self.device)
        keys = [part.line * 4096 + part.number for part in parts]
        allowed = [part.allowed for part in parts if part.allowed is not None] or None
        return search(self.models, Sources(src, mask, prefix, keys, allowed), job.config, record=job.record)


class ProcessPoolSearch:
    """Searches in several processes of one thread each, which load the runs themselves. Close it after use."""

    def __init__(self, load: LoadModel, runs: Sequence[Path], workers: int) -> None:
        """Start ``workers`` processes; each calls ``load``, a function of a module, for every run."""
        context = multiprocessing.get_context("spawn")  # a forked torch would inherit threads that no longer run
        others = set(multiprocessing.active_children())
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        try:
            # A signal is for the process that asks, which then ends these.
            with defer_signals():
                self._pool = ProcessPoolExecutor(workers, context, _begin, (load, list(runs)))
                for _ in range(workers):  # a process starts with its first job: all start now, side by side
                    self._pool.submit(int)
                self._processes = [child for child in multiprocessing.active_children() if child not in others]
        except (OSError, ImportError) as error:  # no semaphores without /dev/shm, too many processes or files
            self.close()
            raise SystemFailure(f"cannot start worker processes: {error}", help="leave out --workers") from error
        except BaseException:
            self.close()
            raise

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        assert self._pool is not None
        try:
            yield from self._pool.map(_search, ((list(parts), job) for parts in batches))
        except BrokenProcessPool as error:
            help = "was there too little memory? fewer --workers or a smaller --batch-size takes less"
            raise SystemFailure("a worker process has died", help=help) from error

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        if self._pool is not None:
            # One that was killed in the middle of an answer leaves its reader, a thread of the pool, waiting for ever.
            end = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
            end.start()
            end.join(_NOTICE)  # that thread stumbles over a death that it meets before it knows of the end
            for process in self._processes:
                process.kill()
            end.join(_PATIENCE)
            self._pool = None  # and with it its semaphores


_in_worker: list[LocalSearch | Exception] = []


def _begin(load: LoadModel, runs: list[Path]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        _in_worker.append(LocalSearch([load(path) for path in runs], torch.device("cpu")))
    except Exception as error:  # told by the process that asks, if it does not say the same of itself
        _in_worker.append(error)


def _end_with_parent() -> None:
    """Wait for the process that asks: if it is killed, nobody ends this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _search(work: tuple[list[LineSegment], SearchJob]) -> Found:
    found = _in_worker[0]
    if isinstance(found, Exception):
        raise found
    return found.search_batch(*work)


def exclude_padding_ids(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """Return the settings with the vocabulary's unused last entries, which round its size up, never generated."""
    return config.model_copy(update={"n_words": tokenizer.vocab_size - tokenizer.n_unused})


def pad_sources(rows: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return ids (B, S) that end with EOS, and their mask (B, S), or None where nothing is padded."""
    length = max(len(row) for row in rows) + 1
    src = torch.tensor([[*row, EOS_ID, *[PAD_ID] * (length - 1 - len(row))] for row in rows], device=device)
    if all(len(row) == length - 1 for row in rows):
        return src, None
    return src, torch.arange(length, device=device) < torch.tensor([[len(row) + 1] for row in rows], device=device)


def pad_prefixes(rows: Sequence[list[int]], device: torch.device) -> Tensor | None:
    """Return forced target ids (B, P), padded, or None where there are none."""
    length = max(len(row) for row in rows)
    if length == 0:
        return None
    return torch.tensor([[*row, *[PAD_ID] * (length - len(row))] for row in rows], device=device)
