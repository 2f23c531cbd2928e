"""The labels of a classifier or a tagger: ``labels.json``, and which labels a table may have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import DataError, RunError
from attnkit.text.documents import MAX_LABEL_LENGTH

MAX_LABELS = 10_000


MAX_LABELS_BYTES = 1 << 23
"""Of labels.json."""


Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_LENGTH, pattern=r"^[^\n\r\t]+$")]


class Labels(BaseModel, extra="forbid", strict=True):
    """What ``labels.json`` says."""

    format: Literal["attnkit labels"] = "attnkit labels"
    labels: list[Label] = Field(min_length=2, max_length=MAX_LABELS)
    """By their ids."""
    columns: list[str] | None = Field(default=None, min_length=2, max_length=3)
    """Of a classifier of texts: the names that the label's column and those of one text or two had in the table that it
    was trained on. None where nobody knows."""

    @property
    def pairs(self) -> bool | None:
        """Return whether it was taught pairs of texts; None where nobody knows."""
        return None if self.columns is None else len(self.columns) == 3

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False) + "\n").encode()

    @staticmethod
    def parse(raw: bytes, where: str) -> Labels:
        """Read the content of the file. Raises ``RunError`` where it makes no sense."""
        try:
            found = Labels.model_validate_json(raw)
            if len(set(found.labels)) != len(found.labels):
                raise ValueError("a label stands twice")
            return found
        except (ValidationError, ValueError) as error:
            raise RunError("invalid labels.json", where=where) from error


def check_known_labels(known: Labels, found: Iterable[str], where: str, noun: str = "label") -> None:
    """Raise ``DataError`` for a label unknown to the initial weights of a run."""
    there = set(known.labels)
    strange = [label for label in found if label not in there]
    if strange:
        more = f" and {len(strange) - 1:,} more" if strange[1:] else ""
        what = f"the run of --init-from does not know the {noun} '{strange[0]}'{more}"
        help = f"it knows {abbreviate(known.labels)}; name them alike, or initialize from a pretrained run"
        raise DataError(what, where=where, help=help)


def abbreviate(labels: Sequence[str]) -> str:
    """Return the first of some labels in words."""
    return ", ".join(labels[:4]) + (", ..." if labels[4:] else "")


def count_labels(found: Iterable[str], unit: str, where: str) -> tuple[set[str], int]:
    """Return all labels that a classifier has to learn, and how many examples have one.

    Raises:
        DataError: there are fewer than two, or too many.
    """
    labels, total = set[str](), 0
    for label in found:
        labels.add(label)
        total += 1
        if len(labels) > MAX_LABELS:
            raise DataError(f"there are more than {MAX_LABELS:,} labels", where=where)
    if len(labels) < 2:
        what = f"every {unit} has the label '{next(iter(labels))}'" if labels else f"no {unit}s"
        raise DataError(what, where=where, help="a classifier needs two labels or more")
    return labels, total
