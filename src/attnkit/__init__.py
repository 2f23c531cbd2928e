"""attnkit: raw text to a scored translation, as a command line and as a library.

``import attnkit`` is cheap: torch is imported by the first call that needs it.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnkit.tasks.translate import Translator

try:
    __version__ = version("attnkit")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__", "load"]


def load(run: str | Path, *runs: str | Path, device: str = "auto", precision: str = "float32") -> Translator:
    """Load a run (or several, as an ensemble) for translating and scoring.

    Raises:
        RunError: no run, a damaged one, or one of another kind.
    """
    from attnkit.tasks.translate import load_translator

    return load_translator([Path(run), *map(Path, runs)], device=device, precision=precision)
