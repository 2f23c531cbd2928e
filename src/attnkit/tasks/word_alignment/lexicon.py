"""Word alignment of two files with IBM Model 1: a lexicon and the links."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.kernels.ibm1 import AlignmentCorpus, TranslationTable, best_links, em_step, fastest, init_table
from attnkit.runtime.signals import usable_cpus
from attnkit.tasks.word_alignment.symmetrize import Links, Method, symmetrize
from attnkit.text.config import MAX_ENTRIES
from attnkit.text.parallel import read_parallel
from attnkit.text.tokenizer import Tokenizer, load
from attnkit.text.translation_lexicon import lexicon_lines, most_frequent, select

_MAX_WORD = 1000  # characters of a word


class WordEncoder:
    """Encoder of words as numbers, in order of occurrence; 0 beyond the maximum."""

    def __init__(self, most: int = MAX_ENTRIES) -> None:
        self.names: list[str] = [""]
        self._most = most
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the word numbers of each line."""
        return [[self._numbers.get(word) or self._number(word) for word in line.split()] for line in lines]

    def _number(self, word: str) -> int:
        if len(self.names) >= self._most or len(word) > _MAX_WORD:
            return 0
        self._numbers[word] = len(self.names)
        self.names.append(word)
        return self._numbers[word]


class TokenEncoder:
    """Encoder of lines as tokens of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.vocab_size

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the token ids of each line; a blank line has no tokens."""
        return self.tokenizer.encode([line if line.strip() else "" for line in lines])


_WINDOW = 4096  # lines encoded at a time


@dataclass(frozen=True)
class AlignRequest:
    """Options of ``attnkit align``."""

    src: Path
    tgt: Path
    vocab: Path | None = None  #: vocabulary whose tokens are aligned, for both sides unless ``tgt_vocab`` is set
    tgt_vocab: Path | None = None
    run: Path | None = None  #: run whose vocabularies are used instead
    method: Method = "grow-diag-final-and"
    iterations: int = 5
    null_prob: float | None = None  #: probability that a target word has no source word; None: 1 / (source length + 1)
    min_prob: float = 0.001
    best: int = 50  #: maximum translations per word, most probable first
    max_length: int = 256  #: line pairs with more words than this on either side are not aligned
    max_pairs: int = 1 << 25  #: maximum number of word pairs kept, some 100 bytes each


@dataclass
class AlignmentReport:
    """Counts of an alignment run."""

    pairs: int = 0  #: line pairs
    blank: int = 0  #: line pairs with a blank side
    long: int = 0  #: line pairs longer than ``max_length``
    src_words: int = 0  #: source words of the aligned line pairs
    tgt_words: int = 0
    word_pairs: int = 0  #: co-occurring word pairs kept, the maximum of both directions
    forgotten: int = 0  #: word pairs pruned at ``max_pairs``; repeated prunings count again
    # Direction -> perplexity per target word before each iteration.
    perplexity: dict[str, list[float]] = field(default_factory=dict)
    entries: int = 0  #: entries of the dictionary
    links: int = 0  #: links printed


def _check(stopped: threading.Event) -> None:
    """End the thread of the other direction when the command has failed or is to stop."""
    if stopped.is_set():
        raise CancelledError


class Aligner:
    """Aligner that reads two files once, then learns a dictionary and links."""

    def __init__(self, request: AlignRequest, progress: Callable[[str], None] = lambda text: None) -> None:
        """Read both files.

        Raises:
            DataError: Line counts differ, or there is nothing to align.
            RunError: The run or a vocabulary is missing or damaged.
            UsageError: Options are invalid or conflict.
        """
        if request.run and (request.vocab or request.tgt_vocab):
            raise UsageError("--run and --vocab cannot be combined: the run has its own vocabularies")
        if request.tgt_vocab and not request.vocab:
            raise UsageError("--tgt-vocab requires --vocab")
        if not 0 <= request.min_prob <= 1:
            raise UsageError(f"--min-prob must be between 0 and 1, not {request.min_prob:g}")
        if request.null_prob is not None and not 0 < request.null_prob < 1:
            raise UsageError(f"--null-prob must be above 0 and below 1, not {request.null_prob:g}")
        self.request = request
        self.report = AlignmentReport()
        self._progress = progress
        # The units of both sides: tokens of a run, tokens of one or two vocabulary files, or words.
        self.units: tuple[WordEncoder, WordEncoder] | tuple[TokenEncoder, TokenEncoder] = WordEncoder(), WordEncoder()
        if request.run is not None:
            from attnkit.checkpoints.run_folder import RunFolder
            from attnkit.engine.vocabularies import read_vocabularies

            src, tgt = read_vocabularies(RunFolder(request.run).checkpoint(None)[0])
            self.units = TokenEncoder(src), TokenEncoder(tgt)
        elif request.vocab is not None:
            src = load(request.vocab)
            self.units = TokenEncoder(src), TokenEncoder(load(request.tgt_vocab) if request.tgt_vocab else src)
        self.corpus = self._read()
        self._loops = fastest()
        # Source position of each target word, -1 for NULL; ``reverse`` has the target position of each source word.
        none: NDArray[np.int32] = np.empty(0, np.int32)
        self.forward = self.reverse = none

    def learn(self, book: TextIO | None, *, links: bool = True) -> None:
        """Learn the links if ``links`` is set; write the dictionary to ``book``, if any.

        Both directions are learned at once if their word pairs together are within the limit of memory.
        """
        method, c = self.request.method, self.corpus
        turned = AlignmentCorpus(c.tgt, c.tgt_starts, c.src, c.src_starts, c.n_tgt, c.n_src)
        needs_reverse = links and method != "forward"
        stopped = threading.Event()
        with ExitStack() as stack:
            waiting: Future[NDArray[np.int32]] | None = None
            if book is not None or not links or method != "reverse":
                table = self._init("forward", c, stopped)
                if needs_reverse and 2 * len(table.keys) <= self.request.max_pairs and usable_cpus() > 1:
                    pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="attnkit align"))
                    stack.callback(stopped.set)  # before the pool waits for its thread
                    waiting = pool.submit(self._learn_reverse, turned, stopped)
                self._improve("forward", table, c, stopped)
                if links and method != "reverse":
                    self.forward = best_links(table, c, self._loops)
                if book is not None:
                    book.writelines(f"{line}\n" for line in self._entries(table))
                del table  # freed before the table of the other direction is built
            if needs_reverse:
                self.reverse = self._learn_reverse(turned, stopped) if waiting is None else waiting.result()

    def _learn_reverse(self, turned: AlignmentCorpus, stopped: threading.Event) -> NDArray[np.int32]:
        table = self._init("reverse", turned, stopped)
        self._improve("reverse", table, turned, stopped)
        return best_links(table, turned, self._loops)

    def links(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the links (source position, target position) of each line pair, in order."""
        forward = _lines_of(self.forward, self.corpus.tgt_starts)
        reverse = _lines_of(self.reverse, self.corpus.src_starts)
        for sources, targets in zip(forward, reverse, strict=True):
            there: Links = {(i, j) for j, i in enumerate(sources) if i >= 0}
            back: Links = {(i, j) for i, j in enumerate(targets) if j >= 0}
            found = sorted(symmetrize(there, back, self.request.method))
            self.report.links += len(found)
            yield found

    def _read(self) -> AlignmentCorpus:
        report = self.report
        src, tgt = array("i"), array("i")
        src_starts, tgt_starts = array("q", [0]), array("q", [0])
        pairs = read_parallel(self.request.src, self.request.tgt)
        while window := list(islice(pairs, _WINDOW)):
            encoded = [self.units[side].encode([pair[side] for pair in window]) for side in (0, 1)]
            for left, right in zip(*encoded, strict=True):
                report.pairs += 1
                if not left or not right:
                    report.blank += 1
                elif max(len(left), len(right)) > self.request.max_length:
                    report.long += 1
                else:
                    src.extend(left)
                    tgt.extend(right)
                src_starts.append(len(src))
                tgt_starts.append(len(tgt))
            self._progress(f"read {report.pairs:,} pairs of lines")
        if not src:
            why = f"all {report.pairs:,} have a blank side or are too long" if report.pairs else "no lines"
            raise DataError(f"no line pairs to align: {why}", where=str(self.request.src))
        report.src_words, report.tgt_words = len(src), len(tgt)
        words = [np.frombuffer(side, np.int32) for side in (src, tgt)]
        starts = [np.frombuffer(side, np.int64) for side in (src_starts, tgt_starts)]
        return AlignmentCorpus(words[0], starts[0], words[1], starts[1], *map(len, self.units))

    def _init(self, name: str, corpus: AlignmentCorpus, stopped: threading.Event) -> TranslationTable:
        self._progress(f"{name}: collecting pairs of words")
        most = self.request.max_pairs
        table = init_table(corpus, null_prob=self.request.null_prob, most=most, seen=lambda n: _check(stopped))
        self.report.word_pairs = max(self.report.word_pairs, len(table.keys))
        self.report.forgotten += table.n_lost
        self.report.perplexity[name] = []
        return table

    def _improve(self, name: str, table: TranslationTable, corpus: AlignmentCorpus, stopped: threading.Event) -> None:
        """Run the iterations of EM, unless ``stopped`` is set."""
        found = self.report.perplexity[name]
        for number in range(1, self.request.iterations + 1):
            said = f"{name}: iteration {number} of {self.request.iterations}"
            said += f", perplexity {found[-1]:,.2f}" if found else ""

            def seen(n_lines: int, said: str = said) -> None:
                _check(stopped)
                self._progress(f"{said}, {100 * n_lines // corpus.n_pairs} %")

            likelihood = em_step(table, corpus, self._loops, seen)
            found.append(math.exp(min(700.0, -likelihood / len(corpus.tgt))))

    def _entries(self, table: TranslationTable) -> Iterator[str]:
        kept = np.flatnonzero((table.probs >= self.request.min_prob) & (table.probs > 0))
        rows, targets = np.divmod(table.keys[kept], table.n_tgt)
        probs = table.probs[kept]
        names: tuple[list[str], list[str]] | None = None
        vocabularies: tuple[str, str] | None = None
        frequent: list[int] = []
        src, tgt = self.units
        if isinstance(src, WordEncoder) and isinstance(tgt, WordEncoder):
            named = (rows != 1) & (targets != 0)  # number 0 covers all words beyond the maximum
            rows, targets, probs = rows[named], targets[named], probs[named]
            names = (src.names, tgt.names)
        elif isinstance(src, TokenEncoder) and isinstance(tgt, TokenEncoder):
            vocabularies = (src.tokenizer.fingerprint, tgt.tokenizer.fingerprint)
            frequent = most_frequent(self.corpus.tgt, len(tgt))
        entries = select(rows - 1, targets, probs, self.request.best)
        self.report.entries = len(entries.sources)
        yield from lexicon_lines(entries, names, vocabularies=vocabularies, frequent=frequent)


def as_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Return links in Pharaoh format: ``0-0 1-2``."""
    return " ".join(f"{i}-{j}" for i, j in links)


def _lines_of(places: NDArray[np.int32], starts: NDArray[np.int64]) -> Iterator[list[int]]:
    """Yield the positions of each line, an empty list for an empty line."""
    for begin in range(0, len(starts) - 1, _WINDOW):
        ends = starts[begin : begin + _WINDOW + 1].tolist()
        for first, last in pairwise(ends):
            yield places[first:last].tolist()
