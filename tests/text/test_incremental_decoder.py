"""Text that grows id by id is what decoding gives of all ids at once."""

from __future__ import annotations

import random

import pytest

from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import IncrementalDecoder, Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = ["the quick brown fox jumps over the lazy dog", "größer als die Straße, l'été", "日本語のテキスト"] * 4
KINDS = ["bpe", "unigram", "wordpiece", "word", "char"]


def vocabulary(kind: str) -> Tokenizer:
    return train_vocabulary(TEXT, VocabularyConfig(kind=kind, size=700, symbols=("[MASK]",)))


@pytest.mark.parametrize("kind", KINDS)
def test_any_ids_give_what_decoding_gives(kind: str) -> None:
    """Half-way characters among them: half of the ids are drawn from those of single bytes."""
    tokenizer, drawn = vocabulary(kind), random.Random(kind)
    broken, size = 0, tokenizer.vocab_size
    for _ in range(300):
        ids = [drawn.choice([drawn.randrange(size), drawn.randrange(5, min(size, 261))]) for _ in range(9)]
        growing = IncrementalDecoder(tokenizer)
        parts = [growing.add([id]) for id in ids]
        assert "".join(parts) + growing.end() == tokenizer.decode([ids])[0]
        broken += "\ufffd" in "".join(parts)
    assert broken > 100 or kind == "word"


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_a_character_comes_with_its_last_byte(kind: str) -> None:
    tokenizer = vocabulary(kind)
    ids = tokenizer.encode(["x🚀y"])[0]
    growing = IncrementalDecoder(tokenizer)
    parts = [growing.add([id]) for id in ids]
    assert "".join(parts) == "x🚀y" and parts.count("") >= 3 and "🚀" in "".join(parts[-2:])
    assert [part for part in parts if "\ufffd" in part] == [] and growing.end() == ""


def test_what_is_never_completed_comes_at_the_end() -> None:
    tokenizer = vocabulary("char")
    growing = IncrementalDecoder(tokenizer)
    first = next(id for id in range(tokenizer.vocab_size) if tokenizer.bytes_of(id) == b"\xf0")
    assert growing.add([first]) == "" and growing.end() == "\ufffd"
