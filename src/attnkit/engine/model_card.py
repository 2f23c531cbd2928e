"""The model card of a finished run, its README.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelCardFields:
    """The parts of a model card that depend on the task, in Markdown."""

    # Markdown, as sentences of the card.
    what: str  #: Kind of model, as "A translation model (rnn)"
    data: Sequence[str]  #: training files, one list item each
    scored: str  #: description of the metrics, which follows "Checkpoint `step-40`"
    use: str  #: command that uses the model


def model_card(
    about: ModelCardFields, name: str, seed: int, best: str, scores: Mapping[str, float], counters: Mapping[str, Any]
) -> str:
    """Return the model card in Markdown: model, data, training, scores and use.

    ``counters`` are those of ``TrainState``.
    """
    score_rows = "\n".join(f"| {metric} | {value:.4f} |" for metric, value in sorted(scores.items()))
    # Markdown lists and tables.
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
