"""New pieces for imported vocabularies: what is joined, how fast, and what stays apart."""

from __future__ import annotations

import heapq
import io
import random
from collections.abc import Iterable, Sequence

import pytest

from attnkit.errors import UsageError
from attnkit.text.config import VocabularyConfig
from attnkit.text.continued_merges import join_pairs
from attnkit.text.extension import extend_vocabularies, extend_vocabulary, row_origins
from attnkit.text.piece_merges import split_run
from attnkit.text.piece_vocabulary import Codes, make_tree
from attnkit.text.sentencepiece_file import NORMAL, UNKNOWN, SentencePieceEntry, read_sentencepiece, write_sentencepiece
from attnkit.text.tokenizer import Tokenizer


def imported(
    entries: Iterable[tuple[str, float]],
    names: Iterable[str] = (),
    n_rows: int = 0,
    codes: Sequence[str] = (),
    raw: bytes = b"",
) -> Tokenizer:
    """Return a unigram vocabulary of pieces with their scores, and of further names in the network."""
    pieces = [SentencePieceEntry("<unk>", 0.0, UNKNOWN)]
    pieces += [SentencePieceEntry(text, score, NORMAL) for text, score in entries]
    texts = ["</s>", "<pad>", *(piece.text for piece in pieces), *names]
    vocabulary = {text: id for id, text in enumerate(texts)}
    roles = {"pad": "<pad>", "bos": None, "eos": "</s>", "unk": "<unk>"}
    raw = raw or write_sentencepiece(pieces, b"")
    form: Codes = "spaced" if codes else "marked"
    return Tokenizer(
        VocabularyConfig.model_construct(kind="sentencepiece", size=max(300, n_rows), symbols=tuple(codes)),
        make_tree(raw, vocabulary, roles, n_rows or len(vocabulary), form, codes[0] if codes else None),
    )


LETTERS = [(letter, -5.0) for letter in "▁abcdefgh.,!'1290"]


def learned(tokenizer: Tokenizer, lines: list[str], n: int = 100) -> list[str]:
    old, new = tokenizer.pieces, extend_vocabulary(tokenizer, [], lines, n).pieces
    assert old is not None and new is not None
    return [piece.text for piece in new.model.pieces[len(old.model.pieces) :]]


def test_a_merge_looks_only_at_pairs_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long word, most neighbours stay: no second entry of a pair's count."""
    drawn = random.Random(2)
    words = [drawn.choices("abcdefghij", k=1000) for _ in range(20)]
    pushed: list[tuple[int, tuple[str, str]]] = []
    push = heapq.heappush

    def count(heap: list[tuple[int, tuple[str, str]]], item: tuple[int, tuple[str, str]]) -> None:
        pushed.append(item)
        push(heap, item)

    monkeypatch.setattr("attnkit.text.continued_merges.heapq.heappush", count)
    merges = join_pairs(words, [1] * len(words), set("abcdefghij"), 200, 2)
    assert len(merges) == 200 and len(set(pushed)) == len(pushed)


def test_words_without_spaces_are_cut() -> None:
    found = learned(imported(LETTERS), ["".join(random.Random(4).choices("abcdefgh", k=120))] * 3, 1000)
    assert 40 < max(map(len, found)) <= 48


def test_no_piece_is_joined_across_punctuation_or_numbers() -> None:
    found = learned(imported(LETTERS), ["abc, 1991, d'abc! 1991abc.", "abc. abc!! (abc,) d'abc"] * 9)
    assert {"▁abc", "▁1991", "!!", "d'abc"} <= set(found)
    for text in found:
        kinds = {"0" if one.isdigit() else "a" if one.isalpha() else "." for one in text.strip("▁").replace("'", "")}
        assert len(kinds) == 1, text


def test_pieces_with_punctuation_stay_alone() -> None:
    assert split_run(["▁a", "b.", "!", "!", "c"]) == [("▁a",), ("b.",), ("!", "!"), ("c",)]


def test_frequent_pieces_are_no_symbols() -> None:
    """Parts of nearly certain pieces have scores near 0, and a sum that the margin could bring above it."""
    tokenizer = imported([("▁", -3.0), ("a", -0.001), ("b", -0.002), ("c", 0.5), ("<s1>", 100.0)])
    new = extend_vocabulary(tokenizer, [], ["abab ab aab"] * 5, 10)
    assert new.pieces is not None and list(new.pieces.symbol_ids) == ["<s1>"]
    (score,) = (piece.score for piece in new.pieces.model.pieces if piece.text == "ab")
    assert score == 0.0


def test_sides_with_different_codes_learn_once() -> None:
    src = imported([*LETTERS], ["__en__", "__de__"], codes=("__en__", "__de__"))
    tgt, reads = Tokenizer.from_json(src.with_code("__de__").to_json()), list[int]()

    def read() -> list[str]:
        reads.append(1)
        return ["abc abcd dabc"] * 4

    sides = extend_vocabularies(src, tgt, ["<b>"], read, 5)
    assert len(reads) == 1 and [side.pieces.code for side in sides if side.pieces] == ["__en__", "__de__"]
    alone = [extend_vocabulary(side, ["<b>"], read(), 5) for side in (src, tgt)]
    assert [side.to_json() for side in sides] == [side.to_json() for side in alone]
    assert sides[0].encode(["<b>abc"]) != sides[1].encode(["<b>abc"]) == alone[1].encode(["<b>abc"])
    other = imported([*LETTERS, ("ab", -6.0)], ["__en__", "__de__"], codes=("__en__", "__de__")).with_code("__de__")
    reads.clear()
    extend_vocabularies(src, other, [], read, 5)
    assert len(reads) == 2


def test_symbols_are_looked_up_at_once() -> None:
    symbols = [f"<{number}>" for number in range(3000)]
    tokenizer = imported([*LETTERS, *((symbol, 100.0) for symbol in symbols)])
    assert tokenizer.pieces is not None
    ids = [tokenizer.token_id(symbol) for symbol in symbols]
    looked = 0

    class Watched(int):
        def __eq__(self, other: object) -> bool:
            nonlocal looked
            looked += 1
            return int(self) == other

        def __hash__(self) -> int:
            return int(self)

    assert ids[-1] is not None and tokenizer.is_symbol(Watched(ids[-1])) and not tokenizer.is_symbol(Watched(5))
    assert looked < 20


def test_a_symbol_may_be_named_like_an_unused_row() -> None:
    """The row of that name, which has never been trained, is not where it begins."""
    old = imported(LETTERS, ["x"], n_rows=40)
    assert old.names[-1] == "<unused39>" and old.n_unused == 19
    new = extend_vocabulary(old, ["<unused39>"])
    assert len(set(new.names)) == len(new.names) == len(old.names) and new.n_unused == 18
    origins = row_origins(old, new)
    id = new.token_id("<unused39>")
    assert id is not None and old.pieces is not None
    assert origins[id] == old.pieces.encode(["<unused39>"], [False])[0] and len(origins[id]) > 3
    assert [row for row in origins[:id] + origins[id + 1 :] if len(row) > 1] == []
    assert origins[-1] == [len(old.names) - 1]


@pytest.mark.parametrize("symbol", [">>x", ">>x<<y", ">>"])
def test_a_symbol_of_a_marian_is_no_start_of_a_code(symbol: str) -> None:
    with pytest.raises(UsageError, match="starts as a language code, which ends with the next '<<'"):
        extend_vocabulary(imported(LETTERS), [symbol])


def test_codes_and_symbols_that_contain_their_marks_are_taken() -> None:
    new = extend_vocabulary(imported(LETTERS), [">>x<<", "<>>x", "x>>"])
    assert None not in map(new.token_id, (">>x<<", "<>>x", "x>>"))
    other = extend_vocabulary(imported(LETTERS, ["__en__"], codes=("__en__",)), [">>x"])
    assert other.token_id(">>x") is not None


def test_symbols_are_found_in_normalized_text() -> None:
    """The guide says which ones are not: those whose end is joined with what follows."""
    sentencepiece = pytest.importorskip("sentencepiece")
    made = io.BytesIO()
    lines, options = ["ab abc ab", "abc ab"] * 20, {"vocab_size": 9, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **options)
    model = read_sentencepiece(made.getvalue())
    new = extend_vocabulary(imported([(one.text, one.score) for one in model.pieces[3:]], raw=made.getvalue()), ["<b>"])
    assert new.pieces is not None and (id := new.token_id("<b>")) is not None
    theirs = sentencepiece.SentencePieceProcessor(model_proto=new.pieces.raw)
    for line, n in (("a<b>b", 1), ("a<b>\u0301", 1), ("a<b>\u0338", 0)):
        assert new.encode([line])[0].count(id) == theirs.encode(line, out_type=str).count("<b>") == n, line
