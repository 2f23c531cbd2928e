"""Tags: symbols at the start of source lines that tell a model what a pair is.

Models of attnkit read a tag of the target language (Johnson et al. 2017). Imported models of many languages have codes
instead: that of the source language is put before each source, that of the target language begins each target. An
imported T5 may have words before each source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.errors import UsageError
from attnkit.text.lines import read_lines

if TYPE_CHECKING:
    from attnkit.text.tokenizer import Tokenizer

BACK_TRANSLATED = "<bt>"
"""Tag of sources that a model wrote (Caswell et al. 2019, Tagged Back-Translation)."""
DIRECTIONS = "--pair (data.directions)"  #: option and key of the directions of training text
_OWN_TAG = re.compile(r" *(<2[^<>\s]+>) ?")
VALID_DIRECTIONS = "--valid-pair (data.valid_directions)"  #: likewise of validation text


def language_tag(language: str) -> str:
    """Return the tag of a target language (Johnson et al. 2017).

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def direction_tags(direction: str, codes: Sequence[str] = (), option: str = DIRECTIONS) -> tuple[str, str]:
    """Return what is before the sources and targets of a direction; empty for none.

    Without ``codes``, those of an imported model, it is the tag of the target language before sources. ``option``
    names the direction in errors.

    >>> direction_tags("en:de"), direction_tags("en:de", ["__de__", "__en__"]), direction_tags("")
    (('<2de>', ''), ('__en__', '__de__'), ('', ''))

    Raises ``UsageError`` if the model does not have a language.
    """
    if not direction:
        return "", ""
    src, _, tgt = direction.partition(":")
    if not codes:
        return language_tag(tgt), ""
    return code_of(codes, src, option), code_of(codes, tgt, option)


def with_tag(line: str, tag: str) -> str:
    """Return a line after its tag and a space; an empty tag changes nothing.

    >>> with_tag("Ein Hund", "<bt>")
    '<bt> Ein Hund'
    """
    return f"{tag} {line}" if tag else line


def tag_ids(tokenizer: Tokenizer, tag: str) -> list[int]:
    """Return the ids that a tag adds before those of a line; none for an empty tag."""
    if not tag:
        return []
    tagged, plain = tokenizer.encode([with_tag("x", tag), "x"])
    return tagged[: len(tagged) - len(plain)]


def leading_code(tokenizer: Tokenizer, text: str) -> str:
    """Return the language code or tag at the start of a text, with spaces.

    Empty for none: a code is one of an imported model, a tag such as ``<2de>`` a symbol of the vocabulary.
    """
    code = "" if tokenizer.pieces is None else tokenizer.pieces.leading_code(text)
    tag = None if code else _OWN_TAG.match(text)
    return code if tag is None or tokenizer.token_id(tag[1]) is None else tag[0]


def carry_code(tokenizer: Tokenizer, text: str, parts: Sequence[str]) -> list[str]:
    """Return the parts of a text, each after its own code, or after that of the text."""
    return with_leading_code(tokenizer, leading_code(tokenizer, text), parts)


def with_leading_code(tokenizer: Tokenizer, code: str, parts: Sequence[str]) -> list[str]:
    """Return parts after a code, unless it is empty or they have their own."""
    return [part if not code or leading_code(tokenizer, part) else code + part for part in parts]


def with_source_prefix(tokenizer: Tokenizer, text: str) -> Tokenizer:
    """Return a vocabulary of pieces with a text before all others; empty for none."""
    tree = json.loads(tokenizer.to_json())["tokenizer"]
    tree.pop("before", None)
    return type(tokenizer)(tokenizer.config, {**tree, "before": text} if text else tree, tokenizer.origin)


def source_prefix(tokenizer: Tokenizer) -> str:
    """Return the text before all others, as an imported T5 has it; empty for none."""
    return "" if tokenizer.pieces is None else tokenizer.pieces.before


def without_side(tokenizer: Tokenizer) -> Tokenizer:
    """Return the vocabulary of either side: with the first code, without a prefix.

    Sides of one vocabulary may differ in these.
    """
    if tokenizer.language_codes:
        return tokenizer.with_code(tokenizer.language_codes[0])
    return with_source_prefix(tokenizer, "") if source_prefix(tokenizer) else tokenizer


def find_code(codes: Sequence[str], language: str) -> str | None:
    """Return the code of a language of an imported model; None if it has none.

    >>> find_code(["__de__", "__en__"], "de"), find_code(["deu_Latn"], "deu_Latn"), find_code(["deu_Latn"], "de")
    ('__de__', 'deu_Latn', None)
    """
    return next((code for code in (language, f"__{language}__") if code in codes), None)


def language_of_code(code: str) -> str:
    """Return the name of a language whose code is given.

    >>> language_of_code("__de__"), language_of_code("deu_Latn")
    ('de', 'deu_Latn')
    """
    return code.strip("_")


def code_of(codes: Sequence[str], language: str | None, option: str) -> str:
    """Return the code of a language of an imported model.

    Raises ``UsageError``, which names ``option`` and similar languages, if the model has none, or for None.
    """
    code = None if language is None else find_code(codes, language)
    if code is not None:
        return code
    named = list(map(language_of_code, codes))
    close = get_close_matches(language or "", named, n=3, cutoff=0.4)
    shown = ", ".join(named) if len(named) <= 12 else f"{len(named)}, such as {', '.join(close or named[:6])}"
    what = "this model needs a language" if language is None else f"the model has no language '{language[:40]}'"
    raise UsageError(what, where=option, help=f"choose one of {shown}")


@dataclass(frozen=True)
class TranslationDirection:
    """What a run needs to translate from one language into another."""

    src_tokenizer: Tokenizer  #: puts the code of the source language before texts, if the model has codes
    tgt_tokenizer: Tokenizer  #: likewise of the target language
    tag: tuple[int, ...] = ()  #: ids before those of each source: of the tag of the target language
    tgt_lang: str | None = None  #: target language: of the code, chosen, or the only one with a tag; None: unknown

    @classmethod
    def of_codes(cls, src: Tokenizer, tgt: Tokenizer) -> TranslationDirection:
        """Return the direction of tokenizers that put codes before texts."""
        code = None if tgt.pieces is None else tgt.pieces.code
        return cls(src, tgt, (), None if code is None else language_of_code(code))

    @property
    def code(self) -> list[int]:
        """Forced first ids of each translation, which its score leaves out."""
        return self.tgt_tokenizer.code_ids

    @property
    def name(self) -> str:
        """Codes of both languages, such as ``eng_Latn:deu_Latn``; empty without codes."""
        pieces = self.src_tokenizer.pieces, self.tgt_tokenizer.pieces
        codes = [one.code for one in pieces if one is not None and one.code is not None]
        return ":".join(map(language_of_code, codes))


def named_direction(tokenizers: tuple[Tokenizer, Tokenizer], name: str) -> TranslationDirection:
    """Return a direction of training text, such as ``en:de``; empty: the usual one.

    Raises ``UsageError`` if an imported model does not have a language.
    """
    src, tgt = tokenizers
    codes = src.language_codes
    first, last = direction_tags(name, codes)
    if not codes:
        return TranslationDirection(src, tgt, tuple(tag_ids(src, first)), name.partition(":")[2] or None)
    return TranslationDirection.of_codes(*((src.with_code(first), tgt.with_code(last)) if name else tokenizers))


def is_back_translated(path: Path) -> bool:
    """Return whether the first line of a source file has the tag of back-translation.

    Raises ``DataError`` if the line is not UTF-8.
    """
    return next(read_lines(path), "").startswith(with_tag("", BACK_TRANSLATED))
