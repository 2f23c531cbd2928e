"""Scores of sentence pairs by a run, as a filter of ``attnkit clean``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.quality.clean_filters import Score
from attnkit.tasks.translation.directions import LanguagePair, find_direction
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.loading import open_run
from attnkit.tasks.translation.score import score_pairs


def open_pair_scorer(run: Path, languages: LanguagePair, warn: Callable[[str], None]) -> tuple[Score, str]:
    """Return a function that scores pairs by a run, and its identity.

    A resumed job knows the run by it. Scores are log-probabilities per target token.

    Raises ``RunError`` if the run is missing or damaged, ``UsageError`` if it does not know the languages.
    """
    opened = open_run(run, None)
    for warning in opened.warnings:
        warn(warning)
    direction = find_direction(opened, languages)
    searcher = EngineSearch([opened], "auto", "float32", notify=warn)
    scorer, device = searcher.load_scorer()

    def score(sources: list[str], targets: list[str]) -> list[float]:
        found = score_pairs(opened, scorer, device, zip(sources, targets, strict=True), direction=direction)
        return [one.log_prob / one.n_tokens for one in found]

    src, tgt = languages
    named = [tgt or ""] if src is None else [f"{src}:{tgt or ''}"]  # without a source as in earlier versions
    return score, " ".join([fingerprint_of(RunFolder(run).checkpoint()[0]), *filter(None, named)])
