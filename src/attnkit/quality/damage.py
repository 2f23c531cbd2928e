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
_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|b|br|div|em|font|h[1-6]|i|img|li|ol|p|span|strong|su[bp]|table|t[dhr]|u|ul)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_LATIN = "A-Za-z\u00c0-\u024f"
_OTHER = "\u0370-\u03ff\u0400-\u04ff"
# Ω and μ stand beside Latin letters in units.
_MIXED = re.compile(f"[{_LATIN}](?![Ωμ])(?=[{_OTHER}])|(?![Ωμ])[{_OTHER}](?=[{_LATIN}])")
_WORD = re.compile(f"[{_LATIN}{_OTHER}]+")
_TO_LATIN = str.maketrans(
    "аеорсухіјѕԁАВЕЗІЈКМНОРСТУХЅαορνΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aeopcyxijsdABE3IJKMHOPCTYXSaopvABEZHIKMNOPTYX"
)
_TO_CYRILLIC = str.maketrans("aeopcyxijsABEIJKMHOPCTYXS", "аеорсухіјѕАВЕІЈКМНОРСТУХЅ")
_TO_GREEK = str.maketrans("opvaABEZHIKMNOPTYX", "ορναΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_REMOVED = dict.fromkeys([*range(9), *range(0xE, 0x1C), 0x7F, 0xFEFF])  # control characters, byte-order marks

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
        for name, pattern in (("reference", _REFERENCE), ("markup", _TAG)):
            if match := pattern.search(line):
                yield name, match.start()
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


def strip_tags(line: str) -> str:
    """Return a line without HTML tags.

    >>> strip_tags("It <b>is</b> here.<br/>Stop.")
    'It is here. Stop.'
    """
    breaks = _TAG.sub(lambda tag: " " if re.match(r"</?(?:br|div|h\d|li|p|t[dr])\b", tag[0], re.I) else "", line)
    return " ".join(breaks.split()) if breaks != line else line


def repair_letters(line: str) -> str:
    """Return a line without control characters and look-alike letters in words.

    A word becomes one of the script that most of its letters are of, if the others have letters that look the same.

    >>> repair_letters("a p\u0430ss and m\u043eney, 5 k\u03a9")
    'a pass and money, 5 kΩ'
    """
    line = line.translate(_REMOVED)
    return _WORD.sub(lambda word: _of_one_script(word[0]), line) if _MIXED.search(line) else line


def _of_one_script(word: str) -> str:
    if not _MIXED.search(word):
        return word
    n_latin = len(re.findall(f"[{_LATIN}]", word))
    ways = [word.translate(table) for table in (_TO_LATIN, _TO_CYRILLIC, _TO_GREEK)]
    if 2 * n_latin < len(word):
        ways = [*ways[1:], ways[0]]
    return next((way for way in ways if not _MIXED.search(way)), word)


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
