"""Learn to reverse digit strings, and count exact answers on strings never seen. Resumable: run it again to go on.

    python benchmarks/reversal.py

The models are those of examples/reversal*.yaml; training strings have 1 to 25 digits. Strings of 26 to 30 digits,
longer than any in training, are reported apart. Figures go to benchmarks/results/reversal.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE / ".work" / "reversal"
MODELS = {"transformer": "reversal-transformer.yaml", "rnn": "reversal.yaml"}
PAIRS, TEST = 30_000, 2_000


def attnkit(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def exact(run: Path, name: str) -> float:
    """Return the share of a test file's lines that are answered without a fault."""
    output = run / f"{name}.out"
    attnkit("translate", run, "-i", WORK / f"{name}.src", "-o", output)
    pairs = zip(output.read_text().splitlines(), (WORK / f"{name}.tgt").read_text().splitlines(), strict=True)
    return sum(given == wanted for given, wanted in pairs) / TEST


def main() -> None:
    """Make the strings, train both models, write the result."""
    WORK.parent.mkdir(exist_ok=True)
    if not WORK.exists():
        attnkit("toy-corpus", "reverse", "-o", WORK, "--pairs", str(PAIRS), "--test", str(TEST), "--seed", "7")
    results = {}
    for model in sys.argv[1:] or MODELS:
        run, started = WORK / model, time.monotonic()
        attnkit(
            "train", "--config", HERE.parent / "examples" / MODELS[model], "-o", run,
            "--src", WORK / "train.src", "--tgt", WORK / "train.tgt",
            "--valid-src", WORK / "valid.src", "--valid-tgt", WORK / "valid.tgt",
        )  # fmt: skip
        results[model] = {
            "exact, lengths 1-25": exact(run, "test"),
            "exact, lengths 26-30, never trained on": exact(run, "test-long"),
            "strings of each": TEST,
            "seconds of this call": round(time.monotonic() - started, 1),
        }
        print(model, json.dumps(results[model]))
    path = HERE / "results" / "reversal.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
