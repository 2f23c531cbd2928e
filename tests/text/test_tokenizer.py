"""Text to ids and back: nothing is lost, nothing is special, whatever the kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnkit.errors import DataError, RunError
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer, cut, load
from attnkit.text.vocabulary import train_vocabulary

KINDS = ("bpe", "unigram", "wordpiece", "word", "char")
TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "the lazy dog sleeps, the fox doesn't",
    "l'homme voit le chien brun à l'été",
    "größer als der größte Hund",
    "if x:    return  the fox",
] * 4
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>", "<unused0>", "<symbol0>", "<0x41>"]


def vocabulary(kind: str, **options: object) -> Tokenizer:
    config = {"kind": kind, "size": 640, **options}
    return train_vocabulary(TEXT, VocabularyConfig.model_validate_json(json.dumps(config)))


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: vocabulary(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def with_symbols() -> dict[str, Tokenizer]:
    return {kind: vocabulary(kind, symbols=["<2de>", "ox", "Ã©", "s>"]) for kind in KINDS}


odd = st.sampled_from(
    [" ", "  ", "\t", "\r", "\n", "\u2028", "\u2581", "\0", "\u203f", "Ġ", "é", "👩‍🚀", "\ufeff", "the", *SPECIALS]
)
anything = st.lists(st.one_of(st.text(max_size=8), odd), max_size=8).map("".join)
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
@quick
@given(lines=st.lists(anything, max_size=3))
def test_decoding_gives_the_text_back(trained: dict[str, Tokenizer], kind: str, lines: list[str]) -> None:
    tokenizer = trained[kind]
    ids = tokenizer.encode(lines)
    assert tokenizer.decode(ids) == lines
    assert all(UNK_ID < id < tokenizer.vocab_size for line in ids for id in line)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
@quick
@given(line=st.lists(st.one_of(anything, st.sampled_from(["<2de>", "ox", "Ã©", "s>", "é"])), max_size=6).map("".join))
def test_symbols_stay_whole_and_lose_nothing(with_symbols: dict[str, Tokenizer], kind: str, line: str) -> None:
    tokenizer = with_symbols[kind]
    ids = tokenizer.encode([line])[0]
    assert tokenizer.decode([ids]) == [line]
    assert ids.count(4) == line.count("<2de>")


def test_the_longest_symbol_wins() -> None:
    tokenizer = vocabulary("bpe", symbols=["<a>", "<a>b"])
    assert tokenizer.tokens(tokenizer.encode(["<a>bc <a>c"])[0])[1] == "<a>b"


def test_word_symbols_are_words(with_symbols: dict[str, Tokenizer]) -> None:
    tokenizer = with_symbols["word"]
    ids = tokenizer.encode(["<2de>  the <2de>", "fox ox", "<2de>the"])
    assert [line.count(4) for line in ids] == [2, 0, 0]
    assert UNK_ID not in ids[1][:1] and 5 in ids[1]
    assert ids[2] == [UNK_ID]
    assert tokenizer.decode([[4, ids[1][0]]]) == ["<2de> fox"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_looks_special_is_text(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    for name in SPECIALS:
        ids = tokenizer.encode([f"a {name} b", name])
        assert not {PAD_ID, BOS_ID, EOS_ID} & {id for line in ids for id in line}
        if kind != "word":
            assert tokenizer.decode(ids) == [f"a {name} b", name]


def test_a_word_spelled_like_a_special_entry_is_an_ordinary_word() -> None:
    tokenizer = train_vocabulary(["a </s> b"] * 3, VocabularyConfig(kind="word"))
    ids = tokenizer.encode(["b </s> a"])
    assert tokenizer.decode(ids) == ["b </s> a"]
    assert min(ids[0]) > UNK_ID


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_never_change_the_text(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    ids = tokenizer.encode(["the fox"])[0]
    assert tokenizer.decode([[BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]]) == ["the fox"]
    assert tokenizer.tokens([PAD_ID, BOS_ID, EOS_ID]) == ["<pad>", "<s>", "</s>"]
    assert "<unk>" in tokenizer.decode([[*ids, UNK_ID]])[0]


def test_known_words_come_back_and_unknown_ones_are_unknown(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["word"]
    assert tokenizer.decode(tokenizer.encode(["dog the  fox"])) == ["dog the  fox"]
    assert tokenizer.encode(["dog zebra"])[0][1] == UNK_ID
    assert tokenizer.decode(tokenizer.encode(["dog zebra the"])) == ["dog <unk> the"]
    assert tokenizer.encode([""]) == [[]]


def test_a_word_is_written_alike_wherever_it_stands(trained: dict[str, Tokenizer]) -> None:
    for kind in ("bpe", "unigram", "wordpiece", "word"):
        first, second = trained[kind].encode(["fox the", "the fox"])
        assert sorted(first) == sorted(second)


def test_runs_of_spaces_become_one_piece() -> None:
    tokenizer = train_vocabulary(["if x:\n" + "        return y"] * 50, VocabularyConfig(size=400))
    assert len(tokenizer.encode(["        return y"])[0]) <= 4
    assert cut("a   b c ") == ["a", "  b", "c", ""]
    assert cut(" a") == [" a"]


def test_pieces_are_readable(trained: dict[str, Tokenizer]) -> None:
    assert trained["bpe"].tokens(trained["bpe"].encode(["the dog"])[0]) == ["▁the", "▁dog"]
    assert trained["char"].tokens(trained["char"].encode(["a\t日"])[0]) == ["a", "<0x09>", "<0xE6>", "<0x97>", "<0xA5>"]
    shown = trained["wordpiece"].tokens(trained["wordpiece"].encode(["größte\u2028"])[0])
    assert "".join(shown) == "▁größte<0xE2><0x80><0xA8>"


def test_broken_characters_decode_to_the_replacement_character(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["bpe"]
    ids = tokenizer.encode(["日"])[0]
    assert tokenizer.decode([ids[:-1]]) == ["\ufffd"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_very_long_words_are_not_unknown(trained: dict[str, Tokenizer], kind: str) -> None:
    text = "日" * 3000 + "fox" * 2000 + "-" * 500
    ids = trained[kind].encode([text])
    assert UNK_ID not in ids[0]
    assert trained[kind].decode(ids) == [text]


def test_lowercase_and_normalization() -> None:
    tokenizer = vocabulary("bpe", lowercase=True, normalize="nfkc")
    assert tokenizer.decode(tokenizer.encode(["The ﬁne Fox Ａ e\u0301"])) == ["the fine fox a é"]
    assert tokenizer.normalize("Ａ") == "a"


def test_without_byte_fallback_the_unseen_is_unknown() -> None:
    for kind in ("bpe", "unigram", "wordpiece", "char"):
        tokenizer = vocabulary(kind, byte_fallback=False, min_frequency=1)
        assert UNK_ID in tokenizer.encode(["fox 日本"])[0], kind
        assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT, kind


def test_a_lone_surrogate_is_refused(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        trained["bpe"].encode(["ab \ud800"])


def test_json_round_trip_and_fingerprint(trained: dict[str, Tokenizer], tmp_path) -> None:
    for tokenizer in trained.values():
        path = tmp_path / "vocab.json"
        path.write_text(tokenizer.to_json(), encoding="utf-8")
        again = load(path)
        assert again.fingerprint == tokenizer.fingerprint
        assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert len({tokenizer.fingerprint for tokenizer in trained.values()}) == len(KINDS)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "attnkit vocabulary", "version": 1}', "\0"])
def test_damaged_vocabularies_are_refused(text: str, tmp_path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"vocab\.json is not a valid attnkit vocabulary"):
        load(path)


def test_holes_and_later_versions_are_refused(trained: dict[str, Tokenizer], tmp_path) -> None:
    tree = json.loads(trained["word"].to_json())
    tree["version"] = 2
    with pytest.raises(RunError, match="version 2"):
        Tokenizer.from_json(json.dumps(tree))
    tree["version"] = 1
    del tree["tokenizer"]["model"]["vocab"]["<s>"]
    with pytest.raises(RunError, match="not a valid attnkit vocabulary"):
        Tokenizer.from_json(json.dumps(tree))
    with pytest.raises(RunError, match="no such vocabulary file"):
        load(tmp_path / "none.json")


def test_a_forked_child_encodes_without_hanging() -> None:
    """In a process of its own: with the threads asked for by name, a fork without care hangs for good."""
    script = """
import os
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary
tokenizer = train_vocabulary(["a b c"] * 4, VocabularyConfig(size=400))
tokenizer.encode([f"word{i}" for i in range(20000)])  # the threads are up
child = os.fork()
if child == 0:
    os._exit(len(tokenizer.encode([f"other{i}" for i in range(20000)])) != 20000)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.environ["TOKENIZERS_PARALLELISM"])
"""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("0 true\n", "")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.text.tokenizer.MAX_CACHED", 100)
    tokenizer = vocabulary("bpe")
    for i in range(50):
        assert tokenizer.decode(tokenizer.encode([f"word{i} again{i}"])) == [f"word{i} again{i}"]
    assert sum(map(len, tokenizer._known.by_code.values())) < 20
