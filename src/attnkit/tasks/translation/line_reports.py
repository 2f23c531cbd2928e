"""Lines whose segments are done, while other lines of their window are searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attnkit.decoding.hypothesis import Hypothesis
from attnkit.engine.search_backend import Found, LineSegment
from attnkit.tasks.translation.translated_line import TranslatedLine

ReportLine = Callable[[int, TranslatedLine], None]
"""Function that receives the number of a line of the input, from 0, and its translation."""


class LineReports:
    """Hands on each line when all of its segments are done, in any order.

    Lines whose segments the search does not report are not handed on.
    """

    def __init__(
        self,
        parts: Iterable[LineSegment],
        n_before: int,
        join: Callable[[int, list[LineSegment], Found], TranslatedLine],
        report: ReportLine,
    ) -> None:
        """Take the segments of a window, which ``n_before`` lines of the input precede.

        ``join`` makes a line of its number in the window, its segments and their translations.
        """
        self._n_before, self._join, self._report = n_before, join, report
        self._parts: dict[int, list[LineSegment]] = {}
        for part in parts:
            self._parts.setdefault(part.line, []).append(part)
        self._found: dict[int, dict[int, list[Hypothesis]]] = {}

    def add(self, part: LineSegment, hypotheses: list[Hypothesis]) -> None:
        """Take a segment that is done."""
        members, found = self._parts[part.line], self._found.setdefault(part.line, {})
        found[part.number] = hypotheses
        if len(found) == len(members):
            line = self._join(part.line - self._n_before, members, [found[member.number] for member in members])
            self._report(part.line, line)
