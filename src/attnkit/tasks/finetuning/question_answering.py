"""Answering questions as a task: what joins paragraphs, a pretrained encoder that reads them, its loss and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.prepared_dir import Stage, Warned, is_made
from attnkit.distributed.process_group import Ranks
from attnkit.engine.dry_run import Plan, outline
from attnkit.engine.load import given_tokenizer
from attnkit.engine.model_card import About
from attnkit.engine.task import Abandoned, Sample, Stop, Task
from attnkit.engine.trainer import Parts, make_job, row_feed
from attnkit.engine.validation import sample_places
from attnkit.metrics.answers import AllScores, Version, answer_scores
from attnkit.models.heads import Reader
from attnkit.tasks.finetuning import base as finetune
from attnkit.tasks.finetuning.config import AnswerConfig
from attnkit.tasks.finetuning.question_answering_data import (
    Asked,
    AskedCorpus,
    PreparedQuestions,
    build_asked,
    n_questions,
    open_asked,
)
from attnkit.tasks.finetuning.span_extraction import FoundAnswer, answer_loss, find_answers
from attnkit.text.squad import Paragraph, Question
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.loop import Job

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

    def __call__(self, model: Reader) -> dict[str, float] | None:
        """Return ``loss`` in nats a window; ``exact`` and ``f1`` as SQuAD's script counts them, in percent."""
        asked = self.prepared.valid
        try:
            found = find_answers(model, asked.rows, self.device, self.longest, self.stop)
        except Abandoned:
            return None
        texts = answer_texts(asked, found.answers, self.prepared.refuses)
        self.samples = [
            (asked.questions[i].text, *([*references(asked.questions[i]), ""][:1]), texts[i])
            for i in sample_places(len(texts), self.n_samples)
        ]
        scores = score_answers(texts, asked.questions)
        return {"loss": found.nll / len(asked.rows), "exact": scores.all.exact, "f1": scores.all.f1}


def answer_texts(asked: Asked, found: Sequence[FoundAnswer], refuses: bool, threshold: float = 0.0) -> list[str]:
    """Return the answers as they stand in the paragraphs; the empty text is no answer.

    Args:
        asked: the questions.
        found: an answer to each.
        refuses: whether no answer may be given at all where a paragraph has any token.
        threshold: how much likelier that has to be than the answer, as a difference of logits.
    """
    return [
        "" if refuses and answer.surety > threshold else asked.cut(question, answer.first, answer.behind)
        for question, answer in enumerate(found)
    ]


def references(question: Question) -> list[str]:
    """Return what people gave as answers."""
    return [answer.text for answer in question.answers]


def score_answers(texts: Sequence[str], questions: Sequence[Question]) -> AllScores:
    """Return the scores of answers: as version 2.0 of SQuAD counts where a question has no answer, else as 1.1."""
    version: Version = "2.0" if any(question.impossible for question in questions) else "1.1"
    return answer_scores(texts, [references(question) for question in questions], version)


def _prepare(
    config: AnswerConfig, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[Stage | Warned]:
    if is_made(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
        return
    tokenizer = given_tokenizer(config, giver())
    yield Stage("reading the questions")
    corpus = AskedCorpus(config.data)
    n_without = sum(question.impossible for paragraph in corpus.valid for question in paragraph.questions)
    if n_without and not corpus.refuses:
        yield Warned(f"{n_without:,} of the questions to validate on have no answer, and none to train on: all get one")
    if tokenizer is None:
        yield Stage("building the vocabulary")
        tokenizer = train_vocabulary(_texts(corpus.train), config.vocabulary)
    yield from build_asked(config, corpus, folder, tokenizer, origin)


def _texts(paragraphs: Sequence[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield paragraph.context
        yield from (question.text for question in paragraph.questions)


def _build(config: AnswerConfig, prepared: PreparedQuestions) -> Reader:
    model = Reader(config.model, prepared.tokenizer.vocab_size)
    finetune.ready(config, model)
    return model


def _evaluation(
    config: AnswerConfig, prepared: PreparedQuestions, device: torch.device, stop: Stop | None
) -> AnswersEvaluation:
    return AnswersEvaluation(prepared, device, config.windows.max_answer_length, config.evaluation.n_samples, stop)


def _job(
    config: AnswerConfig,
    model: Reader,
    prepared: PreparedQuestions,
    evaluation: AnswersEvaluation,
    ranks: Ranks,
    stop: Stop | None = None,
) -> Job:
    feed = row_feed(config, prepared.train, ranks)
    loss = answer_loss(model, evaluation.device, config.optimization.label_smoothing)
    return make_job(config, Parts(model, feed, loss), evaluation, ranks, stop)


def _fitting(checkpoint: Checkpoint, config: AnswerConfig) -> Reader:
    return Reader(config.model, finetune.fitted(checkpoint, config, 2 * config.model.d_model))


def _about(config: AnswerConfig, name: str) -> About:
    return About(
        what="A reader that answers questions on paragraphs (bert)",
        data=[f"`{path}`" for path in config.data.files],
        scored="; exact answers and F1 of their words, as SQuAD's script counts them, in percent.",
        use=f"attnkit predict {name} questions.json",
    )


def _plan(config: AnswerConfig, init_from: Path | None = None) -> Plan:
    source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    if source is not None:
        finetune.refuse_misfit(source, config)
    paragraphs = AskedCorpus(config.data).train
    sample = paragraphs[:_SAMPLE]
    given = given_tokenizer(config, source)
    tokenizer: Tokenizer = given or train_vocabulary(_texts(sample), config.vocabulary)
    size = tokenizer.vocab_size if given or sample == paragraphs else config.vocabulary.size
    tokens = int(Asked(sample, tokenizer, config.windows).rows.lengths[0].sum())
    n = n_questions(paragraphs)
    total = tokens * n / max(1, n_questions(sample))
    return outline(config, n, total, lambda: Reader(config.model, size), 2, "questions")


TASK = Task(
    prepare=_prepare,
    open=open_asked,
    build=_build,
    evaluation=_evaluation,
    job=_job,
    fitting=_fitting,
    refuse_misfit=finetune.refuse_misfit,
    about=_about,
    plan=_plan,
    take=finetune.take,
    rates=finetune.rates,
)
