"""Loops compiled by numba where it is installed. Without it their callers take their way in numpy, or in torch.

``compiled`` takes a single loop. ``compile_cached`` takes one built from functions marked ``inline`` or
``no_refcount``, and compiles it in a process of its own. Compiled code is kept in the user's cache folder
(``NUMBA_CACHE_DIR`` names another), never beside the sources: numba reads it with pickle, and what lies beside the
sources may have come with them.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnkit.errors import SystemFailure
from attnkit.io import atomic

# Options of every training loop.
FAST = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    # All that reorders, but not what assumes that there are no NaN: a run that diverges must be seen to.
    "fastmath": {"nsz", "arcp", "contract", "reassoc"},
}


def cache_folder() -> Path:
    """Return where compiled code is kept."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    # Outside of the sources: numba reads its cache with pickle.
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(usual)  # noqa: PTH111 (Path's fails without a home)
    return Path(base) / "attnkit" / "numba"


def _numba() -> Any:
    try:
        import numba
    except ImportError:  # not installed, or it does not take this numpy
        return None
    config: Any = numba.config
    return None if config.DISABLE_JIT else numba


def has_numba() -> bool:
    """Say whether loops can be compiled."""
    return _numba() is not None


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that becomes part of the loops that call it; without numba it stays what it is."""
    numba = _numba()
    if numba is None:
        return function
    marked: Callable[..., Any] = numba.njit(forceinline=True, **FAST)(function)
    return marked


def no_refcount(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that loops call and that counts no references to arrays; it can make none itself.

    Counting takes longer than the arithmetic of a row, and threads that count the same array's wait for each other.
    """
    numba = _numba()
    if numba is None:
        return function
    marked: Callable[..., Any] = numba.njit(_nrt=False, **FAST)(function)
    return marked


def compile_cached(loop: Callable[..., Any], arguments: tuple[Any, ...], words: list[str]) -> Callable[..., Any]:
    """Return a loop over arrays compiled for the types of ``arguments``; numba must be there.

    What the cache does not hold is compiled in another process, ``python -m WORDS``, which must call this function for
    the same loop: numba's compiler takes some 100 MB that a process never gives back. If that fails, or is where we
    are, it is compiled here. Of processes that want the same loop at once one has it compiled, and the others wait.
    """
    numba = _numba()
    # Compiled for these types alone, not on demand.
    types = tuple(numba.typeof(argument) for argument in arguments)
    usual = numba.config.CACHE_DIR
    # numba reads the setting when a function is decorated: set around it, then restored.
    numba.config.CACHE_DIR = str(cache_folder() / _sources())
    try:
        kept = numba.njit(cache=True, **FAST)(loop)
        # Checked again under the lock: another process may have compiled it meanwhile.
        if not os.environ.get(_CHILD) and not _holds(kept, types):
            with _compile_lock(words):
                if not _holds(kept, types):
                    subprocess.run([sys.executable, "-m", *words], env={**os.environ, _CHILD: "1"}, capture_output=True)
        # Loads from the cache if the child has filled it, and compiles otherwise.
        kept.compile(types)
        return _closed(kept)
    except Exception:  # the cache cannot be written to, or is damaged
        pass
    finally:
        numba.config.CACHE_DIR = usual
    passing = numba.njit(**FAST)(loop)
    passing.compile(types)
    return _closed(passing)


_CHILD = "ATTNKIT_COMPILES"


def _holds(function: Any, types: tuple[Any, ...]) -> bool:
    """Say whether numba's cache has the loop for these types, so that compiling it means loading it."""
    kept = function._cache
    return kept._cache_file.load(kept._index_key(types, function.targetctx.codegen())) is not None


@contextmanager
def _compile_lock(words: list[str]) -> Iterator[None]:
    """Let one process at a time compile the same, by a folder that it locks; where none can be, all at once."""
    with ExitStack() as held:
        with suppress(OSError, SystemFailure):
            folder = cache_folder() / _sources() / sha256("\0".join(words).encode()).hexdigest()[:16]
            atomic.make_dirs(folder)
            # The folder itself is locked: no lock file to clean up.
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@cache
def _sources() -> str:
    """Return a name for the sources of this room: numba looks at the loop's own file, but not at those it calls."""
    digest = sha256()
    # Sorted: the order of a directory listing differs between file systems.
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compiled(loop: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """Return a loop over arrays compiled for one signature (numba's notation); None where numba cannot be had."""
    numba = _numba()
    if numba is None:
        return None
    config: Any = numba.config
    folder, usual = str(cache_folder()), config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        kept = numba.njit(cache=True)(loop)
        # Where that folder cannot be written to, numba takes another one.
        if str(kept.stats.cache_path).startswith(folder):
            with _compile_lock([loop.__module__, loop.__qualname__, signature]):
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
    # A call with other types would compile silently, for seconds, in this process.
    function.disable_compile()
    called: Callable[..., Any] = function
    return called
