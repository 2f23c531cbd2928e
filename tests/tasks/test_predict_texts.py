"""A label for each text, by a fine-tuned classifier: against the model itself, one text at a time."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from finetuned import WORDS, opened, predicted, predicting, random_run, write

from attnkit.errors import DataError, UsageError

LABELS = ["bad", "fine", "good"]
ODD = ["", "   ", "\t", "the\u2028fox", "日本語 😀", "[MASK] </s>", "fox " * 60]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_run(tmp_path_factory.mktemp("classifier") / "run", "text-classify", LABELS)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    drawn = random.Random(2)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 20))) for _ in range(60)] + ODD


def alone(run: Path, text: str, text2: str | None = None) -> dict[str, float]:
    """Return the probability of each label, of a row laid out by hand."""
    model, words = opened(run, "text-classify")
    ids, ids2 = words.encode([text, text2 or ""])
    row = [1, *ids[:22], 2] if text2 is None else [1, *ids, 2, *ids2, 2]
    segments = [0] * len(row) if text2 is None else [0] * (len(ids) + 2) + [1] * (len(ids2) + 1)
    with torch.no_grad():
        logits = model(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool), torch.tensor([segments]))
    return dict(zip(LABELS, logits.softmax(-1)[0].tolist(), strict=True))


def test_each_text_gets_what_it_gets_alone(run: Path, texts: list[str], tmp_path: Path) -> None:
    """Whatever is computed together with it, and in whichever order."""
    path = write(tmp_path / "texts.txt", *texts)
    shuffled = random.Random(1).sample(range(len(texts)), len(texts))
    other = write(tmp_path / "shuffled.txt", *(texts[i] for i in shuffled))
    expected = [alone(run, text) for text in texts]
    assert len({max(row, key=row.__getitem__) for row in expected}) > 1, "the test needs a model that tells texts apart"
    for tokens in (1, 50, 16384):
        found = [json.loads(line) for line in predicted(run, path, batch_tokens=tokens, as_json=True, every=True)]
        assert len(found) == len(texts)
        for one, row in zip(found, expected, strict=True):
            assert one["all"] == pytest.approx(row, abs=1.5e-6)
            assert one["label"] == max(row, key=row.__getitem__) == next(iter(one["all"]))
            assert one["probability"] == one["all"][one["label"]]
        again = predicted(run, other, batch_tokens=tokens)
        plain = predicted(run, path, batch_tokens=tokens)
        assert [line.split("\t")[0] for line in again] == [found[i]["label"] for i in shuffled]
        assert plain[0] == f"{found[0]['label']}\t{max(expected[0].values()):.4f}"


def test_pairs_have_segments(run: Path, tmp_path: Path) -> None:
    pairs = [("the dog", "ada lives"), ("", "fox"), ("fox", ""), ("", "")]
    expected = [alone(run, *pair) for pair in pairs]
    lines = write(tmp_path / "pairs.txt", *("\t".join(pair) for pair in pairs[:3]), "")
    header = write(tmp_path / "table.tsv", "id\ttext\ttext2", *(f"7\t{one}\t{two}" for one, two in pairs))
    for path, format in ((lines, "pairs"), (header, "table")):
        found = [json.loads(line)["all"] for line in predicted(run, path, format=format, as_json=True, every=True)]
        assert found == [pytest.approx(row, abs=1.5e-6) for row in expected], format
    with pytest.raises(DataError, match="3 columns, not two") as caught:
        predicted(run, write(tmp_path / "odd.txt", "a\tb", "a\tb\tc"), format="pairs")
    assert caught.value.where == f"{tmp_path / 'odd.txt'}:2"


def test_all_that_can_be_read_is(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file, a pipe, bytes that are no UTF-8, carriage returns: N lines in, N lines out."""
    raw = b"the fox\r\n\n\xff\xfe dog\nlast\tone"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(raw))
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(raw))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    told: list[str] = []
    paths = [tmp_path / "a.txt.gz", tmp_path / "b.txt.bz2", Path("-")]
    found = predicted(run, *paths, told=told)
    assert len(found) == 12 and found[:4] == found[4:8] == found[8:]
    assert [line.split("\t")[0] for line in found[:2]] == [
        max(row, key=row.__getitem__) for row in (alone(run, "the fox"), alone(run, ""))
    ]
    assert sum("not UTF-8" in text for text in told) == sum("carriage return" in text for text in told) == 3
    assert [text.split(" holds")[0] for text in told if "holds a tab" in text] == [
        *(f"{path}:4" for path in paths[:2]),
        "line 4 of standard input",
    ]
    with pytest.raises(DataError, match="no UTF-8"):
        predicted(run, paths[0], strict=True)


def test_scores_are_counted(run: Path, texts: list[str], tmp_path: Path) -> None:
    drawn, given = random.Random(3), [text for text in texts if "\t" not in text]
    gold = [drawn.choice(LABELS) for _ in given]
    path = write(tmp_path / "gold.tsv", "text\tlabel", *map("\t".join, zip(given, gold, strict=True)))
    asked = predicting(run, path, gold=True)
    found = [line.split("\t")[0] for lines in asked for line in lines]
    totals = asked.predictor.totals()
    right = sum(one == other for one, other in zip(found, gold, strict=True))
    assert totals.plain["examples"] == len(given)
    assert totals.plain["accuracy"] == pytest.approx(100 * right / len(given))
    f1 = []
    for i, label in enumerate(LABELS):
        row = totals.plain["confusion"]["counts"][i]
        assert row == [sum(g == label and f == other for f, g in zip(found, gold, strict=True)) for other in LABELS]
        both = sum(f == label for f in found) + sum(g == label for g in gold)
        f1.append(200 * row[i] / both)
        assert totals.plain["classes"][label]["f1"] == pytest.approx(f1[-1])
    assert totals.plain["macro_f1"] == pytest.approx(sum(f1) / 3)
    assert totals.headline.startswith(f"{len(given)} examples, accuracy {100 * right / len(given):.2f} %")
    assert asked.predictor.complaints() == ["1 text has more than 24 tokens; the rest was not read"]


def test_a_label_that_the_model_never_saw_counts_as_wrong(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "gold.tsv", "label\ttext", "odd\tfox", "odd\tdog", "bad\tada")
    asked = predicting(run, path, gold=True)
    (found,) = list(asked)
    assert len(found) == 3
    assert asked.predictor.complaints() == [
        "the model does not know the labels 'odd', expected 2 times: that counts as wrong"
    ]
    totals = asked.predictor.totals()
    assert totals.confusion is not None and totals.confusion.labels == (*LABELS, "odd")
    assert totals.plain["classes"]["odd"]["expected"] == 2 and totals.plain["classes"]["odd"]["recall"] == 0


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"format": "squad"}, "reads no squad", "it reads lines, table, pairs"),
    ({"format": "lines", "gold": True}, "lines do not say what is right", "--format table"),
    ({"format": "pairs", "gold": True}, "pairs do not say", "--format table"),
]


@pytest.mark.parametrize(("asked", "what", "help"), WRONG)
def test_formats_that_make_no_sense_are_refused(
    run: Path, tmp_path: Path, asked: dict[str, Any], what: str, help: str
) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        predicting(run, write(tmp_path / "texts.txt", "a"), **asked)
    assert help in str(caught.value.help)
