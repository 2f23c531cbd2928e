"""Runs of tokens: characters out of bytes, words out of pieces, for every kind of vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.text.config import VocabularyConfig
from attnkit.text.token_runs import character_runs, path_texts, split_punctuation, token_runs
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

KINDS = ("bpe", "wordpiece", "unigram", "char")


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    text = ["the cat sat on the mat. the cat slept."] * 5
    config = VocabularyConfig(size=560)
    return {kind: train_vocabulary(text, config.model_copy(update={"kind": kind})) for kind in KINDS}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(KINDS), st.text(max_size=20))
def test_runs_cover_all_tokens_and_hold_the_text(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    ids = [BOS_ID, *tokenizer.encode([text])[0], EOS_ID]
    runs = token_runs(tokenizer, ids)
    assert sum(n for _, n in runs.characters) == sum(n for _, n in runs.words) == len(ids)
    assert [i for i, special in enumerate(runs.special) if special] == [0, len(ids) - 1]
    assert runs.words[0] == ("<s>", 1) and runs.words[-1] == ("</s>", 1)
    assert "<0x" not in "".join(word for word, _ in runs.characters if text.isprintable())


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_put_together_and_words_too(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    (ids,) = tokenizer.encode(["(שלום, don't!) 🙂 日本"])
    runs = token_runs(tokenizer, ids)
    assert [word for word, _ in runs.words] == ["(", "שלום", ",", "don't", "!)", "🙂", "日", "本"]
    assert "".join(text for text, _ in runs.characters).replace("▁", " ").strip() == "(שלום, don't!) 🙂 日本"
    smile = next(n for text, n in runs.characters if "🙂" in text)
    assert smile == sum("<0x" in token for token in tokenizer.tokens(tokenizer.encode(["🙂"])[0]))


def test_bytes_that_are_no_text_stay_tokens(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    pieces = tokenizer.encode(["a🙂"])[0]
    last = pieces[-1]
    assert list(character_runs(tokenizer, [last, EOS_ID])) == [(tokenizer.tokens([last])[0], 1), ("</s>", 1)]
    cut = [*pieces[-4:-1], EOS_ID]
    assert [n for _, n in character_runs(tokenizer, cut)] == [1, 1, 1, 1]


def test_a_path_names_the_character_that_it_completes(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    *_, first, second = tokenizer.encode(["aé"])[0]
    (other,) = tokenizer.encode(["aa"])[0][-1:]
    found = path_texts(tokenizer, [(first, None), (second, 0), (other, 1), (other, 0)])
    assert found == [("<0xC3>", 1), ("é", 2), ("a", 1), ("a", 1)]


def test_punctuation_is_split_from_both_ends() -> None:
    assert split_punctuation([("▁", 1), ("«", 1), ("l'", 1), ("eau", 2), ("»", 1)]) == [
        ("«", 2),
        ("l'eau", 3),
        ("»", 1),
    ]
    assert split_punctuation([("▁", 1), ("eau", 1)]) == [("eau", 2)]
    assert split_punctuation([("▁...", 1)]) == [("...", 1)]
