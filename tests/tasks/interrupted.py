"""Jobs that write training pairs, killed again and again: shared by the tests of these jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.io import atomic


def check_kills(
    write: Callable[..., Any], whole: Path, output: Path, patch: pytest.MonkeyPatch, *, seed: int = 1
) -> None:
    """Kill a job behind appends, before their record, until it ends; its files must be those of the whole job.

    ``write`` does the job with the folder ``output`` and takes the function ``resumed``.
    """
    draw, real = random.Random(seed), atomic.append_bytes

    def append(path: Path, data: bytes) -> None:
        real(path, data)
        if draw.random() < 0.3:
            raise KeyboardInterrupt

    patch.setattr("attnkit.io.atomic.append_bytes", append)
    n_kills: int = 0
    after: list[int] = []
    while True:
        try:
            write(resumed=after.append)
            break
        except KeyboardInterrupt:
            n_kills += 1
            (output / ".tmp-progress.json-999999999").write_text("{")  # as a SIGKILL leaves it
            assert n_kills < 200 and not (output / "report.json").exists()
    assert n_kills and after
    names = {path.name for path in whole.iterdir()}
    assert names == {path.name for path in output.iterdir()}
    for name in names:
        assert (whole / name).read_bytes() == (output / name).read_bytes(), name
