"""Merges with which byte-pair encoding continues on other text."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from attnkit.text.vocabulary_schema import MAX_TOKEN_BYTES


def join_pairs(
    pieces: list[list[str]], counts: Sequence[int], known: set[str], n_entries: int, min_frequency: int
) -> list[list[str]]:
    """Return ``n_entries`` merges of neighbours, or fewer, most frequent first.

    ``pieces`` are those of words, which ``counts`` counts; both lists of pieces and ``known`` entries, which are never
    made anew, are changed. Ties go to the first pair in order.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # words that have had the pair
    for number, word in enumerate(pieces):
        for pair in pairwise(word):
            pairs[pair] += counts[number]
            places[pair].add(number)
    merges = list[list[str]]()
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)
    while heap and len(merges) < n_entries:
        n, pair = heapq.heappop(heap)
        if -n != pairs[pair]:  # outdated: the current count is in the heap too, if any is left
            continue
        if -n < min_frequency:
            break
        joined = "".join(pair)
        if joined in known or len(joined) > MAX_TOKEN_BYTES:
            continue
        merges.append(list(pair))
        known.add(joined)
        changes: Counter[tuple[str, str]] = Counter()
        for number in places.pop(pair):
            before = pieces[number]
            pieces[number] = after = _merged(before, pair)
            for sign, word in ((-1, before), (1, after)):
                for other in pairwise(word):
                    changes[other] += sign * counts[number]
                    if sign > 0:
                        places[other].add(number)
        for other, change in changes.items():
            pairs[other] += change
            # Most neighbours in a long word are the same as before: the heap has their count.
            if change and other != pair:
                heapq.heappush(heap, (-pairs[other], other))
    return merges


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in word:
        # From left to right: a piece that was just made is no left side of the same merge.
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
