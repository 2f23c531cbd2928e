"""Loss of sequence-to-sequence models and batched search."""

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

from attnkit.data.loader import Batching, make_batches
from attnkit.data.pairs import PairBatch
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.engine.task import Stop, until_stopped
from attnkit.errors import SystemFailure
from attnkit.models.translation import TranslationModel
from attnkit.protocols import EOS_ID, PAD_ID
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import defer_signals
from attnkit.training.losses import LossTerm, linear_cross_entropy

# Letters: B batch, S source length, P prefix length, T target length, D model width, N target tokens.
Found = list[list[Hypothesis]]
LoadModel = Callable[[Path], TranslationModel]  #: loads the model of a run folder on the CPU
_FIRST_JOIN = 0.05  # seconds
_LAST_JOIN = 5.0  # seconds


@dataclass(frozen=True)
class LineSegment:
    """An encoded line, or one segment of a line that is too long for the model."""

    line: int  #: line number in the whole input; (``line``, ``number``) is the random-number key
    number: int  #: index of the segment within its line
    ids: list[int]
    prefix: list[int]
    allowed: NDArray[np.int32] | None = None  #: target ids allowed besides EOS and the prefix; None allows all


@dataclass(frozen=True)
class SearchJob:
    """Settings of a search."""

    config: SearchConfig
    record: bool = False


class SearchBackend(Protocol):
    """Protocol of a backend that searches batches and yields results in order."""

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        """Yield the hypotheses of each segment, best first, batch by batch."""


class LocalSearch:
    """Search backend in this process."""

    def __init__(self, models: Sequence[TranslationModel], device: torch.device) -> None:
        # Several models form an ensemble.
        self.models = list(models)
        self.device = device

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        for parts in batches:
            yield self.search_batch(parts, job)

    def search_batch(self, parts: Sequence[LineSegment], job: SearchJob) -> Found:
        """Return the hypotheses of each segment, best first."""
        src, mask = pad_sources([part.ids for part in parts], self.device)  # (B, S)
        prefix = pad_prefixes([part.prefix for part in parts], self.device)
        # A line has fewer than 4096 segments: each segment has its own random stream, independent of the batch.
        keys = [part.line * 4096 + part.number for part in parts]
        allowed = [part.allowed for part in parts if part.allowed is not None] or None
        return search(self.models, Sources(src, mask, prefix, keys, allowed), job.config, record=job.record)


class ProcessPoolSearch:
    """Search backend of several single-threaded processes; close it after use."""

    def __init__(self, load: LoadModel, runs: Sequence[Path], workers: int) -> None:
        """Start ``workers`` processes; each calls the picklable ``load`` for every run."""
        context = multiprocessing.get_context("spawn")  # after a fork, torch's thread pools have no threads
        others = set(multiprocessing.active_children())
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        try:
            # Only the parent process handles signals, and then ends its workers.
            with defer_signals():
                self._pool = ProcessPoolExecutor(workers, context, _begin, (load, list(runs)))
                for _ in range(workers):  # a process starts with its first job, so start all of them
                    self._pool.submit(int)
                self._processes = [child for child in multiprocessing.active_children() if child not in others]
        except (OSError, ImportError) as error:  # e.g. no /dev/shm for semaphores, too many processes or files
            self.close()
            raise SystemFailure(f"cannot start worker processes: {error}", help="remove --workers") from error
        except BaseException:
            self.close()
            raise

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        assert self._pool is not None
        try:
            # map keeps the order of batches, regardless of which process finishes first.
            yield from self._pool.map(_search, ((list(parts), job) for parts in batches))
        except BrokenProcessPool as error:
            help = "if memory ran out, lower --workers or --batch-size"
            raise SystemFailure("a worker process ended unexpectedly", help=help) from error

    def close(self) -> None:
        """Kill the worker processes."""
        if self._pool is not None:
            # A process killed while it sends a result blocks the pool's reading thread forever, hence the timeouts.
            end = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
            end.start()
            end.join(_FIRST_JOIN)  # the pool must know of the shutdown before a process dies, or its thread raises
            for process in self._processes:
                process.kill()
            end.join(_LAST_JOIN)
            self._pool = None  # frees its semaphores


_in_worker: list[LocalSearch | Exception] = []


def _begin(load: LoadModel, runs: list[Path]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        _in_worker.append(LocalSearch([load(path) for path in runs], torch.device("cpu")))
    except Exception as error:  # raised by the first search, in the parent process
        _in_worker.append(error)


def _end_with_parent() -> None:
    """End this process when its parent ends, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Returns when the parent's end of a pipe closes, also after SIGKILL.
        parent.join()
        os._exit(1)


def _search(work: tuple[list[LineSegment], SearchJob]) -> Found:
    found = _in_worker[0]
    if isinstance(found, Exception):
        raise found
    return found.search_batch(*work)


def exclude_padding_ids(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """Return settings that forbid the unused ids at the end of a padded vocabulary."""
    return config.model_copy(update={"n_words": tokenizer.vocab_size - tokenizer.n_unused})


def pad_sources(rows: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return ids with EOS and a padding mask (B, S), None if nothing is padded."""
    # One more for EOS.
    length = max(len(row) for row in rows) + 1
    src = torch.tensor([[*row, EOS_ID, *[PAD_ID] * (length - 1 - len(row))] for row in rows], device=device)
    if all(len(row) == length - 1 for row in rows):
        return src, None
    # (S,) < (B, 1)
    return src, torch.arange(length, device=device) < torch.tensor([[len(row) + 1] for row in rows], device=device)


def pad_prefixes(rows: Sequence[list[int]], device: torch.device) -> Tensor | None:
    """Return the padded target prefixes (B, P); None if all are empty."""
    length = max(len(row) for row in rows)
    if length == 0:
        return None
    return torch.tensor([[*row, *[PAD_ID] * (length - len(row))] for row in rows], device=device)


def seq2seq_loss(
    model: TranslationModel, device: torch.device, smoothing: float
) -> Callable[[PairBatch], dict[str, LossTerm]]:
    """Return the loss function: nats summed over the target tokens of a batch."""

    def loss(batch: PairBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        hidden = model.hidden(batch.src, batch.src_mask, batch.tgt_in)  # (B, T, D)
        # Only positions with a target are projected to the vocabulary.
        chosen = hidden.flatten(0, 1).index_select(0, batch.positions)  # (N, D)
        total, nll = linear_cross_entropy(chosen, model.output.weight, model.output.bias, batch.targets, smoothing)
        return {"nll": LossTerm(total, reported=nll)}

    return loss


def greedy_ids(
    searcher: SearchBackend, parts: Sequence[LineSegment], config: SearchConfig, stop: Stop | None
) -> list[list[int]]:
    """Return each part's best token ids; raise ``EvaluationCancelled`` if stopped."""
    # Sorted by length, longest first: little padding, and memory peaks at the start.
    batches = make_batches([len(part.ids) for part in parts], Batching())
    # Lazy, so that a requested stop is noticed between any two batches.
    requested = ([parts[i] for i in batch] for batch in until_stopped(stop, batches))
    found: list[list[int]] = [[] for _ in parts]
    results = searcher.search_all(requested, SearchJob(config))
    for batch, hypotheses in zip(batches, results, strict=True):
        for i, best in zip(batch, hypotheses, strict=True):
            found[i] = best[0].ids
    return found


def sample_indices(n_rows: int, n_samples: int) -> NDArray[np.int64]:
    """Return up to ``n_samples`` row indices, evenly spaced from first to last."""
    return np.linspace(0, n_rows - 1, min(n_samples, n_rows)).astype(int)
