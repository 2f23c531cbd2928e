"""Toy corpora besides English–French: digit reversal, code, headlines, labeled reviews."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

Pair = tuple[str, str]
MAX_TRAIN_LENGTH, MAX_LONG_LENGTH = 25, 30


def make_reversal(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Pair]]:
    """Make train, valid and test strings of 1-25 digits, and test-long of 26-30.

    Lengths are drawn evenly. No held-out string is in training; at most a fifth of all strings of a length are held
    out, so that training keeps short ones. Short strings may occur more than once in training.
    """
    rng = random.Random(f"reversal {seed}")
    held_out: set[str] = set()
    parts: dict[str, list[Pair]] = {"train": [], "valid": [], "test": [], "test-long": []}
    for name, size in (("test", n_test), ("valid", n_valid)):
        parts[name] = _new_strings(rng, size, 1, held_out)
    parts["test-long"] = _new_strings(rng, n_test, MAX_TRAIN_LENGTH + 1, held_out)
    while len(parts["train"]) < n_train:
        digits = _digits(rng, 1, MAX_TRAIN_LENGTH)
        if digits not in held_out:
            parts["train"].append(_pair(digits))
    return parts


def _new_strings(rng: random.Random, size: int, shortest: int, seen: set[str]) -> list[Pair]:
    """Draw strings that are not in ``seen`` and add them to it; at most a fifth of the strings of a length."""
    longest = MAX_TRAIN_LENGTH if shortest == 1 else MAX_LONG_LENGTH
    found: list[Pair] = []
    n_seen = Counter(map(len, seen))
    while len(found) < size:
        digits = _digits(rng, shortest, longest)
        if digits in seen or n_seen[len(digits)] * 5 >= 10 ** len(digits):
            continue
        seen.add(digits)
        n_seen[len(digits)] += 1
        found.append(_pair(digits))
    return found


def _digits(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(shortest, longest)))


def _pair(digits: str) -> Pair:
    return " ".join(digits), " ".join(reversed(digits))


_NAMES = ("x", "y", "z", "total", "count", "price", "width", "height", "age", "score", "index", "size", "rate", "speed")
_LISTS = ("items", "values", "names", "words", "numbers", "prices", "scores", "rows", "lines", "users")
_BINARY = (("the sum of {} and {}", "{} + {}"), ("the product of {} and {}", "{} * {}"),
           ("the difference of {} and {}", "{} - {}"), ("the quotient of {} and {}", "{} / {}"),
           ("the remainder of {} by {}", "{} % {}"), ("the larger of {} and {}", "max({}, {})"),
           ("the smaller of {} and {}", "min({}, {})"))  # fmt: skip
_OF_LIST = (("the length of {}", "len({})"), ("the sum of {}", "sum({})"), ("the largest of {}", "max({})"),
            ("the smallest of {}", "min({})"), ("the first of {}", "{}[0]"), ("the last of {}", "{}[-1]"))  # fmt: skip
_TESTS = (("{} is greater than {}", "{} > {}"), ("{} is less than {}", "{} < {}"), ("{} equals {}", "{} == {}"),
          ("{} is at least {}", "{} >= {}"), ("{} differs from {}", "{} != {}"))  # fmt: skip
_CHANGES = (("double", "2 * {}"), ("the square of", "{} ** 2"), ("half of", "{} / 2"), ("the negative of", "-{}"),
            ("the absolute value of", "abs({})"))  # fmt: skip


@dataclass(frozen=True)
class _Value:
    """A value in words and in code; ``simple`` code needs no parentheses inside a larger expression."""

    words: str
    code: str
    simple: bool = True

    def inside(self) -> str:
        return self.code if self.simple else f"({self.code})"


def make_expressions(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Pair]]:
    """Make instructions and statements whose expressions nest up to two deep; no instruction occurs twice."""
    rng = random.Random(f"code {seed}")
    seen: set[str] = set()
    parts: dict[str, list[Pair]] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            pair = rng.choice((_assign, _assign, _conditional, _print, _comprehend))(rng)
            if pair[0] not in seen:
                seen.add(pair[0])
                parts[name].append(pair)
    return parts


def _value(rng: random.Random, depth: int) -> _Value:
    roll = rng.random()
    if depth == 0 or roll < 0.3:
        return rng.choice((_Value(name := rng.choice(_NAMES), name), _Value(n := str(rng.randint(0, 100)), n)))
    if roll < 0.5:
        words, code = rng.choice(_OF_LIST)
        chosen = rng.choice(_LISTS)
        return _Value(words.format(chosen), code.format(chosen))
    words, code = rng.choice(_BINARY)
    left, right = _value(rng, depth - 1), _value(rng, depth - 1)
    call = code.startswith(("max", "min"))
    filled = code.format(*((left.code, right.code) if call else (left.inside(), right.inside())))
    return _Value(words.format(left.words, right.words), filled, simple=call)


def _test(rng: random.Random) -> _Value:
    words, code = rng.choice(_TESTS)
    left, right = rng.choice(_NAMES), _value(rng, 1)
    return _Value(words.format(left, right.words), code.format(left, right.code))


def _assign(rng: random.Random) -> Pair:
    target, value = rng.choice(_NAMES), _value(rng, 2)
    opening = rng.choice(("Set {} to {}.", "Let {} be {}."))
    return opening.format(target, value.words), f"{target} = {value.code}"


def _conditional(rng: random.Random) -> Pair:
    target, test, yes, no = rng.choice(_NAMES), _test(rng), _value(rng, 1), _value(rng, 0)
    words = f"Set {target} to {yes.words} if {test.words}, otherwise to {no.words}."
    return words, f"{target} = {yes.code} if {test.code} else {no.code}"


def _print(rng: random.Random) -> Pair:
    value = _value(rng, 2)
    return f"{rng.choice(('Print', 'Show'))} {value.words}.", f"print({value.code})"


def _comprehend(rng: random.Random) -> Pair:
    target, source = rng.sample(_LISTS, 2)
    change, code = rng.choice(_CHANGES)
    words, made = f"Make {target} from {change} each of {source}", f"{target} = [{code.format('n')} for n in {source}"
    if rng.random() < 0.5:
        sign, bound = rng.choice((("above", ">"), ("below", "<"))), rng.randint(0, 100)
        return f"{words} that is {sign[0]} {bound}.", f"{made} if n {sign[1]} {bound}]"
    return f"{words}.", f"{made}]"


_PLACES = (
    "Oakfield", "Rivermouth", "Stonebridge", "Highmoor", "Eastport", "Lakeside", "Northgate", "Westbury", "Ashford",
    "Millbrook", "Fairview", "Kingsley", "Redcliff", "Greenhill", "Saltash", "Thornton", "Wexley", "Bramford",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_COUNTS = (
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "twenty",
    "thirty",
)
_CAUSES = ("heavy rain", "strong wind", "a power cut", "ice on the road", "a broken pipe", "thick fog", "a small fire",
           "a strike", "a storm", "repairs")  # fmt: skip
_SERVICES = ("station", "airport", "bridge", "library", "museum", "main road", "harbour", "hospital", "school",
             "swimming pool", "market", "town hall")  # fmt: skip
_TEAMS = ("Rovers", "United", "Tigers", "Harriers", "Falcons", "Wolves", "Athletic", "Rangers")
_OPINIONS = ("Residents said they were surprised.", "Nobody could say why it took so long.",
             "The mayor thanked everybody.",
             "Local people had waited for it for years.",
             "A spokesman gave no further details.", "It was the talk of the town all day.")  # fmt: skip
_CANDIDATES = ("Anna Hill", "John Marsh", "Clara Stone", "Peter Lake", "Ruth Wells", "Simon Ford", "Mary Field",
               "Tom Banks")  # fmt: skip


def make_summaries(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Pair]]:
    """Make reports of four sentences and their headlines; no report occurs twice."""
    rng = random.Random(f"summary {seed}")
    seen: set[str] = set()
    parts: dict[str, list[Pair]] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            pair = rng.choice((_closure, _match, _accident, _opening, _election))(rng)
            if pair[0] not in seen:
                seen.add(pair[0])
                parts[name].append(pair)
    return parts


def _report(rng: random.Random, facts: list[str]) -> str:
    """Join the facts, in order, with an irrelevant sentence among them."""
    facts.insert(rng.randint(1, len(facts)), rng.choice(_OPINIONS))
    return " ".join(facts)


def _closure(rng: random.Random) -> Pair:
    what, place, cause, day, until = *(rng.choice(x) for x in (_SERVICES, _PLACES, _CAUSES)), *rng.sample(_DAYS, 2)
    facts = [
        rng.choice((f"The {what} in {place} was closed on {day}.", f"On {day} the {what} in {place} had to close.")),
        rng.choice((f"The reason was {cause}.", f"Officials said {cause} was to blame.")),
        f"It is expected to open again on {until}.",
    ]
    return _report(rng, facts), f"{place} {what} closed until {until} after {cause}"


def _match(rng: random.Random) -> Pair:
    home, away = (f"{place} {team}" for place, team in zip(rng.sample(_PLACES, 2), rng.sample(_TEAMS, 2), strict=True))
    losing, margin, day = rng.randint(0, 4), rng.randint(1, 4), rng.choice(_DAYS)
    winner, loser = rng.sample((home, away), 2)
    score = f"{losing + margin}-{losing}"
    facts = [
        f"{home} met {away} on {day}.",
        rng.choice((f"After ninety minutes {winner} had won by {score}.", f"The match ended {score} for {winner}.")),
        f"The captain of {loser} was disappointed.",
    ]
    return _report(rng, facts), f"{winner} beat {loser} {score}"


def _accident(rng: random.Random) -> Pair:
    n, day, place, what = (rng.choice(x) for x in (_COUNTS, _DAYS, _PLACES, ("bus", "train", "lorry", "ferry", "tram")))
    cause = rng.choice(_CAUSES[:5])
    facts = [
        f"A {what} left its route near {place} on {day}.",
        rng.choice((f"In all {n} people were hurt.", f"The crash left {n} people hurt.")),
        f"Police believe that {cause} was the cause.",
    ]
    return _report(rng, facts), f"{n.capitalize()} hurt in {place} {what} crash"


def _opening(rng: random.Random) -> Pair:
    what, place, n = rng.choice(_SERVICES), rng.choice(_PLACES), rng.choice(_COUNTS)
    facts = [
        rng.choice((f"The people of {place} have a new {what}.", f"A new {what} was opened in {place}.")),
        f"It took {n} years to build.",
        rng.choice((f"It cost {rng.choice(_COUNTS)} million pounds.", "Hundreds came to see it on the first day.")),
    ]
    return _report(rng, facts), f"New {what} opens in {place} after {n} years"


def _election(rng: random.Random) -> Pair:
    winner, loser = rng.sample(_CANDIDATES, 2)
    place, share = rng.choice(_PLACES), rng.randint(51, 79)
    facts = [
        f"Voters in {place} chose a mayor on {rng.choice(_DAYS)}.",
        f"{winner} received {share} percent of the votes.",
        rng.choice((f"{loser} came second.", f"{loser}, who came second, did not comment.")),
    ]
    return _report(rng, facts), f"{winner} elected mayor of {place} with {share} percent"


Review = tuple[str, str]

_WORDS = {
    "bad": ("awful", "dull", "clumsy", "tedious", "poor", "lifeless"),
    "good": ("superb", "witty", "lovely", "gripping", "clever", "moving"),
}
_OWN = ("I found it {}.", "To me it was {}.", "I would call it {}.", "In my opinion it is {}.")
_OTHERS = (
    "The critics called it {}.",
    "My brother said it was {}.",
    "Some people in the row behind us thought it {}.",
    "The poster says it is {}!",
)
_FILLER = (
    "We saw it on a {day}.",
    "It runs for two hours and a half.",
    "The {place} was half empty.",
    "It was made by the {kin} of a baker.",
    "There was {thing} before it began.",
    "We went home by bus.",
)
_BLANKS = {
    "day": ("Monday", "rainy Tuesday", "Friday night", "Sunday"),
    "place": ("cinema", "hall", "small theatre"),
    "kin": ("son", "daughter", "cousin"),
    "thing": ("a long queue", "no tea", "some music", "a speech"),
}


def make_reviews(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Review]]:
    """Make train, valid and test reviews with their labels, "bad" or "good"; no review is in two parts."""
    rng = random.Random(f"reviews {seed}")
    seen: set[str] = set()
    parts: dict[str, list[Review]] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            review = _review(rng)
            if review[0] not in seen:
                parts[name].append(review)
        seen.update(text for text, _ in parts[name])
    return {name: parts[name] for name in ("train", "valid", "test")}


def _review(rng: random.Random) -> Review:
    label = rng.choice(sorted(_WORDS))
    opinions = [rng.choice(_WORDS[rng.choice(sorted(_WORDS))]) for _ in range(rng.randint(1, 3))]
    others = [rng.choice(_OTHERS).format(opinion) for opinion in opinions]
    filler = [
        text.format(**{name: rng.choice(words) for name, words in _BLANKS.items()})
        for text in rng.sample(_FILLER, rng.randint(2, 4))
    ]
    sentences = [rng.choice(_OWN).format(rng.choice(_WORDS[label])), *others, *filler]
    rng.shuffle(sentences)
    return " ".join(sentences), label
