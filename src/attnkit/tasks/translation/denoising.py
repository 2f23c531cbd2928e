"""Denoising pretraining of a translator: what is masked, and validation text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnkit.data.infilling import Infilling
from attnkit.quality.pair_filters import Pair
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.config import MASK
from attnkit.text.encoding import EncodedLines
from attnkit.text.tokenizer import Tokenizer


def infilling_of(config: TranslationConfig, tokenizer: Tokenizer) -> Infilling:
    """Return the noise of a run; symbols of the vocabulary, such as tags, are kept."""
    mask = tokenizer.token_id(MASK)
    assert config.data.denoise is not None and mask is not None, "check_symbols refuses other vocabularies"
    symbols = [id for id in range(tokenizer.vocab_size) if tokenizer.is_symbol(id)]
    return Infilling(config.data.denoise, mask, symbols, config.data.max_length)


def corrupted_pairs(config: TranslationConfig, tokenizer: Tokenizer, lines: Sequence[str]) -> list[Pair]:
    """Return validation pairs: each line corrupted, and itself.

    The noise depends on ``data.held_out_seed`` and the number of the line. Text is corrupted rather than ids, so that
    loss, BLEU and samples are of the same source. A character of several tokens may lose some of them, and a mask that
    begins a line is encoded with a space before it.
    """
    encoded = EncodedLines.of(tokenizer.encode(lines))
    clean = encoded.ids.astype(np.int64), encoded.lengths.astype(np.int64)
    key = (config.data.held_out_seed, 0)
    ids, lengths = infilling_of(config, tokenizer).corrupt(*clean, np.arange(len(lines)), key)
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    return list(zip(tokenizer.decode(row.tolist() for row in rows), lines, strict=True))
