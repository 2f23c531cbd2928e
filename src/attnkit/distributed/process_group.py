"""The processes of one run: how they meet, add up, wait for each other and end together. Knows no task.

What is said here of ranks that are dead or silent holds for gloo; NCCL's own watchdog ends the process instead.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from attnkit.distributed.heartbeat import DeferredSignals, Heartbeat
from attnkit.errors import AttnkitError, PeerFailedError, PeerLostError, StoppedError, SystemFailure, exit_code

if TYPE_CHECKING:
    import torch

TIMEOUT = 120.0
"""Seconds after which a process that does not answer is taken for dead."""
_COLLECTIVE_ERROR = re.compile(r"gloo|NCCL|Connection (closed|reset)|[Tt]imed out waiting")
_HEARTBEAT_SECONDS = 1.0  # seconds; so long, at most, a rank at work does not know that another was asked to stop


@dataclass
class ProcessGroup:
    """Ranks that ``torchrun`` started, seen from this one; the end of a ``with`` block leaves the group.

    A rank that fails outside ``synchronized`` ends, and torchrun ends the others. Ranks that work apart for longer do
    so inside ``synchronized``: all ranks learn of a failure there, and one reports it. Stop signals raise inside such
    blocks only; elsewhere they are deferred to the next block.
    """

    rank: int = 0
    world: int = 1
    timeout: float = TIMEOUT
    """Seconds that other ranks may stay silent; a block of ``synchronized`` has no limit."""
    stop: Callable[[], bool] | None = None
    """Whether this process was asked to stop; None to stop by signals only."""
    failed: bool = field(default=False, init=False)
    """Whether a block of ``synchronized`` has failed."""
    _peer_stopping: bool = field(default=False, init=False)
    """Whether another rank was asked to stop."""
    _signals: DeferredSignals = field(default_factory=DeferredSignals, init=False)

    def stop_requested(self) -> bool:
        """Return whether this rank was asked to stop, or another one while this one was working."""
        return self._peer_stopping or self._signals.pending is not None or (self.stop is not None and self.stop())

    def reduce(self, tensor: torch.Tensor) -> None:
        """Sum ``tensor`` over all ranks in place.

        Raises:
            SystemFailure: Another process is gone or silent.
            PeerFailedError: Another process is gone, and another rank reports it.
        """
        if self.world == 1:
            return
        import torch.distributed  # here and below: a process of its own needs no torch

        began = time.monotonic()
        try:
            torch.distributed.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._raise_peer_lost(time.monotonic() - began, error)

    @contextmanager
    def guard_collectives(self) -> Iterator[None]:
        """Raise as ``reduce`` does when torch's own collectives fail, as those of a sharded model."""
        if self.world == 1:
            yield
            return
        import torch

        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if not _COLLECTIVE_ERROR.search(str(error)):
                raise
            self._raise_peer_lost(self.timeout if "imed out" in str(error) else 0.0, error)

    @contextmanager
    def synchronized(self) -> Iterator[None]:
        """Barrier with error propagation: all ranks leave the block together, and if one raises, all raise.

        The lowest failed rank raises its own error. No collectives are allowed inside. A rank that is asked to stop
        while it waits passes the request on to the working ranks.

        Raises:
            PeerFailedError: Another rank failed; the exit code is its code.
            SystemFailure: Another process is gone or silent, as in ``reduce``.
        """
        if self.world == 1:
            yield
            return
        failure: BaseException | None = None
        self._signals.may_interrupt = True
        pulse = Heartbeat(self._beat, min(_HEARTBEAT_SECONDS, self.timeout / 3))
        try:
            with self._signals.delivering():
                yield
        except BaseException as error:
            failure = error
        try:
            pulse.stop()
            codes = self._exchange_codes(exit_code(failure) or int(failure is not None))
        except AttnkitError:
            if failure is not None:
                raise failure from failure.__cause__  # nobody is left to agree with
            raise
        failed_rank = next((rank for rank, code in enumerate(codes) if code), None)
        if failed_rank is None:
            return
        self.failed = True
        if failed_rank == self.rank:
            if failure is not None:
                raise failure
            with self._signals.delivering():
                pass  # the code was that of a deferred signal, which raises here
        raise PeerFailedError(f"process {failed_rank} failed", codes[failed_rank]) from failure

    def _exchange_codes(self, code: int) -> list[int]:
        """Return the codes of all ranks once all have arrived."""
        while True:
            # Again and again: ranks that still work take part by their heartbeat.
            *codes, n_arrived, _ = self._all_reduce_status(code or self._signals.exit_code(), arrived=True)
            if n_arrived == self.world:
                return codes

    def _beat(self) -> None:
        """Join a collective while this rank works, and note whether a waiting rank was asked to stop."""
        *codes, _, n_stopping = self._all_reduce_status(0, arrived=False)
        self._peer_stopping = self._peer_stopping or n_stopping > 0
        # A signal that ends another rank ends the work of this one, too.
        if not {130, 143}.isdisjoint(codes):
            self._signals.interrupt_main_thread()

    def _all_reduce_status(self, code: int, *, arrived: bool) -> list[int]:
        """Return the codes of all ranks, the number of arrived ranks, and the number of those asked to stop."""
        import torch

        numbers = torch.zeros(self.world + 2, dtype=torch.int64)  # object collectives would run pickles
        numbers[self.rank], numbers[-2], numbers[-1] = code, int(arrived), int(arrived and self.stop_requested())
        self.reduce(numbers)
        return [int(n) for n in numbers.tolist()]

    def _raise_peer_lost(self, waited: float, error: RuntimeError) -> NoReturn:
        if waited >= 0.9 * self.timeout:
            # The silent rank cannot report itself, so all the others do.
            raise PeerLostError(
                f"another process of this run has not answered for {self.timeout:g} seconds",
                help="the same command again resumes; rank_timeout says how long to wait",
            ) from error
        what = "another process of this run has ended or cannot be reached"
        if self.rank > 1:  # rank 0 may be the one that is gone
            raise PeerFailedError(what, PeerLostError.exit_code) from error
        help = "its message is above or in its own log; the same command again resumes"
        raise PeerLostError(what, help=help) from error

    def __enter__(self) -> ProcessGroup:
        if self.world > 1:
            self._signals.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.world == 1:
            return
        self._signals.uninstall()
        self._leave(error)
        if error is None:
            self._signals.deliver()

    def _leave(self, error: BaseException | None) -> None:
        """Leave the group, where that makes nobody wait."""
        import torch.distributed

        if self.failed:
            # The first process to end makes torchrun end the others: none leaves before the reporting rank is ready.
            with suppress(AttnkitError):
                self._exchange_codes(0)
                torch.distributed.destroy_process_group()  # or its threads abort the process as it ends
        elif error is None or isinstance(error, StoppedError):
            torch.distributed.destroy_process_group()  # elsewhere it might wait for ranks that wait for this one


def join_process_group(device: str, timeout: float = TIMEOUT, stop: Callable[[], bool] | None = None) -> ProcessGroup:
    """Join the group that ``torchrun`` describes in the environment: gloo on CPU, NCCL on CUDA.

    ``stop`` says whether this process was asked to stop, where signals are noted and do not raise.

    Raises:
        SystemFailure: the other processes cannot be reached within ``timeout`` seconds.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return ProcessGroup(stop=stop)
    import torch.distributed

    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not torch.distributed.is_initialized():
        try:
            _join("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", datetime.timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise SystemFailure(f"the other processes cannot be reached: {error}") from error
    return ProcessGroup(torch.distributed.get_rank(), world, timeout, stop)


def _join(backend: str, timeout: datetime.timedelta) -> None:
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    store, rank, world = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # One store of torchrun's serves all attempts: the addresses of an earlier one must not be found in this one.
        # On several machines the counts can differ, and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is the remedy
        # (https://github.com/pytorch/pytorch/issues/167288).
        attempt = f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
        store = torch.distributed.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
