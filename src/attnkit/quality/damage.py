"""Damage of single lines: control characters, wrong encodings, markup."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

_UNPRINTABLE = {
    "separator": re.compile("[\u2028\u2029\x85\x0b\x0c\x1c-\x1e]"),
    "inner_return": re.compile("\r"),
    "inner_mark": re.compile("\ufeff"),
    "replacement": re.compile("\ufffd"),
    "control": re.compile("[\0-\x08\x0e-\x1b\x1f\x7f]"),
}
# UTF-8 bytes shown as Windows-1252 or Latin-1: a first byte, and one to three bytes from 0x80 to 0xBF.
_TRAIL = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Upper-case Portuguese has Ã and Â before quotes and dashes, which say nothing alone.
_MOJIBAKE = re.compile(
    f"[ÂÃ](?![‘’‚“”„–—…]){_TRAIL}|â[\x80-\x8b€‚][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|(?:[ÄÅÎÏÐÑ×ØÙ]{_TRAIL}){{2}}"
)
_MARKUP = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
    r"|</?(?:a|b|br|div|em|font|h[1-6]|i|img|li|ol|p|span|strong|su[bp]|table|t[dhr]|u|ul)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_LATIN = "A-Za-z\u00c0-\u024f"
_OTHER = "\u0370-\u03ff\u0400-\u04ff"
_MIXED = re.compile(f"[{_LATIN}](?=[{_OTHER}])|[{_OTHER}](?=[{_LATIN}])")

_RARE = re.compile(f"[ÂÃâÄÅÎÏÐÑ×ØÙ{_OTHER}]")  # what both need


_LETTERS = re.compile(r"[^\W\d_]{3}|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{2}")


def has_word(line: str) -> bool:
    """Return whether a line has a word that would be translated.

    That is three letters in a row, or two in scripts that write no spaces.

    >>> has_word("12 : 30 h"), has_word("a dog"), has_word("नमस्ते"), has_word("你好")
    (False, True, True, True)
    """
    if not line.isascii():  # vowel signs of Indic and other scripts are no letters to Python, but stand between them
        line = "".join(c for c in line if unicodedata.category(c)[0] != "M")
    return _LETTERS.search(line) is not None


def find_damage(line: str) -> Iterable[tuple[str, int]]:
    """Return the kinds of damage of a line, each with its first position."""
    if line.isascii() and line.isprintable() and "<" not in line and "&" not in line:
        return ()  # as are most lines
    return _find_damage(line)


def _find_damage(line: str) -> Iterator[tuple[str, int]]:
    if "<" in line or "&" in line:
        if match := _MARKUP.search(line):
            yield "markup", match.start()
    if line.isascii() and line.isprintable():
        return
    if not line.isprintable() or "\ufffd" in line:
        for name, pattern in _UNPRINTABLE.items():
            if match := pattern.search(line):
                yield name, match.start()
    if line.isascii():
        return
    if _RARE.search(line):
        for name, pattern in (("mojibake", _MOJIBAKE), ("mixed_script", _MIXED)):
            if match := pattern.search(line):
                yield name, match.start()
    if not unicodedata.is_normalized("NFC", line):
        normal = unicodedata.normalize("NFC", line)
        yield "decomposed", next((i for i, (a, b) in enumerate(zip(line, normal, strict=False)) if a != b), len(normal))


def repair_mojibake(line: str) -> str:
    """Return a line of UTF-8 that was read as Windows-1252, decoded again.

    A line in which any character was not misread is returned as it is: its other characters may be meant.

    >>> repair_mojibake("ein MÃ¤dchen"), repair_mojibake("ein MÃ¤dchen hat Spaß")
    ('ein Mädchen', 'ein MÃ¤dchen hat Spaß')
    """
    if not _MOJIBAKE.search(line):
        return line
    try:
        # Five bytes are nothing in Windows-1252, and were read as control characters.
        data = b"".join(c.encode("latin-1" if ord(c) < 0x100 else "cp1252") for c in line)
        decoded = data.decode("utf-8")
    except UnicodeError:
        return line
    return line if any("\x7f" <= c <= "\x9f" for c in decoded) else decoded
