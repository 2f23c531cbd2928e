"""The tokenizers of a run: one for both sides, or one a side. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.engine.checkpoint_metadata import read_bounded
from attnkit.engine.run_config import RunConfig
from attnkit.errors import UsageError
from attnkit.text.tokenizer import Tokenizer, load
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES


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


def check_init_conflicts(vocabulary_files: Sequence[str] | None, init_from: Path | None) -> None:
    """Raise ``UsageError`` where files name vocabularies for weights that come with their own."""
    if vocabulary_files is not None and init_from is not None:
        raise UsageError(
            f"the weights of {init_from} fit no vocabulary but that run's own",
            where="--vocab (vocabulary_files) beside --init-from",
            help="leave one of the two out",
        )


def read_tokenizers(checkpoint: Checkpoint) -> tuple[Tokenizer, Tokenizer]:
    """Return the source and the target tokenizer; the same object where they are joint."""
    src = Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.json", MAX_BYTES))
    if "tokenizer.target.json" not in checkpoint.manifest.files:
        return src, src
    return src, Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.target.json", MAX_BYTES))


def provided_tokenizer(config: RunConfig, source: Checkpoint | None) -> Tokenizer | None:
    """Return the one vocabulary to use instead of making a new one: a checkpoint's, or that of ``vocabulary_files``."""
    if source is not None:
        return read_tokenizer(source)
    return None if config.vocabulary_files is None else load_tokenizer(Path(config.vocabulary_files[0]))


def read_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Return the one vocabulary of a checkpoint."""
    return Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.json", MAX_BYTES))
