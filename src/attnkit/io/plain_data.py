"""Plain data as JSON has it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any


def plain(tree: object) -> Any:
    """Return data as JSON has it: paths as text, numbers that JSON lacks as None."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, Path):
        return str(tree)
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree
