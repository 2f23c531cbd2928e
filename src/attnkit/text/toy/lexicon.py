"""English–French lexicon, word forms and spelling, and word-for-word translation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import starmap
from typing import NamedTuple

# --- English

_NOT = re.compile(r"\b(do|does|did|is|are|was|were) not\b")
_PRONOUN = re.compile(r"\b(I am|(?:you|we|they) are|(?:he|she|it) is|(?:I|you|he|she|it|we|they) (?:will|would))\b")
_SHORT = {"am": "'m", "are": "'re", "is": "'s", "will": "'ll", "would": "'d"}
_ARTICLE = re.compile(r"\ba (?=[aeioAEIO]|u(?!niversity|seful|niform))")


def english_plural(singular: str) -> str:
    """Return a regular noun plural or third person: ``box`` → ``boxes``."""
    if singular.endswith(("s", "x", "ch", "sh")):
        return singular + "es"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return singular[:-1] + "ies"
    return singular + "s"


def inflect(verb: str, ending: str) -> str:
    """Return a regular verb form in ``s``, ``ed`` or ``ing``: ``fly`` → ``flies``."""
    head, space, rest = verb.partition(" ")
    if ending == "s":
        head = {"have": "has", "go": "goes", "do": "does"}.get(head, english_plural(head))
    elif ending == "ing":
        head = (head[:-1] if head.endswith("e") and not head.endswith("ee") else head) + "ing"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ied"
    else:
        head += "d" if head.endswith("e") else "ed"
    return head + space + rest


def contract_english(words: str) -> str:
    """Contract words as in spoken English.

    >>> contract_english("she is happy and you did not see it")
    "she's happy and you didn't see it"
    """
    text = _NOT.sub(r"\1n't", words).replace("will not", "won't").replace("cannot", "can't")
    return _PRONOUN.sub(lambda match: match[0].replace(" " + (verb := match[0].split()[1]), _SHORT[verb]), text)


def write_english(words: str) -> str:
    """Join words into a sentence: "a" or "an", a capital, attached punctuation.

    >>> write_english("a old man sleeps .")
    'An old man sleeps.'
    """
    text = re.sub(r" ([,.?!]|'s\b)", r"\1", _ARTICLE.sub("an ", " ".join(words.split())))
    return text[:1].upper() + text[1:]


# --- French

_ASPIRATED = r"(?!(?:hauts?|hautes?|hibou|héros|huit|yaourt|onze)\b)"  # "le haut", "le huit": no elision
_VOWEL = re.compile(rf"{_ASPIRATED}[aàâæeéèêëhiîïoôœuùûy]", re.IGNORECASE)
_ELIDED = re.compile(rf"\b(la|(?:[jlnmtsdc]|qu|jusqu|lorsqu)e) (?={_VOWEL.pattern})", re.IGNORECASE)
_ELIDED_SI = re.compile(r"\b([sS])i (?=ils?\b)")
_CONTRACTIONS = {"de le ": "du ", "de les ": "des ", "à le ": "au ", "à les ": "aux "}
_APART = re.compile(r"\b(?:de|à) les? ")
_FUTURE = ("ai", "as", "a", "ons", "ez", "ont")
_IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")


def starts_with_vowel(word: str) -> bool:
    """Return whether a word requires elision: ``ami``, ``homme``, but not ``haut``."""
    return _VOWEL.match(word) is not None


def french_plural(singular: str) -> str:
    """Return the regular plural of a noun or adjective: ``cheval`` → ``chevaux``."""
    if singular.endswith(("s", "x", "z")):
        return singular
    if singular.endswith(("eau", "eu")) and singular != "bleu":
        return singular + "x"
    return singular[:-2] + "aux" if singular.endswith("al") else singular + "s"


def agree(participle: str, *, feminine: bool, plural: bool) -> str:
    """Return a participle inflected for gender and number: ``écrit`` → ``écrites``."""
    form = participle + "e" if feminine else participle
    return form + "s" if plural and not form.endswith("s") else form


def write_french(words: str) -> str:
    """Join words into a sentence: elision, contraction, a capital, punctuation.

    Question and exclamation marks keep the space before them, as is usual in French.

    >>> write_french("le homme va à le jardin .")
    "L'homme va au jardin."
    """
    text = _ELIDED.sub(lambda match: match[1][:-1] + "'", " ".join(words.split()))
    text = _ELIDED_SI.sub(r"\1'", text)
    text = _APART.sub(lambda match: _CONTRACTIONS[match[0]], text)
    text = re.sub(r" ([,.])", r"\1", text)
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Conjugation:
    """Forms of a French verb by person (je, tu, il, nous, vous, ils)."""

    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: str  #: masculine singular

    def imperative(self, person: int) -> str:
        """Return the imperative of tu (1), nous (3) or vous (4)."""
        form = self.present[person]  # tu drops the s of -es and vas: "mange", "va"
        return form[:-1] if person == 1 and form.endswith(("es", "vas")) else form


def read_tables(name: str) -> dict[str, dict[str, list[str]]]:
    """Read a file in this folder; return its entries by section and key.

    A line is ``key: entry; entry``; an indented line adds entries to the key above.
    """
    tables: dict[str, dict[str, list[str]]] = {}
    for line in (files(__package__) / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = tables[line.strip("[]")] = {}
        elif line and not line.startswith("#"):
            if not line.startswith(" "):
                key, _, line = line.partition(":")
                entries = section[key] = []
            entries += [entry.strip() for entry in line.split(";") if entry.strip()]
    return tables


GRAMMAR = read_tables("english_french.txt")
WORDS = GRAMMAR["words"]
_IRREGULAR = dict(entry.split(" = ") for entry in WORDS["irregular"])


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; plurals are empty if they are not used."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool
    kind: str  #: its class
    kinds: frozenset[str]  #: its class, its further classes and its English name


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages."""

    en: str
    comparative: str  #: empty if the adjective has no comparative
    masculine: str
    feminine: str
    liaison: str  #: masculine form before a vowel, if different (``vieil homme``)
    before: bool  #: whether French puts the adjective before the noun
    kinds: frozenset[str]

    def agree(self, *, feminine: bool, plural: bool) -> str:
        """Return the French form; two-word colours (``bleu clair``) have no plural."""
        form = self.feminine if feminine else self.masculine
        return french_plural(form) if plural and " " not in form else form


@dataclass(frozen=True)
class Verb:
    """One sense of a verb in both languages, with fitting arguments and adverbials."""

    en: str
    past: str
    ing: str
    fr: str  #: may include a complement (``avoir besoin``)
    preposition: str  #: French preposition before an object (``jouer de``)
    reflexive: bool
    group: str
    subjects: frozenset[str]
    objects: frozenset[str]
    adverbials: tuple[str, ...]
    flags: frozenset[str]


class Tense(NamedTuple):
    """A tense: its formation and the weight with which it is drawn."""

    auxiliaries: tuple[str, ...]  #: English auxiliaries by person
    en: str  #: form of the verb, or the words before it
    fr: str
    weight: float
    stative_weight: float
    times: str  #: adverbials of time that fit


class Determiner(NamedTuple):
    """A determiner in both languages; unused forms are empty."""

    en: tuple[str, str]  #: singular and plural
    fr: tuple[str, ...]  #: masculine, feminine and plural
    weight: float
    fits: str  #: "any", "owned", "indefinite" or "indefinite mass"


@cache
def conjugate(infinitive: str) -> Conjugation:
    """Conjugate a verb in -er, -ir or -re, given by its non-reflexive infinitive.

    The lexicon has ``six present forms, participle, future stem`` for irregular verbs and, for some verbs in -er, the
    stem before a silent ending (``achèt`` for ``acheter``).
    """
    stem, ending, irregular = infinitive[:-2], infinitive[-2:], _IRREGULAR.get(infinitive, "")
    if "," in irregular:
        forms, participle, future = irregular.split(", ")
        present = tuple(forms.split())
    elif ending == "er":
        silent = irregular or stem
        # "mangeons", "lançons": the stem keeps its sound before an o.
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        present = (silent + "e", silent + "es", silent + "e", soft + "ons", stem + "ez", silent + "ent")
        participle, future = stem + "é", silent + "er"
    elif ending == "ir":
        present = tuple(stem + end for end in ("is", "is", "it", "issons", "issez", "issent"))
        participle, future = stem + "i", infinitive
    elif ending == "re":
        present = tuple(stem + end for end in ("s", "s", "", "ons", "ez", "ent"))
        participle, future = stem + "u", stem + "r"
    else:
        raise ValueError(f"no rule conjugates {infinitive!r}")
    base = "ét" if infinitive == "être" else present[3].removesuffix("ons")
    # "mangions", "lancions": before an i, the plain stem already has the right sound.
    plain = stem if ending == "er" else base
    imperfect = tuple((plain if end[0] == "i" else base) + end for end in _IMPERFECT)
    return Conjugation(present, imperfect, tuple(future + end for end in _FUTURE), participle)


def _entries(section: str) -> Iterator[tuple[str, str, str]]:
    """Yield (header, English, French) for each entry of a section."""
    for header, entries in GRAMMAR[section].items():
        for entry in entries:
            left, right = entry.split(" = ")
            yield header, left, right


def _noun(kinds: str, left: str, right: str) -> Noun:
    en, _, en_plural = left.partition("/")
    right, _, gender = right.rpartition(" ")
    fr, _, fr_plural = right.partition("/")
    plurals = (en_plural or english_plural(en), fr_plural or french_plural(fr)) if en_plural != "-" else ("", "")
    return Noun(en, plurals[0], fr, plurals[1], gender == "f", kinds.split()[0], frozenset([en, *kinds.split()]))


def _adjective(header: str, left: str, right: str) -> Adjective:
    place, *kinds = header.split()
    en, _, comparative = left.partition("/")
    masculine, feminine, *liaison = (form.replace("_", " ") for form in right.split())
    compared = f"more {en}" if comparative == "more" else comparative
    return Adjective(en, compared, masculine, feminine, "".join(liaison), place == "before", frozenset(kinds))


def _verb(header: str, left: str, right: str) -> Verb:
    frame, _, adverbials = header.partition("@")
    (group, *subjects), objects = (part.split() for part in frame.partition(">")[::2])
    right, _, flags = right.partition(" !")
    fr, _, preposition = right.partition(" + ")
    en, *forms = left.split("/")
    past = forms[0] if forms else inflect(en, "ed")
    ing = forms[1] if len(forms) > 1 else inflect(en, "ing")
    plain = fr.removeprefix("se ")
    return Verb(en, past, ing, plain, preposition, plain != fr, group, frozenset(subjects), frozenset(objects),
                tuple(adverbials.split()), frozenset(flags.split()))  # fmt: skip


def _tense(entry: str, name: str) -> Tense:
    auxiliaries, en, fr, weight, *times = entry.split(", ")
    by_person = tuple(auxiliaries.split())
    stative = GRAMMAR["stative tenses"].get(name, ["0"])[0]
    return Tense(by_person * (6 // len(by_person)), en, fr, float(weight), float(stative), "".join(times))


def _determiner(entry: str) -> Determiner:
    en, en_plural, *french, weight, fits = ("" if form == "-" else form for form in entry.split(", "))
    return Determiner((en, en_plural), tuple(french), float(weight), fits)


NOUNS = tuple(starmap(_noun, _entries("nouns")))
ADJECTIVES = tuple(starmap(_adjective, _entries("adjectives")))
VERBS = tuple(starmap(_verb, _entries("verbs")))
NUMBERS: dict[str, str] = dict(entry.split(" | ") for entry in GRAMMAR["rules"]["number"])
TENSES = {name: _tense(entry, name) for name, (entry,) in GRAMMAR["tenses"].items()}
DETERMINERS = tuple(_determiner(entry) for entry in WORDS["determiners"])


@cache
def nouns_of(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """Return nouns of any of the kinds; each noun's English name is one of its kinds."""
    return tuple(noun for noun in NOUNS if noun.kinds & kinds)


@cache
def adjectives_for(kinds: frozenset[str]) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe a noun of these kinds."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.kinds & kinds)


@cache
def verbs_of(group: str) -> tuple[Verb, ...]:
    """Return the verbs of a group, such as ``does``, ``acts`` or ``goes``."""
    return tuple(verb for verb in VERBS if verb.group == group)


_TOKEN = re.compile(r"[\w-]+'?\w*|[^\w\s]")
_FULL_FORMS = {"won't": "will not", "can't": "can not", "n't": " not", "'m": " am", "'re": " are", "'ll": " will"}


@cache
def dictionary() -> dict[str, str]:
    """Return one French form for each lower-cased English word form."""
    entries: dict[str, str] = {}
    for line in (line for lines in GRAMMAR["rules"].values() for line in lines if "{" not in line and "|" in line):
        en, fr = (text.strip() for text in line.split("|"))
        if " " not in en:
            entries[en.lower()] = fr
    # The first sense of a word wins, and "go" wins over "go out".
    for verb in sorted(VERBS, key=lambda verb: " " in verb.en):
        head, _, rest = verb.fr.partition(" ")
        forms = conjugate(head)
        # The participle for past forms, the French third person for all others.
        present, participle = (rest, rest) if "agrees" in verb.flags else (forms.present[2], forms.participle)
        base, past, ing = (form.split()[0] for form in (verb.en, verb.past, verb.ing))
        entries = {base: present, inflect(base, "s"): present, ing: present, past: participle} | entries
    for adjective in ADJECTIVES:
        entries.setdefault(adjective.en.lower(), adjective.masculine)
        if adjective.comparative and " " not in adjective.comparative:
            entries.setdefault(adjective.comparative, f"plus {adjective.masculine}")
    for noun in NOUNS:
        entries |= {noun.en: noun.fr, noun.en_plural or noun.en: noun.fr_plural or noun.fr}
    words = (entry.partition(" ") for entry in WORDS["function words"])
    return entries | NUMBERS | {en: fr for en, _, fr in words}


def translate_word_for_word(line: str) -> str:
    """Translate each word by ``dictionary`` and apply French spelling."""
    for short, long in _FULL_FORMS.items():
        line = line.replace(short, long)
    words = [word.lower() for word in _TOKEN.findall(line)]
    translated = (dictionary().get(word.removesuffix("'s"), word) for word in words)
    return write_french(" ".join(word for word in translated if word))
