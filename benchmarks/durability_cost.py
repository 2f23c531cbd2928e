"""What surviving costs: training of two revisions of attnkit side by side, in pairs of the same steps.

    python benchmarks/durability_cost.py --before REVISION [--pairs 22] [--turns 6] [--steps 10] [--again]

Both revisions train the same model on the same generated corpus with `attnkit.tasks.translation.task.train`: run
folder, logs and all. A pair is two fresh processes, since a process is up to 5 % faster or slower than another of the
same code for as long as it lives; they take turns, each doing the same steps of the same batches, and the first
changes from turn to turn. The figure is the mean of the ratio of real tokens a second, after to before, with its 95 %
interval (Student's t over the logarithms of the pairs), and whether one training step runs the same operators. The
revision before is checked out with `git worktree` under benchmarks/.work.

Resumable by pair; figures go to benchmarks/results/durability_cost.json.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers import WORK, Message, Worker, add_options, open_result, save_result

RESULT = Path(__file__).parent / "results" / "durability_cost.json"
ROOT = Path(__file__).resolve().parents[1]
HOME = WORK / "durability_cost"
# Two-sided 95 % points of Student's t by degrees of freedom; between two entries the lower one's is taken.
STUDENT = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 23: 2.069, 29: 2.045, 39: 2.023, 59: 2.001}


def checked_out(revision: str) -> Path:
    """Return a folder that holds a revision's sources, made the first time."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", revision], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = HOME / commit
    if not tree.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", tree, commit], cwd=ROOT, check=True)
    return tree


def corpus() -> Path:
    """Return a folder with the generated text, made the first time."""
    folder = HOME / "corpus"
    if not folder.exists():
        command = [sys.executable, "-m", "attnkit", "toy-corpus", "english-french", "-o", folder]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return folder


def start(name: str, tree: Path, options: argparse.Namespace) -> Worker:
    """Start one revision's process, on a run folder of its own that is new."""
    run = HOME / f"run-{name}"
    shutil.rmtree(run, ignore_errors=True)
    arguments = [str(corpus()), str(run), str(options.steps), str(options.threads)]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")  # the worker inherits it
    try:
        return Worker(sys.executable, Path(__file__).with_name("durability_worker.py"), arguments, HOME / f"{name}.log")
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and the ends of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    freedom = len(logs) - 1
    point = STUDENT[max(known for known in STUDENT if known <= freedom)]
    middle, half = statistics.mean(logs), point * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def compare(result: Message, options: argparse.Namespace) -> None:
    """Take the pairs that are missing."""
    trees = {"before": checked_out(options.before), "after": ROOT}
    pairs: list[list[float]] = result.setdefault("tokens/s (before, after)", [])
    while len(pairs) < options.pairs:
        workers = {name: start(name, tree, options) for name, tree in trees.items()}
        try:
            first = {name: worker.receive() for name, worker in workers.items()}
            result["operators"] = operators_of(first, trees)
            pairs.append(turns(workers, options.turns))
        finally:
            for worker in workers.values():
                worker.close()
        save_result(options.result or RESULT, result)
        print(f"pair {len(pairs)}: {pairs[-1][0]:,.0f} and {pairs[-1][1]:,.0f} tokens/s", file=sys.stderr)


def operators_of(first: dict[str, Message], trees: dict[str, Path]) -> Message:
    """Return how the operators of a step differ, once it is sure that each revision is the one that runs."""
    for name, tree in trees.items():
        if not Path(first[name]["source"]).is_relative_to(tree / "src"):
            sys.exit(f"the revision {name} was not the one that ran: {first[name]['source']}")
    counted = {name: found["operators"] for name, found in first.items()}
    return {
        "of a step": sum(counted["after"].values()),
        "only or more before": difference(counted["before"], counted["after"]),
        "only or more after": difference(counted["after"], counted["before"]),
    }


def turns(workers: dict[str, Worker], n_turns: int) -> list[float]:
    """Return the tokens a second of both over so many turns."""
    for worker in workers.values():
        worker.ask({})  # the first steps are slow
    tokens, seconds = dict.fromkeys(workers, 0), dict.fromkeys(workers, 0.0)
    for turn in range(n_turns):
        for name in ("before", "after") if turn % 2 == 0 else ("after", "before"):
            done = workers[name].ask({})
            tokens[name] += done["tokens"]
            seconds[name] += done["seconds"]
    if tokens["before"] != tokens["after"]:
        sys.exit("the revisions do not train on the same batches: their figures cannot be compared")
    return [round(tokens[name] / seconds[name], 1) for name in ("before", "after")]


def difference(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Return by operator how many more calls one has than the other."""
    return {name: n - other.get(name, 0) for name, n in sorted(one.items()) if n > other.get(name, 0)}


def report(result: dict[str, Any]) -> str:
    """Return the outcome in words."""
    ratios = [after / before for before, after in result["tokens/s (before, after)"]]
    middle, low, high = interval(ratios)
    operators = result["operators"]
    same = not operators["only or more before"] and not operators["only or more after"]
    return (
        f"after / before: {middle:.3f}, 95 % interval {low:.3f} to {high:.3f}, {len(ratios)} pairs\n"
        f"operators of a step: {operators['of a step']}, {'the same' if same else f'not the same: {operators}'}"
    )


def main() -> None:
    """Measure what is missing and print the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="a revision of this repository")
    parser.add_argument("--pairs", type=int, default=22)
    parser.add_argument("--turns", type=int, default=6, help="of each process of a pair")
    parser.add_argument("--steps", type=int, default=10, help="of one turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    add_options(parser)
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("before", "turns", "steps", "threads")}
    result = open_result(options.result or RESULT, settings, again=options.again)
    if len(result.get("tokens/s (before, after)", [])) < options.pairs:
        compare(result, options)
    save_result(options.result or RESULT, result)
    print(report(result))


if __name__ == "__main__":
    main()
