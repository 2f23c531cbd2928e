"""Extractive question answering as a task: loss, predicted spans and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Batching, Dataset, make_batches
from attnkit.data.prepared_dir import StatusEvent, WarningEvent, is_prepared
from attnkit.data.question_answering import StridedContextDataset, WindowBatch
from attnkit.engine.dry_run import estimate
from attnkit.engine.events import PrepareEvent, Sample
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import (
    Evaluation,
    EvaluationCancelled,
    LossFunction,
    RunEstimate,
    Stop,
    Task,
    VocabularySource,
    until_stopped,
)
from attnkit.engine.vocabularies import provided_tokenizer
from attnkit.metrics.answers import AllScores, Version, answer_scores
from attnkit.models.heads import SpanPredictor, best_span
from attnkit.models.linear import without_dropout
from attnkit.tasks.finetuning import base as finetune
from attnkit.tasks.finetuning.config import QuestionAnsweringConfig
from attnkit.tasks.finetuning.question_answering_data import (
    PreparedQuestions,
    QaCorpus,
    QaExamples,
    load_questions,
    n_questions,
    prepare_questions,
)
from attnkit.text.squad import Paragraph, Question
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class SpanPrediction:
    """The most probable answer to a question, over all windows of its context."""

    first: int
    """First token of the answer in the context; ``end`` is 0 for an empty context."""
    end: int
    """Token after its last one."""
    score: float
    """Sum of its start and end logits; -inf for an empty context."""
    log_sum: float
    """log of the sum of exp(score) over all answers up to the maximum length."""
    no_answer: float
    """Sum of the no-answer logits: the minimum over all windows."""

    @property
    def margin(self) -> float:
        """Margin of logits of no answer over this one."""
        return self.no_answer - self.score

    def probability(self, may_abstain: bool) -> float:
        """Return its probability among all answers, no answer included if the model ``may_abstain``."""
        total = float(np.logaddexp(self.log_sum, self.no_answer)) if may_abstain else self.log_sum
        return math.exp(self.score - total) if self.end else 0.0


@dataclass(frozen=True)
class SpanPredictions:
    """Predictions for some questions."""

    answers: list[SpanPrediction]
    """One per question."""
    nll: float
    """Sum over all windows, in nats; windows without an answer count as unanswerable."""


def reader_logits(model: SpanPredictor, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Return start and end logits (2, B, T), at least float32, and a mask (B, T) of valid positions.

    The first token of a row means no answer in this window.
    """
    allowed = batch.context.clone()
    allowed[:, 0] = True
    logits = model(batch.ids, batch.real, batch.segments, allowed)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)), allowed


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


def predict_answers(
    model: SpanPredictor,
    rows: StridedContextDataset,
    device: torch.device,
    max_length: int,
    stop: Stop | None = None,
    n_tokens: int = _BATCH_TOKENS,
) -> SpanPredictions:
    """Return the most probable answer of at most ``max_length`` tokens per question, ``n_tokens`` computed together.

    An answer starts in the window with the most context of its first token, so none counts twice. Raises
    ``EvaluationCancelled`` if stopped.
    """
    found: dict[int, SpanPrediction] = {}
    nll = 0.0
    with without_dropout(model), torch.inference_mode():
        for indices in until_stopped(stop, make_batches(rows.lengths[0].tolist(), Batching(n_tokens, "tokens"))):
            batch = rows.batch(np.asarray(indices, np.int64)).to(device)
            logits = reader_logits(model, batch)[0]
            nll += float(_nll(logits.log_softmax(-1), batch))
            for row, answer in zip(indices, _answers(rows, indices, logits, batch, max_length), strict=True):
                question = int(rows.questions[row])
                found[question] = _merge(found[question], answer) if question in found else answer
    return SpanPredictions([found[question] for question in sorted(found)], nll)


def _nll(log_probs: Tensor, batch: WindowBatch) -> Tensor:
    places = torch.stack((batch.firsts, batch.lasts))
    return -log_probs.gather(-1, places[..., None]).sum() / 2


def _answers(
    rows: StridedContextDataset, indices: list[int], logits: Tensor, batch: WindowBatch, max_length: int
) -> list[SpanPrediction]:
    starts = logits[0].masked_fill(~batch.best, -math.inf)
    ends = logits[1].masked_fill(~batch.context, -math.inf)
    firsts, lasts, scores = best_span(starts, ends, max_length)
    sums = log_sums(starts, ends, max_length)
    none = logits[:, :, 0].sum(0)
    found = []
    for row, first, last, score, total, null in zip(
        indices, *(part.tolist() for part in (firsts, lasts, scores, sums, none)), strict=True
    ):
        # All scores are -inf if the window is the best one of no token.
        place = rows.in_context(row, first, last) if score > -math.inf else (0, 0)
        found.append(SpanPrediction(*place, score, total, null))
    return found


def log_sums(starts: Tensor, ends: Tensor, max_length: int) -> Tensor:
    """Return (B,) log of the sum of exp(score) over all spans of at most ``max_length`` tokens, from (B, T) logits.

    Memory is that of the logits, whatever ``max_length`` is.
    """
    total = starts.new_full(starts.shape[:1], -math.inf)
    for shift in range(min(max_length, starts.shape[1])):
        scores = starts[:, : starts.shape[1] - shift] + ends[:, shift:]
        total = torch.logaddexp(total, scores.logsumexp(1))
    return total


def _merge(one: SpanPrediction, other: SpanPrediction) -> SpanPrediction:
    """Merge the answers of two windows: the more probable one, with both sums."""
    best = one if one.score >= other.score else other
    log_sum = float(np.logaddexp(one.log_sum, other.log_sum))
    return SpanPrediction(best.first, best.end, best.score, log_sum, min(one.no_answer, other.no_answer))


_SAMPLE = 500  # paragraphs


@dataclass
class QuestionAnsweringEvaluation:
    """Scores on the questions of the development set."""

    prepared: PreparedQuestions
    device: torch.device
    max_answer_length: int
    """In tokens."""
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)
    """(question, first gold answer, predicted answer)."""

    def __call__(self, model: SpanPredictor) -> dict[str, float] | None:
        """Return ``loss`` in nats per window; ``exact`` and ``f1`` of SQuAD's script in percent; None if stopped."""
        asked = self.prepared.valid
        try:
            found = predict_answers(model, asked.rows, self.device, self.max_answer_length, self.stop)
        except EvaluationCancelled:
            return None
        texts = answer_texts(asked, found.answers, self.prepared.has_unanswerable)
        self.samples = [
            (asked.questions[i].text, *([*gold_answers(asked.questions[i]), ""][:1]), texts[i])
            for i in sample_indices(len(texts), self.n_samples)
        ]
        scores = score_answers(texts, asked.questions)
        return {"loss": found.nll / len(asked.rows), "exact": scores.all.exact, "f1": scores.all.f1}


def answer_texts(
    asked: QaExamples, found: Sequence[SpanPrediction], may_abstain: bool, threshold: float = 0.0
) -> list[str]:
    """Return answers as text of the paragraphs; empty for no answer.

    Args:
        asked: the questions.
        found: one prediction per question.
        refuses: whether no answer may be given at all where a paragraph has any token.
        threshold: how much likelier that has to be than the answer, as a difference of logits.
    """
    return [
        "" if may_abstain and answer.margin > threshold else asked.answer_text(question, answer.first, answer.end)
        for question, answer in enumerate(found)
    ]


def gold_answers(question: Question) -> list[str]:
    """Return the gold answers."""
    return [answer.text for answer in question.answers]


def score_answers(texts: Sequence[str], questions: Sequence[Question]) -> AllScores:
    """Score answers by SQuAD 2.0 if a question is unanswerable, else by SQuAD 1.1."""
    version: Version = "2.0" if any(question.impossible for question in questions) else "1.1"
    return answer_scores(texts, [gold_answers(question) for question in questions], version)


def _texts(paragraphs: Sequence[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield paragraph.context
        yield from (question.text for question in paragraph.questions)


class QuestionAnsweringTask(Task[QuestionAnsweringConfig, PreparedQuestions, SpanPredictor]):
    """Extractive question answering by a pretrained encoder."""

    def prepare(
        self, config: QuestionAnsweringConfig, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            return
        tokenizer = provided_tokenizer(config, vocabulary_source())
        yield StatusEvent("reading the questions")
        corpus = QaCorpus(config.data)
        n_without = sum(question.impossible for paragraph in corpus.valid for question in paragraph.questions)
        if n_without and not corpus.has_unanswerable:
            yield WarningEvent(
                f"{n_without:,} of the questions to validate on have no answer, and none to train on: all get one"
            )
        if tokenizer is None:
            yield StatusEvent("building the vocabulary")
            tokenizer = train_vocabulary(_texts(corpus.train), config.vocabulary)
        yield from prepare_questions(config, corpus, folder, tokenizer, origin)

    def load_data(self, config: QuestionAnsweringConfig, folder: Path) -> PreparedQuestions:
        return load_questions(config, folder)

    def build_model(self, config: QuestionAnsweringConfig, data: PreparedQuestions) -> SpanPredictor:
        model = SpanPredictor(config.model, data.tokenizer.vocab_size)
        finetune.freeze_layers(config, model)
        return model

    def evaluation(
        self, config: QuestionAnsweringConfig, data: PreparedQuestions, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return QuestionAnsweringEvaluation(
            data, device, config.windows.max_answer_length, config.evaluation.n_samples, stop
        )

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: QuestionAnsweringConfig) -> SpanPredictor:
        return SpanPredictor(config.model, finetune.checked_vocab_size(checkpoint, config, 2 * config.model.d_model))

    def check_compatible(self, checkpoint: Checkpoint, config: QuestionAnsweringConfig) -> None:
        finetune.check_encoder(checkpoint, config)

    def init_weights(self, config: QuestionAnsweringConfig, model: SpanPredictor, source: Checkpoint) -> None:
        finetune.init_weights(config, model, source)

    def lr_multipliers(self, config: QuestionAnsweringConfig, model: SpanPredictor) -> Mapping[str, float]:
        return finetune.lr_multipliers(config, model)

    def model_card(self, config: QuestionAnsweringConfig, name: str) -> ModelCardFields:
        return ModelCardFields(
            what="A reader that answers questions on paragraphs (bert)",
            data=[f"`{path}`" for path in config.data.files],
            scored="; exact answers and F1 of their words, as SQuAD's script counts them, in percent.",
            use=f"attnkit predict {name} questions.json",
        )

    def dry_run(self, config: QuestionAnsweringConfig, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if source is not None:
            finetune.check_encoder(source, config)
        paragraphs = QaCorpus(config.data).train
        sample = paragraphs[:_SAMPLE]
        given = provided_tokenizer(config, source)
        tokenizer: Tokenizer = given or train_vocabulary(_texts(sample), config.vocabulary)
        size = tokenizer.vocab_size if given or sample == paragraphs else config.vocabulary.size
        tokens = int(QaExamples(sample, tokenizer, config.windows).rows.lengths[0].sum())
        n = n_questions(paragraphs)
        total = tokens * n / max(1, n_questions(sample))
        return estimate(config, n, total, lambda: SpanPredictor(config.model, size), 2, "questions")

    def dataset(self, data: PreparedQuestions) -> Dataset:
        return data.train

    def loss(
        self, config: QuestionAnsweringConfig, model: SpanPredictor, data: PreparedQuestions, device: torch.device
    ) -> LossFunction:
        return answer_loss(model, device, config.optimization.label_smoothing)


TASK = QuestionAnsweringTask()
