"""Questions, with est-ce que, and commands; who is spoken to decides between tu and vous."""

from __future__ import annotations

from dataclasses import replace

from attnkit.text.toy import conjugation, phrases, statements
from attnkit.text.toy.clauses import Clause, render_english, render_french
from attnkit.text.toy.phrases import Nominal, Phrase
from attnkit.text.toy.scene import Scene, nominal, nouns_for, pick_tense, subject
from attnkit.text.toy.verbs import GIVE, INTRANSITIVE, TRANSITIVE, Verb

_WH = (("where", "où"), ("when", "quand"), ("why", "pourquoi"), ("with whom", "avec qui"))
_ORDERS = ("open", "close", "wash", "clean", "buy", "eat", "look at", "wait for", "listen to", "bring", "take", "help",
           "call", "read", "write", "sell", "hide", "push", "repair", "finish", "turn on", "turn off", "cut",
           "forget", "invite", "follow", "thank", "send", "show", "throw")  # fmt: skip


def yes_no(scene: Scene) -> Phrase:
    """``Did she buy the red dress?`` / ``Est-ce qu'elle a acheté la robe rouge ?``."""
    builders = (statements.transitive, statements.intransitive, statements.descriptive, statements.going,
                statements.located, statements.feeling, statements.giving, statements.profession)  # fmt: skip
    clause = scene.pick(builders, (7, 3, 3, 2, 1.5, 2, 1, 1))(scene)
    clause = replace(clause, middle="" if clause.negative else clause.middle)
    return Phrase(render_english(clause, question=True), f"est-ce que {render_french(clause)}", clause.content())


def wh(scene: Scene) -> Phrase:
    """Ask where, when, why or with whom; what that already says is left out."""
    en, fr = scene.pick(_WH)
    builders = (statements.transitive, statements.intransitive, statements.going)
    clause = replace(scene.pick(builders, (4, 4, 1))(scene), middle="")
    tail = clause.tail[:1] if en == "why" else ()
    clause = replace(clause, tail=tail)
    return Phrase(
        f"{en} {render_english(clause, question=True)}", f"{fr} est-ce que {render_french(clause)}", clause.content()
    )


def what(scene: Scene) -> Phrase:
    """Ask for the object: ``What did you buy?``, ``Who did she see?``, ``How many apples did he eat?``."""
    verbs = [verb for verb in TRANSITIVE if not verb.preposition and verb.en != "have"]
    verb = scene.pick(verbs)
    clause = Clause(subject(scene, verb.subjects), verb, pick_tense(scene, verb))
    asked = render_english(clause, question=True)
    countable = [noun for noun in nouns_for(verb.objects) if noun.countable]
    if countable and scene.chance(0.35):
        thing = phrases.noun_phrase(scene.pick(countable), "many", plural=True)
        fr = thing.fr.replace("beaucoup de", "combien de", 1)
        counted = replace(clause, preceding=thing)
        return Phrase(
            f"how {thing.en} {asked}", f"{fr} est-ce que {render_french(counted)}", clause.content() + thing.content
        )
    if "person" in verb.objects:
        return Phrase(f"who {asked}", f"qui est-ce que {render_french(clause)}", clause.content())
    return Phrase(f"what {asked}", f"que est-ce que {render_french(clause)}", clause.content())


def who(scene: Scene) -> Phrase:
    """Ask for the subject: ``Who broke the window?`` / ``Qui a cassé la fenêtre ?``."""
    people = [verb for verb in (*TRANSITIVE, *INTRANSITIVE) if "person" in verb.subjects]
    verb = scene.pick(people)
    build = statements.transitive if verb.objects else statements.intransitive
    clause = replace(build(scene, verb=verb), subject=Nominal("who", "qui"), middle="")
    if clause.object and clause.object.clitic and clause.object.person == 2:
        clause = replace(clause, object=phrases.object_pronoun(0))
    return Phrase(render_english(clause), render_french(clause), clause.content())


def command(scene: Scene) -> Phrase:
    """Tell somebody to do something or not to: tu or vous from the vocative, vous without one; or "let us"."""
    verb = scene.pick([verb for verb in TRANSITIVE if verb.en in _ORDERS and not verb.preposition])
    to = scene.chance(0.15)
    thing = nominal(scene, scene.pick(nouns_for(verb.objects)), "definite" if not to else "object")
    together, negative = scene.chance(0.15), scene.chance(0.25)
    fr = conjugation.imperative(verb.fr, 3 if together else scene.you)
    if together:
        return Phrase(f"let's {verb.en} {thing.en}", f"{fr} {thing.fr}", (f"verb:{verb.en}", *thing.content))
    if negative:
        shut = thing.negated()
        return Phrase(f"do not {verb.en} {shut.en}", f"ne {fr} pas {shut.fr}", (f"verb:{verb.en}", *thing.content))
    return Phrase(f"{verb.en} {thing.en}", f"{fr} {thing.fr}", (f"verb:{verb.en}", *thing.content))


def give_me(scene: Scene) -> Phrase:
    """``Give me the key, please``: the French pronoun follows with a hyphen."""
    verb: Verb = scene.pick((GIVE, *(verb for verb in TRANSITIVE if verb.en in ("show", "bring"))))
    thing = nominal(scene, scene.pick(nouns_for(("portable", "food", "mass"))))
    en, fr = scene.pick((("me", "moi"), ("us", "nous"), ("him", "lui"), ("them", "leur")), (6, 2, 1, 1))
    form = conjugation.imperative(verb.fr, scene.you)
    return Phrase(f"{verb.en} {en} {thing.en}", f"{form}-{fr} {thing.fr}", (f"verb:{verb.en}", *thing.content))
