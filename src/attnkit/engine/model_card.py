"""Model card (README.md) of a finished run, with Hugging Face's YAML header."""

import datetime
import math
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.checkpoints.adapters import whole_weights
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint


@dataclass(frozen=True)
class ModelCardFields:
    """Task-dependent parts of a model card, in Markdown."""

    # Inserted into the card as they are.
    what: str  #: kind of model, e.g. "A translation model (rnn)"
    data: Sequence[str]  #: training files, one list item each
    scored: str  #: description of the metrics, placed after "Checkpoint `step-40`"
    use: str  #: command that uses the model
    hub_task: str  #: the hub's name of the task (``pipeline_tag``), e.g. "fill-mask"
    hub_metrics: Sequence[str] = ()  #: metrics by the hub's names


def card_header(hub_task: str, hub_metrics: Sequence[str]) -> str:
    """Return the YAML header of a card; language and license are left to the user.

    The two are comments until they are filled in, because the hub rejects a card with unknown values.
    """
    metrics = "".join(f"\n- {name}" for name in hub_metrics)
    return f"""---
# language: en            # fill in, one code or a list
# license: cc-by-4.0      # fill in
library_name: attnkit
pipeline_tag: {hub_task}
tags:
- attnkit
- {hub_task}{f"{chr(10)}metrics:{metrics}" if metrics else ""}
---
"""


def provenance(checkpoint: Checkpoint, device: str) -> str:
    """Return the table of size, version, date and machine, in Markdown."""
    from importlib.metadata import version

    rows = {
        "parameters": f"{count_parameters(checkpoint):,}",
        "attnkit": version("attnkit"),
        "Python": platform.python_version(),
        "finished": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} CPUs, {platform.system()}",
        "device": device,
    }
    if device == "auto":  # word vectors: the card may be written by another process than the one that trained
        del rows["device"]
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def count_parameters(checkpoint: Checkpoint) -> int:
    """Count the weights of a checkpoint, without adapters; read only the header."""
    from safetensors import safe_open

    with safe_open(whole_weights(checkpoint).path / MODEL, framework="np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping


def processor() -> str:
    """Return the model of the processor, or its architecture if unknown."""
    with suppress(OSError):  # Linux; elsewhere, platform knows
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def model_card(
    about: ModelCardFields,
    name: str,
    seed: int,
    best: str,
    scores: Mapping[str, float],
    counters: Mapping[str, Any],
    facts: str,
) -> str:
    """Return the model card in Markdown: model, data, training, scores and use.

    ``counters`` are those of ``TrainState``, ``facts`` the table of ``provenance``.
    """
    minutes = counters["minutes"]
    score_rows = "\n".join(f"| {metric} | {value:.4f} |" for metric, value in sorted(scores.items()))
    # Markdown list items.
    sources = "\n".join(f"- {item}" for item in about.data)
    return f"""{card_header(about.hub_task, about.hub_metrics)}
# {name}

{about.what} trained with attnkit.

{facts}

## Data

{sources}

## Training

{counters["step"]:,} steps, {counters["epoch"]:.2f} epochs, {counters["tokens"]:,} tokens, \
{minutes:.{1 if minutes >= 1 else 2}f} minutes,
seed {seed}. The full configuration is in `config.yaml`.

## Scores on the development set

Checkpoint `{best}`{about.scored}

| metric | value |
|---|---|
{score_rows}

## Use

    {about.use}
"""
