"""The tokenizers of a run: one for both sides, or one a side. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnkit.text.tokenizer import Tokenizer, load


@dataclass(frozen=True)
class Vocabularies:
    """One tokenizer for both sides, or one a side."""

    src: Tokenizer
    tgt: Tokenizer

    def files(self) -> dict[str, bytes]:
        """Return what a checkpoint holds of them: file name -> content."""
        named = {"tokenizer.json": self.src.to_json().encode()}
        if self.tgt is not self.src:
            named["tokenizer.target.json"] = self.tgt.to_json().encode()
        return named


def load_vocabularies(folder: Path) -> Vocabularies:
    """Read the tokenizer files of a folder."""
    src = load(folder / "tokenizer.json")
    target = folder / "tokenizer.target.json"
    return Vocabularies(src, load(target) if target.exists() else src)
