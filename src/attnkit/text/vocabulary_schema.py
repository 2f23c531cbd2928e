"""Checks of the tokenizer in a vocabulary file, run before the library reads the file.

A vocabulary's configuration determines its tokenizer except for the entries and the merges. These are checked one by
one, and the rest must equal the pipeline of that configuration: the library itself accepts patterns that never end,
padding of any length and trees so deep that freeing them aborts the process.
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
"""Maximum size of a vocabulary file; 250,000 entries with their merges take 10 MB."""
MAX_TOKEN_BYTES = 4 * engine.MAX_WORD_LENGTH
"""Maximum length of an entry in kinds that look entries up letter by letter."""
MAX_NODES = 2_000_000
"""Maximum nodes of the library's trie of a unigram vocabulary: 360 bytes each, 720 MB in all."""
UNUSED = re.compile("<unused[0-9]+>")

_SINGLE = re.compile("(?s:.)|<0x[0-9A-F]{2}>|<unused[0-9]+>")


def validate(config: VocabularyConfig, tree: Any) -> list[str]:
    """Return the entries of a tokenizer's JSON form in order of their ids; ``ValueError`` if it does not fit."""
    model = tree.get("model") if isinstance(tree, dict) else None
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    vocab = model.get("vocab")
    if config.kind == "unigram":
        if not isinstance(vocab, list) or not all(isinstance(row, list | tuple) and len(row) == 2 for row in vocab):
            raise ValueError("its entries are not a list of names and scores")
        for name, score in vocab:
            finite = isinstance(score, float) and math.isfinite(score) and abs(score) <= 1e6
            if not isinstance(name, str) or not finite:
                raise ValueError("an entry has no name or no finite score")
        names = [name for name, _ in vocab]
    else:
        if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
            raise ValueError("its entries have no numbers")
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise ValueError("the ids of the vocabulary have holes")
        names = sorted(vocab, key=vocab.__getitem__)
    _check_entries(config, names)
    if config.kind in ("bpe", "gpt2"):
        _check_merges(model.get("merges"), set(names))
    elif config.kind == "char" and model.get("merges") != []:
        raise ValueError("single characters have no merges")
    expected = engine.pipeline(config, engine.model_of(config, {}, []))
    if _form(tree, model) != _form(expected, expected["model"]):
        raise ValueError("its tokenizer is not what its configuration says")
    return names


def _form(tree: dict[str, Any], model: dict[str, Any]) -> str:
    """Return a tokenizer without its entries and merges, as text: 1, 1.0 and true are equal, their texts are not."""
    blank = {key: None if key in ("vocab", "merges") else value for key, value in model.items()}
    return json.dumps({**tree, "model": blank}, sort_keys=True)


def _check_entries(config: VocabularyConfig, names: Sequence[str]) -> None:
    if len(names) > MAX_ENTRIES:
        raise ValueError(f"it has {len(names):,} entries, more than {MAX_ENTRIES:,}")
    fixed = (*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols))))
    if tuple(names[: len(fixed)]) != fixed:
        raise ValueError("the vocabulary does not start with the special entries and the symbols")
    rest = names[len(fixed) :]
    if not all(rest) or len(set(names)) != len(names):
        raise ValueError("an entry is empty or stands twice")
    if config.kind == "char" and not all(map(_SINGLE.fullmatch, rest)):
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
    """Return the UTF-8 bytes of each entry, none for padding and other special entries."""
    space = " " if config.kind == "word" else ""
    table = [b"", b"", b"", *((space + text).encode() for text in ("<unk>", *config.symbols))]
    for name in names[len(table) :]:
        if UNUSED.fullmatch(name):
            table.append(b"")
        elif config.kind == "word":
            table.append(name.encode())
        elif config.kind == "char":
            table.append(bytes.fromhex(name[3:5]) if len(name) == 6 else name.encode())
        elif config.kind == "bert":
            begins = not name.startswith(BERT_CONTINUED)
            table.append((f" {name}" if begins else name[len(BERT_CONTINUED) :]).encode())
        else:
            table.append(bytes(BYTE_OF[character] for character in name.removeprefix(CONTINUED)))
    return table


def n_nodes(names: Iterable[str]) -> int:
    """Return the number of nodes of a trie of names, one per distinct prefix.

    >>> n_nodes(["an", "ant", "be"])
    5
    """
    n, before = 0, ""
    for name in sorted(names):
        shared = next((i for i, (a, b) in enumerate(zip(before, name, strict=False)) if a != b), len(before))
        n, before = n + len(name) - shared, name
    return n
