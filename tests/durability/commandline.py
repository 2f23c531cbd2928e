"""Runs ``attnkit`` as a person would call it, and checks the form of what it says.

Most calls are children of one server process that has imported everything (``Forks``); ``real`` starts a process. The
server is this file run as a script: a line of JSON a request on its standard input, an exit code a line as the answer.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from served import ending

LIMIT = 60.0
"""Seconds after which a command that hangs is killed: none takes a tenth of them."""
MEMORY = 1 << 30
"""Bytes that a forked command may take beyond what the imports take."""
STATM = Path("/proc/self/statm")
"""Where Linux tells how much a process takes."""
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """What a command has done."""

    code: int
    out: str
    err: str

    def check(self, code: int, *words: str) -> None:
        """Assert the exit code, the form of the message, and that some words occur in what was said."""
        said = self.err
        assert self.code == code, f"exit code {self.code}, not {code}:\n{said[-3000:]}"
        assert "Traceback" not in said and "bug in attnkit" not in said, said[-3000:]
        assert not STEERING.search(said), ascii(STEERING.search(said))
        assert len(said) < 4000, said[:300]
        message = said[said.find("error: ") :].splitlines() if "error: " in said else []
        assert len(message) <= 3, said
        if code not in (0, 130, 143):
            assert message or "not usable for training" in self.out or self.out.count('"trainable": false'), said
        if message:
            assert message[-1].startswith(("error: ", "  at ", "help: ")), said
        for word in words:
            assert word in said + self.out, f"{word!r} is not in:\n{said[-2000:]}\n{self.out[-2000:]}"


class Forks:
    """The client of the server."""

    def __init__(self) -> None:
        alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **alone}, text=True
        )

    def __call__(
        self,
        arguments: Sequence[str | Path],
        folder: Path,
        *,
        stdin: str = os.devnull,
        env: Mapping[str, str | None] | None = None,
        before: str = "",
    ) -> Ended:
        """Run a command in ``folder``.

        Args:
            arguments: the command line without the program.
            folder: where it is called.
            stdin: a file that is its standard input.
            env: variables of the environment; None takes one away.
            before: Python code that the child runs first, such as ``os.setuid(65534)``.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.TemporaryDirectory() as outputs:
            paths = [str(Path(outputs, name)) for name in ("out", "err")]
            request = {"arguments": [*map(str, arguments)], "folder": str(folder), "stdin": stdin, "before": before}
            request |= {"outputs": paths, "env": dict(env or {})}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            code = json.loads(self._process.stdout.readline())
            out, err = (Path(path).read_bytes().decode() for path in paths)
        assert code is not None, f"it hangs: {shlex.join(map(str, arguments))}\n{err[-2000:]}"
        return Ended(code, out, err)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0


def real(script: str, folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run a shell script in a process of its own, in which ``attnkit`` is the command and ``$1``... the arguments."""
    begin = f'attnkit() {{ {shlex.quote(sys.executable)} -m attnkit "$@"; }}\n'
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **(env or {})}
    command = ["sh", "-c", begin + script, "sh", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=LIMIT, check=False)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def serve() -> None:
    """Import everything, then answer requests."""
    answers = os.fdopen(os.dup(1), "w")
    import attnkit

    modules = pkgutil.walk_packages(attnkit.__path__, "attnkit.")
    # A child that is another user may not read Python's own library any more.
    late = ("sacrebleu.metrics.bleu", "concurrent.futures.process", "encodings.utf_32_le")
    for name in [*(module.name for module in modules), *late]:
        if not name.endswith(("__main__", "_kernel")):  # Triton kernels need Triton
            import_module(name)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            be(request)
        print(json.dumps(wait(child)), file=answers, flush=True)


def wait(child: int) -> int | None:
    """Return the exit code of a child (a signal's number below zero), or None after killing one that hangs."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def bound_memory(statm: Path = STATM) -> None:
    """Let this process take ``MEMORY`` more than it does, where the system says how much that is."""
    if statm.exists():
        most = int(statm.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def be(request: dict[str, Any]) -> None:
    """Be the command, as far as a process that begins anew would be, and end."""
    with ending():
        os.setpgid(0, 0)
        outputs = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in request["outputs"]]
        for number, descriptor in enumerate([os.open(request["stdin"], os.O_RDONLY), *outputs]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(request["folder"])
        for name, value in request["env"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        bound_memory()
        exec(request["before"], {"os": os, "resource": resource, "Path": Path})
        sys.argv = ["attnkit", *request["arguments"]]
        from attnkit.cli.main import main

        main()


if __name__ == "__main__":
    serve()
