"""A symbol may be a part of a special name: `fin` beside the code `fin_Latn`.

transformers cuts text at its special names first, attnkit reads them as text, with symbols and without. In all other
text both find such a symbol alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import transformers
from translators import SHAPES, m2m_folder, marian_folder, mbart_folder, nllb_folder, sentences, tokenizer_of

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.text.extension import extend_vocabulary
from attnkit.text.tokenizer import Tokenizer

Model = tuple[Callable[..., Any], dict[str, Any], dict[str, str], list[str]]
MODELS: dict[str, Model] = {
    "marian": (marian_folder, SHAPES["shared"], {}, ["pad>", "</", "unk"]),
    "m2m100": (m2m_folder, {"end": 0.5}, {"src_lang": "en", "tgt_lang": "de"}, ["__en", "de__", "fr", "<ma"]),
    "nllb": (
        nllb_folder,
        {"end": 3.0},
        {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"},
        ["eng", "_Latn", "ace_", "u_L", "sk>"],
    ),
    "mbart": (mbart_folder, {"end": 2.5}, {"src_lang": "en_XX", "tgt_lang": "de_DE"}, ["en_", "_XX", "DE", "<s"]),
}
"""Folder, languages, and parts of special names."""
SETS = ["optimization.batch_tokens=400", "optimization.learning_rate=1e-30", "data.max_length=90", "data.held_out=5"]
SETS += ["limits.max_steps=1", "device=cpu", "precision=float32", "threads=1", "confidence=false"]
SETS += ["finetuning.freeze=[output]"]


def special_names(tokenizer: Tokenizer) -> list[str]:
    assert tokenizer.pieces is not None
    roles = [name for name in tokenizer.pieces.roles.values() if name is not None]
    return sorted({*tokenizer.language_codes, *roles, "<mask>"} - {"</s>"})


def is_cut(tokenizer: Tokenizer, name: str) -> bool:
    """Return whether a name in a text is pieces; of unknown characters alone, it is looked up as a whole."""
    (row,) = tokenizer.encode([f"ba {name}"])
    return tokenizer.token_id(name) not in row[len(tokenizer.code_ids) :]


def with_parts(parts: list[str], seed: int = 4) -> list[str]:
    """Return lines with parts at the ends, between spaces, in words, and next to each other."""
    source, marked = random.Random(seed), []
    for line in sentences()[:150]:
        for _ in range(3):
            at = source.choice([0, len(line), source.randint(0, len(line))])
            line = line[:at] + source.choice([p for one in parts for p in (one, f"{one} ", f" {one}")]) + line[at:]
        marked.append(f"ba {' '.join(line.split())}")  # a code at the start would be one
    return marked


def agreement(tokenizer: Tokenizer, theirs: Any, lines: list[str]) -> list[bool]:
    """Return of each line whether ids are equal in transformers."""
    pieces = tokenizer.pieces
    assert pieces is not None
    rows = zip(lines, tokenizer.encode(lines), strict=True)
    return [[pieces.order[id] for id in [*ids, 2]] == theirs(line).input_ids for line, ids in rows]


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_transformers_wherever_they_were(name: str, tmp_path: Path) -> None:
    make, changes, languages, parts = MODELS[name]
    make(tmp_path / "hub", **changes)
    base = import_huggingface(tmp_path / "hub", tmp_path / "base", **languages).path
    for side, lines in (("a", sentences()[:60]), ("b", sentences()[60:120])):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    flags: dict[str, Any] = {"data.src": [str(tmp_path / "a")], "data.tgt": [str(tmp_path / "b")]}
    flags["extension.symbols"] = parts
    config = resolve(flags, sets=SETS, preset_name="tiny", fixed=inherited(base, tmp_path / "new")).config
    for _ in train(TrainRequest(config, tmp_path / "new", init_from=base)):
        pass
    lines = with_parts(parts)
    cut: list[str] = []
    found = {}
    for run in ("base", "new"):
        folder = export_huggingface(tmp_path / run, tmp_path / f"{run}-hub", checkpoint="last").path
        kind = {"m2m100": "M2M100Tokenizer", "mbart": "MBart50Tokenizer"}.get(name)
        theirs = tokenizer_of(folder) if kind is None else getattr(transformers, kind).from_pretrained(folder)
        if name != "marian":
            theirs.src_lang = languages["src_lang"]
        tokenizer = load_run(tmp_path / run, device="cpu", checkpoint="last").src_tokenizer
        names = special_names(tokenizer)
        cut = [one for one in names if is_cut(tokenizer, one)] if run == "base" else cut
        plain = [line for line in lines if not any(one in line for one in names)]
        named = [f"{line} {one}" for line, one in zip(lines, cut * 40, strict=False)]
        assert len(plain) > 100 and len(named) > 30
        assert all(agreement(tokenizer, theirs, plain)), run
        found[run] = agreement(tokenizer, theirs, named)
    assert found["new"] == found["base"] and sum(found["base"]) < len(lines) / 2, "most names differed before"
    ids = {one: tokenizer.token_id(one) for one in parts}
    assert None not in ids.values()
    for line, row in zip(plain, tokenizer.encode(plain), strict=True):
        assert any(id in row for id in ids.values())
        assert UNK_ID in row or tokenizer.decode([row])[0] == line


@pytest.mark.parametrize("name", MODELS)
def test_a_name_with_more_around_it_is_no_symbol(name: str, tmp_path: Path) -> None:
    """The name in it would be found first by transformers, so never the symbol."""
    make, changes, languages, _ = MODELS[name]
    make(tmp_path / "hub", **changes)
    run = import_huggingface(tmp_path / "hub", tmp_path / "base", **languages).path
    tokenizer = load_run(run, device="cpu").src_tokenizer
    for one in special_names(tokenizer):
        with pytest.raises(UsageError, match=r"contains .*, a special entry of the vocabulary") as caught:
            extend_vocabulary(tokenizer, [f"x{one}y"])
        assert caught.value.help == "choose a name that no text contains, such as <med>"
