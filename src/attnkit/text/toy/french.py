"""How French is spelled: plurals, elision, contraction, capitals and punctuation. Knows no lexicon."""

from __future__ import annotations

import re

# Words that begin with an aspirated h (or behave so) keep "le", "la", "beau" before them.
ASPIRATED = frozenset(["haut", "haute", "hauts", "hautes", "hibou", "héros", "huit", "yaourt", "onze"])
_VOWELS = "aàâæeéèêëhiîïoôœuùûyAÀÂEÉÈÊHIÎOÔŒUY"
_ASPIRATED_HERE = "".join(rf"(?!{word}\b)" for word in sorted(ASPIRATED))
_BEFORE_VOWEL = rf" (?={_ASPIRATED_HERE}[{_VOWELS}])"
_ELIDED = re.compile(r"\b([jJ]|[lL]|[nN]|[mM]|[tT]|[sS]|[dD]|[cC]|[qQ]u|[jJ]usqu|[lL]orsqu)e" + _BEFORE_VOWEL)
_ELIDED_LA = re.compile(r"\b([lL])a" + _BEFORE_VOWEL)
_ELIDED_SI = re.compile(r"\b([sS])i (?=ils?\b)")
_CONTRACTIONS = (
    (re.compile(r"\bde le "), "du "),
    (re.compile(r"\bde les "), "des "),
    (re.compile(r"\bà le "), "au "),
    (re.compile(r"\bà les "), "aux "),
)
_SPACE_BEFORE = re.compile(r" ([,.])")


def starts_with_vowel(word: str) -> bool:
    """Tell whether a word calls for elision: ``ami``, ``homme``, ``œuf`` do, ``haut`` does not."""
    return word[:1] in _VOWELS and word not in ASPIRATED


def plural_of(singular: str) -> str:
    """Return the regular plural of a noun or masculine adjective (``gâteau`` → ``gâteaux``)."""
    if singular.endswith(("s", "x", "z")):
        return singular
    if singular.endswith(("eau", "eu")) and singular != "bleu":
        return singular + "x"
    if singular.endswith("al"):
        return singular[:-2] + "aux"
    return singular + "s"


def write(words: str) -> str:
    """Turn words separated by spaces into a written sentence: elision, contraction, a capital, attached punctuation.

    A question or exclamation mark keeps a plain space before it, as French writes it.

    >>> write("le homme va à le jardin .")
    "L'homme va au jardin."
    """
    text = _ELIDED_LA.sub(r"\1'", _ELIDED.sub(r"\1'", " ".join(words.split())))
    text = _ELIDED_SI.sub(r"\1'", text)
    for pattern, contracted in _CONTRACTIONS:
        text = pattern.sub(contracted, text)
    text = _SPACE_BEFORE.sub(r"\1", text)
    return text[:1].upper() + text[1:]
