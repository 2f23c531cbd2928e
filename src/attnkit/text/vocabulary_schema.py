"""What the tokenizer of a vocabulary file may be, checked before the library sees it.

A vocabulary's configuration decides all of its tokenizer but the entries and the merges. So the rest has to be equal to
what ``engine`` makes of that configuration, and these are checked one by one: the library itself takes patterns that
never end, padding of any length and trees so deep that freeing them aborts the process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from attnkit.protocols import SPECIALS
from attnkit.text import hf_pipelines as engine
from attnkit.text.config import MAX_ENTRIES, VocabularyConfig
from attnkit.text.hf_pipelines import BERT_CONTINUED, BYTE_OF, CONTINUED

MAX_BYTES = 1 << 25
"""Of a vocabulary file; 250,000 entries with their merges take 10 MB."""
MAX_TOKEN_BYTES = 4 * engine.MAX_WORD_LENGTH
"""Characters of an entry of the kinds that look entries up letter by letter."""
MAX_NODES = 2_000_000
"""Of the tree of letters that the library makes of a unigram vocabulary: at 360 bytes each 720 MB, < 1 GB in all."""
UNUSED = re.compile("<unused[0-9]+>")

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_BLANK: dict[str, Any] = {"vocab": None, "merges": None}


def validate(config: VocabularyConfig, tree: Any) -> list[str]:
    """Return the entries of a tokenizer's JSON form in order of their ids.

    Raises:
        ValueError: It is not the tokenizer of a vocabulary of this configuration.
    """
    model = tree.get("model") if isinstance(tree, dict) else None
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    names = _listed(model.get("vocab")) if config.kind == "unigram" else _numbered(model.get("vocab"))
    _check_entries(config, names)
    if config.kind in ("bpe", "gpt2"):
        _check_merges(model.get("merges"), set(names))
    expected = engine.pipeline(config, engine.model_of(config, {}, []))
    if config.kind == "char" and model.get("merges") != []:
        raise ValueError("single characters have no merges")
    if _form(tree, model) != _form(expected, expected["model"]):
        raise ValueError("its tokenizer is not what its configuration says")
    return names


def _form(tree: dict[str, Any], model: dict[str, Any]) -> str:
    """Return all of a tokenizer but its entries and merges, as text: 1, 1.0 and true are equal, their texts are not."""
    blank = {key: None if key in _BLANK else value for key, value in model.items()}
    return json.dumps({**tree, "model": blank}, sort_keys=True)


def _numbered(vocab: Any) -> list[str]:
    if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
        raise ValueError("its entries have no numbers")
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise ValueError("the ids of the vocabulary have holes")
    return sorted(vocab, key=vocab.__getitem__)


def _listed(vocab: Any) -> list[str]:
    if not isinstance(vocab, list) or not all(isinstance(entry, list | tuple) and len(entry) == 2 for entry in vocab):
        raise ValueError("its entries are not a list of names and scores")
    for name, score in vocab:
        if not isinstance(name, str) or not isinstance(score, float) or not math.isfinite(score) or abs(score) > 1e6:
            raise ValueError("an entry has no name or no finite score")
    return [name for name, _ in vocab]


def _check_entries(config: VocabularyConfig, names: Sequence[str]) -> None:
    if len(names) > MAX_ENTRIES:
        raise ValueError(f"it has {len(names):,} entries, more than {MAX_ENTRIES:,}")
    fixed = (*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols))))
    if tuple(names[: len(fixed)]) != fixed:
        raise ValueError("the vocabulary does not start with the special entries and the symbols")
    rest = names[len(fixed) :]
    if not all(rest) or len(set(names)) != len(names):
        raise ValueError("an entry is empty or stands twice")
    if config.kind == "char" and not all(len(name) == 1 or _BYTE.fullmatch(name) or _unused(name) for name in rest):
        raise ValueError("an entry is not a single character")
    if config.kind == "bert" and max(map(len, rest), default=0) > MAX_TOKEN_BYTES:
        raise ValueError(f"an entry has more than {MAX_TOKEN_BYTES} characters")
    if config.kind in ("char", "word", "bert"):
        "".join(rest).encode()  # a lone surrogate is a ValueError
        return
    bare = [name.removeprefix(CONTINUED) for name in rest] if config.kind == "wordpiece" else rest
    if not all(bare) or not set("".join(bare)) <= BYTE_OF.keys():
        raise ValueError("an entry is not written in the byte alphabet")
    if config.kind not in ("bpe", "gpt2") and max(map(len, bare), default=0) > MAX_TOKEN_BYTES:
        raise ValueError(f"an entry has more than {MAX_TOKEN_BYTES} characters")
    if config.kind == "unigram" and n_nodes(rest) > MAX_NODES:
        raise ValueError("its entries are too many and too long")


def _check_merges(merges: Any, names: set[str]) -> None:
    if not isinstance(merges, list) or len(merges) > MAX_ENTRIES:
        raise ValueError("its merges are not a list, or too long a list")
    for merge in merges:
        if not isinstance(merge, list) or len(merge) != 2 or not all(isinstance(part, str) for part in merge):
            raise ValueError("a merge is not a pair of entries")
        left, right = merge
        if left not in names or right not in names or left + right not in names:
            raise ValueError("a merge speaks of an entry that is not there")


def token_bytes(config: VocabularyConfig, names: Sequence[str]) -> list[bytes]:
    """Return the bytes of UTF-8 that each entry represents, none for padding and the like."""
    n_fixed = len(SPECIALS) + len(config.symbols)
    unknown = b" <unk>" if config.kind == "word" else b"<unk>"
    space = " " if config.kind == "word" else ""
    table = [b"", b"", b"", unknown, *((space + symbol).encode() for symbol in config.symbols)]
    return table + [_meaning(config, name) for name in names[n_fixed:]]


def _meaning(config: VocabularyConfig, name: str) -> bytes:
    if UNUSED.fullmatch(name):
        return b""
    if config.kind == "word":
        return name.encode()
    if config.kind == "char":
        return bytes.fromhex(name[3:5]) if len(name) == 6 else name.encode()
    if config.kind == "bert":
        return (name[len(BERT_CONTINUED) :] if name.startswith(BERT_CONTINUED) else f" {name}").encode()
    return bytes(BYTE_OF[character] for character in name.removeprefix(CONTINUED))


def n_nodes(names: Iterable[str]) -> int:
    """Return how many letters a tree of names holds: one for each different beginning.

    >>> n_nodes(["an", "ant", "be"])
    5
    """
    n, before = 0, ""
    for name in sorted(names):
        shared = next((i for i, (a, b) in enumerate(zip(before, name, strict=False)) if a != b), len(before))
        n, before = n + len(name) - shared, name
    return n


def _unused(name: str) -> bool:
    return UNUSED.fullmatch(name) is not None
