"""Auto-encoding of lines: training data, evaluation, codes and reconstructions."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch

from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples
from attnkit.data.denoising import LineDataset
from attnkit.data.loader import Batching, make_batches
from attnkit.data.store import Store
from attnkit.decoding.config import SearchConfig
from attnkit.engine.events import Sample
from attnkit.engine.search_backend import LineSegment, exclude_padding_ids
from attnkit.engine.seq2seq import LocalSearch, greedy_ids, pad_sources, sample_indices, seq2seq_loss
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.autoencoder import SequenceAutoencoder
from attnkit.models.linear import without_dropout
from attnkit.models.translation import TranslationModel
from attnkit.protocols import EOS_ID
from attnkit.tasks.autoencoding.config import AutoencodeConfig
from attnkit.text.lines import count_lines, read_lines
from attnkit.text.tokenizer import Tokenizer

_CHUNK = 4096  # lines
_BATCH_TOKENS = 4096
_MAX_VALID_LENGTH = 4096  # tokens
GREEDY = SearchConfig(beam_size=1, max_ratio=1.0, extra=3, scores=False)


PreparedLines = PreparedExamples[LineDataset, list[str]]


class LineEncoder(ExampleEncoder[str]):
    """Encoder of lines that counts those above ``max_length`` tokens as ``too_long``."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        super().__init__(tokenizer)
        self.max_length = max_length

    def sizes(self) -> Mapping[str, int]:
        return {"": self.tokenizer.vocab_size}

    def rows(self, examples: Sequence[str]) -> tuple[list[list[int]]]:
        rows = self.tokenizer.encode(examples)
        kept = [ids for ids in rows if len(ids) <= self.max_length]
        self.counts["too_long"] += len(rows) - len(kept)
        return (kept,)


class LineCorpus(ExampleCorpus[str]):
    """Corpus of the lines in a run's files."""

    unit = "line"
    chunk = _CHUNK

    def __init__(self, config: AutoencodeConfig, n_sampled: int = 0) -> None:
        super().__init__(config.data)
        self._max_length = config.data.max_length
        counts = [count_lines(path) for path in self.paths] if n_sampled or not self.valid_paths else []
        self.hold_out(sum(counts))
        if n_sampled:
            samples = ([*islice(read_lines(path), n_sampled)] for path in self.paths)
            self.samples = [(lines, n, len(lines)) for lines, n in zip(samples, counts, strict=True)]
            # A dry run raises the same error as training; it reads only up to the first non-blank held-out line.
            held_out = (line for i, line in enumerate(self.read(self.paths)) if i in self.held_out)
            if self.held_out and all(map(self.is_blank, held_out)):
                raise self.none_left()

    def read(self, paths: Sequence[Path]) -> Iterator[str]:
        return (line for path in paths for line in read_lines(path))

    def is_blank(self, example: str) -> bool:
        return not example.strip()

    def n_characters(self, example: str) -> int:
        return len(example)

    def texts(self, examples: Iterable[str]) -> Iterator[str]:
        return (line for line in examples if line.strip())

    def n_tokens(self, tokenizer: Tokenizer, examples: Sequence[str]) -> int:
        return 2 * sum(len(ids) + 1 for ids in tokenizer.encode([*self.texts(examples)]))

    def encoder(self, tokenizer: Tokenizer) -> LineEncoder:
        return LineEncoder(tokenizer, self._max_length)

    def write_valid(self, folder: Path, encoder: ExampleEncoder[str]) -> int:
        lines, rows = self.valid, encoder.tokenizer.encode(self.valid)
        self.valid = [line for line, ids in zip(lines, rows, strict=True) if len(ids) <= _MAX_VALID_LENGTH]
        self.check_valid()
        encoder.counts["too_long"] = len(lines) - len(self.valid)
        return super().write_valid(folder, LineEncoder(encoder.tokenizer, _MAX_VALID_LENGTH))


@dataclass
class LinesEvaluation:
    """Reconstruction scores on the development set, without noise."""

    prepared: PreparedLines
    device: torch.device
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: (line, normalized line, reconstruction)
    _unigram: float | None = None

    def __call__(self, model: SequenceAutoencoder) -> dict[str, float]:
        """Return losses in nats per token, perplexity, and exact matches in percent."""
        valid = self.prepared.valid
        with without_dropout(model), torch.inference_mode():
            total, count, loss_of = 0.0, 0, seq2seq_loss(model, self.device, 0.0)
            batches = make_batches(valid.lengths[0].tolist(), Batching(_BATCH_TOKENS, "tokens"))
            for indices in until_stopped(self.stop, batches):
                batch = valid.clean(np.asarray(indices, np.int64))
                total += float(loss_of(batch)["nll"].total)
                count += len(batch.targets)
            rows = [valid.store[i].tolist() for i in range(len(valid))]
            found = reconstruct(model, rows, self.prepared.tokenizer, self.device, self.stop)
        lines, loss = self.prepared.valid_examples, total / count
        # Only normalized (for example lower-cased) text can be reconstructed.
        expected = self.prepared.tokenizer.decode(rows)
        exact = sum(a == b for a, b in zip(found, expected, strict=True))
        picks = sample_indices(len(lines), self.n_samples)
        self.samples = [(lines[i], expected[i], found[i]) for i in picks]
        if self._unigram is None:
            self._unigram = unigram_loss(self.prepared.train.store, valid.store)
        return {
            "exact": 100 * exact / len(lines),
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "unigram_loss": self._unigram,
        }


def unigram_loss(train: Store, valid: Store) -> float:
    """Return the add-one unigram cross-entropy of ``valid``, in nats per token.

    Frequencies are those of ``train``; line ends are tokens. This is the baseline for a decoder without a code.
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
