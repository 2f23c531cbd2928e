"""Runs of tokens that form one character or one word, for display."""

import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence

from attnkit.protocols import UNK_ID, Run, TokenRuns
from attnkit.text.tokenizer import Tokenizer

_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Characters of scripts that do not separate words: Thai, Lao, Burmese, Khmer, kana and Chinese characters."""


def token_runs(tokenizer: Tokenizer, ids: Sequence[int]) -> TokenRuns:
    """Return the characters and words that tokens form, and which tokens are special.

    Tokens that share a character are one run. A word is what white space separates; punctuation at its beginning and
    end is a word of its own, and so is each token of a script without spaces, each special token and each symbol.
    """
    characters = list(character_runs(tokenizer, ids))
    words: list[Run] = []
    part: list[Run] = []  # characters of a word so far, spaces as ▁
    at = 0
    for text, n in characters:
        alone = _stands_alone(tokenizer, ids[at])
        blank = not "".join(text for text, _ in part).strip("▁")
        begins = alone or (not blank and (text.startswith("▁") or _UNSPACED.match(text) is not None))
        if begins:
            words += split_punctuation(part)
            part = []
        if alone:
            words.append((text, n))
        else:
            part.append((text, n))
        at += n
    words += split_punctuation(part)
    return TokenRuns(characters, words, [not tokenizer.bytes_of(id) for id in ids])


def character_runs(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[Run]:
    """Yield runs of tokens that share a character; most are single tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    held: list[int] = []  # tokens that end inside a character
    for id in ids:
        if held and _stands_alone(tokenizer, id):
            yield from ((token, 1) for token in tokenizer.tokens(held))
            held = []
            decoder.reset()
        held.append(id)
        try:
            decoder.decode(b"" if _stands_alone(tokenizer, id) else tokenizer.bytes_of(id))
        except UnicodeDecodeError:  # no text: the tokens stay separate
            yield from ((token, 1) for token in tokenizer.tokens(held))
            held = []
            decoder.reset()
            continue
        if not decoder.getstate()[0]:
            if len(held) == 1:
                yield tokenizer.tokens(held)[0], 1
            else:
                whole = b"".join(map(tokenizer.bytes_of, held)).decode("utf-8")
                yield whole.replace(" ", "▁"), len(held)
            held = []
    yield from ((token, 1) for token in tokenizer.tokens(held))


def path_texts(tokenizer: Tokenizer, nodes: Sequence[tuple[int, int | None]]) -> list[Run]:
    """Return the text of each tree node (token id, parent), and its number of tokens.

    The text is the token, or the character that the token completes; parents precede their children.
    """
    found: list[Run] = []
    held: list[list[int]] = []  # per node: tokens on its path that have not completed their character
    for id, parent in nodes:
        path = [*([] if parent is None else held[parent]), id]
        *_, run = character_runs(tokenizer, path)
        found.append(run)
        raw = b"".join(map(tokenizer.bytes_of, path))
        held.append(path if not _stands_alone(tokenizer, id) and _is_open(raw) else [])
    return found


def _is_open(raw: bytes) -> bool:
    """Return whether bytes end inside a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(raw)
    except UnicodeDecodeError:
        return False
    return bool(decoder.getstate()[0])


def split_punctuation(part: Sequence[Run]) -> list[Run]:
    """Split the runs of a word at the punctuation at its beginning and end.

    >>> split_punctuation([("▁(", 1), ("don", 1), ("'", 1), ("t", 2), ("!", 1), (")", 1)])
    [('(', 1), ("don't", 4), ('!)', 2)]
    """
    core = [i for i, (text, _) in enumerate(part) if not _is_punctuation(text.strip("▁"))]
    begin, end = (core[0], core[-1] + 1) if core else (0, len(part))
    words: list[Run] = []
    for piece in (part[:begin], part[begin:end], part[end:]):
        if piece:
            text = "".join(text for text, _ in piece)
            words.append((text.strip("▁") or text, sum(n for _, n in piece)))
    # A lone space token belongs to what follows it.
    if len(words) > 1 and not words[0][0].strip("▁"):
        words[:2] = [(words[1][0], words[0][1] + words[1][1])]
    return words


def _stands_alone(tokenizer: Tokenizer, id: int) -> bool:
    """Return whether an id is a special token, a symbol or an unknown word."""
    return id == UNK_ID or not tokenizer.bytes_of(id) or tokenizer.is_symbol(id)


def _is_punctuation(text: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in text)
