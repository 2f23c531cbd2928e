"""The word2vec task, with its own training loop and cost estimate. Torch-free."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2
from pathlib import Path
from typing import Any, cast

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.config import WordsConfig
from attnkit.engine.checkpoint_metadata import read_state
from attnkit.engine.events import TrainRequest
from attnkit.engine.session import TrainingSession
from attnkit.engine.task import RunEstimate, Task
from attnkit.engine.vocabularies import open_tokenizer
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.runtime.signals import usable_cpus
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.initial import check_init_vectors
from attnkit.tasks.word2vec.matrices import read, read_words, shapes
from attnkit.tasks.word2vec.session import Word2VecSession
from attnkit.tasks.word2vec.workload import check_available, check_vocabulary_size, n_copies, n_threads, piece_size
from attnkit.text.files import only_once
from attnkit.text.punctuation import split_words
from attnkit.text.sources import read_head
from attnkit.text.tokenizer import Tokenizer

SAMPLE, _TOKENS = 1 << 24, 1 << 21  #: bytes of text sampled for an estimate, without and with a tokenizer
_PROCESS = 120e6  #: base memory of a process in bytes: Python, numpy and numba's loops
_WORD = 110  #: bytes per word in the word list, besides its rows
MICROSECONDS = {
    "shared": (0.05, 0.0034),
    "exact": (0.1, 0.0135),
    "cbow": (0.06, 0.0022),
    "paths": (0.1, 0.0087),
    "subwords": (0.2, 0.0085),
    "torch": (6.0, 0.04),
}  #: microseconds of one processor per word, and per word and dimension: docs/log/2026-11-22-word-vectors.md


class Word2VecTask(Task[Word2VecConfig, Any, Any]):
    """Word vectors by skip-gram, CBOW or GloVe."""

    def session(self, request: TrainRequest) -> TrainingSession:
        config = cast(Word2VecConfig, request.config)
        if request.init_from is not None:
            help = "use --set init_from=RUN"
            raise UsageError("word vectors do not support --init-from", where="--init-from", help=help)
        if config.init_from is not None and Path(config.init_from).resolve() == request.path.resolve():
            raise UsageError("a run cannot be initialized from itself", where="--init-from", help="choose another -o")
        if request.overwrite or not RunFolder(request.path).steps():
            check_available(config)
            check_init_vectors(config)
        return Word2VecSession(request)

    def dry_run(self, config: Word2VecConfig, init_from: Path | None = None) -> RunEstimate | None:
        check_available(config)
        check_init_vectors(config)
        paths = [Path(name) for name in config.data.files]
        if any(map(only_once, paths)):
            return None
        n_raw, n_words, share = _count_words(config, paths)
        if share == 1 and n_words:
            check_vocabulary_size(config, n_words)
        matrices, copies = shapes(config, n_words).values(), n_copies(config)
        # Shared matrices and their copies; lookup tables indexed by word.
        memory = sum(4 * shape.n * shape.padded for shape in matrices) * (1 + copies if copies > 1 else 1)
        tables = n_words * (_WORD + 12 + (6 * log2(n_words + 2) if config.loss == "hierarchical" else 0))
        if (cut := config.subwords) is not None:
            lengths = range(cut.min_n, cut.max_n + 1)
            tables += n_words * 4 * sum(max(0, 11 - n) for n in lengths)  # n-grams of words of 8 characters
            memory += 4 * n_words * config.dim  # composed word vectors
        counting = config.glove.memory * 1e9 if config.method == "glove" else 0
        # The encoded text and two checkpoints.
        disk = n_raw * (4 + (2 if n_words <= 1 << 16 else 4)) + 2 * sum(shape.n_bytes for shape in matrices)
        with_vector = f"{n_words:,}" if share == 1 else f"about {n_words:,}"
        counted_in = "all text" if share == 1 else f"the first {share:.2%} of the text"
        return RunEstimate(
            n_examples=n_raw,
            n_parameters=sum(shape.n * shape.width for shape in matrices),
            tokens_per_epoch=n_raw,
            steps_per_epoch=-(-n_raw // piece_size(n_raw, copies)),
            memory=round(_PROCESS + max(memory + tables, counting)),
            device="cuda" if config.device == "cuda" else "cpu",
            precision="float32",
            unit="words",
            disk=disk,
            seconds=_seconds(config, n_raw, n_words),
            note=f"{with_vector} words get a vector (counted in {counted_in})",
        )

    def check_compatible(self, checkpoint: Checkpoint, config: Word2VecConfig) -> None:
        read(checkpoint, shapes(config, len(read_words(checkpoint))))

    def find_errors(self, checkpoint: Checkpoint, config: Word2VecConfig) -> Iterator[str]:
        read_state(checkpoint)
        self.check_compatible(checkpoint, config)
        return iter(())


def _count_words(config: Word2VecConfig, paths: list[Path]) -> tuple[int, int, float]:
    """Estimate words and vocabulary size; also return the share of the text counted."""
    tokenizer = None if config.data.tokenizer is None else open_tokenizer(Path(config.data.tokenizer))
    at_once = (_TOKENS if tokenizer else SAMPLE) // len(paths)
    half, whole, n_raw = Counter[bytes | str | int](), Counter[bytes | str | int](), 0.0
    for path in paths:
        raw, share_read = read_head(path, at_once)
        words = _split(raw, config.data, tokenizer)
        half.update(words[::2])
        whole.update(words)
        n_raw += len(words) / share_read if share_read else 0
    share = whole.total() / n_raw if n_raw else 1.0
    kept, before = (sum(n >= config.data.min_count for n in found.values()) for found in (whole, half))
    grows = min(1.0, max(0.0, log2(kept / before))) if kept and before else 0.5  # exponent of vocabulary growth
    return round(n_raw), min(round(kept / share**grows), config.data.max_vocab or 2**31), share


def _split(raw: bytes, settings: WordsConfig, tokenizer: Tokenizer | None) -> Sequence[bytes | str | int]:
    if tokenizer is None and not settings.separate_punctuation:
        return (raw.lower() if settings.lower else raw).split()
    text = raw.decode("utf-8", "replace")
    text = text.lower() if settings.lower else text
    if tokenizer is None:
        return split_words(text)
    rows = tokenizer.encode(text.split("\n"))
    return [id for row in rows for id in row if id != UNK_ID]


def _seconds(config: Word2VecConfig, n_raw: int, n_words: int) -> float | None:
    """Estimate the training time in seconds; None if unknown."""
    if config.method == "glove" or config.device == "cuda":
        return None
    pairs = (config.window + 1 if config.dynamic_window else 2 * config.window) / 6
    drawn = (1 + config.negative) / 6
    # The loop that runs, and its work per word relative to the measured configuration.
    if config.needs_torch:
        kind, work = "torch", pairs * (1 + (n_words / 1000 if config.loss == "full" else drawn)) / 2
    elif config.loss == "hierarchical":
        kind, work = "paths", pairs * log2(n_words + 2) / 16 / (4 if config.method == "cbow" else 1)
    elif config.subwords is not None or config.method == "cbow":
        kind, work = "subwords" if config.subwords is not None else "cbow", (pairs + drawn) / 2
    else:
        kind, work = ("exact", pairs * drawn) if config.exact else ("shared", (pairs + 1) / 2)
    per_word, per_number = MICROSECONDS[kind]
    seconds = n_raw * config.epochs * (per_word + per_number * config.dim) * work * 1e-6
    at_once = min(n_threads(config), usable_cpus()) if kind != "torch" else 1
    return seconds / at_once * (1.7 if n_copies(config) > 1 else 1)


TASK = Word2VecTask()
