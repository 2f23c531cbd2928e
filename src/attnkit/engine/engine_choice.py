"""Choice of the engine of a command: compiled loops (CPU) or torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from attnkit.compiled.search import NO_NUMBA
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.runtime.signals import usable_cpus

Engine = Literal["auto", "compiled", "torch"]
BY_TORCH, GPU, NO_COMPILER = "--engine torch", "a GPU", "no compiler"  #: reasons against compiled loops
# Device files of NVIDIA and AMD drivers: where there is neither, torch need not be asked for a GPU.
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def is_cpu(device: str) -> bool:
    """Return whether the device is the CPU; ask torch only if there may be a GPU."""
    if device != "auto":
        return device == "cpu"
    if not any(Path(driver).exists() for driver in _GPU_DRIVERS):
        return True
    from attnkit.runtime.devices import choose_device

    return choose_device(device).type == "cpu"


def number_of_threads(threads: int | None) -> int:
    """Return the threads of compiled loops: more than CPUs would save no time."""
    return min(threads or usable_cpus(), usable_cpus())


def check_torch_may(
    reason: str,
    engine: Engine,
    precision: Precision,
    notify: Callable[[str], None],
    by_torch: tuple[Precision, ...] = ("float32", "bfloat16"),
) -> None:
    """Check that torch may run what compiled loops do not support, for a ``reason``.

    ``by_torch``: the precisions that torch has. Raises ``UsageError`` if compiled loops were asked for; otherwise
    ``notify`` receives a note, unless nothing else was to be expected.
    """
    if engine == "compiled":
        help: str | None = {GPU: "use --device cpu", NO_NUMBA: "pip install numba"}.get(reason, "use --engine auto")
        raise UsageError(f"compiled loops {_cannot(reason)}", where="--engine", help=help)
    if precision not in by_torch:
        help = {GPU: "use --device cpu", BY_TORCH: "use --engine auto", NO_NUMBA: "pip install numba"}.get(reason)
        what = f"{precision} needs compiled loops, which {_cannot(reason)}"
        raise UsageError(what, where="--precision", help=help or "use --precision float32")
    if engine == "auto" and reason not in (NO_COMPILER, GPU):
        notify(f"compiled loops {_cannot(reason)}; using torch, which is slower")


def _cannot(reason: str) -> str:
    said = {BY_TORCH: "are excluded by --engine torch", NO_NUMBA: "need numba, which is not installed"}
    return said.get(reason, f"do not support {reason}")
