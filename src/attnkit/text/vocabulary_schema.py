"""Tokenizer JSON of vocabulary files (Hugging Face ``tokenizers``) and its checks.

The configuration of a vocabulary determines its tokenizer, except for the entries and merges. When a file is read,
these are checked one by one, and the rest must equal the pipeline of the configuration. The library itself accepts
patterns that never terminate, padding of any length, and trees so deep that freeing them aborts the process.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from tokenizers import Tokenizer as Engine

from attnkit.protocols import SPECIALS
from attnkit.text.config import MAX_ENTRIES, VocabularyConfig

CONTINUED = "‿"  #: prefix of WordPiece entries inside a word; outside the byte alphabet, so it is unambiguous
BERT_CONTINUED = "##"
"""Prefix of BERT entries inside a word."""

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_MOVED = iter(range(0x100, 0x200))
CHARACTERS = [chr(byte if byte in _PRINTABLE else next(_MOVED)) for byte in range(256)]
"""Character of each byte: itself if it is printable and not a space, else the next one from U+0100 on.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and ByteLevel in ``tokenizers``.
"""
BYTE_OF = {character: byte for byte, character in enumerate(CHARACTERS)}  #: byte of each character
_LATIN_1_OF = str.maketrans({character: chr(byte) for character, byte in BYTE_OF.items()})

Tree = dict[str, Any]

# Words keep their apostrophes (don't, l'homme): the counts decide whether to split there.
# A vocabulary file contains its tokenizer, which must equal this one: a change here requires a new ``VERSION`` of the
# file, and the old pattern must be kept for files of the old version.
WORDS = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
MAX_WORD_LENGTH = 48  #: characters; WordPiece takes time quadratic in the length of a word and gives up on long ones
MAX_BERT_WORD_LENGTH = 100  #: characters; longer words are unknown to BERT
UNKNOWN = SPECIALS[3]
NO_WORDS: Tree = {"type": "WordLevel", "unk_token": UNKNOWN, "vocab": {}}  #: model of whole words without entries
MAX_BYTES = 1 << 25  #: maximum size of a vocabulary file; 250,000 entries with their merges take 10 MB
MAX_TOKEN_BYTES = 4 * MAX_WORD_LENGTH  #: maximum length of an entry in kinds that match entries letter by letter
MAX_NODES = 2_000_000  #: maximum size of the library's trie of unigram entries, at 360 bytes per node (720 MB)
UNUSED = re.compile("<unused[0-9]+>")

_SINGLE = re.compile("(?s:.)|<0x[0-9A-F]{2}>|<unused[0-9]+>")


# Llama 3 splits at contractions and keeps at most three digits together (Grattafiori et al. 2024, section 3.2).
_LLAMA_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_SPLIT: Tree = {
    "type": "Split",
    "pattern": {"Regex": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_LLAMA_WORDS}"},
    "behavior": "Isolated",
    "invert": False,
}


def pipeline(config: VocabularyConfig, model: Tree) -> Tree:
    """Return the JSON form of a tokenizer: normalizer and splitter, then ``model``."""
    kind = config.kind
    normalizer: Tree | None = None
    if kind == "bert":  # strip_accents=None: accents are stripped if text is lower-cased
        bert = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
        normalizer = {"type": "BertNormalizer", **bert, "lowercase": config.lowercase}
    else:
        steps = [config.normalize.upper()] * (config.normalize != "none") + ["Lowercase"] * config.lowercase
        if steps:
            normalizer = {"type": "Sequence", "normalizers": [{"type": step} for step in steps]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": kind == "gpt2"}
    splitter: Tree | None
    if kind == "char":
        splitter = None
    elif kind == "bert":
        splitter = {"type": "BertPreTokenizer"}
    elif kind == "gpt2":
        splitter = byte_level
    elif kind == "llama3":
        splitter = {"type": "Sequence", "pretokenizers": [LLAMA_SPLIT, byte_level]}
    elif kind == "word":
        splitter = _split({"String": " "}, "MergedWithNext")
    else:
        splits = [_split({"Regex": WORDS}, "Isolated")]
        if kind == "wordpiece":
            splits.append(_split({"Regex": rf"[\s\S]{{1,{MAX_WORD_LENGTH}}}"}, "Isolated"))
        splitter = {"type": "Sequence", "pretokenizers": [*splits, byte_level]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": splitter,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def build(tree: Tree) -> Engine:
    """Build the tokenizer of a validated JSON form; raise ``ValueError`` if rejected."""
    try:
        return Engine.from_str(json.dumps(tree))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the Rust library is not an Exception
        raise ValueError(f"the tokenizers library rejects it: {error}") from error


def model_of(config: VocabularyConfig, ids: dict[str, int], merges: list[list[str]]) -> Tree:
    """Return the JSON form of the model; for ``unigram``, entries are added later."""
    if config.kind == "unigram":  # uses the likeliest segmentation; the id of an entry is its index
        return {"type": "Unigram", "unk_id": SPECIALS.index(UNKNOWN), "vocab": [], "byte_fallback": False}
    if config.kind == "word":
        return {**NO_WORDS, "vocab": ids}
    if config.kind in ("wordpiece", "bert"):  # use the longest matching entry, repeatedly
        own = config.kind == "wordpiece"
        return {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": CONTINUED if own else BERT_CONTINUED,
            # counted in bytes, since each is one character of the byte alphabet; entries of BERT are text
            "max_input_chars_per_word": 4 * MAX_WORD_LENGTH if own else MAX_BERT_WORD_LENGTH,
            "vocab": ids,
        }
    return {  # merges pairs; kind char has no merges
        "type": "BPE",
        "dropout": None,
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "byte_fallback": config.kind == "char" and config.byte_fallback,
        "ignore_merges": config.kind == "llama3",
        "fuse_unk": config.kind == "bpe",
        "vocab": ids,
        "merges": merges,
    }


def _split(pattern: Tree, behavior: str) -> Tree:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def validate(config: VocabularyConfig, tree: Any) -> list[str]:
    """Return the entries of a JSON form in id order; raise ``ValueError`` if invalid."""
    model = tree.get("model") if isinstance(tree, dict) else None
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    vocab: Any = model.get("vocab")
    if config.kind == "unigram":
        rows = isinstance(vocab, list) and all(isinstance(row, list | tuple) and len(row) == 2 for row in vocab)
        _require(rows, "its entries are not a list of names and scores")
        scored = all(isinstance(n, str) and isinstance(s, float) and abs(s) <= 1e6 for n, s in vocab)  # false for NaN
        _require(scored, "an entry has no name or no finite score")
        names = [name for name, _ in vocab]
    else:
        numbered = isinstance(vocab, dict) and all(type(id) is int for id in vocab.values())
        _require(numbered, "vocabulary entries have no valid ids")
        names = sorted(vocab, key=vocab.__getitem__)
        _require([vocab[name] for name in names] == list(range(len(vocab))), "the vocabulary ids are not contiguous")
    _check_entries(config, names)
    merges: Any = model.get("merges")
    if config.kind in ("bpe", "gpt2", "llama3"):
        listed = isinstance(merges, list) and len(merges) <= MAX_ENTRIES
        _require(listed, "its merges are not a list, or too long a list")
        paired = all(isinstance(merge, list) and len(merge) == 2 for merge in merges)
        parts = list(chain.from_iterable(merges)) if paired else [None]
        _require(all(isinstance(part, str) for part in parts), "a merge is not a pair of entries")
        known = {*parts, *map("".join, merges)} <= set(names)
        _require(known, "a merge refers to an unknown entry")
    elif config.kind == "char":
        _require(merges == [], "kind char has no merges")

    expected = pipeline(config, model_of(config, {}, []))
    # compared as text, without entries and merges: 1, 1.0 and true are equal, but their texts differ
    forms = []
    for one in (tree, expected):
        rest = {key: None if key in ("vocab", "merges") else value for key, value in one["model"].items()}
        forms.append(json.dumps({**one, "model": rest}, sort_keys=True))
    _require(forms[0] == forms[1], "the tokenizer does not match its configuration")
    return names


def _require(condition: bool, fault: str) -> None:
    if not condition:
        raise ValueError(fault)


def _check_entries(config: VocabularyConfig, names: Sequence[str]) -> None:
    kind, n_fixed = config.kind, len(SPECIALS) + len(config.symbols)
    _require(len(names) <= MAX_ENTRIES, f"it has {len(names):,} entries, more than {MAX_ENTRIES:,}")
    fixed, rest = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols)))], names[n_fixed:]
    starts = list(names[:n_fixed]) == fixed
    _require(starts, "the vocabulary does not start with the special entries and the symbols")
    _require(all(rest) and len(set(names)) == len(names), "empty or duplicate entry")
    if kind == "char":
        _require(all(map(_SINGLE.fullmatch, rest)), "an entry is not a single character")
    bare = [name.removeprefix(CONTINUED) for name in rest] if kind == "wordpiece" else rest
    if kind in ("char", "word", "bert"):
        "".join(rest).encode()  # raises ValueError for a lone surrogate
    else:
        written = all(bare) and set("".join(bare)) <= BYTE_OF.keys()
        _require(written, "an entry is not written in the byte alphabet")
    if kind in ("bert", "wordpiece", "unigram"):
        short = max(map(len, bare), default=0) <= MAX_TOKEN_BYTES
        _require(short, f"an entry has more than {MAX_TOKEN_BYTES} characters")
    if kind == "unigram":
        _require(n_nodes(rest) <= MAX_NODES, "its entries are too large in total")


def token_bytes(config: VocabularyConfig, names: Sequence[str]) -> list[bytes]:
    """Return the UTF-8 bytes of each entry; empty for padding, BOS, EOS and unused."""
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
            table.append(name.removeprefix(CONTINUED).translate(_LATIN_1_OF).encode("latin-1"))
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
