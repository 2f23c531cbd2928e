"""What a training run would be, without running it: parameters, memory, tokens an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from attnkit.models.build import build_model
from attnkit.runtime import choose_device, choose_precision
from attnkit.tasks.config import TranslationConfig
from attnkit.tasks.resolve import count_lines
from attnkit.text.parallel import read_parallel
from attnkit.text.vocabulary import train_vocabulary

_SAMPLE = 20_000


@dataclass(frozen=True)
class Plan:
    """Figures of a run to be."""

    n_pairs: int
    n_parameters: int
    tokens_per_epoch: int
    """Source and target tokens, estimated from the first lines of each file."""
    steps_per_epoch: int
    memory: int
    """Bytes that training takes at its height, estimated."""
    device: str
    precision: str


def plan(config: TranslationConfig) -> Plan:
    """Estimate a run from its configuration and a sample of its text."""
    tokens, n_pairs, vocab_size = 0.0, 0, config.vocabulary.size
    files = zip(map(Path, config.data.src), map(Path, config.data.tgt), strict=True)
    for number, (src, tgt) in enumerate(files):
        lines = count_lines(src)
        sample = list(islice(read_parallel(src, tgt), _SAMPLE))
        tokenizer = train_vocabulary((text for pair in sample for text in pair), config.vocabulary)
        if lines <= _SAMPLE:
            vocab_size = tokenizer.vocab_size
        encoded = tokenizer.encode([text for pair in sample for text in pair])
        weight = config.data.weights[number] if config.data.weights is not None else 1.0
        tokens += weight * sum(len(ids) + 1 for ids in encoded) * lines / len(sample)
        n_pairs += lines
    with torch.device("meta"):
        model = build_model(config.model, vocab_size, vocab_size)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    return Plan(
        n_pairs=n_pairs,
        n_parameters=n_parameters,
        tokens_per_epoch=round(tokens),
        steps_per_epoch=max(1, round(tokens / (0.93 * config.optimization.max_tokens))),
        memory=memory(config, n_parameters, vocab_size, precision.itemsize),
        device=device.type,
        precision=str(precision).removeprefix("torch."),
    )


def memory(config: TranslationConfig, n_parameters: int, vocab_size: int, itemsize: int) -> int:
    """Estimate the bytes of weights, optimizer, gradients and activations of one micro-batch."""
    state = 16 + (2 * itemsize if itemsize < 4 else 0) + (4 if config.optimization.ema_decay else 0)
    tokens = config.optimization.max_tokens / config.optimization.accumulate
    activations = tokens * config.model.activations * itemsize
    logits = min(tokens * vocab_size * 4, 64e6)
    return round(n_parameters * state + activations + logits + 350e6)
