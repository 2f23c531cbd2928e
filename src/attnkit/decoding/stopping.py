"""Flags that end the search of lines early, set by another thread. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

StopCheck = Callable[[], NDArray[np.bool_]]
"""Function that returns which sentences of a search are to end, (B,). Searches call it between steps."""


class StopFlags:
    """A flag for each line, or one for all lines: set, it ends the search of the line.

    A stopped line has what was found so far, or nothing: its caller does not want it. Other lines have the results that
    they have without the flags. A flag that is set stays set, so later searches of the line end at once.
    """

    def __init__(self, flags: NDArray[np.bool_] | int = 1) -> None:
        """Make so many flags, none of them set, or share those of an array (n,)."""
        self._flags = np.zeros(flags, np.bool_) if isinstance(flags, int) else flags  # (n,)

    def set(self, number: int) -> None:
        """Stop a line."""
        self._flags[number] = True

    def set_all(self) -> None:
        """Stop all lines."""
        self._flags.fill(True)

    def one(self, number: int) -> StopFlags:
        """Return the flag of a line as one for all lines of another call."""
        return StopFlags(self._flags[number : number + 1])

    def check(self, lines: Sequence[int]) -> StopCheck:
        """Return a function that says which of these lines are to end."""
        flags = self._flags
        places = np.array(lines, np.int64) if len(flags) > 1 else np.zeros(len(lines), np.int64)  # (B,)
        return lambda: flags[places]
