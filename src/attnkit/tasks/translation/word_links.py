"""Which words of a source the words of its translation attend to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from attnkit.tasks.translation.placement import find_words
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.text.inline_symbols import MaskedText, places_in_plain
from attnkit.text.offsets import align
from attnkit.text.tokenizer import Tokenizer

Span = tuple[int, int]
Anchor = tuple[Span, int]
"""A word of a translation, as begin and end, and the place in the source that it is aligned to."""


def word_anchors(translation: TranslatedLine, tokenizer: Tokenizer, n_code: int = 0) -> list[Anchor]:
    """Align each word of the best translation to a place in the source.

    By attention; without, or if the sentence was cut, by relative position. Of the source, the first
    ``n_code`` characters are a language code: places are those in the rest.
    """
    output = translation.outputs[0]
    words = find_words(output.text)
    sources = [word for word in find_words(translation.source) if word[0] >= n_code]
    if output.attention is None or len(output.attention) != 1 or not words or not sources:
        n = max(1, len(words))
        return [(word, (len(translation.source) - n_code) * k // n) for k, word in enumerate(words)]
    best = word_weights(translation, tokenizer, words, sources, np.add).argmax(1).tolist()
    return [(word, sources[k][0] - n_code) for word, k in zip(words, best, strict=True)]


def word_weights(
    translation: TranslatedLine,
    tokenizer: Tokenizer,
    words: Sequence[Span],
    sources: Sequence[Span],
    join: np.ufunc = np.maximum,
) -> NDArray[np.float64]:
    """Return the attention (T, S) of words of a translation to those of its source.

    The source has one segment. ``join`` makes the attention of a word from that of its tokens.
    """
    output = translation.outputs[0]
    assert output.attention is not None and len(output.attention) == 1, "one segment, attention recorded"
    if not words:  # nor tokens, perhaps: an empty translation
        return np.zeros((0, len(sources)))
    ids = output.ids[0]
    of_source = source_words_of_tokens(translation, sources)
    n_tags = len(translation.source_ids[0]) - len(of_source)  # of the target language
    weights = np.asarray(output.attention[0], np.float64)[: len(ids), n_tags : n_tags + len(of_source)]
    of_target = target_words_of_tokens(tokenizer, ids, translation.masked, words)
    of_words = np.zeros((len(weights), len(sources)))
    np.add.at(of_words.T, of_source[of_source >= 0], weights.T[of_source >= 0])
    joined = np.zeros((len(words), len(sources)))
    for row, word in zip(of_words, of_target, strict=False):
        if word >= 0:
            joined[word] = join(joined[word], row)
    return joined


def source_words_of_tokens(translation: TranslatedLine, words: Sequence[Span]) -> NDArray[np.int64]:
    """Return the word of each token of a source of one segment, -1 for white space."""
    (read,), masked = translation.read, translation.masked
    aligned = align(translation.tokenizer, [read])[0]
    in_source = masked.places(masked.text)
    in_masked = places_in_plain(read) if masked.has_symbols else range(len(read) + 1)
    places = [in_source[place] for place in in_masked]
    spans = ((places[begin], places[end]) for begin, end in zip(aligned.begins, aligned.ends, strict=True))
    found = np.array([word_at(words, begin, max(end, begin + 1)) for begin, end in spans], np.int64)
    return found[: len(translation.source_ids[0])]


def target_words_of_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], masked: MaskedText, words: Sequence[Span]
) -> list[int]:
    """Return the word of each token of a translation, -1 for white space.

    ``words`` are those of the translation whose placeholders are restored.
    """
    text = tokenizer.decode([ids])[0]
    # Every byte that does not continue a character begins one.
    sizes = [sum(byte & 0xC0 != 0x80 for byte in tokenizer.bytes_of(id)) for id in ids]
    n_dropped = sum(sizes) - len(text)  # a first space
    restored = [0] * n_dropped + masked.places(text)
    ends = [min(place, len(restored) - 1) for place in accumulate(sizes, initial=0)]
    return [word_at(words, restored[begin], max(restored[end], restored[begin] + 1)) for begin, end in pairwise(ends)]


def word_at(words: Sequence[Span], begin: int, end: int) -> int:
    """Return the first word with characters in ``begin:end``, -1 without one."""
    place = bisect_right(words, begin, key=lambda word: word[1])
    return place if place < len(words) and words[place][0] < end else -1
