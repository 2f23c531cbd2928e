"""Loading of translation runs; torch is imported only for a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from attnkit.checkpoints.adapters import fingerprint_of, whole_weights
from attnkit.checkpoints.arrays import check_file_holds_weights, read_arrays
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.checkpoints.logs import MAX_LINE, parse_line
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.compiled.packed_transformer import PackedTransformer
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_bounded, read_run_config, read_tree
from attnkit.engine.vocabularies import Vocabularies, read_tokenizer, read_vocabularies
from attnkit.errors import RunError, UsageError
from attnkit.io.safe_read import check_system, read_regular_file
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.tags import without_side
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.tokenizer import load as load_tokenizer

if TYPE_CHECKING:
    import torch

    from attnkit.kernels.simd.targets import Precision
    from attnkit.models.translation import TranslationModel
    from attnkit.quality.confidence import ConfidenceCurve
    from attnkit.quality.profile import TrainingProfile
    from attnkit.text.sentences import SourceStatistics

SOURCE_STATISTICS = "sentences.json"  #: file of a checkpoint
TRAINING_PROFILE = "profile.json"  #: file of a checkpoint
CONFIDENCE_NAME = "confidence.json"  #: file of a run folder


@dataclass(frozen=True)
class OpenedRun:
    """An opened checkpoint without its model: configuration and tokenizers."""

    path: Path
    files: Checkpoint
    config: TranslationConfig
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    warnings: tuple[str, ...]  #: reasons why newer checkpoints were skipped

    @cached_property
    def source_statistics(self) -> SourceStatistics | None:
        """Statistics of the training source; None if the checkpoint has none.

        Raises ``RunError`` if they are damaged.
        """
        if SOURCE_STATISTICS not in self.files.manifest.files:
            return None
        from attnkit.text.sentences import SourceStatistics

        raw = read_bounded(self.files, SOURCE_STATISTICS, TEXT_FILES[SOURCE_STATISTICS])
        try:
            return SourceStatistics.model_validate_json(raw)
        except ValidationError as error:
            where = str(self.files.path / SOURCE_STATISTICS)
            raise RunError("invalid statistics of the source text", where=where) from error

    @cached_property
    def training_profile(self) -> TrainingProfile | None:
        """Profile of the training pairs; None if the checkpoint has none.

        Raises ``RunError`` if it is damaged.
        """
        if TRAINING_PROFILE not in self.files.manifest.files:
            return None
        from attnkit.quality.profile import TrainingProfile

        raw = read_bounded(self.files, TRAINING_PROFILE, TEXT_FILES[TRAINING_PROFILE])
        try:
            return TrainingProfile.model_validate_json(raw)
        except ValidationError as error:
            where = str(self.files.path / TRAINING_PROFILE)
            raise RunError("invalid profile of the training pairs", where=where) from error

    @cached_property
    def confidence(self) -> ConfidenceCurve | None:
        """Confidence of translations; None if the run has learned none of these weights.

        Raises ``RunError`` if its file is damaged.
        """
        return read_confidence(self.path, fingerprint_of(self.files))

    @property
    def checkpoint(self) -> str:
        """Name of the checkpoint."""
        return self.files.name

    @property
    def vocabularies(self) -> tuple[str, str]:
        """Vocabulary fingerprints, which must agree across the runs of an ensemble.

        They leave out language codes and what is before sources, as an ensemble translates in one direction.
        """
        src, tgt = map(without_side, (self.src_tokenizer, self.tgt_tokenizer))
        return src.fingerprint, tgt.fingerprint


def read_confidence(run: Path, weights: str) -> ConfidenceCurve | None:
    """Return the curve of a run; None if it has none for these weights.

    Raises:
        RunError: the file is damaged.
    """
    path = run / CONFIDENCE_NAME
    if not os.path.lexists(path):
        return None
    from attnkit.quality.confidence import ConfidenceCurve

    try:
        record = parse_line(read_regular_file(path, MAX_LINE))
        curve = None if record is None else ConfidenceCurve.model_validate(record)
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        check_system(path, error)
        curve = None
    if curve is None:
        help = "delete it: translations then have no confidence"
        raise RunError("the file of the confidence is damaged", where=str(path), help=help)
    return curve if curve.weights == weights else None


@dataclass(frozen=True)
class LoadedRun(OpenedRun):
    """A model ready to translate, with its configuration and tokenizers."""

    model: TranslationModel
    device: torch.device


def open_run(path: Path, checkpoint: str | None = None, adapter: Path | None = None) -> OpenedRun:
    """Open a checkpoint of a run: best (default), last, averaged or step-N.

    With ``adapter``, the run of an adapter, it is the adapter on the weights of the checkpoint.

    Raises:
        RunError: a run or checkpoint is missing or damaged, a run has another task, or the adapter other weights.
    """
    chosen, warnings = RunFolder(path).adapted(checkpoint, adapter)
    config = read_run_config(chosen, "translation")
    whole_weights(chosen).read_ahead(MODEL)  # while the tokenizers are read
    return OpenedRun(path, chosen, config, *read_vocabularies(chosen), tuple(warnings))


def load_run(
    path: Path, *, device: str = "auto", precision: str = "float32", checkpoint: str | None = None
) -> LoadedRun:
    """Load a checkpoint of a run and its model; ``open_run`` names the errors."""
    return load_opened(open_run(path, checkpoint), device=device, precision=precision)


def load_opened(run: OpenedRun, *, device: str = "auto", precision: str = "float32") -> LoadedRun:
    """Load the model of an opened run. Raises ``RunError`` if its weights are damaged."""
    from attnkit.engine.loading import load_checkpoint
    from attnkit.models.linear import pack
    from attnkit.runtime.devices import DTYPES

    loaded = load_checkpoint(run.path, run.files, run.config, device=device, dtype=DTYPES[precision])
    parts = run.path, run.files, run.config, run.src_tokenizer, run.tgt_tokenizer, run.warnings
    return LoadedRun(*parts, pack(loaded.model), loaded.device)


def pack_weights(run: OpenedRun, precision: Precision) -> PackedTransformer:
    """Read weights for compiled loops; raise ``RunError`` if they are damaged."""
    from attnkit.models.parameter_shapes import transformer_shapes  # imported here: a trained model has its weights

    sizes = run.src_tokenizer.vocab_size, run.tgt_tokenizer.vocab_size
    model = run.config.model
    assert model.kind == "transformer", "reason_against_model tells which models have no compiled form"
    check_file_holds_weights(run.files, model, sizes)
    weights = read_arrays(run.files, transformer_shapes(model, *sizes))
    return PackedTransformer(model, weights, run.tgt_tokenizer.n_words, precision)


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
            return _extended(config, source, read_vocabularies(source)), None
        return None, read_tokenizer(source)
    if config.vocabulary_files is None:
        return None, None
    loaded = [load_tokenizer(Path(name)) for name in config.vocabulary_files]
    return Vocabularies(loaded[0], loaded[-1]), None


def _extended(config: TranslationConfig, source: Checkpoint, given: Vocabularies) -> Vocabularies:
    """Return vocabularies with the extension of a configuration.

    Those of a checkpoint of the run itself have it already.
    """
    extension = config.extension
    if extension is None or read_tree(source).get("extension") == extension.model_dump(mode="json"):
        return given
    if is_bert(source):
        raise UsageError("the vocabulary of BERT cannot be extended", where="extension", help="remove extension")
    from attnkit.text.extension import extend_vocabularies  # imported here: few runs extend any
    from attnkit.text.lines import read_lines

    def read() -> Iterator[str]:
        return chain.from_iterable(read_lines(Path(name)) for name in extension.files)

    lines = read if extension.files else None
    return Vocabularies(*extend_vocabularies(*given, extension.symbols, lines, extension.entries))
