"""One training of word2vec.py in a process of its own: its times, its memory while it lives, its scores."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from peers import WORK, Message
from word2vec_text import Text

HERE = Path(__file__).resolve().parent
HOME = WORK / "word2vec"
UNSET = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that another benchmark may have left: every system is told its threads by its own flag."""
MISSPELT = {
    "goverment": "government", "enviroment": "environment", "acording": "according", "definately": "definitely",
    "seperately": "separately", "occured": "occurred", "recieved": "received", "beggining": "beginning",
    "succesfull": "successful", "intresting": "interesting", "comittee": "committee", "independant": "independent",
    "profesional": "professional", "philosphy": "philosophy", "mathmatics": "mathematics", "sucessor": "successor",
    "aproximately": "approximately", "temperture": "temperature", "univeristy": "university",
    "restaraunt": "restaurant",
}  # fmt: skip
"""Words that hardly any text has, and what was meant."""


@dataclass(frozen=True)
class System:
    """Who trains, and how."""

    name: str
    peer: str | None
    method: str
    flags: tuple[str, ...] = ()
    """Of ``attnkit word2vec train``."""
    subwords: bool = False


@dataclass(frozen=True)
class Case:
    """What one training is given; the first three are what differs from row to row."""

    system: System
    alpha: float
    seed: int
    text: Text
    epochs: int
    dim: int
    threads: int
    shared: Message = field(default_factory=dict)
    cold: bool = False
    """Begin without compiled code."""


@dataclass(frozen=True)
class Place:
    """Where things are."""

    python: Path
    """The peers' interpreter."""
    evaluation: Path


def measured(command: list[object], environment: dict[str, str], log: Path) -> tuple[str, Message]:
    """Run a command; return what it prints, and its wall time and memory (MB).

    The peak of each process is the kernel's own (VmHWM), read ten times a second: ``ru_maxrss`` would begin with that
    of this process. "process" is the command's own, "largest child" the largest of those that it starts, "together" the
    most that all had at one moment.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    peaks: dict[int, int] = {}
    together = 0
    began = time.perf_counter()
    with log.open("w") as stderr, tempfile.TemporaryFile("w+") as stdout:
        process = subprocess.Popen([str(part) for part in command], stdout=stdout, stderr=stderr, env=environment)
        try:
            while process.poll() is None:
                now = 0
                for pid in _tree(process.pid):
                    peak, resident = _memory(pid)
                    peaks[pid] = max(peak, peaks.get(pid, 0))
                    now += resident
                together = max(together, now)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        wall = time.perf_counter() - began
        stdout.seek(0)
        printed = stdout.read()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{log.read_text()[-3000:]}")
    own = peaks.pop(process.pid, 0)
    memory = {"process": own, "largest child": max(peaks.values(), default=0), "together": max(together, own)}
    return printed, {"wall": round(wall, 3), "memory": {name: round(kb / 1024, 1) for name, kb in memory.items()}}


def _tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
    return found


def _memory(pid: int) -> tuple[int, int]:
    """Return the highest and the present resident memory of a process in kB."""
    with contextlib.suppress(OSError):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if "VmHWM" in status:
            return int(status["VmHWM"].split()[0]), int(status["VmRSS"].split()[0])
    return 0, 0


def train(case: Case, place: Place, *, scores: bool = True, check: bool = False) -> Message:
    """Train once, and score what comes out."""
    folder = HOME / "now"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vectors = folder / "vectors.bin"
    record = _peer(case, place, vectors) if case.system.peer else _attnkit(case, vectors if scores else None)
    record["words/s"] = round(case.text.words * case.epochs / record["seconds"], 1)
    record["load average"] = round(os.getloadavg()[0], 2)
    if scores:
        record["scores"] = _scores(case, place, vectors, check)
    shutil.rmtree(folder)
    return record


def _environment(cache: Path | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept if cache is None else {**kept, "NUMBA_CACHE_DIR": str(cache)}


def _peer(case: Case, place: Place, vectors: Path) -> Message:
    spec = {
        **case.shared, "method": case.system.method, "text": str(case.text.path), "dim": case.dim, "alpha": case.alpha,
        "epochs": case.epochs, "threads": case.threads, "seed": case.seed, "vectors": str(vectors),
        "misspelt": list(MISSPELT) if case.system.subwords else [],
    }  # fmt: skip
    command = [place.python, HERE / "word2vec_peers.py", "train", case.system.peer, json.dumps(spec)]
    printed, record = measured(command, _environment(), HOME / f"{case.system.peer}.log")
    return {**record, **json.loads(printed)}


def attnkit(*arguments: object, environment: dict[str, str] | None = None, log: str) -> tuple[str, Message]:
    """Run a command of the toolkit; return what it prints, with time and memory."""
    command = [sys.executable, "-m", "attnkit", "word2vec", *arguments]
    return measured(command, environment or _environment(), HOME / f"attnkit-{log}.log")


def _attnkit(case: Case, vectors: Path | None) -> Message:
    """Train by attnkit; seconds are those that the run itself counts, all else of the wall time is given apart."""
    shared, run = case.shared, HOME / "now" / "run"
    cache = HOME / ("now/cache" if case.cold else "cache")
    flags: list[object] = [
        "--method", case.system.method, "--dim", case.dim, "--epochs", case.epochs, "--alpha", case.alpha,
        "--threads", case.threads, "--seed", case.seed, *case.system.flags,
        *(part for name in ("window", "negative", "sample", "min_count", "min_alpha")
          for part in (f"--{name.replace('_', '-')}", shared[name])),
    ]  # fmt: skip
    if case.system.subwords:
        flags += ["--subwords", "--min-n", shared["min_n"], "--max-n", shared["max_n"], "--buckets", shared["buckets"]]
    printed, record = attnkit("train", case.text.path, "-o", run, *flags, "--json",
                              environment=_environment(cache), log="train")  # fmt: skip
    told = json.loads(printed)
    record["seconds"] = round(60 * told["minutes"], 3)
    record["loss"] = told["loss"]
    if vectors is not None:
        attnkit("convert", run, vectors, log="convert")
        if case.system.subwords:
            record["unseen"] = _unseen(run, case.text)
    return record


def _unseen(run: Path, text: Text) -> Message:
    """Return whether each misspelt word is known, and its ten nearest neighbours."""
    known = {line.split("\t")[0] for line in text.vocabulary.read_text().splitlines()}
    printed, _ = attnkit("similar", run, *MISSPELT, "-n", 10, "--json", log="similar")
    return {
        found["query"]: {"known": found["query"] in known, "neighbours": [near["word"] for near in found["neighbours"]]}
        for found in map(json.loads, printed.splitlines())
    }


def _scores(case: Case, place: Place, vectors: Path, check: bool) -> Message:
    """Score vectors by our own code; a check compares it with gensim's functions on the same file."""
    ordered = vectors.with_name("ordered.bin")
    command = [sys.executable, HERE / "word2vec_quality.py", vectors, "--vocabulary", case.text.vocabulary,
               "--evaluation", place.evaluation, *(["--ordered", ordered] if check else [])]  # fmt: skip
    printed, _ = measured(command, _environment(), HOME / "quality.log")
    found: Message = json.loads(printed)
    if check:
        names = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.tsv", "analogies": "questions-words.txt"}
        spec = {name: str(place.evaluation / file) for name, file in names.items()}
        spec = {**spec, "vectors": str(ordered), "restrict": 30_000}
        command = [place.python, HERE / "word2vec_peers.py", "evaluate", json.dumps(spec)]
        theirs = json.loads(measured(command, _environment(), HOME / "check.log")[0])
        if theirs["analogies asked"] != found["analogies"]["asked"]:
            sys.exit(f"gensim asks {theirs['analogies asked']} analogies, we {found['analogies']['asked']}")
        for name in names:
            if abs(theirs[name] - found[name]["score"]) > 2e-4:  # a tie that rounding breaks moves one answer
                sys.exit(f"{name}: gensim's own function gives {theirs[name]}, ours {found[name]['score']}")
        found["gensim's own functions"] = {name: theirs[name] for name in names}
    return found
