"""Vocabularies of imported models: SentencePiece's pieces and ids of a network.

A network may know other entries than its SentencePiece model: pieces have ids of their own, and languages have codes.
"""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text.config import MAX_ENTRIES, VocabularyConfig, symbol_pattern
from attnkit.text.sentencepiece import SentencePiece
from attnkit.text.sentencepiece_file import BYTE, SPACE, read_sentencepiece

MAX_BEFORE = 1000  #: characters
ROLES = ("pad", "bos", "eos", "unk")  #: roles of our first ids, in their order
Codes = Literal["marked", "spaced", "anywhere"]
"""Form of a language code at the start of a text: ``>>de<<`` (marked), or any symbol and a space (spaced).

With ``anywhere``, there are no codes: symbols such as a mask are tokens wherever they are in a text.
"""
Prefix = Literal["first", "always"]
"""Parts of a line that Metaspace of Hugging Face ``tokenizers`` puts a space before: the first, or those behind symbols
too; none that starts with a space itself."""


def make_tree(
    raw: bytes,
    vocabulary: dict[str, int],
    roles: dict[str, str | None],
    n_rows: int,
    codes: Codes,
    code: str | None = None,
    prefix: Prefix | None = None,
    before: str = "",
) -> dict[str, Any]:
    """Return the JSON form of a vocabulary.

    Args:
        raw: the SentencePiece file.
        vocabulary: name -> id in the network, of pieces, special tokens and codes.
        roles: names of the special tokens, by ``ROLES``; ``bos`` may be None, then it is a copy of padding, and so may
            padding, then it is one of the unknown token.
        n_rows: number of ids of the network.
        codes: form of the language codes.
        code: language code of texts without one; None: they have none.
        prefix: where the space before a text is put; None: as in SentencePiece, before each part.
        before: text whose tokens are put before those of each text, as T5's ``translate English to German:``.
    """
    own: dict[str, Any] = ({} if prefix is None else {"prefix": prefix}) | ({"before": before} if before else {})
    text = base64.b64encode(raw).decode()
    return {
        "sentencepiece": text,
        "vocabulary": vocabulary,
        "roles": roles,
        "rows": n_rows,
        "codes": codes,
        "code": code,
        **own,
    }


class PieceVocabulary:
    """Encoder of a SentencePiece model with the ids of a network.

    Like all vocabularies, it starts with padding, BOS, EOS, unknown and the symbols; ``order`` has the network's ids.
    """

    def __init__(self, config: VocabularyConfig, tree: Any) -> None:
        """Check and store a JSON form; raise ``ValueError`` if it is invalid."""
        keys = ("sentencepiece", "vocabulary", "roles", "rows", "codes", "code")
        if not isinstance(tree, dict) or tree.keys() - {"prefix", "before"} != set(keys):
            raise ValueError("missing or unexpected keys")
        self.prefix: Prefix | None = tree.get("prefix")
        if self.prefix not in (None, *get_args(Prefix)):
            raise ValueError("its prefix has an unknown form")
        self.before = tree.get("before", "")  #: text whose tokens are put before those of each text
        if not isinstance(self.before, str) or len(self.before) > MAX_BEFORE:
            raise ValueError("the text before others is none, or too long")
        raw, vocabulary, roles, n_rows, self.codes, code = (tree[key] for key in keys)
        try:
            self.raw = base64.b64decode(raw, validate=True) if isinstance(raw, str) else b""
        except binascii.Error as error:
            raise ValueError("the SentencePiece model is not in base64") from error
        _check(vocabulary, roles, n_rows, self.codes)
        self.vocabulary: dict[str, int] = vocabulary
        self.roles: dict[str, str | None] = roles
        unknown, pad, bos = (vocabulary.get(roles[role] or "") for role in ("unk", "pad", "bos"))
        pad = unknown if pad is None else pad
        fixed = [pad, pad if bos is None else bos, vocabulary.get(roles["eos"] or ""), unknown]
        for symbol in config.symbols:
            if vocabulary.get(symbol) is None or vocabulary[symbol] in fixed:
                raise ValueError(f"the symbol '{symbol[:40]}' is not in the vocabulary, or twice")
            fixed.append(vocabulary[symbol])
        self.order = [*fixed, *sorted(set(range(n_rows)).difference(fixed))]
        named = {id: name for name, id in vocabulary.items()}
        rest = [named.get(id) or _unused_name(id, vocabulary) for id in self.order[len(fixed) :]]
        self.names = [*SPECIALS, *config.symbols, *rest]
        self._encoder = SentencePiece(read_sentencepiece(self.raw), prefixes_spaced=self.prefix is None)
        self.model = model = self._encoder.model
        self._numbers = {named[id]: number for number, id in enumerate(self.order) if id in named}
        self._own = [self._numbers.get(piece.text, UNK_ID) for piece in model.pieces]
        self._own[model.unknown_id] = UNK_ID
        of_bytes = {piece.text: bytes.fromhex(piece.text[3:5]) for piece in model.pieces if piece.type == BYTE}
        texts = [of_bytes.get(name, name.replace(SPACE, " ").encode()) for name in (*config.symbols, *rest)]
        self.bytes = [b"", b"", b"", SPECIALS[UNK_ID].encode(), *texts]
        unnamed = {number for number, id in enumerate(self.order) if id not in named}
        for number in unnamed:
            self.bytes[number] = b""
        # The last ids without names are there to make the size of the network round.
        n_used = len(self.order)
        while n_used - 1 in unnamed:
            n_used -= 1
        self.n_unused = len(self.order) - n_used
        self.symbols, self._symbols = config.symbols, frozenset(config.symbols)
        self._language_codes = config.language_codes
        self._anywhere = symbol_pattern(config.symbols) if self.codes == "anywhere" else None
        self.code: str | None = None  #: language code of texts without one; None: they have none
        self.code_ids: list[int] = []
        if code is not None:
            self._set_code(code)
        if self.codes == "spaced":  # part of the task, not of the text
            for number in range(len(ROLES), len(fixed)):
                self.bytes[number] = b""
        if self.before:
            if self.codes != "anywhere":
                raise ValueError("a vocabulary with codes has no other text before others")
            (self.code_ids,) = self.encode_lines([self.before])

    def _set_code(self, code: str) -> None:
        if code not in self.language_codes:
            raise ValueError("the language code is not in the vocabulary")
        self.code, self.code_ids = code, [self._numbers[code]]

    @property
    def language_codes(self) -> tuple[str, ...]:
        """Codes of the languages, one of which is before each text; empty without."""
        return self._language_codes if self.codes == "spaced" else ()

    def with_code(self, code: str) -> PieceVocabulary:
        """Return the vocabulary with another code of texts without one.

        Raises ``ValueError`` if it is not among ``language_codes``.
        """
        other = copy.copy(self)  # the parts, which are large, are shared
        other._set_code(code)
        return other

    @cached_property
    def symbol_ids(self) -> dict[str, int]:
        """Ids of the pieces that are single tokens in any text, by their text."""
        ids = {text: self._own[number] for text, number in self.model.symbols.items()}
        return {text: id for text, id in ids.items() if id != UNK_ID}

    @cached_property
    def symbol_numbers(self) -> frozenset[int]:
        """Ids of ``symbol_ids``, each of which is looked up for every token of a text."""
        return frozenset(self.symbol_ids.values())

    def normalized(self, symbol: str) -> str:
        """Return a text without spaces as it is cut into pieces."""
        return self._encoder.normalize(symbol, prefix=False)

    @property
    def n_dropped_spaces(self) -> int | None:
        """Most spaces at the start of a decoded text that are not part of it; None: all."""
        model = self._encoder.model
        return None if model.remove_extra_whitespaces else int(model.add_dummy_prefix)

    def parts(self, text: str) -> list[tuple[str, int | None]]:
        """Split a text into codes or symbols, with their ids, and text to encode."""
        if self.codes == "anywhere":
            found = [text] if self._anywhere is None else self._anywhere.split(text)
            given: list[tuple[str, int | None]] = [("", id) for id in self.code_ids]
            return given + [(part, self._numbers[part] if part in self._symbols else None) for part in found if part]
        begin = self.leading_code(text)
        code, rest = begin.strip(" "), text[len(begin) :]
        parts: list[tuple[str, int | None]] = [("", id) for id in self.code_ids]
        if code:
            parts = [(begin, self._numbers.get(code, UNK_ID))]  # with its spaces, as parts make up the text
        return [*parts, (rest, None)] if rest else parts

    def leading_code(self, text: str) -> str:
        """Return the language code at the start of a text, with spaces; empty for none."""
        if self.codes == "marked":
            # As in transformers, any text between these marks is a code.
            return text[: end + 2] if text.startswith(">>") and (end := text.find("<<")) >= 0 else ""
        if self.codes == "anywhere":
            return ""
        rest = text.lstrip(" ")
        first, space, _ = rest.partition(" ")
        return text[: len(text) - len(rest)] + first + space if first in self._symbols else ""

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts with codes or symbols; raise as ``encode``."""
        split = [self.parts(line) for line in lines]
        texts = [part for parts in split for part, id in parts if id is None]
        prefixes = None
        if self.prefix == "first":
            prefixes = [n == 0 for parts in split for n, (_, id) in enumerate(parts) if id is None]
        encoded = iter(self.encode(texts, prefixes))
        return [[own for _, id in parts for own in (next(encoded) if id is None else [id])] for parts in split]

    def encode(self, texts: Sequence[str], prefixes: Sequence[bool] | None = None) -> list[list[int]]:
        """Return the ids of texts without codes; raise ``TypeError`` for surrogates.

        ``prefixes`` says of each text whether a space is put before it; None: of all.
        """
        return self._own_ids(self._encoder.encode_with_unknown(texts, prefixes))

    def encode_normalized(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of normalized texts, such as pieces."""
        return self._own_ids(self._encoder.encode_normalized(texts))

    def _own_ids(self, encoded: Iterable[tuple[list[int], list[str]]]) -> list[list[int]]:
        """Return the ids of texts whose pieces and unknown parts are given."""
        rows, unknown_id = [], self._encoder.model.unknown_id
        for pieces, unknown in encoded:
            # The network may know what its SentencePiece model does not, such as pieces of the other side.
            named = (self._numbers.get(surface, UNK_ID) for surface in unknown)
            rows.append([next(named) if id == unknown_id else self._own[id] for id in pieces])
        return rows

    def encode_pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the pieces of texts without codes, by their ids in SentencePiece."""
        return self._encoder.encode(texts)

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, begin, end) per piece of a text without a code, in characters."""
        spans = self._encoder.encode_with_offsets(text)
        return [(own, begin, end) for own, (_, begin, end) in zip(self.encode([text])[0], spans, strict=True)]

    def normalize(self, text: str) -> str:
        """Return the text that is encoded, with spaces, and without the one before it."""
        normalized = self._encoder.normalize(text).replace(SPACE, " ")
        return normalized.removeprefix(" ") if self._encoder.model.add_dummy_prefix else normalized


def _unused_name(id: int, vocabulary: dict[str, int]) -> str:
    """Return a name of a row without one, which no other row has."""
    name = f"<unused{id}>"
    while name in vocabulary:
        name = f"<{name}>"
    return name


def _check(vocabulary: Any, roles: Any, n_rows: Any, codes: Any) -> None:
    if type(n_rows) is not int or not 0 < n_rows <= MAX_ENTRIES or codes not in get_args(Codes):
        raise ValueError("it has no valid number of rows, or no form of codes")
    numbered = isinstance(vocabulary, dict) and all(type(id) is int and 0 <= id < n_rows for id in vocabulary.values())
    if not numbered or len(set(vocabulary.values())) != len(vocabulary):
        raise ValueError("vocabulary entries have no valid ids, or two have the same")
    "".join(vocabulary).encode()  # raises ValueError for a lone surrogate
    if not isinstance(roles, dict) or roles.keys() != set(ROLES):
        raise ValueError("it lacks the names of the special tokens")
    named = [name for role, name in roles.items() if role not in ("bos", "pad") or name is not None]
    if not all(isinstance(name, str) and name in vocabulary for name in named) or len(set(named)) != len(named):
        raise ValueError("a special token is not in the vocabulary, or twice")
