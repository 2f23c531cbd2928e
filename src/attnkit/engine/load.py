"""Open a trained run for use: configuration, vocabularies, and the model with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import safetensors.torch
import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.metadata import read_bounded, read_run_config, read_tree
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import MODEL, check_file_holds_weights, read_tensors, tensors_of
from attnkit.engine.run_config import RunConfig
from attnkit.engine.vocabularies import Vocabularies
from attnkit.models.build import build_model
from attnkit.models.config import ModelConfig
from attnkit.models.linear import pack
from attnkit.models.translation import TranslationModel
from attnkit.runtime.devices import DTYPES, choose_device
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES


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
    warnings: tuple[str, ...] = ()
    """What was wrong with newer checkpoints that were passed over."""

    @property
    def max_positions(self) -> int | None:
        """Most tokens a side may have, its end included; None where the model knows no such limit."""
        return self.config.model.max_positions

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention weights to show."""
        return self.config.model.has_attention

    @property
    def vocabularies(self) -> tuple[str, str]:
        """Fingerprints that must agree among the runs of an ensemble."""
        return self.src_tokenizer.fingerprint, self.tgt_tokenizer.fingerprint


def load_run(
    path: Path, *, device: str = "auto", precision: str = "float32", checkpoint: str | None = None
) -> LoadedRun:
    """Load a checkpoint of a run: ``best``, ``last``, ``averaged`` or ``step-N``; without a name the best there is.

    Raises:
        RunError: no run, no such checkpoint, damaged, or of another kind.
    """
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    config = read_config(chosen)
    where = choose_device(device)
    src, tgt = read_tokenizers(chosen)
    model = build_for_checkpoint(chosen, config.model, Vocabularies(src, tgt))
    load_weights(model, chosen)
    model.eval()
    module = cast(torch.nn.Module, model).to(device=where, dtype=DTYPES[precision])
    packed = cast(TranslationModel, pack(module))
    return LoadedRun(path, chosen.name, config, packed, src, tgt, where, tuple(warnings))


def read_config(checkpoint: Checkpoint) -> TranslationConfig:
    """Return the configuration stored in a checkpoint. Raises ``RunError`` for a run of another kind."""
    config = read_run_config(checkpoint, "translation")
    assert isinstance(config, TranslationConfig)
    return config


def read_tokenizers(checkpoint: Checkpoint) -> tuple[Tokenizer, Tokenizer]:
    """Return the source and the target tokenizer; the same object where they are joint."""
    src = Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.json", MAX_BYTES))
    if "tokenizer.target.json" not in checkpoint.manifest.files:
        return src, src
    return src, Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.target.json", MAX_BYTES))


def provided_vocabularies(config: TranslationConfig, source: Checkpoint | None) -> Vocabularies | None:
    """Return vocabularies to use instead of making new ones: those of a checkpoint, or ``vocabulary_files``.

    The one of BERT serves both sides where they are to have one; else it is ``provided_source_vocabulary``.

    Raises:
        RunError: one of them is missing or damaged.
    """
    if source is not None:
        return Vocabularies(*read_tokenizers(source)) if provided_source_vocabulary(config, source) is None else None
    if config.vocabulary_files is None:
        return None
    loaded = [load_tokenizer(Path(name)) for name in config.vocabulary_files]
    return Vocabularies(loaded[0], loaded[-1])


def provided_source_vocabulary(config: TranslationConfig, source: Checkpoint | None) -> Tokenizer | None:
    """Return the source's vocabulary where it alone is given: a BERT's, unless it is to serve both sides."""
    if source is None or config.joint_vocabulary or read_tree(source).get("task") == config.task:
        return None
    return read_tokenizer(source)


def provided_tokenizer(config: RunConfig, source: Checkpoint | None) -> Tokenizer | None:
    """Return the one vocabulary to use instead of making a new one: a checkpoint's, or that of ``vocabulary_files``."""
    if source is not None:
        return read_tokenizer(source)
    return None if config.vocabulary_files is None else load_tokenizer(Path(config.vocabulary_files[0]))


def read_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Return the one vocabulary of a checkpoint."""
    return Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.json", MAX_BYTES))


def check_weights_fit(checkpoint: Checkpoint, config: ModelConfig, vocabularies: Vocabularies) -> None:
    """Raise ``RunError`` where a checkpoint has too few weights for a model, which need not be built for that."""
    check_file_holds_weights(checkpoint, config, (vocabularies.src.vocab_size, vocabularies.tgt.vocab_size))


def build_for_checkpoint(checkpoint: Checkpoint, config: ModelConfig, vocabularies: Vocabularies) -> TranslationModel:
    """Build a model for a checkpoint's weights. Raises ``RunError`` before, where they are too few for it."""
    check_weights_fit(checkpoint, config, vocabularies)
    return build_model(config, vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)


def load_weights(model: TranslationModel, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into a model. Raises ``RunError`` if they do not fit or are not finite."""
    own = tensors_of(model)
    tensors = read_tensors(checkpoint, MODEL, own)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def load_state(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into any model. Raises ``RunError`` if they do not fit or are not finite."""
    load_weights(cast(TranslationModel, model), checkpoint)


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as safetensors bytes, as ``load_weights`` reads them; views become whole tensors on the CPU."""
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
