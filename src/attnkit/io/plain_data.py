"""Plain data as JSON has it."""

from __future__ import annotations

import math


def finite(tree: object) -> object:
    """Return plain data in which numbers that JSON lacks are None."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {key: finite(value) for key, value in tree.items()}
    return [finite(value) for value in tree] if isinstance(tree, list | tuple) else tree
