"""Multi30k English-German with and without attention, and with heads of different functions. Resumable.

    python benchmarks/multi30k_attention.py --data DIR [NAME ...]

DIR holds train/val/test_2016_flickr in .en.gz and .de.gz. The recurrent models have the sizes and the recipe of
examples/multi30k-rnn.yaml but for the key that is varied, and as many epochs as take about 12 minutes with attention;
the Transformers those of examples/multi30k.yaml. Scores are cased sacreBLEU (13a) of beam 5, and go to
benchmarks/results/multi30k-attention.json after each run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import sacrebleu

HERE = Path(__file__).parent
WORK = HERE / ".work" / "multi30k-attention"
RESULTS = HERE / "results" / "multi30k-attention.json"
EPOCHS = {"rnn": 7, "transformer": 7}
LUONG = ("model.query=current", "model.input_feeding=true")
BAHDANAU = ("model.query=previous", "model.input_feeding=false")
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "none": ("rnn", ("model.alignment=none", *BAHDANAU)),
    "Luong dot": ("rnn", ("model.alignment=dot", *LUONG)),
    "Luong general": ("rnn", ("model.alignment=general", *LUONG)),
    "Luong concat": ("rnn", ("model.alignment=concat", *LUONG)),
    "Bahdanau additive": ("rnn", ("model.alignment=additive", *BAHDANAU)),
    "Transformer": ("transformer", ()),
    "Transformer, mixed heads": ("transformer", ("model.alignment=[scaled_dot, general, additive, similarity]",)),
}
"""Name -> kind of model and what is changed in its example."""
CONFIGS = {"rnn": "multi30k-rnn.yaml", "transformer": "multi30k.yaml"}


def attnkit(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def measure(name: str, data: Path) -> dict[str, Any]:
    """Train one model, translate the test set, score it."""
    kind, changes = RUNS[name]
    run = WORK / name.lower().replace(", ", "-").replace(" ", "-")
    text = {f"{part}.{side}": data / f"{part}.{side}.gz" for part in ("train", "val") for side in ("en", "de")}
    attnkit(
        "train", "--config", HERE.parent / "examples" / CONFIGS[kind], "-o", run,
        "--src", text["train.en"], "--tgt", text["train.de"],
        "--valid-src", text["val.en"], "--valid-tgt", text["val.de"],
        "--max-epochs", str(EPOCHS[kind]),
        *(part for value in changes for part in ("--set", value)),
    )  # fmt: skip
    output = run.with_suffix(".test.de")
    attnkit("translate", run, "-i", data / "test_2016_flickr.en.gz", "-o", output, "--beam-size", "5")
    references = gzip.decompress((data / "test_2016_flickr.de.gz").read_bytes()).decode().split("\n")[:1000]
    bleu = sacrebleu.metrics.BLEU()
    score = bleu.corpus_score(output.read_text(encoding="utf-8").split("\n")[:1000], [references]).score
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max((record for record in records if "bleu" in record), key=lambda record: record["bleu"])
    return {
        "bleu": score,
        "signature": str(bleu.get_signature()),
        "development bleu": best["bleu"],
        "epochs": EPOCHS[kind],
        "minutes": timings[-1]["minutes"],
        "settings": [f"limits.epochs={EPOCHS[kind]}", *changes],
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a table of Markdown."""
    rows = ["| model | BLEU | development BLEU | epochs | minutes |", "|---|---|---|---|---|"]
    for name, row in results.items():
        figures = f"{row['bleu']:.1f} | {row['development bleu']:.1f} | {row['epochs']} | {row['minutes']:.0f}"
        rows.append(f"| {name} | {figures} |")
    return "\n".join(rows)


def main() -> None:
    """Train what is not yet trained, write figures after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RUNS)}; all without any")
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.names or RUNS:
        if name not in results:
            results[name] = measure(name, given.data)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results[name]), flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
