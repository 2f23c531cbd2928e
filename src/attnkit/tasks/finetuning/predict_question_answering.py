"""Answers of a question-answering run to questions in JSON lines or SQuAD's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnkit.engine.loading import LoadedModel
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.io.safe_read import parse_json
from attnkit.metrics.answers import AnswerScores, answer_scores, best_threshold
from attnkit.metrics.labels import rounded
from attnkit.tasks.finetuning.predict import (
    Format,
    PredictRequest,
    Totals,
    Warn,
    as_json,
    line_ref,
    truncation_warning,
)
from attnkit.tasks.finetuning.question_answering import SpanPrediction, predict_answers
from attnkit.tasks.finetuning.question_answering_data import QaExamples
from attnkit.text.line_stream import encoding_warnings, flush_interval, line_batches
from attnkit.text.lines import LineReader
from attnkit.text.squad import Answer, Paragraph, Question, lone_surrogate, mend_surrogates, read_squad

_READ_AHEAD = 256  # questions
_HELP = 'a line is an object with two texts: {"question": "Who ...?", "context": "It was ..."}'


def read_question(line: str, where: str, strict: bool = False) -> Paragraph:
    """Parse a line of JSON as a paragraph with one question.

    The optional ``answers`` is a list of texts, a list of objects with a ``text`` as in SQuAD, or an object with a list
    ``text`` as on the Hugging Face Hub. An empty list marks an unanswerable question. A lone surrogate becomes U+FFFD.

    Raises:
        DataError: invalid JSON, or a lone surrogate if strict.
    """
    try:
        tree = parse_json(line.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise DataError(f"invalid JSON: {error}", where=where, help=_HELP) from error
    if not isinstance(tree, dict) or not all(isinstance(tree.get(key), str) for key in ("question", "context")):
        raise DataError("'question' or 'context' is missing", where=where, help=_HELP)
    answers = tree.get("answers")
    given = answers.get("text") if isinstance(answers, dict) else answers
    texts = [part.get("text") if isinstance(part, dict) else part for part in given] if isinstance(given, list) else []
    if (given is not None and not isinstance(given, list)) or not all(isinstance(text, str) for text in texts):
        help = 'write "answers": ["one", "another"], or [] for an unanswerable question'
        raise DataError("'answers' is not a list of texts", where=where, help=help)
    id = "" if tree.get("id") is None else str(tree["id"])
    whole = [id, tree["question"], tree["context"], *map(str, texts)]
    if strict and (half := next(filter(None, map(lone_surrogate, whole)), None)):
        help = "write the whole surrogate pair, or leave out --strict"
        raise DataError(f"lone surrogate {half}", where=where, help=help)
    id, asked, context, *mended = map(mend_surrogates, whole)
    known = tuple(Answer(text, 0) for text in mended)
    question = Question(id, asked, known, given is not None and not known)
    return Paragraph("", context, (question,))


@dataclass(frozen=True)
class AnswerPrediction:
    """An answer to a question."""

    text: str
    """Empty if the prediction is that there is no answer."""
    probability: float
    begin: int | None
    """Offset of its first character in the context."""
    end: int | None
    """Offset after its last character."""
    best: str
    """The best span, even if ``text`` is empty."""
    no_answer_margin: float
    """Margin of logits of no answer over the best span."""


_MAX_MARGIN = 1e9
"""Bound of margins; those of empty contexts are infinite."""


class QuestionAnsweringPipeline:
    """Answers questions on paragraphs. Each answer depends on its own question and paragraph alone.

    A model trained on unanswerable questions, or any model with a threshold, abstains if no answer exceeds the best
    answer by more than the threshold of logits, default 0 (Rajpurkar et al. 2018; Devlin et al. 2019, section 4.3).
    """

    def __init__(self, opened: LoadedModel, batch_tokens: int = 16384, threshold: float | None = None) -> None:
        self.opened, self._batch_tokens, self._threshold = opened, batch_tokens, threshold or 0.0
        self._tokenizer = read_tokenizer(opened.checkpoint)
        self.may_abstain = "labels.json" in opened.checkpoint.manifest.files or threshold is not None
        """Whether it may predict no answer."""
        self.n_truncated = 0
        """Truncated questions so far."""

    def answer(self, paragraphs: Sequence[Paragraph]) -> list[AnswerPrediction]:
        """Return the answer to each question of each paragraph."""
        model, sizes = self.opened.model, self.opened.config.windows
        asked = QaExamples(paragraphs, self._tokenizer, sizes)
        self.n_truncated += asked.n_truncated
        most, n_tokens = sizes.max_answer_length, self._batch_tokens
        found = predict_answers(model, asked.rows, self.opened.device, most, n_tokens=n_tokens)
        return [self._answered(asked, question, answer) for question, answer in enumerate(found.answers)]

    def _answered(self, asked: QaExamples, question: int, found: SpanPrediction) -> AnswerPrediction:
        text, surety = asked.answer_text(question, found.first, found.end), found.margin
        if self.may_abstain and surety > self._threshold:
            none = 1 / (1 + math.exp(min(700.0, found.log_sum - found.no_answer)))
            return AnswerPrediction("", none, None, None, text, surety)
        if not text:  # only spaces, or an empty context
            return AnswerPrediction("", found.probability(self.may_abstain), None, None, text, surety)
        number = int(asked.context_of[question])
        context, begin = asked.paragraphs[number].context, int(asked.aligned[number].begins[found.first])
        begin = context.index(text, begin)  # the first token may bring a space
        return AnswerPrediction(text, found.probability(self.may_abstain), begin, begin + len(text), text, surety)


@dataclass
class QuestionAnsweringPredictor:
    """``attnkit predict`` for question answering; satisfies ``predict.Predictor``."""

    opened: LoadedModel
    request: PredictRequest
    warn: Warn
    found: list[AnswerPrediction] = field(default_factory=list)
    """Answers so far to questions with gold answers."""
    expected: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.request.all_labels:
            raise UsageError("question answering cannot list all answers", where="--all", help="leave out --all")
        self.pipeline = QuestionAnsweringPipeline(
            self.opened, self.request.batch_tokens, self.request.no_answer_threshold
        )

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield one line per question, in their order."""
        if format == "squad":
            for paragraphs in _question_batches(read_squad(path)):
                yield self._answer(paragraphs)
            return
        reader = LineReader(path, on_bad="refuse" if self.request.strict else "replace")
        strict = self.request.strict
        asked = (read_question(line, line_ref(path, number), strict) for number, line in enumerate(reader, 1))
        for paragraphs in line_batches(asked, _READ_AHEAD, flush_interval(path), _n_characters):
            yield self._answer(paragraphs)
        for message in encoding_warnings(reader.counts, path):
            self.warn(message)

    def _answer(self, paragraphs: Sequence[Paragraph]) -> list[str]:
        questions = [question for paragraph in paragraphs for question in paragraph.questions]
        found = self.pipeline.answer(paragraphs)
        if self.request.gold:
            known = [(one, q) for one, q in zip(found, questions, strict=True) if q.labeled]
            self.found += [one for one, _ in known]
            self.expected += [[answer.text for answer in question.answers] for _, question in known]
        return [self._line(one, question) for one, question in zip(found, questions, strict=True)]

    def _line(self, found: AnswerPrediction, question: Question) -> str:
        if not self.request.as_json:
            place = "\t".join("" if at is None else str(at) for at in (found.begin, found.end))
            return f"{' '.join(found.text.split())}\t{found.probability:.4f}\t{place}"
        tree: dict[str, Any] = {"id": question.id} if question.id else {}
        tree |= {"answer": found.text, "probability": rounded(found.probability)}
        tree |= {"begin": found.begin, "end": found.end}
        expected = {"expected": [answer.text for answer in question.answers]}
        return as_json(tree | expected if self.request.gold and question.labeled else tree)

    def warnings(self) -> list[str]:
        """Return warnings on truncated questions, and on missing gold answers with ``--gold``."""
        cut = truncation_warning(self.pipeline.n_truncated, "question", self.opened.config.windows.max_question_length)
        return cut if self.expected or not self.request.gold else [*cut, "no question has gold answers"]

    def totals(self) -> Totals:
        """Return exact match and F1: of all questions, of answerable and of unanswerable ones."""
        if not self.expected:
            return Totals({"questions": 0}, "0 questions")
        given = [one.text for one in self.found]
        scores = answer_scores(given, self.expected, "1.1" if all(self.expected) else "2.0")
        headline = (
            f"{scores.all.n_questions:,} questions, exact match {scores.all.exact:.2f} %, F1 {scores.all.f1:.2f} %"
        )
        parts = {"answered": scores.answered, "unanswered": scores.unanswered}
        kinds = {name: part for name, part in parts.items() if part is not None}
        plain = {**_as_dictionary(scores.all), **{name: _as_dictionary(part) for name, part in kinds.items()}}
        if len(kinds) < 2:
            return Totals(plain, headline)
        if self.pipeline.may_abstain:
            best, sure = [one.best for one in self.found], [one.no_answer_margin for one in self.found]
            threshold, highest = best_threshold(best, self.expected, [min(one, _MAX_MARGIN) for one in sure])
            plain |= {"best_threshold": threshold, "best": _as_dictionary(highest.all)}
            headline += f"; F1 {highest.all.f1:.2f} with --no-answer-threshold {threshold!r}, the best here"
        table = [("questions", "", "exact match", "F1")]
        names = {"answered": "with an answer", "unanswered": "without one"}
        table += [(names[n], f"{p.n_questions:,}", f"{p.exact:.2f}", f"{p.f1:.2f}") for n, p in kinds.items()]
        return Totals(plain, headline, table)


def _n_characters(paragraph: Paragraph) -> int:
    return len(paragraph.context) + sum(len(question.text) for question in paragraph.questions)


def _as_dictionary(scores: AnswerScores) -> dict[str, Any]:
    return {"questions": scores.n_questions, "exact": scores.exact, "f1": scores.f1}


def _question_batches(paragraphs: Sequence[Paragraph]) -> Iterator[list[Paragraph]]:
    """Yield lists of paragraphs with about ``_READ_AHEAD`` questions each."""
    part, n = list[Paragraph](), 0
    for paragraph in paragraphs:
        part.append(paragraph)
        n += len(paragraph.questions)
        if n >= _READ_AHEAD:
            yield part
            part, n = [], 0
    if n:
        yield part
