"""Symmetrised alignments against the algorithm as it is printed (Koehn 2010, fig. 4.14), over the whole grid."""

from __future__ import annotations

import random

from attnkit.tasks.word_alignment.symmetrize import METHODS, Links, symmetrize

NEIGHBOURING = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def printed(f2e: Links, e2f: Links, n_src: int, n_tgt: int, final: str | None) -> Links:
    """Do GROW-DIAG, then FINAL or FINAL-AND over either direction; every loop runs over all words."""
    alignment, union = f2e & e2f, f2e | e2f

    def aligned(place: int, side: int) -> bool:
        return any(link[side] == place for link in alignment)

    added = True
    while added:
        added = False
        for e in range(n_tgt):
            for f in range(n_src):
                if (f, e) not in alignment:
                    continue
                for df, de in NEIGHBOURING:
                    new = (f + df, e + de)
                    free = not aligned(new[0], 0) or not aligned(new[1], 1)
                    if free and new in union and new not in alignment:
                        alignment = alignment | {new}
                        added = True
    for direction in (f2e, e2f) if final else ():
        for e in range(n_tgt):
            for f in range(n_src):
                free = [not aligned(f, 0), not aligned(e, 1)]
                if (f, e) in direction and (all(free) if final == "and" else any(free)):
                    alignment = alignment | {(f, e)}
    return alignment


def random_links(rng: random.Random, n_src: int, n_tgt: int) -> tuple[Links, Links]:
    """Return one link a target word and one a source word, near the diagonal as a rule, some missing."""

    def near(place: int, n_from: int, n_to: int) -> int:
        return max(0, min(n_to - 1, place * n_to // n_from + rng.choice([-2, -1, 0, 0, 0, 1, 2])))

    there = {(near(j, n_tgt, n_src), j) for j in range(n_tgt) if rng.random() < 0.9}
    return there, {(i, near(i, n_src, n_tgt)) for i in range(n_src) if rng.random() < 0.9}


def test_equals_the_printed_algorithm() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        n_src, n_tgt = rng.randint(1, 9), rng.randint(1, 9)
        forward, reverse = random_links(rng, n_src, n_tgt)
        found = {method: symmetrize(set(forward), set(reverse), method) for method in METHODS}
        assert found["forward"] == forward and found["reverse"] == reverse, seed
        assert found["union"] == forward | reverse and found["intersection"] == forward & reverse, seed
        assert found["grow-diag"] == printed(forward, reverse, n_src, n_tgt, None), seed
        assert found["grow-diag-final"] == printed(forward, reverse, n_src, n_tgt, "or"), seed
        assert found["grow-diag-final-and"] == printed(forward, reverse, n_src, n_tgt, "and"), seed
        assert found["intersection"] <= found["grow-diag"] <= found["grow-diag-final-and"] <= found["union"], seed
        assert found["grow-diag"] <= found["grow-diag-final"] <= found["union"], seed


def test_the_methods_differ() -> None:
    """The random cases tell the methods apart: each adds something to the one before, in some case."""
    grown = [0, 0, 0]
    for seed in range(150):
        rng = random.Random(seed)
        forward, reverse = random_links(rng, rng.randint(1, 9), rng.randint(1, 9))
        names = ("intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final")
        sizes = [len(symmetrize(forward, reverse, name)) for name in names]
        grown = [n + (b > a) for n, a, b in zip(grown, sizes[:-1], sizes[1:], strict=True)]
    assert min(grown) >= 5, grown


def test_a_worked_example() -> None:
    """Source a b c d e, target 0 1 2 3 4. Both directions agree on 0-0 and 3-2.

    From 0-0 grow 1-0, since b has no link yet, and diagonally 1-1, since 1 has none; from 1-1 grows 2-2, since c has
    none, and from 3-2 grows 4-3. 1-2 is a neighbour of two links, but b and 2 have links by then: only the union
    has it.
    0-4 is a neighbour of none; 4 has no link and a has one, so FINAL takes it and FINAL-AND does not.
    """
    forward: Links = {(0, 0), (1, 1), (3, 2), (4, 3), (0, 4)}
    reverse: Links = {(0, 0), (1, 0), (2, 2), (3, 2), (1, 2)}
    assert symmetrize(forward, reverse, "intersection") == {(0, 0), (3, 2)}
    grown = {(0, 0), (1, 0), (1, 1), (2, 2), (3, 2), (4, 3)}
    assert symmetrize(forward, reverse, "grow-diag") == grown
    assert symmetrize(forward, reverse, "grow-diag-final-and") == grown
    assert symmetrize(forward, reverse, "grow-diag-final") == grown | {(0, 4)}
    assert symmetrize(forward, reverse, "union") == grown | {(0, 4), (1, 2)}
