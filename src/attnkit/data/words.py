"""Text as word ids on disk; memory use grows only with the vocabulary."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from attnkit.data.config import WordsConfig
from attnkit.data.store import Store, StoreWriter, store_writer
from attnkit.data.word_ids import TempIdFile, WordIds, token_words_to_ids, words_to_ids
from attnkit.errors import DataError, RunError, system_failure
from attnkit.io import atomic
from attnkit.io.safe_read import is_file_fault, parse_json, read_regular_file
from attnkit.kernels.pairs import RARE, Pair, PairCounter, PhraseJoiner, WordClasses
from attnkit.kernels.words import LINE_END, MAX_WORD_BYTES, TOO_LONG
from attnkit.text import phrases
from attnkit.text.config import PhrasesConfig
from attnkit.text.phrases import Phrases, ScoredPhrase, score
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.word_vocabulary import FILE, WordVocabulary

_AT_ONCE = 1 << 16  # words per lookup
Tell = Callable[[str], None]


def find_phrases(text: WordIds, config: PhrasesConfig, lower: bool, tell: Tell) -> tuple[Phrases, int]:
    """Find and join phrases; return them and the number of pruned pair occurrences."""
    passes: list[tuple[ScoredPhrase, ...]] = []
    n_lost = 0
    connectors = dict(enumerate(dict.fromkeys(config.connectors), 1))
    for number in range(1, config.passes + 1):
        kinds = _word_classes(text, config.connectors, config.min_count)
        counter = PairCounter(kinds, config.max_pairs)
        for numbers in text.spool:
            counter.add(numbers)
            tell(f"pass {number}: counting pairs of words")
        n_lost += counter.n_lost
        rows, counts = counter.pairs(config.min_count)
        scores = score(config, counts, text.counts[rows[:, 0]], text.counts[rows[:, 2]], text.n_words)
        chosen = np.flatnonzero(scores > config.limit)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]  # highest scores first
        rows, counts, scores = rows[chosen], counts[chosen], scores[chosen]
        phrases: list[ScoredPhrase] = []
        targets: dict[Pair, tuple[str, ...]] = {}
        firsts, seconds = text.names(rows[:, 0]), text.names(rows[:, 2])
        for i, (first, gap, second) in enumerate(rows.tolist()):
            parts = (firsts[i], *(connectors[kind] for kind in kinds.decode_gap(gap)), seconds[i])
            phrases.append(ScoredPhrase(parts, float(scores[i]), int(counts[i])))
            targets[first, gap, second] = parts
        passes.append(tuple(phrases))
        if not phrases:
            break
        tell(f"pass {number}: joining {len(phrases):,} phrases")
        _join(text, kinds, targets, config.joiner)
    return Phrases(config, lower, (*passes, *((),) * (config.passes - len(passes)))), n_lost


def apply_phrases(text: WordIds, phrases: Phrases, tell: Tell) -> None:
    """Join phrases that were found in another text."""
    config = phrases.config
    for number, found in enumerate(phrases.passes, 1):
        kinds = _word_classes(text, config.connectors, 1)
        places = numbers_of(text, {part for phrase in found for part in phrase.parts})
        targets: dict[Pair, tuple[str, ...]] = {}
        for phrase in found:
            parts = [places.get(part, RARE) for part in phrase.parts]
            between = [int(kinds.of[part]) for part in parts[1:-1] if part >= 0]
            if min(parts) >= 0 and min(between, default=1) > 0:
                targets[parts[0], kinds.encode_gap(between), parts[-1]] = phrase.parts
        tell(f"pass {number}: joining {len(targets):,} of {len(found):,} phrases")
        if targets:
            _join(text, kinds, targets, config.joiner)


@dataclass(frozen=True)
class JoinedText:
    """Result of joining phrases in a text."""

    phrases: Phrases  #: phrases that were found or given
    n_read: int  #: words before joining
    n_written: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as ``attnkit word2vec phrases --json`` does."""
        found: dict[str, Any] = {"words_read": self.n_read, "words_written": self.n_written}
        found["phrases"] = [len(passed) for passed in self.phrases.passes]
        return {**found, "config": self.phrases.config.model_dump(mode="json"), "lower": self.phrases.lower}


def join_words(
    sources: Sequence[Path], asked: PhrasesConfig | Phrases, lower: bool, out: TextIO, tell: Tell
) -> JoinedText:
    """Write a text line by line with its phrases joined; keep blank lines.

    ``asked`` contains the settings for finding phrases, or the phrases to join; those found in lower-cased text imply
    ``lower``. Words are separated by one space. Raises ``DataError`` if the text is empty or not UTF-8.
    """
    with atomic.anonymous_tempfile() as stream:
        lower = asked.lower or lower if isinstance(asked, Phrases) else lower
        text = words_to_ids(sources, lower, TempIdFile(stream), tell)
        if not text.n_words:
            raise DataError("no text", where=", ".join(map(str, sources)), help="give a non-empty file")
        warnings, n_read = [], text.n_words
        if text.n_long:
            warnings.append(f"{text.n_long:,} words of more than {MAX_WORD_BYTES:,} bytes are left out")
        if isinstance(asked, Phrases):
            phrases, n_lost = asked, 0
            apply_phrases(text, phrases, tell)
        else:
            phrases, n_lost = find_phrases(text, asked, lower, tell)
        if n_lost:
            warnings.append(f"{n_lost:,} occurrences of rare pairs were pruned; raise --max-pairs to keep them")
        for block in _joined_lines(text):
            out.write(block)
        return JoinedText(phrases, n_read, text.n_words, tuple(warnings))


def _joined_lines(text: WordIds) -> Iterator[str]:
    """Yield the joined text, block by block."""
    begun = False  # whether the current line has a word already
    for numbers in text.spool:
        # The word of each id; "" for LINE_END and TOO_LONG.
        distinct, places = np.unique(numbers, return_inverse=True)
        is_word = distinct >= 0
        known = np.full(len(distinct), "", object)
        known[is_word] = text.names(distinct[is_word].astype(np.int64))
        names: list[str] = known[places].tolist()
        begin, parts = 0, []
        for end in [*np.flatnonzero(numbers == LINE_END).tolist(), len(numbers)]:
            line = " ".join(name for name in names[begin:end] if name)
            if begun and line:
                parts.append(" ")
            parts.append(line)
            begun = begun or bool(line)
            if end < len(numbers):
                parts.append("\n")
                begun = False
            begin = end + 1
        yield "".join(parts)


def numbers_of(text: WordIds, words: Collection[str]) -> dict[str, int]:
    """Return the ids of the given words that occur in a text."""
    found: dict[str, int] = {}
    for begin in range(0, len(text.counts) if words else 0, _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(text.counts)))
        names = enumerate(text.names(numbers), begin)
        found.update((name, number) for number, name in names if name in words)
    return found


def _word_classes(text: WordIds, connectors: Sequence[str], least: int) -> WordClasses:
    """Return the class of each word: candidate for pairs, connector or rare."""
    kinds = np.where(text.counts >= least, 0, RARE).astype(np.int32)
    places = numbers_of(text, set(connectors))
    for kind, connector in enumerate(dict.fromkeys(connectors), 1):
        if connector in places:
            kinds[places[connector]] = kind
    return WordClasses(kinds, len(set(connectors)))


def _join(text: WordIds, kinds: WordClasses, targets: dict[Pair, tuple[str, ...]], joiner: str) -> None:
    """Replace each phrase in the text by one id; reuse the id of an equal word."""
    joined = {pair: joiner.join(parts) for pair, parts in targets.items()}
    places = numbers_of(text, set(joined.values()))
    n_old = len(text.counts)
    added = [name for name in dict.fromkeys(joined.values()) if name not in places]
    places.update((name, n_old + i) for i, name in enumerate(added))
    join = PhraseJoiner(kinds, {pair: places[name] for pair, name in joined.items()}, n_old + len(added))
    n_words = 0

    def change(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        nonlocal n_words
        changed = join.join(numbers)
        n_words += int(np.count_nonzero(changed != LINE_END))
        return changed

    text.spool.rewrite(change)
    text.counts, text.first, text.n_words = join.counts, join.first, n_words
    old_names = text.names

    def names(numbers: NDArray[np.int64]) -> list[str]:
        old = iter(old_names(numbers[numbers < n_old]))
        return [next(old) if n < n_old else added[n - n_old] for n in numbers.tolist()]

    text.names = names


_INDEX = "words.json"
_MAX_BYTES = 1 << 36
_LONG_WORDS = 24  #: mean bytes per word above which a text seems to have no spaces between words
_HELP = "for text without spaces, run attnkit vocab FILE -o vocab.json and add --tokenizer vocab.json"


@dataclass(frozen=True)
class Encoded:
    """Encoded text for training word vectors."""

    words: WordVocabulary
    store: Store  #: one row of ids per line, without pruned words; lines without any kept word have no row
    n_raw: int  #: words of the text before pruning; a phrase counts as one word
    warnings: tuple[str, ...] = ()  #: warnings about the text


class _WordsIndex(BaseModel, extra="forbid", strict=True):
    """Schema of ``words.json``."""

    format: Literal[1]
    n_raw: int = Field(ge=0, lt=1 << 50)
    sha256: str
    warnings: list[str]


def encode_words(
    folder: Path,
    sources: Sequence[Path],
    settings: WordsConfig,
    tell: Tell = lambda text: None,
    tokenizer: Tokenizer | None = None,
) -> Encoded:
    """Count, prune and encode the words of files into a new ``folder``.

    The text is read once, and the folder is written atomically. A temporary file needs 4 bytes per word. Phrases, if
    configured, are saved in the folder as ``phrases.tsv``.

    Args:
        folder: Output: a store, and the words with their counts. It must not exist.
        sources: Text files, plain or compressed, with lines of any length; ``-`` is standard input.
        settings: Which words are kept and how phrases are found.
        tell: Called with progress messages.
        tokenizer: The tokenizer loaded from ``settings.tokenizer``.

    Raises:
        DataError: No word is kept, no line has two kept words, or a byte is not UTF-8 (with file and line).
    """
    with atomic.atomic_dir(folder) as temporary, atomic.anonymous_tempfile(temporary) as stream:
        spool = TempIdFile(stream)
        if tokenizer is None:
            separate = settings.separate_punctuation
            text = words_to_ids(sources, settings.lower, spool, tell, separate_punctuation=separate)
        else:
            text = token_words_to_ids(sources, settings.lower, tokenizer, spool, tell)
        found, n_lost = None, 0
        if settings.phrases.passes:
            found, n_lost = find_phrases(text, settings.phrases, settings.lower, tell)
        where = ", ".join(map(str, sources[:3])) + ", ..." * (len(sources) > 3)
        kept = _kept(text, settings, where)
        words = WordVocabulary(text.names(kept), text.counts[kept])
        with store_writer(temporary, len(words)) as writer:
            _encode(text, kept, writer, tell, where)
        warnings = []
        if n_lost:
            more = "raise phrases.max_pairs to keep them"
            warnings.append(f"{n_lost:,} occurrences of rare pairs were pruned: {more}")
        if _is_dense(text):
            mean = text.n_bytes // text.n_words
            warnings.append(f"words have {mean} bytes on average: are they separated by white space? {_HELP}")
        elif text.n_long:
            why = f"they have more than {MAX_WORD_BYTES:,} bytes or are unknown"
            warnings.append(f"{text.n_long:,} words are left out: {why}")
        raw = words.to_bytes()
        index = _WordsIndex(format=1, n_raw=text.n_words, sha256=sha256(raw).hexdigest(), warnings=warnings)
        atomic.write_new_file(temporary / FILE, raw)
        if found is not None:
            atomic.write_new_file(temporary / phrases.FILE, found.to_text().encode())
        atomic.write_new_file(temporary / _INDEX, index.model_dump_json(indent=1).encode())
    return Encoded(words, Store.open(folder), text.n_words, tuple(warnings))


def open_words(folder: Path) -> Encoded:
    """Open a folder of ``encode_words``. Raises ``RunError`` if it is damaged."""
    try:
        index = _WordsIndex.model_validate_json(json.dumps(parse_json(read_regular_file(folder / _INDEX, 1 << 20))))
        raw = read_regular_file(folder / FILE, min(_MAX_BYTES, (folder / FILE).stat().st_size))
        if sha256(raw).hexdigest() != index.sha256:
            raise ValueError("checksum mismatch of the words file")
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and not is_file_fault(error):
            raise system_failure("read", folder, error) from error
        raise RunError(f"the encoded text is damaged: {error}", where=str(folder)) from error
    words, store = WordVocabulary.from_bytes(raw, where=str(folder / FILE)), Store.open(folder)
    if store.vocab_size != len(words):
        raise RunError(f"the encoded text is damaged: {FILE} does not match ids.bin", where=str(folder))
    return Encoded(words, store, index.n_raw, tuple(index.warnings))


def _kept(text: WordIds, settings: WordsConfig, where: str) -> NDArray[np.int64]:
    """Return the kept words' ids by falling count, ties by first occurrence."""
    if not text.n_words:
        raise DataError("no text", where=where, help="give a non-empty file")
    if text.n_long == text.n_words:
        what = f"every word exceeds the maximum of {MAX_WORD_BYTES:,} bytes"
        raise DataError(what, where=where, help=_HELP)
    kept = np.flatnonzero(text.counts >= settings.min_count)
    if not len(kept):
        most = int(np.argmax(text.counts))
        name, n = text.names(np.array([most]))[0][:40], int(text.counts[most])
        often = "once" if n == 1 else f"{n:,} times"
        what = f"no word occurs at least {settings.min_count:,} times: the most frequent, {name!r}, occurs {often}"
        raise DataError(what, where=where, help=_HELP if _is_dense(text) else "lower --min-count")
    return kept[np.lexsort((text.first[kept], -text.counts[kept]))][: settings.max_vocab]


def _encode(text: WordIds, kept: NDArray[np.int64], writer: StoreWriter, tell: Tell, where: str) -> None:
    """Write one row of new ids per line; skip lines without a kept word."""
    ids = np.full(len(text.counts) + 2, TOO_LONG, np.int32)
    ids[kept] = np.arange(len(kept))
    ids[LINE_END] = LINE_END  # numpy indexes -1 and -2 from the end
    total = last = done = longest = 0
    for numbers in text.spool:
        row = ids[numbers]
        row = row[row != TOO_LONG]
        is_end = row == LINE_END
        places = np.flatnonzero(is_end)
        ends = total + places - np.arange(len(places))
        lengths = np.diff(ends, prepend=last)
        ends = ends[lengths > 0]
        writer.append(row[~is_end], ends)
        total += len(row) - len(places)
        last = int(ends[-1]) if len(ends) else last
        longest = max(longest, int(lengths.max(initial=0)))
        done += len(numbers)
        tell(f"encoded {100 * done // len(text.spool)} %")
    if longest < 2:
        help = _HELP if _is_dense(text) else "put one sentence per line, words separated by spaces"
        raise DataError("no line contains two in-vocabulary words: no training pairs", where=where, help=help)


def _is_dense(text: WordIds) -> bool:
    """Return whether a text seems to have no spaces between words."""
    return text.n_bytes > _LONG_WORDS * text.n_words
