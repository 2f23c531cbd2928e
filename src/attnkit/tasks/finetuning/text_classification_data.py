"""Labeled texts, encoded as rows for training and prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnkit.data.config import TextsConfig
from attnkit.data.labels import LabeledData, Labels, abbreviate, check_known_labels, count_labels
from attnkit.data.prepared_dir import (
    StatusEvent,
    WarningEvent,
    count_reason,
    open_prepared_dir,
    read_lines,
    sample_validation_indices,
    warn_of_unknown,
    write_index,
    write_lines,
)
from attnkit.data.text_classification import Row, TextClassificationDataset, join, write_texts
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.protocols import UNK_ID
from attnkit.tasks.finetuning.config import TextClassificationConfig
from attnkit.text.documents import KINDS, Columns, LabeledTable, LabeledText
from attnkit.text.line_stream import line_batches
from attnkit.text.long_lines import encode_prefixes
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary import train_vocabulary

_CHUNK = 1024  # texts
_HEADER = "begin each file with the same header: label<TAB>text or label<TAB>text<TAB>text2"

PreparedTexts = LabeledData[TextClassificationDataset, str]


@dataclass
class TextEncoder:
    """Encodes texts as rows."""

    tokenizer: Tokenizer
    max_length: int
    """Maximum tokens per row."""
    separators: int = 1
    """Ends that stand between two texts."""
    n_truncated: int = 0
    """Truncated rows so far."""
    n_tokens: int = 0
    n_unknown: int = 0

    def encode(self, texts: Sequence[str], texts2: Sequence[str | None]) -> list[list[int]]:
        """Return one row per text, or per pair if there is a second text."""
        # Ids beyond the length of a row are never encoded.
        given = [text for text in texts2 if text is not None]
        seconds = iter(encode_prefixes(self.tokenizer, given, self.max_length))
        rows = []
        for ids, text2 in zip(encode_prefixes(self.tokenizer, texts, self.max_length), texts2, strict=True):
            row, cut = join(ids, None if text2 is None else next(seconds), self.max_length, self.separators)
            self.n_truncated += cut
            self.n_tokens += len(row)
            self.n_unknown += row.count(UNK_ID)
            rows.append(row)
        return rows


class LabeledTables:
    """The labeled lines of a run's files, read anew each time, and all their labels."""

    def __init__(self, data: TextsConfig, n_sampled: int = 0) -> None:
        """Read all labels; keep the first ``n_sampled`` training lines of each file in ``samples``."""
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"blank": 0, "held_out": 0, "repeats_of_held_out": 0}
        self.columns: dict[Path, Columns] = {}
        """Columns of each file read so far."""
        self.n_lines = dict.fromkeys(self.paths, 0)
        self.samples: dict[Path, list[LabeledText]] = {path: [] for path in self.paths}
        labels, total = count_labels(self._first_pass(n_sampled), "text", data.files[0])
        self.labels = Labels(labels=sorted(labels), columns=list(self.columns[self.paths[0]].taken))
        self._held_out: set[int] = set()
        if not self.valid_paths:
            self._held_out = sample_validation_indices(total, data.held_out, data.held_out_seed, data.files[0])
        self.valid = list(self._read_valid(labels))
        if not self.valid:
            where = str(self.valid_paths[0]) if self.valid_paths else None
            raise DataError("no text is left to validate on", where=where, help="give --dev a file that has some")

    def _first_pass(self, n_sampled: int) -> Iterator[str]:
        """Yield the labels of all training lines, counting these."""
        for path, line in self._read(self.paths):
            self.n_lines[path] += 1
            if self.n_lines[path] <= n_sampled:
                self.samples[path].append(line)
            yield line.label or ""

    def lines(self) -> Iterator[LabeledText]:
        """Yield the training lines, counting the others."""
        self.counts = dict.fromkeys(self.counts, 0)
        known = set() if self.valid_paths else {(line.text, line.text2) for line in self.valid}
        for number, (_, line) in enumerate(self._read(self.paths)):
            left_out = {
                "held_out": number in self._held_out,
                "blank": is_blank(line),
                "repeats_of_held_out": (line.text, line.text2) in known,
            }
            if not count_reason(left_out, self.counts):
                yield line

    def _read_valid(self, labels: set[str]) -> Iterator[LabeledText]:
        for number, (path, line) in enumerate(self._read(self.valid_paths or self.paths)):
            if self.valid_paths and line.label not in labels:
                where = f"{path}:{line.line}"
                what = f"no text to train on has the label '{line.label}'"
                raise DataError(what, where=where, help=f"those to train on have {abbreviate(sorted(labels))}")
            if (self.valid_paths or number in self._held_out) and not is_blank(line):
                yield line

    @property
    def describe(self) -> Iterator[str]:
        """Describe the chosen columns, once for files with equal ones."""
        yield from dict.fromkeys(columns.message() for columns in self.columns.values())

    def _read(self, paths: Sequence[Path]) -> Iterator[tuple[Path, LabeledText]]:
        for path in paths:
            table = LabeledTable(path)
            self.columns[path] = table.columns
            n, there = (len(self.columns[one].texts) for one in (path, self.paths[0]))
            if n != there:
                what = f"this file has {KINDS[n - 1]}, {self.paths[0]} has {KINDS[there - 1]}"
                raise DataError(what, where=f"{path}:1", help=_HEADER)
            yield from ((path, line) for line in table)


def is_blank(line: LabeledText) -> bool:
    """Return whether a line has no text."""
    return not line.text.strip() and not (line.text2 or "").strip()


def prepare_texts(
    config: TextClassificationConfig, folder: Path, given: Tokenizer | None, origin: str | None, labels: Labels | None
) -> Iterator[StatusEvent | WarningEvent]:
    """Encode the texts into RUN/data; ``labels`` are those of the weights that initialize the run."""
    with atomic.atomic_dir(folder) as temporary:
        yield StatusEvent("reading the texts")
        tables = LabeledTables(config.data)
        yield from map(StatusEvent, tables.describe)
        if labels is not None:
            tables.labels = inherited_labels(labels, tables.labels, config.data.files[0])
        if given is None:
            yield StatusEvent("building the vocabulary")
            given = train_vocabulary(texts_of(tables.lines()), config.vocabulary)
        atomic.write_new_file(temporary / "tokenizer.json", given.to_json().encode())
        atomic.write_new_file(temporary / "labels.json", tables.labels.to_bytes())
        yield StatusEvent("encoding the texts")
        reader = TextEncoder(given, config.max_row_length, config.model.separators)
        n_train = _write(temporary / "train", tables.lines(), reader, tables.labels)
        if not n_train:
            raise DataError("no text is left to train on", where=config.data.files[0])
        counts = {**tables.counts, "cut_short": reader.n_truncated}
        n_unknown, n_tokens = reader.n_unknown, reader.n_tokens
        _write(temporary / "valid", iter(tables.valid), reader, tables.labels)
        counts["cut_short_in_validation"] = reader.n_truncated - counts["cut_short"]
        write_lines(temporary / "valid.txt", map(displayed, tables.valid))
        counts |= {"labels": len(tables.labels.labels), "train": n_train, "valid": len(tables.valid)}
        write_index(temporary, [*tables.paths, *tables.valid_paths], origin, counts)
        if counts["cut_short"] + counts["cut_short_in_validation"]:
            yield WarningEvent(_truncation_warning(counts, config))
        yield from warn_of_unknown(n_unknown, n_tokens)


def inherited_labels(known: Labels, found: Labels, where: str) -> Labels:
    """Return the labels of the initial run, by their ids, and the columns of the texts.

    Raises:
        DataError: a label is unknown, or single texts are given for pairs or vice versa.
    """
    check_known_labels(known, found.labels, where)
    if known.pairs is not None and known.pairs != found.pairs:
        what = f"this file has {KINDS[bool(found.pairs)]}, and the initial run was trained on {KINDS[known.pairs]}"
        raise DataError(what, where=f"{where}:1", help=_HEADER)
    return Labels(labels=known.labels, columns=found.columns)


def _truncation_warning(counts: Mapping[str, int], config: TextClassificationConfig) -> str:
    train, valid = counts["cut_short"], counts["cut_short_in_validation"]
    there = f"{train:,} of {counts['train']:,} texts, and {valid:,} of {counts['valid']:,} for validation,"
    return f"{there} are longer than {config.max_row_length} tokens: their end is not read"


def texts_of(lines: Iterable[LabeledText]) -> Iterator[str]:
    """Yield first and second texts."""
    for line in lines:
        yield line.text
        if line.text2 is not None:
            yield line.text2


def n_characters(line: LabeledText) -> int:
    """Return the length of both texts."""
    return len(line.text) + len(line.text2 or "")


def displayed(line: LabeledText) -> str:
    """Return a line for display."""
    return line.text if line.text2 is None else f"{line.text} ||| {line.text2}"


def _write(folder: Path, lines: Iterator[LabeledText], reader: TextEncoder, labels: Labels) -> int:
    """Write lines and return their number."""
    ids, n = {label: id for id, label in enumerate(labels.labels)}, 0

    def encoded() -> Iterator[Row]:
        nonlocal n
        for chunk in line_batches(lines, _CHUNK, None, n_characters):
            n += len(chunk)
            rows = reader.encode([line.text for line in chunk], [line.text2 for line in chunk])
            yield from ((row, ids[line.label or ""]) for row, line in zip(rows, chunk, strict=True))

    write_texts(folder, encoded(), reader.tokenizer.vocab_size, len(ids))
    return n


def load_texts(config: TextClassificationConfig, folder: Path) -> PreparedTexts:
    """Open what ``prepare_texts`` wrote. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        texts = read_lines(folder / "valid.txt")
        between = config.model.separators
        train, valid = (TextClassificationDataset(folder / name, between) for name in ("train", "valid"))
        if not len(texts) == len(valid) == index["counts"].get("valid") or not len(train):
            raise ValueError("texts are missing")
        labels, tokenizer = Labels.load(folder), load_tokenizer(folder / "tokenizer.json")
        return PreparedTexts(train, valid, texts, tokenizer, labels, index["counts"])
