"""Runs that translate together, and the language that they translate into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnkit.errors import RunError, UsageError
from attnkit.tasks.translation.loading import OpenedRun, open_run
from attnkit.text.tags import language_tag

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


def target_tag(run: OpenedRun, language: str | None, option: str = "--tgt-lang") -> str:
    """Return the tag of sources that are translated into a language; empty for none.

    Raises ``UsageError``, which names ``option``, if the run does not know the language, or None leaves a choice.
    """
    known = run.config.data.target_languages
    if language is None and len(known) < 2:
        return language_tag(known[0]) if known else ""
    if language is not None and language in known:
        return language_tag(language)
    if not known:
        what = "this run has one target language, which has no tag"
        raise UsageError(what, where=option, help=f"leave out {option}")
    what = f"unknown target language '{language}'" if language is not None else "no target language is chosen"
    raise UsageError(f"{what}; this run has {', '.join(known)}", where=option, help=f"add {option} {known[0]}")
