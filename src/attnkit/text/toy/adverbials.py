"""Where, when, with whom and how often: the phrases that close a sentence, in both languages."""

from __future__ import annotations

from attnkit.text.toy import phrases
from attnkit.text.toy.clauses import Clause, Tense
from attnkit.text.toy.phrases import Nominal, Phrase
from attnkit.text.toy.scene import Scene, nominal, nouns_for, person

_TIMES: dict[Tense, tuple[tuple[str, str], ...]] = {
    "past": (
        ("yesterday", "hier"), ("last week", "la semaine dernière"), ("last night", "hier soir"),
        ("this morning", "ce matin"), ("last year", "l'année dernière"), ("two days ago", "il y a deux jours"),
        ("last month", "le mois dernier"), ("on Monday", "lundi"), ("three weeks ago", "il y a trois semaines"),
        ("last summer", "l'été dernier"), ("yesterday morning", "hier matin"),
    ),
    "future": (
        ("tomorrow", "demain"), ("next week", "la semaine prochaine"), ("tonight", "ce soir"), ("soon", "bientôt"),
        ("next year", "l'année prochaine"), ("in two days", "dans deux jours"), ("on Sunday", "dimanche"),
        ("next month", "le mois prochain"), ("tomorrow morning", "demain matin"),
        ("in three hours", "dans trois heures"),
    ),
    "present": (
        ("every day", "tous les jours"), ("every morning", "tous les matins"), ("every evening", "tous les soirs"),
        ("on Mondays", "le lundi"), ("in summer", "en été"), ("in winter", "en hiver"), ("in spring", "au printemps"),
        ("in the morning", "le matin"), ("every week", "toutes les semaines"), ("in the evening", "le soir"),
    ),
    "progressive": (("now", "maintenant"), ("today", "aujourd'hui"), ("at the moment", "en ce moment")),
    "was_ing": (("yesterday", "hier"), ("this morning", "ce matin"), ("at five o'clock", "à cinq heures"),
                ("at midnight", "à minuit")),
}  # fmt: skip
_HOURS = tuple(phrases.NUMBERS.items())
_CITIES = ("Paris", "London", "Berlin", "Rome", "Madrid")
_FRENCH_CITIES = {"London": "Londres"}
_COUNTRIES = (("France", "en France"), ("Spain", "en Espagne"), ("Italy", "en Italie"), ("Germany", "en Allemagne"),
              ("England", "en Angleterre"), ("Canada", "au Canada"), ("Japan", "au Japon"),
              ("the United States", "aux États-Unis"))  # fmt: skip
_MANNERS = (("slowly", "lentement"), ("quickly", "rapidement"), ("together", "ensemble"), ("quietly", "tranquillement"),
            ("for a long time", "longtemps"), ("a lot", "beaucoup"), ("a little", "un peu"))  # fmt: skip
_NEAR = (("near", "près de"), ("in front of", "devant"), ("behind", "derrière"), ("next to", "à côté de"))
_FIXED_PLACES = (("at home", "à la maison"), ("here", "ici"), ("at school", "à l'école"), ("in bed", "au lit"),
                 ("on the bank of the river", "sur la rive du fleuve"), ("by the lake", "au bord du lac"),
                 ("outside", "dehors"))  # fmt: skip


def time(scene: Scene, tense: Tense) -> Phrase:
    """Return a time that fits the tense: "yesterday" with the past, "every day" with the simple present."""
    if tense in ("past", "future", "present") and scene.chance(0.12):
        return clock(scene)
    return Phrase(*scene.pick(_TIMES[tense]))


def clock(scene: Scene) -> Phrase:
    """Return an hour: ``at five o'clock`` / ``à cinq heures``."""
    en, fr = scene.pick(_HOURS)
    return Phrase(f"at {en} o'clock", f"à {fr} heures")


def times(scene: Scene) -> Phrase:
    """Return how many times, where "time" is ``fois``."""
    en, fr = scene.pick(_HOURS[:4])
    return scene.pick((Phrase(f"{en} times", f"{fr} fois"), Phrase("many times", "plusieurs fois")))


def _after(en: str, fr: str, thing: Nominal) -> Phrase:
    """Put a preposition before a nominal."""
    return Phrase(f"{en} {thing.en}", f"{fr} {thing.fr}", thing.content)


def place(scene: Scene) -> Phrase:
    """Return where something happens: in, on, at, near, behind…, cities and countries with their own prepositions."""
    form = scene.pick(("in", "at", "on", "near", "fixed", "city", "country", "house"), (30, 14, 12, 14, 13, 6, 6, 4))
    if form == "in":
        return _after("in", "dans", nominal(scene, scene.pick(nouns_for(("inside",))), "definite"))
    if form == "at":
        return _after("at", "à", phrases.noun_phrase(scene.pick(nouns_for(("goal",))), "the"))
    if form == "on":
        return surface(scene)
    if form == "near":
        kinds = ("place", "sight", "surface", "@door", "@window", "@car")
        return _after(*scene.pick(_NEAR), nominal(scene, scene.pick(nouns_for(kinds)), "definite"))
    if form == "fixed":
        return Phrase(*scene.pick(_FIXED_PLACES))
    if form == "city":
        return city(scene, "in")
    if form == "country":
        en, fr = scene.pick(_COUNTRIES)
        return Phrase(f"in {en}", fr)
    return at_somebodys(scene, "at")


def surface(scene: Scene) -> Phrase:
    """Return on or under a piece of furniture."""
    if scene.chance(0.25):
        furniture = nouns_for(("@table", "@bed", "@desk", "@bench", "@chair"))
        return _after("under", "sous", nominal(scene, scene.pick(furniture), "definite"))
    return _after("on", "sur", nominal(scene, scene.pick(nouns_for(("surface",))), "definite"))


def city(scene: Scene, preposition: str) -> Phrase:
    """Return in or to a city, both ``à`` in French."""
    chosen = scene.pick(_CITIES)
    return Phrase(f"{preposition} {chosen}", f"à {_FRENCH_CITIES.get(chosen, chosen)}")


def at_somebodys(scene: Scene, preposition: str) -> Phrase:
    """Return at or to somebody's house, ``chez`` in French."""
    owner = phrases.noun_phrase(scene.pick(nouns_for(("kin",))), scene.pick(("my", "his", "her", "our")))
    host = person(scene) if scene.chance(0.4) else owner
    return Phrase(f"{preposition} {host.en}'s house", f"chez {host.fr}", host.content)


def destination(scene: Scene) -> Phrase:
    """Return where somebody goes."""
    form = scene.pick(("place", "city", "country", "house"), (6, 2, 2, 1.5))
    if form == "place":
        return _after("to", "à", phrases.noun_phrase(scene.pick(nouns_for(("goal",))), "the"))
    if form == "city":
        return city(scene, "to")
    if form == "country":
        en, fr = scene.pick(_COUNTRIES)
        return Phrase(f"to {en}", fr)
    return at_somebodys(scene, "to")


def origin(scene: Scene) -> Phrase:
    """Return where somebody comes back from."""
    return _after("from", "de", phrases.noun_phrase(scene.pick(nouns_for(("goal",))), "the"))


def company(scene: Scene, actor: Nominal) -> Phrase:
    """Return with or without somebody else; French has its own pronouns after a preposition."""
    preposition = scene.pick((("with", "avec"), ("without", "sans")), (5, 1))
    if scene.chance(0.45):
        number = scene.pick((2, 5) if actor.person in (0, 3) else (0, 2, 3, 5))
        return _after(*preposition, phrases.stressed_pronoun(number, feminine=number == 2 and scene.chance(0.5)))
    if scene.chance(0.3):
        return _after(*preposition, person(scene))
    return _after(
        *preposition, nominal(scene, scene.pick(nouns_for(("kin", "@friend", "@neighbor", "pet"))), "definite")
    )


def manner(scene: Scene, clause: Clause) -> Phrase:
    """Return how: slowly, together if there are several; "a lot" not where French would put it inside the past."""
    shut = {"" if clause.subject.plural else "together", "a lot" if clause.tense == "past" else ""}
    return Phrase(*scene.pick([pair for pair in _MANNERS if pair[0] not in shut]))
