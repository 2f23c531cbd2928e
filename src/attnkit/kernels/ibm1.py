"""IBM Model 1 by expectation and maximisation (Brown et al. 1993, section 4.1), and its best alignments.

Every target word y of a line comes from one word x of the source line, or from NULL, with probability
(1 / (S + 1)) t(y|x). A cell is a target word beside a source word of the same pair of lines, or beside NULL, the empty
word at the start of every source line. All numbers are float64 and are added up in a fixed order: the same corpus gives
the same table. The loops over cells are numba's where it is installed, else numpy's; both give the same up to rounding.

Memory: 4 bytes for each word of the corpus, some 64 for each line, and for each pair of words that meet some 100 while
pairs are collected, then 32. Letters: N pairs of lines, S and T words of a line, P pairs of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled

CELLS = 1 << 18  #: cells that are worked on together: some 150 bytes each in numpy; one pair of lines may have more

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Span = tuple[int, int]  #: begin and end


@dataclass(frozen=True)
class AlignmentCorpus:
    """Pairs of lines. A pair of which a side is empty has no cells."""

    src: NDArray[np.int32]  #: the words of all source lines, one line after the other: numbers from 0 on
    src_starts: Ints  #: (N + 1,): where each line begins, and the end of the last
    tgt: NDArray[np.int32]
    tgt_starts: Ints
    n_src: int  #: every source word is below this
    n_tgt: int

    @property
    def n_pairs(self) -> int:
        """Pairs of lines."""
        return len(self.src_starts) - 1

    def n_cells(self, begin: int, end: int) -> Ints:
        """Return the cells (end - begin,) of some pairs: every target word meets every source word and NULL."""
        n_src = np.diff(self.src_starts[begin : end + 1])
        # A pair with an empty side has no cells, not even NULL's.
        return np.asarray((n_src + 1) * np.diff(self.tgt_starts[begin : end + 1]) * (n_src > 0))


def spans(corpus: AlignmentCorpus) -> Iterator[Span]:
    """Cut a corpus into runs of pairs (begin, end) of at most ``CELLS`` cells each, or of one pair."""
    ends = np.cumsum(corpus.n_cells(0, corpus.n_pairs))
    begin, done = 0, 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, done + CELLS, side="right")))
        yield begin, end
        begin, done = end, int(ends[end - 1])


class Cells(NamedTuple):
    """The cells of a run of pairs: pair by pair, target word by target word, first NULL, then the source words."""

    source: Ints  #: the place in the source line, 0 for NULL, else from 1 on
    target: Ints  #: the place among the target words of the whole corpus
    lengths: Ints  #: S of the cell's pair of lines
    keys: Ints  #: row * n_tgt + target word, where row is 0 for NULL, else the source word + 1


def cells_of(corpus: AlignmentCorpus, begin: int, end: int) -> Cells:
    """Return the cells of some pairs of lines."""
    n_cells = corpus.n_cells(begin, end)
    pair = np.repeat(np.arange(end - begin), n_cells)  # (cells,), which pair of lines
    # Within its pair: target word by target word, S + 1 cells each.
    offset = np.arange(len(pair)) - (np.cumsum(n_cells) - n_cells)[pair]
    # (cells,) each from here on
    lengths = np.diff(corpus.src_starts[begin : end + 1])[pair]
    place = offset // (lengths + 1)
    source = offset - place * (lengths + 1)
    target = place + corpus.tgt_starts[begin:end][pair]
    # NULL has no word: maximum() keeps its index valid, where() puts row 0.
    rows = corpus.src[corpus.src_starts[begin:end][pair] + np.maximum(source - 1, 0)].astype(np.int64) + 1
    keys = np.where(source == 0, np.int64(0), rows) * corpus.n_tgt + corpus.tgt[target]
    return Cells(source, target, lengths, keys)


def cooccurring_pairs(corpus: AlignmentCorpus, most: int) -> tuple[Ints, int]:
    """Return the keys of all pairs of words that meet in some cell, ascending, and how often pairs were given up.

    NULL meets every target word. Of the others at most ``most`` are kept: whenever there are more, the half that has
    met most often stays, the lower key among equals. Takes some 100 bytes for each pair that is kept.
    """
    known: list[tuple[Ints, Ints]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    n_waiting = n_lost = 0
    for begin, end in spans(corpus):
        keys = cells_of(corpus, begin, end).keys
        # Keys below n_tgt are NULL's row, which is complete anyway.
        known.append(np.unique(keys[keys >= corpus.n_tgt], return_counts=True))
        n_waiting += len(known[-1][0])
        if n_waiting > max(CELLS, len(known[0][0])):  # so that each is sorted a few times at most
            merged, n_now = _merge(known, most)
            known, n_waiting, n_lost = [merged], 0, n_lost + n_now
    (keys, _), n_now = _merge(known, most)
    return np.concatenate([np.arange(corpus.n_tgt, dtype=np.int64), keys]), n_lost + n_now


def _merge(parts: list[tuple[Ints, Ints]], most: int) -> tuple[tuple[Ints, Ints], int]:
    """Merge counts by key, prune the rarest above the limit, and return the number pruned."""
    keys, counts = (np.concatenate([part[i] for part in parts]) for i in range(2))
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if len(first):
        keys, counts = keys[first], np.add.reduceat(counts, first)  # one entry per distinct key
    if len(keys) <= most:
        return (keys, counts), 0
    # Half of `most`, so that pruning is rare; stable: the lower key among equals.
    kept = np.sort(np.argsort(-counts, kind="stable")[: -(-most // 2)])
    return (keys[kept], counts[kept]), len(keys) - len(kept)


@dataclass
class TranslationTable:
    """t(y|x) of the words that meet: row 0 is NULL's, row x + 1 that of source word x."""

    n_tgt: int
    starts: Ints  #: (rows + 1,): where each row begins among the keys
    keys: Ints  #: (P,): row * n_tgt + y, ascending
    probs: Floats  #: (P,): each row adds up to 1; a row whose word never occurs beside another has no keys
    null_prob: float | None  #: probability that a target word comes from NULL; None: 1 / (S + 1), as in the paper
    n_lost: int  #: times that pairs of words were pruned for lack of memory


def init_table(corpus: AlignmentCorpus, *, null_prob: float | None = None, most: int = 1 << 25) -> TranslationTable:
    """Return a uniform translation table with at most ``most`` pairs, not counting NULL."""
    # Only pairs that occur in one line are stored; all others have probability 0 for good.
    keys, n_lost = cooccurring_pairs(corpus, most)
    # Keys are row * n_tgt + y: rows are ranges of keys.
    rows = np.arange(corpus.n_src + 2, dtype=np.int64) * corpus.n_tgt
    starts = np.searchsorted(keys, rows).astype(np.int64)
    n_words = int(np.count_nonzero(np.bincount(corpus.tgt)))  # a vocabulary may have many more
    probs = np.full(len(keys), 1.0 / max(1, n_words))
    return TranslationTable(corpus.n_tgt, starts, keys, probs, null_prob, n_lost)


def em_step(
    table: TranslationTable,
    corpus: AlignmentCorpus,
    loops: AlignmentLoops,
    seen: Callable[[int], None] = lambda n_lines: None,
) -> float:
    """Run one EM iteration in place; ``seen`` receives the number of sentence pairs processed.

    Returns the natural log-likelihood of the target words under the table before the update.
    """
    # Expectation: c(y|x) = sum over cells of t(y|x) w / sum over the column (Brown et al. 1993, eq. 15).
    counts = np.zeros_like(table.probs)
    likelihood = 0.0
    for begin, end in spans(corpus):
        likelihood += loops.expect(corpus, table, (begin, end), counts)
        seen(end)
    # reduceat cannot sum empty rows.
    full = np.flatnonzero(np.diff(table.starts))
    sums = np.add.reduceat(counts, table.starts[full]) if len(full) else np.empty(0)
    # A row of which nothing was expected, as NULL's may be, is left without probability.
    sums = np.repeat(np.where(sums > 0, sums, 1.0), np.diff(table.starts)[full])
    # Maximisation: normalize per source word.
    np.divide(counts, sums, out=table.probs)
    return likelihood


def best_links(table: TranslationTable, corpus: AlignmentCorpus, loops: AlignmentLoops) -> NDArray[np.int32]:
    """Return the likeliest source place of each target word of the corpus, from 0, -1 for NULL.

    Among equally likely places it is the one nearest to the diagonal, and NULL only if it is likelier than all.
    """
    links = np.full(len(corpus.tgt), -1, np.int32)
    for begin, end in spans(corpus):
        loops.choose(corpus, table, (begin, end), links[corpus.tgt_starts[begin] : corpus.tgt_starts[end]])
    return links


class AlignmentLoops(NamedTuple):
    """One way to go over the cells of a run of lines (begin, end)."""

    name: str
    # Adds the expected counts of pairs to the last argument and returns the log-likelihood.
    expect: Callable[[AlignmentCorpus, TranslationTable, Span, Floats], float]
    # Writes the best source place of each target word of the lines to the last argument, which holds -1 before.
    choose: Callable[[AlignmentCorpus, TranslationTable, Span, NDArray[np.int32]], None]


@cache
def fastest() -> AlignmentLoops:
    """Return the loops of numba if it is there, else those of numpy."""
    return compiled_loops() or IN_NUMPY


# --- numpy


def _terms(corpus: AlignmentCorpus, table: TranslationTable, span: Span) -> tuple[Any, Ints, Floats]:
    """Return a run's cells, their places in the table, -1 for none, and weight times t(y|x)."""
    found = cells_of(corpus, *span)
    # searchsorted may point behind the end, or at another key: both mean that the pair is unknown.
    slots = np.minimum(np.searchsorted(table.keys, found.keys), len(table.keys) - 1)
    slots = np.where(table.keys[slots] == found.keys, slots, -1)
    # (cells,) p(a | S), the same for all source positions but NULL.
    if table.null_prob is None:
        weights = 1.0 / (found.lengths + 1.0)
    else:
        weights = np.where(found.source == 0, table.null_prob, (1.0 - table.null_prob) / found.lengths)
    return found, slots, np.where(slots >= 0, table.probs[slots] * weights, 0.0)


def _expect(corpus: AlignmentCorpus, table: TranslationTable, span: Span, counts: Floats) -> float:
    found, slots, terms = _terms(corpus, table, span)
    if not len(terms):
        return 0.0
    first = np.flatnonzero(found.source == 0)
    totals = np.add.reduceat(terms, first)  # (T,) Σ over the source places
    shares = terms / np.repeat(totals, np.diff(first, append=len(terms)))
    known = slots >= 0
    # add.at, not +=: the same slot may occur several times in a run.
    np.add.at(counts, slots[known], shares[known])
    return float(np.log(totals).sum())


def _choose(corpus: AlignmentCorpus, table: TranslationTable, span: Span, links: NDArray[np.int32]) -> None:
    found, _, terms = _terms(corpus, table, span)
    if not len(terms):
        return
    first = np.flatnonzero(found.source == 0)
    sizes = np.diff(first, append=len(terms))
    n_cells = corpus.n_cells(*span)
    n_tgt = np.repeat(np.diff(corpus.tgt_starts[span[0] : span[1] + 1]), n_cells)
    line_starts = np.repeat(corpus.tgt_starts[span[0] : span[1]], n_cells)
    # |i/S - j/T| from centre to centre, times 2 S T, so that it stays a whole number.
    off = np.abs((2 * found.source - 1) * n_tgt - (2 * (found.target - line_starts) + 1) * found.lengths)
    # Ordered by how far they are off the diagonal, then by their place; NULL comes last of all.
    order = off * (found.lengths + 1) + found.source
    last = np.iinfo(np.int64).max
    order = np.where(found.source == 0, last - 1, order)
    # Only the likeliest places stay in the contest.
    order = np.where(terms == np.repeat(np.maximum.reduceat(terms, first), sizes), order, last)
    chosen = np.minimum.reduceat(order, first)
    places = np.where(chosen == last - 1, -1, chosen % (found.lengths[first] + 1) - 1)
    links[found.target[first] - corpus.tgt_starts[span[0]]] = places


IN_NUMPY = AlignmentLoops("numpy", _expect, _choose)


# --- numba: the same, cell by cell


def _look_up_loop(corpus: Any, keys: Any, starts: Any, span: Any, slots: Any) -> None:
    """Write each cell's place in the table to slots, -1 for none."""
    src, src_starts, tgt, tgt_starts, n_tgt = corpus
    cell = 0
    for n in range(span[0], span[1]):
        if src_starts[n] == src_starts[n + 1]:
            continue
        for j in range(tgt_starts[n], tgt_starts[n + 1]):
            # One before the line represents NULL.
            for i in range(src_starts[n] - 1, src_starts[n + 1]):
                row = 0 if i < src_starts[n] else src[i] + 1
                key = row * n_tgt + tgt[j]
                low, high = starts[row], starts[row + 1]
                end = high
                while low < high:
                    # Binary search in the row of the source word alone.
                    middle = (low + high) // 2
                    if keys[middle] < key:
                        low = middle + 1
                    else:
                        high = middle
                slots[cell] = low if low < end and keys[low] == key else -1
                cell += 1


def _expect_loop(corpus: Any, probs: Any, null_prob: float, span: Any, slots: Any, counts: Any) -> float:
    _, src_starts, _, tgt_starts, _ = corpus
    cell, likelihood = 0, 0.0
    for n in range(span[0], span[1]):
        n_src = src_starts[n + 1] - src_starts[n]
        if n_src == 0:
            continue
        p_null, p_word = 1.0 / (n_src + 1.0), 1.0 / (n_src + 1.0)
        if null_prob > 0.0:
            p_null, p_word = null_prob, (1.0 - null_prob) / n_src
        for _ in range(tgt_starts[n], tgt_starts[n + 1]):
            total = 0.0
            for i in range(n_src + 1):
                slot = slots[cell + i]
                if slot >= 0:
                    total += probs[slot] * (p_null if i == 0 else p_word)
            for i in range(n_src + 1):
                slot = slots[cell + i]
                if slot >= 0:
                    counts[slot] += probs[slot] * (p_null if i == 0 else p_word) / total
            likelihood += np.log(total)
            cell += n_src + 1
    return likelihood


def _choose_loop(corpus: Any, probs: Any, null_prob: float, span: Any, slots: Any, links: Any) -> None:
    _, src_starts, _, tgt_starts, _ = corpus
    cell, link = 0, 0
    for n in range(span[0], span[1]):
        # S and T of this pair of lines.
        n_src, n_words = src_starts[n + 1] - src_starts[n], tgt_starts[n + 1] - tgt_starts[n]
        if n_src == 0:
            link += n_words
            continue
        p_null, p_word = 1.0 / (n_src + 1.0), 1.0 / (n_src + 1.0)
        if null_prob > 0.0:
            p_null, p_word = null_prob, (1.0 - null_prob) / n_src
        for j in range(n_words):
            best, best_off = 0.0, 0
            for i in range(n_src):
                slot = slots[cell + 1 + i]
                term = probs[slot] * p_word if slot >= 0 else 0.0
                # The same whole number as in numpy: distance from the diagonal.
                off = abs((2 * i + 1) * n_words - (2 * j + 1) * n_src)
                if i == 0 or term > best or (term == best and off < best_off):
                    best, best_off, links[link] = term, off, i
            # NULL's cell is the first.
            slot = slots[cell]
            if slot >= 0 and probs[slot] * p_null > best:
                links[link] = -1
            cell += n_src + 1
            link += 1


@cache
def compiled_loops() -> AlignmentLoops | None:
    """Return the loops of numba, or None where it cannot be had."""
    words, starts, probs = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0)
    lines, span = (words, starts, words, starts, 0), (0, 0)
    look_up = compiled(_look_up_loop, (lines, starts, starts, span, starts))
    if look_up is None:
        return None
    expect = compiled(_expect_loop, (lines, probs, 0.0, span, starts, probs))
    choose = compiled(_choose_loop, (lines, probs, 0.0, span, starts, words))
    return AlignmentLoops("numba", partial(_run, look_up, expect), partial(_run, look_up, choose))


def _run(
    look_up: Any, loop: Any, corpus: AlignmentCorpus, table: TranslationTable, span: Span, out: NDArray[Any]
) -> Any:
    """Look up the places of a run's cells in the table, and let a loop go over them."""
    lines = (corpus.src, corpus.src_starts, corpus.tgt, corpus.tgt_starts, corpus.n_tgt)
    slots = np.empty(int(corpus.n_cells(*span).sum()), np.int64)
    look_up(lines, table.keys, table.starts, span, slots)
    return loop(lines, table.probs, table.null_prob or 0.0, span, slots, out)
