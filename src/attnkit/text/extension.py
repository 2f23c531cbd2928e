"""Extension of a vocabulary: symbols, and entries for other text.

Entries of byte-pair encoding continue its merges on the new text, so text without a new merge is encoded as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, get_args

from attnkit.errors import UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import MAX_ENTRIES, TrainedKind, VocabularyConfig, check_symbols, symbol_pattern
from attnkit.text.continued_merges import join_pairs
from attnkit.text.piece_merges import with_learned_pieces
from attnkit.text.piece_symbols import piece_row_origins, with_symbols
from attnkit.text.tags import source_prefix, with_source_prefix, without_side
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import count_words

EXTENDABLE = ("bpe", "word", "sentencepiece")
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
        extended = with_symbols(tokenizer, added)
        return extended if lines is None else with_learned_pieces([extended], [lines], n_entries)[0]
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


def extend_vocabularies(
    src: Tokenizer,
    tgt: Tokenizer,
    symbols: Sequence[str] = (),
    read: Callable[[], Iterable[str]] | None = None,
    n_entries: int = 0,
) -> tuple[Tokenizer, Tokenizer]:
    """Return both vocabularies of a run with more symbols and entries.

    ``read`` returns the lines of a text anew. Sides that are one stay one, as do those that differ in their language
    code only; and those with one list of names, as of an imported Marian, keep one.
    """
    code = None if tgt.pieces is None else tgt.pieces.code
    if code in src.language_codes and src.with_code(code).fingerprint == tgt.fingerprint:
        first = extend_vocabulary(src, symbols, None if read is None else read(), n_entries)
        return first, first.with_code(code)
    if (prefix := source_prefix(src)) and without_side(src).fingerprint == tgt.fingerprint:
        first = extend_vocabulary(tgt, symbols, None if read is None else read(), n_entries)
        return with_source_prefix(first, prefix), first
    if src.pieces is not None and tgt.pieces is not None and tgt is not src and read is not None:
        sides = [extend_vocabulary(side, symbols) for side in (src, tgt)]
        first, second = with_learned_pieces(sides, [read(), read()], n_entries)
        return first, second
    first = extend_vocabulary(src, symbols, None if read is None else read(), n_entries)
    if tgt is src:
        return first, first
    return first, extend_vocabulary(tgt, symbols, None if read is None else read(), n_entries)


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
    known = set(tokenizer.names)
    return join_pairs(pieces, list(words.values()), known, n_entries, tokenizer.config.min_frequency)


def row_origins(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return for each id of an extended vocabulary the old ids whose mean its row is.

    A known entry has its own id; a new one the ids of its text, or <unk> for an unused entry.
    """
    if old.pieces is not None and new.pieces is not None:
        return piece_row_origins(old.pieces, new.pieces)
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


def shared_row_origins(old: Sequence[Tokenizer], new: Sequence[Tokenizer]) -> list[list[int]]:
    """Return the origins of rows that both sides share: source, then target.

    Sides with one list of names may cut text in two ways, as those of an imported Marian. A new entry is cut by the
    side that has it as a piece; if both have it, by the one that knows all its parts, and by the target if both do.
    """
    (src_old, tgt_old), (src_new, tgt_new) = old, new
    origins = row_origins(tgt_old, tgt_new)
    if src_new.pieces is None or tgt_new.pieces is None or src_new.pieces.raw == tgt_new.pieces.raw:
        return origins
    in_src, in_tgt = ({piece.text for piece in side.model.pieces} for side in (src_new.pieces, tgt_new.pieces))
    for id, (name, ids) in enumerate(zip(src_new.names, row_origins(src_old, src_new), strict=True)):
        if name in in_src and (name not in in_tgt or (UNK_ID in origins[id] and UNK_ID not in ids)):
            origins[id] = ids
    return origins
