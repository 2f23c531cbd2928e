"""Masked language models on a GPU: attnkit against Hugging Face's Trainer, compiled and not, and the GPU's own limit.

    PYTHONPATH=src python benchmarks/mlm_gpu.py --data WIKIPEDIA
    PYTHONPATH=src python benchmarks/mlm_gpu.py --data WIKIPEDIA --device cpu --sizes mini --batch 2048 --steps 10

A BERT of --sizes (base: 12 layers of 768, 32,000 words) in rows of each of --lengths, in bfloat16 without dropout, both
sides from the same weights on the same text, as mlm.py has it, with as many tokens of text a step. Isolated documents:
attnkit attends by the kernel for passages of many lengths, the Trainer has one piece of a document a row, grouped by
length. Across: both attend without any mask.

Speeds are without the first five steps of either side, which compile and warm up.

The share of the GPU is the arithmetic that the model needs, over what the GPU is sold for (PEAKS), and over what a
product of two large bfloat16 matrices reaches here. Needed are six operations for each weight and token (two forward,
four backward; embeddings looked up cost none, the output layer counts for hidden tokens alone) and twelve for each pair
of tokens that see each other, feature and layer. Padding and what is computed twice do not count.

Resumable; figures go to benchmarks/results/mlm_gpu.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from mlm_runs import MINI, Case, Place, Shared, System, Way, train
from peers import Message, add_options, machine, median_and_range, peers_python, read_rows, update_rows

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "mlm_gpu.json"
SIZES = {"mini": (MINI, 8000), "base": ({"d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072}, 32_000)}
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "4090": 165.2e12}
"""Operations a second in bfloat16 without sparsity, by a part of the GPU's name: what its maker states."""
LAYOUTS = {"across": "across", "isolated": "alone"}
HIDDEN = 0.15
SYSTEMS = {
    "attnkit": (System("attnkit", False, "bfloat16", 0.0), False),
    "attnkit, compiled": (System("attnkit", False, "bfloat16", 0.0), True),
    "Trainer": (System("hf", True, "bfloat16", 0.0), False),
    "Trainer, compiled": (System("hf", True, "bfloat16", 0.0), True),
}
PRODUCT = """
import json, time, torch
device = torch.device("DEVICE")
n = 8192 if device.type == "cuda" else 1024
a, b = (torch.randn(n, n, dtype=torch.bfloat16, device=device) for _ in range(2))
wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
for _ in range(5): a @ b
wait(); began = time.perf_counter()
for _ in range(20): a @ b
wait(); print(json.dumps({"name": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                          "product": 40 * n**3 / (time.perf_counter() - began)}))
"""


def operations(shared: Shared, table: str, row: Message) -> float:
    """Return the arithmetic that a real token needs, forward and backward."""
    width, layers = shared.sizes["d_model"], shared.sizes["n_layers"]
    weights = layers * (4 * width**2 + 2 * width * shared.sizes["d_ff"])
    head = HIDDEN * (width**2 + width * shared.vocabulary)
    sees = shared.length if table == "across" else row["sees"]
    return 6.0 * (weights + head) + 12.0 * layers * width * sees


class Experiment:
    """The trainings of a call, and the result file that they go to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.path = options, options.result or RESULT
        self.python = peers_python(options.peers_python, "mlm.txt")
        sizes, vocabulary = SIZES[options.sizes]
        self.shared = {
            length: Shared(options.steps, 1e-4, options.steps // 10, options.threads, "lines", length, vocabulary,
                           options.batch, options.device, dict(sizes))
            for length in options.lengths
        }  # fmt: skip
        self.settings = {
            "data": options.data.name, "share": options.share, "peers": (HERE / "mlm.txt").read_text().split("\n")[1:4],
            **{key: value for key, value in asdict(next(iter(self.shared.values()))).items() if key != "length"},
        }  # fmt: skip

    def rows(self) -> dict[str, Message]:
        """Return all that is measured by now."""
        return read_rows(self.path, self.settings)

    def keep(self, name: str, row: Message) -> None:
        """Save figures."""
        with update_rows(self.path, self.settings) as rows:
            rows[name] = row

    def measure(self) -> None:
        """Measure what is missing, systems in turn."""
        if "gpu" not in self.rows():
            code = PRODUCT.replace("DEVICE", self.options.device)
            self.keep("gpu", json.loads(subprocess.run([sys.executable, "-c", code], check=True, text=True,
                                                       stdout=subprocess.PIPE).stdout))  # fmt: skip
        for length, shared in self.shared.items():
            place = Place(self.options.data, self.options.share, self.python, shared)
            place.prepare()
            for table in self.options.tables:
                for turn in range(1, self.options.turns + 1):
                    for name in self.options.systems:
                        self.train(f"{table} | {length} | {name} | {turn}", name, table, place)

    def train(self, key: str, name: str, table: str, place: Place) -> None:
        """Train once, unless it was done; what does not work here is noted with the reason."""
        if key in self.rows():
            return
        (system, compiled), steps = SYSTEMS[name], self.options.steps
        way = Way(LAYOUTS[table], table == "isolated", 4, compiled=compiled) if system.peer else None
        sets = () if system.peer else (f"torch_compile={str(compiled).lower()}",)
        try:
            row = train(Case(system, table, 1, way, steps, sets=sets, clocked=True), place, scores=False)
            row["sees"] = seen(place, table)
        except SystemExit as failed:
            if not isinstance(failed.code, str):  # somebody wants this script to end
                raise
            row = {"failed": failed.code[-500:]}
        self.keep(key, row)
        print(f"{key}: {row.get('tokens/s', 'failed')}", file=sys.stderr)

    def report(self) -> str:
        """Return a table of each length and way to attend."""
        rows, parts = self.rows(), []
        gpu = rows.get("gpu", {"name": "", "product": 1.0})
        sold = next((peak for part, peak in PEAKS.items() if part in gpu["name"]), None)
        for length, shared in self.shared.items():
            for table in LAYOUTS:
                found = {name: [row for key, row in rows.items() if key.startswith(f"{table} | {length} | {name} | ")]
                         for name in SYSTEMS}  # fmt: skip
                if not any(found.values()):
                    continue
                lines = [f"### {table}, rows of {length}, {gpu['name']}", "",
                         "| system | text tokens/s, median (range) | attnkit compiled is | share of the peak | "
                         "of a product |", "|---|---|---|---|---|"]  # fmt: skip
                own = speeds(found["attnkit, compiled"])
                for name, each in found.items():
                    if not (mine := speeds(each)):
                        if each:
                            lines.append(f"| {name} | failed | | | |")
                        continue
                    ratio = f"{statistics.median(own) / statistics.median(mine):.2f} x" if own else ""
                    used = statistics.median(
                        operations(shared, table, row) * row["real tokens"] / row["seconds"]
                        for row in each if "failed" not in row
                    )  # fmt: skip
                    shares = [f"{used / sold:.1%}" if sold else "", f"{used / gpu['product']:.1%}"]
                    lines.append(f"| {name} | {median_and_range(mine, 0)} | {ratio} | {' | '.join(shares)} |")
                parts.append("\n".join(lines))
        return "\n\n".join(parts)


def seen(place: Place, table: str) -> float:
    """Return how many tokens a token sees, on average: its own passage's."""
    import numpy as np
    from safetensors.numpy import load_file

    sizes = load_file(place.ids)["sizes"].astype(np.float64) + 2
    return place.shared.length if table == "across" else float((sizes**2).sum() / sizes.sum())


def speeds(rows: list[Message]) -> list[float]:
    """Return tokens a second of what worked."""
    return [float(row["tokens/s"]) for row in rows if "failed" not in row]


def main() -> None:
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.txt.xz and valid.txt.xz")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--sizes", default="base", choices=tuple(SIZES))
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--tables", nargs="+", default=list(LAYOUTS), choices=tuple(LAYOUTS))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=tuple(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--batch", type=int, default=65_536, help="tokens a step")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the text, its first articles")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="print what is measured by now, and train nothing")
    add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the training under way ends too
    experiment = Experiment(options)
    if not options.report:
        print(json.dumps(machine()), file=sys.stderr)
        experiment.measure()
    print(experiment.report())


if __name__ == "__main__":
    main()
