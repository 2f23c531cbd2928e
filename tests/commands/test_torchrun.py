"""Two processes under torchrun train as one does, stop together and go on together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch

# Sends SIGTERM to itself, on one rank alone, after the fourth step.
STOPPING = """
import os, signal
from attnkit.tasks import keeping
keep = keeping.Keeper.keep
def stop_after_four(self, record, state):
    keep(self, record, state)
    if self.ranks.rank == 1 and state.step == 4:
        os.kill(os.getpid(), signal.SIGTERM)
keeping.Keeper.keep = stop_after_four
from attnkit.cli import main
main()
"""


def torchrun(program: list[str], arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *program, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


def weights(run: Path) -> dict[str, Any]:
    return safetensors.torch.load_file(run / "checkpoints/step-8/model.safetensors")


def test_two_ranks_train_stop_and_go_on(workshop: Any, tmp_path: Path) -> None:
    # Adam would turn rounding into steps where the gradient is zero (of keys' biases) if eps did not drown it.
    changes = {"limits__steps": 8, "model__dropout": 0.0, "optimization__eps": 1e-3}
    arguments = workshop.arguments("transformer", tmp_path / "run", **changes)
    (tmp_path / "stopping.py").write_text(STOPPING)
    stopped = torchrun([str(tmp_path / "stopping.py")], arguments, tmp_path)
    assert (stopped.returncode, stopped.stdout) == (0, ""), stopped.stderr
    assert (tmp_path / "run/checkpoints/step-5").is_dir()
    assert not (tmp_path / "run/checkpoints/step-8").exists()

    finished = torchrun(["-m", "attnkit"], arguments, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("done: 8 steps") == 1
    assert finished.stderr.count("going on from step 5") == 1

    workshop.train(workshop.configure(**changes), tmp_path / "alone")
    expected, found = weights(tmp_path / "alone"), weights(tmp_path / "run")
    for name, tensor in expected.items():
        assert float((found[name] - tensor).norm() / tensor.norm()) <= 1e-5, name
