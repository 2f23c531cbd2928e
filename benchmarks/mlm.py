"""Masked language models: attnkit pretrain-mlm against Hugging Face's Trainer, at equal losses. Resumable.

    PYTHONPATH=src python benchmarks/mlm.py --data WIKIPEDIA
    PYTHONPATH=src python benchmarks/mlm.py --data WIKIPEDIA --only isolated --report

WIKIPEDIA holds train.txt.xz and valid.txt.xz, a blank line between articles. Both sides train a BERT of 4 layers of 256
on the same documents (paragraphs of 110 tokens on average, or with --documents blocks articles of 4,000), in the same
encoding (8,000 entries, made by attnkit), in rows of 128 tokens, from the same initial weights (attnkit's, exported),
with the same AdamW, clipping and 80/10/10 masking, on as many tokens of text a step, with --threads threads. Each takes
its own linear schedule: both rise for a tenth of the steps; attnkit's then is the smaller of that rise and of the share
that is left, the Trainer's falls from its peak, so that its rates add up to 9 % more. Each training is a process of its
own; systems take turns, seed by seed.

Two tables. Across: tokens of a row see each other whatever document they are of; the Trainer's rows are cut from all
documents behind each other. Isolated: a document sees itself alone; the Trainer's rows are one piece of a document
each, padded, or packed ones with a four-dimensional mask.

- hf default: float32, dropout .1, batches drawn at random, as the Trainer and BERT's configuration have it;
- hf best: bfloat16, no dropout, in the way that is fastest in a probe of WAYS, --probe steps each;
- attnkit: as `--preset mini` has it, which is bfloat16 where the machine has it, without dropout, but for positions:
  both sides learn them, as BERT does, where the preset's are rotary. So the row of hf best differs in nothing but the
  system, the row of hf default in precision and dropout as well;
- attnkit, same minutes: for as long as hf best took, with the schedule of that many minutes;
- attnkit dropout and hf dropout (--only dropout): both in bfloat16 with dropout .1.

Tokens/s are tokens of documents (no padding, [CLS] or [SEP]) by the seconds from the first step to the last, of as many
steps on both sides; the Trainer's first five are counted as the mean of the others, since they may compile. Losses
are of the same hidden tokens of the same held-out rows, by attnkit's evaluation in float32 of both sides' weights;
transformers' own loss of its weights must agree to 2e-5, which says that the functions are equal. So few steps teach
no more than how frequent words are: that losses are equal says that steps are, not that anything was learnt.

Figures go to benchmarks/results/mlm.json; a stop loses one training at most, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import mlm_report as tables
from mlm_runs import Case, Place, Shared, System, Way, train
from peers import Message, add_options, forget_rows, machine, peers_python, read_rows, update_rows

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "mlm.json"
DEFAULT = System("hf default", True, "float32", 0.1)
BEST = System("hf best", True, "bfloat16", 0.0)
DROPOUT = System("hf dropout", True, "bfloat16", 0.1)
OWN = System("attnkit", False, "auto", 0.0)
TIMED = System("attnkit, same minutes", False, "auto", 0.0)
OWN_DROPOUT = System("attnkit dropout", False, "bfloat16", 0.1)
WAYS = {
    "across": [
        Way("across"),
        Way("across", workers=1),
        Way("across", attention="eager"),
        Way("across", compiled=True),
        Way("across", attention="eager", compiled=True),
    ],
    "isolated": [
        Way("alone", grouped=True),
        Way("alone", grouped=True, workers=1),
        Way("packed"),
        Way("packed", compiled=True),
        Way("alone", grouped=True, compiled=True),
    ],
}
PLAIN = {"across": Way("across"), "isolated": Way("alone")}
"""What the Trainer does when it is told nothing."""
TURNS = (DEFAULT, OWN, BEST, TIMED)
ROWS = ("across", "isolated", "dropout")


class Experiment:
    """The trainings of a call, and the result file that they go to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path: Path = options.result or RESULT
        warmup = round(0.1 * options.steps)
        shared = Shared(options.steps, options.learning_rate, warmup, options.threads, options.documents)
        self.place = Place(options.data, options.share, peers_python(options.peers_python, "mlm.txt"), shared)
        self.settings = {
            "data": options.data.name, "share": options.share, **asdict(shared),
            "peers": (HERE / "mlm.txt").read_text().split("\n")[1:4],
        }  # fmt: skip

    def rows(self) -> dict[str, Message]:
        """Return all that is measured by now."""
        return read_rows(self.path, self.settings)

    def keep(self, name: str, case: Case, *, scores: bool = True) -> Message:
        """Return the figures of a training, which is done unless it was before."""
        if name in (rows := self.rows()):
            return rows[name]
        record = train(case, self.place, scores=scores)
        with update_rows(self.path, self.settings) as rows:
            rows[name] = record
        loss = f", loss {record['loss']:.4f}" if "loss" in record else ""
        print(f"{name}: {record['tokens/s']:,.0f} tokens/s in {record['seconds']:.0f} s{loss}", file=sys.stderr)
        return record

    def probed(self, table: str) -> dict[str, Message]:
        """Return what a probe has found by now, by the names of the ways."""
        rows, found = self.rows(), {}
        for way in WAYS[table]:
            if (name := f"probe | {table} | {way.name}") in rows:
                found[way.name] = rows[name]
        return found

    def best(self, table: str) -> Way:
        """Return the peer's fastest way, after a probe of all."""
        for way in WAYS[table]:
            self.probe(table, way)
        found = self.probed(table)
        return max(WAYS[table], key=lambda way: float(found[way.name]["tokens/s"]))

    def probe(self, table: str, way: Way) -> None:
        """Time a few steps of the peer; a way that does not work here is noted with the reason."""
        name = f"probe | {table} | {way.name}"
        try:
            self.keep(name, Case(BEST, table, 1, way, self.options.probe), scores=False)
        except SystemExit as failed:
            if not isinstance(failed.code, str):  # somebody wants this script to end
                raise
            with update_rows(self.path, self.settings) as rows:
                rows[name] = {"tokens/s": 0.0, "padding": 0.0, "failed": failed.code[-500:]}

    def compare(self, table: str, turns: tuple[System, ...]) -> None:
        """Train every system in its turn, seed by seed."""
        best = self.best(table)
        ways = {DEFAULT: PLAIN[table], BEST: best, DROPOUT: best}
        for seed in range(1, self.options.seeds + 1):
            minutes = None
            for system in turns:
                steps = None if system == TIMED else self.options.steps
                case = Case(system, table, seed, ways.get(system), steps, minutes if system == TIMED else None)
                record = self.keep(f"{table} | {system.name} | seed {seed}", case)
                if system == BEST:
                    minutes = record["seconds"] / 60

    def report(self) -> str:
        """Return every table that there are figures for."""
        rows = self.rows()
        parts = []
        for table in WAYS:
            names = [*dict.fromkeys(system.name for system in (*TURNS, DROPOUT, OWN_DROPOUT))]
            done = {
                name: [row for key, row in rows.items() if key.startswith(f"{table} | {name} | seed ")]
                for name in names
            }
            parts.append(tables.report(table, done, self.probed(table)))
        return "\n\n".join(part for part in parts if part)


def main() -> None:
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.txt.xz and valid.txt.xz")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS[:2], metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--share", type=float, default=0.2, help="of the text, its first articles")
    parser.add_argument("--documents", choices=("lines", "blocks"), default="lines", help="paragraphs, or articles")
    parser.add_argument("--steps", type=int, default=150, help="of every training but the one for as many minutes")
    parser.add_argument("--probe", type=int, default=25, help="steps of each way of the peer")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--without-default", action="store_true", help="leave out the slowest of all, hf default")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="print what is measured by now, and train nothing")
    add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the training under way ends too
    experiment = Experiment(options)
    if options.again:
        forget_rows(experiment.path, experiment.settings, list(experiment.rows()) if experiment.path.exists() else [])
    if not options.report:
        print(json.dumps(machine()), file=sys.stderr)
        experiment.place.prepare()
        for row in options.only:
            if row != "dropout":
                experiment.compare(row, TURNS[options.without_default :])
        if "dropout" in options.only:
            for table in WAYS:
                experiment.compare(table, (DROPOUT, OWN_DROPOUT))
    print(experiment.report())


if __name__ == "__main__":
    main()
