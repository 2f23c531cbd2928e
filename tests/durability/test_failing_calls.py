"""Any call that changes the disk can fail in the middle of a whole command: nothing is lost but the command's time."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.run_folder import RunFolder

CAUSES = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE)
BLOCKS = 6
SAVED = re.compile(r"/run/checkpoints/\.tmp-step-(\d+)-\d+")


@dataclass(frozen=True)
class Whole:
    """A command that nothing failed in."""

    outcome: dict[str, bytes]
    calls: list[list[str]]

    def saved_before(self, k: int) -> int | None:
        """Return the step of the newest checkpoint once all calls before the k-th are made."""
        steps = [found[1] for name, path in self.calls[: k - 1] if name == "replace" if (found := SAVED.search(path))]
        return int(steps[-1]) if steps else None


def start(commands: Any, folder: Path, **request: Any) -> Any:
    few = {"limits__max_steps": 4, "checkpoints": {"save_every": 2, "keep_last": 1, "average": 0}}
    return commands(*commands.train("transformer", folder / "run", **few), **request, quick=True)


@pytest.fixture(scope="module")
def whole(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    ended = start(commands, folder)
    assert ended.code == 0, ended.err
    assert {name for name, _ in ended.calls} >= {"open", "write", "fsync", "replace", "rename", "unlink", "rmdir"}
    return Whole(commands.outcome(folder / "run"), ended.calls)


def fail(commands: Any, whole: Whole, folder: Path, k: int) -> None:
    """Let the k-th call fail, or all from there on; then run the same command again."""
    cause, run = CAUSES[k % len(CAUSES)], folder / "run"
    folder.mkdir()
    ended = start(commands, folder, fail_call=k, fail_errno=cause, fail_on=k // len(CAUSES) % 2 == 1)
    where = f"call {k}, {whole.calls[k - 1]}: {ended}"
    last = [line for line in ended.err.splitlines() if line.startswith(("error: ", "  at ", "help: "))]
    assert ended.code == 5 and last[0].startswith("error: ") and len(last) <= 3, where
    assert os.strerror(cause) in last[0] and str(run) in last[0] and "Traceback" not in ended.err, where
    assert len(commands.temporaries(folder)) <= 1, where
    newest, warnings = RunFolder(run).newest()
    assert (newest and newest.step, warnings) == (whole.saved_before(k), []), where
    ended = start(commands, folder)
    assert ended.code == 0, where
    found = commands.outcome(run)
    assert sorted(n for n in found.keys() | whole.outcome.keys() if found.get(n) != whole.outcome.get(n)) == [], where
    shutil.rmtree(folder)


def test_a_failing_call_ends_with_5_and_the_same_command_goes_on(commands: Any, whole: Whole, tmp_path: Path) -> None:
    for k in random.Random(1).sample(range(1, len(whole.calls) + 1), 8):
        fail(commands, whole, tmp_path / str(k), k)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_failing_call(commands: Any, whole: Whole, tmp_path: Path, block: int) -> None:
    for k in range(1 + block, len(whole.calls) + 1, BLOCKS):
        fail(commands, whole, tmp_path / str(k), k)
