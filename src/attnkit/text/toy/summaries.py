"""Short reports and their one-line headlines: summarization as sequence-to-sequence training."""

from __future__ import annotations

import random

Pair = tuple[str, str]
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
