"""Loops compiled by numba where it is installed. Without it callers compute in numpy, in plain Python or in torch.

Compiled code is kept in the user's cache folder (``NUMBA_CACHE_DIR`` names another), never beside the sources: numba
reads it with pickle, and what lies beside the sources may have come with them.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(folder)
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


def _marked(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    numba = _numba()
    marked: Callable[..., Any] = function if numba is None else numba.njit(**options, **FAST)(function)
    return marked


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that becomes part of the loops that call it; without numba it stays what it is."""
    return _marked(function, forceinline=True)


def no_refcount(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that loops call and that counts no references to arrays; it can make none itself.

    Counting takes longer than the arithmetic of a row, and threads that count the same array's wait for each other.
    """
    return _marked(function, _nrt=False)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a plain read-only view, also of a memory map: numba compiles per type, and these are part of it."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


_CHILD = "ATTNKIT_COMPILES"


def compiled(loop: Callable[..., Any], arguments: tuple[Any, ...], child: Sequence[str] = ()) -> Any:
    """Return a loop compiled for the types of ``arguments``; None where numba cannot be had.

    With ``child`` (a module of this room, a function of it and its arguments) the loop is compiled with ``FAST``, and
    what the cache lacks is compiled by calling that function in another process, where it must ask for the same loop:
    numba's compiler takes some 100 MB that a process never gives back. If that fails, or is where we are, it is
    compiled here. Of processes that want the same loop at once one has it compiled, and the others wait.
    """
    numba = _numba()
    if numba is None:
        return None
    # Compiled for these types alone: a call with other types would compile silently, for seconds, in this process.
    types = tuple(numba.typeof(argument) for argument in arguments)
    options: dict[str, Any] = FAST if child else {}
    folder, usual = str(cache_folder() / _sources()), numba.config.CACHE_DIR
    # numba reads the setting when a function is decorated: set around it, then restored.
    numba.config.CACHE_DIR = folder
    try:
        kept = numba.njit(cache=True, **options)(loop)
        # Where that folder cannot be written to, numba takes another one, which may be that of the sources.
        if str(kept.stats.cache_path).startswith(folder):
            if not os.environ.get(_CHILD) and not _is_cached(kept, types):
                with _compile_lock([*(child or (loop.__module__, loop.__qualname__))]):
                    if not child:
                        kept.compile(types)
                    elif not _is_cached(kept, types):  # no other process has compiled it meanwhile
                        command = [sys.executable, "-m", "attnkit.kernels.jit", *child]
                        subprocess.run(command, env={**os.environ, _CHILD: "1"}, capture_output=True)
            # Loads from the cache if the child has filled it, and compiles otherwise.
            kept.compile(types)
            kept.disable_compile()
            return kept
    except Exception:  # the disk is full, or what the cache holds is damaged
        pass
    finally:
        numba.config.CACHE_DIR = usual
    uncached = numba.njit(**options)(loop)
    uncached.compile(types)
    uncached.disable_compile()
    return uncached


def _is_cached(function: Any, types: tuple[Any, ...]) -> bool:
    """Say whether numba's cache has the loop for these types, so that compiling it means loading it."""
    kept = function._cache
    return kept._cache_file.load(kept._index_key(types, function.targetctx.codegen())) is not None


@contextmanager
def _compile_lock(words: Sequence[str]) -> Iterator[None]:
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


if __name__ == "__main__":  # the child process of ``compiled``
    getattr(import_module(f"attnkit.kernels.{sys.argv[1]}"), sys.argv[2])(*sys.argv[3:])
