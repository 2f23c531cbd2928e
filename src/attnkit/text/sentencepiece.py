"""Encoding by a SentencePiece model: the same pieces as sentencepiece finds.

Only ties of unigram models, in runs of one character, may be cut differently.

They are found by Hugging Face ``tokenizers``. Three things differ from a plain conversion. Control, unknown, unused and
byte pieces never match text, so the library does not get them. Spaces are U+0020 alone: normalization is done here,
with the longest match of the character map. Of BPE's pieces, those with the higher score are merged first, whatever
their order in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers import Encoding, models
from tokenizers import Tokenizer as Engine

from attnkit.text.charsmap import Replacer
from attnkit.text.sentencepiece_file import BYTE, NORMAL, SPACE, USER_DEFINED, SentencePieceModel
from attnkit.text.vocabulary_schema import MAX_NODES, n_nodes

_RUNS = re.compile(" {2,}")
_UNKNOWN = "\0"  #: name of the unknown piece in the library; no other piece contains it
MAX_MERGES = 1 << 22  #: limit on the pairs that BPE merges, each of which takes about 200 bytes
MAX_PART = 1 << 16  #: characters encoded at once, unless there is no space, to bound memory


class SentencePiece:
    """Encoder of a SentencePiece model."""

    def __init__(self, model: SentencePieceModel, prefixes_spaced: bool = True) -> None:
        """Build the encoder; raise ``ValueError`` if it would take too much memory.

        ``prefixes_spaced``: whether a text with a space at its start gets the model's prefix, one more space, as in
        SentencePiece. The Metaspace of Hugging Face ``tokenizers`` gives it none.
        """
        self.model, self._prefixes_spaced = model, prefixes_spaced
        fixed = tuple(piece.text for piece in model.pieces if piece.type == USER_DEFINED)
        self._replace = Replacer(model.charsmap, fixed)
        self._unknown = model.unknown_id
        self._bytes = {piece.text: id for id, piece in enumerate(model.pieces) if piece.type == BYTE}
        # BPE never merges into or out of a user-defined piece.
        self._fixed = {text: id for id, text in _numbered(model, USER_DEFINED)}
        longest_first = sorted(map(re.escape, self._fixed), key=len, reverse=True)
        cuts = model.algorithm == "bpe" and bool(longest_first)
        self._cuts = re.compile("(" + "|".join(longest_first) + ")") if cuts else None
        self._engine, self._ids = _build(model)
        # A part may begin at any space if no piece has one inside.
        inside = any(SPACE in piece.text[1:] for piece in model.pieces if piece.type in (NORMAL, USER_DEFINED))
        self._splits = not inside

    def _prefix(self, text: str) -> str:
        """Return the space that is put before a text."""
        if not self.model.add_dummy_prefix or (not self._prefixes_spaced and text[:1] in (" ", SPACE)):
            return ""
        return " "

    def normalize(self, text: str, prefix: bool = True) -> str:
        """Return the text that is cut into pieces, with ``▁`` for spaces.

        Without ``prefix``, it follows other text, and no space is put before it.
        """
        if not text:
            return ""
        text = self._replace(text)
        if self.model.remove_extra_whitespaces:
            text = _RUNS.sub(" ", text).lstrip(" ")
        text = ((self._prefix(text) if prefix else "") + text).replace(" ", SPACE)
        # Like SentencePiece, this drops a final U+2581 of the text itself as well.
        return text.rstrip(SPACE) if self.model.remove_extra_whitespaces else text

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the pieces of each text; raise ``TypeError`` for surrogates."""
        return [ids for ids, _ in self.encode_with_unknown(texts)]

    def encode_with_unknown(
        self, texts: Sequence[str], prefixes: Sequence[bool] | None = None
    ) -> list[tuple[list[int], list[str]]]:
        """Return the ids of each text, and the text of each of its unknown pieces.

        ``prefixes`` says of each text whether a space is put before it; None: of all.
        """
        prefixes = [True] * len(texts) if prefixes is None else prefixes
        return self.encode_normalized([self.normalize(*pair) for pair in zip(texts, prefixes, strict=True)])

    def encode_normalized(self, texts: Sequence[str]) -> list[tuple[list[int], list[str]]]:
        """Return what ``encode_with_unknown`` does, for normalized texts."""
        lines = list(map(self._parts, texts))
        plain = list(
            dict.fromkeys(part for line in lines for part in line if part not in self._fixed or not self._cuts)
        )
        found = dict(zip(plain, self._encode(plain), strict=True))
        joined = []
        for line in lines:
            ids: list[int] = []
            unknown: list[str] = []
            for part in line:
                new, surfaces = found[part] if part in found else ([self._fixed[part]], [])
                named = iter(surfaces)
                for id in new:
                    surface = next(named) if id == self._unknown else ""
                    if id == self._unknown and ids[-1:] == [id]:  # a run of unknown characters is one piece
                        unknown[-1] += surface
                    else:
                        ids.append(id)
                        unknown += [surface] if id == self._unknown else []
            joined.append((ids, unknown))
        return joined

    def _parts(self, text: str) -> list[str]:
        """Split normalized text at user-defined pieces, and where it is too long."""
        parts = [text] if self._cuts is None else self._cuts.split(text)
        if len(text) <= MAX_PART or not self._splits:
            return [part for part in parts if part]
        pattern = rf"[\s\S]{{1,{MAX_PART}}}[^{SPACE}]*"
        return [short for part in parts for short in re.findall(pattern, part)]

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, begin, end) per piece, in characters before normalization."""
        origins = self._origins(text)
        spans: list[tuple[int, int, int]] = []
        at = 0
        for part in self._parts("".join(character for character, _, _ in origins)):
            if self._cuts is not None and part in self._fixed:
                found = [(self._fixed[part], 0, len(part))]
            else:
                found = self._with_bytes(self._engine.encode(part, add_special_tokens=False), part)
            for id, begin, end in found:
                first, last = origins[at + begin][1], origins[at + end - 1][2]
                if id == self._unknown and spans and spans[-1][0] == id:
                    spans[-1] = id, spans[-1][1], last
                else:
                    spans.append((id, first, last))
            at += len(part)
        return spans

    def _origins(self, text: str) -> list[tuple[str, int, int]]:
        """Return (character, begin, end) for each character of the normalized text."""
        found: list[tuple[str, int, int]] = []
        squeezes = self.model.remove_extra_whitespaces
        for begin, end, new in self._replace.parts(text):
            changed = new != text[begin:end]
            for number, character in enumerate(new):
                if not (squeezes and character == " " and (not found or found[-1][0] == " ")):
                    span = (begin, end) if changed else (begin + number, begin + number + 1)
                    found.append((character, *span))
        if text and self._prefix(text):
            found.insert(0, (" ", 0, 0))
        found = [(SPACE if character == " " else character, begin, end) for character, begin, end in found]
        while squeezes and found and found[-1][0] == SPACE:
            found.pop()
        return found

    def _encode(self, parts: list[str]) -> list[tuple[list[int], list[str]]]:
        """Return the ids of each part, and its unknown text."""
        encodings = self._engine.encode_batch(parts, add_special_tokens=False)
        rows: list[tuple[list[int], list[str]]] = []
        for encoding, part in zip(encodings, parts, strict=True):
            ids, unknown = [self._ids[id] for id in encoding.ids], list[str]()
            if self._unknown in ids and self.model.byte_fallback:
                ids = [id for id, _, _ in self._with_bytes(encoding, part)]
            elif self._unknown in ids:
                spans = zip(ids, encoding.offsets, strict=True)
                unknown = [part[begin:end] for id, (begin, end) in spans if id == self._unknown]
            rows.append((ids, unknown))
        return rows

    def _with_bytes(self, encoding: Encoding, part: str) -> list[tuple[int, int, int]]:
        """Return (id, begin, end) of pieces; unknown ones become bytes if possible."""
        found: list[tuple[int, int, int]] = []
        for number, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            id = self._ids[number]
            if id != self._unknown or not self.model.byte_fallback:
                found.append((id, begin, end))
                continue
            for place in range(begin, end):
                found += [(self._bytes[f"<0x{byte:02X}>"], place, place + 1) for byte in part[place].encode()]
        return found


def _numbered(model: SentencePieceModel, *types: int) -> list[tuple[int, str]]:
    return [(id, piece.text) for id, piece in enumerate(model.pieces) if piece.type in types]


def _build(model: SentencePieceModel) -> tuple[Engine, list[int]]:
    """Return the library's tokenizer, and the id of the piece of each of its entries."""
    try:
        return (_unigram if model.algorithm == "unigram" else _bpe)(model)
    except (KeyboardInterrupt, SystemExit, MemoryError, ValueError):
        raise
    except BaseException as error:  # a panic in the Rust library is not an Exception
        raise ValueError(f"the tokenizers library rejects it: {error}") from error


def _unigram(model: SentencePieceModel) -> tuple[Engine, list[int]]:
    worst = min((piece.score for piece in model.pieces if piece.type == NORMAL), default=0.0)
    chosen = _numbered(model, NORMAL, USER_DEFINED)
    if n_nodes(text.encode().decode("latin-1") for _, text in chosen) > MAX_NODES:
        raise ValueError("its pieces are too large in total")
    entries = [(text, model.pieces[id].score) for id, text in chosen]
    # The library puts unknown characters ten below the worst score, as SentencePiece does.
    engine = models.Unigram([(_UNKNOWN, worst), *entries], unk_id=0, byte_fallback=False)
    return Engine(engine), [model.unknown_id, *(id for id, _ in chosen)]


def bpe_merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """Return the pairs that BPE merges, the first one first; none of unigram models."""
    return [] if model.algorithm == "unigram" else _merges(model)[2]


def _bpe(model: SentencePieceModel) -> tuple[Engine, list[int]]:
    vocabulary, ids, merges = _merges(model)
    return Engine(models.BPE(vocabulary, merges, unk_token=_UNKNOWN, fuse_unk=True, byte_fallback=False)), ids


def _merges(model: SentencePieceModel) -> tuple[dict[str, int], list[int], list[tuple[str, str]]]:
    """Return the library's vocabulary, the piece of each of its entries, and merges."""
    numbered = _numbered(model, NORMAL)
    ids = [model.unknown_id, *(id for id, _ in numbered)]
    vocabulary = {_UNKNOWN: 0, **{text: number for number, (_, text) in enumerate(numbered, 1)}}
    # Single characters are merged whether they are pieces or not; those that are not stay unknown if left alone.
    for character in sorted({character for _, text in numbered for character in text}):
        if character not in vocabulary:
            vocabulary[character] = len(ids)
            ids.append(model.unknown_id)
    merges: list[tuple[float, int, str, str]] = []
    for id, text in numbered:
        pairs = ((text[:k], text[k:]) for k in range(1, len(text)))
        merges += [(-model.pieces[id].score, id, *pair) for pair in pairs if vocabulary.keys() >= set(pair)]
        if len(merges) > MAX_MERGES:
            raise ValueError(f"its pieces can be merged in more than {MAX_MERGES:,} ways")
    ordered = [(left, right) for _, _, left, right in sorted(merges, key=lambda merge: merge[:2])]
    return vocabulary, ids, ordered
