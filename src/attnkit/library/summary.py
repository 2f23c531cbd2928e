"""What a loaded run is: task, size, scores, device and precision. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.plotting.progress_text import count, scores


@dataclass(frozen=True)
class RunSummary:
    """Description of a loaded run."""

    path: Path
    task: str
    model: str  #: kind of model and its size, e.g. ``bert, 4 layers of 256``
    checkpoint: str  #: name of the loaded checkpoint, e.g. ``step-1200``
    scores: Mapping[str, float]  #: development scores of the checkpoint; empty if it was not evaluated
    n_parameters: int
    vocab_size: int  #: 0 for a model of vectors
    device: str
    precision: str
    engine: str  #: ``torch`` or ``compiled``

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain data."""
        return {**vars(self), "path": str(self.path), "scores": dict(self.scores)}

    def __str__(self) -> str:
        tokens = f", {self.vocab_size:,} tokens" if self.vocab_size else ""
        size = f"{count(self.n_parameters)} parameters{tokens}"
        measured = f" ({scores(self.scores)})" if self.scores else ""
        where = f"{self.device}, {self.precision}, {self.engine}"
        return f"{self.path}: {self.model}, {size}; {self.checkpoint}{measured}; {where}"


def describe_model(config: Any) -> str:
    """Return the kind of a model and its size, from its configuration."""
    model = config.model
    sizes = {"encoder_layers": "encoder layers", "decoder_layers": "decoder layers", "n_layers": "layers"}
    layers = [f"{n} {name[: -1 if n == 1 else None]}" for key, name in sizes.items() if (n := getattr(model, key, 0))]
    if model.kind == "mlp":
        return f"mlp, {model.d_code} numbers a code"
    width = model.d_model
    return f"{model.kind}, {' and '.join(layers)} of {width}" if layers else f"{model.kind}, width {width}"
