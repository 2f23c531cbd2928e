"""Translation by looking up one word after another, the baseline that English–French makes insufficient."""

from __future__ import annotations

import re
from functools import cache

from attnkit.text.toy.lexicon import (
    ADJECTIVES,
    GRAMMAR,
    NOUNS,
    NUMBERS,
    VERBS,
    WORDS,
    Verb,
    conjugate,
    third_person,
    write_french,
)

_WORD = re.compile(r"[\w-]+'?\w*|[^\w\s]")
_CONTRACTIONS = {"won't": "will not", "can't": "can not", "n't": " not", "'m": " am", "'re": " are", "'ll": " will"}


@cache
def dictionary() -> dict[str, str]:
    """Return the lexicon as one French form for each lower-cased English word form."""
    found: dict[str, str] = {}
    for line in (line for lines in GRAMMAR["rules"].values() for line in lines if "{" not in line and "|" in line):
        en, fr = (text.strip() for text in line.split("|"))
        if " " not in en:
            found[en.lower()] = fr
    # The first sense of a word wins, and "go" over "go out".
    for verb in sorted(VERBS, key=lambda verb: " " in verb.en):
        found = _verb_forms(verb) | found
    for adjective in ADJECTIVES:
        found.setdefault(adjective.en.lower(), adjective.masculine)
        if adjective.comparative and " " not in adjective.comparative:
            found.setdefault(adjective.comparative, f"plus {adjective.masculine}")
    for noun in NOUNS:
        found |= {noun.en: noun.fr, noun.en_plural or noun.en: noun.fr_plural or noun.fr}
    words = (entry.partition(" ") for entry in WORDS["function words"])
    return found | NUMBERS | {en: fr for en, _, fr in words}


def _verb_forms(verb: Verb) -> dict[str, str]:
    """Return the first word of each English form: participles for the past, the French third person for the rest."""
    head, _, rest = verb.fr.partition(" ")
    forms = conjugate(head)
    present, participle = (rest, rest) if "agrees" in verb.flags else (forms.present[2], forms.participle)
    base, past, ing = (form.split()[0] for form in (verb.en, verb.past, verb.ing))
    return {base: present, third_person(base): present, ing: present, past: participle}


def translate_word_for_word(line: str) -> str:
    """Replace each word by its dictionary form, in the same order, and spell the result as French is spelled."""
    for short, long in _CONTRACTIONS.items():
        line = line.replace(short, long)
    words = [word.lower() for word in _WORD.findall(line)]
    translated = (dictionary().get(word.removesuffix("'s"), word) for word in words)
    return write_french(" ".join(word for word in translated if word))
