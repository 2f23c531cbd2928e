"""Plain data as JSON has it."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast


def plain(tree: object) -> Any:
    """Return data as JSON has it: paths as text, numbers that JSON lacks as None."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, Path):
        return str(tree)
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


class PlainResult:
    """Base class of results: dataclasses that can be plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them."""
        tree: dict[str, Any] = plain(asdict(cast(Any, self)))
        return tree
