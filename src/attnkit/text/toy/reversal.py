"""Digit strings and their reversal (``3 1 4`` → ``4 1 3``): the smallest task that shows what attention is for."""

from __future__ import annotations

import random
from collections import Counter

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
