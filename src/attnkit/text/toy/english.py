"""How English is spelled: plurals, third persons, articles, capitals and punctuation. Knows no lexicon."""

from __future__ import annotations

import re

_SPACE_BEFORE = re.compile(r" ([,.?!])")
_NOT = re.compile(r"\b(do|does|did|is|are|was|were) not\b")
_NOT_WHOLE = {"will not": "won't", "cannot": "can't"}
_PRONOUN = re.compile(r"\b(I am|(?:you|we|they) are|(?:he|she|it) is|(?:I|you|he|she|it|we|they) (?:will|would))\b")
_SHORT = {"am": "'m", "are": "'re", "is": "'s", "will": "'ll", "would": "'d"}
_ARTICLE = re.compile(r"\ba (?=[aeioAEIO]|u(?!niversity|seful|niform))")


def plural_of(singular: str) -> str:
    """Return the regular plural of a noun (``box`` → ``boxes``, ``city`` → ``cities``)."""
    if singular.endswith(("s", "x", "ch", "sh")):
        return singular + "es"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return singular[:-1] + "ies"
    return singular + "s"


def third_person(base: str) -> str:
    """Return the form after he, she or it: ``look at`` → ``looks at``, ``go`` → ``goes``, ``have`` → ``has``."""
    verb, _, rest = base.partition(" ")
    if verb == "have":
        changed = "has"
    elif verb in ("go", "do"):
        changed = verb + "es"
    else:
        changed = plural_of(verb)
    return f"{changed} {rest}" if rest else changed


def write(words: str) -> str:
    """Turn words separated by spaces into a written sentence: ``a`` or ``an``, a capital, attached punctuation.

    >>> write("a old man sleeps .")
    'An old man sleeps.'
    """
    text = _SPACE_BEFORE.sub(r"\1", _ARTICLE.sub("an ", " ".join(words.split())))
    return text[:1].upper() + text[1:]


def contract(words: str) -> str:
    """Shorten as speech does: ``do not`` → ``don't``, ``I am`` → ``I'm``; what is already short stays.

    >>> contract("she is happy and you did not see it")
    "she's happy and you didn't see it"
    """
    text = _NOT.sub(r"\1n't", words)
    for whole, short in _NOT_WHOLE.items():
        text = text.replace(whole, short)
    return _PRONOUN.sub(lambda found: found[0].replace(" " + (verb := found[0].split()[1]), _SHORT[verb]), text)
