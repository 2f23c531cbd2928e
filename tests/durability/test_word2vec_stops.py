"""``attnkit word2vec train`` is stopped and killed: the same command again ends as if it never had been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnkit.errors import SystemFailure
from attnkit.io.lock import check_not_in_use

CLOCKED = ("lock", "timings.jsonl", "status.json", "manifest.json", "prepared.json")
SETTINGS = "--dim 20 --window 2 --negative 2 --epochs 3 --min-count 1 --save-every 0 --threads 1".split()  # noqa: SIM905
CODE = """
import os, time
os.fsync = lambda descriptor: None  # no machine dies here
from attnkit.tasks.word2vec import loop as legs
legs.SECONDS = 0  # every piece is saved, and followed by time for a signal
leg = legs.WorkerPool.run_slice
legs.WorkerPool.run_slice = lambda *arguments: (leg(*arguments), time.sleep(0.01))[0]
import sys
from attnkit.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = random.Random(1)
    words, weights = [f"w{n}" for n in range(90)], [1 / (n + 1) for n in range(90)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(" ".join(drawn.choices(words, weights, k=12)) + "\n" for _ in range(1500)))
    return path


def begin(text: Path, run: Path) -> subprocess.Popen[str]:
    command = ["word2vec", "train", str(text), "-o", str(run), *SETTINGS]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def wait_for_save(process: subprocess.Popen[str], run: Path, n: int = 1) -> None:
    """Wait until a run has so many pieces saved, or is over."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        steps = [int(path.name.split("-")[1]) for path in run.glob("checkpoints/step-*[0-9]")]
        if max(steps, default=0) >= n:
            return
        time.sleep(0.005)


def outcome(run: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name not in CLOCKED:
            raw = path.read_bytes()
            if path.name == "state.json":
                state = json.loads(raw)
                raw = json.dumps({**state, "counters": {**state["counters"], "minutes": 0}}).encode()
            if path.name == "README.md":
                raw = b"".join(line for line in raw.splitlines() if b" minutes" not in line)
            found[path.relative_to(run).as_posix()] = raw
    return found


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("whole") / "run"
    code, said = end(begin(text, run))
    assert code == 0, said
    return outcome(run)


def same(found: dict[str, bytes], expected: dict[str, bytes]) -> bool:
    """Compare all but older checkpoints, which lie where the clock has put them."""
    newest = max(
        (name.split("/")[1] for name in expected if name.startswith("checkpoints/")), key=lambda name: int(name[5:])
    )

    def kept(files: dict[str, bytes]) -> dict[str, bytes]:
        return {
            name: raw for name, raw in files.items() if not name.startswith("checkpoints/") or f"/{newest}/" in name
        }

    return kept(found) == kept(expected)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_saves_and_the_same_command_goes_on(
    number: int, text: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = begin(text, run)
    wait_for_save(process, run)
    with pytest.raises(SystemFailure, match=f"in use by process {process.pid}"):
        check_not_in_use(run)
    process.send_signal(number)
    code, said = end(process)
    assert code == 75, said
    assert "everything is saved" in said and "run the same command again to resume" in said
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("stopped", 75)
    process = begin(text, run)
    code, said = end(process)
    assert code == 0 and "resuming from step" in said, said
    assert same(outcome(run), whole)


def test_kills_change_nothing(text: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    run, chance = tmp_path / "run", random.Random(4)
    for goal in (1, 30):
        process = begin(text, run)
        wait_for_save(process, run, goal)
        time.sleep(chance.random() * 0.05)
        process.kill()
        assert end(process)[0] in (-9, 0)
    code, said = end(begin(text, run))
    assert code == 0, said
    assert same(outcome(run), whole)


def test_a_signal_before_anything_is_saved_ends_as_any_command_does(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = begin(fifo, tmp_path / "run")
    writer = os.open(fifo, os.O_WRONLY)  # the command reads, and waits for more
    os.write(writer, b"a b c\n")
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    code, said = end(process)
    os.close(writer)
    assert code == 143, said
    assert not (tmp_path / "run").exists()
