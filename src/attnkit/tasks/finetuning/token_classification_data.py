"""Training data of token classification: tagged sentences, encoded in RUN/data.

Tags are learnt as BIO, or as BIOES or BILOU if the text has these. Tags that name no entities, such as parts of speech,
are learnt unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from attnkit.data.config import TaggedConfig
from attnkit.data.labels import MAX_LABELS, LabeledData, Labels, check_known_labels
from attnkit.data.prepared_dir import (
    StatusEvent,
    WarningEvent,
    open_prepared_dir,
    read_lines,
    sample_validation_indices,
    warn_of_unknown,
    write_index,
    write_lines,
)
from attnkit.data.question_answering import InMemoryTokens
from attnkit.data.store import Store, store_writer
from attnkit.data.token_classification import (
    UNKNOWN,
    TokenClassificationDataset,
    first_subword_mask,
    n_marks,
    with_tokens,
)
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.protocols import OUTSIDE, UNK_ID, split_tag
from attnkit.tasks.finetuning.config import TokenClassificationConfig
from attnkit.text.conll import LETTERS, Scheme, TagSummary, convert, label_scheme, read_sentences, summarize_tags
from attnkit.text.offsets import EncodedWords, encode_words
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer

Sentence = tuple[tuple[str, ...], tuple[str, ...]]
"""The words and their tags."""
PreparedTags = LabeledData[TokenClassificationDataset, Sentence]
_CHUNK = 1024  # sentences


def scheme_of(labels: Labels) -> Scheme:
    """Return what the tags of a tagger are."""
    return label_scheme(labels.labels)


class TaggedCorpus:
    """The sentences of a run's files, read anew each time, and all their tags."""

    def __init__(self, data: TaggedConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        """Read the files; keep the words of the first ``n_sampled`` sentences in ``sample``.

        ``known`` are the tags of the initial weights, whose scheme is kept.

        Raises:
            DataError: there are no sentences, or a tag is not among the known ones.
        """
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"held_out": 0, "repeats_of_held_out": 0}
        self.sample: list[Sequence[str]] = []
        seen, seen_valid = summarize_tags(self.paths, self.sample, n_sampled), summarize_tags(self.valid_paths)
        self._tag_warnings = _tag_warnings(seen, seen_valid)
        scheme = seen.scheme()
        self._scheme: Scheme = "bio" if scheme == "iob1" else scheme
        self.labels = Labels(labels=self._label_list(set(seen.tags), data.files[0]))
        if known is not None:
            self._scheme, self.labels = scheme_of(known), known
            met = {tag for _, tags in self._read(self.paths) for tag in tags}
            check_known_labels(known, sorted(met), data.files[0], "tag")
        self._held_out: set[int] = set()
        if not self.valid_paths:
            self._held_out = sample_validation_indices(
                seen.n_sentences, data.held_out, data.held_out_seed, data.files[0]
            )
        self.n_sentences = seen.n_sentences - len(self._held_out)
        """Sentences to train on; repeats of held-out ones are among them."""
        self.valid = list(self._read_valid())
        if not self.valid:
            raise DataError("no sentence to validate on", where=str((self.valid_paths or self.paths)[0]))

    def warnings(self) -> list[str]:
        """Return warnings on tags: unknown ones, violations of the scheme, tags without entities."""
        strange = sorted({tag for _, tags in self.valid for tag in tags} - set(self.labels.labels))
        shown = ", ".join(f"'{tag}'" for tag in strange[:3])
        text = f"no sentence to train on has the tag {shown}: words that have it will be tagged wrongly"
        return [*([text] if strange else []), *self._tag_warnings]

    def sentences(self) -> Iterator[Sentence]:
        """Yield the training sentences, counting the others."""
        self.counts = dict.fromkeys(self.counts, 0)
        known = set() if self.valid_paths else {words for words, _ in self.valid}
        for number, (words, tags) in enumerate(self._read(self.paths)):
            if number in self._held_out:
                self.counts["held_out"] += 1
            elif words in known:
                self.counts["repeats_of_held_out"] += 1
            else:
                yield words, tags

    def _label_list(self, tags: set[str], where: str) -> list[str]:
        if not tags:
            raise DataError("no sentences in this file", where=where)
        if len(tags) < 2:
            what = f"every word has the tag '{next(iter(tags))}'"
            raise DataError(what, where=where, help="a tagger needs two tags or more; they are in the last column")
        found = sorted(tags)
        if self._scheme != "plain":
            types = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
            found = [OUTSIDE, *(f"{letter}-{type}" for type in types for letter in LETTERS[self._scheme])]
        if len(found) > MAX_LABELS:
            raise DataError(f"there are more than {MAX_LABELS:,} tags", where=where)
        return found

    def _read(self, paths: Sequence[Path]) -> Iterator[Sentence]:
        for path in paths:
            for block in read_sentences(path):
                yield block.words, tuple(convert(block.tags, self._scheme))

    def _read_valid(self) -> Iterator[Sentence]:
        for number, sentence in enumerate(self._read(self.valid_paths or self.paths)):
            if self.valid_paths or number in self._held_out:
                yield sentence


def _tag_warnings(train: TagSummary, valid: TagSummary) -> list[str]:
    """Return warnings on the tags of both sets of files. Raises ``DataError`` for an invalid tag."""
    scheme = train.scheme()
    if scheme == "plain":
        shown = ", ".join(f"'{tag}'" for tag in sorted(train.invalid_tags())[:3])
        return [f"tags such as {shown} name no entities, as 'B-PER' does: F1 is the accuracy of words here"]
    for seen in (train, valid):
        seen.check_tags()
    errors = train.errors[scheme] | valid.errors[scheme]
    return [errors.message(scheme)] if errors.n else []


def encode_sentences(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """Encode sentences, with at least one token per word."""
    return [with_tokens(words) for words in encode_words(tokenizer, sentences)]


def word_rows(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], longest: int) -> TokenClassificationDataset:
    """Return rows of at most ``longest`` tokens of untagged sentences."""
    encoded = encode_sentences(tokenizer, sentences)
    texts, marks = (
        InMemoryTokens([words.ids.tolist() for words in encoded]),
        InMemoryTokens([first_subword_mask(words).tolist() for words in encoded]),
    )
    return TokenClassificationDataset(texts, marks, longest)


def prepare_tagged(
    corpus: TaggedCorpus, folder: Path, tokenizer: Tokenizer, origin: str | None
) -> Iterator[StatusEvent | WarningEvent]:
    """Encode the sentences into RUN/data."""
    with atomic.atomic_dir(folder) as temporary:
        yield from map(WarningEvent, corpus.warnings())
        atomic.write_new_file(temporary / "tokenizer.json", tokenizer.to_json().encode())
        atomic.write_new_file(temporary / "labels.json", corpus.labels.to_bytes())
        yield StatusEvent("encoding the sentences")
        writer = _Writer(tokenizer, corpus.labels)
        n_train = writer.write(temporary / "train", corpus.sentences())
        if not n_train:
            raise DataError("no sentence is left to train on", where=str(corpus.paths[0]))
        n_unknown, n_tokens = writer.n_unknown, writer.n_tokens
        counts = {**corpus.counts, "words": writer.n_words}
        writer.write(temporary / "valid", iter(corpus.valid))
        write_lines(temporary / "valid.txt", _lines(corpus.valid))
        counts |= {"tags": len(corpus.labels.labels), "train": n_train, "valid": len(corpus.valid)}
        write_index(temporary, [*corpus.paths, *corpus.valid_paths], origin, counts)
        yield from warn_of_unknown(n_unknown, n_tokens)


class _Writer:
    """Writes stores of tokens and of marks."""

    def __init__(self, tokenizer: Tokenizer, labels: Labels) -> None:
        self.tokenizer = tokenizer
        self.tags = {label: tag for tag, label in enumerate(labels.labels)}
        self.n_words = self.n_tokens = self.n_unknown = 0

    def write(self, folder: Path, sentences: Iterator[Sentence]) -> int:
        """Write sentences and return their number."""
        n = 0
        for name in ("tokens", "marks"):
            atomic.make_dirs(folder / name)
        with (
            store_writer(folder / "tokens", self.tokenizer.vocab_size) as tokens,
            store_writer(folder / "marks", n_marks(len(self.tags))) as marks,
        ):
            while chunk := list(islice(sentences, _CHUNK)):
                encoded = encode_sentences(self.tokenizer, [words for words, _ in chunk])
                tokens.add([words.ids.tolist() for words in encoded])
                marks.add([self._marks(words, tags) for words, (_, tags) in zip(encoded, chunk, strict=True)])
                n += len(chunk)
        return n

    def _marks(self, words: EncodedWords, tags: Sequence[str]) -> list[int]:
        self.n_words += len(tags)
        self.n_tokens += len(words.ids)
        self.n_unknown += int((words.ids == UNK_ID).sum())
        found: list[int] = first_subword_mask(words, [self.tags.get(tag, UNKNOWN) for tag in tags]).tolist()
        return found


def load_tagged(config: TokenClassificationConfig, folder: Path) -> PreparedTags:
    """Open what ``prepare_tagged`` wrote. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        labels = Labels.load(folder)
        sentences = _sentences(read_lines(folder / "valid.txt"))
        train, valid = (
            _open_rows(folder / name, config.max_row_length, len(labels.labels)) for name in ("train", "valid")
        )
        counted = len(sentences) == index["counts"].get("valid") and bool(len(train))
        if not counted or [len(words) for words, _ in sentences] != valid.count_words():
            raise ValueError("sentences are missing, or words")
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        return PreparedTags(train, valid, sentences, tokenizer, labels, index["counts"])


def _open_rows(folder: Path, longest: int, n_tags: int) -> TokenClassificationDataset:
    tokens, marks = Store.open(folder / "tokens"), Store.open(folder / "marks")
    if not np.array_equal(tokens.lengths, marks.lengths) or marks.vocab_size != n_marks(n_tags):
        raise ValueError("there is not one mark for each token")
    return TokenClassificationDataset(tokens, marks, longest)


def _lines(sentences: Iterable[Sentence]) -> Iterator[str]:
    for words, tags in sentences:
        yield from (f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True))
        yield ""


def _sentences(lines: Iterable[str]) -> list[Sentence]:
    found: list[Sentence] = []
    for empty, group in groupby(lines, key=lambda line: not line):
        if not empty:
            pairs = [line.split("\t") for line in group]
            found.append((tuple(word for word, _ in pairs), tuple(tag for _, tag in pairs)))
    return found
