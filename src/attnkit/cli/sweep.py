"""``attnkit sweep``: one run for each combination of settings."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet
from attnkit.errors import RunError

if TYPE_CHECKING:
    from attnkit.engine.sweep import Sweep, SweepOutcome
    from attnkit.engine.sweep_config import SweepPlan


def command(
    file: Annotated[Path, Argument(help="YAML file: values, seeds, what runs share.", metavar="FILE")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write the runs to.", metavar="DIR")],
    jobs: Annotated[int, Option(min=1, max=256, help="Runs at a time; they share the CPUs.", metavar="N")] = 1,
    dry_run: Annotated[bool, Option(help="List the runs; do not train.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a run for each combination of values and seeds; compare them.

    \b
    FILE, for instance:
      config: base.yaml            # what all runs have in common
      values:
        model.dropout: [0.1, 0.3]
        optimization.learning_rate: [0.001, 0.003]
      seeds: [1, 2, 3]
      halving: {steps: [1000, 2000], keep: 0.5}   # optional
      tests: [{src: test.en, tgt: test.de}]       # optional

    Each run is a folder in DIR, with its configuration and output beside it. The same command resumes a sweep that was
    stopped or killed, and starts what failed again. At the steps of "halving" the worse configurations end, by the mean
    score of their seeds on the development set. The table at the end is that of "attnkit runs DIR --seeds".

    \b
    Examples:
      attnkit sweep sweep.yaml -o experiments
      attnkit sweep sweep.yaml -o experiments --jobs 2
      attnkit sweep sweep.yaml -o experiments --dry-run
    """
    from attnkit.engine.sweep import Sweep
    from attnkit.engine.sweep_config import read_sweep
    from attnkit.progress import console
    from attnkit.runtime.signals import StopRequests

    plan = read_sweep(file)
    if dry_run:
        names = [trial.name for trial in plan.trials]
        console.result(dumps(names) if json else "\n".join(names))
        return
    with console.StatusLine(plain_every=60.0) as status, StopRequests() as stop:
        stop.defer()
        sweep = Sweep(plan, output, n_jobs=jobs, stop=stop, tell=status.update)
        outcome = sweep.run()
    show(sweep, plan, outcome, json)
    if outcome.failed:
        name, code = next(iter(outcome.failed.items()))
        what = f"{len(outcome.failed)} of {len(plan.trials)} runs failed, the first with exit code {code}"
        raise RunError(what, where=str(output / f"{name}.log"), help="read its log; the same command tries again")


def show(sweep: Sweep, plan: SweepPlan, outcome: SweepOutcome, json: bool) -> None:
    """Print the table of configurations, and the comparison on test files."""
    from attnkit.analysis.compare_translators import compare_translators
    from attnkit.analysis.run_table import group_by_seed, list_runs, sort_groups
    from attnkit.cli.compare import titled_text
    from attnkit.cli.runs import groups_text
    from attnkit.io.plain_data import plain
    from attnkit.progress import console

    paths = [sweep.run_path(trial) for trial in plan.trials if trial.name in outcome.finished]
    groups = sort_groups(group_by_seed(list_runs(paths))) if paths else []
    first: dict[str, Path] = {}
    for trial in plan.trials:
        if trial.name in outcome.finished:
            first.setdefault(trial.configuration, sweep.run_path(trial))
    tests = [(Path(test.src), Path(test.tgt)) for test in plan.config.tests]
    compared = list(compare_translators(list(first.values()), tests)) if len(first) > 1 and tests else []
    if json:
        tree = {"groups": [asdict(group) for group in groups], "tests": [asdict(one) for one in compared]}
        console.result(dumps(plain({**asdict(outcome), **tree}), ensure_ascii=False))
        return
    if groups:
        console.result(console.printable(groups_text(groups, console.width())))
    if outcome.ended_early:
        console.result(f"ended early: {', '.join(outcome.ended_early)}")
    for one in compared:
        console.result(f"\n{titled_text(one)}")
