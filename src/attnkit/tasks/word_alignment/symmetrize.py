"""Symmetrization of word alignments (Och and Ney 2003; Koehn, Och and Marcu 2003).

Links are pairs (source position, target position), counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

Links = set[tuple[int, int]]
Method = Literal[
    "forward", "reverse", "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
]  # fmt: skip
METHODS: tuple[Method, ...] = get_args(Method)
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrize(forward: Links, reverse: Links, method: Method) -> Links:
    """Combine source-to-target and target-to-source links by a method."""
    if method == "forward":
        return forward
    if method == "reverse":
        return reverse
    if method == "union":
        return forward | reverse
    if method == "intersection":
        return forward & reverse
    links = grow_diag(forward, reverse)
    if method != "grow-diag":
        # final: add links of either direction whose source or target word is unaligned; final-and: both words.
        need: Callable[[tuple[bool, bool]], bool] = all if method == "grow-diag-final-and" else any
        for rest in (forward, reverse):
            src, tgt = {i for i, _ in links}, {j for _, j in links}
            for i, j in sorted(rest, key=_by_target):
                if need((i not in src, j not in tgt)):
                    links.add((i, j))
                    src.add(i)
                    tgt.add(j)
    return links


def _by_target(link: tuple[int, int]) -> tuple[int, int]:
    return link[1], link[0]


def grow_diag(forward: Links, reverse: Links) -> Links:
    """Grow the intersection with neighbouring links of the union, also diagonal ones.

    A neighbour is added if its source or target word has no link yet. Links, including those just added, are visited in
    order of their target words, repeatedly until no more are added.
    """
    union, links = forward | reverse, forward & reverse
    src, tgt = {i for i, _ in links}, {j for _, j in links}
    order = sorted(union, key=_by_target)
    n_before = -1
    while n_before < len(links) < len(union):
        n_before = len(links)
        for i, j in order:
            if (i, j) not in links:
                continue
            for down, right in _NEIGHBOURS:
                near = (i + down, j + right)
                if near in union and (near[0] not in src or near[1] not in tgt):
                    links.add(near)
                    src.add(near[0])
                    tgt.add(near[1])
    return links
