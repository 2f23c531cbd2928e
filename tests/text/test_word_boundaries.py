"""Where words begin, judged by ids, against what the vocabulary's own rule cuts before it looks for pieces."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig
from attnkit.text.offsets import ordinary_tokens, sentence_ends, word_boundaries
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = [
    "He said: \"It's 12 o'clock, isn't it?\" (Nobody answered.)",
    "Der Löwe brüllte -- dreimal!! -- und schlief wieder ein...",
    "Nobody says nobody  says (Nobody).",
    "अनुवाद करना कठिन है; the naïve café was closed in 1999/2000.",
]


def trained(kind: str) -> Tokenizer:
    config = {"kind": kind, "size": 800, "min_frequency": 1, "symbols": ("[MASK]",)}
    return train_vocabulary(TEXT * 2, VocabularyConfig.model_validate(config))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_words_are_those_that_the_vocabulary_cuts(kind: str) -> None:
    tokenizer = trained(kind)
    bare = engine.build(engine.pipeline(tokenizer.config, engine.NO_WORDS))
    for line in TEXT:
        ids = tokenizer.encode([line])[0]
        # A word of the rule is so many bytes; a token of the row too. So borders can be compared by their places.
        words = [len(word) for word, _ in bare.pre_tokenizer.pre_tokenize_str(" " + line)]
        borders = {0, *np.cumsum(words).tolist()}
        places = np.cumsum([0, *(len(tokenizer.bytes_of(id)) for id in ids)])[:-1].tolist()
        found = word_boundaries(tokenizer).word_starts(np.array([ids]))[0].tolist()
        assert found == [place in borders for place in places], line


def test_whole_words_and_characters() -> None:
    words = trained("word")
    ids = np.array(words.encode(["Nobody answered the lion"]))
    assert word_boundaries(words).word_starts(ids).all()
    letters = trained("char")
    line = "It's (12) o'clock!!"
    found = word_boundaries(letters).word_starts(np.array(letters.encode([line])))[0]
    cut = [line[a:b] for a, b in zip(np.flatnonzero(found), [*np.flatnonzero(found)[1:], len(line)], strict=True)]
    assert cut == ["It's", " ", "(", "12", ")", " ", "o'clock", "!!"]


def test_special_ids_and_symbols_are_apart() -> None:
    tokenizer = trained("bpe")
    mask = tokenizer.token_id("[MASK]")
    assert mask == 4 and tokenizer.token_id("[X]") is None and trained("word").token_id("[MASK]") == 4
    (word,) = tokenizer.encode(["Nobody"])[0:1]
    row = np.array([[1, *word, mask, word[-1], 2, 0]])
    found = word_boundaries(tokenizer).word_starts(row)[0].tolist()
    assert found == [True, True, *[False] * (len(word) - 1), True, True, True, True]
    allowed = ordinary_tokens(tokenizer).tolist()
    assert not {0, 1, 2, 3, mask} & set(allowed)
    assert len(allowed) == tokenizer.vocab_size - 5 - tokenizer.n_unused


def test_a_space_alone_belongs_to_the_word_behind_it() -> None:
    tokenizer = trained("bpe")
    space, letter, stop = (
        next(id for id in range(tokenizer.vocab_size) if tokenizer.bytes_of(id) == text) for text in (b" ", b"N", b".")
    )
    row = np.array([[letter, space, letter, space, stop, letter, letter]])
    assert word_boundaries(tokenizer).word_starts(row)[0].tolist() == [True, True, False, True, False, True, False]


def test_sentences_end_with_stops() -> None:
    tokenizer = trained("bpe")
    ends = sentence_ends(tokenizer)
    for line in ("It ended.", "Did it?", 'It did!"', "No way.)"):
        ids = tokenizer.encode([line])[0]
        assert ends[ids].any() and not ends[ids[:2]].any(), line
    assert not ends[tokenizer.encode(["a, b; c: d - e"])[0]].any()
