"""What an hour of pretraining on two cores is worth: fine-tuned, beside the same from scratch and simple baselines.

    PYTHONPATH=src python benchmarks/pretraining.py --data DIR
    PYTHONPATH=src python benchmarks/pretraining.py --data DIR --report

DIR holds wikipedia-en, sentence-polarity, wnut17 and xquad. First `attnkit pretrain-mlm` with examples/bert-mini.yaml,
--minutes long; its held-out perplexity is kept as it goes. Then `attnkit finetune` for three tasks, from the pretrained
encoder and --from-scratch (same architecture and vocabulary), --seeds seeds each, and `attnkit predict --gold` on the
test sets. Each of the two beginnings gets the learning rate of RATES whose development score is best, with a seed that
is not used again. A run ends after Task.epochs or --most-minutes, which come first on two cores of today: the schedule
falls to its end by then, and a faster machine takes more steps. xquad is split by paragraph as
baselines.py splits it, and the figures of baselines.py stand beside (benchmarks/results/baselines.json).

Resumable: pretraining goes on from its newest checkpoint, a fine-tuning under way begins anew. Figures go to
benchmarks/results/pretraining.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from baselines import RESULT as BASELINES
from baselines import xquad_parts
from peers import WORK, Message, add_options, forget_rows, machine, median_and_range, read_rows, update_rows
from word2vec_runs import UNSET, measured

from attnkit.text.squad import write_squad

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "pretraining.json"
CONFIG = HERE.parent / "examples" / "bert-mini.yaml"
RATES = (3e-4, 1e-3)
SEARCH_SEED = 1000
STARTS = ("pretrained", "from scratch")


@dataclass(frozen=True)
class Task:
    """What is fine-tuned for."""

    data: str
    name: str
    """As ``--task`` has it."""
    files: tuple[str, str, str]
    """For training, development and test."""
    score: str
    """The metric, as ``predict --json`` and the development set's evaluation call it."""
    baseline: str
    """The same in baselines.json."""
    epochs: int


TASKS = (
    Task("sentence-polarity", "text-classification", ("train.tsv", "dev.tsv", "test.tsv"), "accuracy", "accuracy", 5),
    Task("wnut17", "token-classification", ("train.conll", "dev.conll", "test.conll"), "f1", "F1", 15),
    Task("xquad", "question-answering", ("train.json", "dev.json", "test.json"), "f1", "F1", 10),
)


class Experiment:
    """The runs of a call, and the result file that they go to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path: Path = options.result or RESULT
        self.home = WORK / "pretraining" / self.path.stem
        self.run = self.home / "mini"
        self.settings = {
            "minutes": options.minutes, "threads": options.threads, "rates": RATES, "set": options.sets,
            "most minutes": options.most_minutes, "epochs": {task.data: task.epochs for task in TASKS},
            "configuration": CONFIG.read_text().split("\n"),
        }  # fmt: skip

    def rows(self) -> dict[str, Message]:
        """Return all that is measured by now."""
        return read_rows(self.path, self.settings)

    def keep(self, name: str, record: Message) -> None:
        """Save a figure."""
        with update_rows(self.path, self.settings) as rows:
            rows[name] = record

    def attnkit(self, *arguments: object) -> tuple[str, Message]:
        """Run a command of the toolkit; return what it prints, with its wall time and memory."""
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        command = [sys.executable, "-m", "attnkit", *arguments]
        return measured(command, environment, self.home / f"{arguments[0]}.log")

    def pretrain(self) -> None:
        """Pretrain, or go on with it; keep the curve."""
        if "pretraining" in self.rows() and (self.run / "README.md").exists():
            return
        text = self.options.data / "wikipedia-en"
        sets = [part for value in self.options.sets for part in ("--set", value)]
        _, record = self.attnkit(
            "pretrain-mlm", text / "train.txt.xz", "--valid", text / "valid.txt.xz", "--config", CONFIG,
            "--max-minutes", self.options.minutes, "--threads", self.options.threads, "-o", self.run, "--json", *sets,
        )  # fmt: skip
        self.keep("pretraining", {**record, "curve": self.curve(), "load average": round(os.getloadavg()[0], 2)})

    def curve(self) -> list[Message]:
        """Return every evaluation so far, with minutes and tokens."""
        logs = {name: (self.run / name).read_text().splitlines() for name in ("metrics.jsonl", "timings.jsonl")}
        times = {row["step"]: row for row in map(json.loads, logs["timings.jsonl"])}
        rows = [row for row in map(json.loads, logs["metrics.jsonl"]) if row["kind"] == "evaluation"]
        names = ("step", "epoch", "loss", "perplexity", "accuracy", "top_5")
        return [
            {**{name: round(row[name], 4) for name in names}, "minutes": round(times[row["step"]]["minutes"], 2),
             "tokens": times[row["step"]]["tokens"]}
            for row in rows
        ]  # fmt: skip

    def files(self, task: Task) -> list[Path]:
        """Return the files of a task; xquad is split into three the first time."""
        folder = self.options.data / task.data
        if task.data == "xquad":
            folder = self.home / "xquad"
            if not (folder / task.files[-1]).exists():
                folder.mkdir(parents=True, exist_ok=True)
                for name, part in zip(task.files, xquad_parts(self.options.data), strict=True):
                    (folder / name).write_text(write_squad(part))
        return [folder / name for name in task.files]

    def finetune(self, task: Task, start: str, rate: float, seed: int) -> Message:
        """Return the scores of a fine-tuning, which is done unless it was before."""
        name = f"{task.data} | {start} | rate {rate:g} | seed {seed}"
        if name in (rows := self.rows()):
            return rows[name]
        train, dev, test = self.files(task)
        run = self.home / "now"
        shutil.rmtree(run, ignore_errors=True)
        printed, record = self.attnkit(
            "finetune", self.run, "--task", task.name, "--train", train, "--dev", dev, "-o", run, "--seed", seed,
            "--threads", self.options.threads, "--max-epochs", task.epochs, "--json",
            "--max-minutes", self.options.most_minutes, "--set", f"optimization.learning_rate={rate}",
            *(["--from-scratch"] if start == "from scratch" else []),
        )  # fmt: skip
        told = json.loads(printed)
        scored, _ = self.attnkit("predict", run, test, "--gold", "--summary", "--json")
        timing = json.loads((run / "timings.jsonl").read_text().splitlines()[-1])
        record |= {"steps": told["step"], "minutes": round(timing["minutes"], 3), "dev": told["metrics"]}
        record["test"] = json.loads(scored.splitlines()[-1])
        self.keep(name, record)
        shutil.rmtree(run)
        said = f"dev {record['dev'][task.score]:.2f}, test {record['test'][task.score]:.2f}"
        print(f"{name}: {said} in {record['minutes']:.1f} minutes", file=sys.stderr)
        return record

    def searched(self, task: Task, start: str) -> dict[float, float]:
        """Return the development score by learning rate, as far as it is known."""
        rows = self.rows()
        names = {rate: f"{task.data} | {start} | rate {rate:g} | seed {SEARCH_SEED}" for rate in RATES}
        return {rate: rows[name]["dev"][task.score] for rate, name in names.items() if name in rows}

    def compare(self, task: Task) -> None:
        """Search a learning rate for both beginnings, then fine-tune from both in turn."""
        for start in STARTS:
            for rate in RATES:
                self.finetune(task, start, rate, SEARCH_SEED)
        for seed in range(1, self.options.seeds + 1):
            for start in STARTS:
                found = self.searched(task, start)
                self.finetune(task, start, max(found, key=lambda rate: found[rate]), seed)

    def report(self) -> str:
        """Return the tables of all there is."""
        rows = self.rows()
        parts = [curve_table(rows["pretraining"]["curve"])] if "pretraining" in rows else []
        lines = ["| test set | score | simple baseline | from scratch | pretrained | gain | minutes a run | steps |",
                 "|---|---|---|---|---|---|---|---|"]  # fmt: skip
        baselines = json.loads(BASELINES.read_text())["rows"]
        for task in TASKS:
            done = {start: self.trained(task, start) for start in STARTS}
            if all(done.values()):
                lines.append(task_line(task, done, baselines[task.data]))
        return "\n\n".join([*parts, "\n".join(lines)])

    def trained(self, task: Task, start: str) -> list[Message]:
        """Return the fine-tunings after the search that are done, by seed."""
        found, rows = self.searched(task, start), self.rows()
        if not found:
            return []
        rate = max(found, key=lambda rate: found[rate])
        names = [f"{task.data} | {start} | rate {rate:g} | seed {n}" for n in range(1, self.options.seeds + 1)]
        return [rows[name] for name in names if name in rows]


def curve_table(curve: list[Message]) -> str:
    """Return the held-out perplexity over time, at most a dozen points of it."""
    lines = ["| minutes | tokens | passes | held-out perplexity | hidden tokens guessed | among five |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for row in curve[:: -(-len(curve) // 12) or 1][:-1] + curve[-1:]:
        lines.append(
            f"| {row['minutes']:.0f} | {row['tokens'] / 1e6:.1f} M | {row['epoch']:.2f} | {row['perplexity']:.1f} | "
            f"{row['accuracy']:.1f} % | {row['top_5']:.1f} % |"
        )
    return "\n".join(lines)


def task_line(task: Task, done: dict[str, list[Message]], baseline: Message) -> str:
    """Return the line of a task: median and range over seeds."""
    scores = {start: [row["test"][task.score] for row in rows] for start, rows in done.items()}
    gain = statistics.mean(scores["pretrained"]) - statistics.mean(scores["from scratch"])
    minutes = max(row["minutes"] for rows in done.values() for row in rows)
    steps = [row["steps"] for rows in done.values() for row in rows]
    cells = [f"{task.data} ({task.name})", task.baseline, f"{baseline[task.baseline]:.1f}"]
    cells += [median_and_range(scores[start], 1) for start in ("from scratch", "pretrained")]
    return f"| {' | '.join(cells)} | {gain:+.1f} | {minutes:.1f} | {min(steps):,}-{max(steps):,} |"


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60, help="of pretraining, evaluation included")
    parser.add_argument("--most-minutes", type=float, default=1.5, help="of a fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=[task.data for task in TASKS], help="fine-tune for these alone")
    parser.add_argument("--set", action="append", default=[], dest="sets", help="a key of pretraining, to try it out")
    parser.add_argument("--report", action="store_true", help="print what is measured by now, and train nothing")
    add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is under way ends too
    experiment = Experiment(options)
    if options.again:
        forget_rows(experiment.path, experiment.settings, list(experiment.rows()) if experiment.path.exists() else [])
        shutil.rmtree(experiment.run, ignore_errors=True)
    if not options.report:
        print(json.dumps(machine()), file=sys.stderr)
        experiment.pretrain()
        for task in TASKS:
            if options.only is None or task.data in options.only:
                experiment.compare(task)
    print(experiment.report())


if __name__ == "__main__":
    main()
