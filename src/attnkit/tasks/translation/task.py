"""Translation as a task: what joins pairs of lines, a translation model, its loss and its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine import trainer as course
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq_loss import seq2seq_loss
from attnkit.engine.task import Stop, Task
from attnkit.engine.trainer import (
    Event,
    TrainingFinished,
    TrainingInputs,
    TrainingStarted,
    TrainRequest,
    Validated,
    train,
)
from attnkit.engine.vocabularies import Vocabularies, read_tokenizers
from attnkit.models.build import build_model
from attnkit.models.translation import TranslationModel
from attnkit.tasks.translation import bert_encoder as encoder_taken
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.data import Prepared, open_prepared, prepare
from attnkit.tasks.translation.dry_run import plan
from attnkit.tasks.translation.evaluate import Evaluation
from attnkit.tasks.translation.loading import (
    build_for_checkpoint,
    check_weights_fit,
    provided_source_vocabulary,
    provided_vocabularies,
)
from attnkit.training.loop import TrainingJob

__all__ = ["TASK", "Event", "TrainRequest", "TrainingFinished", "TrainingStarted", "Validated", "make_job", "train"]


def make_job(
    config: TranslationConfig,
    model: TranslationModel,
    prepared: Prepared,
    evaluation: Evaluation,
    ranks: ProcessGroup,
    stop: Callable[[], bool] | None = None,
) -> TrainingJob:
    """Return the training job of a configuration: what the loop needs to know, and no more."""
    loss = seq2seq_loss(model, evaluation.device, config.optimization.label_smoothing)
    feed = course.make_loader(config, prepared.pairs, ranks, prepared.pairs.sampler(config.data.weights))
    return course.build_training_job(config, TrainingInputs(model, feed, loss), evaluation, ranks, stop)


def _prepare(
    config: TranslationConfig, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[StatusEvent | DataCheckEvent | WarningEvent]:
    given, source = (
        (lambda: provided_vocabularies(config, giver())),
        (lambda: provided_source_vocabulary(config, giver())),
    )
    return prepare(config, folder, given, origin, source)


def _open(config: TranslationConfig, folder: Path) -> Prepared:
    return open_prepared(folder)


def _build(config: TranslationConfig, prepared: Prepared) -> TranslationModel:
    vocabularies = prepared.vocabularies
    return build_model(config.model, vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)


def _evaluation(config: TranslationConfig, prepared: Prepared, device: torch.device, stop: Stop | None) -> Evaluation:
    return Evaluation(prepared, config.decoding, device, config.evaluation.n_samples, config.max_source, stop)


def _fitting(checkpoint: Checkpoint, config: TranslationConfig) -> torch.nn.Module:
    return cast(
        torch.nn.Module, build_for_checkpoint(checkpoint, config.model, Vocabularies(*read_tokenizers(checkpoint)))
    )


def _refuse_misfit(checkpoint: Checkpoint, config: TranslationConfig) -> None:
    if not encoder_taken.refuse_misfit(checkpoint, config):
        check_weights_fit(checkpoint, config.model, Vocabularies(*read_tokenizers(checkpoint)))


def _about(config: TranslationConfig, name: str) -> ModelCardFields:
    return ModelCardFields(
        what=f"A translation model ({config.model.kind})",
        data=[f"`{src}` to `{tgt}`" for src, tgt in zip(config.data.src, config.data.tgt, strict=True)],
        scored=", greedy search; BLEU and chrF as sacreBLEU computes them with its defaults.",
        use=f"attnkit translate {name} -i input.txt -o output.txt",
    )


TASK = Task(
    prepare=_prepare,
    load_data=_open,
    build_model=_build,
    evaluation=_evaluation,
    build_job=make_job,
    model_for_checkpoint=_fitting,
    check_compatible=_refuse_misfit,
    model_card=_about,
    dry_run=plan,
    init_weights=encoder_taken.take,
)
