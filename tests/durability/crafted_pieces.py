"""A small SentencePiece file, byte by byte, as no package is needed to read one."""

from __future__ import annotations

import struct

from attnkit.text.config import VocabularyConfig
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.tokenizer import Tokenizer

PIECES = ["▁", *"0123456789xyé", "▁0", "▁1", "12", "▁12", "日本"]


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes in a protocol buffer."""
    size = len(content)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + content


def piece(name: str, score: float, kind: int = 1) -> bytes:
    return field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", score) + bytes([24, kind]))


def charsmap() -> bytes:
    """Return the map x → y, xé → z, as a double array in which the successors of a node lie in a block of their own."""
    units = [0] * 2048
    for label, before, after, value in ((0x78, 256, 512, 0), (0xC3, 512, 768, None), (0xA9, 768, 1024, 2)):
        at = before ^ label
        units[at] = label | (at ^ after) << 10 | (value is not None) << 8
        if value is not None:
            units[after] = value | 1 << 31
    units[0] = 256 << 10
    return (4 * len(units)).to_bytes(4, "little") + struct.pack(f"<{len(units)}I", *units) + b"y\x00z\x00"


def sentencepiece_file() -> bytes:
    """Return a unigram model with a map of characters and pieces of bytes."""
    ordinary = [piece(name, -1.0 - number / 8) for number, name in enumerate(PIECES)]
    raw = [piece(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    normalizer = field(2, charsmap()) + b"\x18\x01\x20\x01\x28\x01"
    return b"".join([piece("<unk>", 0.0, 2), *ordinary, *raw, field(2, b"\x18\x01\x98\x02\x01"), field(3, normalizer)])


def piece_vocabulary() -> Tokenizer:
    """Return a vocabulary of these pieces, with ids as in Marian."""
    names = ["</s>", "<unk>", ">>de<<", *PIECES, *(f"<0x{byte:02X}>" for byte in range(256)), "<pad>"]
    config = VocabularyConfig(kind="sentencepiece", size=len(names), symbols=(">>de<<",), multiple_of=1)
    roles = {"pad": "<pad>", "bos": None, "eos": "</s>", "unk": "<unk>"}
    vocabulary = {name: id for id, name in enumerate(names)}
    return Tokenizer(config, make_tree(sentencepiece_file(), vocabulary, roles, len(names), "marked"))
