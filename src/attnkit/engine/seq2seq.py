"""Loss of sequence-to-sequence models and batched search."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.data.pairs import PairBatch
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import RequiredTerms
from attnkit.decoding.hypothesis import NOTHING
from attnkit.decoding.search import Sources, search
from attnkit.engine.search_backend import Found, LineSegment, SearchBackend, SearchJob, search_parts
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.translation import TranslationModel
from attnkit.protocols import EOS_ID, PAD_ID, Decodable
from attnkit.runtime.devices import one_torch_thread
from attnkit.training.losses import LossTerm, linear_cross_entropy

# Letters: B batch, S source length, P prefix length, T target length, D model width, N target tokens.


class LocalSearch:
    """Search backend in this process."""

    def __init__(self, models: Sequence[Decodable], device: torch.device) -> None:
        # Several models form an ensemble.
        self.models = list(models)
        self.device = device

    def search_all(self, batches: Iterable[Sequence[LineSegment]], job: SearchJob) -> Iterator[Found]:
        for parts in batches:
            yield self.search_batch(parts, job)

    def search_batch(self, parts: Sequence[LineSegment], job: SearchJob) -> Found:
        """Return the hypotheses of each segment, best first."""
        stops = job.check(parts)
        if stops is not None and stops().all():
            return [[NOTHING] for _ in parts]
        src, mask = pad_sources([part.ids for part in parts], self.device)  # (B, S)
        prefix = pad_prefixes([part.prefix for part in parts], self.device)
        # A line has fewer than 4096 segments: each segment has its own random stream, independent of the batch.
        keys = [part.line * 4096 + part.number for part in parts]
        allowed = [part.allowed for part in parts if part.allowed is not None] or None
        required = require_terms(parts, job, self.device)
        sources = Sources(
            *(src, mask, prefix, keys, allowed),
            suppressed=job.suppressed,
            required=required,
            n_given=job.n_given,
            stops=stops,
        )
        return search(self.models, sources, job.config, record=job.record)


class StepSearch(LocalSearch):
    """Search by torch over steps in compiled loops."""

    def search_batch(self, parts: Sequence[LineSegment], job: SearchJob) -> Found:
        with one_torch_thread():
            return super().search_batch(parts, job)


def require_terms(parts: Sequence[LineSegment], job: SearchJob, device: torch.device) -> RequiredTerms | None:
    """Return the terms that a batch must have, None without any."""
    terms = [[term for term in part.required if term.forms] for part in parts]
    if job.joins is None or not any(terms):
        return None
    return RequiredTerms(terms, torch.from_numpy(job.joins).to(device))


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
    model: TranslationModel, device: torch.device, smoothing: float, r_drop: float = 0.0
) -> Callable[[PairBatch], dict[str, LossTerm]]:
    """Return the loss function: nats summed over the target tokens of a batch.

    ``r_drop`` is the weight of the divergence of two passes; 0: one pass.
    """

    def loss(batch: PairBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        src, mask, tgt_in, positions = batch.src, batch.src_mask, batch.tgt_in, batch.positions
        if r_drop:  # both passes as one batch of (2B) rows: dropout differs between rows
            src, tgt_in = src.repeat(2, 1), tgt_in.repeat(2, 1)
            mask = None if mask is None else mask.repeat(2, 1)
            positions = torch.cat([positions, positions + batch.tgt_in.numel()])
        hidden = model.hidden(src, mask, tgt_in)  # (B, T, D)
        # Only positions with a target are projected to the vocabulary.
        chosen = hidden.flatten(0, 1).index_select(0, positions)  # (N, D)
        weight: Tensor = model.output.weight
        bias: Tensor = model.output.bias
        targets = batch.targets
        if first := model.first_target:  # left out, so that label smoothing does not reach them either
            weight, bias, targets = weight[first:], bias[first:], targets - first
        if r_drop:
            from attnkit.training.consistency import linear_consistency  # imported here: most runs have one pass

            total, nll = linear_consistency(chosen, weight, bias, targets, r_drop, smoothing)
        else:
            total, nll = linear_cross_entropy(chosen, weight, bias, targets, smoothing)
        return {"nll": LossTerm(total, reported=nll)}

    return loss


def greedy_ids(
    searcher: SearchBackend, parts: Sequence[LineSegment], config: SearchConfig, stop: Stop | None, n_given: int = 0
) -> list[list[int]]:
    """Return each part's best token ids; raise ``EvaluationCancelled`` if stopped.

    ``n_given`` first ids of each prefix, such as a language code, are part of the task.
    """
    # Sorted by length, longest first: little padding, and memory peaks at the start.
    batches = make_batches([len(part.ids) for part in parts], Batching())
    # Lazy, so that a requested stop is noticed between batches, or between windows of a whole search.
    found = search_parts(searcher, parts, until_stopped(stop, batches), SearchJob(config, n_given=n_given))
    return [best[0].ids for best in found]


def sample_indices(n_rows: int, n_samples: int) -> NDArray[np.int64]:
    """Return up to ``n_samples`` row indices, evenly spaced from first to last."""
    return np.linspace(0, n_rows - 1, min(n_samples, n_rows)).astype(int)
