"""The tables and curves of transfer.py, made from its rows alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from peers import Message, median_and_range

from attnkit.plotting.curves import Curve
from attnkit.plotting.figures import curves_picture

SHOWN = (100, 300, 1000)
"""Steps at which losses are shown; a run that was shortened has its last one alone."""
LAST = {"bert": ("accuracy", "hidden tokens guessed, %"), "translator": ("bleu", "BLEU"), "encoder": ("bleu", "BLEU")}
"""Group -> the score at the end, and what it is called."""
TITLES = {
    "bert": "BERT tiny on Wikipedia: held-out loss by step, by what its embeddings begin with",
    "translator": "English-German: held-out loss by step, by what the embeddings begin with",
    "encoder": "English-German: held-out loss by step, encoder drawn and from BERT",
}


def report(rows: dict[str, Message]) -> str:
    """Return a table for each group of which there are rows, named ``group: name, seed n``."""
    parts = [learning(group, found) for group in LAST if (found := by_name(rows, group))]
    if found := by_name(rows, "languages"):
        parts.append(languages(found))
    return "\n\n".join(parts)


def by_name(rows: dict[str, Message], group: str) -> dict[str, list[Message]]:
    """Return the rows of a group by what begins them, each name's by seed."""
    found: dict[str, list[Message]] = {}
    for key in sorted(rows, key=lambda key: int(key.rpartition(" ")[2])):
        of, _, name = key.rpartition(", seed ")[0].partition(": ")
        if of == group:
            found.setdefault(name, []).append(rows[key])
    return found


def losses(rows: Sequence[Message], step: int) -> list[float]:
    """Return the development set's loss at a step, by seed."""
    return [point["loss"] for row in rows for point in row["curve"] if point["step"] == step]


def learning(group: str, found: dict[str, list[Message]]) -> str:
    """Return how models learn by what they begin with: mean losses, the score at the end, the gain on drawn ones."""
    steps = [step for step in SHOWN if all(losses(rows, step) for rows in found.values())]
    end = max(point["step"] for rows in found.values() for row in rows for point in row["curve"])
    steps = steps if end in steps else [*steps, end]
    score, called = LAST[group]
    heads = [f"### {group}", "", f"| begins with | {' | '.join(f'loss at {step}' for step in steps)} | {called} | "
             "loss at the end less that of drawn, seed by seed |", "|---" * (len(steps) + 3) + "|"]  # fmt: skip
    drawn = losses(found["drawn"], end) if "drawn" in found else []
    for name, rows in found.items():
        means = [f"{statistics.mean(losses(rows, step)):.3f}" for step in steps]
        last = median_and_range([row["curve"][-1][score] for row in rows], 1)
        gains = [own - other for own, other in zip(losses(rows, end), drawn, strict=False)] if name != "drawn" else []
        said = " ".join(f"{gain:+.3f}" for gain in gains)
        heads.append(f"| {name} | {' | '.join(means)} | {last} | {said} |")
    return "\n".join(heads)


def plots(rows: dict[str, Message]) -> dict[str, bytes]:
    """Return the curves of each group as SVG, each the mean of its seeds."""
    drawn = {}
    for group, title in TITLES.items():
        found = by_name(rows, group)
        curves = []
        for name, of_name in found.items():
            steps = [point["step"] for point in of_name[0]["curve"]]
            curves.append(Curve(name, name[0], steps, [statistics.mean(losses(of_name, step)) for step in steps]))
        if curves:
            drawn[group] = curves_picture(curves, title, "svg")
    return drawn


def languages(found: dict[str, list[Message]]) -> str:
    """Return the share of the second language that was wanted and shown, and what is guessed of each language."""
    heads = "| alpha | second language wanted | shown, by seed | first, % | second, % | perplexity |"
    lines = ["### languages", "", heads, "|---" * 6 + "|"]
    for name, rows in found.items():
        shown = " ".join(f"{100 * row['share of what was shown'][1]:.2f}" for row in rows)
        ends = [row["curve"][-1] for row in rows]
        scores = [median_and_range([end[key] for end in ends], 1) for key in ("accuracy_1", "accuracy_2", "perplexity")]
        lines.append(f"| {name} | {100 * rows[0]['p^alpha'][1]:.2f} % | {shown} | {' | '.join(scores)} |")
    return "\n".join(lines)
