"""Answers to questions, by a fine-tuned reader: against the model itself, a naive search over all places."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from finetuned import WORDS, opened, predicted, predicting, random_run, write

from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest, Totals
from attnkit.errors import DataError, UsageError
from attnkit.metrics.answers import answer_scores
from attnkit.tasks.finetuning.question_answering import QuestionAnsweringPredictor, read_question
from attnkit.text.offsets import align
from attnkit.text.squad import Paragraph, Question

WINDOWS = {"windows": {"max_length": 24, "stride": 4, "max_question_length": 8, "max_answer_length": 5}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_run(tmp_path_factory.mktemp("reader") / "run", "question-answering", data=WINDOWS)


@pytest.fixture(scope="module")
def asked() -> list[dict[str, str]]:
    drawn = random.Random(2)
    found = []
    for _ in range(25):
        question, context = ("  ".join(drawn.choices(WORDS, k=n)) for n in (3, drawn.randint(1, 6)))
        found.append({"question": question, "context": f" {context} "})
    return found


def test_a_threshold_lets_any_reader_find_no_answer(run: Path, asked: list[dict[str, str]], tmp_path: Path) -> None:
    """One that came from elsewhere may have learned so, and its files do not say it."""
    path = write(tmp_path / "asked.jsonl", *map(json.dumps, asked))
    for threshold, given in ((None, {True}), (1e6, {True}), (0.0, {True, False}), (-1e6, {False})):
        lines = predicted(run, path, as_json=True, no_answer_threshold=threshold)
        assert {bool(json.loads(line)["answer"]) for line in lines} == given


def test_half_a_character_is_mended_unless_that_is_refused(run: Path, tmp_path: Path) -> None:
    line = '{"id": null, "question": "the \\ud83d fox", "context": "the fox \\ude00 dog"}'
    assert json.loads(line)["question"] == "the \ud83d fox"
    paragraph = read_question(line, "here")
    assert (paragraph.questions[0].id, paragraph.questions[0].text) == ("", "the \ufffd fox")
    assert paragraph.context == "the fox \ufffd dog"
    assert len(predicted(run, write(tmp_path / "half.jsonl", line))) == 1
    with pytest.raises(DataError, match=r"lone surrogate U\+D83D") as caught:
        read_question(line, "file:7", strict=True)
    assert caught.value.where == "file:7"


def totals_of(run: Path, path: Path, **options: Any) -> Totals:
    found = predicting(run, path, gold=True, **options)
    assert list(found)
    return found.totals()


def alone(run: Path, question: str, context: str) -> tuple[str, int | None, int | None, float]:
    """Return answer, begin, end and probability, each place being tried; the context fits into one row."""
    model, words = opened(run, "question-answering")
    ids, text = words.encode([question])[0][:8], align(words, [context])[0]
    row = [1, *ids, 2, *text.ids.tolist(), 2]
    assert len(row) <= 24
    at = len(ids) + 2
    allowed = torch.zeros(1, len(row), dtype=torch.bool)
    allowed[0, at:-1] = True
    segments = torch.tensor([[0] * at + [1] * (len(row) - at)])
    with torch.no_grad():
        begins, ends = model(torch.tensor([row]), torch.ones_like(allowed), segments, allowed)[:, 0].tolist()
    spans = [(i, j) for i in range(at, len(row) - 1) for j in range(i, min(i + 5, len(row) - 1))]
    scores = {(i, j): begins[i] + ends[j] for i, j in spans}
    first, last = max(scores, key=scores.__getitem__)
    begin, end = int(text.begins[first - at]), int(text.ends[last - at])
    stripped = context[begin:end].strip()
    begin += len(context[begin:end]) - len(context[begin:end].lstrip())
    total = sum(math.exp(score) for score in scores.values())
    share = math.exp(scores[first, last]) / total
    return (stripped, begin, begin + len(stripped), share) if stripped else ("", None, None, share)


def test_each_question_gets_its_answer(run: Path, asked: list[dict[str, str]], tmp_path: Path) -> None:
    path = write(tmp_path / "asked.jsonl", *map(json.dumps, asked))
    expected = [alone(run, **one) for one in asked]
    assert len({answer for answer, *_ in expected}) > 5, "the test needs a reader that tells questions apart"
    for tokens in (1, 60, 16384):
        for line, (answer, begin, end, probability) in zip(
            predicted(run, path, batch_tokens=tokens, as_json=True), expected, strict=True
        ):
            found = json.loads(line)
            assert found.pop("probability") == pytest.approx(probability, abs=2e-6)
            assert found == {"answer": answer, "begin": begin, "end": end}
    for line, one, (answer, begin, end, probability) in zip(predicted(run, path), asked, expected, strict=True):
        assert line.split("\t")[0] == " ".join(answer.split())
        assert float(line.split("\t")[1]) == pytest.approx(probability, abs=6e-5)
        if answer:
            assert one["context"][begin:end] == answer
        assert line.split("\t")[2:] == ["" if place is None else str(place) for place in (begin, end)]


def squad(asked: list[dict[str, str]], **answers: list[dict[str, Any]]) -> str:
    """Return the text of a file of these questions; answers by the number of the question."""
    paragraphs = [
        {
            "context": one["context"],
            "qas": [{"id": f"q{i}", "question": one["question"], "answers": answers.get(f"q{i}", [])}],
        }
        for i, one in enumerate(asked)
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})


def test_squad_gives_the_same_and_is_scored(run: Path, asked: list[dict[str, str]], tmp_path: Path) -> None:
    lines = [alone(run, **one)[0] for one in asked]
    known: dict[str, list[dict[str, Any]]] = {}
    for i in range(0, 25, 3):  # of the others nobody says what is right
        context = asked[i]["context"]
        known[f"q{i}"] = [{"text": context.strip(), "answer_start": 1}, {"text": context.split()[0], "answer_start": 1}]
    path = write(tmp_path / "dev.json", squad(asked, **known))
    questions = predicting(run, path, gold=True, as_json=True)
    found = [json.loads(line) for part in questions for line in part]
    assert [one["answer"] for one in found] == lines and [one["id"] for one in found] == [f"q{i}" for i in range(25)]
    texts = [[answer["text"] for answer in answers] for answers in known.values()]
    scores = answer_scores([lines[i] for i in range(0, 25, 3)], texts, "1.1").all
    totals = questions.totals()
    assert totals.plain["f1"] == scores.f1 and totals.plain["exact"] == scores.exact and totals.plain["questions"] == 9
    assert "expected" in found[3] and "expected" not in found[4]
    same = [json.dumps({**one, "answers": texts[i // 3]} if i % 3 == 0 else one) for i, one in enumerate(asked)]
    others = predicting(run, write(tmp_path / "dev.jsonl", *same), gold=True)
    assert len([line for part in others for line in part]) == 25
    assert others.totals().plain == totals.plain


def test_a_context_longer_than_a_row_is_read_to_its_end(run: Path, tmp_path: Path) -> None:
    drawn = random.Random(4)
    context = " ".join(drawn.choices(WORDS, k=200))
    line = json.dumps({"question": "who", "context": context, "id": "7"})
    found = json.loads(predicted(run, write(tmp_path / "a.jsonl", line), as_json=True)[0])
    assert found["id"] == "7" and context[found["begin"] : found["end"]] == found["answer"] != ""


def test_a_reader_may_find_no_answer(tmp_path: Path, asked: list[dict[str, str]]) -> None:
    """One that has learnt so; its probabilities are of all answers and of none."""
    both = [
        random_run(tmp_path / name, "question-answering", labels, data=WINDOWS)
        for name, labels in (("always", []), ("may", ["answer", "no answer"]))
    ]
    path = write(tmp_path / "asked.jsonl", *map(json.dumps, asked), json.dumps({"question": "a", "context": ""}))
    always, may = ([json.loads(line) for line in predicted(run, path, as_json=True)] for run in both)
    assert {bool(one["answer"]) for one in may[:-1]} == {True, False}
    for one, other in zip(always[:-1], may[:-1], strict=True):
        assert other["answer"] in ("", one["answer"])
        if other["answer"]:
            assert other["probability"] < one["probability"]
        else:
            assert other["begin"] is None and other["probability"] > 0
    assert always[-1] == {"answer": "", "probability": 0.0, "begin": None, "end": None}
    assert may[-1] == {"answer": "", "probability": 1.0, "begin": None, "end": None}
    plain = predicted(both[1], path)
    assert [line.count("\t") for line in plain] == [3] * 26 and plain[-1] == "\t1.0000\t\t"


def test_the_threshold_decides_how_sure_a_reader_has_to_be(tmp_path: Path, asked: list[dict[str, str]]) -> None:
    run = random_run(tmp_path / "may", "question-answering", ["answer", "no answer"], data=WINDOWS)
    loaded = load_model(run, "question-answering", device="cpu")
    paragraphs = [Paragraph("", one["context"], (Question("", one["question"], (), False),)) for one in asked]
    usual = QuestionAnsweringPredictor(loaded, PredictRequest(run, []), print).answer(paragraphs)
    assert {one.text == "" for one in usual} == {True, False}
    for threshold in (-1e6, sorted(one.no_answer_margin for one in usual)[7], 1e6):
        request = PredictRequest(run, [], no_answer_threshold=threshold)
        found = QuestionAnsweringPredictor(loaded, request, print).answer(paragraphs)
        assert [one.text for one in found] == ["" if one.no_answer_margin > threshold else one.best for one in usual]
    # Known answers are those of the surest: then the best threshold is where the others begin.
    sure = sorted(usual, key=lambda one: one.no_answer_margin)[9].no_answer_margin
    lines = [
        json.dumps({**one, "answers": [found.best] if found.no_answer_margin <= sure else []})
        for one, found in zip(asked, usual, strict=True)
    ]
    path = write(tmp_path / "gold.jsonl", *lines)
    totals = totals_of(run, path)
    assert totals.plain["best"] == {"questions": len(asked), "exact": 100.0, "f1": 100.0}
    after = min(one.no_answer_margin for one in usual if one.no_answer_margin > sure)
    assert sure <= totals.plain["best_threshold"] < after and "--no-answer-threshold" in totals.headline
    again = totals_of(run, path, no_answer_threshold=totals.plain["best_threshold"])
    assert again.plain["f1"] == 100.0 > totals.plain["f1"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        ([{"text": "a", "answer_start": 3}], ["a"]),
        ({"text": ["a", "b"], "answer_start": [0, 1]}, ["a", "b"]),
    ],
)
def test_answers_are_read_as_others_write_them(answers: Any, expected: list[str]) -> None:
    line = json.dumps({"question": "q", "context": "c", "answers": answers})
    (question,) = read_question(line, "x:1").questions
    assert [answer.text for answer in question.answers] == expected and not question.impossible
    for none in ([], {"text": []}):
        (question,) = read_question(json.dumps({"question": "q", "context": "c", "answers": none}), "x:1").questions
        assert question.impossible and question.labeled
    (question,) = read_question('{"question": "q", "context": "c"}', "x:1").questions
    assert not question.labeled


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("", "invalid JSON"),
        ("who?", "invalid JSON"),
        ("[1]", "'question' or 'context' is missing"),
        ('{"question": "q"}', "'question' or 'context' is missing"),
        ('{"question": 3, "context": "c"}', "'question' or 'context' is missing"),
        ('{"question": "q", "context": "c", "answers": 3}', "not a list of texts"),
        ('{"question": "q", "context": "c", "answers": [3]}', "not a list of texts"),
    ],
)
def test_a_line_that_asks_nothing_is_refused(run: Path, tmp_path: Path, line: str, what: str) -> None:
    """What precedes it is answered."""
    path = write(tmp_path / "asked.jsonl", '{"question": "q", "context": "fox"}', line)
    found: list[str] = []
    with pytest.raises(DataError, match=what) as caught:
        for lines in predicting(run, path):
            found += lines
    assert caught.value.where == f"{path}:2" and len(found) == 1


def test_what_a_reader_has_not_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--all is not available"):
        predicting(run, tmp_path / "a.jsonl", all_labels=True)
