"""Noun phrases in both languages at once: determiners, adjectives, agreement, names, pronouns and lists.

Persons are numbered 0-5 as in ``conjugation``. French is kept unelided ("le homme") until ``french.write``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnkit.text.toy import french
from attnkit.text.toy.adjectives import Adjective
from attnkit.text.toy.nouns import Noun


@dataclass(frozen=True)
class Phrase:
    """A stretch of a sentence in both languages, with the content words it is made of (``noun:cat``)."""

    en: str
    fr: str
    content: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nominal:
    """What a subject or an object is: both forms, what agrees with it, and the forms negation and "de" ask for.

    ``person`` chooses the verb form, ``plural`` and ``feminine`` the agreement (a polite ``vous`` is one person).
    ``en_negated`` and ``fr_negated``: as object of a negated verb ("any apples", "de pommes"). ``fr_bare``: after a
    French preposition "de", which swallows "des" and "du". ``clitic``: French puts it before the verb.
    """

    en: str
    fr: str
    feminine: bool = False
    plural: bool = False
    person: int = 2
    content: tuple[str, ...] = ()
    en_negated: str = ""
    fr_negated: str = ""
    fr_bare: str = ""
    clitic: bool = False
    pronoun: bool = False

    def negated(self) -> Nominal:
        """Return the nominal as the object of a negated verb."""
        return replace(self, en=self.en_negated or self.en, fr=self.fr_negated or self.fr)


# English determiner: French masculine singular, feminine singular, plural. "-" is a form that is not used.
_DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", "-"),
    "some": ("de le", "de la", "des"),
    "any": ("de le", "de la", "des"),
    "this": ("ce", "cette", "-"),
    "that": ("ce", "cette", "-"),
    "these": ("-", "-", "ces"),
    "those": ("-", "-", "ces"),
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
    "each": ("chaque", "chaque", "-"),
    "several": ("-", "-", "plusieurs"),
    "many": ("-", "-", "beaucoup de"),
    "": ("le", "la", "les"),
    "the first": ("le premier", "la première", "les premiers"),
}
_YOUR = {1: ("ton", "ta", "tes"), 4: ("votre", "votre", "vos")}
NUMBERS = {
    "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six",
    "seven": "sept", "eight": "huit", "nine": "neuf", "ten": "dix",
}  # fmt: skip
_BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"}
_PLURAL_OF = {"this": "these", "that": "those"}


def noun_phrase(
    noun: Noun, determiner: str, *, plural: bool = False, adjectives: tuple[Adjective, ...] = (), you: int = 4
) -> Nominal:
    """Build a noun phrase: ``the``, ``old``, ``man`` → "the old man" / "le vieil homme".

    An empty determiner is the English generic ("I like cats" / "J'aime les chats"). ``you`` is the person that "your"
    stands for: 1 (tu) or 4 (vous).
    """
    before = [adjective for adjective in adjectives if adjective.before]
    words = [_agreed_before(adjective, noun, plural) for adjective in before]
    words.append(noun.fr_plural if plural else noun.fr)
    words += [a.agree(feminine=noun.feminine, plural=plural) for a in adjectives if not a.before]
    fr = " ".join(words)
    english_determiner = _PLURAL_OF.get(determiner, determiner) if plural else determiner
    french_determiner = _french_determiner(english_determiner, noun.feminine, plural, fr, you)
    if french_determiner == "des" and before:
        french_determiner = "de"
    core = " ".join([*(adjective.en for adjective in adjectives), noun.en_plural if plural else noun.en])
    indefinite = determiner in ("a", "some")
    return Nominal(
        en=f"{english_determiner} {core}".strip(),
        fr=f"{french_determiner} {fr}",
        feminine=noun.feminine,
        plural=plural,
        person=5 if plural else 2,
        content=(f"noun:{noun.en}", *(f"adjective:{adjective.en}" for adjective in adjectives)),
        en_negated=f"any {core}" if determiner == "some" else "",
        fr_negated=f"de {fr}" if indefinite else "",
        fr_bare=fr if determiner == "some" else "",
    )


def _agreed_before(adjective: Adjective, noun: Noun, plural: bool) -> str:
    """Return an adjective that precedes its noun, in its form before a vowel where it has one (``vieil homme``)."""
    if adjective.liaison and not noun.feminine and not plural and french.starts_with_vowel(noun.fr):
        return adjective.liaison
    return adjective.agree(feminine=noun.feminine, plural=plural)


def _french_determiner(english: str, feminine: bool, plural: bool, rest: str, you: int) -> str:
    if english in NUMBERS:
        return NUMBERS[english]
    if english == "all the":
        return "toutes les" if feminine else "tous les"
    forms = _YOUR[you] if english == "your" else _DETERMINERS[english]
    chosen = forms[2] if plural else forms[1] if feminine else forms[0]
    return _BEFORE_VOWEL.get(chosen, chosen) if french.starts_with_vowel(rest) else chosen


def name(text: str, *, feminine: bool) -> Nominal:
    """Build a person's name, the same in both languages."""
    return Nominal(text, text, feminine=feminine)


def owned(owner: Nominal, thing: Nominal) -> Nominal:
    """Build ``my brother's car`` / ``la voiture de mon frère`` from the owner and "the" thing."""
    bare = thing.en.removeprefix("the ")
    ending = "'" if owner.en.endswith("s") and owner.plural else "'s"
    return replace(
        thing, en=f"{owner.en}{ending} {bare}", fr=f"{thing.fr} de {owner.fr}", content=owner.content + thing.content
    )


def joined(parts: list[Nominal], word: str = "and") -> Nominal:
    """Join two or more nominals into a list; it is feminine only when every member is."""
    heads, last = parts[:-1], parts[-1]
    return Nominal(
        en=f"{' , '.join(part.en for part in heads)} {word} {last.en}",
        fr=f"{' , '.join(part.fr for part in heads)} {'et' if word == 'and' else 'ou'} {last.fr}",
        feminine=all(part.feminine for part in parts),
        plural=True,
        person=5,
        content=tuple(lemma for part in parts for lemma in part.content),
    )


_SUBJECTS = ("I", "you", "he", "we", "you", "they")
_FRENCH_SUBJECTS = ("je", "tu", "il", "nous", "vous", "ils")
_OBJECTS = ("me", "you", "him", "us", "you", "them")
_CLITICS = ("me", "te", "le", "nous", "vous", "les")
_STRESSED = ("moi", "toi", "lui", "nous", "vous", "eux")
REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")


def subject_pronoun(person: int, *, feminine: bool = False, thing: bool = False, plural: bool | None = None) -> Nominal:
    """Build I, you, he/she/it, we or they; ``feminine`` and ``thing`` come from what the pronoun stands for."""
    en, fr = _SUBJECTS[person], _FRENCH_SUBJECTS[person]
    if person == 2:
        en, fr = ("it" if thing else "she" if feminine else "he"), ("elle" if feminine else "il")
    elif person == 5 and feminine:
        fr = "elles"
    many = person in (3, 5) if plural is None else plural
    return Nominal(en, fr, feminine=feminine, plural=many, person=person, pronoun=True)


def object_pronoun(person: int, *, feminine: bool = False, thing: bool = False, indirect: bool = False) -> Nominal:
    """Build me, you, him/her/it, us or them as French puts it before the verb (``le``, ``la``, ``lui``, ``leur``)."""
    en, fr = _OBJECTS[person], _CLITICS[person]
    if person == 2:
        en, fr = ("it" if thing else "her" if feminine else "him"), ("la" if feminine else "le")
    if indirect and person in (2, 5):
        fr = "lui" if person == 2 else "leur"
    return Nominal(en, fr, feminine=feminine, plural=person in (3, 5), person=person, clitic=True, pronoun=True)


def stressed_pronoun(person: int, *, feminine: bool = False) -> Nominal:
    """Build the pronoun after a preposition: ``with her`` / ``avec elle``."""
    en, fr = _OBJECTS[person], _STRESSED[person]
    if person == 2 and feminine:
        en, fr = "her", "elle"
    return Nominal(en, fr, feminine=feminine, person=person, pronoun=True)
