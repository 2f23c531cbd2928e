"""Training data of question answering: SQuAD's JSON, encoded as windows in RUN/data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.data.config import QuestionsConfig, WindowSizes
from attnkit.data.labels import Labels
from attnkit.data.prepared_dir import (
    StatusEvent,
    WarningEvent,
    open_prepared_dir,
    sample_validation_indices,
    warn_of_unknown,
    write_index,
)
from attnkit.data.question_answering import NO_ANSWER, InMemoryTokens, Longs, StridedContextDataset
from attnkit.data.store import Store, store_writer
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.protocols import UNK_ID
from attnkit.tasks.finetuning.config import QuestionAnsweringConfig
from attnkit.text.offsets import Aligned, align
from attnkit.text.squad import Paragraph, Question, read_squad, write_squad
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer

ANSWERABILITY_LABELS = Labels(labels=["answer", "no answer"])
"""``labels.json`` of models that may abstain; others have no such file."""
_CHUNK = 256  # paragraphs
_MAX_NUMBER = 1 << 30
"""Bound of token and paragraph numbers in a store."""


@dataclass(frozen=True)
class PreparedQuestions:
    """Prepared training data, opened."""

    train: StridedContextDataset
    valid: QaExamples
    tokenizer: Tokenizer
    has_unanswerable: bool
    """Whether some training questions are unanswerable."""
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Changes with any id, any window and any answer."""
        return self.train.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Text files of a checkpoint."""
        found = {"tokenizer.json": self.tokenizer.to_json().encode()}
        return {**found, "labels.json": ANSWERABILITY_LABELS.to_bytes()} if self.has_unanswerable else found


class QaExamples:
    """Encoded questions on paragraphs in memory, with the alignment of tokens to text."""

    def __init__(self, paragraphs: Sequence[Paragraph], tokenizer: Tokenizer, sizes: WindowSizes) -> None:
        """Encode paragraphs, with or without questions; questions without gold answers get no answer."""
        self.paragraphs, self.sizes = paragraphs, sizes
        self.questions = [question for paragraph in paragraphs for question in paragraph.questions]
        numbers = [number for number, paragraph in enumerate(paragraphs) for _ in paragraph.questions]
        self.context_of: Longs = np.array(numbers, np.int64)
        self.aligned = align(tokenizer, [paragraph.context for paragraph in paragraphs])
        asked = InMemoryTokens(tokenizer.encode([question.text for question in self.questions]))
        self.n_truncated = int((asked.lengths > sizes.max_question_length).sum())
        """Truncated questions."""
        contexts = InMemoryTokens([aligned.ids.tolist() for aligned in self.aligned])
        answers = [
            answer_tokens(question, self.aligned[number]) or NO_ANSWER
            for question, number in zip(self.questions, numbers, strict=True)
        ]
        self.rows = StridedContextDataset(asked, contexts, self.context_of, sizes, np.array(answers).reshape(-1, 2))

    def answer_text(self, question: int, first: int, behind: int) -> str:
        """Return the text of tokens ``first`` up to ``behind`` of a question's paragraph."""
        number = int(self.context_of[question])
        return self.aligned[number].cut(self.paragraphs[number].context, first, behind)


def answer_tokens(question: Question, context: Aligned) -> tuple[int, int] | None:
    """Return the first and last token of the first answer with tokens, or None."""
    for answer in question.answers:
        if (found := context.pieces(answer.begin, answer.begin + len(answer.text))) is not None:
            return found[0], found[1] - 1
    return None


class QaCorpus:
    """The paragraphs of a run's files with the questions that have gold answers."""

    def __init__(self, data: QuestionsConfig) -> None:
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"held_out": 0, "unlabeled": 0}
        self.train = self._read(self.paths)
        if self.valid_paths:
            self.valid = self._read(self.valid_paths)
        else:
            contexts = list(dict.fromkeys(paragraph.context for paragraph in self.train))
            places = sample_validation_indices(len(contexts), data.held_out, data.held_out_seed, data.files[0])
            held = {contexts[place] for place in places}
            self.valid = [paragraph for paragraph in self.train if paragraph.context in held]
            self.train = [paragraph for paragraph in self.train if paragraph.context not in held]
            self.counts["held_out"] = n_questions(self.valid)

    @property
    def has_unanswerable(self) -> bool:
        """Return whether some training questions are unanswerable."""
        return any(question.impossible for paragraph in self.train for question in paragraph.questions)

    def _read(self, paths: Sequence[Path]) -> list[Paragraph]:
        found = []
        ids = set[str]()
        for paragraph in (paragraph for path in paths for paragraph in read_squad(path)):
            known = tuple(question for question in paragraph.questions if question.labeled)
            self.counts["unlabeled"] += len(paragraph.questions) - len(known)
            if known:
                found.append(Paragraph(paragraph.title, paragraph.context, known))
            if twins := ids.intersection(question.id for question in known):
                what = f"two files have a question of the id '{min(twins)[:60]}'"
                raise DataError(what, where=str(paths[-1]), help="give each file once")
            ids.update(question.id for question in known)
        if not found:
            what = "no question of this file says what to answer"
            raise DataError(what, where=str(paths[0]), help="a question has 'answers', or says 'is_impossible'")
        return found


def n_questions(paragraphs: Sequence[Paragraph]) -> int:
    """Return the number of questions."""
    return sum(len(paragraph.questions) for paragraph in paragraphs)


def prepare_questions(
    config: QuestionAnsweringConfig, corpus: QaCorpus, folder: Path, tokenizer: Tokenizer, origin: str | None
) -> Iterator[StatusEvent | WarningEvent]:
    """Encode questions and paragraphs into RUN/data."""
    with atomic.atomic_dir(folder) as temporary:
        atomic.write_new_file(temporary / "tokenizer.json", tokenizer.to_json().encode())
        if corpus.has_unanswerable:
            atomic.write_new_file(temporary / "labels.json", ANSWERABILITY_LABELS.to_bytes())
        atomic.write_new_file(temporary / "valid.json", write_squad(corpus.valid).encode())
        yield StatusEvent("encoding the questions")
        writer = _Writer(tokenizer, config.windows)
        n_train = writer.write(temporary / "train", corpus.train)
        if not n_train:
            raise DataError("no question is left to train on", where=config.data.files[0])
        counts = {**corpus.counts, **writer.counts, "train": n_train, "valid": n_questions(corpus.valid)}
        write_index(temporary, [*corpus.paths, *corpus.valid_paths], origin, counts)
        yield from warn_of_unknown(writer.n_unknown, writer.n_tokens)


class _Writer:
    """Writes stores of questions, paragraphs and answers."""

    def __init__(self, tokenizer: Tokenizer, sizes: WindowSizes) -> None:
        self.tokenizer, self.sizes = tokenizer, sizes
        self.counts = {"without_tokens": 0, "cut_questions": 0}
        self.n_tokens = self.n_unknown = 0

    def write(self, folder: Path, paragraphs: Sequence[Paragraph]) -> int:
        """Write paragraphs; return the number of questions, those with answers without tokens left out."""
        n, size = 0, self.tokenizer.vocab_size
        for name in ("questions", "contexts", "answers"):
            atomic.make_dirs(folder / name)
        with (
            store_writer(folder / "questions", size) as questions,
            store_writer(folder / "contexts", size) as contexts,
            store_writer(folder / "answers", _MAX_NUMBER) as answers,
        ):
            stream, number = iter(paragraphs), 0
            while chunk := list(islice(stream, _CHUNK)):
                aligned = align(self.tokenizer, [paragraph.context for paragraph in chunk])
                contexts.add([one.ids.tolist() for one in aligned])
                self._count([one.ids for one in aligned])
                known = self._answers(chunk, aligned, number)
                questions.add(self._questions([question for question, _ in known]))
                answers.add([row for _, row in known])
                n, number = n + len(known), number + len(chunk)
        return n

    def _answers(
        self, chunk: Sequence[Paragraph], aligned: Sequence[Aligned], number: int
    ) -> list[tuple[Question, list[int]]]:
        """Return each question with its paragraph, first token + 1 and last token + 1; 0 for no answer."""
        found = []
        for place, (paragraph, context) in enumerate(zip(chunk, aligned, strict=True), number):
            for question in paragraph.questions:
                tokens = NO_ANSWER if question.impossible else answer_tokens(question, context)
                if tokens is None:
                    self.counts["without_tokens"] += 1
                else:
                    found.append((question, [place, tokens[0] + 1, tokens[1] + 1]))
        return found

    def _questions(self, questions: Sequence[Question]) -> list[list[int]]:
        ids = self.tokenizer.encode([question.text for question in questions])
        self.counts["cut_questions"] += sum(len(line) > self.sizes.max_question_length for line in ids)
        self._count([np.array(line, np.int64) for line in ids])
        return ids

    def _count(self, rows: Sequence[Longs]) -> None:
        self.n_tokens += sum(map(len, rows))
        self.n_unknown += sum(int((ids == UNK_ID).sum()) for ids in rows)


def load_questions(config: QuestionAnsweringConfig, folder: Path) -> PreparedQuestions:
    """Open what ``prepare_questions`` wrote. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        refuses = (folder / "labels.json").exists()
        if refuses and Labels.load(folder) != ANSWERABILITY_LABELS:
            raise ValueError("invalid labels.json")
        try:
            valid = QaExamples(read_squad(folder / "valid.json"), tokenizer, config.windows)
        except DataError as error:
            raise ValueError(f"invalid valid.json: {error.what}") from error
        train = _open_rows(folder / "train", config.windows)
        if len(valid.questions) != index["counts"].get("valid") or not len(train):
            raise ValueError("questions are missing")
        return PreparedQuestions(train, valid, tokenizer, refuses, index["counts"])


def _open_rows(folder: Path, sizes: WindowSizes) -> StridedContextDataset:
    questions, contexts, answers = (Store.open(folder / name) for name in ("questions", "contexts", "answers"))
    n = len(questions)
    table, lengths = answers.gather(np.arange(len(answers)))
    if len(answers) != n or (lengths != 3).any():
        raise ValueError("there is not one answer for each question")
    of, first, last = table.reshape(-1, 3).T
    outside = n and (int(of.max()) >= len(contexts) or (last > contexts.lengths[of]).any())
    if outside or (first > last).any() or ((first == 0) & (last > 0)).any():
        raise ValueError("an answer does not lie in its context")
    return StridedContextDataset(questions, contexts, of, sizes, np.stack([first, last], 1) - 1)
