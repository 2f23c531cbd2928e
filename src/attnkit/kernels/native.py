"""Object code of compiled loops: cached by numba's compiler, run without numba.

numba compiles a function once, in another process (its compiler takes a second to import and 200 MB that a process
never gives back); what is kept is the machine code alone. A file is used only if its header names these sources, this
processor and these versions, and its checksum is right; otherwise the code is compiled anew.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attnkit.errors import SystemFailure
from attnkit.io import atomic
from attnkit.io.safe_read import open_regular_file
from attnkit.kernels.jit import cache_folder, compile_lock, sources_digest
from attnkit.kernels.simd.targets import Precision, Target, choose_target, host_features
from attnkit.runtime.signals import defer_signals, python_command

_MAX_BYTES = 1 << 26  #: maximum size of a file of object code
_KEPT_SECONDS = 30 * 86400
# Whole searches of a translator, its steps, an encoder, a causal language model.
Loops = Literal["search", "steps", "encoder", "generator"]
_NAMES: dict[Loops, str] = {
    "search": "search",
    "steps": "decoder steps",
    "encoder": "encoder",
    "generator": "text generator",
}


class Library:
    """Functions in object code, called with numba's calling convention."""

    def __init__(self, code: bytes, functions: dict[str, str]) -> None:
        """Load object code; ``functions`` maps names to symbols."""
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        # An exception of a signal handler inside a constructor of llvmlite leaves half an object, whose end prints.
        with defer_signals():
            machine = binding.Target.from_default_triple().create_target_machine()
            # The engine owns the code: both live as long as the library.
            self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            self._addresses = {name: self._engine.get_function_address(symbol) for name, symbol in functions.items()}
        if not all(self._addresses.values()):
            raise ValueError("a function is missing")
        self._functions: dict[str, Callable[..., int]] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns nothing. The GIL is released meanwhile.

        Arguments are tuples of arrays and numbers, or ``PreparedArgument`` ones.
        """
        parts: list[Any] = []
        for argument in arguments:
            if isinstance(argument, PreparedArgument):
                parts += argument.parts
            else:
                _flatten(argument, parts)
        # Of numba's calling convention: where a result and an exception would go.
        result, failure = ctypes.c_void_p(), ctypes.c_void_p()
        status = self._function(name, parts)(ctypes.addressof(result), ctypes.addressof(failure), *parts)
        if status not in (0, -2):  # -2: the result is None
            raise SystemError(f"compiled function {name} ended with status {status}")

    def _function(self, name: str, parts: Sequence[Any]) -> Callable[..., int]:
        """Return a function of these parts; making one takes longer than a step."""
        if name not in self._functions:
            types = [type(part) for part in parts]
            kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)
            self._functions[name] = kind(self._addresses[name])
        return self._functions[name]


class PreparedArgument:
    """An argument of many calls, in the parts that compiled functions take.

    Hundreds of parts take longer to make than a step of the search. Its arrays must stay where they are.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.parts: list[Any] = []
        _flatten(value, self.parts)


def _flatten(value: Any, parts: list[Any]) -> None:
    """Append an argument's parts as numba's native functions take them."""
    if isinstance(value, tuple):
        for item in value:
            _flatten(item, parts)
    elif isinstance(value, np.ndarray):
        assert value.flags.c_contiguous, "compiled loops take contiguous arrays"
        # Reference count and owner: the functions count no references.
        parts += [ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int64(value.size), ctypes.c_int64(value.itemsize)]
        parts.append(ctypes.c_void_p(value.ctypes.data))
        parts += map(ctypes.c_int64, [*value.shape, *value.strides])
    else:
        parts.append(ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value))


@cache
def compute_key(target: Target, precision: Precision) -> str:
    """Return a digest of what the code depends on: sources, versions, processor."""
    import llvmlite

    digest = sha256(sources_digest().encode())
    numba = find_spec("numba")
    if numba is not None and numba.origin is not None:  # its metadata would take longer to read than all the rest
        digest.update(Path(numba.origin).with_name("_version.py").read_bytes())
    processor = sorted(host_features()) if target.cpu is None else []
    versions = [llvmlite.__version__, sys.version, platform.machine(), sys.platform]
    digest.update(json.dumps([target.name, target.native_bfloat16, precision, versions, processor]).encode())
    return digest.hexdigest()


def has_loops(loops: Loops, precision: Precision) -> bool:
    """Return whether loops for this processor are in the cache."""
    target = choose_target()
    key = compute_key(target, precision)
    return _load_cached(_cache_path(loops, target, precision, key), key) is not None


def compiling_note(loops: Loops, precision: Precision) -> str:
    """Return a message for the user, shown before loops are compiled."""
    return f"compiling the {precision} {_NAMES[loops]} for this processor (once, some 15 seconds)"


def _cache_path(loops: Loops, target: Target, precision: Precision, key: str) -> Path:
    return cache_folder() / f"{loops}-{target.name}-{precision}-{key[:16]}.o"


def load_loops(
    loops: Loops, target: Target, precision: Precision, notify: Callable[[str], None] = lambda text: None
) -> Library:
    """Load compiled loops from the cache, or compile them.

    Compiling takes some seconds; ``notify`` is called before. Raises ``SystemFailure`` if they cannot be compiled.
    """
    key = compute_key(target, precision)
    path = _cache_path(loops, target, precision, key)
    if (library := _load_cached(path, key)) is not None:
        return library
    with compile_lock([loops, target.name, precision]):  # of processes started together one compiles
        if (library := _load_cached(path, key)) is not None:
            return library
        notify(compiling_note(loops, precision))
        content = _compile(loops, target, precision, key)
        try:
            library = _library(content)
        except (ValueError, RuntimeError, AttributeError) as error:
            raise SystemFailure(f"the compiled engine cannot be loaded: {error}") from error
        # A full disk or a folder that cannot be written to costs the next process its time, and nothing else.
        with suppress(OSError, SystemFailure):
            atomic.make_dirs(path.parent)
            checksum = sha256(content).hexdigest()
            # For this user alone, whatever the umask: ``_read`` takes no other.
            atomic.write_bytes(path, b"\n".join([key.encode(), checksum.encode(), content]), 0o600)
            _remove_outdated(path)
    return library


def _remove_outdated(path: Path) -> None:
    """Remove files of other versions of the same loops, made more than a month ago."""
    loops = path.name.rpartition("-")[0]
    for other in path.parent.glob(f"{loops}-*.o"):
        if other != path and other.stat().st_mtime < path.stat().st_mtime - _KEPT_SECONDS:
            other.unlink()


def _load_cached(path: Path, key: str) -> Library | None:
    """Load a cache file; None if missing, damaged, outdated or another user's."""
    raw = _read(path)
    content = None if raw is None else _checked(raw, key)
    with suppress(ValueError, RuntimeError, AttributeError):
        return None if content is None else _library(content)
    return None


def _library(content: bytes) -> Library:
    symbols, _, code = content.partition(b"\n")
    return Library(code, json.loads(symbols))


def _read(path: Path) -> bytes | None:
    """Return a file's content, or None unless only this user can write it."""
    with suppress(OSError, ValueError), open_regular_file(path, follow=True) as file:
        status = os.fstat(file.fileno())
        # What another user may have written is never run.
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and status.st_size <= _MAX_BYTES:
            return file.read()
    return None


def _checked(raw: bytes, key: str) -> bytes | None:
    """Return the content of a cache file, or None if it is damaged or outdated."""
    head, _, rest = raw.partition(b"\n")
    checksum, _, content = rest.partition(b"\n")
    whole = head == key.encode() and checksum == sha256(content).hexdigest().encode()
    return content if whole else None


def _compile(loops: Loops, target: Target, precision: Precision, key: str) -> bytes:
    """Compile in another process and return symbols and object code."""
    # Functions are optimized once, after linking; NUMBA_OPT is numba's own level. Other settings could change the code.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment["NUMBA_OPT"] = "0"
    if target.cpu is not None:
        environment |= {"NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": target.features}
    code = "from attnkit.kernels.simd.targets import RegisterTile, Target\nfrom attnkit.kernels.compile import main\n"
    command = python_command(code + f"main({loops!r}, {target!r}, {precision!r}, {os.getpid()})")
    try:
        done = subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise SystemFailure(f"cannot start the compiler: {error}", help="use --engine torch") from error
    found, _, content = done.stdout.partition(b"\n")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        why = f"the compiler was ended by signal {-done.returncode}" if done.returncode < 0 else said
    else:
        why = "" if found == key.encode() else "its sources have changed meanwhile"
    if done.returncode or why:
        raise SystemFailure(f"the engine cannot be compiled: {why}", help="use --engine torch")
    return content
