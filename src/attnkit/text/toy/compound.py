"""Sentences of two clauses: because, when, while, if, so, that, who; comparisons and relative clauses."""

from __future__ import annotations

from dataclasses import replace

from attnkit.text.toy import adverbials, phrases, statements
from attnkit.text.toy.adjectives import ADJECTIVES, describing
from attnkit.text.toy.clauses import Clause, render_english, render_french
from attnkit.text.toy.nouns import Noun
from attnkit.text.toy.phrases import Nominal, Phrase
from attnkit.text.toy.scene import Scene, nominal, nouns_for, person, pick_middle, pronoun_subject, subject
from attnkit.text.toy.verbs import BE, BE_HAVING, INTRANSITIVE, KNOW_FACT, SAY, THINK, TRANSITIVE, Verb

_COMPARABLE = tuple(adjective for adjective in ADJECTIVES if adjective.comparative)
_REASONS = (("hungry", "faim"), ("thirsty", "soif"), ("cold", "froid"), ("afraid", "peur"), ("sleepy", "sommeil"))
_WEATHER_IF = (("it rains", "il pleut"), ("it is cold", "il fait froid"), ("it snows", "il neige"),
               ("the weather is nice", "il fait beau"))  # fmt: skip
_FACT_LINKS = (("that", "que"), ("why", "pourquoi"), ("when", "quand"))


def said(clause: Clause) -> Phrase:
    """Render a clause on both sides."""
    return Phrase(render_english(clause), render_french(clause), clause.content())


def linked(first: Phrase, en: str, fr: str, second: Phrase) -> Phrase:
    """Join two clauses with a conjunction."""
    return Phrase(f"{first.en} {en} {second.en}", f"{first.fr} {fr} {second.fr}", first.content + second.content)


def because_of_it(scene: Scene) -> Phrase:
    """Somebody does something to a thing because it is so: the pronoun takes the gender of the thing."""
    verbs = [
        v
        for v in TRANSITIVE
        if not v.preposition and set(v.objects) & {"portable", "clothes", "vehicle", "food", "work"}
    ]
    verb = scene.pick(verbs)
    noun = scene.pick([n for n in nouns_for(verb.objects) if "person" not in n.kinds and describing(*n.kinds)])
    actor = person(scene) if scene.chance(0.3) else pronoun_subject(scene)
    if actor.person == 5:
        actor = phrases.subject_pronoun(3)
    tense = scene.tense(("past", "present"), (3, 1)) if "stative" in verb.flags else "past"
    middle = pick_middle(scene, verb, tense)
    thing = nominal(scene, noun, "definite" if middle else "object")
    it = phrases.subject_pronoun(5 if thing.plural else 2, feminine=thing.feminine, thing=True)
    reason = Clause(it, BE, tense, "", statements.complement(scene.pick(describing(*noun.kinds)), it))
    return linked(said(Clause(actor, verb, tense, middle, thing)), "because", "parce que", said(reason))


def then_it(scene: Scene) -> Phrase:
    """A thing is found and then something else is done with it: ``la`` or ``le`` by what came first."""
    firsts = [v for v in TRANSITIVE if v.en in ("find", "buy", "take")]
    seconds = [v for v in TRANSITIVE if v.en in ("sell", "lose", "forget", "hide", "break", "wash", "clean", "look at")]
    noun = scene.pick(nouns_for(("portable",)))
    actor = pronoun_subject(scene)
    thing = nominal(scene, noun)
    it = phrases.object_pronoun(5 if thing.plural else 2, feminine=thing.feminine, thing=True)
    first = said(Clause(actor, scene.pick(firsts), "past", "", thing))
    second = Clause(actor, scene.pick(seconds), "past", "", it)
    after = Phrase(render_english(second, subject=False), render_french(second), second.content())
    return linked(first, "and then", "et puis", after)


def because_of_feeling(scene: Scene) -> Phrase:
    """Somebody does something because he is tired or hungry: the pronoun repeats the subject."""
    first = statements.intransitive(scene) if scene.chance(0.6) else statements.transitive(scene)
    who = first.subject
    animal = "noun" in "".join(who.content) and not _is_person(who)
    past = first.tense in ("past", "was_ing")
    again = who
    if not who.pronoun:
        again = phrases.subject_pronoun(who.person, feminine=who.feminine, thing=animal)
    if scene.chance(0.5) or _is_thing(who):
        word = scene.pick(describing("animal") if animal else describing("person"))
        if word.en in ("white", "black", "brown", "gray", "English", "French", "American", "German", "Spanish", "big"):
            word = next(adjective for adjective in ADJECTIVES if adjective.en == "tired")
        reason = Clause(again, BE, "past" if past else "present", "", statements.complement(word, again))
    else:
        reason = Clause(again, BE_HAVING, "past" if past else "present", "", Nominal(*scene.pick(_REASONS)))
    return linked(said(first), "because", "parce que", said(reason))


def _noun_of(who: Nominal) -> Noun | None:
    names = [lemma.removeprefix("noun:") for lemma in who.content if lemma.startswith("noun:")]
    return next((n for n in nouns_for(("person", "animal", "vehicle")) if n.en in names), None)


def _is_person(who: Nominal) -> bool:
    found = _noun_of(who)
    return found is None or "person" in found.kinds


def _is_thing(who: Nominal) -> bool:
    found = _noun_of(who)
    return found is not None and "vehicle" in found.kinds


def when_while(scene: Scene) -> Phrase:
    """Two things at once: ``when I arrived, she was sleeping``, ``while the baby was crying``."""
    arriving = scene.pick(
        [v for v in INTRANSITIVE if v.en in ("arrive", "come back", "leave", "wake up", "get up", "fall")]
    )
    doing = scene.pick([v for v in INTRANSITIVE if not v.flags & {"movement", "reflexive"} and "person" in v.subjects])
    event = said(Clause(subject(scene, ("person",)), arriving, "past"))
    ongoing = statements.intransitive(scene, verb=doing, tense="was_ing")
    state = said(replace(ongoing, tail=(), middle="", modal=None, tense="was_ing"))
    form = scene.rng.random()
    if form < 0.4:
        return Phrase(f"when {event.en} , {state.en}", f"quand {event.fr} , {state.fr}", event.content + state.content)
    if form < 0.7:
        return linked(state, "when", "quand", event)
    return linked(event, "while", "pendant que", state)


def conditional(scene: Scene) -> Phrase:
    """If something happens, somebody will do something."""
    build = scene.pick((statements.transitive, statements.intransitive))
    main = build(scene, verb=_future_verb(scene, build is statements.transitive), tense="future")
    main = replace(main, modal=None, tense="future", middle="not" if main.middle == "not" else "")
    result = said(main)
    if scene.chance(0.6):
        en, fr = scene.pick(_WEATHER_IF)
        when = scene.pick((("", ""), (" tomorrow", " demain")), (2, 1))
        return Phrase(f"if {en}{when[0]} , {result.en}", f"si {fr}{when[1]} , {result.fr}", result.content)
    about = pronoun_subject(scene)
    condition = said(Clause(about, BE_HAVING, "present", "", Nominal(*scene.pick(_REASONS))))
    return Phrase(f"if {condition.en} , {result.en}", f"si {condition.fr} , {result.fr}", result.content)


def _future_verb(scene: Scene, transitive: bool) -> Verb:
    verbs = TRANSITIVE if transitive else INTRANSITIVE
    return scene.pick([verb for verb in verbs if not verb.flags & {"state", "stative"}])


def that_clause(scene: Scene) -> Phrase:
    """Somebody knows, thinks or says something: to know a fact is ``savoir``, never ``connaître``."""
    verb = scene.pick((KNOW_FACT, THINK, SAY), (5, 3, 2))
    first = Clause(subject(scene, ("person",)), verb, "present", pick_middle(scene, KNOW_FACT, "present"))
    link = scene.pick(_FACT_LINKS, (3, 2, 1)) if verb is KNOW_FACT else ("that", "que")
    if verb is THINK or link[0] == "that":
        first = replace(first, middle="")
    actions = (statements.intransitive, statements.transitive)
    build = scene.pick(
        actions if link[0] == "when" else (statements.descriptive, statements.located, statements.feeling, *actions)
    )
    second = build(scene)
    if verb is KNOW_FACT and scene.chance(0.3):
        return linked(said(first), "where", "où", said(replace(statements.living(scene), tail=(), middle="")))
    if second.subject.en == first.subject.en:
        second = statements.descriptive(scene)
    return linked(said(first), *link, said(second))


def comparison(scene: Scene) -> Phrase:
    """Something is bigger than, or as big as, something else."""
    word = scene.pick(_COMPARABLE)
    kinds = [kind for kind in word.kinds if kind not in ("mass", "sight")]
    kind = scene.pick(kinds) if kinds else "work"
    first, second = scene.rng.sample(nouns_for((kind,)), 2)
    about, other = (nominal(scene, noun, "definite", described=False) for noun in (first, second))
    if kind == "person" and scene.chance(0.6):
        about, other = pronoun_subject(scene, third_only=True), person(scene)
    en, fr = (word.comparative or "", "plus") if scene.chance(0.7) else (f"as {word.en}", "aussi")
    link = "than" if fr == "plus" else "as"
    agreed = word.agree(feminine=about.feminine, plural=about.plural)
    measure = Nominal(
        f"{en} {link} {other.en}", f"{fr} {agreed} que {other.fr}", content=(*other.content, f"adjective:{word.en}")
    )
    return said(Clause(about, BE, scene.tense(("present", "past"), (4, 1)), "", measure))


def relative_subject(scene: Scene) -> Phrase:
    """``The woman who is reading the newspaper is my aunt``."""
    who = phrases.noun_phrase(scene.pick(nouns_for(("person",))), "the", plural=scene.chance(0.25))
    inner = (statements.transitive if scene.chance(0.6) else statements.intransitive)(scene)
    inner = replace(inner, subject=who, tail=inner.tail[:1])
    if inner.tense == "future":
        inner = replace(inner, tense="past", tail=())
    if inner.object and inner.object.clitic:
        inner = replace(inner, object=phrases.object_pronoun(0))
    described = Nominal(
        f"{who.en} who {render_english(inner, subject=False)}", f"{who.fr} qui {render_french(inner, subject=False)}",
        who.feminine, who.plural, who.person, tuple(dict.fromkeys((*who.content, *inner.content()))),
    )  # fmt: skip
    outer = _about(scene, described, scene.pick(describing("person")).en)
    return said(outer)


def relative_object(scene: Scene) -> Phrase:
    """``The letters that she wrote were long``: the French participle agrees with what comes first."""
    verbs = [v for v in TRANSITIVE if not v.preposition and "person" not in v.objects and not v.flags & {"stative"}]
    verb = scene.pick(verbs)
    noun = scene.pick([noun for noun in nouns_for(verb.objects) if describing(*noun.kinds)])
    what = phrases.noun_phrase(noun, scene.pick(("the", "the", "this")), plural=noun.countable and scene.chance(0.35))
    tense = scene.tense(("past", "progressive", "future"), (6, 2, 1))
    inner = Clause(subject(scene, verb.subjects), verb, tense, "not" if scene.chance(0.1) else "", preceding=what)
    if scene.chance(0.25):
        inner = replace(inner, tail=(adverbials.time(scene, tense),))
    described = Nominal(
        f"{what.en} that {render_english(inner)}", f"{what.fr} que {render_french(inner)}",
        what.feminine, what.plural, what.person, what.content + inner.content(),
    )  # fmt: skip
    return said(_about(scene, described, scene.pick(describing(*noun.kinds)).en))


def _about(scene: Scene, who: Nominal, adjective: str) -> Clause:
    """Say with an adjective how a described noun is or was."""
    word = next(candidate for candidate in ADJECTIVES if candidate.en == adjective)
    return Clause(
        who, BE, scene.tense(("present", "past")), "not" if scene.chance(0.12) else "", statements.complement(word, who)
    )


def two_actions(scene: Scene) -> Phrase:
    """One subject, two things done in turn: ``She closed the window and left``."""
    actor = subject(scene, ("person",))
    doing = [v for v in TRANSITIVE if not v.flags and "person" in v.subjects]
    first = replace(
        statements.transitive(scene, verb=scene.pick(doing), tense="past"),
        subject=actor,
        modal=None,
        middle="",
        tail=(),
    )
    first = replace(first, tense="past")
    if first.object and first.object.clitic:
        first = replace(first, object=person(scene))
    acts = [v for v in INTRANSITIVE if not v.flags & {"state"} and "person" in v.subjects]
    second = Clause(actor, scene.pick(acts), "past")
    after = Phrase(render_english(second, subject=False), render_french(second, subject=False), second.content())
    return linked(said(first), "and", "et", after)
