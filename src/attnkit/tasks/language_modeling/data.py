"""Training data of language models: documents, vocabulary and stores in RUN/data."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from attnkit.data.config import TextConfig
from attnkit.data.language_modeling import ClmDataset, MlmDataset, MlmMasking
from attnkit.data.masking import MaskVocabulary
from attnkit.data.next_sentence import NspDataset
from attnkit.data.packed_batches import PackedCorpora, sampling_probabilities
from attnkit.data.prepared_dir import (
    StatusEvent,
    WarningEvent,
    open_prepared_dir,
    sample_validation_indices,
    warn_of_unknown,
    write_index,
)
from attnkit.data.store import Store, store_writer
from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.io.safe_read import read_regular_file
from attnkit.protocols import EOS_ID, UNK_ID
from attnkit.tasks.language_modeling.config import MASK, ClmConfig, MlmConfig
from attnkit.text.documents import read_documents
from attnkit.text.encoding import BatchEncoder, EncodedLines
from attnkit.text.label_columns import table_warning
from attnkit.text.lines import line_batches
from attnkit.text.offsets import ordinary_tokens, sentence_ends, word_boundaries
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary import train_vocabulary

Config = MlmConfig | ClmConfig
Rows = MlmDataset | ClmDataset | NspDataset
_CHUNK = 1 << 13  # documents encoded at a time
_MAX_BYTES = 1 << 20  # of corpora.json
Count = Annotated[int, Field(ge=0, lt=1 << 40)]


class _Sizes(BaseModel, extra="forbid", strict=True):
    """Content of ``corpora.json``."""

    train: list[Count]
    """Number of documents per file."""
    valid: list[Count]
    unknown: Count
    """Number of unknown tokens."""


@dataclass(frozen=True)
class PreparedText:
    """Prepared training and validation data of a language model."""

    train: Rows
    valid: Rows
    tokenizer: Tokenizer
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Return a hash of all ids, and of document and file boundaries."""
        return self.train.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Return the text files of a checkpoint: name -> content."""
        return {"tokenizer.json": self.tokenizer.to_json().encode()}


class DocumentCorpus:
    """Training and validation documents of a run's files; re-read on each access."""

    def __init__(self, data: TextConfig) -> None:
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"held_out": 0, "repeats_of_held_out": 0}
        self._format = data.document_format
        self._held_out: list[set[int]] = []
        self._kept: list[list[str]] = []
        if not self.valid_paths:  # hold out documents of each file in proportion to its size, at least one
            sizes = [sum(1 for _ in self._documents(path)) for path in self.paths]
            for n, path in zip(sizes, self.paths, strict=True):
                share = -(-data.held_out * n // sum(sizes)) if n else 1
                held_out = sample_validation_indices(n, share, data.held_out_seed, str(path))
                self._held_out.append(held_out)
                self._kept.append([text for i, text in enumerate(self._documents(path)) if i in held_out])
        self._known = set(chain.from_iterable(self._kept))
        for number, path in enumerate(self.valid_paths or self.paths):
            if next(self.read_valid(number), None) is None:
                raise DataError("no validation documents", where=str(path))

    def read(self, number: int) -> Iterator[str]:
        """Yield the training documents of a file; count the others (reset at file 0)."""
        if number == 0:
            self.counts = dict.fromkeys(self.counts, 0)
        held_out = set() if self.valid_paths else self._held_out[number]
        for index, text in enumerate(self._documents(self.paths[number])):
            if index in held_out:
                self.counts["held_out"] += 1
            elif text in self._known:
                self.counts["repeats_of_held_out"] += 1
            else:
                yield text

    def _documents(self, path: Path) -> Iterator[str]:
        return read_documents(path, self._format)

    def read_valid(self, number: int) -> Iterator[str]:
        """Yield the validation documents of a file."""
        return iter(self._kept[number]) if self._kept else self._documents(self.valid_paths[number])


class CorpusEncoder:
    """Encoder of documents for a configuration."""

    def __init__(self, tokenizer: Tokenizer, config: Config) -> None:
        self.tokenizer, self.config = tokenizer, config
        self.n_unknown = self.n_tokens = 0
        self.n_masks = 0
        """Number of [MASK] symbols in the text, which are dropped."""
        self._mask = tokenizer.token_id(MASK) if isinstance(config, MlmConfig) else None
        pairs = isinstance(config, MlmConfig) and config.model.next_sentence
        # Minimum number of ids of a useful document.
        self._min_length = 2 if pairs or isinstance(config, ClmConfig) else 1

    def finish(self, documents: EncodedLines) -> EncodedLines:
        """Return the ids of documents as they are stored; count them."""
        ids, lengths = documents
        self.n_unknown += int(np.count_nonzero(ids == UNK_ID))
        if self._mask is not None and (is_mask := ids == self._mask).any():
            self.n_masks += int(np.count_nonzero(is_mask))
            before = np.append(0, np.cumsum(is_mask, dtype=np.int32))  # masks before each id, and in all
            ends = np.cumsum(lengths)
            ids, lengths = ids[~is_mask], lengths - (before[ends] - before[ends - lengths])
        self.n_tokens += len(ids)
        if isinstance(self.config, ClmConfig):
            ends = np.cumsum(lengths)
            if self.config.direction == "right-to-left":
                # Position p of a row that begins at b and ends at e is read from b + e - 1 - p.
                ids = ids[np.repeat(2 * ends - lengths - 1, lengths) - np.arange(len(ids))]
            ids, lengths = np.insert(ids, ends, EOS_ID), lengths + np.int32(1)
        return EncodedLines(ids, lengths)

    def write(self, folder: Path, corpora: Iterable[tuple[Path, Iterable[str]]]) -> list[int]:
        """Write a store of documents; return the number of documents per corpus.

        Raises:
            DataError: a file has no useful document.
        """
        atomic.make_dirs(folder)
        sizes = []
        with store_writer(folder, self.tokenizer.vocab_size) as writer, BatchEncoder([self.tokenizer]) as encoder:
            for path, documents in corpora:
                n = n_useful = 0
                # Batches have a quarter of the usual number of characters, since ids take much memory.
                chunks = line_batches(documents, _CHUNK, None, lambda text: 4 * len(text))
                for _, (rows,) in encoder.encode((None, [chunk]) for chunk in chunks):
                    stored = self.finish(rows)
                    writer.add_encoded(stored)
                    n += len(stored.lengths)
                    n_useful += int(np.count_nonzero(stored.lengths >= self._min_length))
                if not n_useful:
                    raise DataError("no document in this file is long enough", where=str(path))
                sizes.append(n)
        return sizes


def table_warnings(data: TextConfig) -> Iterator[str]:
    """Yield a warning about each file that looks like a table of texts and labels."""
    paths = dict.fromkeys(map(Path, (*data.files, *(data.valid_files or ()))))
    return (text for path in paths if (text := table_warning(path)) is not None)


def prepare_text(
    config: Config, folder: Path, given: Tokenizer | None, origin: str | None
) -> Iterator[StatusEvent | WarningEvent]:
    """Encode the text and write it to RUN/data."""
    with atomic.atomic_dir(folder) as temporary:
        yield StatusEvent("reading the text")
        documents = DocumentCorpus(config.data)
        yield from map(WarningEvent, table_warnings(config.data))
        numbers = range(len(documents.paths))
        if given is None:
            yield StatusEvent("building the vocabulary")
            given = train_vocabulary(chain.from_iterable(map(documents.read, numbers)), config.vocabulary)
        check_mask_token(config, given)
        atomic.write_new_file(temporary / "tokenizer.json", given.to_json().encode())
        yield StatusEvent("encoding the text")
        encoder = CorpusEncoder(given, config)
        train = encoder.write(temporary / "train", zip(documents.paths, map(documents.read, numbers), strict=True))
        n_tokens, n_masks, n_unknown = encoder.n_tokens, encoder.n_masks, encoder.n_unknown
        held_out = documents.valid_paths or documents.paths
        read = map(documents.read_valid, range(len(held_out)))
        valid = encoder.write(temporary / "valid", zip(held_out, read, strict=True))
        sizes = _Sizes(train=train, valid=valid, unknown=encoder.n_unknown)
        atomic.write_new_file(temporary / "corpora.json", sizes.model_dump_json().encode())
        counts = {**documents.counts, "mask_symbols": n_masks, "train": sum(train), "valid": sum(valid)}
        inputs = [*documents.paths, *documents.valid_paths]
        write_index(temporary, inputs, origin, {**counts, "tokens": n_tokens})
        yield from warn_of_unknown(n_unknown, n_tokens)
        if len(train) > 1:  # report the size of each file and its share of an epoch
            lengths = np.split(Store.open(temporary / "train").lengths, np.cumsum(train)[:-1])
            tokens = [int(part.sum(dtype=np.int64)) for part in lengths]
            shares = sampling_probabilities(tokens, config.data.language_sampling_alpha)
            for path, n, size, share in zip(config.data.files, train, tokens, shares, strict=True):
                part = f"{size / sum(tokens):.1%} of all, {share:.1%} of an epoch"
                yield StatusEvent(f"{path}: {n:,} documents, {size:,} tokens, {part}")


def check_mask_token(config: Config, tokenizer: Tokenizer) -> None:
    """Raise ``UsageError`` if a masked language model's vocabulary has no mask token."""
    if isinstance(config, MlmConfig) and tokenizer.token_id(MASK) is None:
        help = f'build one: attnkit vocab FILE... -o vocab.json --symbol "{MASK}"'
        raise UsageError(f"this vocabulary has no {MASK}", where="vocabulary_files", help=help)


def load_text(config: Config, folder: Path) -> PreparedText:
    """Open the text in RUN/data. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        try:
            counted = _Sizes.model_validate_json(read_regular_file(folder / "corpora.json", _MAX_BYTES))
        except ValidationError as error:
            raise ValueError("invalid corpora.json") from error
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        data = config.data
        train, valid = (
            PackedCorpora(Store.open(folder / name), data.sequence_length, tuple(sizes), alpha, data.isolate_documents)
            for name, sizes, alpha in (
                ("train", counted.train, data.language_sampling_alpha),
                ("valid", counted.valid, 1.0),
            )
        )
        if isinstance(config, ClmConfig):
            return PreparedText(ClmDataset(train), ClmDataset(valid), tokenizer, index["counts"])
        check_mask_token(config, tokenizer)
        mask = tokenizer.token_id(MASK)
        assert mask is not None
        words = MaskVocabulary(mask, ordinary_tokens(tokenizer), UNK_ID if counted.unknown else None)
        replaces = config.generator is not None
        masking = MlmMasking(config.masking, words, word_boundaries(tokenizer), replaces)
        build: Callable[[PackedCorpora, MlmMasking], MlmDataset | NspDataset] = MlmDataset
        if config.model.next_sentence:
            build = partial(NspDataset, sentence_ends=sentence_ends(tokenizer))
        # At one rate, so that the losses of a run can be compared: that of the end, for which it is trained last.
        held_out = build(valid, masking.at(1))
        return PreparedText(build(train, masking), held_out, tokenizer, index["counts"])
