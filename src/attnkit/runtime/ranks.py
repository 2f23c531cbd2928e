"""The processes of one run: how they meet, add up, wait for each other and end together. Knows no task.

What is said here of ranks that are dead or silent holds for gloo; NCCL's own watchdog ends the process instead.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn

import torch
import torch.distributed

from attnkit.errors import AttnkitError, StoppedError, SystemFailure, ToldError, exit_code

TIMEOUT = 120.0
"""Seconds after which a process that does not answer is taken for dead."""


@dataclass
class Ranks:
    """This process among those that ``torchrun`` started, which the end of a ``with`` block leaves; one by default.

    A rank that fails where the others do not know of it ends, and torchrun ends the others. Where ranks work apart for
    longer, or one works alone, that happens in a block of ``together``: then all know, and one alone tells of it.
    """

    rank: int = 0
    world: int = 1
    timeout: float = TIMEOUT
    """Seconds that the others may stay silent; a block of ``together`` takes as long as it takes."""
    failed: bool = field(default=False, init=False)
    """Whether a block of ``together`` has failed."""

    def reduce(self, tensor: torch.Tensor) -> None:
        """Sum ``tensor`` over all ranks in place.

        Raises:
            SystemFailure: another process has gone or is silent; ``ToldError`` where another rank says so.
        """
        if self.world == 1:
            return
        began = time.monotonic()
        try:
            torch.distributed.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._refuse_to_go_on(time.monotonic() - began, error)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return from the block once all ranks have come to its end, or leave it on all of them if it fails on any.

        The lowest rank that failed raises what happened there. Ranks must not exchange anything inside.

        Raises:
            ToldError: another rank failed; it has the same exit code.
            SystemFailure: another process has gone or is silent, as in ``reduce``.
        """
        if self.world == 1:
            yield
            return
        failure: BaseException | None = None
        pulse = _Pulse(lambda: self._meet(0, come=False), self.timeout / 3)
        try:
            yield
        except BaseException as error:
            failure = error
        try:
            pulse.stop()
            codes = self._agree(exit_code(failure) or int(failure is not None))
        except AttnkitError:
            if failure is not None:
                raise failure from failure.__cause__  # nobody is left to agree with
            raise
        teller = next((rank for rank, code in enumerate(codes) if code), None)
        if teller is None:
            return
        self.failed = True
        if teller == self.rank and failure is not None:
            raise failure
        raise ToldError(f"process {teller} failed", codes[teller]) from failure

    def _agree(self, code: int) -> list[int]:
        """Return the codes of all ranks once all have come here."""
        while True:
            *codes, n_come = self._meet(code, come=True)
            if n_come == self.world:
                return codes

    def _meet(self, code: int, *, come: bool) -> list[int]:
        """Return the codes of all ranks, and how many have come to the end of their block; the others only answer."""
        numbers = torch.zeros(self.world + 1, dtype=torch.int64)  # object collectives would run pickles
        numbers[self.rank], numbers[-1] = code, int(come)
        self.reduce(numbers)
        return [int(n) for n in numbers.tolist()]

    def _refuse_to_go_on(self, waited: float, error: RuntimeError) -> NoReturn:
        if waited >= 0.9 * self.timeout:
            # Whoever is silent tells nothing, so all the others do.
            raise SystemFailure(
                f"another process of this run has not answered for {self.timeout:g} seconds",
                help="the same command again goes on; rank_timeout says how long to wait",
            ) from error
        what = "another process of this run has ended or cannot be reached"
        if self.rank > 1:  # rank 0 may be the one that is gone
            raise ToldError(what, SystemFailure.exit_code) from error
        help = "what it said stands above or in its own log; the same command again goes on"
        raise SystemFailure(what, help=help) from error

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.world == 1:
            return
        if self.failed:
            # The first process to end makes torchrun end the others: none goes before the one that tells is ready.
            with suppress(AttnkitError):
                self._agree(0)
                torch.distributed.destroy_process_group()  # or its threads abort the process as it ends
        elif error is None or isinstance(error, StoppedError):
            torch.distributed.destroy_process_group()  # elsewhere it might wait for ranks that wait for this one


class _Pulse:
    """Answers for a process at work, time and again, to those that wait for it: so they know a long wait from a death.

    Every rank takes part in every meeting once, its thread or this one. Nobody who waits is ever not in a meeting, so
    the answer of the last to come ends all waits at once.
    """

    def __init__(self, answer: Callable[[], object], period: float) -> None:
        self._answer = answer
        self._period = period
        self._over = threading.Event()
        self._failure: AttnkitError | None = None
        self._thread = threading.Thread(target=self._run, name="attnkit pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, between two answers. Raises what ``answer`` has raised."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._over.wait(self._period):
                self._answer()
        except AttnkitError as error:
            self._failure = error


def join_ranks(device: str, timeout: float = TIMEOUT) -> Ranks:
    """Join the group that ``torchrun`` describes in the environment: gloo on CPU, NCCL on CUDA.

    Raises:
        SystemFailure: the other processes cannot be reached within ``timeout`` seconds.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Ranks()
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not torch.distributed.is_initialized():
        try:
            _join("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", datetime.timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise SystemFailure(f"the other processes cannot be reached: {error}") from error
    return Ranks(torch.distributed.get_rank(), world, timeout)


def _join(backend: str, timeout: datetime.timedelta) -> None:
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    store, rank, world = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # One store of torchrun's serves all attempts: the addresses of an earlier one must not be found in this one.
        # On several machines the counts can differ, and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is the remedy
        # (https://github.com/pytorch/pytorch/issues/167288).
        attempt = f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
        store = torch.distributed.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
