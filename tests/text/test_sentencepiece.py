"""SentencePiece models are read without sentencepiece, and cut text as sentencepiece does."""

# ruff: noqa: E402 (the package may be missing)
from __future__ import annotations

import io
import random
import unicodedata
from functools import lru_cache
from typing import Any

import pytest

spm = pytest.importorskip("sentencepiece")

from attnkit.text.charsmap import Charsmap, Replacer
from attnkit.text.config import VocabularyConfig
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece import SentencePiece
from attnkit.text.sentencepiece_file import read_sentencepiece
from attnkit.text.tokenizer import IncrementalDecoder, Tokenizer

SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "de",
    "do",
    "ing",
    "ung",
    "sch",
    "ein",
    "äu",
    "öß",
    "é",
    "ü",
    "ñ",
    "ça",
    "lo",
    "ly",
]
SYLLABLES += ["ма", "ни", "то", "δος", "日", "本", "語", "가", "나", "مر", "12", "3"]
FIXED = ["<sep>", "ing", "ö", "two words", "e\u0301x"]
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram, as it is": {"normalization_rule_name": "identity"},
    "unigram, lower case, bytes": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
    "unigram, fixed pieces": {"user_defined_symbols": FIXED},
    "unigram, all spaces": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "bpe": {"model_type": "bpe"},
    "bpe, as it is, bytes": {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True},
    "bpe, fixed pieces": {"model_type": "bpe", "user_defined_symbols": FIXED},
    "bpe, all spaces": {"model_type": "bpe", "remove_extra_whitespaces": False},
}
HARD = ["", " ", "  a  b ", "a\tb", "a\u00a0b", "ﬁne ½ ① ㌔", "e\u0301 vs é", "プ", "グ", "nooooo", "bababa" * 9]
HARD += ["…", "🌱🌱", "\u200b zero", "ＡＢＣ　ｄｅｆ", "▁already", "a ▁ b", "a ▁", "▁", "<s> </s> <unk>", "<0x41> a"]
HARD += [
    "a\u00adb",
    "\ufeffBOM",
    "مرحبا بكم",
    "你好，世界",
    "\x00 nul",
    "\x00\x00x\x000",
    "a\rb",
    "Ω Å K",
    "ǆ ŀ",
    "x" * 300,
]
HARD += [
    ">>deu<< Hello",
    "ﬁ\u0301",
    "Ｈ\u0611",
    "ﾊﾞｶﾞ",
    "\u2028a\u0085b",
    "\x01",
    "two words<sep>two  words",
    "e\u0301xe\u0301e\u0301x",
]
LETTERS = "badegilnorsuéäöüß  \u0301\u0308\u0323.,ﬁＨﾊﾞ가각ᄀ\u1161\u11a8日本 ▁\t\u00a0\u3000🌱\u0645\u0631Д½①㌔"
LETTERS += "\x00\x01\u200b\u00ad<>0x41"


@lru_cache
def text() -> list[str]:
    """Return made-up sentences in several scripts."""
    source = random.Random(3)
    words = ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(900)]
    return [
        " ".join(source.choices(words, k=source.randint(1, 12))) + source.choice([".", "!", ""]) for _ in range(1500)
    ]


@lru_cache
def trained(name: str) -> bytes:
    made = io.BytesIO()
    options = {"vocab_size": 700, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 0.999}
    options |= MODELS[name]
    spm.SentencePieceTrainer.train(sentence_iterator=iter(text()), model_writer=made, **options)
    return made.getvalue()


@lru_cache
def odd_lines() -> list[str]:
    """Return lines with emoji, scripts, combining marks, spaces and control characters in all places."""
    source = random.Random(4)
    lines = ["".join(source.choices(LETTERS, k=source.randint(0, 30))) for _ in range(3000)]
    spans = [(1, 0x2FF), (0x300, 0x36F), (0x370, 0x3000), (0x3000, 0xD7FF), (0xE000, 0x1FFFF)]
    codes = [[source.randint(*source.choice(spans)) for _ in range(source.randint(1, 12))] for _ in range(2500)]
    decomposed = [unicodedata.normalize("NFD", line) for line in text()[:500]]
    return HARD + lines + ["".join(map(chr, line)) for line in codes] + decomposed + text()[:500]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_pieces_are_those_of_sentencepiece(name: str) -> None:
    theirs, ours = (
        spm.SentencePieceProcessor(model_proto=trained(name)),
        SentencePiece(read_sentencepiece(trained(name))),
    )
    lines = odd_lines()
    assert len(lines) > 6000
    different = [
        (line, a, b) for line, a, b in zip(lines, ours.encode(lines), theirs.encode(lines), strict=True) if a != b
    ]
    assert not different, f"{len(different)} lines, first {different[0]!a}"


@pytest.mark.parametrize("name", MODELS)
def test_offsets_are_those_of_sentencepiece(name: str) -> None:
    theirs, ours = (
        spm.SentencePieceProcessor(model_proto=trained(name)),
        SentencePiece(read_sentencepiece(trained(name))),
    )
    lines, n_compared = odd_lines()[::7], 0
    for line, ids, proto in zip(lines, ours.encode(lines), theirs.encode(lines, out_type="proto"), strict=True):
        found = ours.encode_with_offsets(line)
        assert [id for id, _, _ in found] == ids, ascii(line)
        assert all(0 <= begin <= end <= len(line) for _, begin, end in found)
        # Of dropped and joined characters, the two have ideas of their own.
        if theirs.normalize(line).removeprefix("▁").replace("▁", " ") == line and not MODELS[name].get("byte_fallback"):
            n_compared += 1
            n_characters = {len(line[:n].encode()): n for n in range(len(line) + 1)}
            expected = [(piece.id, n_characters[piece.begin], n_characters[piece.end]) for piece in proto.pieces]
            assert found == expected, ascii(line)
    assert n_compared > 100 or MODELS[name].get("byte_fallback")


def test_normalization_is_that_of_sentencepiece() -> None:
    theirs, ours = (
        spm.SentencePieceProcessor(model_proto=trained("unigram")),
        SentencePiece(read_sentencepiece(trained("unigram"))),
    )
    for line in odd_lines():
        assert ours.normalize(line) == theirs.normalize(line), ascii(line)


def test_a_long_text_is_cut_alike() -> None:
    theirs, ours = (
        spm.SentencePieceProcessor(model_proto=trained("bpe")),
        SentencePiece(read_sentencepiece(trained("bpe"))),
    )
    long = " ".join(text() * 2)
    assert len(long) > 1.2 * (1 << 16)
    assert ours.encode([long]) == [theirs.encode(long)]


def tokenizer(
    name: str = "unigram", codes: tuple[str, ...] = (), spaced: bool = False
) -> tuple[Tokenizer, dict[str, int]]:
    """Return a vocabulary with ids as in Marian: EOS and unknown first, padding last, pieces in another order."""
    raw = trained(name)
    pieces = [piece.text for piece in read_sentencepiece(raw).pieces if piece.type != 3]
    names = ["</s>", "<unk>", *codes, *sorted(set(pieces[:-20]) - {"<unk>"}), "<pad>"]
    vocabulary = {name: id for id, name in enumerate(names)}
    config = VocabularyConfig(kind="sentencepiece", size=len(names) + 1, symbols=codes, multiple_of=1)
    roles = {"pad": "<pad>", "bos": None, "eos": "</s>", "unk": "<unk>"}
    return Tokenizer(
        config, make_tree(raw, vocabulary, roles, len(names), "spaced" if spaced else "marked")
    ), vocabulary


def test_ids_are_those_of_the_network() -> None:
    ours, vocabulary = tokenizer(codes=(">>de<<", ">>fr<<"))
    theirs = spm.SentencePieceProcessor(model_proto=trained("unigram"))
    assert ours.pieces is not None
    order = ours.pieces.order
    assert order[:4] == [len(vocabulary) - 1, len(vocabulary) - 1, 0, 1]
    lines = odd_lines()[::5]
    expected = [[vocabulary.get(piece, 1) for piece in theirs.encode(line, out_type=str)] for line in lines]
    plain = [number for number, line in enumerate(lines) if not line.startswith(">>")]
    found = [[order[id] for id in ids] for ids in ours.encode(lines)]
    assert [found[number] for number in plain] == [expected[number] for number in plain]
    assert any(1 in ids for ids in found) and ours.vocab_size == len(vocabulary) + 1
    assert ours.encode([">>fr<< bade", ">>xx<<bade"]) == [
        [5, *ours.encode(["bade"])[0]],
        [3, *ours.encode(["bade"])[0]],
    ]
    assert [id for id, _, _ in ours.encode_with_offsets(["bade ing"])[0]] == ours.encode(["bade ing"])[0]


def test_codes_may_be_words() -> None:
    ours, _ = tokenizer(codes=("deu_Latn",), spaced=True)
    assert ours.encode(["deu_Latn bade", "deu_Latn", "bade deu_Latn", "deu_Latnbade"])[:2] == [
        [4, *ours.encode(["bade"])[0]],
        [4],
    ]
    assert all(4 not in ids for ids in ours.encode(["bade deu_Latn", "deu_Latnbade", ">>deu_Latn<<"]))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_text_comes_back_as_from_sentencepiece(name: str) -> None:
    ours, _ = tokenizer(name)
    theirs = spm.SentencePieceProcessor(model_proto=trained(name))
    n_compared = 0
    for line, ids in zip(odd_lines(), ours.encode(odd_lines()), strict=True):
        decoder = IncrementalDecoder(ours)
        assert "".join(decoder.add([id]) for id in ids) + decoder.end() == ours.decode([ids])[0]
        if 3 not in ids and not line.startswith(">>"):
            assert ours.decode([ids])[0] == theirs.decode(theirs.encode(line)), ascii(line)
            n_compared += 1
    assert n_compared > 300


def test_a_vocabulary_file_is_read_again() -> None:
    ours, _ = tokenizer(codes=(">>de<<",))
    again = Tokenizer.from_json(ours.to_json())
    assert again.encode(HARD) == ours.encode(HARD) and again.fingerprint == ours.fingerprint


def test_a_map_takes_the_longest_match() -> None:
    """Worked by hand: the trie of a → 1, ab → 2, é → 3, as a double array in which places are label + 256 n."""
    units = [0] * 2048

    def put(at: int, label: int, base: int, value: int | None) -> None:
        units[at] = label | (at ^ base) << 10 | (value is not None) << 8
        if value is not None:
            units[base] = value | 1 << 31

    units[0] = 256 << 10
    put(256 ^ 0x61, 0x61, 512, 0)  # a
    put(512 ^ 0x62, 0x62, 768, 2)  # ab
    put(256 ^ 0xC3, 0xC3, 1024, None)
    put(1024 ^ 0xA9, 0xA9, 1280, 4)  # é
    raw = (
        (4 * len(units)).to_bytes(4, "little")
        + b"".join(unit.to_bytes(4, "little") for unit in units)
        + b"1\x002\x003\x00"
    )
    found = Charsmap(raw)
    assert (found.singles, found.firsts, found.others) == ({"a", "é"}, {"a"}, {"b"})
    assert Replacer(found)("aab é b") == "12 3 b"
    assert Replacer(found, ["ba"])("aba b ba") == "21 b ba"
    assert list(Replacer(found).parts("xab")) == [(0, 1, "x"), (1, 3, "2"), (3, 3, "")]


def field(number: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7]) + content


def piece(name: bytes, kind: int = 1) -> bytes:
    return field(1, field(1, name) + bytes([24, kind]))


UNK = piece(b"<unk>", 2)
REFUSED = {
    "nothing": (b"", "exactly one unknown"),
    "two unknown pieces": (UNK + piece(b"u", 2), "exactly one unknown"),
    "a piece twice": (UNK + piece(b"a") + piece(b"a"), "same text"),
    "an empty piece": (UNK + piece(b""), "is empty"),
    "a long piece": (UNK + piece(b"a" * 2000), "more than 1,024 bytes"),
    "a piece with U+0000": (UNK + piece(b"a\0"), "U\\+0000"),
    "a piece that is no text": (UNK + piece(b"\xff"), "invalid start byte"),
    "an unknown type": (UNK + piece(b"a", 9), "unknown type"),
    "no number as score": (UNK + field(1, field(1, b"a") + b"\x15\0\0\xc0\x7f"), "no finite score"),
    "a number as piece": (b"\x08\x01" + UNK, "another type than expected"),
    "words": (UNK + field(2, b"\x18\x03"), "of kind word; supported: unigram and bpe"),
    "spaces behind words": (UNK + field(2, b"\xc0\x01\x01"), "treat_whitespace_as_suffix"),
    "bare spaces": (UNK + field(3, b"\x28\x00"), "escape_whitespaces"),
    "rules for decoding": (UNK + field(5, b"\x12\x01a"), "denormalizer_spec"),
    "unused pieces of BPE": (UNK + piece(b"a", 5) + field(2, b"\x18\x02"), "unused pieces"),
    "some bytes": (UNK + piece(b"<0x41>", 6), "byte_fallback"),
    "a truncated field": (UNK[:-1], "truncated"),
    "an endless number": (b"\xff" * 20, "truncated"),
    "a group": (b"\x0b", "not a SentencePiece model"),
    "a map of no size": (UNK + field(3, b"\x12\x04\x04\0\0\0"), "map is damaged"),
    "a map that points behind its end": (UNK + field(3, field(2, b"\x04\0\0\0\0\xff\xff\x7f")), ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_strange_file_is_refused(name: str) -> None:
    raw, reason = REFUSED[name]
    if not reason:  # an empty map, in fact
        assert SentencePiece(read_sentencepiece(raw)).encode(["a"]) == [[0]]
        return
    with pytest.raises(ValueError, match=reason):
        read_sentencepiece(raw)
