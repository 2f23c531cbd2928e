"""What a loaded run is: task, languages, size, scores and device. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.io.plain_data import PlainResult
from attnkit.plotting.progress_text import count, scores
from attnkit.quality.language_names import is_language_code
from attnkit.text.sources import language_of


@dataclass(frozen=True)
class RunSummary(PlainResult):
    """Description of a loaded run."""

    path: Path
    task: str
    languages: tuple[str, ...]
    """Directions of a translator, e.g. ``en:de``, or languages of the text, as files are named; empty if unknown."""
    model: str  #: kind of model and its size, e.g. ``bert, 4 layers of 256``
    checkpoint: str  #: name of the loaded checkpoint, e.g. ``step-1200``
    scores: Mapping[str, float]  #: development scores of the checkpoint; empty if it was not evaluated
    n_parameters: int
    vocab_size: int  #: 0 for a model of vectors
    device: str
    precision: str
    engine: str  #: ``torch``, ``compiled`` or, for word vectors, ``numpy``

    def __str__(self) -> str:
        tokens = f", {self.vocab_size:,} tokens" if self.vocab_size else ""
        size = f"{count(self.n_parameters)} parameters{tokens}"
        measured = f" ({scores(self.scores)})" if self.scores else ""
        where = f"{self.device}, {self.precision}, {self.engine}"
        languages = "".join(f" {name.replace(':', '-')}" for name in self.languages)
        return f"{self.path}: {self.task}{languages}, {self.model}, {size}; {self.checkpoint}{measured}; {where}"


def find_languages(data: Any) -> tuple[str, ...]:
    """Return directions such as ``en:de``, or codes, from a run's ``data``.

    Runs of one direction have them in the names of their files.
    """
    if getattr(data, "known_directions", ()):
        return tuple(dict.fromkeys(pair.direction for pair in data.training_pairs if pair.direction))
    sides = (data.src[:1], data.tgt[:1]) if hasattr(data, "src") else (data.files,)
    found = [
        dict.fromkeys(code for name in names if is_language_code(code := language_of(Path(name)))) for names in sides
    ]
    if len(found) == 1:
        return tuple(found[0])
    return (":".join([*found[0], *found[1]]),) if all(found) else ()


def describe_model(config: Any) -> str:
    """Return the kind of a model and its size, from its configuration."""
    model = config.model
    sizes = {"encoder_layers": "encoder layers", "decoder_layers": "decoder layers", "n_layers": "layers"}
    layers = [f"{n} {name[: -1 if n == 1 else None]}" for key, name in sizes.items() if (n := getattr(model, key, 0))]
    if model.kind == "mlp":
        return f"mlp, {model.d_code} numbers a code"
    width = model.d_model
    return f"{model.kind}, {' and '.join(layers)} of {width}" if layers else f"{model.kind}, width {width}"
