"""Where an imported vocabulary comes from: the ids of its network, and its files.

They are part of the vocabulary file, so that a model can be exported as it was imported, even after fine-tuning.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnkit.text.config import MAX_ENTRIES

SENTENCEPIECE = "sentencepiece.bpe.model"
LLAMA = "tokenizer.model"  #: SentencePiece file of Llama 2
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    SENTENCEPIECE,
    LLAMA,
)  #: files of a tokenizer
MAX_FILE_BYTES = 1 << 25  #: limit on one file
_MODEL = 40  #: maximum length of a model type


@dataclass(frozen=True)
class Origin:
    """Model type, original ids and files of an imported vocabulary."""

    model: str  #: model type, as in ``config.json``
    order: Sequence[int | None]  #: original id of each of our ids; None: no such entry
    packed: Mapping[str, str]  #: files by name, compressed and in base64

    @staticmethod
    def of_files(model: str, order: Sequence[int | None], files: Mapping[str, bytes]) -> Origin:
        """Return the origin of a vocabulary, with its files compressed."""
        packed = {name: base64.b64encode(zlib.compress(raw, 9)).decode() for name, raw in files.items()}
        return Origin(model, list(order), packed)

    @staticmethod
    def from_tree(tree: Any, n_entries: int) -> Origin:
        """Check a JSON form; raise ``ValueError`` if it is invalid."""
        if not isinstance(tree, dict) or tree.keys() != {"model", "order", "files"}:
            raise ValueError("its origin has missing or unexpected keys")
        model, order, files = tree["model"], tree["order"], tree["files"]
        if not isinstance(model, str) or not 0 < len(model) <= _MODEL:
            raise ValueError("its origin has no model type")
        listed = isinstance(order, list) and len(order) == n_entries
        if not listed or not all(id is None or (type(id) is int and 0 <= id < MAX_ENTRIES) for id in order):
            raise ValueError("its origin does not have a valid id per entry")
        if not isinstance(files, dict) or not all(isinstance(raw, str) for raw in files.values()):
            raise ValueError("its origin does not have valid files")
        if not files.keys() <= set(FILES):
            raise ValueError("its origin has a file of another name")
        return Origin(model, order, files)

    def to_tree(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"model": self.model, "order": list(self.order), "files": dict(self.packed)}

    @property
    def n_rows(self) -> int:
        """Number of rows of the embedding table of the network."""
        return 1 + max((id for id in self.order if id is not None), default=-1)

    def files(self) -> dict[str, bytes]:
        """Return the files by name; raise ``ValueError`` if one is damaged or too large."""
        return {name: _unpacked(text) for name, text in self.packed.items()}


def _unpacked(text: str) -> bytes:
    try:
        stream = zlib.decompressobj()
        # One byte more than allowed shows that the file is too large, without reading all of it.
        raw = stream.decompress(base64.b64decode(text, validate=True), MAX_FILE_BYTES + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError("a file of its origin is damaged") from error
    if len(raw) > MAX_FILE_BYTES or not stream.eof:
        raise ValueError("a file of its origin is truncated or too large")
    return raw
