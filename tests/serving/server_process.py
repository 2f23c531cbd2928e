"""A server as a process of its own, for the tests of the service, its durability and its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(
    *arguments: str | Path, program: str | None = None, **variables: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server, by another program if one is given; yield its address and process.

    ``variables`` are added to its environment.
    """
    python = [sys.executable, *(("-m", "attnkit") if program is None else ("-c", program))]
    argv = [*python, "serve", *map(str, arguments), "--port", "0", "--threads", "1", "--device", "cpu"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError("the server has ended")
        yield found[1], process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
