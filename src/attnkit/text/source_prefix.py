"""Prefix of an imported T5's sources, and vocabularies without a side."""

from __future__ import annotations

import json

from attnkit.text.tokenizer import Tokenizer


def with_source_prefix(tokenizer: Tokenizer, text: str) -> Tokenizer:
    """Return a vocabulary of pieces with a text before all others; empty for none."""
    tree = json.loads(tokenizer.to_json())["tokenizer"]
    tree.pop("before", None)
    return Tokenizer(tokenizer.config, {**tree, "before": text} if text else tree, tokenizer.origin)


def source_prefix(tokenizer: Tokenizer) -> str:
    """Return the text before all others; empty for none."""
    return "" if tokenizer.pieces is None else tokenizer.pieces.before


def without_side(tokenizer: Tokenizer) -> Tokenizer:
    """Return the vocabulary of either side: with the first code, without a prefix.

    Sides of one vocabulary may differ in these.
    """
    if tokenizer.language_codes:
        return tokenizer.with_code(tokenizer.language_codes[0])
    return with_source_prefix(tokenizer, "") if source_prefix(tokenizer) else tokenizer
