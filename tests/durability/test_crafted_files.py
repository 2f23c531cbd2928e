"""Vocabularies, configurations and texts that a stranger has made: no code runs, nothing aborts, nothing grows.

Each case ends within ten seconds of work and a gigabyte, with a documented exit code and at most three lines said.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commandline import real
from stage import Case, Stage, make, perform, words
from tokenizers import Tokenizer as Engine

from attnkit.errors import RunError
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import load
from attnkit.text.vocabulary import train_vocabulary

if TYPE_CHECKING:
    from tests.conftest import Workshop

KINDS = ("bpe", "unigram", "wordpiece", "word", "char")
TEXT = ["the dog ran over the hill", "the cats ran", "1 2 3 4 5"] * 4
NONE = "not a valid attnkit vocabulary"
HUGE = 10**15


def replaced(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return what puts a value at a dotted path of the tokenizer."""
    *above, last = path.split(".")

    def change(tree: dict[str, Any]) -> None:
        inside = tree["tokenizer"]
        for key in above:
            inside = inside[int(key) if isinstance(inside, list) else key]
        inside[int(last) if isinstance(inside, list) else last] = value

    return change


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """Return what gives an entry another name."""

    def change(tree: dict[str, Any]) -> None:
        model = tree["tokenizer"]["model"]
        if isinstance(model["vocab"], list):
            model["vocab"] = [[new if name == old else name, score] for name, score in model["vocab"]]
        else:
            model["vocab"] = {new if name == old else name: id for name, id in model["vocab"].items()}

    return change


def listed(entries: list[Any]) -> Callable[[dict[str, Any]], None]:
    """Return what adds entries to a list of them."""
    return lambda tree: tree["tokenizer"]["model"]["vocab"].extend(entries)


def with_symbols(symbols: list[str]) -> Callable[[dict[str, Any]], None]:
    """Return what gives a vocabulary of words symbols, in the configuration and among the entries."""

    def change(tree: dict[str, Any]) -> None:
        tree["config"].update(symbols=symbols)
        names = list(tree["tokenizer"]["model"]["vocab"])
        names[4:4] = [f"<symbol{i}>" for i in range(len(symbols))]
        tree["tokenizer"]["model"]["vocab"] = {name: id for id, name in enumerate(names)}

    return change


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def nested(depth: int) -> str:
    """Return normalizers inside normalizers, as text."""
    return '"normalizer":' + '{"type":"Sequence","normalizers":[' * depth + "]}" * depth


PADDING = {"strategy": {"Fixed": HUGE}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
TRUNCATION = {"max_length": 0, "stride": HUGE, "strategy": "LongestFirst", "direction": "Right"}
REPLACE = {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": "c" * 99}
ADDED = {"id": 2**32 - 1, "content": "e", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
TEMPLATE = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "padding of 10^15": ("bpe", replaced("padding", PADDING)),
    "truncation to nothing": (
        "bpe",
        replaced("truncation", {"max_length": 0, "stride": HUGE, "strategy": "LongestFirst"}),
    ),
    "an added token of id 2^32": ("bpe", replaced("added_tokens", [{**ADDED, "special": True}])),
    "a pattern that never ends": ("bpe", replaced("pre_tokenizer.pretokenizers.0", split(r"(?:(?:a|aa)+)+$"))),
    "a pattern of 10^9": ("wordpiece", replaced("pre_tokenizer.pretokenizers.1", split(r"(?:.{1,1000000}){1000}"))),
    "a normalizer of its own": (
        "bpe",
        replaced("normalizer", {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": "c" * 99}),
    ),
    "a compiled normalizer": ("bpe", replaced("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
    "a processor": ("bpe", replaced("post_processor", TEMPLATE)),
    "a decoder": ("word", replaced("decoder", {"type": "Fuse"})),
    "another attnkit version": ("word", replaced("version", "9.0")),
    "a model of no kind": ("bpe", replaced("model.type", "Magic")),
    "a model of another kind": ("bpe", replaced("model.type", "WordLevel")),
    "dropout of 2": ("bpe", replaced("model.dropout", 2.0)),
    "an unknown entry for unknown": ("wordpiece", replaced("model.unk_token", "nowhere")),
    "words of any length": ("wordpiece", replaced("model.max_input_chars_per_word", HUGE)),
    "a number for false": ("bpe", replaced("model.ignore_merges", 0)),
    "no entries": ("bpe", replaced("model.vocab", {})),
    "entries that are numbers": ("bpe", replaced("model.vocab", 7)),
    "a hole": ("word", replaced("model.vocab.new", 10**6)),
    "an id of 2^32": ("word", replaced("model.vocab.new", 2**32)),
    "an id of 4,000 digits": ("word", replaced("model.vocab.new", 10**4000)),
    "an id that is true": ("word", lambda tree: tree["tokenizer"]["model"]["vocab"].update({"<s>": True})),
    "an id below zero": ("char", replaced("model.vocab.new", -1)),
    "merges of what is not there": ("bpe", replaced("model.merges", [["nowhere", "e"]])),
    "merges of three": ("bpe", replaced("model.merges", [["e", "e", "e"]])),
    "merges of numbers": ("bpe", replaced("model.merges", [[1, 2]])),
    "merges of characters": ("char", replaced("model.merges", [["1", "2"]])),
    "a score of NaN": ("unigram", listed([["ab", float("nan")]])),
    "a score of 10^308": ("unigram", listed([["ab", 1e308]])),
    "a score that is a word": ("unigram", listed([["ab", "x"]])),
    "an entry of 10^6 letters": ("unigram", listed([["a" * 10**6, -1.0]])),
    "an entry without letters": ("unigram", listed([["", -1.0]])),
    "an entry twice": ("unigram", listed([["e", -1.0]])),
    "an unknown id beyond the end": ("unigram", replaced("model.unk_id", 10**6)),
    "half a character": ("word", renamed(" the", " \ud800")),
    "signs of no byte": ("bpe", renamed("e", "日")),
    "two characters in one": ("char", renamed("1", "12")),
    "a byte of no digits": ("char", renamed("<0x41>", "<0xGG>")),
    "special entries elsewhere": ("word", renamed("<pad>", "<PAD>")),
    "symbols that are no entries": ("bpe", lambda tree: tree["config"].update(symbols=["<x>"])),
    "a symbol of 10^7 letters": ("word", with_symbols(["a" * 10**7])),
    "10^5 symbols": ("word", with_symbols([f"<{i}>" for i in range(10**5)])),
    "another configuration": ("bpe", lambda tree: tree["config"].update(lowercase=True)),
    "a configuration of nothing": ("bpe", lambda tree: tree.update(config=[])),
    "one part more": ("bpe", lambda tree: tree.update(more=1)),
    "a version of 10^4000": ("bpe", lambda tree: tree.update(version=10**4000)),
    "a version that is a word": ("bpe", lambda tree: tree.update(version="1")),
}
TEXTS: dict[str, Callable[[str], bytes]] = {
    "a key twice": lambda good: good.replace('"version":1', '"version":1,"version":1', 1).encode(),
    "normalizers of 100,000 levels": lambda good: good.replace(
        '"normalizer":null', f'"normalizer":{nested(100_000)}'
    ).encode(),
    "normalizers of 400 levels": lambda good: good.replace('"normalizer":null', f'"normalizer":{nested(400)}').encode(),
    "30 MB of empty lists": lambda good: b"[" + b"[]," * 10_000_000 + b"1]",
    "30 MB of numbers": lambda good: b"[" + b"300," * 7_500_000 + b"1]",
    "a million brackets": lambda good: b"[" * 1_000_000,
    "a number of 10^6 digits": lambda good: b"9" * 1_000_000,
    "NaN": lambda good: good.replace('"version":1', '"version":NaN', 1).encode(),
    "UTF-16": lambda good: good.encode("utf-16"),
    "nothing": lambda good: b"",
}


@pytest.fixture(scope="module")
def good() -> dict[str, str]:
    """A vocabulary file of each kind."""
    return {kind: train_vocabulary(TEXT, VocabularyConfig(kind=kind, size=600)).to_json() for kind in KINDS}


def crafted(good: dict[str, str], name: str) -> bytes:
    """Return a vocabulary file by its name in the tables."""
    if name in TEXTS:
        return TEXTS[name](good["bpe"])
    kind, change = CHANGES[name]
    tree = json.loads(good[kind])
    change(tree)
    assert json.dumps(tree) != json.dumps(json.loads(good[kind]))
    return json.dumps(tree).encode()


@pytest.fixture
def stage(tmp_path: Path, trained: Path, workshop: Workshop) -> Stage:
    return make(tmp_path, trained, workshop.arguments("transformer", tmp_path / "run", limits__max_steps=13))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*CHANGES, *TEXTS])
def test_a_crafted_vocabulary_never_reaches_the_library(
    good: dict[str, str], attnkit: Any, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, ())
    stage.outside.mkdir()
    stage.put("text", "1 2 3\n")
    perform(Case(name, lambda s: s.put("vocab.json", crafted(good, name)), "check vocab", 4, NONE), attnkit, stage)
    monkeypatch.setattr("attnkit.text.tokenizer.build", lambda tree: pytest.fail("the library was asked"))
    with pytest.raises(RunError, match=NONE):
        load(tmp_path / "vocab.json")


def test_the_good_vocabularies_are_taken(good: dict[str, str], attnkit: Any, stage: Stage) -> None:
    for kind in KINDS:
        perform(Case(kind, lambda s, kind=kind: s.put("vocab.json", good[kind]), "check vocab", 0), attnkit, stage)


REAL = ("an entry of 10^6 letters", "normalizers of 100,000 levels", "padding of 10^15", "an added token of id 2^32")


@pytest.mark.parametrize("name", REAL)
def test_a_process_of_its_own_does_not_abort(good: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "vocab.json").write_bytes(crafted(good, name))
    (tmp_path / "text").write_text("1 2 3\n")
    real("attnkit check text text --vocab vocab.json", tmp_path).check(4, NONE)


def test_a_panic_of_the_library_is_an_error_of_ours() -> None:
    config = VocabularyConfig(kind="bpe")
    model = engine.model_of(config, {"a": 0, "b": 1, "ab": 2}, [["a", "b"]])
    tree = engine.pipeline(config, {**model, "continuing_subword_prefix": "#####", "unk_token": None})
    with pytest.raises(BaseException) as caught:
        Engine.from_str(json.dumps(tree))
    assert not isinstance(caught.value, Exception), "the library does not panic here any more: find another tree"
    with pytest.raises(ValueError, match="the tokenizers library rejects it"):
        engine.build(tree)


def bomb(name: str, compress: Callable[[bytes], bytes]) -> Callable[[Stage], Path]:
    """Return what writes 10 GB of zeros, compressed: 10,240 times the same megabyte."""
    return lambda stage: stage.put(name, compress(bytes(1 << 20)) * 10_240)


OBJECT = "model: !!python/object/apply:os.system ['touch outside/canary']"
OTHERS = [
    Case("pickle as vocabulary", lambda s: s.put("vocab.json", s.pickled), "check vocab", 4, NONE),
    Case("pickle as vocabulary to train", lambda s: s.put("v.json", s.pickled), "new --vocab v.json", 4, NONE),
    Case("pickle as configuration", lambda s: s.put("c.yaml", s.pickled), "new --config c.yaml", 2),
    Case("pickle as text", lambda s: s.put("text", s.pickled), "check", 3),
    Case("pickle as text to count", lambda s: s.put("text", s.pickled), "vocab", 3),
    Case("pickle as text to translate", lambda s: s.put("text", s.pickled), "translate", 0),
    Case("a tag", lambda s: s.put("c.yaml", OBJECT), "new --config c.yaml", 2, "tag"),
    Case("a tag as a setting", lambda s: None, "new --set seed=!!python/name:os.system", 2, "tag"),
    Case("a module as a setting", lambda s: None, "new --set seed=!!python/module:antigravity", 2, "tag"),
    Case("a vocabulary that is a pipe", lambda s: s.pipe("vocab.json"), "check vocab", 4, "not a regular file"),
    Case("a vocabulary that is a folder", lambda s: (s.folder / "vocab.json").mkdir(), "check vocab", 4),
    Case(
        "a vocabulary that is a device",
        lambda s: s.link("vocab.json", "/dev/zero"),
        "check vocab",
        4,
        "not a regular file",
    ),
    Case("a vocabulary of 10 GB", lambda s: s.sparse("vocab.json"), "check vocab", 4, "more than"),
    Case("a configuration of 10 GB", lambda s: s.sparse("c.yaml"), "new --config c.yaml", 2),
    Case("a text of 10 GB without a line", lambda s: s.sparse("text"), "translate", 3, "more than"),
    Case("10 GB of zeros as gzip", bomb("b.gz", gzip.compress), "vocab b.gz -o made.json", 3, "bytes"),
    Case("10 GB of zeros as xz", bomb("b.xz", lzma.compress), "check b.xz b.xz", 3, "bytes"),
    Case("10 GB of zeros to plan with", bomb("b.gz", gzip.compress), "new --src b.gz --tgt b.gz --dry-run", 3, "bytes"),
    Case("10 GB of zeros as bzip2", bomb("b.bz2", bz2.compress), "score run b.bz2 text --device cpu", 3, "bytes"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_a_crafted_text_is_harmless(case: Case, attnkit: Any, stage: Stage) -> None:
    perform(case, attnkit, stage)


def test_the_pickles_would_leave_a_mark(stage: Stage) -> None:
    before = stage.everything()
    pickle.loads(stage.pickled)
    assert stage.everything() != before


def test_files_of_a_run_have_the_mode_of_the_umask(attnkit: Any, stage: Stage) -> None:
    """``save_file`` of safetensors alone would leave 0600."""
    attnkit(words("new", stage), stage.folder, before="os.umask(0o027)").check(0)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (stage.folder / "other").rglob("*") if path.is_file()}
    assert modes == {0o640}
    assert (stage.folder / "other" / "checkpoints").is_dir()
