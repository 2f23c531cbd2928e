"""Extractive question answering: loss, spans, evaluation, task and predictor."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.data.windows import StridedContextDataset, WindowBatch
from attnkit.engine.events import Sample
from attnkit.engine.examples import to_float32
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import Format, Predictor, PredictRequest, Totals, Warn, line_ref, truncation_warning
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import Evaluation, LossFunction, Stop, TrainingOutcome, until_stopped
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.io.plain_data import PlainResult
from attnkit.io.safe_read import parse_json
from attnkit.metrics.answers import Version, answer_scores, best_threshold
from attnkit.metrics.labels import rounded
from attnkit.models.bert import SpanPredictor, best_span
from attnkit.models.linear import without_dropout
from attnkit.tasks.finetuning.config import QuestionAnsweringConfig
from attnkit.tasks.finetuning.question_answering_data import PreparedQuestions, QaExamples, QuestionCorpus, open_data
from attnkit.tasks.finetuning.task import ADVICE, FinetuningTask, LabelType
from attnkit.text.squad import Answer, Paragraph, Question, lone_surrogate, mend_surrogates, read_squad
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096
CLOSE_LOSS = 0.05  #: in nats; a loss that is nearer to that of a guess is no better


@dataclass(frozen=True)
class SpanPrediction:
    """The most probable answer to a question, over all windows of its context."""

    first: int  #: first token in the context
    end: int  #: end token in the context, exclusive; 0 for an empty context
    score: float  #: sum of start and end logits; -inf for an empty context
    log_sum: float  #: log-sum-exp of the scores of all answers up to the maximum length
    no_answer: float  #: sum of start and end logits of no answer; minimum over all windows

    @property
    def margin(self) -> float:
        """Return the logit margin of no answer over this answer."""
        return self.no_answer - self.score

    def is_none(self, may_abstain: bool, threshold: float = 0.0) -> bool:
        """Return whether to abstain: the margin of no answer exceeds the threshold."""
        return may_abstain and self.margin > threshold

    def probability(self, may_abstain: bool) -> float:
        """Return this answer's probability; abstaining is an option if ``may_abstain``."""
        total = float(np.logaddexp(self.log_sum, self.no_answer)) if may_abstain else self.log_sum
        return math.exp(self.score - total) if self.end else 0.0


def reader_logits(model: SpanPredictor, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Return start and end logits (2, B, T), and the mask (B, T) of valid positions."""
    allowed = batch.context.clone()
    allowed[:, 0] = True  # [CLS]: no answer
    logits = model(batch.ids, batch.real, batch.segments, allowed)
    return to_float32(logits), allowed


def answer_loss(
    model: SpanPredictor, device: torch.device, smoothing: float
) -> Callable[[WindowBatch], Mapping[str, LossTerm]]:
    """Return the loss: mean NLL of start and end positions, summed over windows.

    Label smoothing is spread over all valid positions.
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
    """Return the most probable answer per question, and the total NLL in nats.

    Answers have at most ``max_length`` tokens and are scored only in the window with the most context of their first
    token, so that they are not counted twice. The NLL is summed over windows; windows without an answer count as
    unanswerable. Batches have about ``n_tokens`` tokens. Raises ``EvaluationCancelled`` if stopped.
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
            columns = (part.tolist() for part in results)
            for row, first, last, score, log_sum, no_answer in zip(indices, *columns, strict=True):
                # All scores are -inf if this is not the best window of any token.
                span = rows.in_context(row, first, last) if score > -math.inf else (0, 0)
                answer = SpanPrediction(*span, score, log_sum, no_answer)
                question = int(rows.questions[row])
                if (other := found.get(question)) is not None:
                    # Keep the higher-scoring answer of both windows, with the log-sum over both.
                    best = other if other.score >= score else answer
                    log_sum = float(np.logaddexp(other.log_sum, log_sum))
                    answer = replace(best, log_sum=log_sum, no_answer=min(other.no_answer, no_answer))
                found[question] = answer
    return [found[question] for question in sorted(found)], nll


def log_sums(starts: Tensor, ends: Tensor, max_length: int) -> Tensor:
    """Return log-sum-exp scores (B,) over spans of at most ``max_length`` tokens.

    Memory use is that of the logits (B, T), independent of ``max_length``.
    """
    total = starts.new_full(starts.shape[:1], -math.inf)
    for shift in range(min(max_length, starts.shape[1])):
        scores = starts[:, : starts.shape[1] - shift] + ends[:, shift:]
        total = torch.logaddexp(total, scores.logsumexp(1))
    return total


@dataclass
class QuestionAnsweringEvaluation:
    """Question-answering scores on the development set."""

    prepared: PreparedQuestions
    device: torch.device
    max_answer_length: int  #: in tokens
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: (question, first gold answer, predicted answer)

    def __call__(self, model: SpanPredictor) -> dict[str, float]:
        """Return ``loss`` in nats per window; SQuAD ``exact`` and ``f1`` in percent."""
        asked = self.prepared.valid_examples
        found, nll = predict_answers(model, asked.rows, self.device, self.max_answer_length, self.stop)
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
    """Answers as spans of a paragraph."""

    description, example = "An extractive question-answering model", "questions.json"
    scored = "exact match and word F1 in percent, computed as in the SQuAD script"
    has_labels, corpus = False, QuestionCorpus

    def load(self, config: QuestionAnsweringConfig, folder: Path) -> PreparedQuestions:
        return open_data(config, folder)

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

    def outcome_warnings(
        self, config: QuestionAnsweringConfig, data: PreparedQuestions, outcome: TrainingOutcome
    ) -> Iterator[str]:
        windows = data.valid.windows
        # All tokens of a window and [CLS] may begin or end an answer.
        uniform = float(np.log(windows.ends - windows.begins + 1).mean())
        if outcome.scores.get("loss", 0.0) > uniform - CLOSE_LOSS:
            found = f"loss {outcome.scores['loss']:.2f} is at chance: if all positions are equally likely, it is"
            yield f"{found} {uniform:.2f}\n  {ADVICE[config.finetuning.from_scratch]}"


_READ_AHEAD = 256  # questions
_HELP = 'write one JSON object per line: {"question": "Who ...?", "context": "It was ..."}'


def read_question(line: str, where: str, strict: bool = False) -> Paragraph:
    """Parse a line of JSON as a paragraph with one question.

    The optional ``answers`` is a list of texts, a list of objects with a ``text`` as in SQuAD, or an object with a list
    ``text`` as on the Hugging Face Hub. An empty list marks an unanswerable question. A lone surrogate becomes U+FFFD.
    Raises ``DataError`` for an invalid line, or for a lone surrogate if strict.
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
        help = "write the full surrogate pair, or remove --strict"
        raise DataError(f"lone surrogate {half}", where=where, help=help)
    id, asked, context, *mended = map(mend_surrogates, whole)
    known = tuple(Answer(text, 0) for text in mended)
    question = Question(id, asked, known, given is not None and not known)
    return Paragraph("", context, (question,))


@dataclass(frozen=True)
class AnswerPrediction(PlainResult):
    """A predicted answer to a question."""

    text: str  #: empty if the question is predicted to be unanswerable
    probability: float
    begin: int | None  #: offset of its first character in the context
    end: int | None  #: offset after its last character
    best: str  #: text of the best span, even if ``text`` is empty
    no_answer_margin: float  #: logit margin of no answer over the best span


_MAX_MARGIN = 1e9  #: upper bound of margins; those of empty contexts are infinite


class QuestionAnsweringPredictor(Predictor):
    """Predictor of ``attnkit predict`` for question answering.

    Each answer depends only on its own question and paragraph. A model trained on unanswerable questions, or any model
    with a threshold, abstains if the logit margin of no answer over the best answer exceeds the threshold, 0 by default
    (Rajpurkar et al. 2018; Devlin et al. 2019, section 4.3).
    """

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        if request.all_labels:
            raise UsageError("--all is not available for question-answering", where="--all", help="leave out --all")
        self.tokenizer, self.threshold = read_tokenizer(opened.checkpoint), request.no_answer_threshold or 0.0
        trained_to = "labels.json" in opened.checkpoint.manifest.files
        self.may_abstain = trained_to or request.no_answer_threshold is not None
        """Whether the model may predict no answer."""
        self.n_truncated = 0  #: number of questions truncated so far

    def answer(self, paragraphs: Sequence[Paragraph]) -> list[AnswerPrediction]:
        """Return one answer per question, in the order of paragraphs and questions."""
        model, sizes = self.opened.model, self.opened.config.windows
        asked = QaExamples(paragraphs, self.tokenizer, sizes)
        self.n_truncated += asked.n_truncated
        most, n_tokens = sizes.max_answer_length, self.request.batch_tokens
        found, _ = predict_answers(model, asked.rows, self.opened.device, most, n_tokens=n_tokens)
        answers: list[AnswerPrediction] = []
        for number, span in enumerate(found):
            best, begin, end = asked.answer_text(number, span.first, span.end), None, None
            if span.is_none(self.may_abstain, self.threshold):
                probability = 1 / (1 + math.exp(min(700.0, span.log_sum - span.no_answer)))
                answers.append(AnswerPrediction("", probability, None, None, best, span.margin))
                continue
            if best:  # neither blank nor from an empty context
                context = int(asked.context_of[number])
                # The first token may include a leading space.
                begin = asked.paragraphs[context].context.index(best, int(asked.aligned[context].begins[span.first]))
                end = begin + len(best)
            probability = span.probability(self.may_abstain)
            answers.append(AnswerPrediction(best, probability, begin, end, best, span.margin))
        return answers

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield batches of output lines, one line per question in input order."""
        if format == "squad":
            groups: Iterable[list[Paragraph]] = _question_batches(read_squad(path))
        else:
            groups = self.read(
                path,
                lambda lines: (
                    read_question(line, line_ref(path, number), self.request.strict)
                    for number, line in enumerate(lines, 1)
                ),
                lambda paragraph: len(paragraph.context) + sum(len(one.text) for one in paragraph.questions),
                _READ_AHEAD,
            )
        for paragraphs in groups:
            questions = [question for paragraph in paragraphs for question in paragraph.questions]
            found = list(zip(self.answer(paragraphs), questions, strict=True))
            if self.request.gold:
                self.found += [one for one, question in found if question.labeled]
                self.expected += [[answer.text for answer in q.answers] for q in questions if q.labeled]
            yield [self._line(one, question) for one, question in found]

    def _line(self, found: AnswerPrediction, question: Question) -> str:
        if not self.request.as_json:
            place = "\t".join("" if at is None else str(at) for at in (found.begin, found.end))
            return f"{' '.join(found.text.split())}\t{found.probability:.4f}\t{place}"
        tree: dict[str, Any] = {"id": question.id} if question.id else {}
        tree |= {"answer": found.text, "probability": rounded(found.probability)}
        tree |= {"begin": found.begin, "end": found.end}
        expected = {"expected": [answer.text for answer in question.answers]}
        tree |= expected if self.request.gold and question.labeled else {}
        return json.dumps(tree, ensure_ascii=False)

    def warnings(self) -> list[str]:
        """Return warnings about truncated questions and missing gold answers."""
        cut = truncation_warning(self.n_truncated, "question", self.opened.config.windows.max_question_length)
        return cut if self.expected or not self.request.gold else [*cut, "no question has gold answers"]

    def totals(self) -> Totals:
        """Return exact match and F1 for all, answerable and unanswerable questions."""
        if not self.expected:
            return Totals({"questions": 0}, "0 questions")
        given = [one.text for one in self.found]
        scores = answer_scores(given, self.expected, "1.1" if all(self.expected) else "2.0")
        whole = scores.all
        headline = f"{whole.n_questions:,} questions, exact match {whole.exact:.2f} %, F1 {whole.f1:.2f} %"
        parts = {"answered": scores.answered, "unanswered": scores.unanswered}
        kinds = {name: part for name, part in parts.items() if part is not None}
        plain = {**whole.to_dict(), **{name: part.to_dict() for name, part in kinds.items()}}
        if len(kinds) < 2:
            return Totals(plain, headline)
        if self.may_abstain:
            best, sure = [one.best for one in self.found], [one.no_answer_margin for one in self.found]
            threshold, highest = best_threshold(best, self.expected, [min(one, _MAX_MARGIN) for one in sure])
            plain |= {"best_threshold": threshold, "best": highest.all.to_dict()}
            headline += f"; best F1 {highest.all.f1:.2f} at --no-answer-threshold {threshold!r}"
        table = [("questions", "", "exact match", "F1")]
        names = {"answered": "with an answer", "unanswered": "without one"}
        table += [(names[n], f"{p.n_questions:,}", f"{p.exact:.2f}", f"{p.f1:.2f}") for n, p in kinds.items()]
        return Totals(plain, headline, table)


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


TASK = FinetuningTask(Answers())
