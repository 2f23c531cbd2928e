"""Extension of a vocabulary: symbols, and entries for other text.

Entries of byte-pair encoding continue its merges on the new text, so text without a new merge is encoded as before.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, get_args

from attnkit.errors import UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import MAX_ENTRIES, TrainedKind, VocabularyConfig, check_symbols, symbol_pattern
from attnkit.text.piece_symbols import symbol_row_origins, with_symbols
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import count_words

EXTENDABLE = ("bpe", "word")
"""Kinds that take new entries; those of the others would change how known text is encoded."""


def extend_vocabulary(
    tokenizer: Tokenizer, symbols: Sequence[str] = (), lines: Iterable[str] | None = None, n_entries: int = 0
) -> Tokenizer:
    """Return a vocabulary with more symbols, and ``n_entries`` more for ``lines``.

    Known symbols are skipped. Raises ``UsageError`` if the kind of vocabulary cannot be extended so.
    """
    old = tokenizer.config
    if old.kind not in (kinds := (*get_args(TrainedKind), "sentencepiece")):
        what = f"a vocabulary of kind {old.kind} cannot be extended"
        raise UsageError(what, where="extension", help=f"supported: {', '.join(kinds)}")
    if lines is not None and old.kind not in EXTENDABLE:
        what = f"a vocabulary of kind {old.kind} takes new symbols, but no new entries"
        raise UsageError(what, where="extension.files", help=f"supported: {', '.join(EXTENDABLE)}")
    added = [symbol for symbol in dict.fromkeys(symbols) if tokenizer.token_id(symbol) is None]
    if tokenizer.pieces is not None:
        return with_symbols(tokenizer, added)
    names = tokenizer.names[len(SPECIALS) + len(old.symbols) : tokenizer.n_words]
    model = tokenizer.model
    merges = [list(merge) for merge in model.get("merges") or []]
    if old.kind == "word":  # a symbol is a word
        names = [name for name in names if name.removeprefix(" ") not in added]
    if lines is not None:
        pattern = None if old.kind == "word" else symbol_pattern([*old.symbols, *added])
        kept = (line if pattern is None else pattern.sub(" ", line) for line in lines if line and not line.isspace())
        if old.kind == "word":
            names += _new_words(kept, old, {*names, *(f" {symbol}" for symbol in (*old.symbols, *added))}, n_entries)
        else:
            new = continue_merges(count_words(kept, old), tokenizer, n_entries)
            merges += new
            names += ["".join(merge) for merge in new]
    fixed = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(old.symbols) + len(added)))]
    whole = [*fixed, *names]
    whole += [f"<unused{i}>" for i in range(-len(whole) % old.multiple_of)]
    if len(whole) > MAX_ENTRIES:
        raise UsageError(f"the vocabulary would have more than {MAX_ENTRIES:,} entries", where="extension.entries")
    config = old.model_copy(update={"symbols": (*old.symbols, *added), "size": max(old.size, len(whole))})
    check_symbols(config.symbols)
    tree = engine.model_of(config, {name: id for id, name in enumerate(whole)}, merges)
    if old.kind == "unigram":
        scores: dict[str, float] = dict(model["vocab"])
        tree["vocab"] = [(name, scores.get(name, 0.0)) for name in whole]
    return Tokenizer(config, engine.pipeline(config, tree))


def _new_words(lines: Iterator[str], config: VocabularyConfig, known: set[str], n_entries: int) -> list[str]:
    """Return the most frequent words without an entry, ties by code point."""
    counts = {word: n for word, n in count_words(lines, config).items() if word not in known}
    frequent = [word for word, n in counts.items() if n >= config.min_frequency]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:n_entries]


def continue_merges(words: Counter[str], tokenizer: Tokenizer, n_entries: int) -> list[list[str]]:
    """Return ``n_entries`` more merges of BPE (Sennrich et al. 2016), or fewer.

    ``words`` are counted as the vocabulary splits them, in its byte alphabet. Ties go to the first pair in order.
    """
    pieces = [tokenizer.pieces_of(word) for word in words]
    counts = list(words.values())
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # words that have had the pair
    for number, word in enumerate(pieces):
        for pair in pairwise(word):
            pairs[pair] += counts[number]
            places[pair].add(number)
    known, merges = set(tokenizer.names), list[list[str]]()
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)
    while heap and len(merges) < n_entries:
        n, pair = heapq.heappop(heap)
        if -n != pairs[pair]:  # outdated: the current count is in the heap too, if any is left
            continue
        if -n < tokenizer.config.min_frequency:
            break
        joined = "".join(pair)
        if joined in known or len(joined) > engine.MAX_TOKEN_BYTES:
            continue
        merges.append(list(pair))
        known.add(joined)
        changed: set[tuple[str, str]] = set()
        for number in places.pop(pair):
            before = pieces[number]
            pieces[number] = after = _merged(before, pair)
            for sign, word in ((-1, before), (1, after)):
                for other in pairwise(word):
                    pairs[other] += sign * counts[number]
                    changed.add(other)
                    if sign > 0:
                        places[other].add(number)
        for other in changed - {pair}:
            heapq.heappush(heap, (-pairs[other], other))
    return merges


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in word:
        # From left to right: a piece that was just made is no left side of the same merge.
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def row_origins(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return for each id of an extended vocabulary the old ids whose mean its row is.

    A known entry has its own id; a new one the ids of its text, or <unk> for an unused entry.
    """
    if old.pieces is not None and new.pieces is not None:
        return symbol_row_origins(old.pieces, new.pieces)
    known: dict[Any, int] = {name: id for id, name in enumerate(old.names) if id not in old.symbol_ids}
    origins = []
    for id, name in enumerate(new.names):
        text = new.bytes_of(id).decode("utf-8", errors="replace")
        if id in new.symbol_ids:
            symbol = new.config.symbols[id - new.symbol_ids.start]
            own = old.token_id(symbol)
            origins.append([own] if own is not None else old.encode([symbol])[0] or [UNK_ID])
        elif name in known:
            origins.append([known[name]])
        elif engine.UNUSED.fullmatch(name):
            origins.append([UNK_ID])
        elif new.config.kind == "bpe":
            origins.append([known[piece] for piece in old.pieces_of(name)])
        else:
            origins.append(old.encode([text.removeprefix(" ")])[0] or [UNK_ID])
    return origins
