"""The model card of a finished run. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """What the card says about the training."""

    step: int
    epoch: float
    tokens: int
    minutes: float


@dataclass(frozen=True)
class ModelCardFields:
    """What a task says of its models, in Markdown."""

    what: str
    """"A translation model (rnn)"."""
    data: Sequence[str]
    """The files, one item a line."""
    scored: str
    """How the development set is scored, after "Of the checkpoint `step-40`"."""
    use: str
    """The command that uses it."""


def model_card(
    about: ModelCardFields, name: str, seed: int, best: str, scores: Mapping[str, float], progress: Progress
) -> str:
    """Return Markdown: what the model is, how it was trained, how it scores, how it is used."""
    score_rows = "\n".join(f"| {metric} | {value:.4f} |" for metric, value in scores.items())
    sources = "\n".join(f"- {item}" for item in about.data)
    return f"""# {name}

{about.what} trained with attnkit.

## Data

{sources}

## Training

{progress.step:,} steps, {progress.epoch:.2f} epochs, {progress.tokens:,} tokens, {progress.minutes:.1f} minutes,
seed {seed}. The whole configuration is in `config.yaml`.

## Scores on the development set

Of the checkpoint `{best}`{about.scored}

| metric | value |
|---|---|
{score_rows}

## Use

    {about.use}
"""
