"""Parts that all fine-tuning tasks share: initial weights, frozen layers, layer-wise learning rates.

A fine-tuned model has an ``encoder`` and a head for its task. The encoder takes the pretrained weights; the language
model head is dropped and the new head is initialized. After pretraining with next-sentence prediction the pooler is
kept for the classifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import MODEL, check_min_parameters, load_weights, read_tensors, tensors_of
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import EXCLUDED_INIT_KEYS
from attnkit.engine.resolve import EMBEDDING_KEYS
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.metrics.labels import class_weights
from attnkit.models.bert import Bert
from attnkit.models.heads import freeze, layers_of
from attnkit.tasks.finetuning.config import FinetuneConfig, LabelingConfig
from attnkit.tasks.language_modeling.config import MlmConfig

ENCODER_PREFIX = "encoder."
DISCARDED_PREFIXES = ("predictor.", "output.", "next_sentence.")
"""Name prefixes of pretrained weights that do not belong to the encoder."""
POOLER = "next_sentence.pooler."
"""Name prefix in a pretrained model; in a classifier it is ``pooler.``."""


class HasEncoder(Protocol):
    """A model with a pretrained encoder."""

    @property
    def encoder(self) -> Bert:
        """Return the encoder."""
        ...


def freeze_layers(config: FinetuneConfig, model: HasEncoder) -> None:
    """Freeze the lowest layers as configured; for ``Task.build_model``."""
    freeze(model.encoder, config.finetuning.freeze_layers)


def init_weights(config: FinetuneConfig, model: nn.Module, source: Checkpoint) -> None:
    """Copy the encoder of a pretrained run, or all weights of a run of the same task (``Task.init_weights``)."""
    if config.finetuning.from_scratch:
        return
    if continues_own_task(config, source):
        load_weights(model, source)
        return
    own = tensors_of(model)
    with torch.no_grad():
        for name, tensor in _encoder_weights(source).items():
            if name in own:  # question answering has no pooler
                own[name].copy_(tensor)


def _encoder_weights(source: Checkpoint) -> dict[str, Tensor]:
    """Return the encoder weights of a pretrained run, by their names in a fine-tuned model."""
    config = read_run_config(source, "mlm")
    with torch.device("meta"), SkipWeightInit():
        pretrained = Bert(config.model, read_tokenizer(source).vocab_size)
    expected = tensors_of(pretrained)
    kept = {name: ENCODER_PREFIX + name for name in expected if not name.startswith(DISCARDED_PREFIXES)}
    kept |= {name: "pooler." + name.removeprefix(POOLER) for name in expected if name.startswith(POOLER)}
    found = read_tensors(source, MODEL, expected)
    return {target: found[name] for name, target in kept.items()}


def lr_multipliers(config: FinetuneConfig, model: HasEncoder) -> dict[str, float]:
    """Return the learning-rate multiplier of each encoder parameter (``Task.lr_multipliers``).

    The head has 1, the highest layer ``layer_decay``, the one below it ``layer_decay`` squared, and so on.
    """
    decay, n_layers = config.finetuning.layerwise_lr_decay, config.model.n_layers
    if config.finetuning.from_scratch or decay == 1:
        return {}
    names = {id(parameter): name for name, parameter in model.encoder.named_parameters()}
    found: dict[str, float] = {}
    for place, group in enumerate(layers_of(model.encoder)):  # the norm at the top goes with the highest layer
        rate = decay ** (n_layers + 1 - min(place, n_layers))
        found |= {ENCODER_PREFIX + names[id(parameter)]: rate for parameter in group}
    return found


def continues_own_task(config: FinetuneConfig, source: Checkpoint) -> bool:
    """Return whether the head is initialized too: the checkpoint is of the same task."""
    return not config.finetuning.from_scratch and read_run_config(source).task == config.task


def check_encoder(checkpoint: Checkpoint, config: FinetuneConfig) -> None:
    """Raise ``RunError`` if a checkpoint's weights cannot initialize a run.

    Args:
        checkpoint: a pretrained run's, or one of the same task.
        config: the configuration of the new run.
    """
    stored = read_run_config(checkpoint)
    vocab_size = read_tokenizer(checkpoint).vocab_size
    alone = stored.model if isinstance(stored, MlmConfig) else stored.model.model_copy(update={"tie_embeddings": True})
    check_min_parameters(checkpoint, alone.min_parameters(vocab_size))
    if not config.finetuning.from_scratch:
        unread = ["separators"] if isinstance(stored, MlmConfig) else []  # pretraining reads no pairs
        _check_same_architecture(stored.model.model_dump(), config, str(checkpoint.path), unread)


def _check_same_architecture(
    stored: Mapping[str, object], config: FinetuneConfig, where: str, unread: Sequence[str]
) -> None:
    expected = config.model.model_dump()
    free = (
        *EXCLUDED_INIT_KEYS,
        *EMBEDDING_KEYS,
        *unread,
        *(["max_length"] if config.model.max_positions is None else []),
    )
    for key in expected:
        if key not in free and stored.get(key) != expected[key]:
            what = f"model.{key} is {expected[key]}, but the encoder was trained with {stored.get(key)}"
            raise RunError(what, where=where, help=f"leave model.{key} out, or set finetuning.from_scratch=true")


def label_weights(config: LabelingConfig, counts: Sequence[int]) -> Tensor | None:
    """Return label weights for the loss, (labels,) float32, from their counts; None if all are 1."""
    return torch.tensor(class_weights(counts), dtype=torch.float32) if config.class_weights == "balanced" else None


def checked_vocab_size(checkpoint: Checkpoint, config: FinetuneConfig, n_head: int = 0) -> int:
    """Return the vocabulary size of a checkpoint (``Task.model_for_checkpoint``).

    Raises:
        RunError: the checkpoint has too few weights; ``n_head`` counts those of the task's head.
    """
    vocab_size = read_tokenizer(checkpoint).vocab_size
    alone = config.model.model_copy(update={"tie_embeddings": True})
    check_min_parameters(checkpoint, alone.min_parameters(vocab_size) + n_head)
    return vocab_size
