"""Plain statements: what somebody does, is, has, gives; what there is and where."""

from __future__ import annotations

from dataclasses import replace

from attnkit.text.toy import adverbials, conjugation, phrases
from attnkit.text.toy.adjectives import Adjective, describing
from attnkit.text.toy.clauses import Clause, Middle, Tense
from attnkit.text.toy.nouns import PROFESSIONS, Noun
from attnkit.text.toy.phrases import Nominal, Phrase
from attnkit.text.toy.scene import (
    Scene,
    direct_object,
    nominal,
    nouns_for,
    object_pronoun,
    person,
    pick_middle,
    pick_tense,
    pronoun_subject,
    subject,
)
from attnkit.text.toy.verbs import BE, BE_HAVING, GIVE, GO, INTRANSITIVE, LIVE, MODALS, TRANSITIVE, Verb

_GIVING = (GIVE, *(verb for verb in TRANSITIVE if verb.en in ("show", "send", "bring", "sell", "tell", "explain")))
_FEELINGS = (("hungry", "faim"), ("thirsty", "soif"), ("afraid", "peur"), ("cold", "froid"), ("hot", "chaud"),
             ("right", "raison"), ("wrong", "tort"), ("sleepy", "sommeil"))  # fmt: skip
_YOUNG = ("@child", "@boy", "@girl", "@son", "@daughter", "@brother", "@sister", "@cousin", "@baby", "pet", "@horse")
_AGES = (
    *phrases.NUMBERS.items(),
    ("twelve", "douze"),
    ("twenty", "vingt"),
    ("thirty", "trente"),
    ("forty", "quarante"),
)


def transitive(scene: Scene, *, verb: Verb | None = None, tense: Tense | None = None) -> Clause:
    """Somebody does something to something: ``The old farmer sold two horses yesterday``."""
    verb = verb or scene.pick(TRANSITIVE)
    tense = tense or pick_tense(scene, verb)
    actor = subject(scene, verb.subjects)
    middle = pick_middle(scene, verb, tense)
    thing = direct_object(scene, verb, actor, negative=middle in ("not", "never"))
    clause = Clause(actor, verb, tense, middle, thing)
    return _modal_or_not(scene, replace(clause, tail=_tail(scene, clause)))


def intransitive(scene: Scene, *, verb: Verb | None = None, tense: Tense | None = None) -> Clause:
    """Somebody does something: ``The cat was sleeping under the table``."""
    verb = verb or scene.pick(INTRANSITIVE)
    tense = tense or pick_tense(scene, verb)
    clause = Clause(subject(scene, verb.subjects), verb, tense, pick_middle(scene, verb, tense))
    return _modal_or_not(scene, replace(clause, tail=_tail(scene, clause)))


def _tail(scene: Scene, clause: Clause) -> tuple[Phrase, ...]:
    """Close a clause with place, company, manner and time; a simple present without frequency always gets a time."""
    tail: list[Phrase] = []
    verb = clause.verb
    if verb.en == "come back" and scene.chance(0.5):
        tail.append(adverbials.origin(scene))
    elif "state" in verb.flags:
        tail.append(adverbials.surface(scene) if scene.chance(0.6) else adverbials.place(scene))
    elif "stative" not in verb.flags and "goal" not in verb.objects and "place" not in verb.objects:
        odds = (2, 1, 1, 3) if clause.object is None else (2.2, 1, 0, 7)
        form = scene.pick(("place", "company", "manner", ""), odds)
        if form == "manner" and not verb.flags:
            tail.append(adverbials.manner(scene, clause))
        elif form in ("place", "company") and verb.en != "leave":
            tail.append(adverbials.place(scene) if form == "place" else adverbials.company(scene, clause.subject))
    habitual = clause.tense == "present" and "stative" not in verb.flags and clause.middle in ("", "not")
    if habitual or ("stative" not in verb.flags and clause.middle != "never" and scene.chance(0.35)):
        tail.append(adverbials.time(scene, clause.tense))
    return tuple(tail)


def _modal_or_not(scene: Scene, clause: Clause) -> Clause:
    """Put can, must, want to, like to or going to before one clause in eight."""
    if "state" in clause.verb.flags or "stative" in clause.verb.flags or not scene.chance(0.12):
        return clause
    middle: Middle = "not" if clause.middle == "not" else ""
    modal = scene.pick(MODALS)
    tail = tuple(part for part in clause.tail if part.content or part.en in ("here", "at home", "in bed", "together"))
    when = (adverbials.time(scene, "future"),) if modal.en == "going to" and scene.chance(0.6) else ()
    if clause.verb.with_etre and modal.en == "like to":
        modal = MODALS[2]
    return replace(clause, tense="present", modal=modal, middle=middle, tail=tail[:1] + when)


def posture(scene: Scene) -> Clause:
    """Somebody sits, stands or lies somewhere: ``The dog sat on the chair`` / ``était assis``."""
    verb = scene.pick([verb for verb in INTRANSITIVE if "state" in verb.flags], (4, 2, 2))
    tense = pick_tense(scene, verb)
    pet = "pet" in verb.subjects and scene.chance(0.5)
    who = nominal(scene, scene.pick(nouns_for(("pet",))), "subject") if pet else subject(scene, verb.subjects)
    clause = Clause(who, verb, tense, pick_middle(scene, verb, tense))
    return replace(clause, tail=_tail(scene, clause))


def going(scene: Scene) -> Clause:
    """Somebody goes somewhere: ``She went to the market``."""
    tense = scene.tense(("past", "progressive", "present", "future"), (4, 2, 2, 2))
    clause = Clause(subject(scene, ("person",)), GO, tense, pick_middle(scene, GO, tense))
    tail = [adverbials.destination(scene)]
    if scene.chance(0.15):
        tail.append(adverbials.company(scene, clause.subject))
    if tense == "present" and clause.middle in ("", "not"):
        tail.append(adverbials.time(scene, "present"))
    elif clause.middle != "never" and scene.chance(0.35):
        tail.append(adverbials.time(scene, tense))
    return replace(clause, tail=tuple(tail))


def living(scene: Scene) -> Clause:
    """Somebody lives somewhere: ``habiter à Paris``, ``en France``, ``dans une maison``."""
    tense = scene.tense(("present", "past", "future"), (5, 2, 1))
    where = adverbials.place(scene)
    while not where.en.startswith("in ") or where.en == "in bed":
        where = adverbials.place(scene)
    return Clause(subject(scene, ("person",)), LIVE, tense, pick_middle(scene, LIVE, tense), tail=(where,))


def complement(adjective: Adjective, of: Nominal) -> Nominal:
    """Return an adjective after "to be", agreeing with whom it is said of."""
    fr = adjective.agree(feminine=of.feminine, plural=of.plural)
    return Nominal(adjective.en, fr, content=(f"adjective:{adjective.en}",))


def thing_subject(scene: Scene) -> tuple[Nominal, Noun]:
    """Return a definite noun phrase of any class that adjectives describe, and its noun."""
    classes = ("person", "animal", "thing", "clothes", "food", "mass", "vehicle", "place", "work")
    noun = scene.pick(nouns_for((scene.pick(classes, (5, 2, 4, 2, 1.5, 1, 1.5, 2, 1.5)),)))
    return nominal(scene, noun, "definite", described=False), noun


def descriptive(scene: Scene) -> Clause:
    """Something is somehow: ``My sister is very happy``, ``The keys were heavy``."""
    if scene.chance(0.4):
        about = person(scene) if scene.chance(0.3) else pronoun_subject(scene)
        adjective = scene.pick(describing("person"))
    else:
        about, noun = thing_subject(scene)
        adjective = scene.pick(describing(*noun.kinds))
    tense = scene.tense(("present", "past", "future"), (5, 4, 1 if adjective.comparative else 0))
    said = complement(adjective, about)
    degree = scene.pick((("", ""), ("very", "très"), ("too", "trop")), (6, 2, 1)) if adjective.comparative else ("", "")
    if degree[0]:
        said = replace(said, en=f"{degree[0]} {said.en}", fr=f"{degree[1]} {said.fr}")
    return Clause(about, BE, tense, pick_middle(scene, BE, tense), said)


def profession(scene: Scene) -> Clause:
    """Somebody is a baker: no article in French, and the feminine after "she"."""
    about = person(scene) if scene.chance(0.35) else pronoun_subject(scene)
    if scene.chance(0.25):
        about = phrases.noun_phrase(scene.pick(nouns_for(("kin",))), scene.pick(("my", "his", "her", "our", "their")))
    en, masculine, feminine = scene.pick(PROFESSIONS)
    said = conjugation.agree(feminine if about.feminine else masculine, feminine=False, plural=about.plural)
    what = Nominal(f"{en}s" if about.plural else f"a {en}", said, content=(f"noun:{en}",))
    tense = scene.tense(("present", "past"), (5, 2))
    return Clause(about, BE, tense, pick_middle(scene, BE, tense), what)


def feeling(scene: Scene) -> Clause:
    """Somebody is hungry, afraid, right, ten years old: "to be" in English, "to have" in French."""
    tense = scene.tense(("present", "past"), (3, 2))
    if scene.chance(0.35):
        young = nominal(scene, scene.pick(nouns_for(_YOUNG)), "definite", described=False)
        about = scene.pick((young, pronoun_subject(scene), person(scene)))
        en, fr = scene.pick(_AGES)
        return Clause(about, BE_HAVING, tense, "", Nominal(f"{en} years old", f"{fr} ans"))
    about = subject(scene, ("person",) if scene.chance(0.8) else ("animal",))
    middle = pick_middle(scene, BE, tense)
    return Clause(about, BE_HAVING, tense, middle, Nominal(*scene.pick(_FEELINGS)))


def located(scene: Scene) -> Clause:
    """Something is somewhere: ``The keys are on the table``."""
    kinds = scene.pick((("person",), ("pet",), ("portable",), ("food",)), (2, 2, 4, 1))
    about = subject(scene, kinds) if kinds == ("person",) else nominal(scene, scene.pick(nouns_for(kinds)), "definite")
    where = adverbials.place(scene) if kinds == ("person",) else adverbials.surface(scene)
    tense = scene.tense(("present", "past"), (3, 2))
    return Clause(about, BE, tense, pick_middle(scene, BE, tense), tail=(where,))


def giving(scene: Scene) -> Clause:
    """Somebody gives something to somebody: ``She gave him a book``, ``I showed the photo to my aunt``."""
    verb = scene.pick(_GIVING)
    tense = pick_tense(scene, verb)
    actor = subject(scene, ("person",))
    gifts = verb.objects or ("portable", "clothes", "food")
    gift = nominal(scene, scene.pick(nouns_for(gifts)))
    to_pronoun = scene.chance(0.5) and verb.en != "explain"
    receiver = nominal(scene, scene.pick(nouns_for(("person",))), "definite")
    recipient = object_pronoun(scene, actor, indirect=True) if to_pronoun else receiver
    clause = Clause(actor, verb, tense, pick_middle(scene, verb, tense), gift, recipient)
    if (tense == "present" and clause.middle in ("", "not")) or scene.chance(0.25):
        return replace(clause, tail=(adverbials.time(scene, tense),))
    return clause


def listing(scene: Scene) -> Clause:
    """Somebody buys, eats or sees several things in a list."""
    verb = scene.pick([verb for verb in TRANSITIVE if verb.en in ("eat", "buy", "see", "find", "sell", "take", "lose")])
    tense = scene.tense(("past", "future"), (3, 1))
    nouns = scene.rng.sample(nouns_for(verb.objects), scene.pick((2, 3, 4), (5, 4, 1)))
    things = phrases.joined([_counted(scene, noun) for noun in nouns])
    clause = Clause(subject(scene, verb.subjects), verb, tense, "", things)
    return replace(clause, tail=(adverbials.time(scene, tense),)) if scene.chance(0.3) else clause


def _counted(scene: Scene, noun: Noun) -> Nominal:
    """Return an item of a list: some bread, an apple, three eggs."""
    if not noun.countable:
        return phrases.noun_phrase(noun, "some")
    if scene.chance(0.6):
        return phrases.noun_phrase(noun, "a")
    return phrases.noun_phrase(noun, scene.pick(tuple(phrases.NUMBERS)), plural=True)
