"""The tables and verdicts of mlm.py, made from its rows alone."""

from __future__ import annotations

import math
import statistics

from peers import Message, median_and_range
from word2vec_report import student

OWN = "attnkit"
TIMED = "attnkit, same minutes"
TARGETS = {"hf best": (1.6, 2.3), "hf default": (2.8, 4.5)}
"""Peer -> floor and aim of the ratio."""
AGAINST = {"hf best": OWN, "hf default": OWN, "hf dropout": "attnkit dropout"}
TITLES = {"across": "Attending across documents", "isolated": "Documents isolated"}


def report(table: str, done: dict[str, list[Message]], probed: dict[str, Message]) -> str:
    """Return the tables of one way to attend; ``done`` gives the trainings of each system by seed."""
    parts = [f"### {TITLES[table]}"]
    if probed:
        parts.append(probe_table(probed))
    done = {name: rows for name, rows in done.items() if rows}
    if not done:
        return parts[-1] if probed else ""
    parts.append(speed_table(done))
    if losses := loss_table(done):
        parts.append(losses)
    return "\n\n".join(parts)


def probe_table(probed: dict[str, Message]) -> str:
    """Return how fast the peer's ways are in a few steps."""
    lines = ["| the Trainer, bfloat16, no dropout | text tokens/s | padding |", "|---|---|---|"]
    fastest = max(row["tokens/s"] for row in probed.values())
    for name, row in probed.items():
        speed = "failed" if "failed" in row else f"{row['tokens/s']:,.0f}"
        lines.append(f"| {name} | {f'**{speed}**' if row['tokens/s'] == fastest else speed} | {row['padding']:.1%} |")
    return "\n".join(lines)


def speed_table(done: dict[str, list[Message]]) -> str:
    """Return tokens/s, ratios and verdicts."""
    lines = ["| system | text tokens/s, median (range) | attnkit is (seed by seed) | verdict | padding | "
             "tokens a step | start and end, s | memory, MB |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, rows in done.items():
        own = done.get(AGAINST.get(name, ""), [])
        said = verdict = ""
        if own:
            ratio = statistics.median(speeds(own)) / statistics.median(speeds(rows))
            pairs = [b / a for a, b in zip(speeds(rows), speeds(own), strict=False)]
            said, verdict = f"{ratio:.2f} x ({min(pairs):.2f}-{max(pairs):.2f})", judge(ratio, name)
        around = statistics.median(row["wall"] - row["seconds"] for row in rows)
        text = statistics.mean(row["text tokens"] / row["steps"] for row in rows)
        memory = statistics.median(row["memory"]["together"] for row in rows)
        lines.append(
            f"| {name} | {median_and_range(speeds(rows), 0)} | {said} | {verdict} | {rows[0]['padding']:.1%} | "
            f"{text:,.0f} | {around:.0f} | {memory:,.0f} |"
        )
    return "\n".join(lines)


def speeds(rows: list[Message]) -> list[float]:
    """Return tokens a second, by seed."""
    return [float(row["tokens/s"]) for row in rows]


def judge(ratio: float, name: str) -> str:
    """Return whether a ratio reaches floor and aim."""
    if name not in TARGETS:
        return ""
    floor, aim = TARGETS[name]
    if ratio < floor:
        return f"**below the floor of {floor:g}**"
    return f"floor {floor:g} reached, aim {aim:g} {'reached' if ratio >= aim else 'missed'}"


def loss_table(done: dict[str, list[Message]]) -> str:
    """Return held-out losses: attnkit's less the peer's at equal steps, and at the peer's minutes."""
    lines = ["| held-out loss | nats, by seed | mean | attnkit's less this, 95 % interval | verdict |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, rows in done.items():
        losses = [float(row["loss"]) for row in rows]
        steps = statistics.mean(row["steps"] for row in rows)
        said, verdicts = [], []
        others = [AGAINST.get(name, ""), TIMED if name == "hf best" else ""]
        for what, other in zip(("same steps", "same minutes"), others, strict=True):
            if other in done and min(len(done[other]), len(rows)) > 1:
                gap, half = interval([float(row["loss"]) for row in done[other]], losses)
                said.append(f"{what}: {gap:+.3f} ± {half:.3f}")
                verdicts.append("equal within noise" if abs(gap) <= half else "lower" if gap < 0 else "**higher**")
        cells = [" ".join(f"{loss:.3f}" for loss in losses), f"{statistics.mean(losses):.3f}"]
        cells += [", ".join(said), ", ".join(verdicts)]
        lines.append(f"| {name}, {steps:,.0f} steps | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(own: list[float], peer: list[float]) -> tuple[float, float]:
    """Return the difference of two means and half the width of Welch's two-sided 95 % interval."""
    gap = statistics.mean(own) - statistics.mean(peer)
    spreads = [statistics.variance(values) / len(values) for values in (own, peer)]
    total = sum(spreads)
    if not total:
        return gap, 0.0
    freedom = total**2 / sum(s**2 / (len(v) - 1) for s, v in zip(spreads, (own, peer), strict=True))
    return gap, student(0.975, freedom) * math.sqrt(total)
