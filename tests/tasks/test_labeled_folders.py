"""Folders of encoded words or questions that are whole by their checksums and make no sense all the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeled import configure, tagged, write_asked, write_tagged

from attnkit.data.corpus import write_examples
from attnkit.data.labels import Labels
from attnkit.data.prepared_dir import read_index, write_index
from attnkit.data.store import write_store
from attnkit.errors import RunError
from attnkit.tasks.finetuning.question_answering_data import QuestionCorpus, open_data
from attnkit.tasks.finetuning.token_classification import TASK, TagCorpus
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

Change = Callable[[Path], object]


def put(folder: Path, *rows: list[int], size: int = 1 << 30) -> None:
    shutil.rmtree(folder)
    write_store(folder, [rows], size)


def answers(*rows: list[int]) -> Change:
    return lambda folder: put(folder / "train" / "answers", *rows)


WORDS: dict[str, tuple[Change, str]] = {
    "nothing changed": (lambda folder: None, ""),
    "fewer sentences": (lambda folder: (folder / "valid.txt").write_text("a\tO\n\n"), "differ in number"),
    "fewer words": (
        lambda folder: (folder / "valid.txt").write_text("\n".join((folder / "valid.txt").read_text().split("\n")[1:])),
        "differ in number",
    ),
    "no tags": (lambda folder: (folder / "valid.txt").write_text("a\nb\n\n"), "not enough values"),
    "other marks": (lambda folder: put(folder / "train" / "marks", [1, 2], size=7), "the number of tags differs"),
    "more tags": (
        lambda folder: (folder / "labels.json").write_bytes(Labels(labels=["O", "B-x"]).to_bytes()),
        "the number of tags differs",
    ),
}
QUESTIONS: dict[str, tuple[Change, str]] = {
    "nothing changed": (answers([0, 1, 2], [0, 0, 0]), ""),
    "fewer answers": (answers([0, 1, 2]), "the number of answers differs"),
    "half an answer": (answers([0, 1, 2], [0, 1]), "the number of answers differs"),
    "another context": (answers([0, 1, 2], [1, 1, 2]), "is outside its context"),
    "behind the end": (answers([0, 1, 2], [0, 1, 6]), "is outside its context"),
    "backwards": (answers([0, 1, 2], [0, 2, 1]), "is outside its context"),
    "without a beginning": (answers([0, 1, 2], [0, 0, 1]), "is outside its context"),
    "no questions": (lambda folder: (folder / "valid.json").write_text("{}"), "invalid valid.json"),
    "other outcomes": (
        lambda folder: (folder / "labels.json").write_bytes(Labels(labels=["a", "b"]).to_bytes()),
        "invalid labels.json",
    ),
}


def vocabulary(text: str) -> Tokenizer:
    return train_vocabulary([text], VocabularyConfig(kind="word", min_frequency=1))


def opened(folder: Path, change: Change, what: str, open: Callable[[], Any]) -> None:
    """Change a folder, sign it anew and open it."""
    counts = read_index(folder)["counts"]
    change(folder)
    (folder / "prepared.json").unlink()
    write_index(folder, [], None, counts)
    if not what:
        open()
        return
    with pytest.raises(RunError, match=what) as caught:
        open()
    assert "run the same command again to rebuild it" in str(caught.value.help)


@pytest.mark.parametrize("case", WORDS)
def test_words_that_make_no_sense_are_refused(tmp_path: Path, case: str) -> None:
    path = write_tagged(tmp_path / "a", tagged(4, seed=1))
    config = configure("token-classification", path, path)
    list(write_examples(TagCorpus(config), tmp_path / "data", vocabulary("the tall man"), None))
    change, what = WORDS[case]
    opened(tmp_path / "data", change, what, lambda: TASK.load_data(config, tmp_path / "data"))


@pytest.mark.parametrize("case", QUESTIONS)
def test_questions_that_make_no_sense_are_refused(tmp_path: Path, case: str) -> None:
    question = {"question": "Where ?", "answers": [{"text": "Rome", "answer_start": 13}]}
    known = [{**question, "id": "1"}, {"id": "2", "question": "Who ?", "is_impossible": True, "answers": []}]
    paragraph = {"context": "Ada lives in Rome .", "qas": known}
    path = write_asked(tmp_path / "a", {"data": [{"paragraphs": [paragraph]}]})
    config = configure("question-answering", path, path)
    words = vocabulary("Ada lives in Rome . Who Where ?")
    list(write_examples(QuestionCorpus(config), tmp_path / "data", words, None))
    change, what = QUESTIONS[case]
    opened(tmp_path / "data", change, what, lambda: open_data(config, tmp_path / "data"))
