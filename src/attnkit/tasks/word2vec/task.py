"""Word2vec as a task: a compiled loop of its own instead of gradients by torch, and its estimate. Torch-free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any, cast

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_state
from attnkit.engine.checkpointing import TrainingSession
from attnkit.engine.events import TrainRequest
from attnkit.engine.task import RunEstimate, Task
from attnkit.engine.vocabularies import open_tokenizer
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.runtime.signals import usable_cpus
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.initial import check_init_vectors
from attnkit.tasks.word2vec.matrices import shapes
from attnkit.tasks.word2vec.session import Word2VecSession
from attnkit.tasks.word2vec.workload import check_available, check_vocabulary_size, copies, piece_size
from attnkit.text.lines import only_once, read_head
from attnkit.text.tokenizer import Tokenizer

SAMPLE, _TOKENS = 1 << 24, 1 << 21
"""Bytes of text that are looked at, and where a vocabulary has to cut them first."""
_PROCESS = 120e6
"""Bytes without anything that grows: Python, numpy, numba's loops."""
_WORD = 110
"""Bytes that a word takes in the list of words, beside its rows."""
MICROSECONDS = {
    "shared": (0.05, 0.0034),
    "exact": (0.1, 0.0135),
    "cbow": (0.06, 0.0022),
    "paths": (0.1, 0.0087),
    "subwords": (0.2, 0.0085),
    "torch": (6.0, 0.04),
}
"""Microseconds of one processor per word of text, and per number of a vector: docs/log/2026-11-22-word-vectors.md."""


@dataclass(frozen=True)
class Estimate:
    """Figures of a run to be."""

    n_raw: int
    """Words of the text."""
    n_words: int
    """That get a vector."""
    memory: int
    """Bytes at its height."""
    disk: int
    """Bytes of the text that is encoded, and of a checkpoint twice."""
    seconds: float | None
    """That training takes; None where nobody can tell."""
    share: float
    """Of the text that was looked at; the rest is taken to be like it."""


def estimate(config: Word2VecConfig) -> Estimate | None:
    """Estimate a run from its configuration and the beginning of its text; None where that can be read only once.

    Raises:
        UsageError: the errors of a run before its start.
    """
    check_available(config)
    check_init_vectors(config)
    paths = [Path(name) for name in config.data.files]
    if any(map(only_once, paths)):
        return None
    n_raw, n_words, share = _count(config, paths)
    if share == 1 and n_words:
        check_vocabulary_size(config, n_words)
    memory, disk = _sizes(config, n_raw, n_words)
    return Estimate(n_raw, n_words, memory, disk, _seconds(config, n_raw, n_words), share)


def _count(config: Word2VecConfig, paths: list[Path]) -> tuple[int, int, float]:
    """Return about how many words there are, how many get a vector, and which share of the text was counted."""
    tokenizer = None if config.data.tokenizer is None else open_tokenizer(Path(config.data.tokenizer))
    at_once = (_TOKENS if tokenizer else SAMPLE) // len(paths)
    half, whole, n_raw = Counter[bytes | int](), Counter[bytes | int](), 0.0
    for path in paths:
        sample = read_head(path, at_once)
        words = _words(sample.raw, config.data.lower, tokenizer)
        half.update(words[::2])
        whole.update(words)
        n_raw += len(words) / sample.share if sample.share else 0
    share = whole.total() / n_raw if n_raw else 1.0
    kept, before = (sum(n >= config.data.min_count for n in found.values()) for found in (whole, half))
    grows = min(1.0, max(0.0, log2(kept / before))) if kept and before else 0.5  # as a power of the text's length
    return round(n_raw), min(round(kept / share**grows), config.data.max_vocab or 2**31), share


def _words(raw: bytes, lower: bool, tokenizer: Tokenizer | None) -> Sequence[bytes | int]:
    if tokenizer is None:
        return (raw.lower() if lower else raw).split()
    text = raw.decode("utf-8", "replace")
    rows = tokenizer.encode((text.lower() if lower else text).split("\n"))
    return [id for row in rows for id in row if id != UNK_ID]


def _sizes(config: Word2VecConfig, n_raw: int, n_words: int) -> tuple[int, int]:
    """Return about how many bytes of memory and of disk are needed."""
    found = shapes(config, n_words).values()
    together = copies(config)
    matrices = sum(4 * shape.n * shape.padded for shape in found) * (1 + together if together > 1 else 1)
    tables = n_words * (_WORD + 12 + (6 * log2(n_words + 2) if config.loss == "hierarchical" else 0))
    if (cut := config.subwords) is not None:
        tables += n_words * 4 * sum(max(0, 11 - n) for n in range(cut.min_n, cut.max_n + 1))  # of words of 8 characters
        matrices += 4 * n_words * config.dim  # where they are composed
    counting = config.glove.memory * 1e9 if config.method == "glove" else 0
    disk = n_raw * (4 + (2 if n_words <= 1 << 16 else 4)) + 2 * sum(shape.n_bytes for shape in found)
    return round(_PROCESS + max(matrices + tables, counting)), disk


def _seconds(config: Word2VecConfig, n_raw: int, n_words: int) -> float | None:
    if config.method == "glove" or config.device == "cuda":
        return None
    kind = _kind(config)
    each, of_dim = MICROSECONDS[kind]
    pairs = (config.window + 1 if config.dynamic_window else 2 * config.window) / 6
    drawn = (1 + config.negative) / 6
    work: Mapping[str, float] = {
        "shared": (pairs + 1) / 2,
        "exact": pairs * drawn,
        "cbow": (pairs + drawn) / 2,
        "paths": pairs * log2(n_words + 2) / 16 / (4 if config.method == "cbow" else 1),
        "subwords": (pairs + drawn) / 2,
        "torch": pairs * (1 + (n_words / 1000 if config.loss == "full" else drawn)) / 2,
    }
    took = n_raw * config.epochs * (each + of_dim * config.dim) * work[kind] * 1e-6
    together = min(config.threads, usable_cpus()) if kind != "torch" else 1
    return took / together * (1.7 if copies(config) > 1 else 1)


def _kind(config: Word2VecConfig) -> str:
    if config.needs_torch:
        return "torch"
    if config.loss == "hierarchical":
        return "paths"
    if config.subwords is not None:
        return "subwords"
    return "cbow" if config.method == "cbow" else "exact" if config.exact else "shared"


class Word2VecTask(Task[Word2VecConfig, Any, Any]):
    """Skip-gram, CBOW and GloVe."""

    def session(self, request: TrainRequest) -> TrainingSession:
        config = cast(Word2VecConfig, request.config)
        if request.init_from is not None:
            raise UsageError(
                "word vectors are initialized by a key", where="--init-from", help="use --set init_from=RUN"
            )
        if config.init_from is not None and Path(config.init_from).resolve() == request.path.resolve():
            raise UsageError("a run cannot be initialized from itself", where="--init-from", help="choose another -o")
        if request.overwrite or not RunFolder(request.path).steps():
            check_available(config)
            check_init_vectors(config)
        return Word2VecSession(request)

    def dry_run(self, config: Word2VecConfig, init_from: Path | None = None) -> RunEstimate | None:
        found = estimate(config)
        if found is None:
            return None
        n_words = f"{found.n_words:,}" if found.share == 1 else f"about {found.n_words:,}"
        read = "all text" if found.share == 1 else f"the first {found.share:.2%} of the text"
        return RunEstimate(
            n_examples=found.n_raw,
            n_parameters=sum(shape.n * shape.width for shape in mats.shapes(config, found.n_words).values()),
            tokens_per_epoch=found.n_raw,
            steps_per_epoch=-(-found.n_raw // piece_size(found.n_raw, copies(config))),
            memory=found.memory,
            device="cuda" if config.device == "cuda" else "cpu",
            precision="float32",
            unit="words",
            disk=found.disk,
            seconds=found.seconds,
            note=f"{n_words} words get a vector (counted in {read})",
        )

    def check_compatible(self, checkpoint: Checkpoint, config: Word2VecConfig) -> None:
        mats.read(checkpoint, mats.shapes(config, len(mats.read_words(checkpoint))))

    def find_errors(self, checkpoint: Checkpoint, config: Word2VecConfig) -> Iterator[str]:
        read_state(checkpoint)
        self.check_compatible(checkpoint, config)
        return iter(())


TASK = Word2VecTask()
