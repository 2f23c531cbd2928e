"""The tables and verdicts of word2vec.py, made from its rows alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from peers import Message, median_and_range

SETS = ("wordsim353", "simlex999", "analogies")
MARGIN = -0.015
TARGETS = {
    "skip-gram": (8.0, 12.0), "cbow": (3.3, 5.0), "end-to-end": (6.0, 9.0), "exact": (1.7, 2.5),
    "deterministic": (None, None), "subwords": (3.0, None),
}  # fmt: skip
"""Row -> floor and aim."""


def student(chance: float, freedom: float) -> float:
    """Return the point that Student's t falls below with this chance (above a half), by integrating its density."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    step, x, reached = 1e-4, 0.0, 0.5
    while reached < chance:
        reached += step * scale * (1 + (x + step / 2) ** 2 / freedom) ** (-(freedom + 1) / 2)
        x += step
    return x


def difference(own: Sequence[float], peer: Sequence[float]) -> Message:
    """Return the difference of two means, with the lower ends of Welch's intervals: one-sided 95 % and two-sided."""
    gap = statistics.mean(own) - statistics.mean(peer)
    spreads = [statistics.variance(values) / len(values) for values in (own, peer)]
    total = sum(spreads)
    if not total:
        return {"difference": gap, "lower": gap, "lower two-sided": gap}
    freedom = total**2 / sum(s**2 / (len(v) - 1) for s, v in zip(spreads, (own, peer), strict=True))
    ends = {"lower": 0.95, "lower two-sided": 0.975}
    return {"difference": gap, **{name: gap - student(p, freedom) * math.sqrt(total) for name, p in ends.items()}}


def verdict(ratio: float, row: str) -> str:
    """Return whether a ratio reaches the row's floor and aim."""
    floor, aim = TARGETS[row]
    if floor is None:
        return "no floor"
    if ratio < floor:
        return f"**below the floor of {floor:g}**"
    if aim is None or ratio >= aim:
        return f"floor {floor:g} reached" + (f", aim {aim:g} reached" if aim else "")
    return f"floor {floor:g} reached, aim {aim:g} missed"


def speed_table(rows: dict[str, tuple[list[Message], list[Message]]]) -> str:
    """Return words/s, ratios and verdicts; ``rows`` gives the trainings of the peer and ours by row, in turn."""
    lines = ["| row | the peer's words/s, median (range) | attnkit's | attnkit is (pair by pair) | verdict |",
             "|---|---|---|---|---|"]  # fmt: skip
    for row, (peer, own) in rows.items():
        theirs, ours = [r["words/s"] for r in peer], [r["words/s"] for r in own]
        ratio = statistics.median(ours) / statistics.median(theirs)
        pairs = [b / a for a, b in zip(theirs, ours, strict=False)]
        lines.append(
            f"| {row} | {median_and_range(theirs, 0)} | {median_and_range(ours, 0)} | {ratio:.1f} x "
            f"({min(pairs):.1f}-{max(pairs):.1f}) | {verdict(ratio, row)} |"
        )
    return "\n".join(lines)


def end_to_end_table(peer: list[Message], cold: list[Message], warm: list[Message]) -> str:
    """Return the time from the file to saved vectors, start of the process and compilation included."""
    sides = {"gensim": peer, "attnkit, nothing compiled yet": cold, "attnkit, again": warm}
    walls = {name: [record["wall"] for record in records] for name, records in sides.items()}
    lines = ["| from the file to saved vectors | s, median (range) | attnkit is | verdict |", "|---|---|---|---|"]
    for name, values in walls.items():
        ratio = statistics.median(walls["gensim"]) / statistics.median(values)
        said = verdict(ratio, "end-to-end") if "nothing" in name else ""
        lines.append(f"| {name} | {median_and_range(values, 1)} | {ratio:.1f} x | {said} |")
    return "\n".join(lines)


def quality_table(rows: dict[str, tuple[list[Message], list[Message]]]) -> str:
    """Return the scores of both sides, the mean difference and its lower 95 % bound."""
    lines = ["| row | set | the peer's mean (sd) | attnkit's | difference | lower 95 % bound | |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row, (peer, own) in rows.items():
        if min(len(peer), len(own)) < 2:
            continue
        for name in SETS:
            theirs, ours = ([r["scores"][name]["score"] for r in side] for side in (peer, own))
            gap = difference(ours, theirs)
            means = [f"{statistics.mean(v):.4f} ({statistics.stdev(v):.4f})" for v in (theirs, ours)]
            said = "equal" if gap["lower"] >= MARGIN else "**not shown equal**"
            bounds = f"{gap['difference']:+.4f} | {gap['lower']:+.4f}"
            lines.append(f"| {row} | {name} | {means[0]} | {means[1]} | {bounds} | {said} |")
    return "\n".join(lines)


def memory_table(rows: dict[str, tuple[list[Message], list[Message]]]) -> str:
    """Return the highest memory of all trainings of a row."""
    lines = ["| row | the peer's process, MB | attnkit's process | its largest child | together | |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for row, (peer, own) in rows.items():
        theirs = max(r["memory"]["process"] for r in peer)
        ours = {name: max(r["memory"][name] for r in own) for name in ("process", "largest child", "together")}
        said = "no higher" if ours["process"] <= theirs else "**higher**"
        numbers = " | ".join(f"{value:.0f}" for value in ours.values())
        lines.append(f"| {row} | {theirs:.0f} | {numbers} | {said} |")
    return "\n".join(lines)


def search_table(searches: dict[str, tuple[dict[float, list[float]], float | None]]) -> str:
    """Return the mean score of each learning rate that was tried, how often, and which was chosen."""
    lines = ["| system | mean score by learning rate (trainings) | chosen |", "|---|---|---|"]
    for system, (found, chosen) in searches.items():
        tried = ", ".join(f"{alpha:g}: {statistics.mean(each):.4f} ({len(each)})" for alpha, each in found.items())
        lines.append(f"| {system} | {tried} | {'-' if chosen is None else format(chosen, 'g')} |")
    return "\n".join(lines)


def misspelt_table(peer: Message, own: Message, meant: dict[str, str]) -> str:
    """Return what both find near misspelt words that the text has not, and for how many the word meant is among it."""
    lines = ["| misspelt | fastText's nearest | attnkit's nearest |", "|---|---|---|"]
    asked = [word for word in meant if not own[word]["known"]]
    found = {"fastText": 0, "attnkit": 0}
    for word in asked:
        for name, side in (("fastText", peer), ("attnkit", own)):
            found[name] += meant[word] in side[word]["neighbours"]
        shown = [", ".join(side[word]["neighbours"][:4]) for side in (peer, own)]
        lines.append(f"| {word} | {shown[0]} | {shown[1]} |")
    told = " and ".join(f"{n} ({name})" for name, n in found.items())
    lines.append(f"\nOf {len(asked)} words not in the text, the one meant is among the ten nearest for {told}.")
    return "\n".join(lines)


def scaling_table(cells: list[Message], limits: dict[str, Message], kernel: Message) -> str:
    """Return words/s and memory by threads, size of the text and dim, beside what the machine could do."""
    lines = ["| threads | text | dim | gensim's words/s | attnkit's, median (range) | MB, gensim and attnkit | "
             "arithmetic's limit | memory's limit | share of the lower |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for cell in cells:
        peer, own = cell["gensim"], cell["attnkit"]
        if not own:
            continue
        bounds = limits_of(limits[str(cell["threads"])][str(cell["dim"])], cell, kernel)
        median = statistics.median(r["words/s"] for r in own)
        theirs = f"{peer[0]['words/s']:,.0f}" if peer else "-"
        memory = f"{peer[0]['memory']['process']:.0f}" if peer else "-"
        lines.append(
            f"| {cell['threads']} | {cell['name']}: {cell['words'] / 1e6:.1f} M words | {cell['dim']} | {theirs} | "
            f"{median_and_range([r['words/s'] for r in own], 0)} | {memory}, "
            f"{max(r['memory']['process'] for r in own):.0f} | {bounds[0] / 1e6:.1f} M | {bounds[1] / 1e6:.1f} M | "
            f"{median / min(bounds):.0%} |"
        )
    return "\n".join(lines)


def limits_of(limit: Message, cell: Message, kernel: Message) -> tuple[float, float]:
    """Return words/s that arithmetic and that memory alone would allow to skip-gram with shared negatives.

    A word that survives subsampling meets m neighbours, window + 1 on average, and the K shared negatives: for each a
    product and two additions to rows, 6 P operations, P being dim rounded up to 16. It touches its input row, its
    output row, and its share of the negatives' rows: one block of them for so many words.
    """
    kept = cell["kept"] / cell["words"]
    width = -(-cell["dim"] // 16) * 16
    operations = kept * (kernel["window"] + 1 + kernel["shared"]) * 6 * width
    touched = kept * (2 + kernel["shared"] / kernel["block"])
    return limit["GFLOP/s"] * 1e9 / operations, limit["rows/s"] / touched


def verdicts(rows: dict[str, tuple[list[Message], list[Message]]], walls: tuple[list[Message], list[Message]]) -> str:
    """Return one line for each floor and aim: speed at equal quality."""
    lines = ["| row | floor | aim | measured | speed | quality |", "|---|---|---|---|---|---|"]
    for row, (floor, aim) in TARGETS.items():
        if row == "end-to-end":
            sides: Any = rows.get("skip-gram", ([], []))
            ratio = _ratio(*walls, key="wall")
        else:
            sides = rows.get(row, ([], []))
            ratio = _ratio(sides[1], sides[0], key="words/s")
        if ratio is None:
            continue
        worst = worst_bound(*sides)
        equal = worst is not None and worst >= MARGIN
        bound = "one seed" if worst is None else f"lowest bound {worst:+.4f}"
        quality = f"{'equal' if equal else '**not shown equal**'} ({bound})"
        lines.append(f"| {row} | {floor or '-'} | {aim or '-'} | {ratio:.2f} x | {verdict(ratio, row)} | {quality} |")
    return "\n".join(lines)


def _ratio(over: list[Message], under: list[Message], key: str) -> float | None:
    if not over or not under:
        return None
    return statistics.median(r[key] for r in over) / statistics.median(r[key] for r in under)


def worst_bound(peer: list[Message], own: list[Message]) -> float | None:
    """Return the lowest of the lower bounds over the sets; None where a side has no two seeds."""
    if min(len(peer), len(own)) < 2:
        return None
    scores = [[[r["scores"][name]["score"] for r in side] for side in (own, peer)] for name in SETS]
    return min(difference(*sides)["lower"] for sides in scores)
