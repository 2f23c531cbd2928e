"""Answers of a question-answering run to questions in JSON lines or SQuAD's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import (
    Format,
    Predictor,
    PredictRequest,
    Totals,
    Warn,
    as_json,
    line_ref,
    truncation_warning,
)
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.io.safe_read import parse_json
from attnkit.metrics.answers import answer_scores, best_threshold
from attnkit.metrics.labels import rounded
from attnkit.tasks.finetuning.question_answering import SpanPrediction, predict_answers
from attnkit.tasks.finetuning.question_answering_data import QaExamples
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

    text: str  #: empty: predicted to have no answer
    probability: float
    begin: int | None  #: offset of its first character in the context
    end: int | None  #: offset after its last character
    best: str  #: best span, even if ``text`` is empty
    no_answer_margin: float  #: margin of logits of no answer over the best span


_MAX_MARGIN = 1e9  #: bound of margins; those of empty contexts are infinite


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
        found, _ = predict_answers(model, asked.rows, self.opened.device, most, n_tokens=n_tokens)
        return [self._answered(asked, number, span) for number, span in enumerate(found)]

    def _answered(self, asked: QaExamples, number: int, span: SpanPrediction) -> AnswerPrediction:
        best = asked.answer_text(number, span.first, span.end)
        if span.is_none(self.may_abstain, self._threshold):
            none = 1 / (1 + math.exp(min(700.0, span.log_sum - span.no_answer)))
            return AnswerPrediction("", none, None, None, best, span.margin)
        probability, begin = span.probability(self.may_abstain), None
        if best:  # not only spaces, nor an empty context
            context = int(asked.context_of[number])
            # The first token may bring a space.
            begin = asked.paragraphs[context].context.index(best, int(asked.aligned[context].begins[span.first]))
        end = None if begin is None else begin + len(best)
        return AnswerPrediction(best, probability, begin, end, best, span.margin)


class QuestionAnsweringPredictor(Predictor):
    """``attnkit predict`` for question answering."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        if request.all_labels:
            raise UsageError("question answering cannot list all answers", where="--all", help="leave out --all")
        self.pipeline = QuestionAnsweringPipeline(opened, request.batch_tokens, request.no_answer_threshold)
        self.found: list[AnswerPrediction] = []
        """Answers so far to questions with gold answers."""
        self.expected: list[list[str]] = []

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield one line per question, in their order."""
        if format == "squad":
            groups: Iterable[list[Paragraph]] = _question_batches(read_squad(path))
        else:
            groups = self.read(path, partial(self._parse, path), _n_characters, _READ_AHEAD)
        for paragraphs in groups:
            questions = [question for paragraph in paragraphs for question in paragraph.questions]
            found = list(zip(self.pipeline.answer(paragraphs), questions, strict=True))
            if self.request.gold:
                self.found += [one for one, question in found if question.labeled]
                self.expected += [[answer.text for answer in q.answers] for q in questions if q.labeled]
            yield [self._line(one, question) for one, question in found]

    def _parse(self, path: Path, lines: Iterable[str]) -> Iterator[Paragraph]:
        for number, line in enumerate(lines, 1):
            yield read_question(line, line_ref(path, number), self.request.strict)

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
        plain = {**scores.all.as_dictionary(), **{name: part.as_dictionary() for name, part in kinds.items()}}
        if len(kinds) < 2:
            return Totals(plain, headline)
        if self.pipeline.may_abstain:
            best, sure = [one.best for one in self.found], [one.no_answer_margin for one in self.found]
            threshold, highest = best_threshold(best, self.expected, [min(one, _MAX_MARGIN) for one in sure])
            plain |= {"best_threshold": threshold, "best": highest.all.as_dictionary()}
            headline += f"; F1 {highest.all.f1:.2f} with --no-answer-threshold {threshold!r}, the best here"
        table = [("questions", "", "exact match", "F1")]
        names = {"answered": "with an answer", "unanswered": "without one"}
        table += [(names[n], f"{p.n_questions:,}", f"{p.exact:.2f}", f"{p.f1:.2f}") for n, p in kinds.items()]
        return Totals(plain, headline, table)


def _n_characters(paragraph: Paragraph) -> int:
    return len(paragraph.context) + sum(len(question.text) for question in paragraph.questions)


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
