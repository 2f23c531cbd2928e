"""Train a vocabulary in a subprocess, which can be killed: the trainers of ``tokenizers`` ignore signals.

Text and vocabulary travel through pipes. The subprocess ends when its parent ends, whatever the cause.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import islice
from typing import cast

from attnkit.errors import AttnkitError, DataError, RunError, SystemFailure, UsageError
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer

STOPS = (signal.SIGTERM, signal.SIGINT)
# UTF-8 has neither byte, so any line may come before them.
_LINE_END, _TEXT_END = b"\xff", b"\xfe"
_CHUNK = 1000  # lines sent at a time
_BLOCK = 1 << 20
_ERRORS: dict[str, type[AttnkitError]] = {
    kind.__name__: kind for kind in (DataError, RunError, SystemFailure, UsageError)
}
# Drop the working folder, which python puts first in sys.path: a json.py there would shadow the standard one.
_PROGRAM = """
import sys
parent, *sys.path = sys.argv[1:]
from attnkit.text.vocabulary import train_in_process
from attnkit.text.vocabulary_subprocess import serve
serve(int(parent), train_in_process)
"""


def train_in_subprocess(lines: Iterable[str], config: VocabularyConfig) -> str:
    """Train a vocabulary in a subprocess and return its JSON form; raise the error of the subprocess.

    An exception kills the subprocess. If a signal ends the subprocess, that is a ``SystemFailure``.
    """
    command = [sys.executable, "-c", _PROGRAM, str(os.getpid()), *sys.path]
    process: subprocess.Popen[bytes] | None = None
    try:
        with defer_signals():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the subprocess failed; its answer says why
            process.stdin.write(config.model_dump_json().encode() + b"\n")
            rows = iter(lines)
            while chunk := list(islice(rows, _CHUNK)):
                process.stdin.write(b"".join(line.encode("utf-8", "surrogatepass") + _LINE_END for line in chunk))
            process.stdin.write(_TEXT_END)
            process.stdin.flush()
        answer = process.stdout.read()
        code = process.wait()
    finally:
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
    if code < 0:
        name = signal.Signals(-code).name
        raise SystemFailure(
            f"the process that makes the vocabulary was ended by {name}",
            help="if that was for want of memory, make it of fewer lines (attnkit vocab) and train with --vocab",
        )
    if code:
        raise RuntimeError("the process that makes the vocabulary has failed")
    result = json.loads(answer)
    if "error" in result:
        raise _ERRORS[result["error"]](result["what"], where=result["where"], help=result["help"])
    return str(result["vocabulary"])


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay SIGTERM and SIGINT to the end of the block; processes started in it inherit the blocked mask."""
    noted: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    previous = {n: signal.signal(n, lambda number, frame: noted.append(number)) for n in STOPS} if here else {}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for stop, handler in previous.items():
            signal.signal(stop, handler)
        for number in noted:
            signal.raise_signal(number)


def _receive(stream: BufferedReader) -> Iterator[str]:
    """Yield lines as they arrive; exit if the sender closes the pipe early."""

    def end_with_sender() -> None:
        os.read(0, 1)  # returns when the parent closes the pipe
        os._exit(1)

    rest = b""
    while block := stream.read1(_BLOCK):
        *lines, rest = (rest + block).split(_LINE_END)
        for line in lines:
            yield line.decode("utf-8", "surrogatepass")
        if rest == _TEXT_END:
            threading.Thread(target=end_with_sender, daemon=True).start()
            return
    os._exit(1)


def serve(parent: int, train: Callable[[Iterator[str], VocabularyConfig], Tokenizer]) -> None:
    """Run the subprocess: read settings and text from stdin, write the vocabulary to stdout."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # on Linux the kernel kills it with its parent
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)
    source = cast(BufferedReader, sys.stdin.buffer)
    config = VocabularyConfig.model_validate_json(source.readline())
    answer: dict[str, str | None]
    try:
        answer = {"vocabulary": train(_receive(source), config).to_json()}
    except tuple(_ERRORS.values()) as error:
        answer = {"error": type(error).__name__, "what": error.what, "where": error.where, "help": error.help}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # a normal exit would wait for the thread that reads the pipe
