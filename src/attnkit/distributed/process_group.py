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
    """This process among those that ``torchrun`` started, which the end of a ``with`` block leaves; one by default.

    A rank that fails where the others do not know of it ends, and torchrun ends the others. Where ranks work apart for
    longer, or one works alone, that happens in a block of ``synchronized``: then all know, and one alone tells of it.
    Signals that ask for an end raise in such blocks only, for the same reason; elsewhere they wait for the next one.
    """

    rank: int = 0
    world: int = 1
    timeout: float = TIMEOUT
    """Seconds that the others may stay silent; a block of ``synchronized`` takes as long as it takes."""
    stop: Callable[[], bool] | None = None
    """Whether this process was asked to stop; None where signals alone say so."""
    failed: bool = field(default=False, init=False)
    """Whether a block of ``synchronized`` has failed."""
    _peer_stopping: bool = field(default=False, init=False)
    """Whether another process has said that it was asked to stop."""
    _signals: DeferredSignals = field(default_factory=DeferredSignals, init=False)

    def stop_requested(self) -> bool:
        """Return whether a process was asked to stop: this one, or another while this one was at work."""
        return self._peer_stopping or self._signals.pending is not None or (self.stop is not None and self.stop())

    def reduce(self, tensor: torch.Tensor) -> None:
        """Sum ``tensor`` over all ranks in place.

        Raises:
            SystemFailure: another process has gone or is silent; ``PeerFailedError`` where another rank says so.
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
        """Raise as ``reduce`` does where torch's own exchanges fail, which a model that is shared out makes.

        Raises:
            SystemFailure: another process has gone or is silent.
        """
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
        """Return from the block once all ranks have come to its end, or leave it on all of them if it fails on any.

        The lowest rank that failed raises what happened there. Ranks must not exchange anything inside. A rank that is
        asked to stop while it waits lets those at work be asked as well.

        Raises:
            PeerFailedError: another rank failed; it has the same exit code.
            SystemFailure: another process has gone or is silent, as in ``reduce``.
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
        teller = next((rank for rank, code in enumerate(codes) if code), None)
        if teller is None:
            return
        self.failed = True
        if teller == self.rank:
            if failure is not None:
                raise failure
            with self._signals.delivering():
                pass
        raise PeerFailedError(f"process {teller} failed", codes[teller]) from failure

    def _exchange_codes(self, code: int) -> list[int]:
        """Return the codes of all ranks once all have come here."""
        while True:
            *codes, n_come, _ = self._all_reduce_status(code or self._signals.exit_code(), come=True)
            if n_come == self.world:
                return codes

    def _beat(self) -> None:
        """Meet the others while this rank is at work, and let it know that one of them was asked to stop.

        Where a signal ends that one, it ends this one's work, too; else this one is only notified.
        """
        *codes, _, n_asked = self._all_reduce_status(0, come=False)
        self._peer_stopping = self._peer_stopping or n_asked > 0
        if not {130, 143}.isdisjoint(codes):
            self._signals.interrupt_main_thread()

    def _all_reduce_status(self, code: int, *, come: bool) -> list[int]:
        """Return the codes of all ranks, how many have come to their block's end, and how many of these must stop."""
        import torch

        numbers = torch.zeros(self.world + 2, dtype=torch.int64)  # object collectives would run pickles
        numbers[self.rank], numbers[-2], numbers[-1] = code, int(come), int(come and self.stop_requested())
        self.reduce(numbers)
        return [int(n) for n in numbers.tolist()]

    def _raise_peer_lost(self, waited: float, error: RuntimeError) -> NoReturn:
        if waited >= 0.9 * self.timeout:
            # Whoever is silent tells nothing, so all the others do.
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
            # The first process to end makes torchrun end the others: none goes before the one that tells is ready.
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
