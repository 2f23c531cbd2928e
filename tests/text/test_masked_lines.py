"""Lines with masks: the ids are those of the whole line with a token hidden, and a guess reads as the line would."""

from __future__ import annotations

import pytest

from attnkit.text.config import VocabularyConfig
from attnkit.text.masked_lines import encode_masked, fill_masks
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

MASK = "[MASK]"
LINE = "the quick fox jumps over the lazy dog, then sleeps."
SUBWORDS = ["bpe", "unigram", "wordpiece"]


def vocabulary(kind: str, text: str = LINE) -> Tokenizer:
    return train_vocabulary([text] * 20, VocabularyConfig(kind=kind, size=700, symbols=(MASK,)))


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize("word", ["the", "quick", "over", "dog", ",", "sleeps", "."])
def test_a_mask_hides_the_token_that_stood_there(kind: str, word: str) -> None:
    """With its space or without, at the beginning, in the middle, before a comma and at the end."""
    tokenizer = vocabulary(kind)
    mask = tokenizer.token_id(MASK)
    assert mask is not None
    ids = tokenizer.encode([LINE])[0]
    pieces = [tokenizer.bytes_of(id).decode() for id in ids]
    place = [piece.strip() for piece in pieces].index(word)
    spaced = LINE.replace(word, f" {MASK}" if word in ",." else MASK, 1)
    assert encode_masked(tokenizer, spaced, MASK) == [*ids[:place], mask, *ids[place + 1 :]]
    assert fill_masks(tokenizer, spaced, MASK, [ids[place]]) == LINE


def test_several_masks_side_by_side() -> None:
    tokenizer = vocabulary("bpe")
    ids = tokenizer.encode([LINE])[0]
    mask = tokenizer.token_id(MASK)
    line = LINE.replace("the quick", f"{MASK} {MASK}").replace("sleeps", MASK)
    hidden = encode_masked(tokenizer, line, MASK)
    places = [0, 1, len(ids) - 2]
    assert hidden == [mask if place in places else id for place, id in enumerate(ids)]
    assert fill_masks(tokenizer, line, MASK, [ids[place] for place in places]) == LINE
    assert fill_masks(tokenizer, line, MASK, [None, ids[1], None]) == line.replace(f"{MASK} {MASK}", f"{MASK} quick")


def test_among_characters_a_mask_is_one_character() -> None:
    tokenizer = vocabulary("char")
    ids, mask = tokenizer.encode([LINE])[0], tokenizer.token_id(MASK)
    for place in (0, 3, 6, len(LINE) - 1):
        line = LINE[:place] + MASK + LINE[place + 1 :]
        assert encode_masked(tokenizer, line, MASK) == [*ids[:place], mask, *ids[place + 1 :]]
        assert fill_masks(tokenizer, line, MASK, [ids[place]]) == LINE


def test_among_words_a_mask_is_a_word_whatever_it_touches() -> None:
    tokenizer = vocabulary("word", "the fox sleeps .")
    mask = tokenizer.token_id(MASK)
    the, fox, sleeps, stop = tokenizer.encode(["the fox sleeps ."])[0]
    assert encode_masked(tokenizer, f"the {MASK} sleeps .", MASK) == [the, mask, sleeps, stop]
    assert encode_masked(tokenizer, f"{MASK} fox {MASK}.", MASK) == [mask, fox, mask, stop]
    assert encode_masked(tokenizer, f"{MASK} {MASK}{MASK}", MASK) == [mask] * 3
    assert encode_masked(tokenizer, "the fox sleeps .", MASK) == [the, fox, sleeps, stop]
    assert fill_masks(tokenizer, f"the {MASK} sleeps .", MASK, [fox]) == "the fox sleeps ."


def test_a_line_without_a_mask_is_the_line() -> None:
    for kind in (*SUBWORDS, "char", "word"):
        tokenizer = vocabulary(kind)
        for line in ("", " ", "the  dog", LINE):
            assert encode_masked(tokenizer, line, MASK) == tokenizer.encode([line])[0]
