"""Load a translation run: configuration, vocabularies, and the model with its weights."""

from dataclasses import dataclass
from pathlib import Path

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import Vocabularies, read_tokenizer, read_vocabularies
from attnkit.models.linear import pack
from attnkit.models.translation import TranslationModel
from attnkit.runtime.devices import DTYPES
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer


@dataclass(frozen=True)
class LoadedRun:
    """A model ready to translate, with what it was trained with."""

    path: Path
    checkpoint: str
    config: TranslationConfig
    model: TranslationModel
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    device: torch.device
    warnings: tuple[str, ...] = ()  #: problems of newer checkpoints that were skipped

    @property
    def vocabularies(self) -> tuple[str, str]:
        """Fingerprints that must agree among the runs of an ensemble."""
        return self.src_tokenizer.fingerprint, self.tgt_tokenizer.fingerprint


def load_run(
    path: Path, *, device: str = "auto", precision: str = "float32", checkpoint: str | None = None
) -> LoadedRun:
    """Load a checkpoint of a run: ``best``, ``last``, ``averaged`` or ``step-N``; by default the best checkpoint.

    Raises:
        RunError: no run, no such checkpoint, damaged, or of another kind.
    """
    warnings: list[str] = []
    opened = load_model(
        path, "translation", device=device, checkpoint=checkpoint, dtype=DTYPES[precision], warn=warnings.append
    )
    packed = pack(opened.model)
    vocabularies = read_vocabularies(opened.checkpoint)
    name = opened.checkpoint.name
    return LoadedRun(path, name, opened.config, packed, *vocabularies, opened.device, tuple(warnings))


def load_model_on_cpu(path: Path, *, precision: str, checkpoint: str | None) -> TranslationModel:
    """Return the model of a run, for a process that searches."""
    return load_run(path, device="cpu", precision=precision, checkpoint=checkpoint).model


def is_bert(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is of a pretrained BERT instead of a translation model."""
    return read_tree(checkpoint).get("task") == "mlm"


def provided_vocabularies(
    config: TranslationConfig, source: Checkpoint | None
) -> tuple[Vocabularies | None, Tokenizer | None]:
    """Return vocabularies to use instead of making new ones: of both sides, or of the source alone.

    Those of a checkpoint, else of ``vocabulary_files``. BERT's is the source's, unless it is to serve both sides.

    Raises:
        RunError: one of them is missing or damaged.
    """
    if source is not None:
        if config.joint_vocabulary or read_tree(source).get("task") == config.task:
            return read_vocabularies(source), None
        return None, read_tokenizer(source)
    if config.vocabulary_files is None:
        return None, None
    loaded = [load_tokenizer(Path(name)) for name in config.vocabulary_files]
    return Vocabularies(loaded[0], loaded[-1]), None
