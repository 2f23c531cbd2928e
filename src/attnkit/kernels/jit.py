"""Compilation of loops by numba, if it is installed.

Without numba, callers use numpy, plain Python or torch. Compiled code is cached in the user's cache folder (or in
``NUMBA_CACHE_DIR``), never beside the sources: numba reads it with pickle, and files found there may be untrusted.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import SystemFailure
from attnkit.io import atomic
from attnkit.runtime.signals import end_with_parent, python_command, release_library

# Options of every training loop.
FAST = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    # Reordering is allowed, but not the assumption that NaN is absent: divergence must be detected.
    "fastmath": {"nsz", "arcp", "contract", "reassoc"},
}


def cache_folder() -> Path:
    """Return the folder of compiled code."""
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(folder)
    # Outside of the sources: numba reads its cache with pickle.
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(usual)  # noqa: PTH111 (Path's fails without a home)
    return Path(base) / "attnkit" / "numba"


def is_available() -> bool:
    """Return whether numba is installed and not switched off, without importing it."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0") and find_spec("numba") is not None


def _numba() -> Any:
    try:
        import numba
    except ImportError:  # not installed, or incompatible with this numpy
        return None
    config: Any = numba.config
    return None if config.DISABLE_JIT else numba


def has_numba() -> bool:
    """Return whether loops can be compiled."""
    return _numba() is not None


def _marked(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    numba = _numba()
    marked: Callable[..., Any] = function if numba is None else numba.njit(**options, **FAST)(function)
    return marked


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function to be inlined into compiled loops; no effect without numba."""
    return _marked(function, forceinline=True)


def no_refcount(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a compiled function without reference counting; it cannot allocate arrays.

    Counting takes longer than the arithmetic of a row, and threads that count references to one array block each other.
    """
    return _marked(function, _nrt=False)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only ndarray view, also of a memory map: numba compiles per type."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


_uses_compiler = False  # whether numba's compiler has been used since ``release_compiler``


def release_compiler() -> None:
    """Release the compiler's library if it was used since the last call."""
    global _uses_compiler
    if _uses_compiler:
        release_library("libllvmlite")
        _uses_compiler = False


_CHILD = "ATTNKIT_COMPILES"
_PROGRAM = "from attnkit.kernels.jit import compile_in_child; compile_in_child(*sys.argv[1:])"


def compiled(loop: Callable[..., Any], arguments: tuple[Any, ...], child: Sequence[str] = ()) -> Any:
    """Return ``loop`` compiled for the types of ``arguments``, or None without numba.

    ``child`` is a module of this package, a function in it and its arguments. With it, the loop is compiled with
    ``FAST``, and a loop missing from the cache is compiled in a child process by calling that function, which must
    request the same loop: numba's compiler takes about 100 MB that a process never frees. If the child fails, or in
    the child itself, the loop is compiled here. Of several processes that need it, one compiles and the others wait.
    """
    global _uses_compiler
    numba = _numba()
    if numba is None:
        return None
    _uses_compiler = True
    # Compiled for these types only: a call with other types would silently compile in this process, for seconds.
    types = tuple(numba.typeof(argument) for argument in arguments)
    options: dict[str, Any] = FAST if child else {"nogil": True}
    folder, usual = str(cache_folder() / sources_digest()), numba.config.CACHE_DIR
    # numba reads this setting when it decorates a function: set it, then restore it.
    numba.config.CACHE_DIR = folder
    try:
        kept = numba.njit(cache=True, **options)(loop)
        # If that folder is not writable, numba uses another one, which may be that of the sources.
        if str(kept.stats.cache_path).startswith(folder):
            if not os.environ.get(_CHILD) and not _is_cached(kept, types):
                with compile_lock([*(child or (loop.__module__, loop.__qualname__))]):
                    if not child:
                        kept.compile(types)
                    elif not _is_cached(kept, types):  # not compiled by another process meanwhile
                        command = python_command(_PROGRAM, str(os.getpid()), *child)
                        subprocess.run(command, env={**os.environ, _CHILD: "1"}, capture_output=True)
            # Loads the loop if the child has cached it, compiles it otherwise.
            kept.compile(types)
            kept.disable_compile()
            return kept
    except Exception:  # e.g. the disk is full or the cache is damaged
        pass
    finally:
        numba.config.CACHE_DIR = usual
    uncached = numba.njit(**options)(loop)
    uncached.compile(types)
    uncached.disable_compile()
    return uncached


def _is_cached(function: Any, types: tuple[Any, ...]) -> bool:
    """Return whether numba's cache contains the function for these types."""
    kept = function._cache
    return kept._cache_file.load(kept._index_key(types, function.targetctx.codegen())) is not None


@contextmanager
def compile_lock(words: Sequence[str]) -> Iterator[None]:
    """Lock the compilation of a loop; skip the lock if the cache folder is unusable."""
    with ExitStack() as held:
        with suppress(OSError, SystemFailure):
            folder = cache_folder() / sources_digest() / sha256("\0".join(words).encode()).hexdigest()[:16]
            atomic.make_dirs(folder)
            # The folder itself is locked: no lock file to clean up.
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@cache
def sources_digest() -> str:
    """Return a hash of the loops' sources; numba checks only the loop's own file."""
    digest, folder = sha256(), Path(__file__).parent
    # Sorted: the order of a directory listing differs between file systems.
    for path in sorted([*folder.glob("*.py"), *folder.glob("simd/*.py"), folder.parent / "protocols.py"]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_in_child(parent: str, module: str, function: str, *arguments: str) -> None:
    """Compile what ``compiled`` was asked for, in the child process."""
    end_with_parent(int(parent))
    getattr(import_module(f"attnkit.kernels.{module}"), function)(*arguments)
