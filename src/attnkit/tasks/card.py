"""The model card of a finished run. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attnkit.tasks.config import TranslationConfig


class Progress(Protocol):
    """What the card says about the training."""

    step: int
    epoch: float
    tokens: int
    minutes: float


def model_card(config: TranslationConfig, name: str, best: str, scores: Mapping[str, float], progress: Progress) -> str:
    """Return Markdown: what the model is, how it was trained, how it scores, how it is used."""
    score_rows = "\n".join(f"| {metric} | {value:.4f} |" for metric, value in scores.items())
    sources = "\n".join(f"- `{src}` to `{tgt}`" for src, tgt in zip(config.data.src, config.data.tgt, strict=True))
    return f"""# {name}

A translation model ({config.model.kind}) trained with attnkit.

## Data

{sources}

## Training

{progress.step:,} steps, {progress.epoch:.2f} epochs, {progress.tokens:,} tokens, {progress.minutes:.1f} minutes,
seed {config.seed}. The whole configuration is in `config.yaml`.

## Scores on the development set

Of the checkpoint `{best}`, greedy search; BLEU and chrF as sacreBLEU computes them with its defaults.

| metric | value |
|---|---|
{score_rows}

## Use

    attnkit translate {name} -i input.txt -o output.txt
"""
