"""Processes of one run: rendezvous, all-reduce, barriers and shutdown.

The handling of dead or unresponsive ranks applies to gloo; with NCCL, its own watchdog ends the process instead.
"""

from __future__ import annotations

import datetime
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from attnkit.errors import AttnkitError, PeerFailedError, PeerLostError, StoppedError, SystemFailure, exit_code

if TYPE_CHECKING:
    import torch

TIMEOUT = 120.0  #: seconds after which an unresponsive process is considered dead
_COLLECTIVE_ERROR = re.compile(r"gloo|NCCL|Connection (closed|reset)|[Tt]imed out waiting")
_HEARTBEAT_SECONDS = 1.0  # seconds; maximum delay before a working rank learns of a stop request to another rank


class DeferredSignals:
    """Handlers that defer SIGTERM and SIGINT while closed; one signal is kept."""

    def __init__(self) -> None:
        self.pending: int | None = None
        """Signal that arrived while the handlers were closed."""
        self.may_interrupt = True
        """Whether ``interrupt_main_thread`` may send its one signal."""
        self._open = True
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Install the handlers, closed; do nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._open = False
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored in background jobs of a shell
                self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Restore the previous handlers."""
        self._open = True
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Deliver signals inside the block; a pending signal is delivered immediately."""
        self._open = True
        try:
            self.deliver()
            yield
        finally:
            self._open = not self._previous

    def deliver(self) -> None:
        """Raise the pending signal, if any."""
        if self.pending is not None:
            number, self.pending = self.pending, None
            signal.raise_signal(number)

    def exit_code(self) -> int:
        """Return the exit code of the pending signal, or 0."""
        return 0 if self.pending is None else 128 + self.pending

    def interrupt_main_thread(self) -> None:
        """Interrupt the main thread, once, by a signal whose handler raises."""
        raising = [number for number, handler in self._previous.items() if callable(handler)]
        thread = threading.main_thread().ident
        if self.may_interrupt and raising and thread is not None:
            self.may_interrupt = False
            signal.pthread_kill(thread, raising[0])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if not self._open:
            self.pending = number
        elif callable(previous):
            previous(number, frame)
        else:  # the default action: the process ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Heartbeat:
    """Thread that joins collectives while its rank works, as a sign of life.

    Every rank joins every collective exactly once, from its main thread or from this thread. Waiting ranks are always
    inside a collective, so the reply of the last rank releases all of them.
    """

    def __init__(self, answer: Callable[[], object], period: float) -> None:
        self._beat = answer
        self._period = period
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="attnkit heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread between two heartbeats; raise the error of ``answer``, if any."""
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._period):
                self._beat()
        except BaseException as error:
            self._failure = error


@dataclass
class ProcessGroup:
    """Process group of ``torchrun``; a context manager that leaves the group.

    A rank that fails outside ``synchronized`` exits, and torchrun ends the other ranks. Longer work without collectives
    runs inside ``synchronized``: all ranks learn of a failure there, and one of them reports it. Stop signals raise
    only inside such blocks; elsewhere they are deferred to the next block.
    """

    rank: int = 0
    world: int = 1
    timeout: float = TIMEOUT  #: seconds that other ranks may be unresponsive; ``synchronized`` blocks have no limit
    stop: Callable[[], bool] | None = None  #: returns whether this process was asked to stop; None: signals only
    failed: bool = field(default=False, init=False)  #: whether a ``synchronized`` block has failed
    _peer_stopping: bool = field(default=False, init=False)  #: whether another rank was asked to stop
    _signals: DeferredSignals = field(default_factory=DeferredSignals, init=False)

    def stop_requested(self) -> bool:
        """Return whether this rank, or another rank while this one worked, should stop."""
        return self._peer_stopping or self._signals.pending is not None or (self.stop is not None and self.stop())

    def reduce(self, tensor: torch.Tensor) -> None:
        """Sum ``tensor`` over all ranks in place.

        Raises ``SystemFailure`` if another process is lost or silent, ``PeerFailedError`` if another rank reports it.
        """
        if self.world == 1:
            return
        import torch.distributed  # here and below: a single process does not need torch

        began = time.monotonic()
        try:
            torch.distributed.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._raise_peer_lost(time.monotonic() - began, error)

    @contextmanager
    def guard_collectives(self) -> Iterator[None]:
        """Convert errors of torch's own collectives (e.g. FSDP) to those of ``reduce``."""
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
        """Leave the block together with all ranks; if one rank raises, all raise.

        The lowest-numbered failed rank raises its own error, others ``PeerFailedError`` with its exit code. Raises
        ``SystemFailure`` under the conditions of ``reduce``. Collectives are not allowed inside. A stop request to a
        waiting rank is passed on to the working ranks.
        """
        if self.world == 1:
            yield
            return
        failure: BaseException | None = None
        self._signals.may_interrupt = True
        heartbeat = Heartbeat(self._beat, min(_HEARTBEAT_SECONDS, self.timeout / 3))
        try:
            with self._signals.delivering():
                yield
        except BaseException as error:
            failure = error
        try:
            heartbeat.stop()
            codes = self._exchange_codes(exit_code(failure) or int(failure is not None))
        except AttnkitError:
            if failure is not None:
                raise failure from failure.__cause__  # no other rank is left to agree with
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
        """Return the exit codes of all ranks once all ranks have arrived."""
        while True:
            # Repeated, as ranks that are still working join through their heartbeats.
            *codes, n_arrived, _ = self._all_reduce_status(code or self._signals.exit_code(), arrived=True)
            if n_arrived == self.world:
                return codes

    def _beat(self) -> None:
        """Join a collective while this rank works; note stop requests to other ranks."""
        *codes, _, n_stopping = self._all_reduce_status(0, arrived=False)
        self._peer_stopping = self._peer_stopping or n_stopping > 0
        # A signal that ends another rank ends the work of this one, too.
        if not {130, 143}.isdisjoint(codes):
            self._signals.interrupt_main_thread()

    def _all_reduce_status(self, code: int, *, arrived: bool) -> list[int]:
        """Return the ranks' exit codes and the numbers of arrived and stopping ranks."""
        import torch

        numbers = torch.zeros(self.world + 2, dtype=torch.int64)  # object collectives would unpickle data
        numbers[self.rank], numbers[-2], numbers[-1] = code, int(arrived), int(arrived and self.stop_requested())
        self.reduce(numbers)
        return [int(n) for n in numbers.tolist()]

    def _raise_peer_lost(self, waited: float, error: RuntimeError) -> NoReturn:
        if waited >= 0.9 * self.timeout:
            # The unresponsive rank cannot report this, so all the others do.
            raise PeerLostError(
                f"no response from another process of this run for {self.timeout:g} seconds",
                help="run the same command again to resume; increase rank_timeout to wait longer",
            ) from error
        what = "another process of this run ended or is unreachable"
        if self.rank > 1:  # rank 0 may be the lost process
            raise PeerFailedError(what, PeerLostError.exit_code) from error
        help = "see its message above or in its log; run the same command again to resume"
        raise PeerLostError(what, help=help) from error

    def __enter__(self) -> ProcessGroup:
        if self.world > 1:
            self._signals.install()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.world == 1:
            return
        import torch.distributed

        self._signals.uninstall()
        # Leave the group where this cannot block.
        if self.failed:
            # torchrun ends all processes after the first exit, so no rank leaves before the reporting rank is ready.
            with suppress(AttnkitError):
                self._exchange_codes(0)
                torch.distributed.destroy_process_group()  # or its threads abort the process at exit
        elif error is None or isinstance(error, StoppedError):
            torch.distributed.destroy_process_group()  # after other errors this could deadlock
        if error is None:
            self._signals.deliver()


def join_process_group(device: str, timeout: float = TIMEOUT, stop: Callable[[], bool] | None = None) -> ProcessGroup:
    """Join the process group of ``torchrun``: gloo on CPU, NCCL on CUDA.

    ``stop`` returns whether this process was asked to stop, for callers whose signal handlers do not raise. Raises
    ``SystemFailure`` if the other processes cannot be reached within ``timeout`` seconds.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return ProcessGroup(stop=stop)
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous  # missing in some builds of torch

    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not torch.distributed.is_initialized():
        limit = datetime.timedelta(seconds=timeout)
        try:
            store, rank, world = next(rendezvous("env://", timeout=limit))
            if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
                # torchrun shares one store among all attempts, and an attempt must not find the addresses of an
                # earlier one. On several machines the restart counts can differ; the remedy there is
                # TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (https://github.com/pytorch/pytorch/issues/167288).
                attempt = f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
                store = torch.distributed.PrefixStore(attempt, store)  # type: ignore[attr-defined]
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
        except (RuntimeError, ValueError) as error:
            raise SystemFailure(f"the other processes cannot be reached: {error}") from error
    return ProcessGroup(torch.distributed.get_rank(), world, timeout, stop)
