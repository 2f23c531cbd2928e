"""Subword regularization: the tables of a vocabulary for random segmentation."""

from __future__ import annotations

from collections.abc import Collection

from attnkit.errors import UsageError
from attnkit.kernels.subwords import CONTINUES, IS_WORD, STARTS_WORD, SubwordSampler
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
        _check_kind(tokenizer, "bpe", "bpe_dropout")
        ids = {name: id for id, name in enumerate(tokenizer.names)}
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.model["merges"]]
        pieces, roles = _spell(tokenizer, {merged for _, _, merged in merges})
        return SubwordSampler(pieces, roles, longest=longest, merges=merges, dropout=dropout)
    _check_kind(tokenizer, "unigram", "unigram_alpha")
    names, scores = tokenizer.names, [alpha * score for _, score in tokenizer.model["vocab"]]
    texts = {id for id, name in enumerate(names) if len(name) > 1 and tokenizer.bytes_of(id)}
    pieces, roles = _spell(tokenizer, texts)
    return SubwordSampler(pieces, roles, longest=longest, scores=scores)


def _check_kind(tokenizer: Tokenizer, kind: str, key: str) -> None:
    if tokenizer.config.kind != kind:
        what = f"regularization.{key} needs a vocabulary of kind {kind}, not {tokenizer.config.kind}"
        raise UsageError(what, where=f"regularization.{key}", help=f"set vocabulary.kind={kind}, or leave it out")


def _spell(tokenizer: Tokenizer, composed: Collection[int]) -> tuple[list[list[int]], list[int]]:
    """Return the ids of the bytes of each entry, and where it may be in a word.

    ``composed`` are the entries that are made of others; those with a byte without an entry stay whole.
    """
    names = tokenizer.names
    ids = {name: id for id, name in enumerate(names)}
    pieces, roles = [], []
    for id, name in enumerate(names):
        is_composed = id in composed and id not in tokenizer.symbol_ids and all(one in ids for one in name)
        pieces.append([ids[one] for one in name] if is_composed else [id])
        text = tokenizer.bytes_of(id)
        is_whole = not (is_composed or (len(name) == 1 and text)) or (len(text) > 1 and text.isspace())
        roles.append(IS_WORD if is_whole else STARTS_WORD if text.startswith(b" ") else CONTINUES)
    return pieces, roles
