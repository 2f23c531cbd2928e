"""Labeled documents, encoded for training and prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attnkit.data.config import DocumentsConfig
from attnkit.data.labels import LabeledData, Labels, check_known_labels, count_labels
from attnkit.data.prepared_dir import (
    StatusEvent,
    count_reason,
    open_prepared_dir,
    read_lines,
    sample_validation_indices,
    write_index,
    write_lines,
)
from attnkit.data.text_classification import DocumentDataset, Sentences, write_documents
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.tasks.text_classification.config import HanClassificationConfig
from attnkit.text.documents import read_labeled, space_words, split_sentences
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary import train_vocabulary

_CHUNK = 1024  # documents
Labeled = tuple[str, str]
"""A document and its label."""
PreparedDocuments = LabeledData[DocumentDataset, str]


@dataclass
class DocumentEncoder:
    """Encodes documents as ids of their sentences."""

    tokenizer: Tokenizer
    data: DocumentsConfig
    n_truncated: int = 0
    """Truncated documents so far: those with more sentences than ``max_sentences``."""

    def sentences(self, document: str) -> list[str]:
        """Split a document into sentences for the tokenizer."""
        found = split_sentences(document)
        return [space_words(part) for part in found] if self.tokenizer.config.kind == "word" else found

    def encode(self, documents: Sequence[str]) -> list[Sentences]:
        """Return the ids of each document's sentences: long ones are split, excess ones dropped."""
        texts = [self.sentences(document) for document in documents]
        rows = iter(self.tokenizer.encode([sentence for document in texts for sentence in document]))
        return [self._limited([next(rows) for _ in document]) for document in texts]

    def _limited(self, sentences: Sentences) -> Sentences:
        longest, most = self.data.max_length, self.data.max_sentences
        cut = (ids[i : i + longest] for ids in sentences for i in range(0, len(ids), longest))
        found = list(islice(cut, most))
        self.n_truncated += next(cut, None) is not None
        return found


class LabeledDocuments:
    """The documents of a run's files, read anew each time, and all their labels."""

    def __init__(self, data: DocumentsConfig) -> None:
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"blank": 0, "held_out": 0, "repeats_of_held_out": 0}
        labels, total = count_labels((label for _, label in _read(self.paths)), "document", data.files[0])
        self.labels = Labels(labels=sorted(labels))
        self._held_out: set[int] = set()
        if not self.valid_paths:
            self._held_out = sample_validation_indices(total, data.held_out, data.held_out_seed, data.files[0])
        self.valid = list(self._read_valid(labels))
        if not self.valid:
            raise DataError("no document is left to validate on", help="give --valid-data")

    def documents(self) -> Iterator[Labeled]:
        """Yield the training documents with their labels, counting the others."""
        self.counts = dict.fromkeys(self.counts, 0)
        known = set() if self.valid_paths else {document for document, _ in self.valid}
        for number, (document, label) in enumerate(_read(self.paths)):
            left_out = {
                "held_out": number in self._held_out,
                "blank": not split_sentences(document),
                "repeats_of_held_out": document in known,
            }
            if not count_reason(left_out, self.counts):
                yield document, label

    def _read_valid(self, labels: set[str]) -> Iterator[Labeled]:
        for number, (document, label) in enumerate(_read(self.valid_paths or self.paths)):
            if self.valid_paths and label not in labels:
                raise DataError(f"no document to train on has the label '{label}'", where=str(self.valid_paths[0]))
            if (self.valid_paths or number in self._held_out) and split_sentences(document):
                yield document, label


def _read(paths: Sequence[Path]) -> Iterator[Labeled]:
    for path in paths:
        yield from read_labeled(path)


def prepare_documents(
    config: HanClassificationConfig, folder: Path, given: Tokenizer | None, origin: str | None, labels: Labels | None
) -> Iterator[StatusEvent]:
    """Encode the documents into RUN/data; ``labels`` are those of the weights that initialize the run."""
    with atomic.atomic_dir(folder) as temporary:
        yield StatusEvent("reading the documents")
        corpus = LabeledDocuments(config.data)
        if labels is not None:
            check_known_labels(labels, corpus.labels.labels, config.data.files[0])
            corpus.labels = labels
        if given is None:
            yield StatusEvent("building the vocabulary")
            given = train_vocabulary(_sentences(corpus, config), config.vocabulary)
        atomic.write_new_file(temporary / "tokenizer.json", given.to_json().encode())
        atomic.write_new_file(temporary / "labels.json", corpus.labels.to_bytes())
        yield StatusEvent("encoding the documents")
        reader = DocumentEncoder(given, config.data)
        n_train = _write(temporary / "train", corpus.documents(), reader, corpus.labels)
        if not n_train:
            raise DataError("no document is left to train on", where=config.data.files[0])
        counts = {**corpus.counts, "cut_short": reader.n_truncated}
        _write(temporary / "valid", iter(corpus.valid), reader, corpus.labels)
        counts["cut_short_in_validation"] = reader.n_truncated - counts["cut_short"]
        write_lines(temporary / "valid.txt", (document for document, _ in corpus.valid))
        counts |= {"labels": len(corpus.labels.labels), "train": n_train, "valid": len(corpus.valid)}
        write_index(temporary, [*corpus.paths, *corpus.valid_paths], origin, counts)


def _sentences(corpus: LabeledDocuments, config: HanClassificationConfig) -> Iterator[str]:
    spaced = config.vocabulary.kind == "word"
    for document, _ in corpus.documents():
        yield from (space_words(part) if spaced else part for part in split_sentences(document))


def _write(folder: Path, documents: Iterator[Labeled], reader: DocumentEncoder, labels: Labels) -> int:
    """Write documents and return their number."""
    ids, n = {label: id for id, label in enumerate(labels.labels)}, 0

    def encoded() -> Iterator[tuple[Sentences, int]]:
        nonlocal n
        while chunk := list(islice(documents, _CHUNK)):
            n += len(chunk)
            rows = reader.encode([document for document, _ in chunk])
            yield from ((sentences, ids[label]) for sentences, (_, label) in zip(rows, chunk, strict=True))

    write_documents(folder, encoded(), reader.tokenizer.vocab_size, len(ids))
    return n


def load_documents(config: HanClassificationConfig, folder: Path) -> PreparedDocuments:
    """Open what ``prepare_documents`` wrote. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        texts = read_lines(folder / "valid.txt")
        train, valid = DocumentDataset(folder / "train"), DocumentDataset(folder / "valid")
        if not len(texts) == len(valid) == index["counts"].get("valid") or not len(train):
            raise ValueError("documents are missing")
        labels, tokenizer = Labels.load(folder), load_tokenizer(folder / "tokenizer.json")
        return PreparedDocuments(train, valid, texts, tokenizer, labels, index["counts"])
