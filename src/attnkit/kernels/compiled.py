"""Loops compiled by numba where it is installed. Without it their callers take their way in numpy.

Compiled code is kept in the user's cache folder (``NUMBA_CACHE_DIR`` names another), never beside the sources: numba
reads it with pickle, and what lies beside the sources may have come with them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return where compiled code is kept."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(usual)  # noqa: PTH111 (Path's fails without a home)
    return Path(base) / "attnkit" / "numba"


def compiled(loop: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """Return a loop over arrays compiled for one signature (numba's notation); None where numba cannot be had."""
    try:
        import numba
    except ImportError:  # not installed, or it does not take this numpy
        return None
    config: Any = numba.config
    if config.DISABLE_JIT:
        return None
    folder, usual = str(cache_folder()), config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        kept = numba.njit(cache=True)(loop)
        # Where that folder cannot be written to, numba takes another one.
        if str(kept.stats.cache_path).startswith(folder):
            kept.compile(signature)
            return _closed(kept)
    except Exception:  # its disk is full, or what lies there is damaged
        pass
    finally:
        config.CACHE_DIR = usual
    passing = numba.njit(loop)
    passing.compile(signature)
    return _closed(passing)


def _closed(function: Any) -> Callable[..., Any]:
    """Return a compiled function that refuses arguments of other types instead of being compiled again."""
    function.disable_compile()
    called: Callable[..., Any] = function
    return called
