"""Pipelines of Hugging Face ``tokenizers`` as JSON, one per kind of vocabulary, and the byte alphabet."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer as Engine

from attnkit.protocols import SPECIALS
from attnkit.text.config import VocabularyConfig

CONTINUED = "‿"
"""Before WordPiece entries that continue a word; outside the byte alphabet, so it can mean nothing else."""


BERT_CONTINUED = "##"
"""Before entries that continue a word, in the vocabularies of BERT."""


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


def display(raw: bytes) -> str:
    """Return bytes as printable text: a space as ``▁``, what is not a character or cannot be printed as ``<0x..>``."""
    shown = []
    for character in raw.decode("utf-8", errors="surrogateescape"):
        if character == " ":
            shown.append("▁")
        elif character.isprintable():
            shown.append(character)
        else:
            shown += [f"<0x{byte:02X}>" for byte in character.encode("utf-8", errors="surrogateescape")]
    return "".join(shown)


Tree = dict[str, Any]

# A word keeps its apostrophes (don't, l'homme): whether they are worth a cut is for the counts to say.
# A vocabulary file holds its tokenizer, which must be equal to this one: a change here takes a new ``VERSION`` of the
# file, and keeps what the old one meant.
WORDS = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
MAX_WORD_LENGTH = 48
"""Characters: WordPiece takes time quadratic in the length of a word and gives up on long ones."""
MAX_BERT_WORD_LENGTH = 100
"""Characters; longer words are unknown to BERT."""
UNKNOWN = SPECIALS[3]


def pipeline(config: VocabularyConfig, model: Tree) -> Tree:
    """Return the JSON form of a tokenizer: what ``config`` does to text, then ``model``."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": _normalizer(config),
        "pre_tokenizer": _pre_tokenizer(config),
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def build(tree: Tree) -> Engine:
    """Return the tokenizer that a JSON form describes, one of ``pipeline`` or checked by ``schema``.

    Raises:
        ValueError: The library does not take it.
    """
    try:
        return Engine.from_str(json.dumps(tree))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library's Rust is no Exception
        raise ValueError(f"the tokenizer library does not take it: {error}") from error


def model_of(config: VocabularyConfig, ids: dict[str, int], merges: list[list[str]]) -> Tree:
    """Return the model of a kind of vocabulary; of ``unigram`` without entries, which come with scores."""
    if config.kind == "bpe":
        return bpe(ids, merges)
    if config.kind == "gpt2":
        return {**bpe(ids, merges), "fuse_unk": False}
    if config.kind == "char":
        return characters(ids, config.byte_fallback)
    if config.kind == "unigram":
        return unigram([])
    if config.kind == "word":
        return words(ids)
    return bert(ids) if config.kind == "bert" else wordpiece(ids)


def bpe(ids: dict[str, int], merges: list[list[str]]) -> Tree:
    """Return a model of merged pairs."""
    return {**_BPE, "fuse_unk": True, "vocab": ids, "merges": merges}


def characters(ids: dict[str, int], byte_fallback: bool) -> Tree:
    """Return a model of single characters: merged pairs without any pair."""
    return {**_BPE, "fuse_unk": False, "byte_fallback": byte_fallback, "vocab": ids, "merges": []}


def wordpiece(ids: dict[str, int]) -> Tree:
    """Return a model that takes the longest entry that fits, again and again."""
    return {
        "type": "WordPiece",
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": CONTINUED,
        "max_input_chars_per_word": 4 * MAX_WORD_LENGTH,  # counted in bytes after the byte alphabet
        "vocab": ids,
    }


def bert(ids: dict[str, int]) -> Tree:
    """Return BERT's model, whose entries are text and not bytes."""
    own = {"continuing_subword_prefix": BERT_CONTINUED, "max_input_chars_per_word": MAX_BERT_WORD_LENGTH}
    return {**wordpiece(ids), **own}


def unigram(entries: list[tuple[str, float]]) -> Tree:
    """Return a model that takes the likeliest cut; an entry's id is its place."""
    return {"type": "Unigram", "unk_id": SPECIALS.index(UNKNOWN), "vocab": entries, "byte_fallback": False}


def words(ids: dict[str, int]) -> Tree:
    """Return a model of whole words."""
    return {"type": "WordLevel", "unk_token": UNKNOWN, "vocab": ids}


_BPE: Tree = {
    "type": "BPE",
    "dropout": None,
    "unk_token": UNKNOWN,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "byte_fallback": False,
    "ignore_merges": False,
}


def _normalizer(config: VocabularyConfig) -> Tree | None:
    if config.kind == "bert":  # which strips accents where it lower-cases
        own = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
        return {"type": "BertNormalizer", **own, "lowercase": config.lowercase}
    steps: list[Tree] = []
    if config.normalize != "none":
        steps.append({"type": config.normalize.upper()})
    if config.lowercase:
        steps.append({"type": "Lowercase"})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _pre_tokenizer(config: VocabularyConfig) -> Tree | None:
    if config.kind == "char":
        return None
    if config.kind == "bert":
        return {"type": "BertPreTokenizer"}
    if config.kind == "gpt2":
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    if config.kind == "word":
        return _split({"String": " "}, "MergedWithNext")
    steps = [_split({"Regex": WORDS}, "Isolated")]
    if config.kind == "wordpiece":
        steps.append(_split({"Regex": rf"[\s\S]{{1,{MAX_WORD_LENGTH}}}"}, "Isolated"))
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
    return {"type": "Sequence", "pretokenizers": steps}


def _split(pattern: Tree, behavior: str) -> Tree:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
