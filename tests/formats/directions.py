"""Imported models of many languages, for tests of their directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translators import m2m_folder, mbart_folder, nllb_folder

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.tasks.translation.directions import LanguagePair

MODELS: dict[str, tuple[Callable[..., Any], LanguagePair, LanguagePair, dict[str, Any]]] = {
    "m2m100": (m2m_folder, LanguagePair("en", "de"), LanguagePair("fr", "zh"), {"end": 0.5}),
    "nllb": (nllb_folder, LanguagePair("eng_Latn", "deu_Latn"), LanguagePair("zho_Hans", "ace_Arab"), {"end": 3.0}),
    "mbart": (mbart_folder, LanguagePair("en_XX", "de_DE"), LanguagePair("zh_CN", "ro_RO"), {"end": 2.5}),
}


@dataclass
class Imported:
    """A model of transformers, imported for two directions."""

    theirs: Any
    usual: LanguagePair
    other: LanguagePair
    run: Path  #: imported for the usual direction
    run_of_other: Path


def import_twice(place: Path, name: str) -> Imported:
    """Make a model of ``MODELS``, and import it for both of its directions."""
    make, usual, other, changes = MODELS[name]
    theirs = make(place / "hub", **changes)
    runs = []
    for folder, (src, tgt) in (("run", usual), ("other", other)):
        runs.append(import_huggingface(place / "hub", place / folder, src_lang=src, tgt_lang=tgt).path)
    return Imported(theirs, usual, other, *runs)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
