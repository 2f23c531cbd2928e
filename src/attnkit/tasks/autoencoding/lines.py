"""Auto-encoding of lines: training data, evaluation, codes and reconstructions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from attnkit.data.config import NoiseConfig
from attnkit.data.denoising import LineDataset
from attnkit.data.loader import Batching, make_batches
from attnkit.data.prepared_dir import (
    StatusEvent,
    count_reason,
    open_prepared_dir,
    read_lines,
    sample_validation_indices,
    write_index,
    write_lines,
)
from attnkit.data.store import Store, store_writer
from attnkit.decoding.config import SearchConfig
from attnkit.engine.events import Sample
from attnkit.engine.seq2seq import (
    LineSegment,
    LocalSearch,
    exclude_padding_ids,
    greedy_ids,
    pad_sources,
    sample_indices,
    seq2seq_loss,
)
from attnkit.engine.task import EvaluationCancelled, Stop, until_stopped
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.models.autoencoder import SequenceAutoencoder
from attnkit.models.linear import without_dropout
from attnkit.models.translation import TranslationModel
from attnkit.protocols import EOS_ID
from attnkit.tasks.autoencoding.config import AutoencodeConfig
from attnkit.text import lines as text
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary import train_vocabulary

_CHUNK = 4096  # lines
_BATCH_TOKENS = 4096
_MAX_VALID_LENGTH = 4096  # tokens
GREEDY = SearchConfig(beam_size=1, max_ratio=1.0, extra=3, scores=False)


@dataclass(frozen=True)
class PreparedLines:
    """Prepared training lines, opened."""

    train: LineDataset
    valid: LineDataset
    valid_lines: list[str]
    tokenizer: Tokenizer
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Changes with any id and any border between lines."""
        return self.train.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Text files of a checkpoint."""
        return {"tokenizer.json": self.tokenizer.to_json().encode()}


class LineCorpus:
    """The lines of a run's files, for training and for validation; read anew each time."""

    def __init__(self, config: AutoencodeConfig) -> None:
        data = config.data
        self.paths = [Path(name) for name in data.files]
        self.valid_paths = [Path(name) for name in data.valid_files or ()]
        self.counts = {"blank": 0, "held_out": 0, "repeats_of_held_out": 0, "too_long": 0}
        self._held_out: set[int] = set()
        if self.valid_paths:
            self.valid = [line for path in self.valid_paths for line in text.read_lines(path) if line.strip()]
        else:
            total = sum(map(text.count_lines, self.paths))
            self._held_out = sample_validation_indices(total, data.held_out, data.held_out_seed, str(self.paths[0]))
            every = (line for path in self.paths for line in text.read_lines(path))
            self.valid = [line for number, line in enumerate(every) if number in self._held_out and line.strip()]
        if not self.valid:
            raise DataError("no line is left to validate on", help="give --valid-data")

    def lines(self) -> Iterator[str]:
        """Yield the training lines, counting the others."""
        self.counts = dict.fromkeys(self.counts, 0)
        known = set() if self.valid_paths else set(self.valid)
        every = (line for path in self.paths for line in text.read_lines(path))
        for number, line in enumerate(every):
            left_out = {
                "held_out": number in self._held_out,
                "blank": not line.strip(),
                "repeats_of_held_out": line in known,
            }
            if not count_reason(left_out, self.counts):
                yield line


def prepare_lines(
    config: AutoencodeConfig, folder: Path, given: Tokenizer | None, origin: str | None
) -> Iterator[StatusEvent]:
    """Encode the text into RUN/data."""
    with atomic.atomic_dir(folder) as temporary:
        corpus = LineCorpus(config)
        if given is None:
            yield StatusEvent("building the vocabulary")
            given = train_vocabulary(corpus.lines(), config.vocabulary)
        atomic.write_new_file(temporary / "tokenizer.json", given.to_json().encode())
        yield StatusEvent("encoding the text")
        n_train, too_long = _write(temporary / "train", corpus.lines(), given, config.data.max_length)
        if not n_train:
            raise DataError("no line is left to train on", where=config.data.files[0])
        corpus.counts["too_long"] = too_long
        valid = [line for line, ids in zip(corpus.valid, given.encode(corpus.valid), strict=True) if _fits(ids)]
        if not valid:
            raise DataError("no line is left to validate on", help="give --valid-data")
        corpus.counts["too_long_in_validation"] = len(corpus.valid) - len(valid)
        _write(temporary / "valid", valid, given, _MAX_VALID_LENGTH)
        write_lines(temporary / "valid.txt", valid)
        counts = {**corpus.counts, "train": n_train, "valid": len(valid)}
        write_index(temporary, [*corpus.paths, *corpus.valid_paths], origin, counts)


def _fits(ids: Sequence[int]) -> bool:
    return len(ids) <= _MAX_VALID_LENGTH


def _write(folder: Path, lines: Iterable[str], tokenizer: Tokenizer, longest: int) -> tuple[int, int]:
    """Write a store of lines up to ``longest`` tokens; return the numbers of kept and dropped lines."""
    rows, n_kept, n_long = iter(lines), 0, 0
    atomic.make_dirs(folder)
    with store_writer(folder, tokenizer.vocab_size) as writer:
        while chunk := list(islice(rows, _CHUNK)):
            kept = [ids for ids in tokenizer.encode(chunk) if len(ids) <= longest]
            writer.add(kept)
            n_kept, n_long = n_kept + len(kept), n_long + len(chunk) - len(kept)
    return n_kept, n_long


def load_lines(config: AutoencodeConfig, folder: Path) -> PreparedLines:
    """Open what ``prepare_lines`` wrote. Raises ``RunError`` if it is damaged."""
    with open_prepared_dir(folder) as index:
        lines = read_lines(folder / "valid.txt")
        train = LineDataset(Store.open(folder / "train"), config.noise)
        valid = LineDataset(Store.open(folder / "valid"), NoiseConfig())
        if not len(lines) == len(valid) == index["counts"].get("valid") or not len(train):
            raise ValueError("lines are missing")
        return PreparedLines(train, valid, lines, load_tokenizer(folder / "tokenizer.json"), index["counts"])


@dataclass
class LinesEvaluation:
    """Reconstruction scores on the development set, without noise."""

    prepared: PreparedLines
    device: torch.device
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)
    """(line, line, reconstruction)."""
    _unigram: float | None = None

    def __call__(self, model: SequenceAutoencoder) -> dict[str, float] | None:
        """Return ``loss`` and ``unigram_loss`` (nats per token), ``perplexity``, ``exact`` (percent of the lines)."""
        try:
            with without_dropout(model), torch.inference_mode():
                loss = self._loss(model)
                rows = [self.prepared.valid.store[i].tolist() for i in range(len(self.prepared.valid))]
                found = reconstruct(model, rows, self.prepared.tokenizer, self.device, self.stop)
        except EvaluationCancelled:
            return None
        lines = self.prepared.valid_lines
        # Only normalized text, for example lower-cased, can be reconstructed.
        expected = self.prepared.tokenizer.decode(rows)
        exact = sum(a == b for a, b in zip(found, expected, strict=True))
        picks = sample_indices(len(lines), self.n_samples)
        self.samples = [(lines[i], expected[i], found[i]) for i in picks]
        if self._unigram is None:
            self._unigram = unigram_loss(self.prepared.train.store, self.prepared.valid.store)
        return {
            "exact": 100 * exact / len(lines),
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "unigram_loss": self._unigram,
        }

    def _loss(self, model: SequenceAutoencoder) -> float:
        total, count = 0.0, 0
        batches = make_batches(self.prepared.valid.lengths[0].tolist(), Batching(_BATCH_TOKENS, "tokens"))
        for indices in until_stopped(self.stop, batches):
            batch = self.prepared.valid.clean(np.asarray(indices, np.int64))
            total += float(seq2seq_loss(model, self.device, 0.0)(batch)["nll"].total)
            count += len(batch.targets)
        return total / count


def unigram_loss(train: Store, valid: Store) -> float:
    """Return the cross-entropy of ``valid`` under add-one unigram frequencies of ``train``, in nats per token.

    The baseline of a model without any code of the line. Line ends are tokens.
    """
    counts = np.ones(train.vocab_size) + _count(train)
    found = _count(valid)
    return float(-(found * np.log(counts / counts.sum())).sum() / found.sum())


def _count(store: Store) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    counts = np.zeros(store.vocab_size, np.int64)
    for start in range(0, len(store), _CHUNK):
        ids, _ = store.gather(np.arange(start, min(start + _CHUNK, len(store))))
        counts += np.bincount(ids, minlength=store.vocab_size)
    counts[EOS_ID] += len(store)
    return counts


def reconstruct(
    model: SequenceAutoencoder,
    rows: Sequence[list[int]],
    tokenizer: Tokenizer,
    device: torch.device,
    stop: Stop | None = None,
) -> list[str]:
    """Reconstruct encoded lines by greedy search, one text per line."""
    parts = [LineSegment(i, 0, ids, []) for i, ids in enumerate(rows)]
    searcher = LocalSearch([cast(TranslationModel, model)], device)
    found = greedy_ids(searcher, parts, exclude_padding_ids(GREEDY, tokenizer), stop)
    return [line.replace("\n", " ") for line in tokenizer.decode(found)]


def encode_lines(
    model: SequenceAutoencoder, rows: Sequence[list[int]], device: torch.device
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return the codes (n, C) of encoded lines."""
    codes: list[torch.Tensor] = [torch.empty(0)] * len(rows)
    with torch.inference_mode():
        for batch in make_batches([len(ids) for ids in rows], Batching()):
            src, mask = pad_sources([rows[i] for i in batch], device)
            for i, code in zip(batch, model.encode(src, mask).float().cpu(), strict=True):
                codes[i] = code
    return torch.stack(codes).numpy()
