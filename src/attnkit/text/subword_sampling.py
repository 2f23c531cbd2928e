"""Subword regularization: the tables of a vocabulary for random segmentation."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from attnkit.errors import UsageError
from attnkit.kernels.subwords import (
    APOSTROPHE,
    CONTINUES,
    DIGITS,
    ELISION,
    IS_WORD,
    LETTERS,
    SIGNS,
    STARTS_WORD,
    UNKNOWN,
    SubwordSampler,
)
from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import Tokenizer


def subword_sampler(tokenizer: Tokenizer, *, longest: int, dropout: float, alpha: float | None) -> SubwordSampler:
    """Return a sampler: BPE-dropout, or with ``alpha`` unigram sampling.

    Raises ``UsageError`` if the vocabulary is not of the kind that is needed.

    Args:
        tokenizer: Vocabulary of the encoded lines.
        longest: Tokens of a line above which it keeps its encoding.
        dropout: Probability that a merge is left out in each round of merging (Provilkov et al. 2020).
        alpha: Exponent of the probabilities of segmentations (Kudo 2018, equation 9): 0 makes all those of a word
            equally probable. None: BPE-dropout.
    """
    if alpha is None:
        check_kind(tokenizer, "bpe")
        ids = {name: id for id, name in enumerate(tokenizer.names)}
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.model["merges"]]
        tables = _spell(tokenizer, {merged for _, _, merged in merges})
        return SubwordSampler(*tables, longest=longest, merges=merges, dropout=dropout)
    check_kind(tokenizer, "unigram")
    names, scores = tokenizer.names, [alpha * score for _, score in tokenizer.model["vocab"]]
    texts = {id for id, name in enumerate(names) if len(name) > 1 and tokenizer.bytes_of(id)}
    return SubwordSampler(*_spell(tokenizer, texts), longest=longest, scores=scores)


def check_kind(tokenizer: Tokenizer, kind: str) -> None:
    """Raise ``UsageError`` if a vocabulary is not of the kind that is sampled."""
    key = {"bpe": "bpe_dropout", "unigram": "unigram_alpha"}[kind]
    if tokenizer.config.kind != kind:
        what = f"regularization.{key} needs a vocabulary of kind {kind}, not {tokenizer.config.kind}"
        help = f"build one of kind {kind} (vocabulary.kind), or leave the key out"
        raise UsageError(what, where=f"regularization.{key}", help=help)


def _spell(tokenizer: Tokenizer, composed: Collection[int]) -> tuple[list[list[int]], list[int], list[int]]:
    """Return the ids of the bytes of each entry, its role in a word, and its class.

    ``composed`` are the entries of several bytes; those with a byte without an entry of its own are not split.
    """
    names = tokenizer.names
    ids = {name: id for id, name in enumerate(names)}
    pieces, roles = [], []
    for id, name in enumerate(names):
        is_fixed = id < len(SPECIALS) or id in tokenizer.symbol_ids
        is_composed = id in composed and not is_fixed and all(one in ids for one in name)
        pieces.append([ids[one] for one in name] if is_composed else [id])
        text = tokenizer.bytes_of(id)
        is_whole = is_fixed or not (is_composed or (len(name) == 1 and text)) or (len(text) > 1 and text.isspace())
        roles.append(IS_WORD if is_whole else STARTS_WORD if text.startswith(b" ") else CONTINUES)
    return pieces, roles, [_class_of(tokenizer.bytes_of(id)) for id in range(len(names))]


def _class_of(text: bytes) -> int:
    """Return the class of an entry by its first characters after a space."""
    characters = text.decode("utf-8", errors="ignore").removeprefix(" ")[:2]
    kinds = [unicodedata.category(character)[0] for character in characters]
    if not kinds:
        return UNKNOWN
    if characters[0] in "'’":
        return ELISION if kinds[1:] and kinds[1] in "LM" else APOSTROPHE if len(characters) == 1 else SIGNS
    return LETTERS if kinds[0] in "LM" else DIGITS if kinds[0] == "N" else SIGNS
