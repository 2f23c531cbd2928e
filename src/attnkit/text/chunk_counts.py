"""Counts of the words of a text, from its distinct chunks.

A text has a hundred times as many chunks as distinct ones. Those are counted in compiled loops, and normalized and
split into words once each. The counts are those of splitting each line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import cast

import numpy as np

from attnkit.kernels.chunks import LINE_END, ChunkCounter
from attnkit.kernels.words import MAX_SPAN_BYTES, NoTextError
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig
from attnkit.text.line_blocks import read_blocks
from attnkit.text.tokenizer import cut
from attnkit.text.word_splits import (
    AT_ONCE,
    MAX_DISTINCT,
    MAX_WORD_LENGTH,
    LineFilter,
    add_words,
    normalized,
    split_chunks,
)

_OTHER_SPACE = re.compile(r"[^\S ]")
_LINES = 1024  # lines counted at once


class TextCounts:
    """Counts of the words of a text; of kind ``char``, of its characters.

    Words are split and normalized as for the model. For ``unigram`` and ``word``, chunks seen once are dropped when
    more than ``MAX_DISTINCT`` are known; for the others no count is lost.
    """

    def __init__(self, config: VocabularyConfig) -> None:
        """Prepare to count; raise ``RuntimeError`` without numba."""
        self.counts: Counter[str] = Counter()
        self.characters: set[str] = set()  #: of the lines before normalization, for ``wordpiece`` without fallback
        self.n_lines = 0  #: number of lines that are not blank
        self._config = config
        self._filter = LineFilter(config)
        self._runs = config.kind != "word"
        # A regular expression that looks ahead splits words of these kinds: where other white space is beside spaces, a
        # chunk may be split unlike its line.
        self._apart = config.kind in ("bpe", "wordpiece")
        self._drops = config.kind in ("unigram", "word")
        self._engine = engine.build(engine.pipeline(config, engine.NO_WORDS))
        self._chunks = ChunkCounter()

    def add(self, text: Iterable[Path | str]) -> None:
        """Count files or lines. Raises ``DataError`` if a file is not valid UTF-8."""
        for is_file, items in groupby(text, lambda item: isinstance(item, Path)):
            if is_file:
                for path in cast(Iterator[Path], items):
                    self._add_file(path)
            else:
                while lines := list(islice(cast(Iterator[str], items), _LINES)):
                    self._add_lines(lines)

    def finish(self) -> None:
        """Complete ``counts`` after the last text."""
        self._empty()
        if self._config.kind == "char":  # a space was counted per chunk, and there is none before the first one
            self.counts[" "] -= self.n_lines
            self.counts += Counter()

    def _empty(self) -> None:
        """Take the chunks out of the table, as words."""
        for begin in range(0, len(self._chunks), AT_ONCE):
            numbers = np.arange(begin, min(begin + AT_ONCE, len(self._chunks)))
            self._split(self._chunks.texts(numbers), self._chunks.counts[numbers].tolist())
        self._chunks = ChunkCounter()

    def _add_file(self, path: Path) -> None:
        for block in read_blocks(path):
            if any(symbol.encode() in block.raw for symbol in self._filter.symbols):
                self._add_one_by_one(block.lines())
                continue
            try:
                if not self._add_block(block.raw):
                    self._add_one_by_one(block.lines())
            except NoTextError as error:
                raise block.fault() from error

    def _add_lines(self, lines: list[str]) -> None:
        joined = "\n".join([*lines, ""])
        has_symbol = any(symbol in joined for symbol in self._filter.symbols)
        if has_symbol or joined.count("\n") > len(lines) or not self._add_block(joined.encode()):
            self._add_one_by_one(lines)

    def _add_block(self, raw: bytes) -> bool:
        """Count a block, unless its lines must be counted one by one."""
        if self._drops and len(self._chunks) + raw.count(b" ") + raw.count(b"\n") > MAX_DISTINCT:
            return False  # chunks are dropped after the line that made them too many
        most = MAX_WORD_LENGTH if self._runs else MAX_SPAN_BYTES
        found = self._chunks.feed(raw, runs=self._runs, most=most, skips_blank=True, apart=self._apart)
        if found is None:
            return False
        numbers, apart = found
        self.n_lines += int(np.count_nonzero(numbers == LINE_END))
        self._add_one_by_one([line.decode() for line in apart])
        self._free()
        return True

    def _add_one_by_one(self, lines: Iterable[str]) -> None:
        for line in self._filter(lines):
            self.n_lines += 1
            whole = self._apart and _OTHER_SPACE.search(line)
            long = self._chunks.add([line] if whole else cut(line, runs=self._runs))
            self._split(long, [1] * len(long))
            self._free()

    def _free(self) -> None:
        """Free memory if more than ``MAX_DISTINCT`` chunks are known."""
        if len(self._chunks) <= MAX_DISTINCT:
            return
        if self._drops:
            self._chunks.drop_single()
        else:
            self._empty()

    def _split(self, chunks: list[str], counts: list[int]) -> None:
        """Add the words of chunks, or their characters, to ``counts``."""
        if self._config.kind == "wordpiece" and not self._config.byte_fallback:
            self.characters.update(*chunks)
        if self._config.kind == "char":
            for chunk, n in zip(chunks, counts, strict=True):
                self.counts[" "] += n
                for character in normalized(self._engine, chunk):
                    self.counts[character] += n
            return
        add_words(self.counts, split_chunks(self._engine, self._config, chunks), counts)
