"""Runs of ``finetune`` and of document classification behind calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnkit.config.arguments import Count, checked
from attnkit.engine.predict import Predictor, PredictRequest, open_predictor
from attnkit.engine.run_summary import RunSummary
from attnkit.errors import RunError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import check_lengths, warn, windows
from attnkit.library.language_models import summarize
from attnkit.protocols import Entity, entities
from attnkit.tasks.finetuning.predict_token_classification import TokenClassificationPredictor
from attnkit.tasks.finetuning.question_answering import AnswerPrediction, QuestionAnsweringPredictor
from attnkit.tasks.finetuning.text_classification import TextClassificationPredictor
from attnkit.tasks.text_classification.predict import HanPredictor
from attnkit.text.squad import Paragraph, Question


def open_classifier(
    run: str | Path,
    device: str,
    precision: Precision,
    threads: int | None,
    checkpoint: str | None,
    no_answer_threshold: float | None = None,
) -> tuple[Predictor, RunSummary]:
    """Open a predictor of any task with the summary of its run."""
    request = PredictRequest(
        Path(run),
        [],
        device=device,
        precision=precision,
        threads=threads,
        checkpoint=checkpoint,
        no_answer_threshold=no_answer_threshold,
    )
    predictor = open_predictor(request, warn)
    engine = "torch" if precision == "float32" else "compiled"
    return predictor, summarize(predictor.opened, precision, engine)


@dataclass(frozen=True)
class Classification:
    """The label of a text."""

    label: str
    probability: float
    probabilities: Mapping[str, float]  #: label -> probability, the most probable first
    sentences: list[list[str]] | None = None  #: tokens of each sentence, by a document classifier (model han)
    word_weights: list[list[float]] | None = None  #: attention weight of each of these tokens
    sentence_weights: list[float] | None = None  #: attention weight of each sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the label as plain data, without what the model does not have."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class TextClassifier:
    """A classifier of texts, pairs of texts or documents."""

    def __init__(self, predictor: TextClassificationPredictor | HanPredictor, summary: RunSummary) -> None:
        self.summary = summary
        self.labels = list(predictor.labels)
        self._predictor = predictor

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        threads: Count | None = None,
        checkpoint: str | None = None,
    ) -> TextClassifier:
        """Load a run of ``finetune --task text-classification`` or of ``train --task``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        predictor, summary = open_classifier(run, device, precision, threads, checkpoint)
        if not isinstance(predictor, TextClassificationPredictor | HanPredictor):
            raise _other_task(predictor, "text-classification")
        return cls(predictor, summary)

    def __repr__(self) -> str:
        return f"TextClassifier({self.summary}; labels {', '.join(self.labels[:5])}{'…' * (len(self.labels) > 5)})"

    @checked
    def predict(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Classification]:
        """Return the label of each text, or of each text with its member of ``pairs``.

        Raises:
            UsageError: pairs for a document classifier.
            DataError: there are not as many pairs as texts.
        """
        lines = list(texts)
        check_lengths("texts", "pairs", lines, lines if pairs is None else pairs)
        if isinstance(self._predictor, HanPredictor):
            if pairs is not None:
                raise UsageError("a document classifier does not read pairs", help="leave out pairs")
            found = self._predictor.classify(lines)
            return [
                self._classification(one.probabilities, one.sentences, one.word_weights, one.sentence_weights)
                for one in found
            ]
        seconds = [None] * len(lines) if pairs is None else list(pairs)
        return [self._classification(row) for row in self._predictor.classify(lines, seconds)]

    @checked
    def predict_stream(self, texts: Iterable[str], pairs: Iterable[str] | None = None) -> Iterator[Classification]:
        """Yield what ``predict`` returns, text by text; read a window of texts ahead."""
        for window in windows(texts, *([] if pairs is None else [pairs])):
            yield from self.predict(*window)

    def _classification(self, row: Sequence[float], *attention: Any) -> Classification:
        order = sorted(range(len(row)), key=lambda i: -row[i])
        shares = {self.labels[i]: row[i] for i in order}
        return Classification(self.labels[order[0]], row[order[0]], shares, *attention)


@dataclass(frozen=True)
class TagPrediction:
    """The tags of a sentence."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]  #: of each tag

    @property
    def entities(self) -> list[Entity]:
        """The entities that the tags name; none if tags have no ``B-`` and ``I-``."""
        return entities(self.tags)

    def to_dict(self) -> dict[str, Any]:
        """Return words, tags and entities as plain data."""
        named = [{**one._asdict(), "text": " ".join(self.words[one.begin : one.end])} for one in self.entities]
        return {**asdict(self), "entities": named}


class TokenClassifier:
    """A tagger: one tag per word."""

    def __init__(self, predictor: TokenClassificationPredictor, summary: RunSummary) -> None:
        self.summary = summary
        self.labels = list(predictor.labels)
        self._predictor = predictor

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        threads: Count | None = None,
        checkpoint: str | None = None,
    ) -> TokenClassifier:
        """Load a run of ``finetune --task token-classification``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        predictor, summary = open_classifier(run, device, precision, threads, checkpoint)
        if not isinstance(predictor, TokenClassificationPredictor):
            raise _other_task(predictor, "token-classification")
        return cls(predictor, summary)

    def __repr__(self) -> str:
        return f"TokenClassifier({self.summary}; {len(self.labels)} tags)"

    @checked
    def predict(self, sentences: Sequence[str | Sequence[str]]) -> list[TagPrediction]:
        """Return the tags of each sentence: a list of words, or a text split at spaces."""
        given = [one.split() if isinstance(one, str) else list(one) for one in sentences]
        found = self._predictor.tag(given)
        return [
            TagPrediction(list(one.words), one.tags, [float(p) for p in one.probabilities.max(axis=1, initial=0)])
            for one in found
        ]

    @checked
    def predict_stream(self, sentences: Iterable[str | Sequence[str]]) -> Iterator[TagPrediction]:
        """Yield what ``predict`` returns, sentence by sentence."""
        for (window,) in windows(sentences):
            yield from self.predict(window)


class QuestionAnswering:
    """A model that answers questions by spans of a context."""

    def __init__(self, predictor: QuestionAnsweringPredictor, summary: RunSummary) -> None:
        self.summary = summary
        self._predictor = predictor

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        threads: Count | None = None,
        checkpoint: str | None = None,
        no_answer_threshold: float | None = None,
    ) -> QuestionAnswering:
        """Load a run of ``finetune --task question-answering``.

        ``no_answer_threshold`` is the logit margin above which no answer is given; None: the model's own rule.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        predictor, summary = open_classifier(run, device, precision, threads, checkpoint, no_answer_threshold)
        if not isinstance(predictor, QuestionAnsweringPredictor):
            raise _other_task(predictor, "question-answering")
        return cls(predictor, summary)

    def __repr__(self) -> str:
        return f"QuestionAnswering({self.summary})"

    @checked
    def predict(self, questions: Sequence[str], contexts: Sequence[str]) -> list[AnswerPrediction]:
        """Return the answer to each question in its context.

        Raises:
            DataError: there are not as many contexts as questions.
        """
        check_lengths("questions", "contexts", questions, contexts)
        paragraphs = [
            Paragraph("", context, (Question("", question, (), False),))
            for question, context in zip(questions, contexts, strict=True)
        ]
        return self._predictor.answer(paragraphs)

    @checked
    def predict_stream(self, questions: Iterable[str], contexts: Iterable[str]) -> Iterator[AnswerPrediction]:
        """Yield what ``predict`` returns, question by question; read a window ahead."""
        for window in windows(questions, contexts):
            yield from self.predict(*window)


def _other_task(predictor: Predictor, task: str) -> RunError:
    what = f"this is a run of task '{predictor.task}', not of {task}"
    return RunError(what, where=str(predictor.opened.path), help="use attnkit.load, which knows every task")
