"""Worked example of attention, step by step, as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORMULAS = {
    "similarity": "s = cos(k, q), the cosine of the angle between them",
    "dot": "s = q · k",
    "scaled_dot": "s = q · k / √d, with d = 3",
    "general": "s = q · W k",
    "biased_general": "s = k · (W q + b)",
    "activated_general": "s = tanh(q · W k + b)",
    "kernel": "s = φ(q) · φ(k), φ positive random features (FAVOR+)",
    "concat": "s = w · tanh(W [q; k] + b)",
    "additive": "s = w · tanh(W₁ q + W₂ k + b)",
    "deep": "s = w · E² + b³, E² = tanh(W₂ E¹ + b²), E¹ = tanh(W₁ k + W₀ q) + b¹",
    "location": "s = w · q with a separate w for each position",
    "feature": "s = w · tanh(W₁ φ₁(K) + W₂ φ₂(K) + b), φ₁ the key, φ₂ its position",
    "softmax": "weight = exp(s) / sum of all exp(s)",
    "normalize": "weight = s / sum of all s",
    "hard": "weight = 1 for the largest score (the first if tied), else 0",
    "sigmoid": "weight = 1 / (1 + exp(-s)), independently for each word",
    "sparsemax": "weight = max(s - τ, 0), τ such that all sum to one",
    "entmax15": "weight = max(s/2 - τ, 0)², τ such that all sum to one",
    "local": "weight = softmax near a centre c, times exp(-(i - c)² / 2σ²)",
}
"""Function name -> formula, in the notation of Table 2 of the notes: q is the query, k a key.

Functions of a user, which are not in it, are shown by name."""


@dataclass(frozen=True)
class ExampleStep:
    """An intermediate result with one value per word."""

    name: str
    formula: str
    values: Sequence[float]


@dataclass(frozen=True)
class WorkedExample:
    """One query and its keys (also the values), with all intermediate results."""

    words: Sequence[str]
    query: Sequence[float]
    keys: Sequence[Sequence[float]]
    pair: tuple[str, str]  #: names of the alignment and the distribution function
    seed: int | None  #: seed of the parameters; None without parameters
    parameters: Mapping[str, Any]  #: name -> values as lists, nested like the parameter
    steps: Sequence[ExampleStep]
    scores: Sequence[float]
    weights: Sequence[float]
    context: Sequence[float]

    def to_dict(self) -> dict[str, Any]:
        """Return the example as plain data."""
        plain: dict[str, Any] = {"example": "cat", "alignment": self.pair[0], "distribution": self.pair[1]}
        plain |= {"seed": self.seed, "words": list(self.words)}
        plain |= {"query": self.query, "keys": self.keys, "values": self.keys}
        plain |= {"parameters": self.parameters, "steps": [vars(step) for step in self.steps]}
        return {**plain, "scores": self.scores, "weights": self.weights, "context": self.context}


def render_example(walk: WorkedExample) -> str:
    """Format the example as text, at most 80 columns wide."""
    alignment, distribution = walk.pair
    lines = ['Writing "assis", which words of "The cat sat on the mat" does the decoder need?', ""]
    lines += ["   word    key (also the value)"]
    lines += [f"   {word:<6}  {_vector(key, 0)}" for word, key in zip(walk.words, walk.keys, strict=True)]
    lines += [f"   query   {_vector(walk.query, 0)}", ""]
    if walk.parameters:
        lines.append(f"Random parameters, seed {walk.seed}")
        for name, values in walk.parameters.items():
            rows = _rows(values)
            lines += [f"   {name if i == 0 else '':<20}  {_vector(row)}" for i, row in enumerate(rows)]
        lines.append("")
    before = {step.name: step.values for step in walk.steps}
    verb, number = "Score", 1
    if "dot products" in before:
        lines += ["1. Compare the query with each key: q · k", *_numbers(walk, before["dot products"]), ""]
        verb, number = "Scale", 2
    formulas = [FORMULAS.get(name, f"{name}: its source has the formula") for name in walk.pair]
    lines += [f"{number}. {verb} by {alignment}", f"   {formulas[0]}", *_numbers(walk, walk.scores), ""]
    lines += [f"{number + 1}. Compute weights by {distribution}", f"   {formulas[1]}"]
    if "exponentials" in before:
        powers = before["exponentials"]
        lines += ["   exp(s)", *_numbers(walk, powers), f"   their sum is {sum(powers):.3f}; each is divided by it"]
    lines += [*_numbers(walk, walk.weights), f"   the weights sum to {sum(walk.weights):.3f}", ""]
    lines.append(f"{number + 2}. Add up the values, each times its weight")
    for word, key, weight in zip(walk.words, walk.keys, walk.weights, strict=True):
        lines.append(f"   {word:<6}  {weight:6.3f} x {_vector(key, 0)} = {_vector([weight * part for part in key])}")
    return "\n".join([*lines, f"   context                  {_vector(walk.context)}", ""])


def _numbers(walk: WorkedExample, values: Sequence[float]) -> list[str]:
    """Return a line of words and a line of their values."""
    heads = "".join(f"{word:>9}" for word in walk.words)
    return [f"   {heads}", "   " + "".join(f"{value:9.3f}" for value in values)]


def _vector(values: Sequence[float], digits: int = 3) -> str:
    return "[" + ", ".join(f"{value:.{digits}f}" for value in values) + "]"


def _rows(values: Any) -> list[list[float]]:
    if not isinstance(values, list):
        return [[float(values)]]
    if not values or not isinstance(values[0], list):
        return [values]
    return [row for part in values for row in _rows(part)]
