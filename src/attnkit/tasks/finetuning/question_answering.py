"""Answering questions as a task: what joins paragraphs, a pretrained encoder that reads them, its loss and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Dataset
from attnkit.data.prepared_dir import StatusEvent, WarningEvent, is_prepared
from attnkit.engine.dry_run import estimate
from attnkit.engine.evaluation import sample_indices
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.session import PrepareEvent, Sample
from attnkit.engine.task import Evaluation, EvaluationCancelled, LossFunction, RunEstimate, Stop, Task, VocabularySource
from attnkit.engine.vocabularies import provided_tokenizer
from attnkit.metrics.answers import AllScores, Version, answer_scores
from attnkit.models.heads import SpanPredictor
from attnkit.tasks.finetuning import base as finetune
from attnkit.tasks.finetuning.config import AnswerConfig
from attnkit.tasks.finetuning.question_answering_data import (
    PreparedQuestions,
    QaCorpus,
    QaExamples,
    load_questions,
    n_questions,
    prepare_questions,
)
from attnkit.tasks.finetuning.span_extraction import SpanPrediction, answer_loss, find_answers
from attnkit.text.squad import Paragraph, Question
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

_SAMPLE = 500  # paragraphs


@dataclass
class AnswersEvaluation:
    """How many questions of the development set get their answer."""

    prepared: PreparedQuestions
    device: torch.device
    longest: int
    """Tokens of an answer."""
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)
    """(question, its first answer, the answer found)."""

    def __call__(self, model: SpanPredictor) -> dict[str, float] | None:
        """Return ``loss`` in nats a window; ``exact`` and ``f1`` as SQuAD's script counts them, in percent."""
        asked = self.prepared.valid
        try:
            found = find_answers(model, asked.rows, self.device, self.longest, self.stop)
        except EvaluationCancelled:
            return None
        texts = answer_texts(asked, found.answers, self.prepared.has_unanswerable)
        self.samples = [
            (asked.questions[i].text, *([*references(asked.questions[i]), ""][:1]), texts[i])
            for i in sample_indices(len(texts), self.n_samples)
        ]
        scores = score_answers(texts, asked.questions)
        return {"loss": found.nll / len(asked.rows), "exact": scores.all.exact, "f1": scores.all.f1}


def answer_texts(
    asked: QaExamples, found: Sequence[SpanPrediction], refuses: bool, threshold: float = 0.0
) -> list[str]:
    """Return the answers as they stand in the paragraphs; the empty text is no answer.

    Args:
        asked: the questions.
        found: an answer to each.
        refuses: whether no answer may be given at all where a paragraph has any token.
        threshold: how much likelier that has to be than the answer, as a difference of logits.
    """
    return [
        "" if refuses and answer.margin > threshold else asked.cut(question, answer.first, answer.behind)
        for question, answer in enumerate(found)
    ]


def references(question: Question) -> list[str]:
    """Return what people gave as answers."""
    return [answer.text for answer in question.answers]


def score_answers(texts: Sequence[str], questions: Sequence[Question]) -> AllScores:
    """Return the scores of answers: as version 2.0 of SQuAD counts where a question has no answer, else as 1.1."""
    version: Version = "2.0" if any(question.impossible for question in questions) else "1.1"
    return answer_scores(texts, [references(question) for question in questions], version)


def _texts(paragraphs: Sequence[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield paragraph.context
        yield from (question.text for question in paragraph.questions)


class QuestionAnsweringTask(Task[AnswerConfig, PreparedQuestions, SpanPredictor]):
    """Extractive question answering by a pretrained encoder."""

    def prepare(
        self, config: AnswerConfig, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            return
        tokenizer = provided_tokenizer(config, vocabulary_source())
        yield StatusEvent("reading the questions")
        corpus = QaCorpus(config.data)
        n_without = sum(question.impossible for paragraph in corpus.valid for question in paragraph.questions)
        if n_without and not corpus.refuses:
            yield WarningEvent(
                f"{n_without:,} of the questions to validate on have no answer, and none to train on: all get one"
            )
        if tokenizer is None:
            yield StatusEvent("building the vocabulary")
            tokenizer = train_vocabulary(_texts(corpus.train), config.vocabulary)
        yield from prepare_questions(config, corpus, folder, tokenizer, origin)

    def load_data(self, config: AnswerConfig, folder: Path) -> PreparedQuestions:
        return load_questions(config, folder)

    def build_model(self, config: AnswerConfig, data: PreparedQuestions) -> SpanPredictor:
        model = SpanPredictor(config.model, data.tokenizer.vocab_size)
        finetune.freeze_layers(config, model)
        return model

    def evaluation(
        self, config: AnswerConfig, data: PreparedQuestions, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return AnswersEvaluation(data, device, config.windows.max_answer_length, config.evaluation.n_samples, stop)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: AnswerConfig) -> SpanPredictor:
        return SpanPredictor(config.model, finetune.build_for_checkpoint(checkpoint, config, 2 * config.model.d_model))

    def check_compatible(self, checkpoint: Checkpoint, config: AnswerConfig) -> None:
        finetune.refuse_misfit(checkpoint, config)

    def init_weights(self, config: AnswerConfig, model: SpanPredictor, source: Checkpoint) -> None:
        finetune.init_weights(config, model, source)

    def lr_multipliers(self, config: AnswerConfig, model: SpanPredictor) -> Mapping[str, float]:
        return finetune.lr_multipliers(config, model)

    def model_card(self, config: AnswerConfig, name: str) -> ModelCardFields:
        return ModelCardFields(
            what="A reader that answers questions on paragraphs (bert)",
            data=[f"`{path}`" for path in config.data.files],
            scored="; exact answers and F1 of their words, as SQuAD's script counts them, in percent.",
            use=f"attnkit predict {name} questions.json",
        )

    def dry_run(self, config: AnswerConfig, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if source is not None:
            finetune.refuse_misfit(source, config)
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
        self, config: AnswerConfig, model: SpanPredictor, data: PreparedQuestions, device: torch.device
    ) -> LossFunction:
        return answer_loss(model, device, config.optimization.label_smoothing)


TASK = QuestionAnsweringTask()
