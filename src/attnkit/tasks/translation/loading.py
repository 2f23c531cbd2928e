"""Loading of translation runs: configuration, vocabularies and model weights."""

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
    """A model ready to translate, with its configuration and tokenizers."""

    path: Path
    checkpoint: str
    config: TranslationConfig
    model: TranslationModel
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    device: torch.device
    warnings: tuple[str, ...] = ()  #: reasons why newer checkpoints were skipped

    @property
    def vocabularies(self) -> tuple[str, str]:
        """Vocabulary fingerprints, which must agree across the runs of an ensemble."""
        return self.src_tokenizer.fingerprint, self.tgt_tokenizer.fingerprint


def load_run(
    path: Path, *, device: str = "auto", precision: str = "float32", checkpoint: str | None = None
) -> LoadedRun:
    """Load a checkpoint of a run: best (default), last, averaged or step-N.

    Raises:
        RunError: the run or checkpoint is missing or damaged, or the run has another task.
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
    """Return the model of a run on the CPU, for a search worker process."""
    return load_run(path, device="cpu", precision=precision, checkpoint=checkpoint).model


def is_bert(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is a pretrained BERT, not a translation model."""
    return read_tree(checkpoint).get("task") == "mlm"


def provided_vocabularies(
    config: TranslationConfig, source: Checkpoint | None
) -> tuple[Vocabularies | None, Tokenizer | None]:
    """Return vocabularies that need no training: both, or the source tokenizer only.

    They are from ``source``, else ``vocabulary_files``. BERT's is for the source, unless ``joint_vocabulary`` is set.

    Raises:
        RunError: a vocabulary is missing or damaged.
    """
    if source is not None:
        if config.joint_vocabulary or read_tree(source).get("task") == config.task:
            return read_vocabularies(source), None
        return None, read_tokenizer(source)
    if config.vocabulary_files is None:
        return None, None
    loaded = [load_tokenizer(Path(name)) for name in config.vocabulary_files]
    return Vocabularies(loaded[0], loaded[-1]), None
