"""The lexicon of the English–French grammar: nouns, adjectives and verbs, read from ``english_french.txt``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from attnkit.text.toy import morphology
from attnkit.text.toy.morphology import Conjugation


def read_tables(text: str) -> dict[str, dict[str, list[str]]]:
    r"""Return the entries by section and key.

    >>> read_tables("[numbers]\nsmall: one; two\n  three\n# A comment.\nlarge: ten")
    {'numbers': {'small': ['one', 'two', 'three'], 'large': ['ten']}}
    """
    tables: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = tables[line.strip("[]")] = {}
        elif line and not line.startswith("#"):
            if not line.startswith(" "):
                key, _, line = line.partition(":")
                entries = section[key] = []
            entries += [entry.strip() for entry in line.split(";") if entry.strip()]
    return tables


GRAMMAR = read_tables((files(__package__) / "english_french.txt").read_text(encoding="utf-8"))
WORDS = GRAMMAR["words"]
_IRREGULAR = dict(entry.split(" = ") for entry in WORDS["irregular"])


@dataclass(frozen=True)
class Noun:
    """A noun in both languages, with empty plurals if it is not counted.

    ``kinds`` are its class ``kind``, what else it can be, and its English name.
    """

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool
    kind: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages.

    ``comparative`` is empty where comparing makes no sense; ``before`` says that French puts the adjective before the
    noun, and ``liaison`` is the masculine form before a vowel, if it has its own (``vieil homme``).
    """

    en: str
    comparative: str
    masculine: str
    feminine: str
    liaison: str
    before: bool
    kinds: frozenset[str]

    def agree(self, *, feminine: bool, plural: bool) -> str:
        """Return the French form; colours of two words (``bleu clair``) never change."""
        form = self.feminine if feminine else self.masculine
        return morphology.french_plural(form) if plural and " " not in form else form


@dataclass(frozen=True)
class Verb:
    """One sense of an English verb and its French, with the kinds of its subjects and objects and adverbials that fit.

    ``fr`` may have a complement (``avoir besoin``); ``preposition`` is the French one before an object (``jouer de``).
    """

    en: str
    past: str
    ing: str
    fr: str
    preposition: str
    reflexive: bool
    group: str
    subjects: frozenset[str]
    objects: frozenset[str]
    adverbials: tuple[str, ...]
    flags: frozenset[str]


@dataclass(frozen=True)
class Tense:
    """How a tense is made: the English auxiliary by person, the form of the verb (or what comes before it), the French.

    ``weight`` and ``stative_weight`` say how often it is drawn, ``times`` which adverbials of time fit it.
    """

    auxiliaries: tuple[str, ...]
    en: str
    fr: str
    weight: float
    stative_weight: float
    times: str


@dataclass(frozen=True)
class Determiner:
    """English singular and plural and French masculine, feminine and plural, empty if not used; what it fits."""

    en: tuple[str, str]
    fr: tuple[str, str, str]
    weight: float
    fits: str


@cache
def conjugate(infinitive: str) -> Conjugation:
    """Conjugate a French verb, with the irregular ones of the lexicon."""
    return morphology.conjugate(infinitive, _IRREGULAR.get(infinitive, ""))


def _noun(entry: str, kinds: str) -> Noun:
    left, right = entry.split(" = ")
    en, _, en_plural = left.partition("/")
    right, _, gender = right.rpartition(" ")
    fr, _, fr_plural = right.partition("/")
    plurals = (en_plural or morphology.english_plural(en), fr_plural or morphology.french_plural(fr))
    if en_plural == "-":
        plurals = ("", "")
    return Noun(en, plurals[0], fr, plurals[1], gender == "f", kinds.split()[0], frozenset([en, *kinds.split()]))


def _adjective(entry: str, header: str) -> Adjective:
    place, *kinds = header.split()
    left, right = entry.split(" = ")
    en, _, comparative = left.partition("/")
    masculine, feminine, *liaison = (form.replace("_", " ") for form in right.split())
    compared = f"more {en}" if comparative == "more" else comparative
    return Adjective(en, compared, masculine, feminine, "".join(liaison), place == "before", frozenset(kinds))


def _verb(entry: str, header: str) -> Verb:
    left, right = entry.split(" = ")
    frame, _, adverbials = header.partition("@")
    (group, *subjects), objects = (part.split() for part in frame.partition(">")[::2])
    right, _, flags = right.partition(" !")
    fr, _, preposition = right.partition(" + ")
    en, *forms = left.split("/")
    past = forms[0] if forms else morphology.regular_past(en)
    ing = forms[1] if len(forms) > 1 else morphology.regular_ing(en)
    plain = fr.removeprefix("se ")
    return Verb(en, past, ing, plain, preposition, plain != fr, group, frozenset(subjects), frozenset(objects),
                tuple(adverbials.split()), frozenset(flags.split()))  # fmt: skip


def _tense(entry: str, name: str) -> Tense:
    auxiliaries, en, fr, weight, *times = entry.split(", ")
    by_person = tuple(auxiliaries.split())
    stative = GRAMMAR["stative tenses"].get(name, ["0"])[0]
    return Tense(by_person * (6 // len(by_person)), en, fr, float(weight), float(stative), "".join(times))


def _determiner(entry: str) -> Determiner:
    en, en_plural, masculine, feminine, plural, weight, fits = ("" if x == "-" else x for x in entry.split(", "))
    return Determiner((en, en_plural), (masculine, feminine, plural), float(weight), fits)


NOUNS = tuple(_noun(entry, header) for header, entries in GRAMMAR["nouns"].items() for entry in entries)
ADJECTIVES = tuple(_adjective(entry, key) for key, entries in GRAMMAR["adjectives"].items() for entry in entries)
VERBS = tuple(_verb(entry, header) for header, entries in GRAMMAR["verbs"].items() for entry in entries)
NUMBERS: dict[str, str] = dict(entry.split(" | ") for entry in GRAMMAR["rules"]["number"])
TENSES = {name: _tense(entry, name) for name, (entry,) in GRAMMAR["tenses"].items()}
DETERMINERS = tuple(_determiner(entry) for entry in WORDS["determiners"])


@cache
def nouns_of(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """Return the nouns of any of the kinds; a noun's own name is one of its kinds."""
    return tuple(noun for noun in NOUNS if noun.kinds & kinds)


@cache
def adjectives_for(kinds: frozenset[str]) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe a noun of these kinds."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.kinds & kinds)


@cache
def verbs_of(group: str) -> tuple[Verb, ...]:
    """Return the verbs of a class of clauses, such as ``does``, ``acts`` or ``goes``."""
    return tuple(verb for verb in VERBS if verb.group == group)
