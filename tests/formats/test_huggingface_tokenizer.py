"""AutoTokenizer gives the ids that the vocabulary itself gives, whatever the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11

from hub_runs import ODD, TEXT, vocabulary
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from attnkit.conversion.export_huggingface import tokenizer_files
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.errors import RunError
from attnkit.formats.huggingface.tokenizer import BERT, GPT, MARIAN, Roles, files
from attnkit.text.tokenizer import Tokenizer

KINDS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "bpe nfkc lowercase": {"kind": "bpe", "normalize": "nfkc", "lowercase": True},
    "unigram": {},
    "unigram nfkc": {"kind": "unigram", "normalize": "nfkc"},
    "wordpiece": {},
    "wordpiece nfc": {"kind": "wordpiece", "normalize": "nfc", "byte_fallback": False, "min_frequency": 1},
    "word": {},
    "word nfkc": {"kind": "word", "normalize": "nfkc"},
    "char": {},
    "char nfkc": {"kind": "char", "normalize": "nfkc", "byte_fallback": False},
}
TYPES = {id(BERT): "bert", id(GPT): "gpt2", id(MARIAN): "marian"}


def written(folder: Path, tokenizer: Tokenizer, roles: Roles) -> Path:
    folder.mkdir(exist_ok=True)
    for name, tree in tokenizer_files(tokenizer, roles, 64).items():
        (folder / name).write_text(json.dumps(tree))
    (folder / "config.json").write_text(json.dumps({"model_type": TYPES[id(roles)]}))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    mine = vocabulary(**{"kind": request.param, **KINDS[request.param]})
    folder = written(tmp_path_factory.mktemp("hub") / "tokenizer", mine, BERT)
    return mine, AutoTokenizer.from_pretrained(folder)


def test_ids_are_the_same_on_odd_text(both: tuple[Tokenizer, Any]) -> None:
    mine, theirs = both
    lines = [*ODD, *TEXT[:5]]
    assert theirs(lines, add_special_tokens=False).input_ids == mine.encode(lines)
    assert [theirs(line, add_special_tokens=False).input_ids for line in lines] == mine.encode(lines)


ODDITIES = st.sampled_from(
    [" ", "  ", "\t", "\n", "\u00a0", "\u3000", "the", "fox ", "ﬁ", "É", "\u0301", "👩‍🚀", "½", "'"]
)
anything = st.lists(st.one_of(st.text(max_size=6), ODDITIES), max_size=8).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=anything)
def test_ids_are_the_same_on_any_text(both: tuple[Tokenizer, Any], line: str) -> None:
    mine, theirs = both
    # AutoTokenizer reads "[CLS]" in text as the special token; to attnkit it is text like any other.
    assume(not any(marker in line for marker in theirs.all_special_tokens))
    assert theirs(line, add_special_tokens=False).input_ids == mine.encode([line])[0]


def test_roles_are_known_and_put_around_a_text(both: tuple[Tokenizer, Any]) -> None:
    mine, theirs = both
    assert (theirs.pad_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.unk_token_id) == (0, 1, 2, 3)
    assert theirs.mask_token == "[MASK]" and theirs.mask_token_id == 4 and len(theirs) == mine.vocab_size
    first, second = mine.encode(["the fox", "the dog"])
    pair = theirs("the fox", "the dog")
    assert pair.input_ids == [1, *first, 2, *second, 2]
    assert pair.token_type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs("").input_ids == [1, 2]
    assert theirs.decode(theirs("the  fox").input_ids, skip_special_tokens=True) == "the  fox"


def test_a_mask_takes_the_place_of_a_word_with_its_space(both: tuple[Tokenizer, Any]) -> None:
    mine, theirs = both
    if mine.config.kind == "char":  # where it takes the place of one character
        assert theirs("the [MASK]ox", add_special_tokens=False).input_ids == mine.encode(["the [MASK]ox"])[0]
        return
    before, after = mine.encode(["the", "fox"])
    assert theirs("the [MASK] fox", add_special_tokens=False).input_ids == [*before, 4, *after]
    assert theirs("[MASK]", add_special_tokens=False).input_ids == [4]
    if mine.config.kind != "word":  # where a full stop is a part of the word before it
        glued = mine.encode(["the[MASK], fox"])[0]
        assert theirs("the [MASK], fox", add_special_tokens=False).input_ids == glued
        assert theirs.tokenize("the [MASK], fox")[-2:][0] != "Ġ,"


def test_other_symbols_stay_whole(tmp_path: Path) -> None:
    lines = ["<2de> the fox", "the <2de>fox a.b", "  <2de>  x<2de>", "the[MASK]<2de>"]
    for kind in ("bpe", "unigram", "wordpiece", "char"):
        mine = vocabulary(kind, symbols=["[MASK]", "<2de>", "a.b"])
        theirs = AutoTokenizer.from_pretrained(written(tmp_path / kind, mine, BERT))
        assert theirs(lines, add_special_tokens=False).input_ids == mine.encode(lines), kind


@pytest.mark.parametrize("roles", [GPT, MARIAN])
def test_begin_and_end_stand_where_the_model_wants_them(roles: Roles, tmp_path: Path) -> None:
    mine = vocabulary(symbols=[])
    theirs = AutoTokenizer.from_pretrained(written(tmp_path / "hub", mine, roles))
    ids = mine.encode(["the fox"])[0]
    assert theirs("the fox").input_ids == ([1, *ids] if roles is GPT else [*ids, 2])
    assert theirs.mask_token is None and theirs.eos_token_id == 2 and theirs.bos_token_id == 1


def test_a_symbol_that_is_an_entry_too_is_refused() -> None:
    mine = vocabulary(symbols=["the", "[MASK]"], size=600)
    tree = json.loads(mine.to_json())["tokenizer"]
    vocab = tree["model"]["vocab"]
    vocab["the"] = vocab.pop(mine.tokens([300])[0].replace("▁", "Ġ"), 300)
    with pytest.raises(RunError, match="duplicate vocabulary entry 'the'"):
        files(mine.config, tree, BERT, "[MASK]", None)


def test_ours_comes_back_as_it_was(both: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    mine, theirs = both
    theirs.save_pretrained(tmp_path)
    found = read_vocabulary(tmp_path, "bert", mine.vocab_size)
    assert found.order == list(range(mine.vocab_size))
    lines = [*ODD, *TEXT[:5]]
    assert found.tokenizer.encode(lines) == mine.encode(lines)
    assert found.tokenizer.tokens(range(mine.vocab_size)) == mine.tokens(range(mine.vocab_size))
