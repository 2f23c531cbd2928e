"""Training data of question answering: SQuAD files, encoded in RUN/data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from attnkit.data.config import WindowSizes
from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples
from attnkit.data.labels import Labels
from attnkit.data.prepared_dir import WarningEvent, open_prepared_dir, sample_validation_indices
from attnkit.data.store import Store
from attnkit.data.windows import NO_ANSWER, InMemoryTokens, Longs, StridedContextDataset
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.protocols import UNK_ID
from attnkit.tasks.finetuning.config import QuestionAnsweringConfig
from attnkit.text.offsets import Aligned, align
from attnkit.text.squad import Paragraph, Question, read_squad, write_squad
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer

ANSWERABILITY_LABELS = Labels(labels=["answer", "no answer"])  #: ``labels.json`` of models that may abstain
_SAMPLE = 500  # paragraphs encoded by a dry run
_MAX_NUMBER = 1 << 30  #: upper bound of token and paragraph indices in a store


class QaExamples:
    """Questions and paragraphs encoded in memory, with tokens aligned to the text."""

    def __init__(self, paragraphs: Sequence[Paragraph], tokenizer: Tokenizer, sizes: WindowSizes) -> None:
        """Encode paragraphs; questions without gold answers count as unanswerable."""
        self.paragraphs, self.sizes = paragraphs, sizes
        self.questions = [question for paragraph in paragraphs for question in paragraph.questions]
        numbers = [number for number, paragraph in enumerate(paragraphs) for _ in paragraph.questions]
        self.context_of: Longs = np.array(numbers, np.int64)
        self.aligned = align(tokenizer, [paragraph.context for paragraph in paragraphs])
        asked = InMemoryTokens(tokenizer.encode([question.text for question in self.questions]))
        self.n_truncated = int((asked.lengths > sizes.max_question_length).sum())  #: number of truncated questions
        contexts = InMemoryTokens([aligned.ids.tolist() for aligned in self.aligned])
        answers = [
            answer_tokens(question, self.aligned[number]) or NO_ANSWER
            for question, number in zip(self.questions, numbers, strict=True)
        ]
        self.rows = StridedContextDataset(asked, contexts, self.context_of, sizes, np.array(answers).reshape(-1, 2))

    def answer_text(self, question: int, first: int, behind: int) -> str:
        """Return the paragraph text of tokens ``first`` to ``behind`` (exclusive)."""
        number = int(self.context_of[question])
        return self.aligned[number].cut(self.paragraphs[number].context, first, behind)


def answer_tokens(question: Question, context: Aligned) -> tuple[int, int] | None:
    """Return the first and last token of the first answer with tokens, if any."""
    for answer in question.answers:
        if (found := context.pieces(answer.begin, answer.begin + len(answer.text))) is not None:
            return found[0], found[1] - 1
    return None


class QuestionCorpus(ExampleCorpus[Paragraph]):
    """Corpus of paragraphs with their labeled questions."""

    unit, valid_option = "question", "--dev"
    chunk = 256

    def __init__(self, config: QuestionAnsweringConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        """Read all files; ``known`` is unused, and samples have ``_SAMPLE`` paragraphs."""
        super().__init__(config.data)
        self._windows = config.windows
        self.counts = {"held_out": 0, "unlabeled": 0}
        self._train = list(self.read(self.paths))
        if self.valid_paths:
            self.valid = list(self.read(self.valid_paths))
        else:
            data, contexts = config.data, list(dict.fromkeys(paragraph.context for paragraph in self._train))
            indices = sample_validation_indices(len(contexts), data.held_out, data.held_out_seed, data.files[0])
            held = {contexts[i] for i in indices}
            self.valid = [paragraph for paragraph in self._train if paragraph.context in held]
            self._train = [paragraph for paragraph in self._train if paragraph.context not in held]
            self.counts["held_out"] = n_questions(self.valid)
        self.n_impossible, self._n_impossible_in_validation = (
            sum(question.impossible for paragraph in part for question in paragraph.questions)
            for part in (self._train, self.valid)
        )
        self.labels = ANSWERABILITY_LABELS if self.n_impossible else None
        sample = self._train[:_SAMPLE]
        self.samples = [(sample, n_questions(self._train), n_questions(sample))]

    def read(self, paths: Sequence[Path]) -> Iterator[Paragraph]:
        ids, empty = set[str](), True
        for paragraph in (paragraph for path in paths for paragraph in read_squad(path)):
            known = tuple(question for question in paragraph.questions if question.labeled)
            self.counts["unlabeled"] += len(paragraph.questions) - len(known)
            if twins := ids.intersection(question.id for question in known):
                what = f"two files have the same question id '{min(twins)[:60]}'"
                raise DataError(what, where=str(paths[-1]), help="pass each file only once")
            ids.update(question.id for question in known)
            if known:
                empty = False
                yield Paragraph(paragraph.title, paragraph.context, known)
        if empty:
            what = "no question in this file has an answer"
            raise DataError(what, where=str(paths[0]), help="give each question 'answers' or 'is_impossible'")

    def train(self) -> Iterator[Paragraph]:
        return iter(self._train)

    def texts(self, examples: Iterable[Paragraph]) -> Iterator[str]:
        for paragraph in examples:
            yield paragraph.context
            yield from (question.text for question in paragraph.questions)

    def messages(self) -> Iterator[WarningEvent]:
        n = self._n_impossible_in_validation
        if n and not self.n_impossible:
            what = f"{n:,} validation questions are unanswerable, but no training question is: all will be answered"
            yield WarningEvent(what)

    def n_tokens(self, tokenizer: Tokenizer, examples: Sequence[Paragraph]) -> int:
        return int(QaExamples(examples, tokenizer, self._windows).rows.lengths[0].sum())

    def encoder(self, tokenizer: Tokenizer) -> QuestionEncoder:
        return QuestionEncoder(tokenizer, self._windows)

    def write_valid(self, folder: Path, encoder: ExampleEncoder[Paragraph]) -> int:
        atomic.write_new_file(folder / "valid.json", write_squad(self.valid).encode())
        return n_questions(self.valid)


def n_questions(paragraphs: Sequence[Paragraph]) -> int:
    """Return the number of questions about paragraphs."""
    return sum(len(paragraph.questions) for paragraph in paragraphs)


class QuestionEncoder(ExampleEncoder[Paragraph]):
    """Encoder of paragraphs into stores of questions, contexts and answers.

    An answer is a row of context index, first token + 1 and last token + 1, or 0 and 0 for no answer. Questions whose
    answers have no tokens are left out.
    """

    def __init__(self, tokenizer: Tokenizer, sizes: WindowSizes) -> None:
        super().__init__(tokenizer)
        self._max_question_length, self._n_contexts = sizes.max_question_length, 0

    def sizes(self) -> Mapping[str, int]:
        size = self.tokenizer.vocab_size
        return {"questions": size, "contexts": size, "answers": _MAX_NUMBER}

    def rows(self, examples: Sequence[Paragraph]) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        aligned = align(self.tokenizer, [paragraph.context for paragraph in examples])
        texts: list[str] = []
        answers: list[list[int]] = []
        for number, (paragraph, context) in enumerate(zip(examples, aligned, strict=True), self._n_contexts):
            for question in paragraph.questions:
                tokens = NO_ANSWER if question.impossible else answer_tokens(question, context)
                if tokens is None:
                    self.counts["without_tokens"] += 1
                else:
                    texts.append(question.text)
                    answers.append([number, tokens[0] + 1, tokens[1] + 1])
        self._n_contexts += len(examples)
        questions, contexts = self.tokenizer.encode(texts), [context.ids.tolist() for context in aligned]
        self.counts["cut_questions"] += sum(len(ids) > self._max_question_length for ids in questions)
        self.n_tokens += sum(map(len, contexts)) + sum(map(len, questions))
        self.n_unknown += sum(ids.count(UNK_ID) for ids in (*contexts, *questions))
        return questions, contexts, answers


PreparedQuestions = PreparedExamples[StridedContextDataset, QaExamples]  #: has labels if some are unanswerable


def open_data(config: QuestionAnsweringConfig, folder: Path) -> PreparedQuestions:
    """Open the questions in RUN/data. Raises ``RunError`` if they are damaged."""
    with open_prepared_dir(folder) as index:
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        labels = Labels.load(folder) if (folder / "labels.json").exists() else None
        if labels not in (None, ANSWERABILITY_LABELS):
            raise ValueError("invalid labels.json")
        try:
            valid = QaExamples(read_squad(folder / "valid.json"), tokenizer, config.windows)
        except DataError as error:
            raise ValueError(f"invalid valid.json: {error.what}") from error
        stores = (Store.open(folder / "train" / name) for name in ("questions", "contexts", "answers"))
        questions, contexts, answers = stores
        table, lengths = answers.gather(np.arange(len(answers)))
        if len(answers) != len(questions) or (lengths != 3).any():
            raise ValueError("the number of answers differs from the number of questions")
        of, first, last = table.reshape(-1, 3).T
        outside = len(of) and (int(of.max()) >= len(contexts) or (last > contexts.lengths[of]).any())
        if outside or (first > last).any() or ((first == 0) & (last > 0)).any():
            raise ValueError("an answer is outside its context")
        train = StridedContextDataset(questions, contexts, of, config.windows, np.stack([first, last], 1) - 1)
        if len(valid.questions) != index["counts"].get("valid") or not len(train):
            raise ValueError("examples are missing")
        return PreparedQuestions(train, valid.rows, valid, tokenizer, labels, index["counts"])
