"""The tokenizers of a run: one for both sides, or one per side."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_bounded
from attnkit.engine.resolve import EMBEDDING_FILES
from attnkit.engine.run_config import RunConfig
from attnkit.errors import RunError, UsageError
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES


class Vocabularies(NamedTuple):
    """The source and the target tokenizer; one object where both sides share it."""

    src: Tokenizer
    tgt: Tokenizer

    def files(self) -> dict[str, bytes]:
        """Return the checkpoint's tokenizer files, name -> content."""
        named = {"tokenizer.json": self.src.to_json().encode()}
        if self.tgt is not self.src:
            named["tokenizer.target.json"] = self.tgt.to_json().encode()
        return named


def load_vocabularies(folder: Path) -> Vocabularies:
    """Read the tokenizer files of a folder."""
    src = load_tokenizer(folder / "tokenizer.json")
    target = folder / "tokenizer.target.json"
    return Vocabularies(src, load_tokenizer(target) if target.exists() else src)


def check_init_conflicts(config: RunConfig, init_from: Path | None) -> None:
    """Raise ``UsageError`` if vocabularies or embeddings are given for weights that include their own."""
    files = [key for key in EMBEDDING_FILES if getattr(config.model, key, None) is not None]
    if getattr(config.model, "scale_embeddings", False) and not files:
        help = "set model.embeddings, or remove model.scale_embeddings"
        raise UsageError("scale_embeddings needs word vectors", where="model.scale_embeddings", help=help)
    if init_from is None:
        return
    if config.vocabulary_files is not None:
        raise UsageError(
            f"--vocab and --init-from cannot be combined: the weights of {init_from} need that run's vocabulary",
            where="--vocab (vocabulary_files)",
            help="remove --vocab",
        )
    if files:
        # Vectors are initial values: weights of another run would overwrite them.
        where = f"model.{files[0]}"
        what = f"{where} and --init-from cannot be combined: the weights of {init_from} include embeddings"
        raise UsageError(what, where=where, help=f"remove {where}")


@lru_cache(maxsize=2)
def _parse(raw: bytes, file: str) -> Tokenizer:
    """Parse a file once for the model, built for the tokenizer's size, and for the task; ``file`` tells sides apart."""
    return Tokenizer.from_json(raw)


def read_tokenizer(checkpoint: Checkpoint, file: str = "tokenizer.json") -> Tokenizer:
    """Return the tokenizer of a checkpoint, by default the only one or that of the source."""
    return _parse(read_bounded(checkpoint, file, MAX_BYTES), file)


def read_vocabularies(checkpoint: Checkpoint) -> Vocabularies:
    """Return the source and the target tokenizer of a checkpoint."""
    src, target = read_tokenizer(checkpoint), "tokenizer.target.json"
    # One file: both sides share it.
    return Vocabularies(src, read_tokenizer(checkpoint, target) if target in checkpoint.manifest.files else src)


def provided_tokenizer(config: RunConfig, source: Checkpoint | None) -> Tokenizer | None:
    """Return the vocabulary of a checkpoint or of ``vocabulary_files``; None if a new one is to be trained."""
    if source is not None:
        return read_tokenizer(source)
    return None if config.vocabulary_files is None else load_tokenizer(Path(config.vocabulary_files[0]))


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the vocabulary in a file of ``attnkit vocab``, or the source vocabulary of a run."""
    if not path.is_dir():
        return load_tokenizer(path)
    # The best checkpoint; vocabularies are the same in all.
    checkpoint = RunFolder(path).checkpoint()[0]
    if "tokenizer.json" not in checkpoint.manifest.files:
        raise RunError("this run has no tokenizer", where=str(path), help="use a vocabulary of attnkit vocab")
    return read_tokenizer(checkpoint)
