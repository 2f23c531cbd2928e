"""Documents as batches, against loops over every sentence and word; and the lines that they come from."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.data.store import write_store
from attnkit.data.text_classification import document_batch, document_rows, flatten
from attnkit.errors import DataError, RunError
from attnkit.text.documents import read_labeled, space_words, split_sentences


def documents(n: int, seed: int, least: int = 1) -> list[list[list[int]]]:
    drawn = random.Random(seed)
    return [
        [[drawn.randrange(4, 30) for _ in range(drawn.randint(1, 6))] for _ in range(drawn.randint(least, 5))]
        for _ in range(n)
    ]


def read_back(batch: Any) -> list[list[list[int]]]:
    """Return the documents that a batch holds, place by place."""
    found = []
    for places, real in zip(batch.places.tolist(), batch.sentence_mask.tolist(), strict=True):
        chosen = [place for place, there in zip(places, real, strict=True) if there]
        found.append([batch.words[place][batch.word_mask[place]].tolist() for place in chosen])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_holds_every_word_of_every_sentence(seed: int) -> None:
    given = documents(7, seed, least=0)
    batch = document_batch(given)
    assert read_back(batch) == given
    n_sentences = [len(sentences) for sentences in given]
    assert batch.sentence_mask.sum(1).tolist() == n_sentences
    assert tuple(batch.words.shape) == (sum(n_sentences), max(len(s) for d in given for s in d))
    assert (batch.words[~batch.word_mask] == 0).all()


def test_documents_without_sentences_make_a_batch() -> None:
    batch = document_batch([[], []])
    assert read_back(batch) == [[], []] and batch.words.shape == (1, 1) and not batch.word_mask.any()


def stored(folder: Path, given: list[list[list[int]]], labels: list[int]) -> Path:
    (folder / "part").mkdir(parents=True)
    write_store(folder / "part" / "documents", [[flatten(sentences) for sentences in given]], 30)
    write_store(folder / "part" / "labels", [[[label] for label in labels]], 4)
    return folder / "part"


def test_stored_documents_come_back_with_their_labels(tmp_path: Path) -> None:
    given = documents(20, 1)
    labels = [len(sentences) % 4 for sentences in given]
    rows = document_rows(stored(tmp_path / "a", given, labels))
    assert len(rows) == 20
    words, ones = rows.lengths
    assert words.tolist() == [sum(len(s) + 1 for s in d) for d in given] and set(ones.tolist()) == {1}
    chosen = np.array([3, 19, 0])
    batch = rows.batch(chosen)
    assert read_back(batch) == [given[i] for i in chosen]
    assert batch.labels.tolist() == [labels[i] for i in chosen]
    assert rows.counts(chosen) == {"nll": 3}
    other = document_rows(stored(tmp_path / "b", given, [*labels[:-1], (labels[-1] + 1) % 4]))
    assert other.fingerprint != rows.fingerprint


def test_a_label_too_few_is_damage(tmp_path: Path) -> None:
    folder = stored(tmp_path / "a", documents(3, 1), [0, 1, 2])
    for path in (folder / "labels").iterdir():
        path.unlink()
    (folder / "labels").rmdir()
    other = stored(tmp_path / "b", documents(2, 1), [0, 1])
    (other / "labels").rename(folder / "labels")
    with pytest.raises(RunError, match="not exactly one label per text"):
        document_rows(folder)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("It rained. Nobody came! Why?", ["It rained.", "Nobody came!", "Why?"]),
        ("version 1.5 is out", ["version 1.5 is out"]),
        ("Wait... what", ["Wait...", "what"]),
        ("他走了。我也走了！好", ["他走了。", "我也走了！", "好"]),
        ("a. b ||| c. d|||", ["a. b", "c. d"]),
        ("||| |||", []),
        (" \t ", []),
    ],
)
def test_sentences(document: str, expected: list[str]) -> None:
    assert split_sentences(document) == expected


def test_words_and_marks_stand_apart() -> None:
    assert space_words('"Well-known" isn’t (quite) good...') == '" Well-known " isn’t ( quite ) good . . .'
    assert space_words("state-of-the-art  5,000€") == "state-of-the-art 5 , 000 €"


def test_labeled_lines(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"good film\tpos\r\n\tneg\n x \t very bad \n")
    assert list(read_labeled(tmp_path / "a.tsv")) == [("good film", "pos"), ("", "neg"), (" x ", "very bad")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\tx\nno label\n", "1 column, expected two"),
        ("a\tx\nb\ty\tz\n", "3 columns, expected two"),
        ("a\tx\nb\t \n", "the label is missing"),
        ("a\tx\n\n", "1 column, expected two"),
        ("a\tx\nb\ty\rz\n", "a carriage return"),
        (f"a\tx\nb\t{'y' * 201}\n", "201 characters, more than 200"),
    ],
)
def test_lines_without_document_and_label_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.tsv").write_bytes(text.encode())
    with pytest.raises(DataError) as found:
        list(read_labeled(tmp_path / "a.tsv"))
    assert said in found.value.what and found.value.where == f"{tmp_path / 'a.tsv'}:2"
