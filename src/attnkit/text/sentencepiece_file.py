"""Reader and writer of SentencePiece models without protobuf and sentencepiece.

A file is a protocol buffer, ``ModelProto`` of https://github.com/google/sentencepiece: fields 1 (pieces), 2 (how the
model was trained) and 3 (how text is normalized). Everything is checked here, since a file may come from a stranger.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from attnkit.text.charsmap import Charsmap, read_charsmap
from attnkit.text.config import MAX_ENTRIES

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  #: types of pieces, as in the file
MAX_FILE_BYTES = 16 << 20  #: limit on a file; the one of NLLB-200, with 256,000 pieces, has 5 MB
MAX_PIECE_BYTES = 1024  #: limit on a piece; the trainer makes pieces of at most 16 characters
SPACE = "▁"  #: U+2581, a space inside a piece
SYMBOL_SCORE = 100.0
"""Score of a symbol of a unigram model: no path around it is better, since logarithms of probabilities are below 0."""
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types
Algorithm = Literal["unigram", "bpe"]
_ALGORITHMS: dict[object, Algorithm] = {1: "unigram", 2: "bpe"}
_OTHER_ALGORITHMS = {3: "word", 4: "char"}
Value = int | bytes


@dataclass(frozen=True)
class SentencePieceEntry:
    """One entry of a SentencePiece model."""

    text: str
    score: float
    type: int  #: NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED or BYTE


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a SentencePiece file that decide how text is cut."""

    pieces: tuple[SentencePieceEntry, ...]  #: by id
    algorithm: Algorithm
    byte_fallback: bool  #: whether unknown characters become the pieces of their bytes
    charsmap: Charsmap  #: text that normalization replaces
    add_dummy_prefix: bool  #: whether a space is put before the text
    remove_extra_whitespaces: bool  #: whether spaces at both ends are dropped, and runs of them reduced to one

    @property
    def unknown_id(self) -> int:
        """Id of the unknown piece."""
        return next(id for id, piece in enumerate(self.pieces) if piece.type == UNKNOWN)

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Ids of the pieces that are single tokens in any text: see ``symbol_entry``."""
        scored = self.algorithm == "unigram"
        return {
            piece.text: id
            for id, piece in enumerate(self.pieces)
            if piece.type == USER_DEFINED or (scored and piece.type == NORMAL and piece.score >= SYMBOL_SCORE)
        }


def symbol_entry(text: str, algorithm: Algorithm) -> SentencePieceEntry:
    """Return the piece of a symbol, which is a single token in any text.

    BPE has user-defined pieces. In a unigram model, sentencepiece scores them by their length, so that a long one loses
    to frequent pieces; and transformers puts a space behind them. A piece with a high score has neither fault.
    But it is found in normalized text only, not where its last character is joined with the next: ``>`` and U+0338 are
    U+226F. User-defined pieces are found before.
    """
    return SentencePieceEntry(text, *((0.0, USER_DEFINED) if algorithm == "bpe" else (SYMBOL_SCORE, NORMAL)))


def read_sentencepiece(raw: bytes) -> SentencePieceModel:
    """Parse a SentencePiece file.

    Raises ``ValueError`` with the reason if it is damaged, or if it uses what attnkit does not have: words or
    characters as pieces, spaces at the end of words, or rules for the decoded text.
    """
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"it has {len(raw):,} bytes, more than the maximum of {MAX_FILE_BYTES:,}")
    pieces: list[SentencePieceEntry] = []
    parts: dict[int, dict[int, Value]] = {2: {}, 3: {}, 5: {}}
    for number, value in _fields(raw):
        if number == 1:
            pieces.append(_piece(value))
        elif number in parts:
            # A field of the same message given twice is merged, as protocol buffers demand.
            parts[number] |= dict(_fields(_as_bytes(value)))
        if len(pieces) > MAX_ENTRIES:
            raise ValueError(f"it has more than {MAX_ENTRIES:,} pieces")
    trainer, normalizer, decoded = parts.values()
    byte_fallback = bool(trainer.get(35, 0))
    _check_pieces(pieces, byte_fallback)
    kind = trainer.get(3, 1)
    if kind not in _ALGORITHMS:
        named = _OTHER_ALGORITHMS.get(kind if isinstance(kind, int) else 0, "an unknown kind")
        raise ValueError(f"its pieces are of kind {named}; supported: unigram and bpe")
    if trainer.get(24, 0):
        raise ValueError("its pieces have spaces behind words (treat_whitespace_as_suffix)")
    if not normalizer.get(5, 1):
        raise ValueError("its pieces contain bare spaces (escape_whitespaces is off)")
    if _as_bytes(decoded.get(2, b"")):
        raise ValueError("it has rules for the decoded text (denormalizer_spec)")
    if _ALGORITHMS[kind] == "bpe" and any(piece.type == UNUSED for piece in pieces):
        raise ValueError("it has unused pieces, which BPE would merge and split again")
    return SentencePieceModel(
        tuple(pieces),
        _ALGORITHMS[kind],
        byte_fallback,
        read_charsmap(_as_bytes(normalizer.get(2, b""))),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def write_byte_pairs(pieces: Sequence[SentencePieceEntry], add_dummy_prefix: bool) -> bytes:
    """Return the file of a BPE model with pieces of bytes that changes no space."""
    # Fields 3 (BPE) and 35 (pieces of bytes) of the trainer; of the normalizer: a space before the text or not, no
    # spaces dropped, spaces as U+2581.
    trainer = bytes([3 << 3 | _VARINT, 2, 35 << 3 & 127 | 128, 35 << 3 >> 7, 1])
    flags = b"".join(bytes([number << 3 | _VARINT, on]) for number, on in ((3, add_dummy_prefix), (4, 0), (5, 1)))
    return _entries(pieces) + _message(2, trainer) + _message(3, flags)


def write_sentencepiece(pieces: Sequence[SentencePieceEntry], charsmap: bytes) -> bytes:
    """Return the file of a unigram model, with the usual handling of spaces."""
    trainer = bytes([3 << 3 | _VARINT, 1])  # unigram
    # Of the normalizer: the map, a space before the text, no further spaces, spaces as U+2581.
    flags = b"".join(bytes([number << 3 | _VARINT, 1]) for number in (3, 4, 5))
    return _entries(pieces) + _message(2, trainer) + _message(3, _message(2, charsmap) + flags)


def _entries(pieces: Sequence[SentencePieceEntry]) -> bytes:
    parts = []
    for piece in pieces:
        kind = b"" if piece.type == NORMAL else bytes([3 << 3 | _VARINT, piece.type])
        score = bytes([2 << 3 | _FOUR_BYTES]) + struct.pack("<f", piece.score)
        parts.append(_message(1, _message(1, piece.text.encode()) + score + kind))
    return b"".join(parts)


def _message(number: int, content: bytes) -> bytes:
    """Return a field of bytes: number, size in groups of seven bits, content."""
    size, rest = list[int](), len(content)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | _BYTES, *size, rest]) + content


def with_pieces(raw: bytes, kept: Collection[int]) -> bytes:
    """Return a valid SentencePiece file with these pieces only, by id."""
    parts: list[bytes] = []
    at, id = 0, 0
    for number, _, end in _spans(raw):
        if number != 1 or id in kept:
            parts.append(raw[at:end])
        at, id = end, id + (number == 1)
    return b"".join(parts)


def with_entries(raw: bytes, entries: Mapping[int, SentencePieceEntry]) -> bytes:
    """Return a valid SentencePiece file with these pieces by id, not its own.

    Those with new ids follow its pieces, in order.
    """
    parts: list[bytes] = []
    at, id = 0, 0
    for number, _, end in _spans(raw):
        parts.append(_entries([entries[id]]) if number == 1 and id in entries else raw[at:end])
        at, id = end, id + (number == 1)
    return b"".join([*parts, _entries([entries[new] for new in sorted(entries) if new >= id])])


def _fields(raw: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a message, in their order."""
    return ((number, value) for number, value, _ in _spans(raw))


def _spans(raw: bytes) -> Iterator[tuple[int, Value, int]]:
    """Yield the number and the value of each field, and where it ends."""
    at, end = 0, len(raw)
    while at < end:
        key, at = _varint(raw, at)
        wire = key & 7
        if wire == _VARINT:
            number, at = _varint(raw, at)
            yield key >> 3, number, at
            continue
        if wire == _BYTES:
            size, at = _varint(raw, at)
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError("this is not a SentencePiece model")
        if size > end - at:
            raise ValueError("it is truncated, or not a SentencePiece model")
        yield key >> 3, raw[at : at + size], at + size
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, seven bits per byte, and the place after it."""
    number = shift = 0
    while at < len(raw) and shift < 70:  # a number of 64 bits takes ten bytes
        number |= (raw[at] & 127) << shift
        if raw[at] < 128:
            return number, at + 1
        at, shift = at + 1, shift + 7
    raise ValueError("it is truncated, or not a SentencePiece model")


def _as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field has another type than expected")
    return value


def _piece(value: Value) -> SentencePieceEntry:
    found = dict(_fields(_as_bytes(value)))
    text, score, kind = found.get(1, b""), found.get(2, bytes(4)), found.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4 or not isinstance(kind, int):
        raise ValueError("a piece has no valid text, score or type")
    if not text or len(text) > MAX_PIECE_BYTES:
        raise ValueError(f"a piece is empty or has more than {MAX_PIECE_BYTES:,} bytes")
    number = struct.unpack("<f", score)[0]
    if not math.isfinite(number) or not NORMAL <= kind <= BYTE:
        raise ValueError("a piece has an unknown type or no finite score")
    return SentencePieceEntry(text.decode(), number, kind)  # raises ValueError for invalid UTF-8


def _check_pieces(pieces: list[SentencePieceEntry], byte_fallback: bool) -> None:
    if sum(piece.type == UNKNOWN for piece in pieces) != 1:
        raise ValueError("it does not have exactly one unknown piece")
    if len({piece.text for piece in pieces}) != len(pieces):
        raise ValueError("two pieces have the same text")
    ordinary = (NORMAL, USER_DEFINED, UNUSED)
    if any("\0" in piece.text for piece in pieces if piece.type in ordinary):
        raise ValueError("a piece contains the character U+0000")
    found = {piece.text for piece in pieces if piece.type == BYTE}
    if found != ({f"<0x{byte:02X}>" for byte in range(256)} if byte_fallback else set()):
        raise ValueError("its pieces of bytes do not match its setting byte_fallback")
