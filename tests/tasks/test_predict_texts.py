"""A label for each text, by a fine-tuned classifier: against the model itself, one text at a time."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from finetuned import WORDS, opened, predicted, predicting, random_run, write

from attnkit.data.text_classification import join
from attnkit.engine import predict
from attnkit.errors import DataError, UsageError
from attnkit.tasks.finetuning.text_classification import TextEncoder
from attnkit.text import lines as stream
from attnkit.text import long_lines as beginning
from attnkit.text.tokenizer import Tokenizer

LABELS = ["bad", "fine", "good"]
ODD = ["", "   ", "\t", "the\u2028fox", "日本語 😀", "[MASK] </s>", "fox " * 60]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_run(tmp_path_factory.mktemp("classifier") / "run", "text-classification", LABELS)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    drawn = random.Random(2)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 20))) for _ in range(60)] + ODD


def alone(run: Path, text: str, text2: str | None = None) -> dict[str, float]:
    """Return the probability of each label, of a row laid out by hand."""
    model, words = opened(run, "text-classification")
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
        found = [json.loads(line) for line in predicted(run, path, batch_tokens=tokens, as_json=True, all_labels=True)]
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
        found = [json.loads(line)["all"] for line in predicted(run, path, format=format, as_json=True, all_labels=True)]
        assert found == [pytest.approx(row, abs=1.5e-6) for row in expected], format
    with pytest.raises(DataError, match="3 columns, expected two") as caught:
        predicted(run, write(tmp_path / "odd.txt", "a\tb", "a\tb\tc"), format="pairs")
    assert caught.value.where == f"{tmp_path / 'odd.txt'}:2"


def test_all_that_can_be_read_is(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file, a pipe, bytes that are not UTF-8, carriage returns: N lines in, N lines out."""
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
    assert [text.split(" contains")[0] for text in told if "contains a tab" in text] == [
        *(f"{path}:4" for path in paths[:2]),
        "line 4 of standard input",
    ]
    with pytest.raises(DataError, match="not UTF-8"):
        predicted(run, paths[0], strict=True)


def test_scores_are_counted(run: Path, texts: list[str], tmp_path: Path) -> None:
    drawn, given = random.Random(3), [text for text in texts if "\t" not in text]
    gold = [drawn.choice(LABELS) for _ in given]
    path = write(tmp_path / "gold.tsv", "text\tlabel", *map("\t".join, zip(given, gold, strict=True)))
    asked = predicting(run, path, gold=True)
    found = [line.split("\t")[0] for lines in asked for line in lines]
    totals = asked.totals()
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
    assert asked.warnings() == ["1 text has more than 24 tokens; the rest was truncated"]
    shares = [float(line.split("\t")[1]) for lines in predicting(run, path, gold=True) for line in lines]
    wrong = [row for row in zip(shares, given, gold, found, strict=True) if row[2] != row[3]]
    mistakes = [(round(one.probability, 4), one.text, one.gold, one.predicted) for one in totals.mistakes]
    assert sorted(mistakes) == sorted(wrong)
    assert [one[0] for one in mistakes] == sorted((one[0] for one in mistakes), reverse=True)


def test_the_most_confident_mistakes_are_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "MOST_MISTAKES", 3)
    monkeypatch.setattr(predict, "MAX_SHOWN", 5)
    texts = [f"fox dog {number}" for number in range(20)]
    path = write(tmp_path / "gold.tsv", "text\tlabel", *(f"{text}\todd" for text in texts))
    asked = predicting(run, path, gold=True)
    shares = sorted((float(line.split("\t")[1]) for lines in asked for line in lines), reverse=True)
    found = asked.totals().mistakes
    assert [round(one.probability, 4) for one in found] == shares[:3]
    assert {(one.text, one.gold) for one in found} == {("fox d", "odd")}


def test_a_label_that_the_model_never_saw_counts_as_wrong(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "gold.tsv", "label\ttext", "odd\tfox", "odd\tdog", "bad\tada")
    asked = predicting(run, path, gold=True)
    (found,) = list(asked)
    assert len(found) == 3
    assert asked.warnings() == ["gold labels unknown to the model: 'odd' (2 gold labels, counted as errors)"]
    totals = asked.totals()
    assert totals.confusion is not None and totals.confusion.labels == (*LABELS, "odd")
    assert totals.plain["classes"]["odd"]["expected"] == 2 and totals.plain["classes"]["odd"]["recall"] == 0


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same classifier as one that was taught single texts and as one that was taught pairs."""
    folder = tmp_path_factory.mktemp("taught")
    columns = {"singles": ["verdict", "remark"], "pairs": ["label", "premise", "hypothesis"]}
    return {kind: random_run(folder / kind, "text-classification", LABELS, columns=columns[kind]) for kind in columns}


def test_a_run_that_was_taught_pairs_reads_pairs(run: Path, taught: dict[str, Path], tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.txt", "the dog\tada lives", "", "fox\t")
    found = predicted(taught["pairs"], pairs)
    assert found == predicted(run, pairs, format="pairs") == predicted(taught["pairs"], pairs, format="pairs")
    assert found != predicted(run, pairs), "the test needs texts of which it matters how they are read"
    with pytest.raises(DataError, match="1 column, expected two"):
        predicted(taught["pairs"], write(tmp_path / "one.txt", "the dog"))
    told: list[str] = []
    assert predicted(taught["singles"], pairs, told=told) == predicted(run, pairs) and "contains a tab" in told[0]


@pytest.mark.parametrize(("kind", "format", "other"), [("pairs", "lines", "pairs"), ("singles", "pairs", "lines")])
def test_what_a_run_was_not_taught_is_refused(
    taught: dict[str, Path], tmp_path: Path, kind: str, format: str, other: str
) -> None:
    texts = write(tmp_path / "texts.txt", "a\tb")
    with pytest.raises(UsageError, match="this run was trained on") as caught:
        predicting(taught[kind], texts, format=format)
    assert (caught.value.where, caught.value.help) == ("--format", f"use --format {other} or table")
    header = {"pairs": "label\ttext", "singles": "text\ttext2"}[kind]
    with pytest.raises(DataError, match="but the run was trained on") as wrong:
        predicted(taught[kind], write(tmp_path / "table.tsv", header, "a\tb"), format="table")
    assert wrong.value.where == f"{tmp_path / 'table.tsv'}:1" and "text" in str(wrong.value.help)


def test_tables_are_read_by_the_names_that_were_trained_on(taught: dict[str, Path], run: Path, tmp_path: Path) -> None:
    """And what is right never goes into the model as a text."""
    rows = [("bad", "the fox"), ("good", "ada lives")]
    given = write(tmp_path / "test.tsv", "verdict\tremark", *map("\t".join, rows))
    texts = write(tmp_path / "texts.txt", *(text for _, text in rows))
    told: list[str] = []
    expected = predicted(run, texts)
    assert predicted(taught["singles"], given, format="table", told=told) == expected and not told
    asked = predicting(taught["singles"], given, gold=True)
    assert [line for lines in asked for line in lines] == expected and asked.totals().plain["examples"] == 2
    with pytest.raises(DataError, match="not clear which of 'verdict', 'remark'"):
        predicted(run, given, format="table")
    glue = write(tmp_path / "glue.tsv", "idx\tsentence\tlabel", *(f"{i}\t{row[1]}\t" for i, row in enumerate(rows)))
    assert predicted(run, glue, format="table", told=told) == expected, "labels that nobody asks for may be missing"
    assert told == [f"{glue}:1: 'sentence' is the text, 'label' the label; ignored: 'idx'"]


def test_no_more_of_a_text_is_encoded_than_is_read(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and what is told are those of the whole text."""
    words = " ".join(random.Random(4).choices(WORDS, k=200_000))
    texts = [words, "fox", words.replace(" ", ""), "fox " * 22, "fox " * 21 + "fox", "x" * 300_000]
    path = write(tmp_path / "texts.txt", *texts)
    seen: list[int] = []
    encode = Tokenizer.encode

    def spied(self: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
        seen.extend(map(len, lines))
        return encode(self, lines)

    asked = predicting(run, path, as_json=True, all_labels=True)
    monkeypatch.setattr(Tokenizer, "encode", spied)
    found = [json.loads(line)["all"] for lines in asked for line in lines]
    assert max(seen) <= 24 * 16 + (1 << 16) and len(seen) < 2 * len(texts)
    monkeypatch.undo()
    assert found == [pytest.approx(alone(run, text), abs=1.5e-6) for text in texts]
    n_cut = sum(len(ids) > 22 for ids in opened(run, "text-classification")[1].encode(texts))
    assert n_cut < len(texts)
    assert asked.warnings() == [f"{n_cut} texts have more than 24 tokens; the rest was truncated"]


def test_rows_of_pairs_are_those_of_whole_texts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the two is cut, or both; and as many are said to be cut."""
    monkeypatch.setattr(beginning, "_PER_ID", 1)
    drawn, words = random.Random(5), opened(run, "text-classification")[1]
    one, two = ([" ".join(drawn.choices(WORDS, k=drawn.randint(0, 40))) for _ in range(200)] for _ in range(2))
    reader = TextEncoder(words, 24)
    expected = [join(*ids, 24) for ids in zip(words.encode(one), words.encode(two), strict=True)]
    assert reader.encode(one, two) == [row for row, _ in expected]
    assert 0 < reader.counts["cut_short"] == sum(cut for _, cut in expected) < 200


def test_windows_of_long_lines_are_short(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_CHARACTERS", 1000)
    for format, first in (("lines", []), ("table", ["text"]), ("pairs", [])):
        lines = ["x" * 600 + "\t" * (format == "pairs")] * 6
        groups = list(predicting(run, write(tmp_path / format, *first, *lines), format=format))
        assert [len(group) for group in groups] == [2, 2, 2], format


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"format": "squad"}, "does not support the format 'squad'", "choose lines, table, pairs"),
    ({"format": "lines", "gold": True}, "--format lines has no gold labels", "--format table"),
    ({"format": "pairs", "gold": True}, "--format pairs has no gold labels", "--format table"),
]


@pytest.mark.parametrize(("asked", "what", "help"), WRONG)
def test_formats_that_make_no_sense_are_refused(
    run: Path, tmp_path: Path, asked: dict[str, Any], what: str, help: str
) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        predicting(run, write(tmp_path / "texts.txt", "a"), **asked)
    assert help in str(caught.value.help)
