"""Import of Llama 2's vocabulary: SentencePiece's BPE with pieces of bytes.

Read is ``tokenizer.json``, or ``tokenizer.model`` if the folder has no such file, as transformers does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attnkit.conversion.vocabulary_files import Tree, Vocabulary, added_tokens, mapping, read_file, read_tree
from attnkit.errors import RunError
from attnkit.text.config import MAX_ENTRIES, VocabularyConfig
from attnkit.text.origin import LLAMA
from attnkit.text.piece_vocabulary import Prefix, make_tree
from attnkit.text.sentencepiece import bpe_merges
from attnkit.text.sentencepiece_file import (
    BYTE,
    CONTROL,
    MAX_FILE_BYTES,
    NORMAL,
    SPACE,
    UNKNOWN,
    SentencePieceEntry,
    read_sentencepiece,
    write_byte_pairs,
)
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES

DEFAULTS = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}  #: default names of the special tokens


_TIKTOKEN = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")


class _Pieces(NamedTuple):
    """Pieces of a folder."""

    raw: bytes  #: the SentencePiece file
    vocabulary: dict[str, int]
    added: dict[int, str]
    prefix: Prefix | None


def has_llama_pieces(folder: Path) -> bool:
    """Return whether a folder has the tokenizer of Llama 2, not that of Llama 3."""
    if not (folder / "tokenizer.json").exists():
        return (folder / LLAMA).exists()
    model = mapping(read_tree(folder / "tokenizer.json", MAX_BYTES).get("model"))
    return model.get("type") == "BPE" and model.get("byte_fallback") is True


def read_llama_pieces(folder: Path, names: Mapping[str, str], settings: Tree, n_rows: int) -> Vocabulary:
    """Read the vocabulary of a Llama 2.

    ``names`` are those of the special tokens by role, ``settings`` is ``tokenizer_config.json``. Raises ``RunError`` if
    files are damaged, or not supported, or do not fit ``n_rows`` embeddings.
    """
    listed = folder / "tokenizer.json"
    where = listed if listed.exists() else folder / LLAMA
    try:
        if listed.exists():
            found = _listed(read_tree(listed, MAX_BYTES), names["unk"])
        else:
            raw = read_file(where, MAX_FILE_BYTES, bytes)
            if _TIKTOKEN.match(raw):
                raise ValueError("this is a file of tiktoken, as in Llama 3's original folder; add its tokenizer.json")
            pieces = read_sentencepiece(raw).pieces
            vocabulary = {piece.text: id for id, piece in enumerate(pieces)}
            found = _Pieces(raw, vocabulary, _added(folder, settings), None)
        return _vocabulary(found, names, n_rows)
    except ValueError as error:
        raise RunError(f"the tokenizer cannot be imported: {error}", where=str(where)) from error


def _vocabulary(found: _Pieces, names: Mapping[str, str], n_rows: int) -> Vocabulary:
    """Return a vocabulary; raise ``ValueError`` if parts do not fit."""
    vocabulary = dict(found.vocabulary)
    for id, name in found.added.items():
        if vocabulary.setdefault(name, id) != id:
            raise ValueError(f"the added token '{name[:40]}' has the id {id}, but the entry {vocabulary[name]}")
    if (late := next((name for name, id in vocabulary.items() if not 0 <= id < n_rows), None)) is not None:
        raise ValueError(f"entry '{late[:40]}' has id {vocabulary[late]}, but the model has {n_rows} embeddings")
    for role in DEFAULTS:
        if names[role] not in vocabulary:
            raise ValueError(f"it has no {role}_token")
    roles: dict[str, str | None] = {role: names[role] for role in DEFAULTS}
    pad = names.get("pad")
    # Llama 2 has no padding; where another token serves as such, it keeps its own role.
    roles = {"pad": pad if pad in vocabulary and pad not in roles.values() else None, **roles}
    symbols = tuple(name for _, name in sorted(found.added.items()) if name not in roles.values())
    config = VocabularyConfig(
        kind="sentencepiece", size=min(MAX_ENTRIES, max(8, n_rows)), symbols=symbols, multiple_of=1, min_frequency=1
    )
    tree = make_tree(found.raw, vocabulary, roles, n_rows, "anywhere", prefix=found.prefix)
    tokenizer = Tokenizer(config, tree)
    assert tokenizer.pieces is not None
    return Vocabulary(tokenizer, list(tokenizer.pieces.order))


def _added(folder: Path, settings: Tree) -> dict[int, str]:
    """Return the tokens that a folder adds to its SentencePiece file, by id."""
    path = folder / "added_tokens.json"
    tokens = [{"id": id, "content": name} for name, id in (read_tree(path) if path.exists() else {}).items()]
    listed = mapping(settings.get("added_tokens_decoder"))
    tokens += [{**mapping(token), "id": int(id)} for id, token in listed.items() if id.isdecimal() and len(id) < 8]
    return _checked({"added_tokens": tokens})


def _checked(tree: Tree) -> dict[int, str]:
    """Return the added tokens; raise ``ValueError`` if one takes spaces or words."""
    found = added_tokens(tree)
    for token in tree.get("added_tokens") or []:
        odd = next((key for key in ("lstrip", "rstrip", "single_word") if token.get(key)), None)
        if odd is not None:
            raise ValueError(f"the added token '{token['content'][:40]}' has {odd}")
    return found


def _listed(tree: Tree, unknown: str) -> _Pieces:
    """Return the pieces of a ``tokenizer.json``; raise ``ValueError`` for other kinds."""
    model, added = mapping(tree.get("model")), _checked(tree)
    entries, merges = model.get("vocab"), model.get("merges")
    if not isinstance(entries, dict) or not all(type(id) is int for id in entries.values()):
        raise ValueError("vocabulary entries have no valid ids")
    if not isinstance(merges, list):
        raise ValueError("its merges are not a list")
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    if not all(isinstance(pair, list) and [type(part) for part in pair] == [str, str] for pair in pairs):
        raise ValueError("a merge is not a pair of entries")
    for key, wanted in (("dropout", None), ("continuing_subword_prefix", None), ("end_of_word_suffix", None)):
        if (model.get(key) or None) is not wanted:
            raise ValueError(f"unsupported tokenizer with {key} {str(model[key])[:40]}")
    if model.get("ignore_merges"):
        raise ValueError("unsupported tokenizer with ignore_merges and byte_fallback")
    if unknown not in entries or (model.get("unk_token") or unknown) != unknown:
        raise ValueError("it has no unk_token, or two")
    # Pieces with a higher score are merged first: the place of a merge becomes the score.
    places = {left + right: -float(place) for place, (left, right) in reversed([*enumerate(pairs)])}
    controls = {*added.values()} - {unknown}
    prefixed, prefix = _spaces(tree)
    pieces = []
    for name, _ in sorted(entries.items(), key=lambda entry: entry[1]):
        kind = UNKNOWN if name == unknown else CONTROL if name in controls else NORMAL
        if kind == NORMAL and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            kind = BYTE
        pieces.append(SentencePieceEntry(name, places.get(name, 0.0), kind))
    raw = write_byte_pairs(pieces, prefixed)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError("its entries are too large in total")
    _check_merges([(left, right) for left, right in pairs], bpe_merges(read_sentencepiece(raw)))
    return _Pieces(raw, dict(entries), added, prefix)


def _check_merges(listed: list[tuple[str, str]], scored: list[tuple[str, str]]) -> None:
    """Raise ``ValueError`` if merges are not those of SentencePiece with such scores.

    Pairs that make the same piece may have any order among themselves.
    """
    if sorted(listed) != sorted(scored):
        odd = sorted({*listed} ^ {*scored}) or listed
        what = f"'{odd[0][0][:40]}' and '{odd[0][1][:40]}'"
        raise ValueError(f"its merges are not all pairs of pieces that make a piece, as in SentencePiece: {what}")
    if [left + right for left, right in listed] != [left + right for left, right in scored]:
        raise ValueError("its merges are not ordered by pieces, as in SentencePiece")


def _spaces(tree: Tree) -> tuple[bool, Prefix | None]:
    """Return whether texts get a space before them, and the form of that prefix.

    Raises ``ValueError`` for a normalizer, a splitter or a decoder that Llama has not.
    """
    prefixed, prefix = _prefix(tree)
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]
    steps += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    steps += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    if tree.get("decoder") != {"type": "Sequence", "decoders": steps}:
        raise ValueError("its decoder is not that of Llama 2")
    return prefixed, prefix


def _prefix(tree: Tree) -> tuple[bool, Prefix | None]:
    """Return the prefix of texts; raise ``ValueError`` for another normalizer."""
    before, after = tree.get("normalizer"), tree.get("pre_tokenizer")
    replace: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    steps = mapping(before).get("normalizers") if mapping(before).get("type") == "Sequence" else before
    if after is None and steps == [prepend, replace]:  # published with Llama 2
        return True, None
    if after is None and steps in (replace, [replace]):
        return False, None
    scheme = mapping(after).get("prepend_scheme")
    usual = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
    if before is None and after == usual:  # transformers 5 writes it
        if scheme == "never":
            return False, None
        if scheme in ("first", "always"):
            return True, scheme
    raise ValueError("its normalizer and pre_tokenizer are not those of Llama 2")
