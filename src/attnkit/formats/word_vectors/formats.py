"""The names of the formats, detected by a file's name or its first bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from attnkit.errors import DataError, UsageError
from attnkit.formats.word_vectors.text import header

Format = Literal["word2vec", "word2vec-binary", "glove", "fasttext", "safetensors", "npy", "projector"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: dict[str, Format] = {
    ".bin": "word2vec-binary",
    ".txt": "word2vec",
    ".w2v": "word2vec",
    ".vec": "fasttext",
    ".glove": "glove",
    ".safetensors": "safetensors",
    ".npy": "npy",
    ".tsv": "projector",
}
"""Ending of a name -> the format that is written under it; a name without one is a folder for the projector."""
_ARRAYS = (".safetensors", ".npy")  #: endings of what cannot be mistaken for anything else
_AGAIN = "fetch or write the file again"
LOOKED_AT = 1 << 12  #: bytes at the beginning of a file that tell what it is
_SIZES = re.compile(rb"[-+]?[0-9]+[ \t]+[-+]?[0-9]+[ \t\r]*")
_NUMBERS = re.compile(rb"[-+0-9.eEnNaAiIfF \t]*")


def format_of(path: Path) -> Format:
    """Return the format that a file is written in by its name. Raises ``UsageError`` where it asks for none."""
    found = ENDINGS.get(path.suffix.lower()) if path.suffix else "projector"
    if found is None:
        known = ", ".join(ENDINGS)
        raise UsageError(f"{path} has the ending of no format", help=f"choose one of {known}, or say it with --to")
    return found


def recognised(begin: bytes, name: str) -> Format:
    """Return the format of a file by its first bytes; fastText's text is word2vec's. ``name`` is its path.

    Raises:
        DataError: it is none of them, with what it may be.
    """
    if not begin:
        raise DataError("this file is empty: it holds no vectors", where=name, help=_AGAIN)
    if begin.startswith(b"\x93NUMPY"):
        return "npy"
    if begin.startswith(b"\xba\x16\x4f\x2f"):
        help = "write its words as text: fasttext print-word-vectors, or take the .vec file that lies beside it"
        raise DataError("this is a model in fastText's own format, not word vectors", where=name, help=help)
    if begin.startswith(b"\x80") and begin[1:2] in b"\x02\x03\x04\x05":
        help = "in gensim: model.wv.save_word2vec_format('vectors.bin', binary=True)"
        raise DataError("this is a pickle, which runs what it holds and is never opened", where=name, help=help)
    if begin[8:9] == b"{" and b"\0" in begin[:8]:  # the size of a header, which is never text
        return "safetensors"
    if (ending := Path(name).suffix.lower()) in _ARRAYS:
        what = f"this is no {ending} file: it does not begin as one"
        raise DataError(what, where=name, help=f"{_AGAIN}; if it is of another format, give it another ending")
    first, _, rest = begin.partition(b"\n")
    if (sizes := header(first)) is None:
        # Rows of a single number may look like this too, but then the next one does as well.
        if _SIZES.fullmatch(first) and len(rest.partition(b"\n")[0].split()) != 2:
            n_words, width = (text.decode() for text in first.split())
            what = f"the first line tells of {n_words[:20]} words of {width[:20]} numbers, which cannot be"
            raise DataError(what, where=f"{name}:1", help=_AGAIN)
        if b"\0" in begin:
            raise DataError("this is not a file of word vectors", where=name, help=f"formats are {', '.join(FORMATS)}")
        return "glove"
    # As text, a row has at least a digit and a space for each number; as bytes it is twice as long.
    row = rest.lstrip(b"\n").partition(b" ")[2][: min(64, max(1, 2 * sizes[1] - 1))]
    return "word2vec" if _NUMBERS.fullmatch(row) else "word2vec-binary"
