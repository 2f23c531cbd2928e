"""Adapting a translator from short captions to long ones: LoRA, all weights, and what general text mixed in keeps.

Multi30k is halved by the length of the English caption: up to 11 words, and more. A model trained on the short half is
adapted to the long one by the preset ``adapt``, and scored on both halves of the test set, with the paired test against
no adaptation. Each training is measured in CPU time, which other jobs on the machine change little; five minutes of two
cores are 600 seconds of it. With --threads 2 on an idle machine, the time by the clock counts. Steps that are in the
result file are not repeated; an interrupted training resumes.

    python benchmarks/adapt_translation.py --data DIR --work DIR [--epochs N] [--threads N] [--result FILE]

DIR has ``train``, ``val`` and ``test_2016_flickr``, each with the endings ``.en`` and ``.de``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "adapt_translation.json"
LONGEST = 11  #: English words of a caption of the short half
HALVES = ("short", "long")
LORA = ["--set", "adapter.kind=lora", "--set", "adapter.rank=6", "--set", "adapter.alpha=12"]  # 4.7 % of the weights
# So few weights do not overfit; chosen by the development set, as is the rate.
LORA += ["--set", "model.dropout=0.05", "--set", "optimization.learning_rate=0.005"]
RUNS: dict[str, list[str]] = {"full": [], "lora": LORA, "full, mixed": ["mix"], "lora, mixed": [*LORA, "mix"]}
"""Name of an adapted run -> its options; "mix" mixes in the short half."""


def split(data: Path, work: Path) -> None:
    """Write both halves of each file."""
    for name in ("train", "val", "test_2016_flickr"):
        sides = [(data / f"{name}.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "de")]
        for half in HALVES:
            kept = [pair for pair in zip(*sides, strict=True) if (len(pair[0].split()) <= LONGEST) == (half == "short")]
            for number, side in enumerate(("en", "de")):
                text = "".join(pair[number] + "\n" for pair in kept)
                (work / f"{name}.{half}.{side}").write_text(text, encoding="utf-8")


def run(*arguments: str, cwd: Path) -> tuple[str, float, float]:
    """Run a command of attnkit; return its output, seconds of CPU and seconds by the clock."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "attnkit", *arguments]
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu, time.monotonic() - begun


def files(half: str, name: str, prefix: str = "--") -> list[str]:
    return [f"{prefix}src", f"{name}.{half}.en", f"{prefix}tgt", f"{name}.{half}.de"]


def train(name: str, options: list[str], work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Adapt the base to the long half; return what it cost and how large it is."""
    path = name.replace(", ", "-")
    mixed = ["--mix", "train.short.en", "train.short.de"] if "mix" in options else []
    sets = [option for option in options if option != "mix"]
    output, cpu, wall = run(
        "train", *files("long", "train"), *files("long", "val", "--valid-"), "-o", path, "--init-from", "base",
        *sets, *mixed, "--max-epochs", str(given.epochs), "--threads", str(given.threads), "--json", "--quiet",
        cwd=work,
    )  # fmt: skip
    done = json.loads(output.splitlines()[-1])
    best = (work / path / "best").read_text(encoding="utf-8").strip()
    held = {part.name: part.stat().st_size for part in (work / path / "checkpoints" / best).glob("*.safetensors")}
    config = (work / path / "config.yaml").read_text(encoding="utf-8")
    rate = next(line.split(":")[1].strip() for line in config.splitlines() if "learning_rate:" in line)
    return {
        "steps": done["step"],
        "learning_rate": float(rate),
        "dev": done["metrics"],
        "seconds_cpu": round(cpu),
        "seconds_wall": round(wall),
        "bytes": {name: size for name, size in sorted(held.items()) if not name.startswith("optimizer")},
    }


def compare(name: str, work: Path) -> list[dict[str, Any]]:
    """Score base and adapted run on both halves of the test set."""
    tests = [option for half in ("long", "short") for option in files(half, "test_2016_flickr")]
    return json.loads(run("compare", "base", name.replace(", ", "-"), *tests, "--json", "--quiet", cwd=work)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--epochs", type=int, default=5, help="5 take about 500 seconds of CPU time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    results: dict[str, Any] = json.loads(given.result.read_text()) if given.result.exists() else {}
    if not (given.work / "train.long.de").exists():
        split(given.data, given.work)
    base = [*files("short", "train"), *files("short", "val", "--valid-"), "-o", "base"]
    begin = ["--preset", "tiny", "--max-epochs", "15", "--threads", str(given.threads), "--quiet"]
    run("train", *base, *begin, cwd=given.work)
    for name in given.only:
        if name in results:
            continue
        training = train(name, RUNS[name], given.work, given)
        results[name] = {"training": training, "tests": compare(name, given.work)}
        given.result.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for test in results[name]["tests"]:
            bleu = test["scores"][0]
            print(
                f"{name}: {test['src']}: BLEU {bleu['baseline']:.2f} -> {bleu['system']:.2f} (p {bleu['p_value']:.4f})"
            )


if __name__ == "__main__":
    main()
