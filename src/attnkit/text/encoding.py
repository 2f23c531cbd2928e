"""Encoding of large texts in several processes.

Each batch is encoded whole by one process, and batches come back in order: the ids are those of a single process. The
processes end with their parent, whatever the cause.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from struct import Struct
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from attnkit.runtime.signals import begin_worker, defer_signals, python_command, usable_cpus
from attnkit.text.tokenizer import Tokenizer

AT_ONCE = 1 << 22  #: characters that one process encodes in a second; other processes start above
MAX_PROCESSES = 16  #: more are not kept busy by the one that reads
_SIZE = Struct("<q")
_LINE_END = b"\xff"  # does not occur in UTF-8
Item = TypeVar("Item")
Lines = Sequence[str]


class EncodedLines(NamedTuple):
    """Token ids of several lines."""

    ids: NDArray[np.int32]  #: (N,) of all lines, concatenated
    lengths: NDArray[np.int32]  #: (n,) tokens of each line

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> EncodedLines:
        """Return the concatenated rows."""
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths)

    def select(self, kept: NDArray[np.bool_]) -> EncodedLines:
        """Return the lines at which ``kept`` (n,) is True."""
        return self if kept.all() else EncodedLines(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept])


class BatchEncoder:
    """Encoder of batches of lines, in several processes once there are many lines.

    A context manager: at its end the processes are killed.
    """

    def __init__(self, tokenizers: Sequence[Tokenizer], n_processes: int | None = None) -> None:
        """Prepare to encode with a tokenizer per list of lines; None: a process per CPU."""
        self._tokenizers = tokenizers
        self._n = min(usable_cpus(), MAX_PROCESSES) if n_processes is None else n_processes
        self._n_characters = 0  #: encoded in this process
        self._workers: list[_Worker] = []
        self._free: SimpleQueue[_Worker] = SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None  #: one per process, which waits for its answer

    def __enter__(self) -> BatchEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()  # so that no thread waits for it
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def encode(self, batches: Iterable[tuple[Item, Sequence[Lines]]]) -> Iterator[tuple[Item, list[EncodedLines]]]:
        """Yield the item of each batch and its encoded lines, in order.

        A batch has lines for each tokenizer. Two batches per process are read ahead. Raises the errors of
        ``Tokenizer.encode``.
        """
        waiting: deque[tuple[Item, Sequence[Lines], Future[list[EncodedLines]]]] = deque()
        for item, sides in batches:
            if self._n < 2 or self._n_characters < AT_ONCE:
                self._n_characters += sum(len(line) for lines in sides for line in lines)
                yield item, self._encode_here(sides)
                continue
            waiting.append((item, sides, self._start().submit(self._encode_there, sides)))
            if len(waiting) > 2 * self._n:
                yield self._result(*waiting.popleft())
        while waiting:
            yield self._result(*waiting.popleft())

    def _result(
        self, item: Item, sides: Sequence[Lines], future: Future[list[EncodedLines]]
    ) -> tuple[Item, list[EncodedLines]]:
        try:
            return item, future.result()
        except (OSError, EOFError):  # the process was killed, perhaps for memory, or met an error: encode again here
            return item, self._encode_here(sides)

    def _encode_here(self, sides: Sequence[Lines]) -> list[EncodedLines]:
        return [EncodedLines.of(side.encode(lines)) for side, lines in zip(self._tokenizers, sides, strict=True)]

    def _encode_there(self, sides: Sequence[Lines]) -> list[EncodedLines]:
        worker = self._free.get()
        try:
            return worker.encode(sides)
        finally:
            self._free.put(worker)

    def _start(self) -> ThreadPoolExecutor:
        """Start the processes, unless they are running."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._n, "attnkit encoding")
            texts = [tokenizer.to_json().encode() for tokenizer in self._tokenizers]
            for _ in range(self._n):
                with defer_signals():
                    self._workers.append(_Worker(texts))
                self._free.put(self._workers[-1])
        return self._threads


class _Worker:
    """A process that encodes."""

    def __init__(self, tokenizers: Sequence[bytes]) -> None:
        command = python_command("from attnkit.text.encoding import serve; serve(int(sys.argv[1]))", str(os.getpid()))
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(command, env=environment, **pipes)
        self._tokenizers: Sequence[bytes] | None = tokenizers  #: not yet sent: it would wait for the start

    def encode(self, sides: Sequence[Lines]) -> list[EncodedLines]:
        """Encode lines for each tokenizer; raise ``OSError`` or ``EOFError`` if it ended."""
        to, answer = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        if self._tokenizers is not None:
            to.write(_SIZE.pack(len(self._tokenizers)))
            for text in self._tokenizers:
                _write(to, text)
            self._tokenizers = None
        for lines in sides:
            _write(to, b"".join([line.encode("utf-8", "surrogatepass") + _LINE_END for line in lines]))
        to.flush()
        return [EncodedLines(*(np.frombuffer(_read(answer), np.int32) for _ in EncodedLines._fields)) for _ in sides]

    def close(self) -> None:
        """Wait for the end of the killed process."""
        with suppress(OSError), self.process:  # closes the pipes and waits
            pass


def serve(parent: int) -> None:
    """Run a process: read tokenizers and batches from stdin, write ids to stdout."""
    begin_worker(parent)
    source, answer = sys.stdin.buffer, sys.stdout.buffer
    (n,) = _SIZE.unpack(source.read(_SIZE.size))
    tokenizers = [Tokenizer.from_json(_read(source)) for _ in range(n)]
    while True:
        sides = [_read(source) for _ in tokenizers]  # all before the first answer, for which the parent waits
        for tokenizer, side in zip(tokenizers, sides, strict=True):
            *lines, _ = side.split(_LINE_END)
            for part in EncodedLines.of(tokenizer.encode([line.decode("utf-8", "surrogatepass") for line in lines])):
                _write(answer, part.tobytes())
        answer.flush()


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(_SIZE.pack(len(data)))
    stream.write(data)


def _read(stream: BinaryIO) -> bytes:
    """Read what ``_write`` wrote; raise ``EOFError`` at the end."""
    head = stream.read(_SIZE.size)
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
    data = stream.read(size)
    if len(head) < _SIZE.size or len(data) < size:
        raise EOFError
    return data
