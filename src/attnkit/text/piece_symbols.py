"""Symbols added to the vocabulary of an imported translator.

A symbol becomes a piece of the SentencePiece model itself, with spaces around it as of other pieces. sentencepiece, and
so transformers and CTranslate2, then find it wherever attnkit does, and all other text is cut as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnkit.errors import UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text.config import MAX_ENTRIES, check_symbols
from attnkit.text.piece_vocabulary import PieceVocabulary, make_tree
from attnkit.text.pruning import MASK
from attnkit.text.sentencepiece_file import MAX_FILE_BYTES, NORMAL, SPACE, UNUSED, symbol_entry, with_entries
from attnkit.text.tokenizer import Tokenizer

_WHERE = "extension.symbols"
_NAME = "choose a name that no text contains, such as <med>"


def with_symbols(tokenizer: Tokenizer, symbols: Sequence[str]) -> Tokenizer:
    """Return a vocabulary of pieces with more symbols, single tokens in any text.

    In the network, new symbols follow the pieces: codes of languages, mask and unused rows come after them, as
    transformers expects it. Rows grow by as many as unused ones do not suffice.

    Raises ``UsageError`` if a symbol cannot be one: it is special, or normalization changes it, or it consists of other
    symbols. Raises ``ValueError`` for white space.
    """
    pieces = tokenizer.pieces
    assert pieces is not None, "the caller looks"
    check_symbols(tuple(symbols))
    if not symbols:
        return tokenizer
    if pieces.codes == "anywhere":
        raise UsageError(
            "the vocabulary of this model takes no new symbols", where=_WHERE, help="supported: translators"
        )
    _check(pieces, symbols)
    vocabulary, n_rows = _numbered(pieces, symbols)
    raw = _with_pieces(pieces, symbols)
    if n_rows > MAX_ENTRIES or len(raw) > MAX_FILE_BYTES:
        what = f"the vocabulary would have more than {MAX_ENTRIES:,} entries or {MAX_FILE_BYTES:,} bytes"
        raise UsageError(what, where=_WHERE, help="add fewer symbols")
    tree = make_tree(raw, vocabulary, pieces.roles, n_rows, pieces.codes, pieces.code, pieces.prefix)
    config = tokenizer.config.model_copy(update={"size": max(tokenizer.config.size, min(n_rows + 1, MAX_ENTRIES))})
    try:
        made = Tokenizer(config, tree)
    except ValueError as error:
        raise UsageError(f"the symbols cannot be added: {error}", where=_WHERE, help=_NAME) from error
    for symbol in symbols:
        assert made.pieces is not None
        if made.pieces.encode([symbol], [False]) != [[made.token_id(symbol)]]:
            what = f"the symbol {symbol!r} consists of other symbols"
            raise UsageError(what, where=_WHERE, help=_NAME)
    return made


def _check(pieces: PieceVocabulary, symbols: Sequence[str]) -> None:
    types = {piece.text: piece.type for piece in pieces.model.pieces}
    for symbol in symbols:
        if symbol in {*pieces.roles.values(), MASK} or types.get(symbol, NORMAL) not in (NORMAL, UNUSED):
            what = f"{symbol!r} is a special entry of the vocabulary and cannot be a symbol"
        elif SPACE in symbol:
            what = f"the symbol {symbol!r} contains '{SPACE}', which is a space in the vocabulary"
        elif pieces.normalized(symbol) != symbol:
            what = f"the vocabulary replaces characters of the symbol {symbol!r} before text is encoded"
        else:
            continue
        raise UsageError(what, where=_WHERE, help=_NAME)


def _numbered(pieces: PieceVocabulary, symbols: Sequence[str]) -> tuple[dict[str, int], int]:
    """Return the ids in the network with those of new symbols, and its number of rows."""
    behind = {*pieces.symbols, MASK}
    first = 1 + max(id for name, id in pieces.vocabulary.items() if name not in behind)
    # The network may know the text of a symbol already: as an ordinary piece, or as one of the other side.
    new = [symbol for symbol in symbols if symbol not in pieces.vocabulary]
    moved = {name: id + len(new) if id >= first else id for name, id in pieces.vocabulary.items()}
    moved |= {symbol: first + number for number, symbol in enumerate(new)}
    return moved, max(*pieces.order, *moved.values()) + 1


def _with_pieces(pieces: PieceVocabulary, symbols: Sequence[str]) -> bytes:
    """Return the SentencePiece file with symbols, in place of pieces of their text."""
    model = pieces.model
    known = {piece.text: id for id, piece in enumerate(model.pieces)}
    n = len(known)
    new = {symbol: n + number for number, symbol in enumerate(one for one in symbols if one not in known)}
    ids = known | new
    return with_entries(pieces.raw, {ids[symbol]: symbol_entry(symbol, model.algorithm) for symbol in symbols})


def symbol_row_origins(old: PieceVocabulary, new: PieceVocabulary) -> list[list[int]]:
    """Return the old ids whose mean is the row of each id, with more symbols.

    A known entry has its own id, a symbol those of its pieces, and an unused entry <unk>.
    """
    n_fixed = len(SPECIALS) + len(old.symbols)
    known = {name: id for id, name in enumerate(old.names) if id >= n_fixed}
    origins = [[id] for id in range(n_fixed)]
    for name in new.names[n_fixed:]:
        if name in known:
            origins.append([known[name]])
        else:
            is_used = name in new.vocabulary
            origins.append((old.encode([name], [False])[0] if is_used else []) or [UNK_ID])
    return origins
