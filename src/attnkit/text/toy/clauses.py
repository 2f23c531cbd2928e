"""Clauses in both languages at once: tense, negation, clitics, participle agreement, questions.

A clause is built once and rendered twice, so both sides always say the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnkit.text.toy import conjugation, english
from attnkit.text.toy.phrases import REFLEXIVES, Nominal, Phrase
from attnkit.text.toy.verbs import Modal, Verb

Tense = Literal["present", "progressive", "past", "was_ing", "future"]
Middle = Literal["", "not", "never", "often", "always", "already"]
_FRENCH_MIDDLE = {"": "", "not": "pas", "never": "jamais", "often": "souvent", "always": "toujours", "already": "déjà"}
_BE_PRESENT = ("am", "are", "is", "are", "are", "are")
_BE_PAST = ("was", "were", "was", "were", "were", "were")


@dataclass(frozen=True)
class Clause:
    """A subject, a verb and what goes with them.

    ``middle`` is the word between subject and verb (negation or frequency). ``preceding`` is what a French relative or
    interrogative "que" stands for: the participle agrees with it and no object is written. ``recipient`` is given
    something: a clitic before the verb, or "to her sister" after the object.
    """

    subject: Nominal
    verb: Verb
    tense: Tense = "present"
    middle: Middle = ""
    object: Nominal | None = None
    recipient: Nominal | None = None
    tail: tuple[Phrase, ...] = ()
    modal: Modal | None = None
    preceding: Nominal | None = None

    @property
    def negative(self) -> bool:
        """Whether French wraps the verb in ne … pas or ne … jamais."""
        return self.middle in ("not", "never")

    def written_object(self) -> Nominal | None:
        """Return the object in the form that negation gives it; être and verbs with a preposition change nothing."""
        if self.object and self.negative and self.verb.fr != "être" and not self.verb.preposition:
            return self.object.negated()
        return self.object

    def content(self) -> tuple[str, ...]:
        """Return the content words of all parts, the verb included."""
        verb = () if self.verb.en == "be" else (f"verb:{self.verb.en}",)
        parts = (self.subject, self.object, self.recipient, *self.tail)
        return verb + tuple(lemma for part in parts if part for lemma in part.content)


def english_verb(clause: Clause) -> tuple[str, str]:
    """Return the auxiliary (maybe empty) and the main verb: ``("", "ate")``, ``("is", "eating")``."""
    verb, person = clause.verb, clause.subject.person
    if clause.modal:
        return _english_modal(clause.modal, verb, person)
    if clause.tense == "future":
        return "will", verb.en
    if clause.tense == "progressive":
        return _BE_PRESENT[person], verb.ing
    if clause.tense == "was_ing":
        return _BE_PAST[person], verb.ing
    if verb.en == "be":
        return (_BE_PAST if clause.tense == "past" else _BE_PRESENT)[person], ""
    if clause.tense == "past":
        return "", verb.past
    return "", english.third_person(verb.en) if person == 2 else verb.en


def _english_modal(modal: Modal, verb: Verb, person: int) -> tuple[str, str]:
    if modal.auxiliary:
        return modal.en, verb.en
    if modal.en == "going to":
        return _BE_PRESENT[person], f"going to {verb.en}"
    return "", f"{modal.third if person == 2 else modal.en} {verb.en}"


def _with_do(clause: Clause) -> tuple[str, str]:
    """Return auxiliary and main verb as negation and questions need them: ``("did", "eat")``."""
    auxiliary, main = english_verb(clause)
    if auxiliary:
        return auxiliary, main
    base = f"{clause.modal.en} {clause.verb.en}" if clause.modal else clause.verb.en
    if clause.tense == "past" and not clause.modal:
        return "did", base
    return ("does" if clause.subject.person == 2 else "do"), base


def render_english(clause: Clause, *, question: bool = False, subject: bool = True) -> str:
    """Write the English words of a clause; ``question`` puts the auxiliary first; ``subject=False`` leaves it out."""
    auxiliary, main = _with_do(clause) if question or clause.middle == "not" else english_verb(clause)
    written = clause.subject.en if subject else ""
    head = [auxiliary, written] if question else [written, auxiliary]
    words = [*head, clause.middle, main, *_english_rest(clause)]
    return " ".join(word for word in words if word).replace("can not", "cannot")


def _english_rest(clause: Clause) -> list[str]:
    thing, recipient = clause.written_object(), clause.recipient
    words = [thing.en if thing else ""]
    if recipient and recipient.clitic:
        words.insert(0, recipient.en)
    elif recipient:
        words.append(f"to {recipient.en}")
    return words + [part.en for part in clause.tail]


def render_french(clause: Clause, *, subject: bool = True) -> str:
    """Write the French words of a clause, unelided; ``subject=False`` leaves the subject out."""
    finite, after = _french_verb(clause)
    clitics = _clitics(clause)
    words = [clause.subject.fr if subject else "", "ne" if clause.negative else ""]
    if clause.modal:
        words += [finite, _FRENCH_MIDDLE[clause.middle], *clitics, after]
    else:
        words += [*clitics, finite, _FRENCH_MIDDLE[clause.middle], after]
    return " ".join(word for word in [*words, *_french_rest(clause)] if word)


def _clitics(clause: Clause) -> list[str]:
    found = [REFLEXIVES[clause.subject.person]] if "reflexive" in clause.verb.flags else []
    for part in (clause.recipient, clause.object):
        if part and part.clitic:
            found.append(part.fr)
    return found


def _french_rest(clause: Clause) -> list[str]:
    words: list[str] = []
    thing = clause.written_object()
    if thing and not thing.clitic:
        if clause.verb.preposition == "de":
            words.append(f"de {thing.fr_bare or thing.fr}")
        else:
            words.append(f"{clause.verb.preposition} {thing.fr}".strip())
    if clause.recipient and not clause.recipient.clitic:
        words.append(f"à {clause.recipient.fr}")
    return words + [part.fr for part in clause.tail]


def _french_verb(clause: Clause) -> tuple[str, str]:
    """Return the finite verb and what follows it: ``("a", "mangé")``, ``("avait", "besoin")``."""
    verb, person = clause.verb, clause.subject.person
    if "state" in verb.flags:
        return _french_state(clause)
    head, _, rest = verb.fr.partition(" ")
    if clause.modal:
        return conjugation.conjugate(clause.modal.fr).present[person], verb.fr
    forms = conjugation.conjugate(head)
    if clause.tense == "future":
        return forms.future[person], rest
    if clause.tense in ("present", "progressive"):
        return forms.present[person], rest
    if clause.tense == "was_ing" or ("stative" in verb.flags and "compound" not in verb.flags):
        return forms.imperfect[person], rest
    auxiliary = conjugation.conjugate("être" if verb.with_etre else "avoir").present[person]
    return auxiliary, f"{_participle(clause, forms.participle)} {rest}".strip()


def _participle(clause: Clause, participle: str) -> str:
    """Agree with the subject after être, else with a direct object that stands before the verb."""
    agrees = clause.subject if clause.verb.with_etre else clause.preceding
    if not clause.verb.with_etre and clause.object and clause.object.clitic:
        agrees = clause.object
    if agrees is None:
        return participle
    return conjugation.agree(participle, feminine=agrees.feminine, plural=agrees.plural)


def _french_state(clause: Clause) -> tuple[str, str]:
    """Render a posture: ``was sitting`` and ``sat`` are both ``était assis``; ``debout`` never changes."""
    forms = conjugation.conjugate("être")
    finite = (forms.present if clause.tense in ("present", "progressive") else forms.imperfect)[clause.subject.person]
    if clause.verb.fr == "debout":
        return finite, "debout"
    return finite, conjugation.agree(clause.verb.fr, feminine=clause.subject.feminine, plural=clause.subject.plural)
