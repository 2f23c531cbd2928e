"""Train a vocabulary from text, the same bytes on any number of cores; statistics of a vocabulary over text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import trainers

from attnkit.errors import DataError, UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig
from attnkit.text.lines import read_lines
from attnkit.text.tokenizer import Tokenizer, cut, symbol_pattern
from attnkit.text.vocabulary_schema import BYTE_OF, CHARACTERS, CONTINUED
from attnkit.text.vocabulary_subprocess import train_in_subprocess

BATCH = 4096
"""Lines that are encoded at once."""


@dataclass
class Statistics:
    """Counts of files encoded with a vocabulary."""

    n_lines: int = 0
    n_words: int = 0
    """Number of words, separated by white space."""
    n_characters: int = 0
    """Number of characters after normalization, with a space before each line."""
    n_covered: int = 0
    """Characters that are part of one token; the others are written byte by byte or unknown."""
    n_tokens: int = 0
    n_unknown: int = 0
    longest: int = 0
    """Number of tokens of the longest line."""
    longest_path: str | None = None
    longest_line: int | None = None
    """Number of the longest line in its file, counted from 1."""

    @property
    def coverage(self) -> float:
        """Share of the characters that need neither single bytes nor ``<unk>``."""
        return min(1.0, self.n_covered / self.n_characters) if self.n_characters else 1.0

    @property
    def tokens_per_word(self) -> float:
        """Tokens per word."""
        return self.n_tokens / self.n_words if self.n_words else 0.0

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.n_unknown / self.n_tokens if self.n_tokens else 0.0


def statistics(tokenizer: Tokenizer, files: Sequence[Path]) -> Statistics:
    """Encode files and count tokens, words and characters, in bounded memory."""
    stats = Statistics()
    uses = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    space = 0 if tokenizer.config.kind == "char" else 1
    plain = tokenizer.config.normalize == "none" and not tokenizer.config.lowercase
    for path in files:
        n_before = stats.n_lines
        reader = read_lines(path)
        while lines := list(islice(reader, BATCH)):
            encoded = tokenizer.encode(lines)
            flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
            uses += np.bincount(flat, minlength=tokenizer.vocab_size)
            stats.n_words += sum(len(line.split()) for line in lines)
            seen = lines if plain else map(tokenizer.normalize, lines)
            stats.n_characters += sum(len(line) + space for line in seen if line)
            sizes = [len(ids) for ids in encoded]
            if max(sizes) > stats.longest:
                stats.longest, stats.longest_path = max(sizes), str(path)
                stats.longest_line = stats.n_lines - n_before + sizes.index(stats.longest) + 1
            stats.n_lines += len(lines)
    whole = [len(tokenizer.bytes_of(id).decode("utf-8", errors="ignore")) for id in range(tokenizer.vocab_size)]
    whole[UNK_ID] = 0
    stats.n_tokens, stats.n_unknown = int(uses.sum()), int(uses[UNK_ID])
    stats.n_covered = int(uses @ np.array(whole, dtype=np.int64))
    return stats


MAX_DISTINCT = 1_000_000
"""Distinct chunks that are counted before those seen once are forgotten, to bound memory."""
AT_ONCE = 250_000
"""Characters of text on which the trainers of ``tokenizers`` take well under a second, random letters included."""
_MAX_WORD_LENGTH = 1000
_LONG_WORD = re.compile(rf"[^ ]{{{_MAX_WORD_LENGTH}}}(?=[^ ])")


@dataclass(frozen=True)
class _Entries:
    """The trained entries in the order of their ids, and what their model needs beside them."""

    names: list[str]
    merges: list[list[str]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)


def train_vocabulary(text: Sequence[Path] | Iterable[str], config: VocabularyConfig) -> Tokenizer:
    """Train one vocabulary on files or on lines; a signal can end it at any time.

    Raises ``DataError`` if there is no text, a byte of a file is not UTF-8, or the vocabulary is too large for a file;
    ``UsageError`` if ``config.size`` is too small for the obligatory entries.
    """
    if config.kind not in _TRAINERS:
        what = f"a vocabulary of kind {config.kind} comes by attnkit import alone"
        raise UsageError(what, where="vocabulary.kind", help=f"choose one of {', '.join(_TRAINERS)}")
    lines = _lines(text, config)
    head: list[str] = []
    if config.kind in ("bpe", "wordpiece"):  # the trainer is one call that ignores signals
        n_characters = 0
        for line in lines:
            head.append(line)
            n_characters += len(line)
            if n_characters > AT_ONCE:
                return Tokenizer.from_json(train_in_subprocess(chain(head, lines), config))
    return train_in_process(chain(head, lines), config)


def train_in_process(lines: Iterator[str], config: VocabularyConfig) -> Tokenizer:
    """Train a vocabulary in this process on lines that are not blank; errors as ``train_vocabulary``'s."""
    first = next(lines, None)
    if first is None:
        raise DataError("no text to make a vocabulary from", help="name a file that is not empty")
    fixed = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols)))]
    n_bytes = {"word": 0, "wordpiece": 512}.get(config.kind, 256) if config.byte_fallback else 0
    if config.size < len(fixed) + n_bytes:
        raise _too_small(config, len(fixed) + n_bytes, "with byte fallback")
    most = max(n_bytes, config.size - config.size % config.multiple_of - len(fixed))
    entries = _TRAINERS[config.kind](chain([first], lines), config, most)
    if len(entries.names) > most:
        raise _too_small(config, len(fixed) + len(entries.names), "for this text without byte fallback")
    names = fixed + entries.names
    names += [f"<unused{i}>" for i in range(-len(names) % config.multiple_of)]
    model = engine.model_of(config, {name: id for id, name in enumerate(names)}, entries.merges)
    if config.kind == "unigram":
        model["vocab"] = [(name, entries.scores.get(name, 0.0)) for name in names]
    try:
        return Tokenizer(config, engine.pipeline(config, model))
    except ValueError as error:
        what = f"this vocabulary could not be read again: {error}"
        raise DataError(what, where="vocabulary.size", help="ask for fewer entries") from error


def _lines(text: Sequence[Path] | Iterable[str], config: VocabularyConfig) -> Iterator[str]:
    """Yield the lines that are not blank, without symbols, and with spaces inside very long words."""
    pattern = None if config.kind == "word" else symbol_pattern(config.symbols)
    for item in text:
        for line in read_lines(item) if isinstance(item, Path) else (item,):
            if line and not line.isspace():
                # trainers take time quadratic in the length of a word
                short = len(line) <= _MAX_WORD_LENGTH or config.kind == "word"
                kept = line if short else _LONG_WORD.sub(r"\g<0> ", line)
                yield kept if pattern is None else pattern.sub(" ", kept)


def _too_small(config: VocabularyConfig, smallest: int, when: str) -> UsageError:
    return UsageError(
        f"a vocabulary of kind {config.kind} has at least {smallest} entries {when}, not {config.size}",
        where="vocabulary.size",
        help=f"ask for {smallest} or more" + (", or turn byte fallback off" if config.byte_fallback else ""),
    )


def _train_bpe(lines: Iterator[str], config: VocabularyConfig, most: int) -> _Entries:
    alphabet = CHARACTERS if config.byte_fallback else []
    trainer = trainers.BpeTrainer(
        vocab_size=most, min_frequency=config.min_frequency, initial_alphabet=alphabet, show_progress=False
    )
    model = _train(lines, config, trainer)
    return _Entries(sorted(model["vocab"], key=model["vocab"].__getitem__), merges=model["merges"])


def _train_wordpiece(lines: Iterator[str], config: VocabularyConfig, most: int) -> _Entries:
    """Train on all 512 byte entries, given first: the trainer would number them in the order of a hash map."""
    base = [*CHARACTERS, *(CONTINUED + character for character in CHARACTERS)]
    seen = {" "}

    def noted() -> Iterator[str]:
        for line in lines:
            seen.update(line)
            yield line

    trainer = trainers.WordPieceTrainer(
        vocab_size=most + len(base),
        min_frequency=config.min_frequency,
        special_tokens=base,
        continuing_subword_prefix=CONTINUED,
        show_progress=False,
    )
    model = _train(noted(), config, trainer)
    if not config.byte_fallback:
        bytes_seen = {CHARACTERS[byte] for byte in "".join(seen).encode()}
        base = [entry for entry in base if entry[-1] in bytes_seen]
    pieces = sorted(model["vocab"].keys() - set(base), key=model["vocab"].__getitem__)
    pieces = [piece for piece in pieces if len(piece.removeprefix(CONTINUED)) > 1]
    return _Entries(base + pieces[: max(0, most - len(base))])


def _train_unigram(lines: Iterator[str], config: VocabularyConfig, most: int) -> _Entries:
    from attnkit.text.unigram import train_unigram

    counts = {bytes(map(BYTE_OF.__getitem__, word)): n for word, n in _count_words(lines, config).items()}
    seen = set(range(256)) if config.byte_fallback else {byte for word in counts for byte in word}
    scores = {
        "".join(CHARACTERS[byte] for byte in piece.text): piece.score
        for piece in train_unigram(counts, most + 256 - len(seen), config.min_frequency)
        if len(piece.text) > 1 or piece.text[0] in seen
    }
    return _Entries(list(scores), scores=scores)


def _train_word(lines: Iterator[str], config: VocabularyConfig, most: int) -> _Entries:
    symbols = {" " + symbol for symbol in config.symbols}
    frequent = _most_common(_count_words(lines, config), config.min_frequency)
    return _Entries([word for word in frequent if word not in symbols][:most])


def _train_char(lines: Iterator[str], config: VocabularyConfig, most: int) -> _Entries:
    normalizer = engine.build(engine.pipeline(config, engine.NO_WORDS)).normalizer
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line if normalizer is None else normalizer.normalize_str(line))
    base = [f"<0x{byte:02X}>" for byte in range(256)] if config.byte_fallback else []
    return _Entries(base + _most_common(counts, config.min_frequency)[: max(0, most - len(base))])


_TRAINERS: dict[str, Callable[[Iterator[str], VocabularyConfig, int], _Entries]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
    "word": _train_word,
    "char": _train_char,
}


def _train(lines: Iterable[str], config: VocabularyConfig, trainer: Any) -> engine.Tree:
    """Run a trainer of ``tokenizers`` over lines and return its model."""
    trained = engine.build(engine.pipeline(config, engine.model_of(config, {}, [])))
    trained.train_from_iterator((" " + line for line in lines), trainer)
    model: engine.Tree = json.loads(trained.to_str())["model"]
    return model


def _count_words(lines: Iterator[str], config: VocabularyConfig) -> Counter[str]:
    """Return the count of each word, split and normalized as for the model."""
    chunks: Counter[str] = Counter()
    for line in lines:
        chunks.update(cut(line, runs=config.kind != "word"))
        if len(chunks) > MAX_DISTINCT:
            chunks = Counter({chunk: n for chunk, n in chunks.items() if n > 1})
    bare = engine.build(engine.pipeline(config, engine.NO_WORDS))
    counts: Counter[str] = Counter()
    for chunk, n in chunks.items():
        text = " " + chunk if bare.normalizer is None else bare.normalizer.normalize_str(" " + chunk)
        for word, _ in bare.pre_tokenizer.pre_tokenize_str(text):
            counts[word] += n
    return counts


def _most_common(counts: Counter[str], min_frequency: int) -> list[str]:
    """Return the texts of sufficient frequency, the most frequent first, ties in code point order."""
    frequent = ((text, n) for text, n in counts.items() if n >= min_frequency)
    return [text for text, _ in sorted(frequent, key=lambda item: (-item[1], item[0]))]
