"""What a training run would be, without running it: parameters, memory, tokens an epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.load import provided_source_vocabulary, provided_vocabularies
from attnkit.engine.run_config import RunConfig
from attnkit.engine.vocabularies import Vocabularies
from attnkit.models.build import build_model
from attnkit.runtime.devices import choose_device, choose_precision
from attnkit.tasks.translation.bert_encoder import refuse_misfit
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.lines import count_lines
from attnkit.text.parallel import read_parallel
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

SAMPLE = 20_000
_INITIALIZERS = (torch.Tensor.normal_, torch.Tensor.uniform_)


@dataclass(frozen=True)
class RunEstimate:
    """Figures of a run to be."""

    n_examples: int
    n_parameters: int
    tokens_per_epoch: int
    """Source and target tokens, estimated from the first lines of each file."""
    steps_per_epoch: int
    memory: int
    """Bytes that training takes at its height, estimated."""
    device: str
    precision: str
    unit: str = "pairs"
    """What an example is, for people."""


class SkipWeightInit(TorchFunctionMode):
    """Leaves out the drawing of weights: without memory it does nothing but import torch's compiler, for a second."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _INITIALIZERS or getattr(func, "__module__", "") == "torch.nn.init":
            return (kwargs or {}).get("tensor", *args[:1])
        return func(*args, **(kwargs or {}))


def plan(config: TranslationConfig, init_from: Path | None = None) -> RunEstimate:
    """Estimate a run from its configuration and a sample of its text.

    Vocabularies that are given are read, others made of the samples: where these are all the text, they are the run's.
    """
    files = list(zip(map(Path, config.data.src), map(Path, config.data.tgt), strict=True))
    samples = [list(islice(read_parallel(src, tgt), SAMPLE)) for src, tgt in files]  # which refuses what is no text
    counts = [count_lines(src) for src, _ in files]
    checkpoint = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    if checkpoint is not None:
        refuse_misfit(checkpoint, config)
    given = provided_vocabularies(config, checkpoint)
    every = [pair for sample in samples for pair in sample]
    vocabularies = given or _of_samples(config, every, provided_source_vocabulary(config, checkpoint))
    whole = given is not None or max(counts) <= SAMPLE
    sides = (vocabularies.src, vocabularies.tgt)
    tokens = 0.0
    for sample, lines, weight in zip(samples, counts, config.data.weights or [1.0] * len(files), strict=True):
        n = sum(len(ids) + 1 for k, side in enumerate(sides) for ids in side.encode([pair[k] for pair in sample]))
        tokens += weight * n * lines / len(sample)
    src_size, tgt_size = (side.vocab_size if whole else config.vocabulary.size for side in sides)
    return estimate(config, sum(counts), tokens, lambda: build_model(config.model, src_size, tgt_size), tgt_size)


def estimate(
    config: RunConfig, n_examples: int, tokens: float, build: Callable[[], Any], n_classes: int, unit: str = "pairs"
) -> RunEstimate:
    """Return the figures of a run over so many tokens an epoch, for a model that chooses among ``n_classes``."""
    with torch.device("meta"), SkipWeightInit():
        model = build()
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    return RunEstimate(
        n_examples=n_examples,
        n_parameters=n_parameters,
        tokens_per_epoch=round(tokens),
        steps_per_epoch=max(1, round(tokens / (0.93 * config.optimization.batch_tokens))),
        memory=memory(config, n_parameters, n_classes, precision.itemsize),
        device=device.type,
        precision=str(precision).removeprefix("torch."),
        unit=unit,
    )


def _of_samples(config: TranslationConfig, pairs: list[tuple[str, str]], source: Tokenizer | None) -> Vocabularies:
    if source is not None:
        return Vocabularies(source, train_vocabulary((tgt for _, tgt in pairs), config.vocabulary))
    if config.joint_vocabulary:
        joint = train_vocabulary((text for pair in pairs for text in pair), config.vocabulary)
        return Vocabularies(joint, joint)
    return Vocabularies(*(train_vocabulary((pair[side] for pair in pairs), config.vocabulary) for side in (0, 1)))


def memory(config: RunConfig, n_parameters: int, vocab_size: int, itemsize: int) -> int:
    """Estimate the bytes of weights, optimizer, gradients and activations of one micro-batch."""
    state = 16 + (2 * itemsize if itemsize < 4 else 0) + (4 if config.optimization.ema_decay else 0)
    tokens = config.optimization.batch_tokens / config.optimization.gradient_accumulation_steps
    activations: float = tokens * config.model.activation_floats_per_token * itemsize
    logits = min(tokens * vocab_size * 4, 64e6)
    return round(n_parameters * state + activations + logits + 350e6)
