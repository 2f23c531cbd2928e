"""A translation of 200,000 lines, killed at 20 random moments: are the bytes the same, and what is done twice?

    PYTHONPATH=src python benchmarks/killed_translation.py --run RUN --source FILE [--lines 200000] [--kills 20]

RUN is a translation run; FILE is text of its source language, from which the lines are made: each is a line of it with
one word exchanged for another of the file, and every 500th line is blank or invisible. The job runs once undisturbed.
Then the same command runs until it ends and is killed (SIGKILL) at random moments, three times over: into one file,
into one compressed file, and from a folder of 8 files into a folder. Compared are the bytes; counted are the lines that
a killed process had begun and the next one translated again, by a log of the windows of lines that each process begins.
Each job that is done is kept in .work/killed_translation; the figures go to results/killed_translation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORK = HERE / ".work" / "killed_translation"
RESULTS = HERE / "results" / "killed_translation.json"
N_SHARDS = 8
INVISIBLE = ["", "\u200b", "\ufeff \u00ad", "  "]


def worker(log: str, arguments: list[str]) -> None:
    """Run attnkit; append the number of lines of each window that it begins to the log."""
    from attnkit.cli.main import main as run_attnkit
    from attnkit.tasks.translation import stream

    skip = stream.skip_lines

    def logged(windows: Iterable[list[str]], n_lines: int) -> Iterator[list[str]]:
        for window in skip(windows, n_lines):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} {len(window)}\n")
            yield window

    stream.skip_lines = logged
    sys.argv = ["attnkit", *arguments]
    run_attnkit()


def make_lines(source: Path, n_lines: int) -> list[str]:
    """Return lines that differ: each has one word exchanged."""
    draw = random.Random(0)
    lines = [line.split() for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    words = sorted({word for line in lines for word in line})
    made = []
    for i in range(n_lines):
        line = list(lines[i % len(lines)])
        line[draw.randrange(len(line))] = draw.choice(words)
        made.append(INVISIBLE[i // 500 % len(INVISIBLE)] if i % 500 == 499 else " ".join(line))
    return made


def begun_lines(log: Path) -> int:
    """Return the number of lines that all processes have begun."""
    return sum(int(line.split()[1]) for line in log.read_text().splitlines()) if log.exists() else 0


def recorded_lines(output: Path, names: list[str]) -> int:
    """Return the number of lines that the next process need not translate."""

    def state(path: Path) -> Any:
        return json.loads(path.read_text())["state"] if path.exists() else None

    if not names:
        return state(output.with_name(f"{output.name}.progress")) or 0
    n_files, n_lines = state(output / "translate.progress") or (0, 0)
    return n_lines + ((state(output / f"{names[n_files]}.progress") or 0) if n_files < len(names) else 0)


def content(path: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of the files of a folder by name."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name if path.is_dir() else "": file.read_bytes() for file in files}


def start(log: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own."""
    command = [sys.executable, __file__, "--worker", str(log), *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(name: str, source: Path, run: Path, n_lines: int, n_kills: int, seed: int) -> dict[str, Any]:
    """Run one job undisturbed and then killed; return its figures."""
    draw, folder = random.Random(seed), WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = sorted(path.name for path in source.iterdir()) if source.is_dir() else []
    suffix = ".gz" if name == "compressed" else ""
    whole, killed = folder / f"whole{suffix}", folder / f"killed{suffix}"
    arguments = ["translate", str(run), "-i", str(source), "--resume", "--beam-size", "1", "--device", "cpu", "-o"]
    began = time.monotonic()
    assert start(folder / "whole.log", [*arguments, str(whole)]).wait() == 0
    seconds = time.monotonic() - began
    expected = content(whole)
    again: list[int] = []
    kinds = {"before the first part": 0, "later": 0}
    n_jobs = n_equal = n_again = 0
    while len(again) < n_kills or n_jobs == 0:  # a job that ends before the last kill is begun anew
        log = folder / f"killed-{n_jobs}.log"
        if killed.is_dir():
            shutil.rmtree(killed)
        killed.unlink(missing_ok=True)
        while True:
            first, before = recorded_lines(killed, names), begun_lines(log)
            process = start(log, [*arguments, str(killed)])
            try:
                # From before the first part of this process to a sixth of the whole job later.
                timeout = draw.uniform(0.5, 6 + seconds / 6) if len(again) < n_kills else None
                assert process.wait(timeout) == 0
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            begun, recorded = begun_lines(log) - before, recorded_lines(killed, names)
            again.append(first + begun - recorded)
            kinds["before the first part" if recorded == first else "later"] += 1
        n_jobs += 1
        n_equal += content(killed) == expected
        n_again += begun_lines(log) - n_lines
    assert n_again == sum(again), "the log and the records must agree"
    return {
        "lines": n_lines,
        "seconds_undisturbed": round(seconds, 1),
        "jobs": n_jobs,
        "jobs_with_equal_bytes": n_equal,
        "kills": len(again),
        "kills_before_a_first_part": kinds["before the first part"],
        "lines_again_per_kill": again,
        "most_lines_again": max(again),
        "lines_again": sum(again),
    }


def main() -> None:
    """Make the lines, run the jobs that are not done yet, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    lines = make_lines(options.source, options.lines)
    WORK.mkdir(parents=True, exist_ok=True)
    whole, shards = WORK / "lines.txt", WORK / "shards"
    if not whole.exists():  # a job resumes only with an input of the same time
        shards.mkdir(exist_ok=True)
        size = -(-len(lines) // N_SHARDS)
        for i in range(N_SHARDS):
            text = "".join(f"{line}\n" for line in lines[i * size : (i + 1) * size])
            (shards / f"part{i}.txt").write_text(text, encoding="utf-8")
        whole.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    settings = {"lines": options.lines, "kills": options.kills, "part": 4096}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results.get("settings") != settings:
        results = {"settings": settings, "jobs": {}}
    for seed, (name, source) in enumerate([("file", whole), ("compressed", whole), ("folder", shards)]):
        if name not in results["jobs"]:
            results["jobs"][name] = measure(name, source, options.run, options.lines, options.kills, seed)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name, {key: value for key, value in results["jobs"][name].items() if key != "lines_again_per_kill"})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3:])
    else:
        main()
