"""Translation as a task: what joins pairs of lines, a translation model, its loss and its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.feed import PairFeed
from attnkit.data.prepared_dir import Checked, Stage, Warned
from attnkit.distributed.process_group import Ranks
from attnkit.engine import trainer as course
from attnkit.engine.dry_run import plan
from attnkit.engine.load import build_fitting, given_source, given_vocabularies, read_tokenizers, refuse_misfit
from attnkit.engine.model_card import About
from attnkit.engine.parallel import shares_out
from attnkit.engine.task import Stop, Task
from attnkit.engine.trainer import Begun, Event, Finished, Parts, Request, Scored, train
from attnkit.engine.vocabularies import Vocabularies
from attnkit.models.build import build_model
from attnkit.models.translation import TranslationModel
from attnkit.tasks.translation import bert_encoder as encoder_taken
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.data import Prepared, open_prepared, prepare
from attnkit.tasks.translation.evaluate import Evaluation
from attnkit.tasks.translation.loss import pairs_loss
from attnkit.training.loop import Job

__all__ = ["TASK", "Begun", "Event", "Finished", "Request", "Scored", "make_job", "train"]


def make_job(
    config: TranslationConfig,
    model: TranslationModel,
    prepared: Prepared,
    evaluation: Evaluation,
    ranks: Ranks,
    stop: Callable[[], bool] | None = None,
) -> Job:
    """Return the training job of a configuration: what the loop needs to know, and no more."""
    loss = pairs_loss(model, evaluation.device, config.optimization.label_smoothing)
    feed = PairFeed(
        prepared.pairs,
        config.seed,
        config.optimization.batch_tokens,
        config.optimization.gradient_accumulation_steps,
        ranks.rank,
        ranks.world,
        config.data.weights,
        shares_out(config, ranks),
    )
    return course.make_job(config, Parts(model, feed, loss), evaluation, ranks, stop)


def _prepare(
    config: TranslationConfig, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[Stage | Checked | Warned]:
    given, source = (lambda: given_vocabularies(config, giver())), (lambda: given_source(config, giver()))
    return prepare(config, folder, given, origin, source)


def _open(config: TranslationConfig, folder: Path) -> Prepared:
    return open_prepared(folder)


def _build(config: TranslationConfig, prepared: Prepared) -> TranslationModel:
    vocabularies = prepared.vocabularies
    return build_model(config.model, vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)


def _evaluation(config: TranslationConfig, prepared: Prepared, device: torch.device, stop: Stop | None) -> Evaluation:
    return Evaluation(prepared, config.decoding, device, config.evaluation.n_samples, config.max_source, stop)


def _fitting(checkpoint: Checkpoint, config: TranslationConfig) -> torch.nn.Module:
    return cast(torch.nn.Module, build_fitting(checkpoint, config.model, Vocabularies(*read_tokenizers(checkpoint))))


def _refuse_misfit(checkpoint: Checkpoint, config: TranslationConfig) -> None:
    if not encoder_taken.refuse_misfit(checkpoint, config):
        refuse_misfit(checkpoint, config.model, Vocabularies(*read_tokenizers(checkpoint)))


def _about(config: TranslationConfig, name: str) -> About:
    return About(
        what=f"A translation model ({config.model.kind})",
        data=[f"`{src}` to `{tgt}`" for src, tgt in zip(config.data.src, config.data.tgt, strict=True)],
        scored=", greedy search; BLEU and chrF as sacreBLEU computes them with its defaults.",
        use=f"attnkit translate {name} -i input.txt -o output.txt",
    )


TASK = Task(
    prepare=_prepare,
    open=_open,
    build=_build,
    evaluation=_evaluation,
    job=make_job,
    fitting=_fitting,
    refuse_misfit=_refuse_misfit,
    about=_about,
    plan=plan,
    take=encoder_taken.take,
)
