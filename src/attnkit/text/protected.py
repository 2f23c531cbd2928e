"""Parts of text that a translation keeps: addresses, placeholders, code, numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from attnkit.text.word_boundaries import count_phrases

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
"""Letters and marks that no space separates: a part may begin and end next to them."""
_BEGIN, _END = rf"(?<![^\W{UNSPACED}])", rf"(?!\d|[^\W{UNSPACED}])"

# Code between words: each rule needs a sign that prose does not have. Every repetition is bounded, so that the time is
# linear in the text.
_SUFFIX = (
    r"(?:bat|bz2|cfg|com|conf|cpp|css|csv|dll|docx?|exe|gif|gz|hpp|html?|ini|ipynb|java|jpe?g|js|json|jsx|log|md|mp[34]"
    r"|net|org|pdf|php|png|pptx?|py|rb|rs|rst|sh|sql|svg|tar|tex|toml|ts|tsv|tsx|txt|wav|xlsx?|xml|xz|ya?ml|zip|zst)"
)
_WORD = r"[a-z][a-z0-9_]{1,63}"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,8}"
_NAMES = (
    r"[A-Za-z][A-Za-z0-9]{0,63}(?:_{1,2}[A-Za-z0-9]{1,64}){1,16}",  # snake_case
    rf"[A-Za-z0-9_][\w-]{{0,99}}(?:\.[\w-]{{1,99}}){{0,4}}\.{_SUFFIX}(?![\w-])",  # README.md
    rf"{_WORD}(?:\.{_WORD}){{1,8}}(?:\.[A-Z]\w{{0,63}})?(?![\w-])",  # os.path, torch.nn.Linear
)
_NAME = rf"(?:{'|'.join(_NAMES)})"
_ARGUMENTS = r"\((?:[^()\n]|\([^()\n]{0,99}\)){0,199}\)"
_AFTER = rf"(?:\.\w{{1,64}}(?:{_ARGUMENTS})?){{0,8}}"  # .read() behind open("a")
# Words before brackets are prose, as in dog(s); these arguments are not: (), ("a"), (x=1), (a, b), f(x).
_SIGNED = r"\((?=\)|[^()\n]{0,99}[=_\"'+*/<>\[{(]|(?:\w{1,2}, ?){1,8}\w{1,2}\)|(?<=\b[f-h]\()\w\))"
_CALL = rf"(?:{_NAME}{_ARGUMENTS}|{_IDENTIFIER}(?={_SIGNED}){_ARGUMENTS}){_AFTER}"
_STRING = r"(?:\"[^\"\n]{0,99}\"|'[^'\n]{0,99}')"
_LITERAL = r"[-−]?\d+(?:[.,]\d+)*"
_VALUE = rf"(?:{_IDENTIFIER}{_ARGUMENTS}{_AFTER}|{_NAME}|{_STRING}|{_LITERAL}|[A-Za-z]{_END})"
_OPERATOR = r"(?:[-+*/:=!<>]=|[=<>≤≥≠≈]|[-=]>)"
_SUM = rf"(?: ?[-+*/%×·^] ?{_VALUE}){{0,8}}"
_COMPARED = rf"{_SUM} ?{_OPERATOR} ?{_VALUE}{_SUM}"

_CODE = "|".join(
    (
        r"(?<![\w`])(?P<ticks>``?)(?=[^\s`])[^`\n]{1,200}(?<=[^\s`])(?P=ticks)(?![\w`])",
        # x = f(y), n <= 10, 5 < 6; of words only with a call or a string behind: total = sum(x)
        rf"{_BEGIN}(?<![.,:/\\-])(?:{_CALL}|{_NAME}|{_LITERAL}|[A-Za-z]){_COMPARED}{_END}",
        rf"{_BEGIN}{_IDENTIFIER} ?[-+*/:]?= ?(?:{_IDENTIFIER}{_ARGUMENTS}{_AFTER}|{_STRING}){_SUM}",
        rf"{_BEGIN}(?<![/.\\-]){_CALL}",
        r"(?<![\w-])--[a-z][a-z0-9]+(?:-[a-z0-9]+)*(?:=[^\s,;)\]\"']+)?(?![\w-])",  # --max-steps=10
        r"(?<![^\s(\[\"'])-[A-Za-z](?=[\s,;)\]\"']|\Z)",  # -v
        rf"{_BEGIN}[A-Za-z]:\\[^\s<>\"|?*,;]*[\w\\]",
        r"(?<![\w./~-])(?:~|\.\.?)/(?:[\w./~-]*[\w/])?",
        r"(?<![\w./~)<-])/[a-z][\w-]{2,}(?:/[\w-]+|\.[\w-]+)*/?(?![\w/])",  # /etc/hosts
        rf"(?<![\w./~-])(?:[\w-][\w.-]{{0,99}}/){{1,32}}(?:{_NAME}|\.[a-z]\w+)/?",  # src/main.py
        r"(?<![\w./~-])(?:[a-z_][\w.-]{1,99}/){2,32}(?!\w)",  # docs/guides/
        rf"{_BEGIN}[A-Za-z_][\w.-]{{0,63}}=(?:[^\s=,;)\]\"'“”<>]*[^\s=,;.:!?)\]\"'“”<>]|{_STRING})",  # lr=0.1
        rf"{_BEGIN}(?<![/.\\@-]){_NAME}",
        rf"{_BEGIN}(?:v\d+(?:\.\d+)+|0x[0-9A-Fa-f]+){_END}",
    )
)
_ADDRESS = (
    rf"{_BEGIN}(?:https?|ftp)://[^\s<>\"“”»{UNSPACED}]+[^\s<>\"“”».,;:!?)\]'’{UNSPACED}]"
    rf"|{_BEGIN}www\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"{UNSPACED}]*[^\W{UNSPACED}/])?"
)
_SPACED = rf"[^\W{UNSPACED}]"
_MAIL = (
    rf"{_BEGIN}(?<![.+-])(?:{_SPACED}|[.+-]){{1,64}}@(?:{_SPACED}|-){{1,63}}(?:\.(?:{_SPACED}|-){{1,63}}){{1,8}}{_END}"
)
_PLACEHOLDER = (
    r"\{\{?[\w .:,#!+-]*\}?\}|%\([\w.]+\)[#0 +-]*\d*(?:\.\d+)?[a-zA-Z]|%(?:\d+\$)?[0+-]*\d*(?:\.\d+)?"
    r"[sdifuxXeEgGc@](?![^\W\d_])|\$\{[\w.]+\}|\$[A-Z_][A-Z0-9_]*\b|\[\[[\w.]+\]\]|%%[\w.]+%%"
)
_FIRST = rf"{_BEGIN}(?<![.,:])(?:(?<![^\s(\[])[-−+±])?"
_UNIT = r"(?:[$€£¥₹%‰]|°(?:[CF]\b)?|(?:[kcmµn]?m|km/h|[kmµ]?g|m?l|[kKMGT]i?B|[kMG]?Hz|k?Wh?)\b)"
_NUMBER = (
    rf"{_BEGIN}(?<![.,])[$€£¥₹]\s?\d+(?:[.,:]\d+)*"
    # A digit before a hyphen and a word belongs to the word: 3-year-old.
    rf"|{_FIRST}\d+(?:[.,:/-]\d+)*(?:\s?{_UNIT}|{_END}(?!(?<=[^\d.,:/-]\d)-[^\W\d]))"
)
_KINDS = rf"(?P<address>{_ADDRESS})|(?P<mail>{_MAIL})|(?P<placeholder>{_PLACEHOLDER})"
_MAY_BE_CODE = re.compile(
    r"[`_=\\~<>≤≥≠≈]|[A-Za-z0-9]\(|\w\.\w|(?<![^\s(\[\"'])(?:--?[A-Za-z]|\.{0,2}/)|\w/|(?<!\w)v\d|0x"
)


class Protected(NamedTuple):
    """A part of a text that is kept as it is."""

    begin: int
    end: int
    text: str
    kind: str  #: address, mail, placeholder, code or number

    @property
    def is_number(self) -> bool:
        """Whether languages may write the part with other marks."""
        return self.kind == "number"

    @property
    def is_digit(self) -> bool:
        """Whether the part is a digit alone, which a translation may write as a word."""
        return self.is_number and len(self.text) == 1


@cache
def _pattern(has_code: bool) -> re.Pattern[str]:
    """Compile at first use: it takes as long as ten translations, with code fifty."""
    code = rf"|(?P<code>{_CODE})" if has_code else ""
    return re.compile(rf"{_KINDS}{code}|(?P<number>{_NUMBER})")


def find_protected(text: str) -> list[Protected]:
    """Return the parts of a text that a translation should have as they are, in order.

    >>> [part.text for part in find_protected("Mail a@b.de {name}, it costs $3.50 at 12:30: run_it(2), --all.")]
    ['a@b.de', '{name}', '$3.50', '12:30', 'run_it(2)', '--all']
    """
    found = _pattern(_MAY_BE_CODE.search(text) is not None).finditer(text)
    return [Protected(*match.span(), match[0], match.lastgroup or "") for match in found]


_TAG = r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>"
_MAY_HAVE_PARTS = re.compile(r"[\d<{%$@\[]|://|www\.")


def has_lost(source: str, text: str) -> bool:
    """Return whether a translation lacks a part of its source.

    A tag, an address, a placeholder, code or a number, and each as often as the source has it. A digit alone may have
    become a word.

    >>> has_lost("See <b>it</b> at www.a.de.", "Siehe www.a.de."), has_lost("It costs $3.50.", "Es kostet 3,50 $.")
    (True, False)
    """
    if _MAY_HAVE_PARTS.search(source) is None and _MAY_BE_CODE.search(source) is None:
        return False
    tags = Counter(re.findall(_TAG, source))
    if any(text.count(tag) < n for tag, n in tags.items()):
        return True
    parts = find_protected(re.sub(_TAG, " ", source) if tags else source)
    return bool(lost_parts([part for part in parts if not part.is_digit], text))


def lost_parts(parts: Sequence[Protected], text: str) -> list[Protected]:
    """Return the parts of a source that its translation lacks, or has less often."""
    times = Counter(part.text for part in parts)
    return [part for part in parts if not is_kept(part, text, times[part.text])]


def is_kept(part: Protected, text: str, times: int = 1) -> bool:
    """Return whether a translation has a part as often as it should.

    Of a number only the digits and the sign count, as marks differ between languages. Letters beside an address would
    be read as its own.

    >>> is_kept(find_protected("-3.5")[0], "−3,5"), is_kept(find_protected("www.a.de")[0], "www.a.deAdresse")
    (True, False)
    """
    if part.kind == "placeholder":
        return text.count(part.text) >= times
    if not part.is_number:
        return count_phrases(text, (part.text,)) >= times
    sign = r"[-−–]\s?" if part.text[0] in "-−" else r"(?<!\d)"
    digits = re.findall(r"\d+", part.text)
    return len(re.findall(sign + r"\D{1,2}".join(digits) + r"(?!\d)", text)) >= times
