"""Splitting of lines into sentences, with learned abbreviations, and to a length."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from attnkit.text.tokenizer import Tokenizer

_CLOSERS = "\"'”’“‘»›«‹)\\]}」』）》】〉"
_OPENERS = "\"'“‘«‹»›([{„‚「『（《【〈¿¡*•–—-"
_SPACES = " \u00a0\u202f"
# Full stops of scripts with spaces: Latin, Greek, Cyrillic, Arabic, Devanagari, Armenian, Ethiopic, Burmese, Khmer.
# French puts a space before the closing guillemet.
_STOPS = ".!?…؟۔।॥։።፧။។"
_WIDE_STOPS = "。！？｡"  # nothing has to follow these
_END = re.compile(rf"[{_STOPS}]+(?:[{_CLOSERS}]|[{_SPACES}]»(?=\s))*(?=\s)|[{_WIDE_STOPS}]+[{_CLOSERS}]*")
_ANY_STOP = re.compile(f"[{_STOPS}{_WIDE_STOPS}]")
_TAIL = _STOPS + _WIDE_STOPS + _CLOSERS.replace("\\", "") + _SPACES
_SYMBOLS = tuple("$€£¥₹#@<")  # a sentence may begin with these, but not with a smiley
_QUOTING = ("と", "って")  # Japanese particles after a quotation, whose sentence goes on
_SPACE = re.compile(r"\s*")
_NEAR = 64  # characters around the end of a sentence that decide
_LAST_WORD = re.compile(r"\S*\Z")
_DOTTED = re.compile(r"[^\W\d_]+(\.[^\W\d_]+)+")  # U.S, z.B
_SMALL_NUMBER = re.compile(r"\d{1,2}")
ORDINAL = "#"  #: stands for all numbers of one or two digits among the abbreviations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS = _words(
    "adj al approx bspw bzw ca cf corp dept ed eds etc evtl geb ggf gov hrsg inc jr ltd mgr mio resp usw vgl vs zzt"
    " гг др им рис см стр ул"
)
"""Abbreviations known before any text is read, in lower case and without their full stop."""
_TITLES = _words("dr hr mme mr mrs ms prof rev sen sgt sr sra st г проф")  # a name follows, never a sentence
_BEFORE_NUMBERS = _words("art bd cap chap fig figs no nos nr op p pp vol")  # otherwise words of their own

MAX_SAMPLE = 100_000  #: lines of training text that statistics are learned from
_MIN_COUNT = 2
_MIN_SCORE = 0.3  # Kiss and Strunk 2006, section 3.1.4
_ORDINAL_RATIO = 5.0  # stops after numbers of one or two digits, to those after any word
_MAX_LENGTH = 12  # characters of an abbreviation
_MAX_LEARNED = 1000
_SHARE = 0.99  # of training lines that have at most so many sentences and tokens


def has_stop(text: str) -> bool:
    """Return whether a text ends as a sentence does, apart from quotation marks.

    >>> has_stop('He said: "A dog runs."'), has_stop("A dog")
    (True, False)
    """
    return text.rstrip().rstrip(_CLOSERS.replace("\\", "") + _SPACES)[-1:] in tuple(_STOPS + _WIDE_STOPS)


class SourceStatistics(BaseModel, frozen=True, extra="forbid", strict=True):
    """What the source side of the training text says about sentences."""

    abbreviations: Annotated[list[str], Field(max_length=_MAX_LEARNED)] = []
    """Words whose full stop ends no sentence, in lower case; ``#`` is any number of one or two digits."""
    starters: Annotated[list[str], Field(max_length=_MAX_LEARNED)] = []
    """Capitalized words at line starts that are in lower case elsewhere; they begin a sentence after abbreviations."""
    sentences: Annotated[int, Field(ge=1)] = 1
    """Number of sentences that 99 % of the lines do not exceed."""
    tokens: Annotated[int, Field(ge=1)] = 1
    """Number of tokens that 99 % of the lines do not exceed."""


class SentenceSplitter:
    """Rules for the ends of sentences, with learned abbreviations."""

    def __init__(self, statistics: SourceStatistics | None = None) -> None:
        learned = statistics or SourceStatistics()
        self._abbreviations = ABBREVIATIONS.union(learned.abbreviations)
        self._starters = frozenset(learned.starters)

    def split(self, line: str) -> list[tuple[str, str]]:
        """Return the sentences of a line, each with the white space after it.

        White space at the ends of the line belongs to the first and the last sentence: the parts joined are the line.

        >>> SentenceSplitter().split("Dr. No is here.  Is he? Yes.")
        [('Dr. No is here.', '  '), ('Is he?', ' '), ('Yes.', '')]
        """
        if _ANY_STOP.search(line, 0, len(line.rstrip().rstrip(_TAIL))) is None:
            return [(line, "")]  # as most lines: nothing but marks follows the first mark
        parts, begin = [], 0
        for match in _END.finditer(line):
            gap = _SPACE.match(line, match.end())
            assert gap is not None, "the pattern matches the empty string"
            if gap.end() == len(line):
                break
            if self._is_end(line, begin, match, gap.end()):
                parts.append((line[begin : match.end()], gap.group()))
                begin = gap.end()
        return [*parts, (line[begin:], "")]

    def _is_end(self, line: str, begin: int, match: re.Match[str], after: int) -> bool:
        """Return whether a sentence from ``begin`` ends with ``match``.

        ``after`` is where the next sentence would start.
        """
        mark, following = match.group(), line[after : after + _NEAR]
        first = following.lstrip(_OPENERS + _SPACES)[:1]
        if not (first.isalnum() or first in _SYMBOLS) or first.islower():
            return False
        if mark[0] in _WIDE_STOPS:
            return not (mark[-1] in "」』" and following.startswith(_QUOTING))
        if mark != ".":
            return True
        near = max(begin, match.start() - _NEAR)
        found = _LAST_WORD.search(line[near : match.start()])
        assert found is not None, "the pattern matches the empty string"
        word = found.group().lstrip(_OPENERS)
        if _SMALL_NUMBER.fullmatch(word):
            return not (ORDINAL in self._abbreviations or near + found.start() == begin)
        if len(word) == 1 and word.isupper():
            return word == "I"  # else an initial
        if word.lower() in _TITLES or (word.lower() in _BEFORE_NUMBERS and first.isdigit()):
            return False
        if word.lower() in self._abbreviations or _DOTTED.fullmatch(word):
            return following.split(None, 1)[0].strip(_OPENERS + ",") in self._starters
        return True


def learn_statistics(lines: Sequence[str], lengths: Sequence[int]) -> SourceStatistics:
    """Learn abbreviations and usual lengths from lines and their numbers of tokens.

    Abbreviations by Kiss and Strunk 2006 (Unsupervised Multilingual Sentence Boundary Detection), section 3.1: a
    likelihood ratio of "the word always has its full stop" to "it has one as often as other words", weighted by the
    length of the word and by how often it is without. Full stops at the end of a line say nothing of a word here.
    """
    learned = SourceStatistics(abbreviations=_learn_abbreviations(lines), starters=_learn_starters(lines))
    splitter = SentenceSplitter(learned)
    sentences = _percentile(Counter(len(splitter.split(line)) for line in lines))
    return learned.model_copy(update={"sentences": sentences, "tokens": max(1, _percentile(Counter(lengths)))})


def _learn_abbreviations(lines: Iterable[str]) -> list[str]:
    with_stop: Counter[str] = Counter()
    without: Counter[str] = Counter()
    n_words = 0
    for line in lines:
        words = line.split()
        n_words += len(words)
        for place, word in enumerate(words):
            word = word.lstrip(_OPENERS)
            bare = word.rstrip(".,;:!?" + _CLOSERS)
            key = ORDINAL if _SMALL_NUMBER.fullmatch(bare) else bare.lower()
            if word == f"{bare}." and place + 1 < len(words):
                with_stop[key] += 1
            else:
                without[key] += 1
    n_ordinals = with_stop.pop(ORDINAL, 0)
    rate = sum(with_stop.values()) / max(1, n_words)  # of full stops inside lines, after words
    scores = {
        word: _likelihood_ratio(n, rate) * math.exp(-len(word)) * len(word) ** -float(min(without[word], 1000))
        for word, n in with_stop.items()
        if n >= _MIN_COUNT and len(word) <= _MAX_LENGTH and word.isalpha()
    }
    found = [word for word, score in scores.items() if score >= _MIN_SCORE]
    # Numbers without a stop are common where ordinals have one, so they are compared with other words.
    if n_ordinals > _MIN_COUNT and n_ordinals > _ORDINAL_RATIO * rate * (n_ordinals + without[ORDINAL]):
        found.append(ORDINAL)
    return sorted(sorted(found, key=lambda word: (-with_stop[word], word))[:_MAX_LEARNED])


def _likelihood_ratio(n: int, rate: float) -> float:
    """Return -2 log λ of n full stops in n words: at the given rate, and at 0.99."""
    return 2 * n * (math.log(0.99) - math.log(min(max(rate, 1e-9), 0.99)))


def _learn_starters(lines: Iterable[str]) -> list[str]:
    """Return capitalized first words of lines that are usually in lower case."""
    first: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for line in lines:
        words = line.split()
        if words and words[0][:1].isupper():
            first[words[0]] += 1
        inside.update(words[1:])
    common = [
        word for word, n in first.items() if n >= _MIN_COUNT and word.isalpha() and inside[word.lower()] > inside[word]
    ]
    return sorted(sorted(common, key=lambda word: (-first[word], word))[:_MAX_LEARNED])


def _percentile(counts: Counter[int]) -> int:
    """Return the 99th percentile of counted values."""
    below, total = 0, sum(counts.values())
    for value in sorted(counts):
        below += counts[value]
        if below >= _SHARE * total:
            return value
    return 1


# In order of preference: after a sentence, after a clause, between words. White space at the break is dropped.
_BREAKS = (r"(?<=[.!?…。！？])\s+|(?<=[。！？])", r"(?<=[,;:])\s+|(?<=[，；：、])", r"\s+")


def split_line(line: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Split a line into parts of at most ``limit`` tokens, packed greedily.

    ``count`` returns the number of tokens of a text. A part exceeds the limit only if a single character does.
    """
    if count(line) <= limit:
        return [line]
    for pattern in _BREAKS:
        pieces = [piece for piece in re.split(pattern, line) if piece and not piece.isspace()]
        if len(pieces) > 1:
            break
    else:
        middle = len(line) // 2
        if middle == 0:
            return [line]
        return split_line(line[:middle], limit, count) + split_line(line[middle:], limit, count)
    sizes = [count(piece) for piece in pieces]
    if sum(sizes) <= limit:  # too long only when joined: halve
        middle = len(pieces) // 2
        packed = [" ".join(pieces[:middle]), " ".join(pieces[middle:])]
    else:  # join neighbouring pieces with a space while they fit
        packed, filled = [], limit + 1
        for piece, size in zip(pieces, sizes, strict=True):
            if packed and filled + size <= limit:
                packed[-1] += " " + piece
                filled += size
            else:
                packed.append(piece)
                filled = size
    return [part for text in packed for part in split_line(text, limit, count)]


def split_ids(line: str, ids: list[int], limit: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of a line, split into parts of at most ``limit`` ids."""
    return [ids] if len(ids) <= limit else tokenizer.encode(split_text(line, limit, tokenizer))


def split_text(line: str, limit: int, tokenizer: Tokenizer) -> list[str]:
    """Split a line into parts of at most ``limit`` tokens, as ``split_ids`` does."""
    n_given = len(tokenizer.code_ids)  # before each part
    return split_line(line, limit - n_given, lambda text: len(tokenizer.encode([text])[0]) - n_given)
