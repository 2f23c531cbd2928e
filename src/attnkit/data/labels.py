"""Labels of classifiers and taggers: ``labels.json`` and checks of labels."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import DataError, RunError
from attnkit.io.safe_read import read_regular_file
from attnkit.text.documents import MAX_LABEL_LENGTH

MAX_LABELS = 10_000
_MAX_BYTES = 1 << 23  # maximum size of labels.json
Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_LENGTH, pattern=r"^[^\n\r\t]+$")]


class Labels(BaseModel, extra="forbid", strict=True):
    """Content of ``labels.json``."""

    format: Literal["attnkit labels"] = "attnkit labels"
    labels: list[Label] = Field(min_length=2, max_length=MAX_LABELS)
    """Labels in the order of their ids."""
    columns: list[str] | None = Field(default=None, min_length=2, max_length=3)
    """Text classification: column names of the training table, one for the label and one or two for texts. None if
    unknown."""

    @property
    def pairs(self) -> bool | None:
        """Return whether the training examples were text pairs; None if unknown."""
        return None if self.columns is None else len(self.columns) == 3

    def to_bytes(self) -> bytes:
        """Return the content of ``labels.json``."""
        return (json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False) + "\n").encode()

    @staticmethod
    def parse(raw: bytes, where: str) -> Labels:
        """Parse the content of ``labels.json``; raise ``RunError`` if it is invalid."""
        try:
            found = Labels.model_validate_json(raw)
            if len(set(found.labels)) != len(found.labels):
                raise ValueError("duplicate label")
            return found
        except (ValidationError, ValueError) as error:
            raise RunError("invalid labels.json", where=where) from error

    @staticmethod
    def load(folder: Path) -> Labels:
        """Read ``labels.json`` from a folder; raise ``RunError`` if it is invalid."""
        return Labels.parse(read_regular_file(folder / "labels.json", _MAX_BYTES), str(folder))


def check_known_labels(known: Labels, found: Iterable[str], where: str, noun: str = "label") -> None:
    """Raise ``DataError`` for labels unknown to the model that initializes a run."""
    there = set(known.labels)
    strange = [label for label in found if label not in there]
    if strange:
        more = f" and {len(strange) - 1:,} more" if strange[1:] else ""
        what = f"unknown {noun} '{strange[0]}'{more}: not in the --init-from run"
        help = f"known labels: {_abbreviate(known.labels)}; rename the labels, or initialize from a pretrained run"
        raise DataError(what, where=where, help=help)


def check_valid_label(label: str | None, labels: Collection[str], where: str) -> None:
    """Raise ``DataError`` if a validation label does not occur in training."""
    if label not in labels:
        what = f"label '{label}' does not occur in the training data"
        raise DataError(what, where=where, help=f"training labels: {_abbreviate(sorted(labels))}")


def _abbreviate(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (", ..." if labels[4:] else "")


def count_labels(found: Iterable[str], unit: str, where: str) -> tuple[set[str], int]:
    """Return labels and example count; raise unless there are 2 to ``MAX_LABELS``."""
    labels, total = set[str](), 0
    for label in found:
        labels.add(label)
        total += 1
        if len(labels) > MAX_LABELS:
            raise DataError(f"too many labels: more than {MAX_LABELS:,}", where=where)
    if len(labels) < 2:
        what = f"every {unit} has the label '{next(iter(labels))}'" if labels else f"no {unit}s"
        raise DataError(what, where=where, help="a classifier needs at least two labels")
    return labels, total
