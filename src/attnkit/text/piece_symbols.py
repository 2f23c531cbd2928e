"""Symbols and pieces added to the vocabulary of an imported translator.

A symbol becomes a piece of the SentencePiece model itself, with spaces around it as of other pieces. sentencepiece, and
so transformers and CTranslate2, then find it wherever attnkit does, and all other text is cut as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnkit.errors import UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text.config import MASK, MAX_ENTRIES, check_symbols
from attnkit.text.piece_vocabulary import PieceVocabulary, make_tree
from attnkit.text.sentencepiece_file import (
    MAX_FILE_BYTES,
    NORMAL,
    SPACE,
    UNUSED,
    SentencePieceEntry,
    symbol_entry,
    with_entries,
)
from attnkit.text.tokenizer import Tokenizer

_WHERE = "extension.symbols"
_NAME = "choose a name that no text contains, such as <med>"


def with_symbols(tokenizer: Tokenizer, symbols: Sequence[str]) -> Tokenizer:
    """Return a vocabulary with more symbols, single tokens in normalized text.

    In the network, new symbols follow the pieces: codes of languages, mask and unused rows come after them, as
    transformers expects it. Rows grow by as many as unused ones do not suffice.

    Raises ``UsageError`` if a symbol cannot be one: it is special or contains what is, normalization changes it, or it
    consists of other symbols; or if it would be part of an earlier symbol, which would be cut then. Raises
    ``ValueError`` for white space and lone surrogates. A vocabulary that takes no pieces is always refused.
    """
    pieces = tokenizer.pieces
    assert pieces is not None, "the caller looks"
    if pieces.codes == "anywhere" and pieces.roles["pad"] is not None:  # an encoder's; T5's padding is BOS
        what = "the vocabulary of this model takes no new symbols or entries"
        raise UsageError(what, where="extension", help="supported: translators")
    check_symbols(tuple(symbols))
    if not symbols:
        return tokenizer
    _check(pieces, symbols)
    made = with_new_pieces(tokenizer, [symbol_entry(symbol, pieces.model.algorithm) for symbol in symbols], symbols)
    assert made.pieces is not None
    for symbol in _cut_symbols(made.pieces, symbols):
        raise UsageError(f"the symbol {symbol!r} consists of other symbols", where=_WHERE, help=_NAME)
    before = list(pieces.symbol_ids)
    known = sorted(set(before).difference(symbols, _cut_symbols(pieces, before)))
    for symbol in _cut_symbols(made.pieces, known):
        what = f"the known symbol {symbol!r} would consist of new ones, and be a single token no more"
        raise UsageError(what, where=_WHERE, help=_NAME)
    return made


def _cut_symbols(pieces: PieceVocabulary, symbols: Sequence[str]) -> list[str]:
    """Return the symbols that are cut into other pieces."""
    rows = pieces.encode(symbols, [False] * len(symbols))
    return [symbol for symbol, row in zip(symbols, rows, strict=True) if row != [pieces.symbol_ids.get(symbol)]]


def with_new_pieces(tokenizer: Tokenizer, entries: Sequence[SentencePieceEntry], names: Sequence[str]) -> Tokenizer:
    """Return a vocabulary with more pieces, and more names in the network.

    The network may have names without a piece, of the other side. A piece of the same text is replaced. Raises
    ``UsageError`` if there are too many, or if the file cannot hold them.
    """
    pieces = tokenizer.pieces
    assert pieces is not None, "the caller looks"
    vocabulary, n_rows = _numbered(pieces, names)
    try:
        raw = _with_entries(pieces, entries)
    except OverflowError as error:  # the model that the scores come from may be a stranger's
        what = "the scores of new pieces are too large for a SentencePiece file"
        raise UsageError(what, where="extension", help="begin from a model whose scores are usual ones") from error
    if n_rows > MAX_ENTRIES or len(raw) > MAX_FILE_BYTES:
        what = f"the vocabulary would have more than {MAX_ENTRIES:,} entries or {MAX_FILE_BYTES:,} bytes"
        raise UsageError(what, where="extension", help="add fewer symbols or entries")
    tree = make_tree(raw, vocabulary, pieces.roles, n_rows, pieces.codes, pieces.code, pieces.prefix, pieces.before)
    config = tokenizer.config.model_copy(update={"size": max(tokenizer.config.size, min(n_rows + 1, MAX_ENTRIES))})
    try:
        return Tokenizer(config, tree)
    except ValueError as error:
        help = "shorten the symbols, or add fewer entries"
        raise UsageError(f"the entries cannot be added: {error}", where="extension", help=help) from error


def _check(pieces: PieceVocabulary, symbols: Sequence[str]) -> None:
    types = {piece.text: piece.type for piece in pieces.model.pieces}
    special = {MASK, *pieces.symbols, *(name for name in pieces.roles.values() if name is not None)}
    for symbol in symbols:
        # transformers cuts text at its special tokens first, and would never find the symbol. It does find a part of a
        # special name, but where the whole name stands, which is text to attnkit in any case.
        inside = sorted(name for name in special if name in symbol)
        if symbol in special or types.get(symbol, NORMAL) not in (NORMAL, UNUSED):
            what = f"{symbol!r} is a special entry of the vocabulary and cannot be a symbol"
        elif inside:
            what = f"the symbol {symbol!r} contains {inside[0]!r}, a special entry of the vocabulary"
        elif SPACE in symbol:
            what = f"the symbol {symbol!r} contains '{SPACE}', which is a space in the vocabulary"
        elif pieces.normalized(symbol) != symbol:
            what = f"the vocabulary replaces characters of the symbol {symbol!r} before text is encoded"
        elif pieces.codes == "marked" and symbol.startswith(">>") and pieces.leading_code(symbol) != symbol:
            what = f"the symbol {symbol!r} starts as a language code, which ends with the next '<<' of a line"
        else:
            continue
        raise UsageError(what, where=_WHERE, help=_NAME)


def _numbered(pieces: PieceVocabulary, names: Sequence[str]) -> tuple[dict[str, int], int]:
    """Return the ids in the network with those of new names, and its number of rows."""
    behind = {*pieces.symbols, MASK}
    first = 1 + max(id for name, id in pieces.vocabulary.items() if name not in behind)
    # The network may know the text of a symbol already: as an ordinary piece, or as one of the other side.
    new = [name for name in names if name not in pieces.vocabulary]
    moved = {name: id + len(new) if id >= first else id for name, id in pieces.vocabulary.items()}
    moved |= {name: first + number for number, name in enumerate(new)}
    return moved, max(*pieces.order, *moved.values()) + 1


def _with_entries(pieces: PieceVocabulary, entries: Sequence[SentencePieceEntry]) -> bytes:
    """Return the SentencePiece file with entries, in place of pieces of their text."""
    known = {piece.text: id for id, piece in enumerate(pieces.model.pieces)}
    new = (entry.text for entry in entries if entry.text not in known)
    ids = known | {text: len(known) + number for number, text in enumerate(new)}
    return with_entries(pieces.raw, {ids[entry.text]: entry for entry in entries})


def piece_row_origins(old: PieceVocabulary, new: PieceVocabulary) -> list[list[int]]:
    """Return the old ids whose mean is the row of each id, with more pieces.

    A known entry has its own id, a new one those of its pieces, and an unused entry <unk>.
    """
    n_fixed = len(SPECIALS) + len(old.symbols)
    known = {id: number for number, id in enumerate(old.order) if number >= n_fixed}
    unnamed = known.keys() - old.vocabulary.values()
    names = {id: name for name, id in new.vocabulary.items()}
    origins = [[id] for id in range(n_fixed)]
    for id in new.order[n_fixed:]:
        name = names.get(id)
        # A name such as <unused12> may be that of a symbol, and is no name of row 12.
        if name is None:
            origins.append([known[id]] if id in unnamed else [UNK_ID])
        elif name in old.vocabulary:
            origins.append([known[old.vocabulary[name]]])
        else:
            origins.append(old.encode_normalized([name])[0] or [UNK_ID])
    return origins
