"""Readers find the answers that occur in paragraphs: against loops over windows and spans, and scores by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labeled import asked, configure, write_asked

from attnkit.data.config import WindowSizes
from attnkit.data.prepared_dir import WarningEvent
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import resolve
from attnkit.engine.task import EvaluationCancelled
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.models.bert import SpanPredictor
from attnkit.tasks.finetuning.question_answering import TASK, SpanPrediction, answer_loss, log_sums, predict_answers
from attnkit.tasks.finetuning.question_answering_data import QaExamples, answer_tokens, open_data
from attnkit.text.config import VocabularyConfig
from attnkit.text.offsets import Aligned
from attnkit.text.squad import Answer, Paragraph, Question
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

LEARNT = ("limits.max_epochs=8", "optimization.learning_rate=1e-2", "optimization.batch_tokens=500")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run over questions of which some have no answer, opened, with its data."""
    folder = tmp_path_factory.mktemp("taught")
    files = [
        write_asked(folder / f"{name}.json", asked(n, seed, 0.7)) for name, n, seed in (("a", 120, 1), ("b", 30, 2))
    ]
    config = configure("question-answering", files[0], files[1], *LEARNT, "evaluation.every_epochs=8")
    done = list(train(TrainRequest(config, folder / "run")))[-1]
    opened = load_model(folder / "run", "question-answering", device="cpu")
    return opened, open_data(config, folder / "run" / "data"), done.metrics


def shaken(opened: Any, prepared: Any, by: float) -> SpanPredictor:
    torch.manual_seed(3)
    model = SpanPredictor(opened.config.model, prepared.tokenizer.vocab_size)
    model.load_state_dict(opened.model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=by)
    return model.eval()


def test_a_reader_learns_what_to_look_for(taught: Any) -> None:
    _, prepared, scores = taught
    assert prepared.label_file is not None and scores["f1"] > 90 and scores["exact"] > 80, scores


def by_hand(found: str, expected: list[str]) -> tuple[float, float]:
    """Return exact match and F1 of an answer of this file's few words; no answer is an empty text."""
    words = [[word for word in text.split() if word not in ("The", ".")] for text in (found, (expected or [""])[0])]
    ours, theirs = map(Counter, words)
    if not ours or not theirs:
        return (float(ours == theirs),) * 2
    return float(words[0] == words[1]), 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def test_scores_are_those_counted_by_hand(taught: Any) -> None:
    """By a model of whose answers some are wrong, from the windows as a loop over all spans finds them."""
    opened, prepared, told = taught
    evaluation = TASK.evaluation(opened.config, prepared, opened.device, None)
    assert evaluation(opened.model) == pytest.approx(dict(told)), "as training said"
    model = shaken(opened, prepared, 0.04)
    scores = evaluation(model)
    exact, f1, refused = [], [], 0
    for paragraph in prepared.valid_examples.paragraphs:
        for question in paragraph.questions:
            found = loop(
                model, QaExamples([paragraph_of(paragraph, question)], prepared.tokenizer, opened.config.windows)
            )
            text = "" if found[3] > found[2] else found[0]
            refused += not text
            one, other = by_hand(text, [answer.text for answer in question.answers])
            exact.append(one)
            f1.append(other)
    assert scores is not None and 0 < refused < len(f1) and 0 < sum(exact) < sum(f1) < len(f1)
    assert (scores["exact"], scores["f1"]) == pytest.approx((100 * np.mean(exact), 100 * np.mean(f1)))


def paragraph_of(paragraph: Paragraph, question: Question) -> Paragraph:
    return Paragraph(paragraph.title, paragraph.context, (question,))


def loop(model: SpanPredictor, one: QaExamples) -> tuple[str, tuple[int, int], float, float, float]:
    """Return answer, tokens, its score, that of no answer, and the log of the sum over all answers of one question."""
    rows, best, nothing, total = one.rows, (-math.inf, 0, 0), math.inf, []
    sizes = one.sizes
    for row in range(len(rows)):
        batch = rows.batch(np.array([row]))
        with torch.no_grad():
            hidden = model.output(model.encoder.hidden(batch.ids, layout(batch.real), batch.segments))[0]
        starts, ends = hidden[:, 0].tolist(), hidden[:, 1].tolist()
        nothing = min(nothing, starts[0] + ends[0])
        places = batch.context[0].nonzero().flatten().tolist()
        for a in batch.best[0].nonzero().flatten().tolist():
            for b in range(a, min(places[-1] + 1, a + sizes.max_answer_length)):
                score = starts[a] + ends[b]
                total.append(score)
                first = int(rows.windows.begins[row]) + a - places[0]
                best = max(best, (score, -first, first + b - a + 1))
    score, first, behind = best[0], -best[1], best[2]
    return one.answer_text(0, first, behind), (first, behind), score, nothing, float(np.logaddexp.reduce(total))


def layout(real: torch.Tensor) -> Any:
    from attnkit.models.layers import PackedLayout

    return PackedLayout.padded(real)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_vocabulary([chr(97 + i) * 2 for i in range(20)] * 3, VocabularyConfig(kind="word", min_frequency=1))


def test_answers_are_those_of_a_loop_over_windows_and_spans(words: Tokenizer) -> None:
    drawn = np.random.default_rng(4)
    texts = [" ".join(chr(97 + i) * 2 for i in drawn.integers(0, 20, n)) for n in (3, 9, 30, 70, 200)]
    questions = [Question(str(i), texts[0] * (i + 1), (), False) for i in range(len(texts))]
    sizes = WindowSizes(max_length=24, stride=5, max_question_length=6, max_answer_length=4)
    paragraphs = [Paragraph("", text, (question,)) for text, question in zip(texts, questions, strict=True)]
    torch.manual_seed(2)
    model = SpanPredictor(configure("question-answering", Path("a"), None).model, words.vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    every = QaExamples([*paragraphs, Paragraph("", "", (Question("none", "aa", (), False),))], words, sizes)
    assert len(every.rows) > 20
    found, _ = predict_answers(model, every.rows, torch.device("cpu"), sizes.max_answer_length, n_tokens=100)
    for number, paragraph in enumerate(paragraphs):
        text, span, score, nothing, total = loop(model, QaExamples([paragraph], words, sizes))
        answer = found[number]
        assert (
            (answer.first, answer.end) == span
            and every.answer_text(number, *span) == text
            and text in paragraph.context
        )
        assert [answer.score, answer.no_answer, answer.log_sum] == pytest.approx([score, nothing, total], rel=1e-4)
        assert answer.probability(False) == pytest.approx(math.exp(score - total), rel=1e-3)
        whole = math.exp(total) + math.exp(nothing)
        assert answer.probability(True) == pytest.approx(math.exp(score) / whole, rel=1e-3)
    assert (found[-1].end, found[-1].probability(True)) == (0, 0), "a paragraph without tokens has no answer"
    assert every.answer_text(len(paragraphs), found[-1].first, found[-1].end) == ""


def test_no_answer_is_given_from_a_threshold_on(words: Tokenizer) -> None:
    one = QaExamples([Paragraph("", "aa bb cc", (Question("a", "aa", (), False),))], words, WindowSizes(24, 5, 6, 4))
    found = SpanPrediction(1, 3, score=2.0, log_sum=3.0, no_answer=2.5)
    assert one.answer_text(0, found.first, found.end) == "bb cc"
    assert [found.is_none(True), found.is_none(True, threshold=0.5), found.is_none(False)] == [True, False, False]


@pytest.mark.parametrize("longest", [1, 3, 100])
def test_sums_over_spans_are_a_plain_loops(longest: int) -> None:
    generator = torch.Generator().manual_seed(7)
    starts, ends = (torch.randn(20, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    starts[:, :2] = ends[:, :2] = -math.inf
    starts[0] = -math.inf
    found = log_sums(starts, ends, longest)
    assert found[0] == -math.inf
    for i in range(1, 20):
        spans = [float(starts[i, a] + ends[i, b]) for a in range(8) for b in range(a, min(8, a + longest))]
        assert float(found[i]) == pytest.approx(np.logaddexp.reduce(spans))


def test_the_loss_is_a_sum_over_windows(taught: Any) -> None:
    opened, prepared, _ = taught
    model = shaken(opened, prepared, 0.05).double()
    batch = prepared.train.batch(np.arange(7))
    assert 0 < int((batch.firsts == 0).sum()) < 7, "the test needs windows with and without an answer"
    nll = smoothed = 0.0
    for row in range(7):
        with torch.no_grad():
            hidden = model.output(model.encoder.hidden(batch.ids, layout(batch.real), batch.segments))[row]
        places = [0, *batch.context[row].nonzero().flatten().tolist()]
        for side, target in ((0, int(batch.firsts[row])), (1, int(batch.lasts[row]))):
            log_probs = hidden[places, side].log_softmax(-1)
            nll -= float(log_probs[places.index(target)]) / 2
            smoothed -= float(log_probs.mean()) / 2
    term = answer_loss(model, torch.device("cpu"), 0.0)(batch)["nll"]
    assert float(term.total.detach()) == pytest.approx(nll)
    other = answer_loss(model, torch.device("cpu"), 0.2)(batch)["nll"]
    assert float(other.total.detach()) == pytest.approx(0.8 * nll + 0.2 * smoothed)
    assert other.reported is not None and float(other.reported) == pytest.approx(nll)
    assert prepared.train.counts(np.arange(7)) == {"nll": 7}


@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
def test_rows_hold_the_answers_that_the_file_names(tmp_path: Path, kind: str) -> None:
    tree = asked(12, seed=3, impossible=0.6)
    tree["data"][0]["paragraphs"][0]["qas"].append({"id": "open", "question": "Who?", "answers": []})
    path = write_asked(tmp_path / "a.json", tree)
    sets = (f"vocabulary.kind={kind}", "vocabulary.size=300", "limits.max_steps=1", "model.max_length=30")
    config = configure("question-answering", path, path, *sets, "data.windows.max_question_length=12")
    begun = next(event for event in train(TrainRequest(config, tmp_path / "run")) if isinstance(event, TrainingStarted))
    prepared = open_data(config, tmp_path / "run" / "data")
    questions = [question for one in tree["data"][0]["paragraphs"] for question in one["qas"]][
        : len(prepared.valid_examples.questions) + 1
    ]
    known = [question for question in questions if question["answers"] or question.get("is_impossible")]
    assert begun.unit == "questions" and begun.counts["train"] == len(known)
    assert begun.counts["unlabeled"] == 2, "in both files, which are one"
    rows, valid = prepared.train, prepared.valid_examples
    assert rows.questions.tolist() == valid.rows.questions.tolist()
    batch = rows.batch(np.arange(len(rows)))
    for name, part in vars(valid.rows.batch(np.arange(len(rows)))).items():
        assert torch.equal(part, getattr(batch, name)), name
    answered = set()
    for row, question in enumerate(rows.questions.tolist()):
        first, last = int(batch.firsts[row]), int(batch.lasts[row])
        if first:
            answered.add(question)
            text = valid.answer_text(question, *rows.in_context(row, first, last))
            assert text == known[question]["answers"][0]["text"]
    assert answered == {i for i, question in enumerate(known) if question["answers"]}


def test_questions_of_version_1_always_get_an_answer(tmp_path: Path) -> None:
    path = write_asked(tmp_path / "a.json", asked(30, seed=4))
    config = configure("question-answering", path, None, "limits.max_steps=2", "data.held_out=2")
    done = list(train(TrainRequest(config, tmp_path / "run")))
    prepared = open_data(config, tmp_path / "run" / "data")
    assert prepared.label_file is None and "labels.json" not in prepared.texts
    contexts = {paragraph.context for paragraph in prepared.valid_examples.paragraphs}
    assert len(contexts) == 1 and prepared.counts["held_out"] == prepared.counts["valid"] == 3
    assert prepared.counts["train"] == 3 * 29, "no paragraph is in both parts"
    evaluation = TASK.evaluation(config, prepared, torch.device("cpu"), None)
    evaluation(load_model(tmp_path / "run", "question-answering", device="cpu").model)
    assert all(found for _, _, found in evaluation.samples)
    assert done[-1].metrics.keys() == {"loss", "exact", "f1"}


def test_a_stop_gives_an_evaluation_up(taught: Any) -> None:
    opened, prepared, _ = taught
    with pytest.raises(EvaluationCancelled):
        TASK.evaluation(opened.config, prepared, opened.device, lambda: True)(opened.model)


def tree_of(context: str = "Ada lives in Rome .", **question: Any) -> dict[str, Any]:
    known = {"id": "1", "question": "Where ?", "answers": [{"text": "Rome", "answer_start": 13}], **question}
    return {"data": [{"paragraphs": [{"context": context, "qas": [known]}]}]}


WRONG: dict[str, tuple[str, type[AttnkitError], str]] = {
    "empty": ("", DataError, "invalid JSON"),
    "no questions": ('{"data": []}', DataError, "no questions in this file"),
    "nobody knows": (json.dumps(tree_of(answers=[])), DataError, "no question in this file has an answer"),
    "elsewhere": (
        json.dumps(tree_of(answers=[{"text": "Rome", "answer_start": 12}])),
        DataError,
        "the context at character 12 is ' Rom', not 'Rome'",
    ),
    "behind the end": (
        json.dumps(tree_of(answers=[{"text": "Rome", "answer_start": 99}])),
        DataError,
        "character 99 is ''",
    ),
    "both": (json.dumps(tree_of(is_impossible=True)), DataError, "is true, but the question has answers"),
    "one paragraph": (json.dumps(tree_of()), DataError, "1 row: too few for training and validation"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_teach_nothing_are_refused(tmp_path: Path, case: str) -> None:
    text, kind, what = WRONG[case]
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(kind, match=what) as caught:
        list(train(TrainRequest(configure("question-answering", tmp_path / "a.json", None), tmp_path / "run")))
    assert str(caught.value.where).startswith(str(tmp_path / "a.json")) and not (tmp_path / "run" / "data").exists()


def test_files_with_the_same_question_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_asked(tmp_path / name, tree_of())
    flags = {"task": "question-answering", "data.files": [str(tmp_path / "a"), str(tmp_path / "b")]}
    config = resolve(flags, preset_name="tiny").config
    with pytest.raises(DataError, match="two files have the same question id '1'"):
        list(train(TrainRequest(config, tmp_path / "run")))


def test_an_answer_that_the_vocabulary_drops_has_no_tokens() -> None:
    """As BERT's own vocabularies drop control characters; the first answer that has any is taught."""
    context = Aligned(np.array([5, 6]), np.array([0, 4]), np.array([3, 9]))
    dropped, kept = Answer("\x00", 3), Answer("lives", 4)
    assert answer_tokens(Question("1", "who", (dropped,), False), context) is None
    assert answer_tokens(Question("1", "who", (dropped, kept), False), context) == (1, 1)


def test_questions_without_an_answer_that_nobody_can_learn_are_told(tmp_path: Path) -> None:
    train_file, dev = write_asked(tmp_path / "a.json", asked(3, seed=5)), tmp_path / "dev.json"
    write_asked(dev, tree_of("Ada lives", id="9", answers=[], is_impossible=True))
    config = configure("question-answering", train_file, dev, "limits.max_steps=1", "model.max_length=24")
    said = [event.text for event in train(TrainRequest(config, tmp_path / "run")) if isinstance(event, WarningEvent)]
    assert any(text.startswith("1 validation questions are unanswerable, but no training question is") for text in said)


def test_windows_that_do_not_fit_are_refused_before_training() -> None:
    with pytest.raises(UsageError, match=r"need model\.max_length of 50"):
        configure("question-answering", Path("a"), None, "data.windows.max_length=50")
    with pytest.raises(UsageError, match="leaves 7 tokens for the context, given max_question_length=30"):
        configure("question-answering", Path("a"), None, "data.windows.max_question_length=30", "data.windows.stride=8")
