"""The first ids of long texts: those of the whole text, of which the rest is never looked at."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from attnkit.protocols import SPECIALS
from attnkit.text import long_lines as module
from attnkit.text import tokenizer as tokenizers
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig
from attnkit.text.long_lines import encode_prefixes, text_prefix
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary
from attnkit.text.vocabulary_schema import CHARACTERS

TEXT = ["the quick brown fox jumps over the lazy dog", "größer als der größte Hund", "日本語 😀 don't"] * 5
KINDS = ["bpe", "unigram", "wordpiece", "char", "word", "gpt2", "llama3", "bert"]
SYMBOLS = ("[MASK]", "[MASK]x")
PARTS = [
    "the",
    "dog",
    "größte",
    "e\u0301",
    "日本語",
    "😀",
    " ",
    "  ",
    "   ",
    "\t",
    "\u00a0",
    ".",
    "[MASK]",
    "[MA",
    "K]",
    "x" * 9,
]


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest) -> Tokenizer:
    kind = request.param
    config = VocabularyConfig(kind=kind, size=600, min_frequency=1, symbols=SYMBOLS)
    if kind not in ("gpt2", "llama3", "bert"):
        return train_vocabulary(TEXT, config.model_copy(update={"normalize": "nfc"}))
    fixed = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(SYMBOLS)))]
    by_bytes = kind in ("gpt2", "llama3")
    pairs = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["Ġ", "Ġ"], ["x", "x"]] if by_bytes else []
    letters = (
        CHARACTERS
        if kind in ("gpt2", "llama3")
        else [mark + one for one in sorted(set("thedogr日本x.")) for mark in ("", "##")]
    )
    names = [*fixed, *letters, *map("".join, pairs)]
    model = engine.model_of(config, {name: id for id, name in enumerate(names)}, pairs)
    return Tokenizer(config, engine.pipeline(config, model))


def texts(seed: int) -> list[str]:
    """Return texts with and without spaces, blank ones, and ones of few parts again and again."""
    drawn, found = random.Random(seed), ["", " ", "    " * 40, "\t \t " * 40, "x" * 300, "日" * 300, "[MASK]" * 60]
    for _ in range(150):
        parts = drawn.sample(PARTS, drawn.randint(1, len(PARTS)))
        if drawn.random() < 0.4:
            parts = [part for part in parts if not part.isspace()] or ["x"]
        found.append("".join(drawn.choices(parts, k=drawn.randint(1, 120))))
    return found


@pytest.mark.parametrize("piece", [7, 40, 1 << 16])
def test_the_ids_are_those_of_the_whole_text(
    vocabulary: Tokenizer, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a text is cut at a space or inside a chunk that is encoded in pieces."""
    monkeypatch.setattr(tokenizers, "MAX_CHUNK", piece)
    monkeypatch.setattr(module, "MAX_CHUNK", piece)
    monkeypatch.setattr(module, "_PER_ID", 2)
    monkeypatch.setattr(module, "_FURTHER", 2)
    given, n_cut = texts(piece), 0
    vocabulary._known.by_code.clear()
    whole = vocabulary.encode(given)
    for most in (1, 6, 30):
        for text, ids, found in zip(given, whole, encode_prefixes(vocabulary, given, most), strict=True):
            assert found == ids or (most < len(found) < len(ids) and found == ids[: len(found)]), text
            n_cut += len(found) < len(ids)
    assert n_cut > 30


@pytest.mark.parametrize("piece", [7, 40])
def test_any_beginning_has_the_first_ids(vocabulary: Tokenizer, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "MAX_CHUNK", piece)
    monkeypatch.setattr(module, "MAX_CHUNK", piece)
    vocabulary._known.by_code.clear()
    drawn = random.Random(piece)
    for text in texts(piece + 1):
        least = drawn.randint(1, 60)
        part = text_prefix(vocabulary, text, least)
        assert text.startswith(part) and len(part) >= min(least, len(text))
        if vocabulary.config.kind != "word":
            assert len(part) <= least + piece + len("[MASK]x")
        (ids, whole) = vocabulary.encode([part, text])
        assert whole[: len(ids)] == ids, text


@pytest.mark.parametrize("text", ["the dog " * 500_000, "日本語" * 1_000_000, "[MASK]" * 500_000])
def test_little_is_encoded_of_a_long_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = train_vocabulary(TEXT, VocabularyConfig(kind="bpe", size=600, symbols=SYMBOLS))
    seen: list[int] = []
    encode = Tokenizer.encode

    def spied(self: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
        seen.extend(map(len, lines))
        return encode(self, lines)

    monkeypatch.setattr(Tokenizer, "encode", spied)
    (ids,) = encode_prefixes(vocabulary, [text], 510)
    assert len(ids) > 510
    assert len(seen) == 1 and seen[0] <= 16 * 510 + tokenizers.MAX_CHUNK
