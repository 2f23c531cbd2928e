"""The sentences of the toy language: which constructions there are, how often, and how one is written out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from attnkit.text.toy import adverbials, compound, english, french, idioms, questions, statements
from attnkit.text.toy.adjectives import describing
from attnkit.text.toy.clauses import Clause
from attnkit.text.toy.phrases import Phrase
from attnkit.text.toy.scene import Scene, nouns_for, open_scene
from attnkit.text.toy.verbs import BE, TRANSITIVE

MIN_TOKENS, MAX_TOKENS = 3, 20
_TOKEN = re.compile(r"\w+(?:-\w+)*'?|[^\w\s]")


@dataclass(frozen=True)
class Sentence:
    """A written sentence in English and French, and the content words it is made of (``noun:cat``, ``verb:sit``).

    ``key`` is the English without contractions, capitals and final mark: two sentences with one key are the same one.
    """

    en: str
    fr: str
    content: frozenset[str]
    key: str


# Construction, weight. The three tables differ in how a sentence ends: "." or "!" or "?".
_STATEMENTS: tuple[tuple[Callable[[Scene], Clause | Phrase], float], ...] = (
    (statements.transitive, 22), (statements.intransitive, 13), (statements.going, 5), (statements.living, 2),
    (statements.posture, 5),
    (statements.descriptive, 11), (statements.profession, 4), (statements.feeling, 5), (statements.located, 4),
    (statements.giving, 4), (statements.listing, 4), (compound.because_of_it, 4), (compound.then_it, 2),
    (compound.because_of_feeling, 3), (compound.when_while, 3), (compound.conditional, 2), (compound.that_clause, 4),
    (compound.comparison, 4), (compound.relative_subject, 3), (compound.relative_object, 3), (compound.two_actions, 2),
    (idioms.weather, 2), (idioms.clock, 0.7), (idioms.having_time, 1.5), (idioms.several_times, 1.5),
    (idioms.bats, 1.5), (idioms.leaving_behind, 1.5), (idioms.playing_speaking, 2), (idioms.existing, 4),
    (idioms.like_to_have, 1.5),
    (idioms.light, 1),
)  # fmt: skip
_QUESTIONS: tuple[tuple[Callable[[Scene], Phrase], float], ...] = (
    (questions.yes_no, 9), (questions.wh, 4), (questions.what, 4), (questions.who, 2), (idioms.asking_time, 2.5),
)  # fmt: skip
_COMMANDS: tuple[tuple[Callable[[Scene], Phrase], float], ...] = ((questions.command, 3), (questions.give_me, 1.5))


def draw(rng: random.Random) -> Sentence:
    """Draw one sentence of 3 to 20 tokens on either side; the same generator state gives the same sentence."""
    while True:
        found = _draw_any(rng)
        if all(MIN_TOKENS <= n_tokens(text) <= MAX_TOKENS for text in (found.en, found.fr)):
            return found


def n_tokens(text: str) -> int:
    """Count words and punctuation marks; an elided word (``l'``) counts as one."""
    return len(_TOKEN.findall(text))


def _draw_any(rng: random.Random) -> Sentence:
    scene = open_scene(rng)
    mood = scene.pick(("statement", "question", "command"), (80, 17, 3) if not scene.vocative else (50, 33, 17))
    if mood == "question":
        built: Clause | Phrase = scene.pick([build for build, _ in _QUESTIONS], [weight for _, weight in _QUESTIONS])(
            scene
        )
        end = "?"
    elif mood == "command":
        built = scene.pick([build for build, _ in _COMMANDS], [weight for _, weight in _COMMANDS])(scene)
        end = scene.pick((".", "!"))
    else:
        built = scene.pick([build for build, _ in _STATEMENTS], [weight for _, weight in _STATEMENTS])(scene)
        end = "."
    phrase = built if isinstance(built, Phrase) else _fronted(scene, built)
    return _written(scene, phrase, end)


def _fronted(scene: Scene, clause: Clause) -> Phrase:
    """Render a statement, one in ten with a time in front: ``Yesterday, I saw a bear``."""
    phrase = compound.said(clause)
    if (
        clause.tail
        or clause.modal
        or clause.verb is BE
        or clause.tense not in ("past", "future", "was_ing")
        or not scene.chance(0.2)
    ):
        return phrase
    when = adverbials.time(scene, clause.tense)
    return Phrase(f"{when.en} , {phrase.en}", f"{when.fr} , {phrase.fr}", phrase.content)


def _written(scene: Scene, phrase: Phrase, end: str) -> Sentence:
    en, fr = phrase.en, phrase.fr
    if scene.vocative:
        en, fr = f"{scene.vocative[0]} , {en}", f"{scene.vocative[1]} , {fr}"
    if (end != "?" and " would like " in en and scene.chance(0.3)) or (
        end == "." and en.startswith(("give me", "open ", "close "))
    ):
        en, fr = f"{en} , please", f"{fr} , s'il {'te' if scene.you == 1 else 'vous'} plaît"
    key = english.write(en).lower()
    if scene.chance(0.3):
        en = english.contract(en)
    return Sentence(english.write(f"{en} {end}"), french.write(f"{fr} {end}"), frozenset(phrase.content), key)


def n_sentences_at_least() -> int:
    """Count the distinct sentences of one construction alone: a lower bound for the grammar.

    "The [adjective] person verb-ed the [adjective] thing", in the simple past, both nouns singular: every choice of
    person, adjective, verb, thing and its adjective is another English sentence.
    """
    n_subjects = sum(1 + len(describing(*noun.kinds)) for noun in nouns_for(("person",)))
    verbs = {verb.en: verb for verb in TRANSITIVE if "person" in verb.subjects and "same" not in verb.flags}
    n_predicates = sum(
        sum(1 + len(describing(*noun.kinds)) for noun in nouns_for(verb.objects)) for verb in verbs.values()
    )
    return n_subjects * n_predicates
