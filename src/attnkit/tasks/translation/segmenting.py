"""Segments of lines: sentences, or parts of long ones; joining of translations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from attnkit.text.lines import is_blank
from attnkit.text.sentences import SentenceSplitter, SourceStatistics, split_line
from attnkit.text.tags import leading_code, with_leading_code
from attnkit.text.tokenizer import Tokenizer

SplitPolicy = Literal["auto", "sentences", "lines"]
"""``auto`` splits lines of more sentences, or more tokens, than 99 % of the training text; ``lines`` none."""

_WIDE_ENDS = tuple("。！？｡」』）》，、")  # no space follows these


class TextSegment(NamedTuple):
    """A sentence of a line, or a part of a long sentence."""

    ids: list[int]
    before: str | None  #: white space before it in the source; None if it continues a sentence that was too long
    text: str


class Segmenter:
    """Splits lines into sentences, and sentences that are too long for the model."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int, statistics: SourceStatistics | None, policy: SplitPolicy = "auto"
    ) -> None:
        """Without ``statistics`` of the training text, ``auto`` is ``lines``."""
        self.tokenizer, self._statistics = tokenizer, statistics
        self.max_length = max_length  #: of a segment, in tokens
        self.policy: SplitPolicy = policy
        self._splitter = SentenceSplitter(statistics)
        self.tell: Callable[[str], None] = lambda text: None
        """Receives a message when ``auto`` splits a line for the first time."""
        self._told: set[str] = set()  # what is told once, by copies too

    def split(self, line: str, ids: list[int], number: int = 1) -> list[TextSegment]:
        """Return the segments of a line, none if it is blank.

        ``ids`` are the tokens of the whole line, ``number`` is its number, from 1. A language code or tag at the start
        of the line is that of all segments.
        """
        if is_blank(line):
            return []
        sentences, code = self._find_sentences(line, len(ids), number), leading_code(self.tokenizer, line)
        if len(sentences) == 1:
            return self._within_length(line, ids, "", code)
        encoded = self.tokenizer.encode(with_leading_code(self.tokenizer, code, [text for text, _ in sentences]))
        befores = ["", *(gap for _, gap in sentences)]
        return [
            segment
            for (text, _), own, before in zip(sentences, encoded, befores, strict=False)
            for segment in self._within_length(text, own, before, code)
        ]

    def sentences(self, lines: Sequence[str], first: int = 1) -> Iterator[list[tuple[str, str]]]:
        """Yield the sentences of each line, with the white space after each.

        ``first`` is the number of the first line, from 1.
        """
        for number, (line, ids) in enumerate(zip(lines, self.tokenizer.encode(lines), strict=True), first):
            yield self._find_sentences(line, len(ids), number)

    def _find_sentences(self, line: str, n_tokens: int, number: int) -> list[tuple[str, str]]:
        """Return the sentences of a line, or the line as one, by the policy."""
        whole, known, is_auto = [(line, "")], self._statistics, self.policy == "auto"
        if self.policy == "lines" or (is_auto and known is None):
            return whole
        found = self._splitter.split(line.strip())
        is_usual = known is not None and len(found) <= known.sentences and n_tokens <= known.tokens
        if len(found) == 1 or (is_auto and is_usual):
            return whole
        if is_auto and not self._told:
            what = f"line {number:,} has {len(found)} sentences, more than the training text's lines"
            told = f"{what}: such lines are split into sentences (--split lines keeps them whole)"
            self._told.add(told)
            self.tell(told)
        return found

    def _within_length(self, text: str, ids: list[int], before: str, code: str) -> list[TextSegment]:
        if len(ids) <= self.max_length:
            return [TextSegment(ids, before, text)]

        def encode(parts: Sequence[str]) -> list[list[int]]:
            return self.tokenizer.encode(with_leading_code(self.tokenizer, code, parts))

        n_given = len(self.tokenizer.code_ids)  # before each part
        texts = split_line(text, self.max_length - n_given, lambda part: len(encode([part])[0]) - n_given)
        encoded = encode(texts)
        return [TextSegment(own, None if k else before, texts[k]) for k, own in enumerate(encoded)]


def join_segments(texts: Sequence[str], befores: Sequence[str | None]) -> str:
    """Join the translations of segments with the white space of the source.

    Where the source has none, as Chinese, a space is added; none follows the full-width marks of Chinese or Japanese.
    """
    joined = ""
    for text, before in zip(texts, befores, strict=True):
        if joined:
            gap = before or " "
            joined += "" if gap == " " and joined.endswith(_WIDE_ENDS) else gap
        joined += text
    return joined
