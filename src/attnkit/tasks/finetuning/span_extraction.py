"""What a reader learns from and what it finds: where the answer to a question lies in the windows of its context.

Letters: B rows, T tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.data.question_answering import StridedContextDataset, WindowBatch
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.heads import SpanPredictor, best_span
from attnkit.models.linear import without_dropout
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class SpanPrediction:
    """The likeliest answer to a question, over all windows of its context."""

    first: int
    """First token of the context; ``behind`` is 0 where the context has no tokens."""
    behind: int
    """What comes behind its last token."""
    score: float
    """Sum of the logits of its beginning and its end; -inf where the context has no tokens."""
    log_sum: float
    """Logarithm of the sum of exp(score) over all answers that are not too long."""
    no_answer: float
    """The same sum of logits for there being no answer: the lowest one of all windows."""

    @property
    def margin(self) -> float:
        """How much likelier it is that there is no answer than this one, as a difference of logits."""
        return self.no_answer - self.score

    def probability(self, refuses: bool) -> float:
        """Return how likely this answer is among all, and no answer among these where a reader ``has_unanswerable``."""
        total = float(np.logaddexp(self.log_sum, self.no_answer)) if refuses else self.log_sum
        return math.exp(self.score - total) if self.behind else 0.0


@dataclass(frozen=True)
class SpanPredictions:
    """What a reader says of some questions."""

    answers: list[SpanPrediction]
    """To each question."""
    nll: float
    """Sum over all windows, in nats; one that holds no answer is to say so."""


def reader_logits(model: SpanPredictor, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Return logits (2, B, T) of beginning and end, of float32 at least, and where an answer may lie (B, T).

    The first token of a row stands for no answer, in this window.
    """
    allowed = batch.context.clone()
    allowed[:, 0] = True
    logits = model(batch.ids, batch.real, batch.segments, allowed)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)), allowed


def answer_loss(
    model: SpanPredictor, device: torch.device, smoothing: float
) -> Callable[[WindowBatch], Mapping[str, LossTerm]]:
    """Return the loss of a batch: the mean negative log-likelihood of its answers' beginnings and ends.

    ``smoothing`` is the probability spread evenly over all places where an answer may lie.
    """

    def loss(batch: WindowBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        logits, allowed = reader_logits(model, batch)
        log_probs = logits.log_softmax(-1)
        nll = _nll(log_probs, batch)
        if not smoothing:
            return {"nll": LossTerm(nll)}
        uniform = -(log_probs.masked_fill(~allowed, 0.0).sum(-1) / allowed.sum(-1)).sum() / 2
        return {"nll": LossTerm((1 - smoothing) * nll + smoothing * uniform, reported=nll.detach())}

    return loss


def find_answers(
    model: SpanPredictor,
    rows: StridedContextDataset,
    device: torch.device,
    longest: int,
    stop: Stop | None = None,
    n_tokens: int = _BATCH_TOKENS,
) -> SpanPredictions:
    """Return the likeliest answer of at most ``longest`` tokens to each question; ``n_tokens`` are computed together.

    An answer begins in the window that shows most of what stands around its first token, so that none counts twice.
    Raises ``EvaluationCancelled`` where a stop is asked for.
    """
    found: dict[int, SpanPrediction] = {}
    nll = 0.0
    with without_dropout(model), torch.inference_mode():
        for indices in until_stopped(stop, make_batches(rows.lengths[0].tolist(), Batching(n_tokens, "tokens"))):
            batch = rows.batch(np.asarray(indices, np.int64)).to(device)
            logits = reader_logits(model, batch)[0]
            nll += float(_nll(logits.log_softmax(-1), batch))
            for row, answer in zip(indices, _answers(rows, indices, logits, batch, longest), strict=True):
                question = int(rows.questions[row])
                found[question] = _better(found[question], answer) if question in found else answer
    return SpanPredictions([found[question] for question in sorted(found)], nll)


def _nll(log_probs: Tensor, batch: WindowBatch) -> Tensor:
    places = torch.stack((batch.firsts, batch.lasts))
    return -log_probs.gather(-1, places[..., None]).sum() / 2


def _answers(
    rows: StridedContextDataset, indices: list[int], logits: Tensor, batch: WindowBatch, longest: int
) -> list[SpanPrediction]:
    starts = logits[0].masked_fill(~batch.best, -math.inf)
    ends = logits[1].masked_fill(~batch.context, -math.inf)
    firsts, lasts, scores = best_span(starts, ends, longest)
    sums = log_sums(starts, ends, longest)
    none = logits[:, :, 0].sum(0)
    found = []
    for row, first, last, score, total, null in zip(
        indices, *(part.tolist() for part in (firsts, lasts, scores, sums, none)), strict=True
    ):
        # Where a window is the best for no token, the highest of scores that are all -inf says nothing.
        place = rows.in_context(row, first, last) if score > -math.inf else (0, 0)
        found.append(SpanPrediction(*place, score, total, null))
    return found


def log_sums(starts: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Return (B,) log of the sum of exp(score) over all spans of at most ``longest`` tokens; arguments (B, T) logits.

    Memory is that of the logits, whatever ``longest`` is.
    """
    total = starts.new_full(starts.shape[:1], -math.inf)
    for shift in range(min(longest, starts.shape[1])):
        scores = starts[:, : starts.shape[1] - shift] + ends[:, shift:]
        total = torch.logaddexp(total, scores.logsumexp(1))
    return total


def _better(one: SpanPrediction, other: SpanPrediction) -> SpanPrediction:
    """Return the likelier one of two windows' answers, with what both windows say of all answers."""
    best = one if one.score >= other.score else other
    log_sum = float(np.logaddexp(one.log_sum, other.log_sum))
    return SpanPrediction(best.first, best.behind, best.score, log_sum, min(one.no_answer, other.no_answer))
