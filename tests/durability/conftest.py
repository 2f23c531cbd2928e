"""Commands in forked processes that die, fail or are watched, and what their runs are compared by."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

CLOCKED = ("lock", "timings.jsonl")
"""Files of a run that tell of processes and clocks, and of nothing else."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: see ``fork_server.Answer``."""

    code: int
    out: str
    err: str
    seconds: float
    calls: list[list[str]]


@dataclass
class Commands:
    """Runs ``attnkit`` in children of one process that has imported everything."""

    corpus: Path
    workshop: Any = field(repr=False)
    process: subprocess.Popen[bytes] = field(repr=False)

    def __call__(self, *argv: str | Path, **request: Any) -> Ended:
        """Run a command, or ask for something else: the keywords are the fields of ``fork_server.TrainRequest``."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"argv": list(map(str, argv)), **request}).encode() + b"\n")
        stdin.flush()
        return Ended(**json.loads(stdout.readline()))

    def done(self, *argv: str | Path, **request: Any) -> Ended:
        """Run a command that has to end well."""
        ended = self(*argv, **request)
        assert ended.code == 0, ended.err
        return ended

    def train_task(self, name: str, run: Path, **changes: Any) -> list[str]:
        """Return a command line that trains another task than translation, as ``train`` does."""
        own = {key: SETTINGS[key] for key in ("limits.max_steps", "evaluation", "checkpoints")}
        arguments: list[str] = self.workshop.task_arguments(name, run, **own, **changes)
        return arguments

    def train(self, kind: str, run: Path, **changes: Any) -> list[str]:
        """Return a command line: a few steps with dropout over more than one epoch, each kind of save, an average."""
        given = {
            "--src": self.corpus / "train.src",
            "--tgt": self.corpus / "train.tgt",
            "--valid-src": self.corpus / "valid.src",
            "--valid-tgt": self.corpus / "valid.tgt",
            "-o": run,
            "--preset": "tiny",
            "--model": kind,
        }
        settings = {**SETTINGS, **SIZES[kind], **{key.replace("__", "."): value for key, value in changes.items()}}
        flags = [str(text) for flag, value in given.items() for text in (flag, value)]
        return ["train", *flags, *(text for k, v in settings.items() for text in ("--set", f"{k}={json.dumps(v)}"))]

    @staticmethod
    def outcome(run: Path) -> dict[str, bytes]:
        """Return everything in a run folder, without what clocks and processes have put there.

        That is the lock, ``timings.jsonl``, minutes in ``state.json`` and the card, its date, and therefore what a
        manifest says of ``state.json`` and of itself.
        """
        found = {}
        for path in sorted(run.rglob("*")):
            name = str(path.relative_to(run))
            data = path.read_bytes() if path.is_file() and name not in CLOCKED else b""
            if path.name in ("state.json", "manifest.json"):
                tree = json.loads(data)
                tree.get("counters", {}).pop("minutes", None)
                tree.get("files", {}).pop("state.json", None)
                tree.pop("sha256", None)
                data = json.dumps(tree, sort_keys=True).encode()
            found[name] = re.sub(rb"[\d.]+ minutes|\d{4}-\d\d-\d\d", b"", data) if name == "README.md" else data
        return found

    @staticmethod
    def temporaries(folder: Path) -> list[Path]:
        """Return what writers have left behind, without what lies inside it."""
        found = sorted(folder.rglob(".tmp-*"))
        return [path for path in found if not any(parent in found for parent in path.parents)]


SETTINGS: dict[str, Any] = {
    "limits.max_steps": 9,
    "evaluation": {"every_steps": 5, "n_samples": 0},
    "checkpoints": {"save_every": 3, "keep_last": 2, "keep_best": 1, "average": 2},
    "optimization.batch_tokens": 200,
    "optimization.warmup_steps": 4,
    "optimization.learning_rate": 0.01,
    "decoding": {"beam_size": 1, "max_ratio": 1.0, "extra": 2},
    "vocabulary.kind": "char",
    "precision": "float32",
    "device": "cpu",
    "threads": 1,
    "model.dropout": 0.3,
    "model.d_model": 16,
}
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"model.n_heads": 2, "model.d_ff": 32, "model.encoder_layers": 1, "model.decoder_layers": 1},
    "rnn": {"model.d_hidden": 16},
}


@pytest.fixture(scope="session")
def commands(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    from attnkit.text.toy.corpus import make_files

    corpus = tmp_path_factory.mktemp("small-corpus")
    for name, lines in make_files("reverse", 40, 1, n_valid=2, n_test=8).items():
        (corpus / name).write_text("".join(f"{line}\n" for line in lines))
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("fork_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **alone},
    )
    yield Commands(corpus, workshop, process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def attnkit() -> Iterator[Any]:
    """``commandline.Forks``: commands as a person calls them, mistakes and all; ``attnkit.real`` starts a process."""
    import commandline

    forks = commandline.Forks()
    yield forks
    forks.close()
