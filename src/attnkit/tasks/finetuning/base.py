"""What the runs of a pretrained encoder have in common: the weights they take over, frozen layers, layers' rates.

A model of such a run has an ``encoder`` (``heads.encoder_alone``) and a head of its task. Of a pretrained run's weights
those of the encoder go into it, those of the language-model head stay behind, and the head is fresh; where the
pretraining knew next sentences, its pooler becomes the classifier's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.metadata import read_run_config
from attnkit.checkpoints.weights import MODEL, read_tensors, refuse_fewer, tensors_of
from attnkit.engine.dry_run import Undrawn
from attnkit.engine.inheritance import BEGUN_WITH
from attnkit.engine.load import load_into, read_tokenizer
from attnkit.errors import RunError
from attnkit.metrics.labels import class_weights
from attnkit.models.bert import Bert
from attnkit.models.heads import freeze, layers_of
from attnkit.tasks.finetuning.config import NOT_TAKEN, FinetuneConfig, LabelingConfig
from attnkit.tasks.language_modeling.config import MlmConfig

PREFIX = "encoder."
LEFT = ("predictor.", "output.", "next_sentence.")
"""Where the names of a pretrained model begin that are not of its encoder."""
POOLER = "next_sentence.pooler."
"""Of a pretrained model; a classifier's is called ``pooler.``."""


class Headed(Protocol):
    """A model that stands on an encoder."""

    @property
    def encoder(self) -> Bert:
        """Return the encoder."""
        ...


def ready(config: FinetuneConfig, model: Headed) -> None:
    """Freeze the layers that are to stay as they are; for ``Task.build``."""
    freeze(model.encoder, config.finetuning.freeze_layers)


def take(config: FinetuneConfig, model: nn.Module, source: Checkpoint) -> None:
    """Give a fresh model a pretrained run's encoder, or all weights of a run of its own kind (``Task.take``)."""
    if config.finetuning.from_scratch:
        return
    if begun(config, source):
        load_into(model, source)
        return
    own = tensors_of(model)
    with torch.no_grad():
        for name, tensor in _encoder_weights(source).items():
            if name in own:  # a reader has no pooler
                own[name].copy_(tensor)


def _encoder_weights(source: Checkpoint) -> dict[str, Tensor]:
    """Return the weights of a pretrained run's encoder, by their names in a model that stands on it."""
    config = read_run_config(source, "mlm")
    with torch.device("meta"), Undrawn():
        giver = Bert(config.model, read_tokenizer(source).vocab_size)
    expected = tensors_of(giver)
    kept = {name: PREFIX + name for name in expected if not name.startswith(LEFT)}
    kept |= {name: "pooler." + name.removeprefix(POOLER) for name in expected if name.startswith(POOLER)}
    found = read_tensors(source, MODEL, expected)
    return {target: found[name] for name, target in kept.items()}


def rates(config: FinetuneConfig, model: Headed) -> dict[str, float]:
    """Return what the learning rate of each parameter of the encoder is multiplied by (``Task.rates``).

    The head has 1, the highest layer ``layer_decay``, the one below it ``layer_decay`` squared, and so on.
    """
    decay, n_layers = config.finetuning.layerwise_lr_decay, config.model.n_layers
    if config.finetuning.from_scratch or decay == 1:
        return {}
    names = {id(parameter): name for name, parameter in model.encoder.named_parameters()}
    found: dict[str, float] = {}
    for place, group in enumerate(layers_of(model.encoder)):  # the norm at the top goes with the highest layer
        rate = decay ** (n_layers + 1 - min(place, n_layers))
        found |= {PREFIX + names[id(parameter)]: rate for parameter in group}
    return found


def begun(config: FinetuneConfig, source: Checkpoint) -> bool:
    """Return whether a run goes on with the head of a checkpoint, which is of its own kind then."""
    return not config.finetuning.from_scratch and read_run_config(source).task == config.task


def refuse_misfit(checkpoint: Checkpoint, config: FinetuneConfig) -> None:
    """Raise ``RunError`` where a run cannot begin with a checkpoint's weights, or has not trained them.

    Args:
        checkpoint: of a pretrained run, or of one of this kind.
        config: of the run that begins, or that is opened.
    """
    stored = read_run_config(checkpoint)
    vocab_size = read_tokenizer(checkpoint).vocab_size
    alone = stored.model if isinstance(stored, MlmConfig) else stored.model.model_copy(update={"tie_embeddings": True})
    refuse_fewer(checkpoint, alone.least_weights(vocab_size))
    if not config.finetuning.from_scratch:
        unread = ["separators"] if isinstance(stored, MlmConfig) else []  # which it has not met a pair with
        _refuse_other_encoder(stored.model.model_dump(), config, str(checkpoint.path), unread)


def _refuse_other_encoder(
    stored: Mapping[str, object], config: FinetuneConfig, where: str, unread: Sequence[str]
) -> None:
    asked = config.model.model_dump()
    free = (*NOT_TAKEN, *BEGUN_WITH, *unread, *(["max_length"] if config.model.longest is None else []))
    for key in asked:
        if key not in free and stored.get(key) != asked[key]:
            what = f"model.{key} is {asked[key]}, but the encoder was trained with {stored.get(key)}"
            raise RunError(what, where=where, help=f"leave model.{key} out, or take none of the weights: from scratch")


def label_weights(config: LabelingConfig, counts: Sequence[int]) -> Tensor | None:
    """Return the weight of each label in the loss, (C,) float32, by how often it occurs; None where all weigh 1."""
    return torch.tensor(class_weights(counts), dtype=torch.float32) if config.class_weights == "balanced" else None


def fitted(checkpoint: Checkpoint, config: FinetuneConfig, n_head: int = 0) -> int:
    """Return the size of the vocabulary of a checkpoint that a model is to be built for (``Task.fitting``).

    Raises:
        RunError: it has too few weights, ``n_head`` being those of the task's head.
    """
    vocab_size = read_tokenizer(checkpoint).vocab_size
    alone = config.model.model_copy(update={"tie_embeddings": True})
    refuse_fewer(checkpoint, alone.least_weights(vocab_size) + n_head)
    return vocab_size
