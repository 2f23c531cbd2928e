"""Parts of text that a translation keeps: addresses, placeholders, numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

_CJK = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"  # letters and marks that no space separates
_END = rf"(?![^\W{_CJK}])"  # a number may end before these
PROTECTED = re.compile(
    rf"(?P<address>\b(?:https?|ftp)://[^\s<>\"“”»{_CJK}]+[^\s<>\"“”».,;:!?)\]'’{_CJK}]"
    rf"|\bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"{_CJK}]*[^\W{_CJK}/])?)"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b)"
    r"|(?P<placeholder>\{\{?[\w .:,#!+-]*\}?\}|%\([\w.]+\)[#0 +-]*\d*(?:\.\d+)?[a-zA-Z]|%(?:\d+\$)?[0+-]*\d*(?:\.\d+)?"
    r"[sdifuxXeEgGc@](?![^\W\d_])|\$\{[\w.]+\}|\$[A-Z_][A-Z0-9_]*\b|\[\[[\w.]+\]\]|%%[\w.]+%%)"
    r"|(?P<number>(?<![\w.,])[$€£¥₹]\s?\d+(?:[.,:]\d+)*|(?<![\w.,:])\d+(?:[.,:/-]\d+)+(?:\s?[$€£¥₹%‰°]|" + _END + r")"
    r"|(?<![\w.,:])\d{2,}(?:\s?[$€£¥₹%‰°]|" + _END + r")"
    r"|(?<![\w.,:])\d+\s?(?:[$€£¥₹%‰°]|(?:km|cm|mm|kg|mg|ml|GB|MB|kB|GHz|kWh?)\b))"
)
"""Addresses, placeholders and numbers; the group ``number`` is that of numbers."""


class Protected(NamedTuple):
    """A part of a text that is kept as it is."""

    begin: int
    end: int
    text: str
    is_number: bool


def find_protected(text: str) -> list[Protected]:
    """Return the parts of a text that a translation should have as they are, in order.

    Numbers of one digit without a unit are left to the model, which may write them as words.

    >>> [part.text for part in find_protected("Mail a@b.de {name}, it costs $3.50 at 12:30 (2 dogs).")]
    ['a@b.de', '{name}', '$3.50', '12:30']
    """
    return [
        Protected(match.start(), match.end(), match[0], match["number"] is not None)
        for match in PROTECTED.finditer(text)
    ]


def is_kept(part: Protected, text: str, times: int = 1) -> bool:
    """Return whether a translation has a part as often as it should.

    Of a number only the digits count, as marks differ between languages.
    """
    if not part.is_number:
        return text.count(part.text) >= times
    digits = re.findall(r"\d+", part.text)
    return len(re.findall(r"(?<!\d)" + r"\D{1,2}".join(digits) + r"(?!\d)", text)) >= times
