"""Confidence: the probability that a translation is acceptable.

A translation is acceptable if its sentence chrF is at least ``ACCEPTABLE``. The probability is a curve over the mean
log-probability of the tokens, learned on the development set by isotonic regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.logs import record_line
from attnkit.engine.task import until_stopped
from attnkit.io import atomic
from attnkit.quality.confidence import MAX_LINES, ConfidenceCurve
from attnkit.tasks.translation.config import MIN_CONFIDENCE_LINES
from attnkit.tasks.translation.directions import languages_of
from attnkit.tasks.translation.loading import CONFIDENCE_NAME
from attnkit.tasks.translation.translated_line import TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator

ACCEPTABLE = 60.0  #: sentence chrF, 0 to 100, from which a translation is acceptable
_DIGITS = 6  # decimals of what is stored


def learn_confidence(
    lines: Sequence[TranslatedLine], references: Sequence[str], weights: str
) -> ConfidenceCurve | None:
    """Learn the curve from translations and their references; None for too few lines.

    ``weights`` is the SHA-256 of the weights that translated them. Blank lines do not count.
    """
    from attnkit.metrics.bleu import build_metric, score_sentences
    from attnkit.metrics.calibration import isotonic_regression

    pairs = [(line.outputs[0], reference) for line, reference in zip(lines, references, strict=True)]
    pairs = [(best, reference) for best, reference in pairs if math.isfinite(best.mean_log_prob)]
    if len(pairs) < MIN_CONFIDENCE_LINES:
        return None
    texts, refs = [best.text for best, _ in pairs], [reference for _, reference in pairs]
    chrf = score_sentences(build_metric("chrf", by_sentence=True), texts, [refs])
    rounded = [round(best.mean_log_prob, _DIGITS) for best, _ in pairs]  # as stored: knots stay distinct
    knots, probabilities = isotonic_regression(rounded, [value >= ACCEPTABLE for value in chrf])
    return ConfidenceCurve(
        weights=weights,
        n_lines=len(pairs),
        acceptable=ACCEPTABLE,
        scores=knots.tolist(),
        probabilities=[round(value, _DIGITS) for value in probabilities.tolist()],
    )


def translate_development_set(
    pipeline: TranslationPipeline,
    sources: Sequence[str],
    directions: Sequence[str],
    stop: Callable[[], bool] | None = None,
) -> list[TranslatedLine]:
    """Translate as ``attnkit translate`` does.

    ``directions`` name the languages of each line, e.g. ``en:de``; they are empty for a run of one direction. Raises
    ``EvaluationCancelled`` once ``stop`` returns True.
    """
    languages = [languages_of(direction) for direction in directions]
    found: list[TranslatedLine | None] = [None] * len(sources)
    config = pipeline.configure({"scores": True})
    for language in dict.fromkeys(languages):
        pipeline.set_languages(language)
        own = [k for k, other in enumerate(languages) if other == language]
        translated = until_stopped(stop, pipeline.stream([sources[k] for k in own], config))
        for k, line in zip(own, translated, strict=True):
            found[k] = line
    return [line for line in found if line is not None]


def add_confidence(
    run: Path,
    development: Sequence[tuple[str, str, str]],
    *,
    device: str = "auto",
    threads: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Learn the confidence of the best checkpoint, and write it to the run folder.

    ``development`` are source, reference and direction; at most ``MAX_LINES``, evenly spread, are translated. Nothing
    is written for fewer than ``MIN_CONFIDENCE_LINES``, or for a run that samples by default.

    Raises:
        EvaluationCancelled: ``stop`` returned True.
        RunError: the run is damaged.
    """
    stride = -(-len(development) // MAX_LINES)
    chosen = development[:: max(1, stride)]
    if len(chosen) < MIN_CONFIDENCE_LINES:
        return
    pipeline = load_translator([run], device=device, threads=threads)
    if pipeline.search.sampling:
        return
    sources, references, directions = ([line[k] for line in chosen] for k in range(3))
    lines = translate_development_set(pipeline, sources, directions, stop)
    curve = learn_confidence(lines, references, fingerprint_of(pipeline.runs[0].files))
    if curve is not None:
        atomic.write_text(run / CONFIDENCE_NAME, record_line(curve.model_dump()))
