"""Attention maps for plotting, and the selection of layers and heads.

Letters: L layers, H heads, T queries (rows), S keys (columns).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import UsageError
from attnkit.protocols import TokenRuns, Unit

Choice = int | Literal["mean", "max", "all"]  #: number from 1; mean or maximum over all; each separately
Weights = NDArray[np.float32] | NDArray[np.float64]

RAMP = ("#f7fafc", "#c6ddee", "#70acd4", "#2471b2", "#08306b")
"""Colour scale of weights and shares in figures and HTML pages, starting at 0."""
TITLES = {
    "cross": ("Cross-attention", "rows: target tokens, columns: source tokens"),
    "encoder": ("Encoder self-attention", "rows: source tokens, columns: source tokens"),
    "decoder": ("Decoder self-attention", "rows: target tokens, columns: earlier target tokens"),
    "self": ("Self-attention", "rows: tokens, columns: the tokens that they attend to"),
    "causal": ("Causal self-attention", "rows: tokens, columns: the tokens read so far"),
    "word": ("Word attention", "rows: sentences, columns: their words"),
    "sentence": ("Sentence attention", "row: the document, columns: its sentences"),
}
"""Kind of attention -> title, and description of rows and columns."""


@dataclass(frozen=True)
class AttentionMap:
    """Weights of one kind of attention for one input, over all layers and heads."""

    kind: str
    queries: Sequence[str]  #: T query tokens
    keys: Sequence[str]  #: S key tokens
    weights: Weights  #: (L, H, T, S)
    heads: Sequence[str] = ()  #: attention function of each of the H heads, for display
    note: str = ""  #: appended to the title in parentheses
    first_layer: int = 1  #: number of the first of the L layers, if they are part of a larger stack
    query_runs: TokenRuns | None = None  #: characters and words of the queries
    key_runs: TokenRuns | None = None
    unit: Unit = "token"  #: what queries and keys are

    def __post_init__(self) -> None:
        expected = (len(self.queries), len(self.keys))
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            raise ValueError(f"weights of shape {self.weights.shape} for {expected[0]} queries and {expected[1]} keys")

    @property
    def last_layer(self) -> int:
        """Return the number of the last layer."""
        return self.first_layer + len(self.weights) - 1

    @property
    def title(self) -> str:
        """Return the title of this kind of attention, with the note in parentheses."""
        title = TITLES[self.kind][0] if self.kind in TITLES else f"{self.kind} attention"
        return f"{title} ({self.note})" if self.note else title

    @property
    def axes(self) -> str:
        """Return a description of rows and columns."""
        axes = TITLES[self.kind][1] if self.kind in TITLES else "rows: queries, columns: keys"
        return axes.replace("tokens", "words") if self.unit == "word" else axes


@dataclass(frozen=True)
class BeamNode:
    """A node of a beam search tree, with its token as text."""

    step: int
    parent: int | None
    token: str
    log_prob: float  #: natural log-probability of the prefix that ends in this token
    fate: Literal["open", "pruned", "ended", "cut"]
    score: float | None  #: score of a finished hypothesis that ends here
    best: bool  #: whether it is on the path to the best hypothesis
    text: str = ""  #: the token, or the character that it completes; empty: the token
    joins: int = 1  #: number of tokens that ``text`` covers, this one and its parents


@dataclass(frozen=True)
class AttentionExample:
    """One input with its output, attention maps and search tree."""

    source: str
    target: str  #: target tokens, generated or given
    maps: Sequence[AttentionMap]
    tree: Sequence[BeamNode] = ()
    facts: dict[str, Any] = field(default_factory=dict)  #: further facts by name: score, settings
    sides: tuple[str, str] = ("Source", "Target")  #: display names of source and target


@dataclass(frozen=True)
class MapSlice:
    """One attention matrix to draw."""

    title: str
    axes: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: NDArray[np.float64]  #: (T, S)
    entropy: float  #: mean row entropy in bits; see ``entropies``


def entropies(weights: Weights) -> NDArray[np.float64]:
    """Return the mean row entropy in bits (...) of weights (..., T, S).

    Rows are normalized to sum to one. All-zero rows are ignored; a map with no other rows has entropy 0.
    """
    rows = np.asarray(weights, np.float64)
    sums = rows.sum(-1, keepdims=True)
    shares = np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0)
    logs = np.log2(shares, out=np.zeros_like(rows), where=shares > 0)
    there = (sums > 0)[..., 0]
    total = -(shares * logs).sum(-1).sum(-1, where=there)
    # Rounding errors can make an entropy of zero negative.
    return np.asarray(np.maximum(total / np.maximum(there.sum(-1), 1), 0.0))


def regroup(map: AttentionMap, unit: Unit, special: bool = True) -> AttentionMap:
    """Return a map by unit, with or without the rows and columns of special tokens.

    Attention to a word is the sum over its tokens, attention from a word the mean over its tokens (Clark et al. 2019,
    section 2), so that rows keep their sum. A map without runs of tokens, or with special tokens alone, is
    returned unchanged.
    """
    if map.query_runs is None or map.key_runs is None or (unit == "token" and special):
        return map
    labels: list[list[str]] = []
    weights = np.asarray(map.weights, np.float64)
    for axis, tokens, runs in ((2, map.queries, map.query_runs), (3, map.keys, map.key_runs)):
        units = {"token": [(token, 1) for token in tokens], "character": runs.characters, "word": runs.words}[unit]
        sizes = np.array([n for _, n in units], np.int64)
        starts = np.cumsum(sizes) - sizes
        weights = np.add.reduceat(weights, starts, axis=axis)
        if axis == 2:
            weights /= sizes[:, None]  # (L, H, T, S): the mean over the tokens of a query
        kept = [i for i, start in enumerate(starts.tolist()) if special or not runs.special[start]]
        weights = weights.take(kept, axis=axis)
        labels.append([units[i][0] for i in kept])
    queries, keys = labels
    if not queries or not keys:
        return map
    return replace(map, queries=queries, keys=keys, weights=weights, query_runs=None, key_runs=None, unit=unit)


def select_slices(map: AttentionMap, layer: Choice, head: Choice) -> list[MapSlice]:
    """Return the matrices for a choice of layers and heads, layer by layer.

    Raises:
        UsageError: the map has no layer or head of that number.
    """
    ranges: list[list[tuple[slice, str]]] = []  # per axis (layers, heads): slices to reduce, with names
    for noun, choice, first, n in (
        ("layer", layer, map.first_layer, map.weights.shape[0]),
        ("head", head, 1, map.weights.shape[1]),
    ):
        if isinstance(choice, int) and not first <= choice < first + n:
            help = f"choose {first} to {first + n - 1}, mean, max or all"
            raise UsageError(f"{map.title} has no {noun} {choice}", where=f"--{noun}", help=help)
        if isinstance(choice, int):
            ranges.append([(slice(choice - first, choice - first + 1), f"{noun} {choice}")])
        elif choice == "all" or n == 1:
            ranges.append([(slice(i, i + 1), f"{noun} {i + first}") for i in range(n)])
        else:
            ranges.append([(slice(0, n), f"{'mean' if choice == 'mean' else 'largest'} of {n} {noun}s")])
    slices = []
    for (layers, layer_name), (heads, head_name) in product(*ranges):
        cut = np.asarray(map.weights[layers, heads], np.float64)  # (layers, heads, T, S)
        cut = cut.max(1) if head == "max" else cut.mean(1)
        cut = cut.max(0) if layer == "max" else cut.mean(0)  # (T, S)
        computes = f" ({map.heads[heads.start]})" if map.heads and heads.stop == heads.start + 1 else ""
        title = f"{map.title}, {layer_name}, {head_name}{computes}"
        slices.append(MapSlice(title, map.axes, map.queries, map.keys, cut, float(entropies(cut))))
    return slices


def to_dict(sentence: AttentionExample) -> dict[str, Any]:
    """Return an example as plain data: tokens, weights, entropies and search tree."""
    maps = [
        {
            "kind": map.kind,
            "note": map.note,
            "unit": map.unit,
            "layers": map.weights.shape[0],
            "first_layer": map.first_layer,
            "heads": map.weights.shape[1],
            "head_names": list(map.heads),
            "queries": list(map.queries),
            "keys": list(map.keys),
            "entropy_bits": entropies(map.weights).round(6).tolist(),
            "weights": map.weights.tolist(),
        }
        for map in sentence.maps
    ]
    tree = [vars(branch) for branch in sentence.tree]
    return {"source": sentence.source, "target": sentence.target, **sentence.facts, "attention": maps, "tree": tree}


def display_text(token: str) -> str:
    """Return a token for display, with unprintable characters and blanks visible."""
    text = "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in token)
    return text if text.strip() else "␣" * max(1, len(text))
