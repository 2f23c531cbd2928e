"""Import of XLM-RoBERTa's vocabulary: SentencePiece's pieces with fairseq's ids.

The pieces are read from ``sentencepiece.bpe.model``, or from ``tokenizer.json`` if the folder has no such file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnkit.conversion.vocabulary_files import Tree, Vocabulary, added_tokens, read_file, read_tree, separators
from attnkit.errors import RunError
from attnkit.tasks.language_modeling.config import MASK
from attnkit.text.config import MAX_ENTRIES, VocabularyConfig
from attnkit.text.origin import SENTENCEPIECE
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece_file import (
    CONTROL,
    MAX_FILE_BYTES,
    NORMAL,
    UNKNOWN,
    SentencePieceEntry,
    read_sentencepiece,
    write_sentencepiece,
)
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  #: ids 0 to 3 in fairseq; SentencePiece has <unk>, <s>, </s> there
_OFFSET = 1  #: of the ids of all further pieces
_SPACES = "▁"


def read_encoder_pieces(folder: Path, names: Mapping[str, str], n_rows: int) -> Vocabulary:
    """Read the vocabulary of an XLM-RoBERTa.

    ``names`` are those of the special tokens by role. Raises ``RunError`` if files are missing, or damaged, or do not
    fit ``n_rows`` embeddings.
    """
    path, other = folder / SENTENCEPIECE, folder / "tokenizer.json"
    if not path.exists() and not other.exists():
        help = f"supported files: {SENTENCEPIECE} or tokenizer.json"
        raise RunError(f"no tokenizer in {folder}", help=help)
    tree = read_tree(other, MAX_BYTES) if other.exists() else None
    where = path if path.exists() else other
    try:
        if path.exists():
            raw = read_file(path, MAX_FILE_BYTES, bytes)
            vocabulary = _fairseq(raw) if tree is None else listed(tree)[0]
        else:
            assert tree is not None
            vocabulary, scores = listed(tree)
            raw = as_sentencepiece(tree, vocabulary, scores)
        added = {} if tree is None else added_tokens(tree)
        found = _vocabulary(raw, vocabulary, added, names, n_rows)
        return replace(found, separators=separators(tree or {}, "xlm-roberta"))
    except ValueError as error:
        raise RunError(f"the tokenizer cannot be imported: {error}", where=str(where)) from error


def _vocabulary(
    raw: bytes, vocabulary: dict[str, int], added: Mapping[int, str], names: Mapping[str, str], n_rows: int
) -> Vocabulary:
    """Return a vocabulary, with our mask; raise ``ValueError`` if parts do not fit."""
    for id, name in added.items():
        if vocabulary.setdefault(name, id) != id:
            raise ValueError(f"the added token '{name[:40]}' has the id {id}, but the entry {vocabulary[name]}")
    late = next((name for name, id in vocabulary.items() if not 0 <= id < n_rows), None)
    if late is not None:
        id = vocabulary[late]
        raise ValueError(f"entry '{late[:40]}' has id {id}, but the model has {n_rows} embeddings")
    for role in ("pad", "cls", "sep", "unk", "mask"):
        if names[role] not in vocabulary:
            raise ValueError(f"it has no {role}_token")
    roles: dict[str, str | None] = {"pad": names["pad"], "bos": names["cls"], "eos": names["sep"], "unk": names["unk"]}
    mask = names["mask"]
    if mask != MASK and MASK in vocabulary:
        raise ValueError(f"its entry '{MASK}' is not the mask")
    others = [name for id, name in sorted(added.items()) if name not in (*roles.values(), mask)]
    vocabulary = {MASK if name == mask else name: id for name, id in vocabulary.items()}
    config = VocabularyConfig(
        kind="sentencepiece",
        size=min(MAX_ENTRIES, max(8, n_rows)),
        symbols=(MASK, *others),
        multiple_of=1,
        min_frequency=1,
    )
    tokenizer = Tokenizer(config, make_tree(raw, vocabulary, roles, n_rows, "anywhere"))
    assert tokenizer.pieces is not None
    return Vocabulary(tokenizer, list(tokenizer.pieces.order))


def _fairseq(raw: bytes) -> dict[str, int]:
    """Return the ids of the pieces of a file in fairseq."""
    pieces = [piece.text for piece in read_sentencepiece(raw).pieces]
    vocabulary = {name: id for id, name in enumerate(FAIRSEQ)}
    for id, piece in enumerate(pieces[len(FAIRSEQ) - _OFFSET :], len(FAIRSEQ)):
        if vocabulary.setdefault(piece, id) != id:
            raise ValueError(f"its piece {id - _OFFSET} is '{piece[:40]}', a special token")
    return {**vocabulary, "<mask>": len(pieces) + _OFFSET}


def listed(tree: Tree) -> tuple[dict[str, int], list[float]]:
    """Return the ids and the scores of the entries of a ``tokenizer.json``."""
    model = tree.get("model")
    entries = model.get("vocab") if isinstance(model, Mapping) and model.get("type") == "Unigram" else None
    if not isinstance(entries, list):
        kind = model.get("type") if isinstance(model, Mapping) else None
        raise ValueError(f"its model is {str(kind)[:40]}; supported: Unigram")
    rows = [entry for entry in entries if isinstance(entry, list) and len(entry) == 2]
    if len(rows) != len(entries) or not all(isinstance(n, str) and type(s) in (int, float) for n, s in rows):
        raise ValueError("an entry has no name or no score")
    vocabulary = {name: id for id, (name, _) in enumerate(rows)}
    if len(vocabulary) != len(rows):
        raise ValueError("duplicate vocabulary entry")
    return vocabulary, [float(score) for _, score in rows]


def as_sentencepiece(tree: Tree, vocabulary: Mapping[str, int], scores: list[float]) -> bytes:
    """Return the SentencePiece file of a ``tokenizer.json``."""
    model = tree["model"]
    unknown, charsmap = model.get("unk_id"), _charsmap(tree)
    if type(unknown) is not int or not 0 <= unknown < len(scores) or model.get("byte_fallback"):
        raise ValueError("its unknown token is missing, or it has byte_fallback")
    special = set(added_tokens(tree).values())
    pieces = []
    for (name, id), score in zip(vocabulary.items(), scores, strict=True):
        kind = UNKNOWN if id == unknown else CONTROL if name in special else NORMAL
        if not abs(score) <= 1e6:  # false for NaN
            raise ValueError("an entry has no finite score")
        pieces.append(SentencePieceEntry(name, score, kind))
    raw = write_sentencepiece(pieces, charsmap)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError("its entries are too large in total")
    return raw


def _charsmap(tree: Tree) -> bytes:
    """Return the map of a ``tokenizer.json``; raise ``ValueError`` for other steps."""
    steps = _steps(tree.get("normalizer"), "normalizers")
    maps = [step.get("precompiled_charsmap") for step in steps if step.get("type") == "Precompiled"]
    spaces = ({"type": "Replace", "pattern": {"Regex": " {2,}"}}, {"type": "Strip", "strip_left": False})
    rest = [step for step in steps if step.get("type") != "Precompiled"]
    usual = all(any(step.items() >= space.items() for space in spaces) for step in rest)
    if len(maps) != 1 or not isinstance(maps[0], str) or not usual or steps[0] in rest:
        raise ValueError("its normalizer is not a character map of SentencePiece")
    before = [step.get("type") for step in _steps(tree.get("pre_tokenizer"), "pretokenizers")]
    marks = _steps(tree.get("pre_tokenizer"), "pretokenizers")[-1:]
    prepends = bool(marks) and marks[0].get("prepend_scheme", "always") in ("always", "first")
    if before not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]) or not prepends:
        raise ValueError(f"its pre-tokenizer is not that of XLM-RoBERTa: {', '.join(map(str, before))[:60]}")
    if marks[0].get("replacement", _SPACES) != _SPACES:
        raise ValueError("its pieces have another character for spaces")
    try:
        return base64.b64decode(maps[0], validate=True)
    except binascii.Error as error:
        raise ValueError("its character map is not in base64") from error


def _steps(value: Any, parts: str) -> list[Tree]:
    """Return the steps of a normalizer or pre-tokenizer, which may be a sequence."""
    listed = value.get(parts) if isinstance(value, Mapping) and value.get("type") == "Sequence" else [value]
    return [step for step in listed if isinstance(step, Mapping)] if isinstance(listed, list) else []
