"""Words of a text that a vocabulary is trained on: lines filtered, chunks split."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import Tokenizer as Engine

from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import VocabularyConfig, symbol_pattern

MAX_DISTINCT = 1_000_000  #: distinct chunks above which memory is freed
MAX_WORD_LENGTH = 1000  #: characters; spaces split longer words, since training time is quadratic in the length
AT_ONCE = 1024  #: chunks split at once
_LONG_WORD = re.compile(rf"[^ ]{{{MAX_WORD_LENGTH}}}(?=[^ ])")
_ANY_SPACE = re.compile(r"\s")
_SPACE = engine.CHARACTERS[ord(" ")]
# ``engine.WORDS`` of printable ASCII, with spaces in the byte alphabet.
_ASCII_WORDS = re.compile(f"{_SPACE}?[A-Za-z]+(?:'[A-Za-z]+)*|{_SPACE}?[0-9]+|{_SPACE}?[^A-Za-z0-9{_SPACE}]+")


class LineFilter:
    """What is trained on of each line: no blank lines, no symbols, no endless words."""

    def __init__(self, config: VocabularyConfig) -> None:
        self._splits_long = config.kind != "word"
        self.symbols = () if config.kind == "word" else config.symbols
        self._pattern = None if config.kind == "word" else symbol_pattern(config.symbols)

    def __call__(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the non-blank lines without symbols; spaces split very long words."""
        for line in lines:
            if line and not line.isspace():
                short = len(line) <= MAX_WORD_LENGTH or not self._splits_long
                kept = line if short else _LONG_WORD.sub(r"\g<0> ", line)
                yield kept if self._pattern is None else self._pattern.sub(" ", kept)


def add_words(counts: Counter[str], words: Iterable[Sequence[str]], times: Iterable[int]) -> None:
    """Add the words of each chunk to ``counts``, as often as the chunk occurs."""
    get = counts.get
    for some, n in zip(words, times, strict=True):
        for word in some:
            counts[word] = get(word, 0) + n


def normalized(bare: Engine, text: str) -> str:
    """Return the text that a tokenizer splits."""
    return text if bare.normalizer is None else str(bare.normalizer.normalize_str(text))


def split_chunks(bare: Engine, config: VocabularyConfig, chunks: Sequence[str]) -> list[list[str]]:
    """Return the words of each chunk, normalized and split by ``bare``."""
    found: list[list[str]] = [[]] * len(chunks)
    ascii: list[int] = []
    simple: list[int] = []
    # WordPiece splits longer words again.
    longest = engine.MAX_WORD_LENGTH - 1 if config.kind == "wordpiece" else MAX_WORD_LENGTH
    for i, chunk in enumerate(chunks):
        if not chunk or _ANY_SPACE.search(chunk) is not None:
            found[i] = _split_one(bare, chunk)
        elif chunk.isascii() and config.kind != "word" and len(chunk) <= longest and chunk.isprintable():
            ascii.append(i)
        elif config.normalize != "nfkc" or chunk.isascii():
            simple.append(i)
        else:  # NFKC makes spaces of other characters
            found[i] = _split_one(bare, chunk)
    # Chunks without white space are split together, as one line.
    for group, is_ascii in ((ascii, True), (simple, False)):
        if group:
            text = " ".join([chunks[i] for i in group])
            if is_ascii:
                words = _ASCII_WORDS.findall(normalized(bare, " " + text).replace(" ", _SPACE))
            else:
                words = _split_one(bare, text)
            first = " " if config.kind == "word" else _SPACE
            starts = [at for at, word in enumerate(words) if word[0] == first]
            for i, begin, end in zip(group, starts, [*starts[1:], len(words)], strict=True):
                found[i] = words[begin:end]
    return found


def _split_one(bare: Engine, text: str) -> list[str]:
    return [word for word, _ in bare.pre_tokenizer.pre_tokenize_str(normalized(bare, " " + text))]
