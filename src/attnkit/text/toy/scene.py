"""Random choices inside one sentence: who is spoken to, which noun, determiner and adjectives, which tense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

from attnkit.text.toy import phrases
from attnkit.text.toy.adjectives import Adjective, describing
from attnkit.text.toy.clauses import Middle, Tense
from attnkit.text.toy.nouns import NAMES, NOUNS, Noun
from attnkit.text.toy.phrases import Nominal
from attnkit.text.toy.verbs import Verb

T = TypeVar("T")
Role = Literal["subject", "object", "negated", "definite"]
# What opens a sentence and tells how French says "you": English, French, person (tu 1, vous 4), feminine, plural.
VOCATIVES = (
    ("mom", "maman", 1, True, False), ("dad", "papa", 1, False, False), ("my friend", "mon ami", 1, False, False),
    ("my love", "mon amour", 1, False, False), ("Paul", "Paul", 1, False, False), ("Marie", "Marie", 1, True, False),
    ("Sir", "Monsieur", 4, False, False), ("Madam", "Madame", 4, True, False), ("Doctor", "Docteur", 4, False, False),
    ("children", "les enfants", 4, False, True), ("my friends", "mes amis", 4, False, True),
)  # fmt: skip
_DEFINITE_OBJECTS = frozenset(["enter", "leave", "visit", "play", "like", "love", "hate", "know"])
_POSSESSIVES = ("my", "his", "her", "our", "their")


@dataclass
class Scene:
    """The choices that one sentence shares. Without a vocative, "you" is the polite vous said to one person."""

    rng: random.Random
    vocative: tuple[str, str] | None = None
    you: int = 4
    you_feminine: bool = False
    you_plural: bool = False

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < probability

    def tense(self, options: tuple[Tense, ...], weights: Sequence[float] | None = None) -> Tense:
        """Return one of the tenses, by weight if weights are given."""
        return self.pick(options, weights)

    def pick(self, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Return one of the options, by weight if weights are given."""
        return self.rng.choices(options, weights)[0] if weights else self.rng.choice(options)


def open_scene(rng: random.Random) -> Scene:
    """Start a sentence; one in eight says whom it speaks to."""
    scene = Scene(rng)
    if scene.chance(0.12):
        en, fr, you, feminine, plural = scene.pick(VOCATIVES)
        scene = Scene(rng, (en, fr), you, feminine, plural)
    return scene


@cache
def nouns_for(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """Return the nouns that a verb's slot allows: kinds, or single nouns written ``@name``."""
    return tuple(
        noun
        for noun in NOUNS
        if f"@{noun.en}" in kinds or ("special" not in noun.kinds and not set(kinds).isdisjoint(noun.kinds))
    )


def pick_adjectives(scene: Scene, noun: Noun) -> tuple[Adjective, ...]:
    """Return no adjective (usually), one, or one that French puts before the noun and one after it."""
    # "mon beau père" would be heard as the father-in-law, "grand grand-père" as a mistake.
    kin = "kin" in noun.kinds
    options = tuple(
        a for a in describing(*noun.kinds) if a.masculine not in noun.fr and not (kin and a.masculine == "beau")
    )
    before = tuple(a for a in options if a.before)
    after = tuple(a for a in options if not a.before)
    roll = scene.rng.random()
    if not options or roll > 0.3:
        return ()
    if roll < 0.05 and before and after:
        return scene.pick(before), scene.pick(after)
    return (scene.pick(options),)


def _determiner(scene: Scene, noun: Noun, role: Role, *, plural: bool) -> str:
    """Choose among what the role allows: only what is meant already is definite, nothing negated is counted."""
    mine = scene.pick((*_POSSESSIVES, "your") if scene.vocative else _POSSESSIVES)
    own = 3.0 if noun.kinds[0] != "person" or "own" in noun.kinds else 0.0
    if "kin" in noun.kinds and scene.chance(0.95):
        return mine
    some = {"subject": 0.6, "object": 4.0, "negated": 3.0, "definite": 0.0}[role]
    if not noun.countable:
        return scene.pick(("the", "some", "this", mine), (5, some if role != "subject" else 0, 1, 1.5))
    counted = 1.0 if role in ("subject", "object") else 0.0
    if plural:
        options = (
            "the",
            "some",
            "this",
            "that",
            mine,
            scene.pick(tuple(phrases.NUMBERS)),
            "several",
            "many",
            "all the",
        )
        return scene.pick(options, (5, some, 1, 0.6, own, 2 * counted, 0.4 * counted, 0.6 * counted, 0.4 * counted))
    each = 0.3 if role == "subject" else 0
    return scene.pick(("the", "a", "this", "that", mine, "each"), (6, some, 1, 0.6, own, each))


def nominal(scene: Scene, noun: Noun, role: Role = "object", *, described: bool = True) -> Nominal:
    """Describe a noun with a random determiner, number and, if ``described``, adjectives."""
    rarely = not {"kin", "place", "surface"}.isdisjoint(noun.kinds)
    plural = noun.countable and "unique" not in noun.kinds and scene.chance(0.1 if rarely else 0.28)
    determiner = _determiner(scene, noun, role, plural=plural)
    adjectives = pick_adjectives(scene, noun) if described else ()
    built = phrases.noun_phrase(noun, determiner, plural=plural, adjectives=adjectives, you=scene.you)
    ownable = not set(noun.kinds).isdisjoint(("portable", "clothes", "vehicle", "pet", "@house"))
    if determiner == "the" and ownable and scene.chance(0.18):
        return phrases.owned(_owner(scene), built)
    return built


def _owner(scene: Scene) -> Nominal:
    """Return whose something is: a name or ``my sister``."""
    if scene.chance(0.5):
        return person(scene)
    return phrases.noun_phrase(scene.pick(nouns_for(("kin",))), scene.pick(_POSSESSIVES))


def person(scene: Scene) -> Nominal:
    """Return a name, with its gender."""
    text, feminine = scene.pick(NAMES)
    return phrases.name(text, feminine=feminine)


def pronoun_subject(scene: Scene, *, third_only: bool = False) -> Nominal:
    """Return I, you, he, she, we or they; without an antecedent "they" is masculine."""
    number = (
        scene.pick((2, 5))
        if third_only
        else scene.pick((0, scene.you, 2, 3, 5), (5, 8 if scene.vocative else 2, 8, 2.5, 2.5))
    )
    if number == scene.you:
        return phrases.subject_pronoun(number, feminine=scene.you_feminine, plural=scene.you_plural)
    return phrases.subject_pronoun(number, feminine=number == 2 and scene.chance(0.5))


def subject(scene: Scene, kinds: tuple[str, ...]) -> Nominal:
    """Return who does it: a pronoun, a name, two joined, or a noun phrase of the kinds that the verb allows."""
    if "person" not in kinds:
        return nominal(scene, scene.pick(nouns_for(kinds)), "subject")
    form = scene.pick(("pronoun", "name", "both", "noun"), (45, 11, 3, 41))
    if form == "pronoun":
        return pronoun_subject(scene)
    if form == "name":
        return person(scene)
    if form == "both":
        first, second = person(scene), nominal(scene, scene.pick(nouns_for(("kin",))), "definite")
        return phrases.joined([first, second]) if first.en not in second.en else first
    return nominal(scene, scene.pick(nouns_for(kinds)), "subject")


def direct_object(scene: Scene, verb: Verb, actor: Nominal, *, negative: bool = False) -> Nominal:
    """Return what the verb acts on: a noun phrase, a name, or a pronoun for a person."""
    takes_people = "person" in verb.objects
    if takes_people and not verb.preposition and scene.chance(0.3):
        return object_pronoun(scene, actor)
    if takes_people and scene.chance(0.12):
        return person(scene)
    noun = scene.pick(nouns_for(verb.objects))
    if (
        verb.en in ("like", "love", "hate")
        and noun.kinds[0] in ("animal", "food", "mass", "clothes")
        and scene.chance(0.6)
    ):
        return phrases.noun_phrase(noun, "", plural=noun.countable)
    if verb.en == "have" and noun.kinds[0] == "person":
        plural = scene.chance(0.3)
        return phrases.noun_phrase(noun, scene.pick(tuple(phrases.NUMBERS)[:4]) if plural else "a", plural=plural)
    definite = verb.preposition == "à" or verb.en in _DEFINITE_OBJECTS
    return nominal(scene, noun, "definite" if definite else "negated" if negative else "object")


def object_pronoun(scene: Scene, actor: Nominal, *, indirect: bool = False) -> Nominal:
    """Return me, you, him, her, us or them, never the actor himself."""
    shut = {0: (0, 3), 3: (0, 3), 1: (1, 4), 4: (1, 4)}.get(actor.person, ())
    people = [number for number in (0, scene.you, 2, 3, 5) if number not in shut]
    number = scene.pick(people)
    return phrases.object_pronoun(number, feminine=number == 2 and scene.chance(0.5), indirect=indirect)


def pick_tense(scene: Scene, verb: Verb) -> Tense:
    """Return a tense that the verb allows; the simple present of an action then wants a word of frequency."""
    if "state" in verb.flags:
        return scene.tense(("progressive", "was_ing", "past"), (3, 3, 5))
    if "stative" in verb.flags:
        return scene.tense(("present", "past", "future"), (5, 3, 1.5))
    present = 0 if "same" in verb.flags else 1.6
    ongoing = 0 if "instant" in verb.flags else 1
    return scene.tense(("past", "progressive", "present", "future", "was_ing"), (4, 2 * ongoing, present, 2, ongoing))


def pick_middle(scene: Scene, verb: Verb, tense: Tense) -> Middle:
    """Return what stands before the verb: usually nothing or "not", a frequency where the tense asks for it."""
    if tense == "present" and "stative" not in verb.flags:
        return scene.pick(("often", "always", "never", "", "not"), (3, 2, 2, 4, 2))
    if scene.chance(0.17):
        return "not"
    never = 0.04 if tense in ("past", "future") and "state" not in verb.flags else 0.0
    return "never" if scene.chance(never) else ""
