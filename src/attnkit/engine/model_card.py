"""Model card (README.md) of a finished run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelCardFields:
    """Task-dependent parts of a model card, in Markdown."""

    # Inserted into the card as they are.
    what: str  #: kind of model, e.g. "A translation model (rnn)"
    data: Sequence[str]  #: training files, one list item each
    scored: str  #: description of the metrics, placed after "Checkpoint `step-40`"
    use: str  #: command that uses the model


def model_card(
    about: ModelCardFields, name: str, seed: int, best: str, scores: Mapping[str, float], counters: Mapping[str, Any]
) -> str:
    """Return the model card in Markdown: model, data, training, scores and use.

    ``counters`` are those of ``TrainState``.
    """
    score_rows = "\n".join(f"| {metric} | {value:.4f} |" for metric, value in sorted(scores.items()))
    # Markdown list items.
    sources = "\n".join(f"- {item}" for item in about.data)
    return f"""# {name}

{about.what} trained with attnkit.

## Data

{sources}

## Training

{counters["step"]:,} steps, {counters["epoch"]:.2f} epochs, {counters["tokens"]:,} tokens, \
{counters["minutes"]:.1f} minutes,
seed {seed}. The full configuration is in `config.yaml`.

## Scores on the development set

Checkpoint `{best}`{about.scored}

| metric | value |
|---|---|
{score_rows}

## Use

    {about.use}
"""
