"""Exported runs give the same text in CTranslate2, and a folder is there completely or not at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from readme_example import example, readme_functions
from tokenizers import Tokenizer as HuggingFaceTokenizer

from attnkit.cli.export import command
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.errors import RunError, SystemFailure, UsageError
from attnkit.formats.ctranslate2 import entry_names, names_in, tokenizer_file
from attnkit.io import atomic
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary

CAPS = (5, 40)
"""Greatest lengths. The first is below that of some references with their end: what is cut off must be equal too."""


@pytest.fixture(scope="session")
def exported(run: Path) -> Path:
    return export_ctranslate2(run, run.parent / "ct2").path


@pytest.mark.sample(2)
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("beam_size", [1, 5])
def test_text_is_equal(run: Path, exported: Path, digits: Path, beam_size: int, cap: int) -> None:
    lines = (digits / "test.src").read_text().splitlines()
    assert len(lines) == 1000
    expected = load_translator([run], device="cpu").translate(
        lines, beam_size=beam_size, length_penalty=1.0, max_length=cap
    )
    found = readme_functions(exported, ("256", str(cap)))["translate"](lines, beam_size)
    assert len(set(expected)) > 150, "the toy model must have learnt to say different things"
    assert found == expected


TEXT = [
    "A dog  runs, doesn't it?",
    " ab\u200bc e\u0301 ﬁ ½ 1,000.50 % ",
    "</s> x <unk> <pad>",
    "“Ü” 日本 語!\tx",
    "",
    "  ",
]


@pytest.mark.parametrize("more", [{}, {"lowercase": True}, {"normalize": "nfkc"}, {"symbols": ("<url>", "@1")}])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_the_exported_tokenizer_gives_the_same_ids_and_text(kind: Any, more: dict[str, Any]) -> None:
    lines = TEXT + ["a <url> b", "@1 a"] * bool(more.get("symbols"))
    tokenizer = train_vocabulary([*lines, *lines], VocabularyConfig(kind=kind, size=600, **more))
    lines = [*lines, "unseen ẞ words ж"]
    exported = HuggingFaceTokenizer.from_str(tokenizer_file(tokenizer).decode())
    ids = tokenizer.encode(lines)
    assert [exported.encode(line).ids for line in lines] == ids
    names = names_in(tokenizer_file(tokenizer))  # those of CTranslate2, in which the README's program translates
    assert len(set(names)) == len(names) == tokenizer.vocab_size
    assert [exported.token_to_id(name) for name in names] == list(range(tokenizer.vocab_size))
    assert [exported.id_to_token(id) for id in range(len(names))] == names
    assert [exported.decode(line) for line in ids] == tokenizer.decode(ids)


@pytest.mark.slow
def test_the_example_runs_without_attnkit_and_torch(run: Path, exported: Path, digits: Path, tmp_path: Path) -> None:
    """In an environment of its own, with what the README says: needs a package index."""
    lines = (digits / "test.src").read_text().splitlines()[:200]
    expected = load_translator([run], device="cpu").translate(lines, beam_size=1, max_length=40)
    packages = re.search(r"`pip install (.*?)`", (exported / "README.md").read_text())
    assert packages is not None
    program = example(exported).replace("256", "40").replace('["A dog runs."]', f"{lines!r}, beam_size=1")
    absent = 'import importlib.util\nassert not [n for n in ("attnkit", "torch") if importlib.util.find_spec(n)]\n'
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def call(*arguments: str) -> str:
        line = [str(python), *arguments]
        return subprocess.run(line, cwd=exported, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    call("-m", "pip", "install", "--quiet", *packages[1].split())
    assert call("-c", absent + program).splitlines() == expected
    assert len(set(expected)) > 50, "the toy model must have learnt to say different things"


def test_the_example_is_short(exported: Path) -> None:
    assert len([line for line in example(exported).splitlines() if line.strip()]) <= 10


def test_names_of_entries_are_those_of_the_tokenizers(run: Path, exported: Path) -> None:
    translator = load_translator([run], device="cpu")
    joint = translator.src_tokenizer is translator.tgt_tokenizer
    sides = {"shared": "tokenizer.json"} if joint else {"source": "tokenizer.json", "target": "tokenizer.target.json"}
    for side, file in sides.items():
        names = json.loads((exported / f"{side}_vocabulary.json").read_text())
        assert names == names_in((exported / file).read_bytes())


def test_names_are_unique_where_what_is_shown_is_not() -> None:
    text = ["</s> </s> <s> <0xFF> ▁ ▁▁ \x7f a#9 \u00a0 ÿ", "</s></s> <unk> ▁a"] * 3
    tokenizer = train_vocabulary(text, VocabularyConfig(size=400))
    names = entry_names(tokenizer)
    assert names[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert len(set(tokenizer.tokens(range(tokenizer.vocab_size)))) < tokenizer.vocab_size, "the test needs twins"
    assert len(set(names)) == len(names) == tokenizer.vocab_size


def test_command_reports(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "out"
    command(run, folder, "ctranslate2", quantization="int8", json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["path"] == str(folder)
    assert report["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    with pytest.raises(UsageError, match="the output folder is not empty"):
        command(run, folder, "ctranslate2")


def test_a_failed_export_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise SystemFailure("the disk is full")

    monkeypatch.setattr(atomic, "write_new_file", fail)
    with pytest.raises(SystemFailure, match="full"):
        export_ctranslate2(run, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_missing_package_names_the_extra(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(UsageError, match="ctranslate2 is not installed") as caught:
        export_ctranslate2(run, tmp_path / "out")
    assert caught.value.help is not None and "attnkit[ctranslate2]" in caught.value.help


def test_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        export_ctranslate2(tmp_path / "none", tmp_path / "out")
