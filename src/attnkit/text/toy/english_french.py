"""Sampler of English–French sentences from the grammar in ``english_french.txt``."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from attnkit.text.toy import lexicon
from attnkit.text.toy.grammar import Clause, Phrase, Side, Slot, alternatives, noun_phrase, parse_side
from attnkit.text.toy.lexicon import Noun, Verb

T = TypeVar("T")
Words = frozenset[str]
MIN_TOKENS, MAX_TOKENS = 3, 20
_TOKEN = re.compile(r"\w+(?:-\w+)*'?|[^\w\s]")
_KINDS = frozenset[str]().union(*(noun.kinds for noun in lexicon.NOUNS))
_KIN = frozenset(["kin"])
_OWNED = frozenset(lexicon.WORDS["owned"])
_COLORS = ("white", "black", "brown", "gray", "red", "blue", "green", "yellow")
_MIDDLES = ("", "not", "never", "often", "always")


@dataclass(frozen=True)
class Sentence:
    """A sentence in both languages, with its content words (``noun:cat``).

    ``key`` is the English text without contractions, capitals and final mark; sentences with equal keys are duplicates.
    """

    en: str
    fr: str
    content: frozenset[str]
    key: str


def _read_pronouns() -> tuple[Phrase, ...]:
    pronouns = []
    for line in lexicon.WORDS["pronouns"]:
        en, en_object, fr, direct, indirect, stressed, person, *features = line.split()
        kinds = frozenset(["pronoun", "thing" if "thing" in features else "person"])
        plain = Phrase(en, fr, (), int(person), "feminine" in features, "plural" in features, kinds)
        forms = {
            "object": replace(plain, en=en_object, fr="", clitics=(direct,), direct=True),
            "indirect": replace(plain, en=en_object, fr="", clitics=(indirect,)),
            "stressed": replace(plain, en=en_object, fr=stressed),
            "please": Phrase("please", "s'il te plaît" if fr == "tu" else "s'il vous plaît"),
        }
        pronouns.append(replace(plain, forms=forms))
    return tuple(pronouns)


PRONOUNS = _read_pronouns()
_TU, _VOUS = (pronoun for pronoun in PRONOUNS if pronoun.en == "you")


class Sampler:
    """Sampler of sentence pairs; all random choices come from one generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._you = self._subject = _VOUS
        self._verb = lexicon.verbs_of("does")[0]

    def sentence(self) -> Sentence:
        """Draw a sentence pair of 3 to 20 tokens per side."""
        while True:
            self._you = _VOUS
            phrase = self.expand("sentence")
            en = lexicon.contract_english(phrase.en) if self.chance(0.3) else phrase.en
            key = lexicon.write_english(phrase.en).lower().rstrip(".!?")
            en, fr = lexicon.write_english(en), lexicon.write_french(phrase.fr)
            if all(MIN_TOKENS <= len(_TOKEN.findall(text)) <= MAX_TOKENS for text in (en, fr)):
                return Sentence(en, fr, frozenset(phrase.content), key)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < probability

    def pick(self, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Return one of the options, by weight if weights are given."""
        return self.rng.choices(options, weights)[0] if weights else self.rng.choice(options)

    def expand(
        self, symbol: str, words: Words = frozenset(), of: Phrase | None = None, thing: Phrase | None = None
    ) -> Phrase:
        """Draw a phrase for a symbol: from the lexicon, as a clause or by a rule."""
        match symbol:
            case "noun":
                return self.describe(self.pick(_nouns(words)), words)
            case "name":
                text, gender = self.pick(lexicon.WORDS["names"]).split()
                return Phrase(text, text, feminine=gender == "f", kinds=frozenset(["person"]))
            case "you":
                return self._you
            case "couple":
                return _listed([self.expand("name"), self.describe(self.pick(lexicon.nouns_of(_KIN)))])
            case "pronoun":
                # Without an antecedent, "they" is always "ils", so that an English sentence has only one translation.
                options = [p for p in PRONOUNS if "person" in p.kinds and p.en != "you" and p.fr != "elles"]
                options += [self._you] * (1 if self._you is _VOUS else 4)  # the addressee is often the subject
                if "other" in words:
                    here = self._subject.person  # allow "he sees them", but not "I see us" or "they see them"
                    options = [p for p in options if p.person != here and (p.person % 3 != here % 3 or here % 3 == 2)]
                return self.pick(options)
            case "object":
                return self._object(words)
            case "verb":  # an imperative for the addressee or for "we", or the "infinitive"
                verbs = lexicon.verbs_of("gives" if "gives" in words else "does")
                plain = [verb for verb in verbs if not verb.flags - {"take", "same"} and not verb.preposition]
                verb = self._verb = self.pick(plain)
                command = lexicon.conjugate(verb.fr).imperative(3 if "we" in words else self._you.person)
                return Phrase(verb.en, verb.fr if "infinitive" in words else command, (f"verb:{verb.en}",))
            case "vocative":  # determines tu or vous, and its gender and number
                en, _, right = self.pick(lexicon.WORDS["vocatives"]).partition(" = ")
                features = {word for word in right.split() if word in ("tu", "vous", "feminine", "plural")}
                self._you = you_as(_TU if "tu" in features else _VOUS, "feminine" in features, "plural" in features)
                return Phrase(en, " ".join(word for word in right.split() if word not in features))
            case "adjective" | "peer" | "profession":
                assert of is not None
                return self._attribute(symbol, words, of)
        if symbol in lexicon.GRAMMAR["clauses"]:
            return self._clause(symbol, words, of, thing)
        sides = self.pick(*alternatives(symbol))
        context = {"of": of, "object": thing}
        return self._write(sides, words, {name: phrase for name, phrase in context.items() if phrase})

    def _write(self, sides: tuple[Side, Side], words: Words, drawn: dict[str, Phrase]) -> Phrase:
        """Fill the slots of a rule; if it is a single slot, ``words`` apply to the slot."""
        alone = sides[0] == sides[1] and len(sides[0]) == 1
        content: tuple[str, ...] = ()
        for slot in (part for side in sides for part in side if isinstance(part, Slot)):
            if slot.label not in drawn:
                context: dict[str, Phrase] = {name: drawn[name] for name in ("of", "object") if name in drawn}
                for name, reference in slot.references.items():
                    label, _, path = reference.partition(".")
                    context[name] = drawn[label].form(path)
                wanted = slot.words | words if alone else slot.words
                drawn[slot.label] = self.expand(slot.symbol, wanted, context.get("of"), context.get("object"))
                content += drawn[slot.label].content
            if alone:
                return drawn[slot.label].form(slot.path)

        english, french = (
            [drawn[part.label].form(part.path) if isinstance(part, Slot) else Phrase(part, part) for part in side]
            for side in sides
        )
        # A clitic inside the phrase moves before the verb of the clause, with its gender and number.
        base = next((phrase for phrase in english if phrase.clitics), Phrase("", ""))

        def filled(name: str) -> Phrase:
            en = "".join(phrase.forms.get(name, phrase).en for phrase in english)
            fr = "".join(phrase.forms.get(name, phrase).fr for phrase in french)
            return replace(base, en=en, fr=fr, content=content, forms={})

        if any("negated" in phrase.forms for phrase in english):
            return replace(filled(""), forms={"negated": filled("negated")})
        return filled("")

    def _clause(self, name: str, words: Words, of: Phrase | None, thing: Phrase | None) -> Phrase:
        """Draw a clause: verb, subject, tense, negation, complement and adverbials.

        ``of`` determines the subject and ``thing`` the object, each as a pronoun.
        """
        head, *complement = lexicon.GRAMMAR["clauses"][name][0].split(" | ")
        who, group = head.split(", ")
        verb = self.pick([verb for verb in lexicon.verbs_of(group) if _fits(verb, words, of, thing)])
        stative = "stative" in verb.flags
        # The subject is the subject of ``of`` ("same"), a pronoun for it, or a new phrase.
        if of:
            whose = of.forms.get("subject", of)
            subject = whose if "same" in words else pronoun_for(whose)
        elif who != "agent":
            subject = self.expand(who)
        elif "person" in verb.subjects and (len(verb.subjects) == 1 or self.chance(0.75)):
            subject = self.expand("someone")
        else:
            noun = self.pick(_nouns(verb.subjects - {"person"}))
            subject = self.describe(noun, frozenset(["definite"] if self.chance(0.8) else []))
        # A tense listed in ``words``, else one that the verb allows.
        weights = {name: tense.stative_weight if stative else tense.weight for name, tense in lexicon.TENSES.items()}
        if "ing" in verb.flags:
            weights |= {"progressive": 3, "was_ing": 1}
        refused = {"progressive", "was_ing"} if "instant" in verb.flags else set()
        refused |= {"present"} if "same" in verb.flags else set()
        allowed = [name for name in weights if name in words] or [name for name in weights if name not in refused]
        tense = self.pick(allowed, [weights[name] for name in allowed])
        # A negation or, in the simple present, an adverb of frequency.
        if "positive" in words:
            middle = ""
        elif tense == "present" and not stative:
            middle = self.pick(_MIDDLES, (4, 2, 2, 3, 2))
        else:
            middle = self.pick(_MIDDLES[:3], (82, 15, 3 if tense in ("past", "future") and not stative else 0))
        self._verb, self._subject = verb, subject
        after, gap = Phrase("", ""), None
        if thing:
            after = pronoun_for(thing).form("object")
        elif words & {"gap", "many"}:
            nouns = [n for n in lexicon.nouns_of(verb.objects) if n.en_plural or "gap" in words]
            gap = self.describe(self.pick(nouns), frozenset(["the", "plain", "plural" if "many" in words else ""]))
        elif complement and not words & {"what", "whom", "open"}:
            after = self._write((parse_side(complement[0]), parse_side(complement[-1])), words, {"s": subject})
        self._subject = subject
        # Place, company or manner, and time, which a habitual present always has.
        tail: list[Phrase] = []
        if "plain" not in words:
            if verb.adverbials and self.chance(0.45):
                tail.append(self.expand(self.pick(verb.adverbials)))
            habit, time = tense == "present" and middle in ("", "not"), lexicon.TENSES[tense].times
            if time and not stative and (habit or (middle != "never" and self.chance(0.35))):
                tail.append(self.expand(f"time_{time}"))
        return Clause(subject, verb, tense, middle, after, tuple(tail), gap).phrase()

    def describe(self, noun: Noun, words: Words = frozenset()) -> Phrase:
        """Draw a noun phrase: a number, a determiner and perhaps adjectives for a noun.

        ``words`` may contain "the", "definite" (no "a", "some" or numerals), "new" (only these), "singular", "plural"
        and "plain" (no adjectives).
        """
        rarely = not noun.kinds.isdisjoint(("kin", "place", "surface"))
        plural = bool(noun.en_plural) and "singular" not in words
        plural = plural and ("plural" in words or self.chance(0.1 if rarely else 0.28))
        # Possessives for kin, "some" for mass nouns.
        owned, kin = not noun.kinds.isdisjoint(_OWNED), "kin" in noun.kinds
        mass = not noun.en_plural and not kin
        weights: dict[str, float] = {}
        for row in lexicon.DETERMINERS:
            indefinite = "indefinite" in row.fits
            fitting = row.en[plural] and (owned if row.fits == "owned" else not kin)
            if fitting and (mass if "mass" in row.fits else not (mass and indefinite)):
                weights[row.en[plural]] = 0 if ("definite" if indefinite else "new") in words else row.weight
        if plural and not kin and "definite" not in words:
            weights |= dict.fromkeys(lexicon.NUMBERS, 0.25)
        determiner = "the" if "the" in words else self.pick(tuple(weights), tuple(weights.values()))
        adjectives = [
            adjective
            for adjective in lexicon.adjectives_for(noun.kinds)
            # "mon beau père" would be a father-in-law, and "grand grand-père" is wrong.
            if adjective.masculine not in noun.fr and (not kin or adjective.masculine != "beau")
        ]
        described = bool(adjectives) and "plain" not in words and self.chance(0.3)
        chosen = [self.pick(adjectives)] if described else []
        colors = [adjective for adjective in adjectives if adjective.en in _COLORS]
        if colors and chosen and chosen[0].before and self.chance(0.4):
            chosen.append(self.pick(colors))
        phrase = noun_phrase(noun, determiner, plural=plural, adjectives=chosen, you=self._you.person)
        if determiner == "the" and "thing" in noun.kinds and "the" not in words and self.chance(0.15):
            owner, bare = self.expand("name"), phrase.form("bare").en
            phrase = replace(phrase, en=f"{owner.en} 's {bare}", fr=f"{phrase.fr} de {owner.fr}")
        return phrase

    def _object(self, words: Words) -> Phrase:
        """Draw an object: a noun, name, pronoun, list or generic noun ("I like cats")."""
        verb, nouns = self._verb, _nouns(self._verb.objects)
        if "person" in verb.objects and words.isdisjoint(("thing", "take", "definite")):
            if self.chance(0.35):
                return self.expand("pronoun", frozenset(["other"])).form("indirect" if verb.preposition else "object")
            if self.chance(0.25):
                return self.expand("name")
        noun = self.pick(nouns)
        if "generic" in verb.flags:
            if self.chance(0.5):
                return noun_phrase(noun, "", plural=bool(noun.en_plural))
            return self.describe(noun, frozenset(["definite"]))
        if verb.en in ("buy", "sell", "find", "eat", "lose", "see") and not words and self.chance(0.15):
            sample = self.rng.sample([noun for noun in nouns if "kin" not in noun.kinds], self.pick((2, 3), (3, 1)))
            return _listed([noun_phrase(item, "a" if item.en_plural else "some") for item in sample])
        return self.describe(noun, frozenset(["definite"] if (words | verb.flags) & {"thing", "definite"} else []))

    def _attribute(self, symbol: str, words: Words, of: Phrase) -> Phrase:
        """Draw an adjective ("graded": with comparative), profession or peer of ``of``."""
        if symbol == "adjective":
            fitting = lexicon.adjectives_for(of.kinds)
            adjective = self.pick([one for one in fitting if one.comparative or "graded" not in words])
            fr = adjective.agree(feminine=of.feminine, plural=of.plural)
            content = (f"adjective:{adjective.en}",)
            return Phrase(adjective.en, fr, content, forms={"comparative": Phrase(adjective.comparative, fr, content)})
        if symbol == "profession":
            en, masculine, feminine = self.pick(lexicon.WORDS["professions"]).split()
            fr, content = feminine if of.feminine else masculine, (f"noun:{en}",)
            forms = (lexicon.english_plural(en), lexicon.french_plural(fr)) if of.plural else (f"a {en}", fr)
            return Phrase(*forms, content)
        if "person" in of.kinds:
            return self.expand("host")
        own = {content.removeprefix("noun:") for content in of.content}
        group = next(noun.kind for noun in lexicon.nouns_of(of.kinds) if noun.en in own)
        others = [noun for noun in lexicon.NOUNS if noun.kind == group and noun.en not in own]
        return self.describe(self.pick(others), frozenset(["definite"]))


def you_as(pronoun: Phrase, feminine: bool, plural: bool) -> Phrase:
    """Return the pronoun "you" with the gender and number of the addressee."""
    forms = {name: replace(form, feminine=feminine, plural=plural) for name, form in pronoun.forms.items()}
    return replace(pronoun, feminine=feminine, plural=plural, forms=forms)


def pronoun_for(phrase: Phrase) -> Phrase:
    """Return the pronoun for a phrase, which agrees in person, gender and number."""
    if "pronoun" in phrase.kinds:
        return phrase
    thing = "person" not in phrase.kinds and not phrase.plural
    features = (phrase.person, phrase.feminine, phrase.plural, thing)
    pronoun = next(p for p in PRONOUNS if (p.person, p.feminine, p.plural, "thing" in p.kinds) == features)
    return replace(pronoun, kinds=phrase.kinds | {"pronoun"})


def _listed(parts: Sequence[Phrase]) -> Phrase:
    """Join phrases into a list, which is feminine only if all of them are."""
    en, fr = (" , ".join(texts) for texts in zip(*((part.en, part.fr) for part in parts[:-1]), strict=True))
    content = tuple(word for part in parts for word in part.content)
    feminine = all(part.feminine for part in parts)
    return Phrase(f"{en} and {parts[-1].en}", f"{fr} et {parts[-1].fr}", content, 5, feminine, True, parts[0].kinds)


@cache
def _nouns(words: Words) -> tuple[Noun, ...]:
    """Return the nouns of kinds in ``words``; "plural" excludes mass nouns."""
    kin = not words & {"new", "the"}  # kin nouns take only possessives
    nouns = [noun for noun in lexicon.nouns_of(words & _KINDS) if kin or "kin" not in noun.kinds]
    return tuple(noun for noun in nouns if noun.en_plural or "plural" not in words)


def _fits(verb: Verb, words: Words, of: Phrase | None, thing: Phrase | None) -> bool:
    """Return whether a verb allows the subject and object that a rule requires."""
    subject = of.forms.get("subject", of).kinds if of else frozenset[str]()
    if subject and "any" not in verb.subjects and subject.isdisjoint(verb.subjects):
        return False
    if "dated" in words and "stative" in verb.flags:
        return False
    if words & {"progressive", "was_ing"} and verb.flags & {"stative", "instant"}:
        return False
    if thing:
        return not (thing.kinds.isdisjoint(verb.objects) or verb.preposition or verb.flags & {"stative", "take"})
    if words & {"thing", "gap", "what", "many", "take"}:
        plain = "person" not in verb.objects and not verb.preposition and not verb.flags & {"stative", "movement"}
        counted = "many" not in words or any(noun.en_plural for noun in lexicon.nouns_of(verb.objects))
        return plain and counted and ("take" not in words or "take" in verb.flags)
    return "whom" not in words or ("person" in verb.objects and not verb.preposition)
