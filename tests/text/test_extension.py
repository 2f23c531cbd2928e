"""Extended vocabularies: what was known is encoded as before, and new entries are those of a naive trainer."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.text.config import VocabularyConfig
from attnkit.text.extension import continue_merges, extend_vocabulary, row_origins
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece_file import NORMAL, UNKNOWN, SentencePieceEntry, write_sentencepiece
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import count_words, train_vocabulary

OLD = ["the cat sat on the mat", "the dog ran to the cat", "a mat and a hat for the dog"] * 5
NEW = ["der Hund lief schnell", "die Katze lief schneller", "schnelle Hunde, schnelle Katzen!"] * 4


def vocabulary(kind: str = "bpe", **changes: object) -> Tokenizer:
    settings = {"kind": kind, "size": 320 if kind != "wordpiece" else 600, **changes}
    return train_vocabulary(OLD, VocabularyConfig(**settings))  # type: ignore[arg-type]


def naive_merges(words: Counter[str], tokenizer: Tokenizer, n: int) -> list[list[str]]:
    """Return merges by counting all pairs anew for each."""
    split = {word: tokenizer.pieces_of(word) for word in words}
    known, merges = set(tokenizer.names), list[list[str]]()
    while len(merges) < n:
        pairs = Counter[tuple[str, str]]()
        for word, pieces in split.items():
            for i in range(len(pieces) - 1):
                pairs[pieces[i], pieces[i + 1]] += words[word]
        left = {pair: count for pair, count in pairs.items() if "".join(pair) not in known and count >= 2}
        if not left:
            break
        best = min(left, key=lambda pair: (-left[pair], pair))
        merges.append(list(best))
        known.add("".join(best))
        for word, pieces in split.items():
            i, joined = 0, list[str]()
            while i < len(pieces):
                if tuple(pieces[i : i + 2]) == best:
                    joined.append("".join(best))
                    i += 2
                else:
                    joined.append(pieces[i])
                    i += 1
            split[word] = joined
    return merges


@pytest.mark.parametrize("seed", range(4))
def test_new_merges_are_those_of_counting_anew(seed: int) -> None:
    drawn = random.Random(seed)
    lines = [" ".join("".join(drawn.choices("abcaab", k=drawn.randint(1, 9))) for _ in range(6)) for _ in range(30)]
    tokenizer = vocabulary()
    words = count_words(iter(lines), tokenizer.config)
    assert continue_merges(words, tokenizer, 25) == naive_merges(words, tokenizer, 25) != []


def test_known_text_is_encoded_as_before_and_new_text_is_shorter() -> None:
    old = vocabulary()
    new = extend_vocabulary(old, ["<2de>", "<med>"], NEW, 20)
    assert new.config.symbols == ("<2de>", "<med>") and new.vocab_size % 8 == 0
    assert len(new.model["merges"]) == len(old.model["merges"]) + 20
    before, after = old.encode(OLD), new.encode(OLD)
    assert [old.tokens(ids) for ids in before] == [new.tokens(ids) for ids in after]
    assert new.decode(after) == OLD and new.decode(new.encode(NEW)) == NEW
    assert sum(map(len, new.encode(NEW))) < 0.8 * sum(map(len, old.encode(NEW)))
    ids = new.encode(["<2de> der Hund <med>"])[0]
    assert ids.count(new.token_id("<2de>")) == 1 and ids.count(new.token_id("<med>")) == 1
    assert Tokenizer.from_json(new.to_json()).encode(NEW) == new.encode(NEW)
    again = extend_vocabulary(new, ["<2de>"])
    assert again.to_json() == new.to_json(), "known symbols are skipped"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_rows_come_from_the_pieces_of_new_entries(kind: str) -> None:
    old = vocabulary(kind, symbols=("<a>",))
    lines = NEW if kind in ("bpe", "word") else None
    new = extend_vocabulary(old, ["<dog>", "cat-mat"], lines, 12)
    origins = row_origins(old, new)
    assert len(origins) == new.vocab_size > old.vocab_size - 8
    n_new = 0
    for id, ids in enumerate(origins):
        assert ids, "every row has an origin"
        if len(ids) == 1 and ids != [UNK_ID] and new.bytes_of(id) == old.bytes_of(ids[0]):
            continue  # a known entry
        n_new += 1
        text = new.bytes_of(id)
        pieces = b"".join(old.bytes_of(one) for one in ids)
        if kind == "word" and id not in new.symbol_ids and text:
            assert ids == [UNK_ID], "an unknown word"
        elif text and UNK_ID not in ids:
            assert pieces.strip() == text.strip(), (text, pieces)
    assert n_new >= 2 and origins[old.symbol_ids[0]] == [old.symbol_ids[0]]
    assert [old.bytes_of(ids[0]) for ids in origins[:4]] == [new.bytes_of(id) for id in range(4)]


def test_a_symbol_that_was_a_word_is_one_entry() -> None:
    old = vocabulary("word")
    new = extend_vocabulary(old, ["cat"])
    assert new.encode(["the cat"])[0][1] == new.token_id("cat")
    (row,) = row_origins(old, new)[new.symbol_ids.start]
    assert old.bytes_of(row) == b" cat"


def test_refusals() -> None:
    for kind in ("unigram", "wordpiece", "char"):
        with pytest.raises(UsageError, match=f"of kind {kind} takes new symbols, but no new entries"):
            extend_vocabulary(vocabulary(kind), (), NEW, 10)
    with pytest.raises(ValueError, match="white space"):
        extend_vocabulary(vocabulary(), ["two words"])


def unigram_pieces() -> Tokenizer:
    """Return the vocabulary of a network with SentencePiece's unigram model: a, b and c at -5, ab at -8."""
    scores = {"▁": -2.0, "a": -5.0, "b": -5.0, "c": -5.0, "ab": -8.0}
    entries = [SentencePieceEntry("<unk>", 0.0, UNKNOWN), *(SentencePieceEntry(*one, NORMAL) for one in scores.items())]
    vocabulary = {name: id for id, name in enumerate(["</s>", "<unk>", *scores, "<pad>"])}
    roles = {"pad": "<pad>", "bos": None, "eos": "</s>", "unk": "<unk>"}
    config = VocabularyConfig(kind="sentencepiece", size=10, multiple_of=1, min_frequency=1)
    return Tokenizer(config, make_tree(write_sentencepiece(entries, b""), vocabulary, roles, 10, "marked"))


def test_new_pieces_are_taken_where_their_parts_were() -> None:
    """The parts b c, at -10, become bc, at -9.99: ab c, at -13, is better than a bc still."""
    old = unigram_pieces()
    new = extend_vocabulary(old, ["<x>"], ["bc bd <x>bc", "bc d bc"], 3)
    assert old.pieces is not None and new.pieces is not None
    added = {piece.text: piece.score for piece in new.pieces.model.pieces[6:]}
    assert added == pytest.approx({"<x>": 100.0, "d": -8.0, "bc": -9.99, "▁bc": -11.98}, abs=1e-5)
    for line, tokens in {
        "abc": ["▁", "ab", "c"],
        "bc": ["▁bc"],
        "cbc": ["▁", "c", "bc"],
        "<x>bc": ["▁", "<x>", "bc"],
        "d": ["▁", "d"],
    }.items():
        assert new.tokens(new.encode([line])[0]) == tokens
    assert new.encode(["abc cab"]) == old.encode(["abc cab"])
    assert (old.vocab_size, old.n_unused) == (11, 2) and (new.vocab_size, new.n_unused) == (13, 0)
    names = [old.tokens(ids) for ids in row_origins(old, new)[9:]]
    assert names == [["<unk>"], ["<unk>"], ["b", "c"], ["▁", "b", "c"]]
