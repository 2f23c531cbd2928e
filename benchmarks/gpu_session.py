"""All that waits for a GPU, in an order of its own, within the minutes that a GPU is at hand.

    PYTHONPATH=src python benchmarks/gpu_session.py --data WIKIPEDIA --out FOLDER --minutes 9

Each part runs in processes of its own with a limit, prints as it goes, and leaves its output in FOLDER/PART.log: what
is cut short loses nothing that was measured before. Parts (--parts picks some):

- kernels: the Triton kernels against their definitions in float64, and the candidate for GELU.
- resume: twenty steps in one go, and ten and ten more, of a small BERT: the same bytes?
- step: time, share of the peak and profile of a step of BERT base, with and without the candidate for GELU.
- trainer: attnkit beside Hugging Face's Trainer (mlm_gpu.py), whose Python is this one unless --peers-python says
  otherwise.
- tests: the tests of models, training and tasks, each --device auto being CUDA.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable


class Session:
    """The time that is left, and where output goes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.data, self.out, self.peers_python = options.data, options.out, options.peers_python
        self.end = time.monotonic() + 60 * options.minutes
        self.out.mkdir(parents=True, exist_ok=True)

    def run(self, part: str, *arguments: object, most: float) -> bool:
        """Run a command of Python for at most some seconds; show its output and add it to the part's file."""
        seconds = min(most, self.end - time.monotonic())
        if seconds < 5:
            print(f"{part}: no time left", flush=True)
            return False
        began = time.monotonic()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        with (self.out / f"{part}.log").open("a") as log:
            command = [PYTHON, *map(str, arguments)]
            child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            try:
                code: int | None = child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.terminate()
                child.wait()
                code = None
        how = "cut short" if code is None else f"ended with {code}"
        print(f"{part}: {how} after {time.monotonic() - began:.0f} s: {' '.join(command[1:4])}", flush=True)
        return code == 0

    def show(self, part: str, lines: int) -> None:
        """Print the end of a part's output."""
        text = (self.out / f"{part}.log").read_text(errors="replace").splitlines()[-lines:]
        print("\n".join(line[:180] for line in text), flush=True)


def kernels(session: Session) -> None:
    """Compare the kernels with their definitions."""
    session.run("kernels", HERE.parent / "tests" / "models" / "gpu_kernels_check.py", most=90)
    session.run("kernels", HERE / "gpu_gelu.py", most=40)
    session.show("kernels", 6)


def resume(session: Session) -> None:
    """Train in one go and in two parts, and compare the bytes."""
    work = session.out / "resume"
    work.mkdir(exist_ok=True)
    text = work / "text.txt"
    text.write_bytes(lzma.decompress((session.data / "valid.txt.xz").read_bytes())[:1_000_000])
    session.run("resume", "-m", "attnkit", "vocab", text, "-o", work / "vocab.json", "--size", 4000, "--symbol",
                "[MASK]", most=30)  # fmt: skip
    keys = ["optimization.schedule=constant", "optimization.warmup_fraction=1.0", "optimization.warmup_steps=5",
            "optimization.batch_tokens=16384", "limits.max_epochs=null", "evaluation.every_steps=10",
            "model.dropout=0.1"]  # fmt: skip
    sets = [part for key in keys for part in ("--set", key)]
    for run, steps in (("whole", 20), ("parts", 10), ("parts", 20)):
        session.run("resume", "-m", "attnkit", "pretrain-mlm", text, "-o", work / run, "--preset", "mini", "--vocab",
                    work / "vocab.json", "--seed", 3, "--max-steps", steps, *sets, most=60)  # fmt: skip
    for name in ("model.safetensors", "optimizer.safetensors"):
        paths = [work / run / "checkpoints" / "step-20" / name for run in ("whole", "parts")]
        hashes = {hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else str(path) for path in paths}
        print(f"resume: {name} {'the same bytes' if len(hashes) == 1 else f'DIFFERS: {hashes}'}", flush=True)


def step(session: Session) -> None:
    """Measure a step of BERT base."""
    for gelu in ([], ["--gelu"]):
        for positions in ("learned", "rotary"):
            session.run("step", HERE / "gpu_step.py", "--attention", "packed", "--profile", 24, "--positions",
                        positions, *gelu, most=80)  # fmt: skip
    session.run("step", HERE / "gpu_step.py", "--attention", "varlen", most=60)
    found = (session.out / "step.log").read_text().splitlines()
    print("\n".join(line for line in found if "of the peak" in line or "is busy" in line), flush=True)


def trainer(session: Session) -> None:
    """Measure beside the Trainer: first what matters most."""
    command = [HERE / "mlm_gpu.py", "--data", session.data, "--share", ".05", "--turns", 1, "--steps", 60,
               "--result", session.out / "mlm_gpu.json", "--peers-python", session.peers_python]  # fmt: skip
    for table in ("isolated", "across"):
        for length in (128, 512):
            session.run("trainer", *command, "--lengths", length, "--tables", table, "--systems", "attnkit, compiled",
                        "Trainer, compiled", "Trainer", most=260)  # fmt: skip
            session.show("trainer", 8)


def tests(session: Session) -> None:
    """Run the tests that a GPU may change."""
    folders = [HERE.parent / "tests" / name for name in ("models", "training", "decoding", "data", "tasks", "interop")]
    session.run("tests", "-m", "pytest", "-q", "-n", max(1, (os.cpu_count() or 2) - 2), *filter(Path.exists, folders),
                most=300)  # fmt: skip
    session.show("tests", 20)


PARTS: dict[str, Callable[[Session], None]] = {
    "kernels": kernels, "resume": resume, "step": step, "trainer": trainer, "tests": tests
}  # fmt: skip


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.txt.xz and valid.txt.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder of logs and results")
    parser.add_argument("--minutes", type=float, default=9.0, help="that all parts may take together")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=tuple(PARTS), metavar="PART")
    parser.add_argument("--peers-python", type=Path, default=Path(PYTHON), help="interpreter with transformers")
    options = parser.parse_args()
    session = Session(options)
    for name in options.parts:
        PARTS[name](session)


if __name__ == "__main__":
    main()
