"""Where and how arithmetic happens: device, precision, threads; and what asks it to stop. Knows no task."""

from __future__ import annotations

import ctypes
import os
import signal
from types import FrameType, TracebackType
from typing import Any

import torch

from attnkit.errors import UsageError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def launched_rank() -> int | None:
    """Return which of the processes of ``torchrun`` this one is; None if it did not start this one."""
    return int(os.environ["RANK"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else None


def choose_device(name: str) -> torch.device:
    """Return the device for a name; ``auto`` takes CUDA, then the CPU.

    MPS is taken only when asked for: several kernels there differ from the CPU's in float32.

    Raises:
        UsageError: the machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no CUDA device that torch can use", where="device", help="use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("this machine has no MPS device that torch can use", where="device", help="use --device cpu")
    return torch.device(name)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the working type for training; ``auto`` takes bfloat16 where the hardware has it."""
    if name == "auto":
        name = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return DTYPES[name]


def set_threads(threads: int | None) -> None:
    """Fix the number of threads of one operation; the results of a run depend on it in the last bits.

    None leaves it to torch, but not to ``torchrun``, which gives each of several processes one thread: they share the
    CPUs that they may use.
    """
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None and launched_rank() is not None and n_local > 1:
        threads = max(1, _usable_cpus() // n_local)
    if threads is not None:
        torch.set_num_threads(threads)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def release_free_memory() -> None:
    """Give free pages inside the heap back to the system, where the C library can (glibc); nothing elsewhere.

    Tensors of ever new sizes leave holes in the heap that add up to gigabytes within an epoch.
    """
    if _TRIM is not None:
        _TRIM(0)


def _find_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


_TRIM = _find_trim()


class StopRequests:
    """Turns SIGTERM and SIGINT into a wish that a loop asks for; a second signal ends the process at once.

    Under ``torchrun`` it does not: a signal to the whole job comes to a rank twice, the second time handed on by
    torchrun, which itself ends at once what has not ended in its time.
    Until ``defer`` is called, and again after ``release``, there is nothing to save, and a signal ends the command as
    it ends any other (``cli.Signals``).
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.signal is not None

    def __enter__(self) -> StopRequests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.signal is None:  # else the process is about to end, and the next signal is the second
            self._restore()

    def defer(self) -> None:
        """From now on a signal is only noted."""
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """From now on a signal ends the work again, and so does one that has been noted and not been asked for."""
        self._restore()
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and launched_rank() is None:
            os._exit(128 + number)
        self.signal = number
