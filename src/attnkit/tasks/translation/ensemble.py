"""Runs that translate together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnkit.errors import RunError, UsageError
from attnkit.tasks.translation.loading import OpenedRun, open_run

INLINE_KEYS = ("placeholders", "annotate_terms")  #: of ``data``, equal in all runs of an ensemble


def open_ensemble(runs: Sequence[Path], checkpoint: str | None, adapter: Path | None = None) -> list[OpenedRun]:
    """Open runs; raise ``RunError`` if one is damaged or their vocabularies differ."""
    if adapter is not None and len(runs) > 1:
        raise UsageError("an adapter belongs to one run, not to an ensemble", where="--adapter")
    opened = [open_run(path, checkpoint, adapter) for path in runs]
    for other in opened[1:]:
        if any(getattr(other.config.data, key) != getattr(opened[0].config.data, key) for key in INLINE_KEYS):
            what = "the runs of an ensemble differ in data.placeholders or data.annotate_terms"
            raise RunError(what, where=str(other.path), help="train them with the same settings")
        if other.config.data.target_languages != opened[0].config.data.target_languages:
            raise RunError("the runs of an ensemble have different target languages", where=str(other.path))
        if other.vocabularies != opened[0].vocabularies:
            raise RunError("an ensemble needs identical vocabularies, but these runs differ", where=str(other.path))
    return opened
