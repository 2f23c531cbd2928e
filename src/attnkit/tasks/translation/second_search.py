"""Second searches, for segments whose translation lacks a term or a symbol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from attnkit.decoding.hypothesis import Hypothesis
from attnkit.engine.search_backend import Found, LineSegment, SearchJob
from attnkit.tasks.translation.term_placement import TermPlacement
from attnkit.text.inline_symbols import annotate

if TYPE_CHECKING:
    from attnkit.decoding.suppression import SuppressedPhrases
    from attnkit.tasks.translation.inline_text import InlineText
    from attnkit.tasks.translation.loading import OpenedRun
    from attnkit.tasks.translation.segmenting import Segmenter
    from attnkit.tasks.translation.terminology import Terminology
    from attnkit.text.tags import TranslationDirection
    from attnkit.text.tokenizer import Tokenizer

Way = Literal["shown", "placed", "required"]


CountedSearch = Callable[[list[LineSegment], SearchJob, int, int], Found]
"""Searches segments; the numbers are of segments that count as done before, and more at the end."""


class Pipeline(Protocol):
    """What a second search, or a reranker, takes of a ``TranslationPipeline``."""

    runs: list[OpenedRun]
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    inline: InlineText
    segmenter: Segmenter
    longest: int | None
    suppressed: SuppressedPhrases | None
    terminology: Terminology | None

    @property
    def direction(self) -> TranslationDirection: ...


class SecondSearch:
    """Translates segments again until they have their terms and symbols.

    A translation that has its terms is the best one with them: only the others are searched again. The model is shown
    the terms if it was trained to read them; else, they take the place of what it wrote; at last it must write them.
    """

    def __init__(self, pipeline: Pipeline, parts: list[LineSegment], found: Found) -> None:
        """Both lists are changed: segments as the model reads them, and hypotheses."""
        self._pipeline, self._parts, self._found = pipeline, parts, found

    def run(self, numbers: Sequence[int], search: CountedSearch, job: SearchJob, n_before: int) -> None:
        """Search those of the segments of some numbers that lack a term or a symbol."""
        faults = {i: self.faults(self._parts[i], self._found[i]) for i in numbers}
        first, read, ways = replace(job, joins=None), list(self._parts), self._ways()
        for number, way in enumerate(ways):
            lacking = [i for i in numbers if any(faults[i])]
            n_done, n_counted = n_before + len(numbers) * number // len(ways), len(numbers) // len(ways)
            if way == "shown":
                parts = [self.show_terms(self._parts[i]) for i in lacking]
                again = search(parts, first, n_done, n_counted)
            elif way == "placed":
                parts = [read[i] for i in lacking]
                placement = self._placement(search, n_done)
                again = placement.place(parts, [self._found[i] for i in lacking], first)
            else:
                parts = [self._pipeline.inline.restrict(self._parts[i]) for i in lacking]
                again = search(parts, job, n_done, n_counted)
            for i, part, hypotheses in zip(lacking, parts, again, strict=True):
                left = self.faults(part, hypotheses) if hypotheses else faults[i]
                if left < faults[i]:  # suppressed phrases and prefixes come first
                    self._parts[i], self._found[i], faults[i] = part, hypotheses, left

    def _ways(self) -> list[Way]:
        pipeline = self._pipeline
        if pipeline.terminology is None:
            return ["required"]
        ways: list[Way] = ["shown"] if pipeline.inline.has_annotations else []
        has_attention = all(run.config.model.has_attention for run in pipeline.runs)
        return [*ways, "placed", "required"] if has_attention and pipeline.suppressed is None else [*ways, "required"]

    def _placement(self, search: CountedSearch, n_done: int) -> TermPlacement:
        pipeline = self._pipeline
        assert pipeline.terminology is not None
        tokenizers = pipeline.src_tokenizer, pipeline.tgt_tokenizer

        def search_these(parts: list[LineSegment], job: SearchJob) -> Found:
            return search(parts, job, n_done, 0)

        return TermPlacement(pipeline.terminology, tokenizers, pipeline.longest, search_these)

    def faults(self, part: LineSegment, found: Sequence[Hypothesis]) -> tuple[int, int]:
        """Return how many terms a segment's worst hypothesis lacks, and its wrong symbols.

        Terms that the vocabulary cannot write do not count.
        """
        pipeline = self._pipeline
        faults = [pipeline.inline.faults(part.text, hypothesis.ids) for hypothesis in found]
        terms = [term for term in part.required if term.forms and term.texts]  # without placeholders
        if pipeline.terminology is not None and terms:
            texts = pipeline.tgt_tokenizer.decode([hypothesis.ids for hypothesis in found])
            uses = [pipeline.terminology.uses(terms, text) for text in texts]
            lacking = [sum(not use.is_used for use in own) for own in uses]
            faults = [(n + n_lacking, wrong) for (n, wrong), n_lacking in zip(faults, lacking, strict=True)]
        return max(faults)

    def show_terms(self, part: LineSegment) -> LineSegment:
        """Return a segment with its terms annotated, as it is if it would be too long."""
        pipeline = self._pipeline
        assert pipeline.terminology is not None
        text = annotate(part.text, pipeline.terminology.shown(part.text))
        ids = pipeline.src_tokenizer.encode([text])[0]
        if len(ids) > pipeline.segmenter.max_length:
            return part
        return replace(part, ids=[*pipeline.direction.tag, *ids], text=text)
