"""Tokenizers of a run: one shared by both sides, or one per side."""

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
    """Source and target tokenizers; the same object if both sides share one."""

    src: Tokenizer
    tgt: Tokenizer

    def files(self) -> dict[str, bytes]:
        """Return the content of the tokenizer files by file name."""
        named = {"tokenizer.json": self.src.to_json().encode()}
        if self.tgt is not self.src:
            named["tokenizer.target.json"] = self.tgt.to_json().encode()
        return named


def load_vocabularies(folder: Path) -> Vocabularies:
    """Load the tokenizers saved in a folder."""
    src = load_tokenizer(folder / "tokenizer.json")
    target = folder / "tokenizer.target.json"
    return Vocabularies(src, load_tokenizer(target) if target.exists() else src)


def check_init_conflicts(config: RunConfig, init_from: Path | None) -> None:
    """Check vocabulary and embedding options; raise ``UsageError`` on a conflict."""
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
        # Word vectors are only initial values: the weights of the other run would overwrite them.
        where = f"model.{files[0]}"
        what = f"{where} and --init-from cannot be combined: the weights of {init_from} include embeddings"
        raise UsageError(what, where=where, help=f"remove {where}")


def check_has_weights(config: RunConfig, init_from: Path | None) -> None:
    """Raise ``UsageError`` if a new run keeps weights, but is given none."""
    if config.lora is not None and init_from is None:
        help = "name the run to adapt: --init-from RUN"
        raise UsageError("an adapter needs weights to adapt", where="adapter", help=help)
    if init_from is None and getattr(config, "extension", None) is not None:
        help = "name the run with the vocabulary to extend: --init-from RUN"
        raise UsageError("an extension needs a vocabulary to extend", where="extension", help=help)
    for key in ("freeze", "freeze_layers"):
        if init_from is None and getattr(getattr(config, "finetuning", None), key, None):
            help = "name the run that they are from: --init-from RUN"
            raise UsageError("random weights cannot be frozen", where=f"finetuning.{key}", help=help)


@lru_cache(maxsize=2)  # both the model and the task ask for it
def _parse(raw: bytes, file: str) -> Tokenizer:
    """Parse a tokenizer file; ``file`` keeps equal source and target files apart."""
    return Tokenizer.from_json(raw)


def read_tokenizer(checkpoint: Checkpoint, file: str = "tokenizer.json") -> Tokenizer:
    """Return a tokenizer of a checkpoint, by default the shared or source one."""
    return _parse(read_bounded(checkpoint, file, MAX_BYTES), file)


def read_vocabularies(checkpoint: Checkpoint) -> Vocabularies:
    """Return the source and target tokenizers of a checkpoint."""
    src, target = read_tokenizer(checkpoint), "tokenizer.target.json"
    # Without a target file, both sides share the tokenizer.
    return Vocabularies(src, read_tokenizer(checkpoint, target) if target in checkpoint.manifest.files else src)


def provided_tokenizer(config: RunConfig, source: Checkpoint | None) -> Tokenizer | None:
    """Return the tokenizer of a checkpoint or of a file; None if it must be trained."""
    if source is not None:
        return read_tokenizer(source)
    return None if config.vocabulary_files is None else load_tokenizer(Path(config.vocabulary_files[0]))


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in a vocabulary file, or the source tokenizer of a run."""
    if not path.is_dir():
        return load_tokenizer(path)
    # The best checkpoint; all checkpoints of a run have the same vocabulary.
    checkpoint = RunFolder(path).checkpoint()[0]
    if "tokenizer.json" not in checkpoint.manifest.files:
        raise RunError("this run has no tokenizer", where=str(path), help="use a vocabulary made by attnkit vocab")
    return read_tokenizer(checkpoint)
