"""Rules of the synchronous grammar, and agreement in noun phrases and clauses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from attnkit.text.toy import lexicon
from attnkit.text.toy.lexicon import Adjective, Noun, Verb


@dataclass(frozen=True)
class Slot:
    """A slot of a rule: ``{label=symbol.path words of=label.path object=label.path}``."""

    label: str
    symbol: str
    path: str
    words: frozenset[str]
    references: dict[str, str]


Side = tuple[str | Slot, ...]


@cache
def parse_side(text: str) -> Side:
    """Parse one side of a rule: text with slots in braces."""
    parts: list[str | Slot] = []
    for i, part in enumerate(re.split(r"\{([^}]*)\}", text.strip())):
        if i % 2 == 0:
            parts.append(part)
        else:
            head, *words = part.split()
            label, _, symbol = head.rpartition("=")
            symbol, _, path = symbol.partition(".")
            references = dict(word.split("=") for word in words if "=" in word)
            parts.append(Slot(label or symbol, symbol, path, frozenset(w for w in words if "=" not in w), references))
    return tuple(part for part in parts if part)


@cache
def alternatives(symbol: str) -> tuple[tuple[tuple[Side, Side], ...], tuple[float, ...]]:
    """Return the (English, French) alternatives of a symbol, and their weights."""
    sides, weights = [], []
    for line in lexicon.GRAMMAR["rules"][symbol]:
        weight, _, text = line.partition(" ") if re.match(r"\d[\d.]*( |$)", line) else ("1", "", line)
        en, bar, fr = text.partition("|")
        sides.append((parse_side(en), parse_side(fr if bar else en)))
        weights.append(float(weight))
    return tuple(sides), tuple(weights)


_BEFORE_VOWEL = dict(entry.split() for entry in lexicon.WORDS["before vowel"])
_FRENCH_MIDDLE = {"": "", "not": "pas", "never": "jamais", "often": "souvent", "always": "toujours"}
_REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")
_YOUR_TU = ("ton", "ta", "tes")


@dataclass(frozen=True)
class Phrase:
    """A phrase in both languages, with content words (``noun:cat``) and features.

    ``clitics`` are pronouns that French puts before the verb; with ``direct``, the participle agrees with them.
    ``forms`` holds other forms of the phrase (``negated``, ``bare``, ``ask``) and its parts (``subject``, ``object``).
    """

    en: str
    fr: str
    content: tuple[str, ...] = ()
    person: int = 2
    feminine: bool = False
    plural: bool = False
    kinds: frozenset[str] = frozenset()
    clitics: tuple[str, ...] = ()
    direct: bool = False
    forms: Mapping[str, Phrase] = field(default_factory=dict)

    def form(self, path: str) -> Phrase:
        """Return a form by its dotted path (``gap.bare``), or itself for an empty path."""
        phrase = self
        for name in path.split(".") if path else ():
            phrase = phrase.forms[name]
        return phrase


def noun_phrase(
    noun: Noun, determiner: str, *, plural: bool = False, adjectives: Sequence[Adjective] = (), you: int = 4
) -> Phrase:
    """Build a noun phrase: the, old, man → "the old man" / "le vieil homme".

    An empty determiner gives the English generic ("I like cats" / "J'aime les chats"). ``you`` is the person of "your":
    1 (tu) or 4 (vous).
    """
    agreed: dict[bool, list[str]] = {True: [], False: []}  # adjectives before and after the French noun
    for adjective in adjectives:
        liaison = adjective.liaison and not noun.feminine and not plural and lexicon.starts_with_vowel(noun.fr)
        form = adjective.liaison if liaison else adjective.agree(feminine=noun.feminine, plural=plural)
        agreed[adjective.before].append(form)
    fr = " ".join([*agreed[True], noun.fr_plural if plural else noun.fr, *agreed[False]])
    en = " ".join([*(adjective.en for adjective in adjectives), noun.en_plural if plural else noun.en])
    if determiner in lexicon.NUMBERS:
        article = lexicon.NUMBERS[determiner]
    else:
        mass, wanted = determiner == "some" and not plural, determiner or "the"
        row = next(row for row in lexicon.DETERMINERS if row.en[plural] == wanted and ("mass" in row.fits) == mass)
        article = (_YOUR_TU if (determiner, you) == ("your", 1) else row.fr)[2 if plural else noun.feminine]
        if lexicon.starts_with_vowel(fr):  # "cet ami", "mon amie"
            article = _BEFORE_VOWEL.get(article, article)
    if article == "des" and agreed[True]:
        article = "de"
    forms = {"bare": Phrase(en, fr)}
    if determiner in ("a", "some"):
        forms["negated"] = Phrase(f"{'any' if determiner == 'some' else 'a'} {en}", f"de {fr}")
    if determiner == "some":
        forms["after_de"] = Phrase(f"some {en}", fr)  # "besoin de pain": no "du" or "des" after "de"
    content = (f"noun:{noun.en}", *(f"adjective:{adjective.en}" for adjective in adjectives))
    return Phrase(
        f"{determiner} {en}".strip(), f"{article} {fr}", content, 5 if plural else 2, noun.feminine, plural, noun.kinds,
        forms=forms,
    )  # fmt: skip


@dataclass(frozen=True)
class Clause:
    """A clause in both languages: subject, verb, complement and adverbials.

    ``middle`` is "", "not", "never", "often" or "always". ``gap`` is the phrase that a relative or interrogative "que"
    refers to; the French participle agrees with it.
    """

    subject: Phrase
    verb: Verb
    tense: str
    middle: str = ""
    after: Phrase = Phrase("", "")
    tail: tuple[Phrase, ...] = ()
    gap: Phrase | None = None

    def phrase(self) -> Phrase:
        """Render the clause; its forms are ask, bare (no subject), subject, object, gap."""
        negative = self.middle in ("not", "never")
        after = self.after.forms.get("negated", self.after) if negative and not self.verb.preposition else self.after
        if self.verb.preposition:
            fr = self.after.forms.get("after_de", after).fr if self.verb.preposition == "de" else after.fr
            after = replace(after, fr=f"{self.verb.preposition} {fr}" if fr else "")
        ends = (after, *self.tail)
        french = [*self.french_verb(), *(part.fr for part in ends)]
        subject, middle = self.subject.en, self.middle

        def written(english: Sequence[str], subject_fr: str) -> Phrase:
            return Phrase(_joined([*english, *(part.en for part in ends)]), _joined([subject_fr, *french]))

        asked, asked_main = self.english_verb(question=True)
        auxiliary, main = self.english_verb()
        whole = written([subject, auxiliary, middle, main], self.subject.fr)
        forms = {
            "ask": written([asked, subject, middle, asked_main], self.subject.fr),
            "bare": written([auxiliary, middle, main], ""),
            "subject": self.subject,
            "object": self.after,
        } | ({"gap": self.gap} if self.gap else {})
        parts = (self.subject, self.after, *self.tail, *([self.gap] if self.gap else []))
        lemma = () if self.verb.en == "be" else (f"verb:{self.verb.en}",)
        return replace(whole, content=lemma + tuple(word for part in parts for word in part.content), forms=forms)

    def english_verb(self, *, question: bool = False) -> tuple[str, str]:
        """Return the auxiliary and main verb: ``("", "ate")``, ``("is", "eating")``."""
        verb, person = self.verb, self.subject.person
        if verb.en == "be" and self.tense in ("present", "past"):
            return lexicon.TENSES["progressive" if self.tense == "present" else "was_ing"].auxiliaries[person], ""
        tense = lexicon.TENSES[self.tense]
        auxiliary = tense.auxiliaries[person]
        main = {"base": verb.en, "ing": verb.ing}.get(tense.en, f"{tense.en} {verb.en}")
        if auxiliary not in ("do", "does", "did") or question or self.middle == "not":
            return auxiliary, main
        return "", {"did": verb.past, "does": lexicon.inflect(main, "s"), "do": main}[auxiliary]

    def french_verb(self) -> list[str]:
        """Return the verb group, such as ``["ne", "la", "ai", "pas", "vue", ""]``."""
        verb, person, form = self.verb, self.subject.person, lexicon.TENSES[self.tense].fr
        head, _, rest = verb.fr.partition(" ")
        forms = lexicon.conjugate(head)
        if "agrees" in verb.flags:
            rest = lexicon.agree(rest, feminine=self.subject.feminine, plural=self.subject.plural)
        ne, middle = "ne" if self.middle in ("not", "never") else "", _FRENCH_MIDDLE[self.middle]
        clitics = [*([_REFLEXIVES[person]] if verb.reflexive else []), *self.after.clitics]
        if form == "perfect" and "stative" in verb.flags:
            form = "imperfect"
        if form == "perfect":
            moved = verb.reflexive or "movement" in verb.flags
            # With être, the participle agrees with the subject; with avoir, with a direct object before the verb.
            agrees = self.subject if moved else self.gap or (self.after if self.after.direct else Phrase("", ""))
            participle = lexicon.agree(forms.participle, feminine=agrees.feminine, plural=agrees.plural)
            finite = lexicon.conjugate("être" if moved else "avoir").present[person]
            return [ne, *clitics, finite, middle, participle, rest]
        tables = {"present": forms.present, "imperfect": forms.imperfect, "future": forms.future}
        if form in tables:
            return [ne, *clitics, tables[form][person], middle, rest]
        return [ne, lexicon.conjugate(form).present[person], middle, *clitics, head, rest]


def _joined(words: Sequence[str]) -> str:
    return " ".join(word for word in words if word).replace("can not", "cannot")
