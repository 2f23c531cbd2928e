"""Where and how arithmetic happens: device, precision, threads, ranks. Knows no task."""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed

from attnkit.errors import StoppedError, SystemFailure, ToldError, UsageError, exit_code

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Ranks:
    """This process among those that ``torchrun`` started, which the end of a ``with`` block leaves; one by default.

    A rank that fails where the others do not know of it ends, and torchrun ends the others. Where ranks work apart for
    longer, or one works alone, that happens in a block of ``together``: then all know, and one alone tells of it.
    """

    rank: int = 0
    world: int = 1
    failed: bool = field(default=False, init=False)
    """Whether a block of ``together`` has failed."""

    def reduce(self, tensor: torch.Tensor) -> None:
        """Sum ``tensor`` over all ranks in place.

        Raises:
            SystemFailure: on rank 0, when another process has gone; ``ToldError`` on all others.
        """
        if self.world == 1:
            return
        try:
            torch.distributed.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            what = "another process of this run has ended or cannot be reached"
            if self.rank > 0:
                raise ToldError(what, SystemFailure.exit_code) from error
            help = "what it said stands above or in its own log; the same command again goes on"
            raise SystemFailure(what, help=help) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return from the block once all ranks have come to its end, or leave it on all of them if it fails on any.

        The lowest rank that failed raises what happened there. Ranks must not exchange anything inside.

        Raises:
            ToldError: another rank failed; it has the same exit code.
        """
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            if self.world == 1:
                raise
            failure = error
        if self.world == 1:
            return
        codes = self._exchange(exit_code(failure))
        teller = next((rank for rank, code in enumerate(codes) if code), None)
        if teller is None:
            return
        self.failed = True
        if teller == self.rank and failure is not None:
            raise failure
        raise ToldError(f"process {teller} failed", codes[teller]) from failure

    def _exchange(self, number: int) -> list[int]:
        """Return the numbers of all ranks; object collectives would run pickles."""
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        numbers = torch.zeros(self.world, dtype=torch.int64, device=device)
        numbers[self.rank] = number
        self.reduce(numbers)
        return [int(n) for n in numbers.tolist()]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.world == 1:
            return
        if self.failed:
            # The first process to end makes torchrun end the others: none goes before the one that tells is ready.
            with suppress(RuntimeError):
                torch.distributed.barrier()
        elif error is None or isinstance(error, StoppedError):
            torch.distributed.destroy_process_group()  # elsewhere it might wait for ranks that wait for this one


def launched_rank() -> int | None:
    """Return which of the processes of ``torchrun`` this one is; None if it did not start this one."""
    return int(os.environ["RANK"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else None


def join_ranks(device: str) -> Ranks:
    """Join the group that ``torchrun`` describes in the environment: gloo on CPU, NCCL on CUDA.

    Raises:
        SystemFailure: the other processes cannot be reached.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Ranks()
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not torch.distributed.is_initialized():
        try:
            _join("nccl" if device == "cuda" else "gloo")
        except (RuntimeError, ValueError) as error:
            raise SystemFailure(f"the other processes cannot be reached: {error}") from error
    return Ranks(torch.distributed.get_rank(), world)


def _join(backend: str) -> None:
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    limit = datetime.timedelta(days=1)  # rank 0 may encode a large corpus while the others wait
    store, rank, world = next(rendezvous("env://", timeout=limit))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # One store of torchrun's serves all attempts: the addresses of an earlier one must not be found in this one.
        # On several machines the counts can differ, and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is the remedy
        # (https://github.com/pytorch/pytorch/issues/167288).
        attempt = f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
        store = torch.distributed.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)


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
    """Fix the number of threads of one operation; the results of a run depend on it in the last bits."""
    if threads is not None:
        torch.set_num_threads(threads)


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
    Until ``defer`` is called there is nothing to save, and the first signal ends the work as usual.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._deferred = False
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.signal is not None

    def __enter__(self) -> StopRequests:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """From now on a signal is only noted."""
        self._deferred = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self._deferred:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if self.signal is not None and launched_rank() is None:
            os._exit(128 + number)
        self.signal = number
