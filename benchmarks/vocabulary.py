"""Time of `attnkit vocab` beside the trainers of `tokenizers` and `sentencepiece` on the same file.

    python benchmarks/vocabulary.py TEXT [--size 8000] [--rounds 3]

`attnkit vocab` runs as a whole: start, training, statistics. The peers are called from Python: start and training
alone. All train byte-pair encoding of one vocabulary size, in processes that take turns, on all cores and on one. A
sentencepiece that is not installed is left out. Figures go to `results/vocabulary.json`, under the name of the text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peers import HERE

RESULT = HERE / "results" / "vocabulary.json"

TOKENIZERS = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
specials = ["<pad>", "<s>", "</s>", "<unk>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(
    vocab_size=int(sys.argv[2]), min_frequency=2, show_progress=False, initial_alphabet=alphabet,
    special_tokens=specials,
)
tokenizer.train([sys.argv[1]], trainer)
tokenizer.save(sys.argv[3])
"""
SENTENCEPIECE = """
import os, sys
import sentencepiece
sentencepiece.SentencePieceTrainer.train(
    input=sys.argv[1], vocab_size=int(sys.argv[2]), model_prefix=sys.argv[3], model_type="bpe", minloglevel=2,
    num_threads=len(os.sched_getaffinity(0)),
)
"""


def commands(text: Path, size: int, output: str) -> dict[str, list[str]]:
    """Return the command of each system."""
    arguments = [str(text), str(size), output]
    found = {
        "attnkit": [sys.executable, "-m", "attnkit", "vocab", str(text), "--size", str(size), "-o", output, "--quiet"],
        "tokenizers": [sys.executable, "-c", TOKENIZERS, *arguments],
    }
    if find_spec("sentencepiece"):
        found["sentencepiece"] = [sys.executable, "-c", SENTENCEPIECE, *arguments]
    return found


def run(command: list[str], cpus: set[int]) -> dict[str, float]:
    """Return the seconds of a command and its memory in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus), env=os.environ
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed with status {status}: {command[:4]}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": cpu, "megabytes": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--size", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["attnkit", "tokenizers", "sentencepiece"])
    options = parser.parse_args()
    every = os.sched_getaffinity(0)
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        found = commands(options.text, options.size, str(Path(folder) / "out"))
        for _ in range(options.rounds):
            for cpus in (every, {min(every)}):
                for name, command in found.items():
                    if name in options.only:
                        rows.setdefault(f"{name}, {len(cpus)} cores", []).append(run(command, cpus))
    report: dict[str, Any] = {"bytes": options.text.stat().st_size, "size": options.size, "rounds": options.rounds}
    report |= {
        name: {key: round(statistics.median(one[key] for one in some), 2) for key in some[0]}
        for name, some in rows.items()
    }
    ours = report[f"attnkit, {len(every)} cores"]["seconds"]
    for name in rows:
        print(f"{name:24} {report[name]}  {report[name]['seconds'] / ours:.2f} times attnkit's on all cores")
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    RESULT.write_text(json.dumps({**results, options.text.name: report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
