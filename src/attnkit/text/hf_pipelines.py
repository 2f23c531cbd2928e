"""Pipelines of Hugging Face ``tokenizers`` as JSON, one per kind of vocabulary, and the byte alphabet."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer as Engine

from attnkit.protocols import SPECIALS
from attnkit.text.config import VocabularyConfig

CONTINUED = "‿"
"""Prefix of WordPiece entries inside a word; outside the byte alphabet, so it is unambiguous."""
BERT_CONTINUED = "##"
"""The same prefix in the vocabularies of BERT."""


def _characters() -> list[str]:
    """Return the character of each byte: itself where it is printable and no space, else the next from U+0100 on.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and ``tokenizers``' ByteLevel.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters, n_moved = [], 0
    for byte in range(256):
        characters.append(chr(byte if byte in printable else 0x100 + n_moved))
        n_moved += byte not in printable
    return characters


CHARACTERS = _characters()
"""The character of each byte."""
BYTE_OF = {character: byte for byte, character in enumerate(CHARACTERS)}
"""The byte of each character."""


Tree = dict[str, Any]

# A word keeps its apostrophes (don't, l'homme): the counts decide whether to cut there.
# A vocabulary file holds its tokenizer, which must be equal to this one: a change here takes a new ``VERSION`` of the
# file, and keeps what the old one meant.
WORDS = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
MAX_WORD_LENGTH = 48
"""Characters: WordPiece takes time quadratic in the length of a word and gives up on long ones."""
MAX_BERT_WORD_LENGTH = 100
"""Characters; longer words are unknown to BERT."""
UNKNOWN = SPECIALS[3]
NO_WORDS: Tree = {"type": "WordLevel", "unk_token": UNKNOWN, "vocab": {}}
"""A model of whole words without any."""


def pipeline(config: VocabularyConfig, model: Tree) -> Tree:
    """Return the JSON form of a tokenizer: the normalization and splitting of ``config``, then ``model``."""
    kind = config.kind
    normalizer: Tree | None = None
    if kind == "bert":  # strips accents if it lower-cases
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
    """Return the tokenizer of a JSON form, which ``vocabulary_schema`` has checked; ``ValueError`` if it is refused."""
    try:
        return Engine.from_str(json.dumps(tree))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library's Rust is no Exception
        raise ValueError(f"the tokenizer library does not take it: {error}") from error


def model_of(config: VocabularyConfig, ids: dict[str, int], merges: list[list[str]]) -> Tree:
    """Return the model of a kind of vocabulary; that of ``unigram`` has no entries, which come with scores."""
    if config.kind == "unigram":  # takes the likeliest segmentation; the id of an entry is its place
        return {"type": "Unigram", "unk_id": SPECIALS.index(UNKNOWN), "vocab": [], "byte_fallback": False}
    if config.kind == "word":
        return {**NO_WORDS, "vocab": ids}
    if config.kind in ("wordpiece", "bert"):  # take the longest entry that fits, again and again
        own = config.kind == "wordpiece"
        return {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": CONTINUED if own else BERT_CONTINUED,
            # counted in bytes after the byte alphabet; entries of BERT are text and not bytes
            "max_input_chars_per_word": 4 * MAX_WORD_LENGTH if own else MAX_BERT_WORD_LENGTH,
            "vocab": ids,
        }
    return {  # merges pairs; single characters are merged pairs without any pair
        "type": "BPE",
        "dropout": None,
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "byte_fallback": config.kind == "char" and config.byte_fallback,
        "ignore_merges": False,
        "fuse_unk": config.kind == "bpe",
        "vocab": ids,
        "merges": merges,
    }


def _split(pattern: Tree, behavior: str) -> Tree:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
