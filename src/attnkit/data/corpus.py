"""Example corpora: split into training and validation, and encoding in RUN/data."""

import functools
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from attnkit.data import prepared_dir
from attnkit.data.config import ExamplesConfig
from attnkit.data.labels import Labels
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.data.store import store_writer
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.text.lines import line_batches
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer

ExampleT = TypeVar("ExampleT")


class ExampleEncoder(ABC, Generic[ExampleT]):
    """Encoder of examples into rows of stores, with counts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.n_tokens = self.n_unknown = 0
        self.counts: Counter[str] = Counter()  #: other counts so far, for messages

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Return the vocabulary size of each store, by name."""

    @abstractmethod
    def rows(self, examples: Sequence[ExampleT]) -> Sequence[Sequence[Sequence[int]]]:
        """Encode examples and return the rows of each store."""


class ExampleCorpus(ABC, Generic[ExampleT]):
    """Examples in a run's files, reread on every access unless kept in memory."""

    unit: ClassVar[str]  #: singular noun of an example, for messages
    valid_option: ClassVar[str] = "--valid-data"  #: flag of the validation files, for messages
    chunk: ClassVar[int] = 1024  #: examples encoded together
    n_symbols: ClassVar[int] = 0  #: special tokens per row that are not stored
    labels: Labels | None = None  #: content of ``labels.json``

    def __init__(self, data: ExamplesConfig) -> None:
        self.data = data
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"blank": 0, "held_out": 0, "repeats_of_held_out": 0}
        self.held_out: set[int] = set()
        self._blank = array("q")  #: indices of the blank examples found by the first pass
        self.samples: list[tuple[Sequence[ExampleT], int, int]] = []
        """Per file, for estimates: its first examples, the number of all examples and the number of sampled ones."""

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> Iterator[ExampleT]:
        """Yield the examples in files."""

    @abstractmethod
    def texts(self, examples: Iterable[ExampleT]) -> Iterator[str]:
        """Yield the texts for building a vocabulary."""

    @abstractmethod
    def encoder(self, tokenizer: Tokenizer) -> ExampleEncoder[ExampleT]:
        """Return an encoder for the examples."""

    def content(self, example: ExampleT) -> Hashable:
        """Return a key that is equal for repeated examples."""
        return example

    def is_blank(self, example: ExampleT) -> bool:
        """Return whether an example has no text."""
        return False

    def n_characters(self, example: ExampleT) -> int:
        """Return the length of an example, used to bound the memory of a chunk."""
        return 0

    def display(self, example: ExampleT) -> Iterable[str]:
        """Return the lines of an example for ``valid.txt``."""
        return [str(example)]

    def messages(self) -> Iterator[StatusEvent | WarningEvent]:
        """Yield messages about the files, after they have been read."""
        yield from ()

    def warnings(self, counts: Mapping[str, int]) -> Iterator[WarningEvent]:
        """Yield warnings based on the counts of the encoding."""
        yield from ()

    def first_pass(self, n_sampled: int) -> Iterator[ExampleT]:
        """Yield all training examples; sample the first ``n_sampled`` of each file."""
        total = 0
        for path in self.paths:
            sample: list[ExampleT] = []
            n = 0
            for n, example in enumerate(self.read([path]), 1):
                if n <= n_sampled:
                    sample.append(example)
                if not self.valid_paths and self.is_blank(example):
                    self._blank.append(total + n - 1)
                yield example
            total += n
            self.samples.append((sample, n, len(sample)))

    def hold_out(self, total: int) -> None:
        """Choose the held-out examples, unless there are validation files.

        Raises ``DataError`` if all chosen examples were blank in the first pass.
        """
        if not self.valid_paths:
            n, seed, where = self.data.held_out, self.data.held_out_seed, self.data.files[0]
            self.held_out = prepared_dir.sample_validation_indices(total, n, seed, where)
            if len(self.held_out.intersection(self._blank)) == len(self.held_out):
                raise self.none_left()

    @functools.cached_property
    def valid(self) -> list[ExampleT]:
        """Validation examples that are not blank."""
        return [
            example
            for number, example in enumerate(self.read(self.valid_paths or self.paths))
            if (self.valid_paths or number in self.held_out) and not self.is_blank(example)
        ]

    def check_valid(self) -> None:
        """Read the validation examples; raise ``DataError`` if there are none."""
        if not self.valid:
            raise self.none_left()

    def none_left(self) -> DataError:
        """Return the error for an empty validation set."""
        what, where = f"no {self.unit} left for validation", str((self.valid_paths or self.paths)[0])
        return DataError(what, where=where, help=f"give a non-empty file for {self.valid_option}")

    def train(self) -> Iterator[ExampleT]:
        """Yield the training examples; count the examples left out."""
        self.counts = dict.fromkeys(self.counts, 0)
        known = set() if self.valid_paths else set(map(self.content, self.valid))
        for number, example in enumerate(self.read(self.paths)):
            if number in self.held_out:
                self.counts["held_out"] += 1
            elif self.is_blank(example):
                self.counts["blank"] += 1
            elif self.content(example) in known:
                self.counts["repeats_of_held_out"] += 1
            else:
                yield example

    def n_tokens(self, tokenizer: Tokenizer, examples: Sequence[ExampleT]) -> int:
        """Return the number of training tokens of examples, special tokens included."""
        rows = self.encoder(tokenizer).rows(examples)[0]
        return sum(map(len, rows)) + self.n_symbols * len(rows)

    def write(self, folder: Path, encoder: ExampleEncoder[ExampleT], examples: Iterable[ExampleT]) -> int:
        """Write stores of examples to a folder; return the row count of the first store."""
        sizes, n_rows = encoder.sizes(), 0
        for name in sizes:
            atomic.make_dirs(folder / name)
        with ExitStack() as stack:
            writers = [stack.enter_context(store_writer(folder / name, size)) for name, size in sizes.items()]
            for chunk in line_batches(examples, self.chunk, None, self.n_characters):
                parts = encoder.rows(chunk)
                for writer, rows in zip(writers, parts, strict=True):
                    writer.add(rows)
                n_rows += len(parts[0])
        return n_rows

    def write_valid(self, folder: Path, encoder: ExampleEncoder[ExampleT]) -> int:
        """Write the validation examples and return their number."""
        self.write(folder / "valid", encoder, self.valid)
        prepared_dir.write_lines(folder / "valid.txt", chain.from_iterable(map(self.display, self.valid)))
        return len(self.valid)


def write_examples(
    corpus: ExampleCorpus[Any], folder: Path, tokenizer: Tokenizer, origin: str | None
) -> Iterator[StatusEvent | WarningEvent]:
    """Encode a corpus into RUN/data; ``origin`` fingerprints the initial weights."""
    with atomic.atomic_dir(folder) as temporary:
        atomic.write_new_file(temporary / "tokenizer.json", tokenizer.to_json().encode())
        if corpus.labels is not None:
            atomic.write_new_file(temporary / "labels.json", corpus.labels.to_bytes())
        yield StatusEvent(f"encoding the {corpus.unit}s")
        encoder = corpus.encoder(tokenizer)
        n_train = corpus.write(temporary / "train", encoder, corpus.train())
        if not n_train:
            n, help = corpus.counts.get("repeats_of_held_out", 0), None
            if n:
                help = f"{n:,} repeat those held out for validation: name others with {corpus.valid_option}"
            raise DataError(f"no {corpus.unit}s left for training", where=corpus.data.files[0], help=help)
        counts = {**corpus.counts, **encoder.counts}
        valid_encoder = corpus.encoder(tokenizer)
        n_valid = corpus.write_valid(temporary, valid_encoder)
        shortened = [name for name in ("cut_short", "too_long") if name in counts]
        counts |= {f"{name}_in_validation": valid_encoder.counts[name] for name in shortened}
        counts |= {"train": n_train, "valid": n_valid}
        prepared_dir.write_index(temporary, [*corpus.paths, *corpus.valid_paths], origin, counts)
        yield from corpus.warnings(counts)
        yield from prepared_dir.warn_of_unknown(encoder.n_unknown, encoder.n_tokens)


class Rows(Protocol):
    """Encoded examples with a fingerprint of all ids and labels."""

    @property
    def fingerprint(self) -> str: ...

    def __len__(self) -> int: ...


RowsT = TypeVar("RowsT", bound=Rows)
ExamplesT = TypeVar("ExamplesT")


@dataclass(frozen=True)
class PreparedExamples(Generic[RowsT, ExamplesT]):
    """Opened training data; satisfies ``task.Prepared``."""

    train: RowsT
    valid: RowsT
    valid_examples: ExamplesT  #: validation examples as text
    tokenizer: Tokenizer
    label_file: Labels | None  #: content of ``labels.json``; None for data without labels
    counts: dict[str, Any]

    @property
    def labels(self) -> list[str]:
        """Labels in the order of their ids."""
        return self.label_file.labels if self.label_file else []

    @property
    def fingerprint(self) -> str:
        """Hash of all ids, row boundaries and labels."""
        return self.train.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Text files to store in each checkpoint, by name."""
        found = {"tokenizer.json": self.tokenizer.to_json().encode()}
        return found | ({"labels.json": self.label_file.to_bytes()} if self.label_file else {})


def load_examples(
    folder: Path,
    open_rows: Callable[[Path, int], RowsT],
    parse: Callable[[list[str]], list[ExampleT]],
    check: Callable[[RowsT, list[ExampleT]], bool] = lambda rows, examples: len(rows) == len(examples),
) -> PreparedExamples[RowsT, list[ExampleT]]:
    """Open the output of ``write_examples``; raise ``RunError`` if it is damaged.

    ``open_rows`` takes a folder and the number of labels; ``parse`` takes the lines of ``valid.txt``. ``check`` returns
    whether the rows and examples of the validation set agree.
    """
    with prepared_dir.open_prepared_dir(folder) as index:
        labels = Labels.load(folder) if (folder / "labels.json").exists() else None
        examples = parse(prepared_dir.read_lines(folder / "valid.txt"))
        train, valid = (open_rows(folder / name, len(labels.labels) if labels else 0) for name in ("train", "valid"))
        if not len(examples) == index["counts"].get("valid") or not check(valid, examples) or not len(train):
            raise ValueError("rows and examples differ in number")
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        return PreparedExamples(train, valid, examples, tokenizer, labels, index["counts"])
