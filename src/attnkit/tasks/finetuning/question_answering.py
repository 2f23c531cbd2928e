"""Extractive question answering: loss, predicted spans, evaluation and the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnkit.data.labels import Labels
from attnkit.data.loader import Batching, make_batches
from attnkit.data.question_answering import StridedContextDataset, WindowBatch
from attnkit.engine.events import Sample
from attnkit.engine.examples import to_float32
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import Evaluation, EvaluationCancelled, LossFunction, Stop, until_stopped
from attnkit.metrics.answers import Version, answer_scores
from attnkit.models.bert import SpanPredictor, best_span
from attnkit.models.linear import without_dropout
from attnkit.tasks.finetuning.config import QuestionAnsweringConfig
from attnkit.tasks.finetuning.question_answering_data import (
    PreparedQuestions,
    QuestionCorpus,
    load_questions,
)
from attnkit.tasks.finetuning.task import FinetuningTask, LabelType
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class SpanPrediction:
    """The most probable answer to a question, over all windows of its context."""

    first: int  #: first token in the context
    end: int  #: end token in the context, exclusive; 0 for an empty context
    score: float  #: sum of start and end logits; -inf for an empty context
    log_sum: float  #: log of the sum of exp(score) over all answers up to the maximum length
    no_answer: float  #: sum of the no-answer logits: the minimum over all windows

    @property
    def margin(self) -> float:
        """Margin of logits of no answer over this one."""
        return self.no_answer - self.score

    def is_none(self, may_abstain: bool, threshold: float = 0.0) -> bool:
        """Return whether no answer beats this one by more than the threshold, in logits, if it ``may_abstain``."""
        return may_abstain and self.margin > threshold

    def probability(self, may_abstain: bool) -> float:
        """Return its probability among all answers, no answer included if the model ``may_abstain``."""
        total = float(np.logaddexp(self.log_sum, self.no_answer)) if may_abstain else self.log_sum
        return math.exp(self.score - total) if self.end else 0.0


def reader_logits(model: SpanPredictor, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Return start and end logits (2, B, T), at least float32, and a mask (B, T) of valid positions.

    The first token of a row means no answer in this window.
    """
    allowed = batch.context.clone()
    allowed[:, 0] = True
    logits = model(batch.ids, batch.real, batch.segments, allowed)
    return to_float32(logits), allowed


def answer_loss(
    model: SpanPredictor, device: torch.device, smoothing: float
) -> Callable[[WindowBatch], Mapping[str, LossTerm]]:
    """Return the loss: the mean negative log-likelihood of answers' starts and ends.

    ``smoothing`` is the probability spread evenly over all valid positions.
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


def _nll(log_probs: Tensor, batch: WindowBatch) -> Tensor:
    targets = torch.stack((batch.firsts, batch.lasts))  # (2, B)
    return -log_probs.gather(-1, targets[..., None]).sum() / 2


def predict_answers(
    model: SpanPredictor,
    rows: StridedContextDataset,
    device: torch.device,
    max_length: int,
    stop: Stop | None = None,
    n_tokens: int = _BATCH_TOKENS,
) -> tuple[list[SpanPrediction], float]:
    """Return the most probable answer of at most ``max_length`` tokens per question, ``n_tokens`` computed together.

    An answer starts in the window with the most context of its first token, so none counts twice. The second result is
    the negative log-likelihood in nats, summed over windows; those without an answer count as unanswerable. Raises
    ``EvaluationCancelled`` if stopped.
    """
    found: dict[int, SpanPrediction] = {}
    nll = 0.0
    with without_dropout(model), torch.inference_mode():
        for indices in until_stopped(stop, make_batches(rows.lengths[0].tolist(), Batching(n_tokens, "tokens"))):
            batch = rows.batch(np.asarray(indices, np.int64)).to(device)
            logits = reader_logits(model, batch)[0]  # (2, B, T)
            nll += float(_nll(logits.log_softmax(-1), batch))
            starts = logits[0].masked_fill(~batch.best, -math.inf)
            ends = logits[1].masked_fill(~batch.context, -math.inf)
            results = (*best_span(starts, ends, max_length), log_sums(starts, ends, max_length), logits[:, :, 0].sum(0))
            for row, first, last, score, log_sum, no_answer in zip(
                indices, *(part.tolist() for part in results), strict=True
            ):
                # All scores are -inf if the window is the best one of no token.
                span = rows.in_context(row, first, last) if score > -math.inf else (0, 0)
                answer = SpanPrediction(*span, score, log_sum, no_answer)
                question = int(rows.questions[row])
                if (other := found.get(question)) is not None:
                    # Of two windows the more probable answer stays, with the sum over both.
                    best = other if other.score >= score else answer
                    log_sum = float(np.logaddexp(other.log_sum, log_sum))
                    answer = replace(best, log_sum=log_sum, no_answer=min(other.no_answer, no_answer))
                found[question] = answer
    return [found[question] for question in sorted(found)], nll


def log_sums(starts: Tensor, ends: Tensor, max_length: int) -> Tensor:
    """Return (B,) log of the sum of exp(score) over all spans of at most ``max_length`` tokens, from (B, T) logits.

    Memory is that of the logits, whatever ``max_length`` is.
    """
    total = starts.new_full(starts.shape[:1], -math.inf)
    for shift in range(min(max_length, starts.shape[1])):
        scores = starts[:, : starts.shape[1] - shift] + ends[:, shift:]
        total = torch.logaddexp(total, scores.logsumexp(1))
    return total


@dataclass
class QuestionAnsweringEvaluation:
    """Scores on the questions of the development set."""

    prepared: PreparedQuestions
    device: torch.device
    max_answer_length: int  #: length in tokens
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: (question, first gold answer, predicted answer)

    def __call__(self, model: SpanPredictor) -> dict[str, float] | None:
        """Return ``loss`` in nats per window; ``exact`` and ``f1`` of SQuAD's script in percent; None if stopped."""
        asked = self.prepared.valid_examples
        try:
            found, nll = predict_answers(model, asked.rows, self.device, self.max_answer_length, self.stop)
        except EvaluationCancelled:
            return None
        may_abstain = self.prepared.label_file is not None
        texts = [
            "" if answer.is_none(may_abstain) else asked.answer_text(number, answer.first, answer.end)
            for number, answer in enumerate(found)
        ]
        gold = [[answer.text for answer in question.answers] for question in asked.questions]
        self.samples = [
            (asked.questions[i].text, [*gold[i], ""][0], texts[i]) for i in sample_indices(len(texts), self.n_samples)
        ]
        version: Version = "2.0" if any(question.impossible for question in asked.questions) else "1.1"
        scores = answer_scores(texts, gold, version).all
        return {"loss": nll / len(asked.rows), "exact": scores.exact, "f1": scores.f1}


class Answers(LabelType[QuestionAnsweringConfig, PreparedQuestions, SpanPredictor]):
    """Answers that are spans of a paragraph."""

    description, example = "A reader that answers questions on paragraphs", "questions.json"
    scored = "exact answers and F1 of their words, as SQuAD's script counts them, in percent"
    has_labels = False

    def corpus(self, config: QuestionAnsweringConfig, known: Labels | None, n_sampled: int) -> QuestionCorpus:
        return QuestionCorpus(config)

    def load(self, config: QuestionAnsweringConfig, folder: Path) -> PreparedQuestions:
        return load_questions(config, folder)

    def model(self, config: QuestionAnsweringConfig, vocab_size: int, n_labels: int) -> SpanPredictor:
        return SpanPredictor(config.model, vocab_size)

    def loss(
        self, config: QuestionAnsweringConfig, model: SpanPredictor, data: PreparedQuestions, device: torch.device
    ) -> LossFunction:
        return answer_loss(model, device, config.optimization.label_smoothing)

    def evaluation(
        self, config: QuestionAnsweringConfig, data: PreparedQuestions, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        longest, n_samples = config.windows.max_answer_length, config.evaluation.n_samples
        return QuestionAnsweringEvaluation(data, device, longest, n_samples, stop)


TASK = FinetuningTask(Answers())
