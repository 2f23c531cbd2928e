"""Words whose French depends on the company they keep: time, light, bat, leave, play, speak; weather and clocks."""

from __future__ import annotations

from dataclasses import replace

from attnkit.text.toy import adverbials, conjugation, phrases
from attnkit.text.toy.clauses import Clause, Tense, render_english, render_french
from attnkit.text.toy.compound import said
from attnkit.text.toy.nouns import Noun
from attnkit.text.toy.phrases import Nominal, Phrase
from attnkit.text.toy.scene import Scene, nominal, nouns_for, person, pick_middle, pick_tense, subject
from attnkit.text.toy.verbs import INTRANSITIVE, KNOW_FACT, TRANSITIVE, Verb

_FLYING_BAT = Noun("bat", "bats", "chauve-souris", "chauves-souris", True, ("animal",))
_WOODEN_BAT = Noun("bat", "bats", "batte", "battes", True, ("thing",))
_BAT_VERBS = tuple(v for v in INTRANSITIVE if v.en in ("fly", "sleep"))
_HAVE = next(verb for verb in TRANSITIVE if verb.en == "have")
_LEAVE_BEHIND = Verb("leave", "left", "leaving", "laisser", "", ("person",), ("portable", "clothes"), frozenset())
_PLAY_GAME = Verb("play", "played", "playing", "jouer", "à", ("person",), (), frozenset())
_SPEAK = Verb("speak", "spoke", "speaking", "parler", "", ("person",), (), frozenset())
_HIT = Verb("hit", "hit", "hitting", "frapper", "", ("person",), (), frozenset(["same"]))
_GAMES = (("football", "le football"), ("tennis", "le tennis"), ("chess", "les échecs"), ("cards", "les cartes"))
_LANGUAGES = (("French", "français"), ("English", "anglais"), ("Spanish", "espagnol"), ("German", "allemand"),
              ("Italian", "italien"))  # fmt: skip
_SKY: dict[Tense, tuple[tuple[str, str], ...]] = {
    "present": (("it is cold", "il fait froid"),("it is hot", "il fait chaud"),
                ("the weather is nice", "il fait beau"),
                ("it is dark", "il fait nuit"), ("it is late", "il est tard"), ("it is early", "il est tôt")),
    "progressive": (("it is raining", "il pleut"), ("it is snowing", "il neige")),
    "was_ing": (("it was raining", "il pleuvait"), ("it was snowing", "il neigeait"),
                ("it was cold", "il faisait froid"),
                ("it was hot", "il faisait chaud")),
    "future": (("it will rain", "il pleuvra"), ("it will snow", "il neigera"), ("it will be cold", "il fera froid")),
}  # fmt: skip


def weather(scene: Scene) -> Phrase:
    """``It was raining yesterday``: "it" stands for nothing, and cold weather is not a cold thing."""
    tense = scene.pick(tuple(_SKY))
    sky = Phrase(*scene.pick(_SKY[tense]))
    if scene.chance(0.3):
        return sky
    when = adverbials.time(scene, "progressive" if tense == "present" else tense)
    where = adverbials.place(scene) if scene.chance(0.3) else Phrase("", "")
    if not where.en.startswith("in ") or where.en == "in bed":
        where = Phrase("", "")
    return Phrase(f"{sky.en} {where.en} {when.en}", f"{sky.fr} {where.fr} {when.fr}", where.content)


def clock(scene: Scene) -> Phrase:
    """``It is three o'clock``."""
    en, fr = scene.pick(tuple(phrases.NUMBERS.items()))
    half = scene.pick((("", ""), (" in the morning", " du matin"), (" in the evening", " du soir")), (3, 1, 1))
    if scene.chance(0.5):
        return Phrase(f"it is {en} o'clock{half[0]}", f"il est {fr} heures{half[1]}")
    return Phrase(f"it was {en} o'clock{half[0]}", f"il était {fr} heures{half[1]}")


def having_time(scene: Scene) -> Phrase:
    """``She does not have time to read the book`` / ``Elle n'a pas le temps de lire le livre``."""
    tense = scene.tense(("present", "past", "future"), (3, 1, 1))
    clause = Clause(
        subject(scene, ("person",)), _HAVE, tense, pick_middle(scene, _HAVE, tense), Nominal("time", "le temps")
    )
    if scene.chance(0.25):
        return said(clause)
    act, doing = said(clause), scene.pick([verb for verb in TRANSITIVE if not verb.flags and not verb.preposition])
    thing = nominal(scene, scene.pick(nouns_for(doing.objects)), "definite")
    content = (*act.content, f"verb:{doing.en}", *thing.content)
    return Phrase(f"{act.en} to {doing.en} {thing.en}", f"{act.fr} de {doing.fr} {thing.fr}", content)


def several_times(scene: Scene) -> Phrase:
    """``I called her three times``: time is ``fois`` when it is counted."""
    verb = scene.pick(
        [v for v in TRANSITIVE if v.en in ("call", "see", "visit", "read", "watch", "invite", "wash", "lose", "help")]
    )
    thing = nominal(scene, scene.pick(nouns_for(verb.objects)), "definite")
    if "person" in verb.objects and scene.chance(0.4):
        thing = person(scene)
    return said(Clause(subject(scene, ("person",)), verb, "past", "", thing, tail=(adverbials.times(scene),)))


def bats(scene: Scene) -> Phrase:
    """The bat that flies and the bat that hits a ball."""
    if scene.chance(0.5):
        verb = scene.pick(_BAT_VERBS)
        tense = scene.tense(("past", "progressive", "was_ing", "future"))
        plural = scene.chance(0.4)
        bat = phrases.noun_phrase(_FLYING_BAT, scene.pick(("the", "this", "two" if plural else "a")), plural=plural)
        tail = (adverbials.place(scene),) if scene.chance(0.6) else ()
        return said(Clause(bat, verb, tense, pick_middle(scene, verb, tense), tail=tail))
    bat = phrases.noun_phrase(_WOODEN_BAT, scene.pick(("the", "a", "my", "his", "her")))
    tense = scene.tense(("past", "progressive", "future"), (3, 1, 1))
    if scene.chance(0.5):
        verb = scene.pick([v for v in TRANSITIVE if v.en in ("buy", "break", "lose", "bring", "forget")])
        return said(Clause(subject(scene, ("person",)), verb, tense, pick_middle(scene, verb, tense), bat))
    ball = phrases.noun_phrase(next(n for n in nouns_for(("@ball",))), "the")
    with_bat = Phrase(f"with {bat.en}", f"avec {bat.fr}", bat.content)
    return said(Clause(pronoun(scene), _HIT, tense, "", ball, tail=(with_bat,)))


def pronoun(scene: Scene) -> Nominal:
    """Return he or she, whose past and present differ even in "hit"."""
    return phrases.subject_pronoun(2, feminine=scene.chance(0.5))


def leaving_behind(scene: Scene) -> Phrase:
    """``She left her keys on the table``: neither ``partir`` nor ``quitter``."""
    tense = scene.tense(("past", "future"), (4, 1))
    thing = nominal(scene, scene.pick(nouns_for(_LEAVE_BEHIND.objects)), "definite")
    where = adverbials.surface(scene)
    if scene.chance(0.5):
        inside = nominal(scene, scene.pick(nouns_for(("inside", "container", "@car", "@train"))), "definite")
        where = Phrase(f"in {inside.en}", f"dans {inside.fr}", inside.content)
    actor = subject(scene, ("person",))
    return said(Clause(actor, _LEAVE_BEHIND, tense, pick_middle(scene, _LEAVE_BEHIND, tense), thing, tail=(where,)))


def playing_speaking(scene: Scene) -> Phrase:
    """``He plays tennis`` is ``jouer à``, the piano ``jouer de``; ``She speaks French``."""
    speaks = scene.chance(0.45)
    verb, (en, fr) = (_SPEAK, scene.pick(_LANGUAGES)) if speaks else (_PLAY_GAME, scene.pick(_GAMES))
    tense = pick_tense(scene, verb)
    clause = Clause(subject(scene, ("person",)), verb, tense, pick_middle(scene, verb, tense), Nominal(en, fr))
    tail = [adverbials.company(scene, clause.subject)] if scene.chance(0.4) else []
    if tense != "present" and clause.middle != "never" and scene.chance(0.4):
        tail.append(adverbials.time(scene, tense))
    return said(replace(clause, tail=tuple(tail)))


def asking_time(scene: Scene) -> Phrase:
    """Ask for the hour, an age, a name of a place: fixed forms with an inversion."""
    if scene.chance(0.3):
        return _hour(scene)
    who = nominal(scene, scene.pick(nouns_for(("person",))), "definite")
    if scene.chance(0.3):
        who = person(scene)
    be = "are" if who.plural else "is"
    avoir = conjugation.conjugate("avoir").present[who.person]
    if scene.chance(0.5):
        return Phrase(f"how old {be} {who.en}", f"quel âge {avoir} {who.fr}", who.content)
    thing = nominal(scene, scene.pick(nouns_for(("portable", "clothes", "place", "pet", "kin"))), "definite")
    be, etre = ("are", "sont") if thing.plural else ("is", "est")
    return Phrase(f"where {be} {thing.en}", f"où {etre} {thing.fr}", thing.content)


def _hour(scene: Scene) -> Phrase:
    """Ask what time it is, directly or by asking whether somebody knows; here or far away."""
    far = scene.chance(0.5)
    where = adverbials.place(scene) if far else scene.pick((Phrase("", ""), Phrase("now", "maintenant")))
    if far and (not where.en.startswith("in ") or where.en == "in bed"):
        where = adverbials.city(scene, "in")
    if scene.chance(0.6):
        return Phrase(f"what time is it {where.en}", f"quelle heure est-il {where.fr}", where.content)
    asking = Clause(subject(scene, ("person",)), KNOW_FACT)
    return Phrase(
        f"{render_english(asking, question=True)} what time it is {where.en}",
        f"est-ce que {render_french(asking)} quelle heure il est {where.fr}",
        (*asking.content(), *where.content),
    )


def existing(scene: Scene) -> Phrase:
    """``There are three birds in the garden`` / ``Il y a trois oiseaux dans le jardin``."""
    kinds = scene.pick((("person",), ("animal",), ("portable",), ("food", "mass"), ("place", "sight")), (2, 3, 3, 2, 1))
    noun = scene.pick([n for n in nouns_for(kinds) if "kin" not in n.kinds])
    plural = noun.countable and scene.chance(0.5)
    counts = ("some", scene.pick(tuple(phrases.NUMBERS)), "many", "several")
    determiner = scene.pick(counts, (2, 5, 1, 1)) if plural else ("a" if noun.countable else "some")
    thing = phrases.noun_phrase(noun, determiner, plural=plural)
    past, negative = scene.chance(0.4), scene.chance(0.2) and determiner in ("a", "some")
    shown = thing.negated() if negative else thing
    be = {(False, False): "is", (False, True): "are", (True, False): "was", (True, True): "were"}[past, thing.plural]
    french = ("il ne y avait pas" if past else "il ne y a pas") if negative else ("il y avait" if past else "il y a")
    where = adverbials.place(scene)
    return Phrase(
        f"there {be}{' not' if negative else ''} {shown.en} {where.en}", f"{french} {shown.fr} {where.fr}",
        thing.content + where.content,
    )  # fmt: skip


def like_to_have(scene: Scene) -> Phrase:
    """``I would like some water, please``."""
    noun = scene.pick(nouns_for(("food", "mass", "portable", "clothes")))
    thing = nominal(scene, noun)
    actor = scene.pick(
        (("I", "je voudrais"), ("we", "nous voudrions"), ("she", "elle voudrait"), ("he", "il voudrait")), (4, 2, 1, 1)
    )
    return Phrase(f"{actor[0]} would like {thing.en}", f"{actor[1]} {thing.fr}", thing.content)


def light(scene: Scene) -> Phrase:
    """The light that one turns on and off."""
    verb = scene.pick([v for v in TRANSITIVE if v.en in ("turn on", "turn off")])
    tense = scene.tense(("past", "future", "progressive"), (3, 1, 1))
    lamp = phrases.noun_phrase(nouns_for(("@light",))[0], "the")
    tail = (adverbials.place(scene),) if scene.chance(0.6) else ()
    clause = Clause(subject(scene, ("person",)), verb, tense, pick_middle(scene, verb, tense), lamp, tail=tail)
    return Phrase(render_english(clause), render_french(clause), clause.content())
