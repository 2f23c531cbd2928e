"""Runs of a sweep, several at a time, each in a process of its own. Torch-free.

Every run is an ordinary one: its command line is that of a user, with a configuration file beside its folder. A sweep
that is killed resumes as its runs do.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnkit.checkpoints.logs import read_records, read_status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import dump_tree, load_yaml
from attnkit.engine.sweep_config import SweepPlan, Trial
from attnkit.errors import AttnkitError, StoppedError, UsageError
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.runtime.signals import python_command, usable_cpus
from attnkit.training.config import LOWER_IS_BETTER

_POLL = 0.2  # seconds between two looks at the processes
_PROGRAM = """from attnkit.runtime.signals import end_with_parent
end_with_parent({parent})
from attnkit.cli.main import main
main()
"""
_PAUSED = (StoppedError.exit_code, 128 + signal.SIGTERM, -signal.SIGTERM)


@dataclass
class SweepOutcome(PlainResult):
    """What became of the runs of a sweep."""

    finished: list[str] = field(default_factory=list)  #: names of runs
    ended_early: list[str] = field(default_factory=list)  #: names of configurations
    failed: dict[str, int] = field(default_factory=dict)  #: name of a run -> exit code


class Sweep:
    """The runs of a plan in a folder; ``tell`` receives progress."""

    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        *,
        n_jobs: int = 1,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.plan, self.folder, self.n_jobs, self._stop, self._tell = plan, folder, n_jobs, stop, tell
        self._outcome = SweepOutcome()
        self._sizes: dict[str, int] = {}  # bytes of records of evaluation times when they were looked at last

    def run(self) -> SweepOutcome:
        """Train all runs, or those that halving leaves; finished ones are not touched.

        Raises:
            UsageError: a folder of that name has a run of other settings.
            StoppedError: a stop was requested; the same command resumes.
        """
        atomic.make_dirs(self.folder)
        alive = list(self.plan.trials)
        for trial in alive:
            self._write_config(trial)
        halving = self.plan.config.halving
        for step in halving.steps if halving is not None else ():
            self._train(alive, step)
            alive = self._halve([trial for trial in alive if trial.name not in self._outcome.failed], step)
        self._train(alive, None)
        return self._outcome

    def run_path(self, trial: Trial) -> Path:
        """Return the folder of a run."""
        return self.folder / trial.name

    def config_path(self, trial: Trial) -> Path:
        """Return the configuration file of a run, beside its folder."""
        return self.folder / f"{trial.name}.yaml"

    def _write_config(self, trial: Trial) -> None:
        path = self.config_path(trial)
        old = load_yaml(path) if path.exists() else {}
        tree = dict(trial.tree)
        if self.n_jobs > 1 or "threads" in old:  # a run is resumed with as many threads as before
            tree.setdefault("threads", old.get("threads", max(1, usable_cpus() // self.n_jobs)))
        if old and old != tree:
            what = f"{trial.name} has other settings now than when it was begun"
            raise UsageError(what, where=str(path), help="use another -o for another sweep")
        if not old:
            atomic.write_text(path, dump_tree(tree))

    # --- processes

    def _train(self, trials: Sequence[Trial], until: int | None) -> None:
        """Train runs to an evaluation at step ``until`` or later; None: to their end."""
        waiting = [trial for trial in trials if not self._is_done(trial, until)]
        n_done = len(trials) - len(waiting)
        running: dict[str, tuple[Trial, subprocess.Popen[bytes]]] = {}
        goal = "trained" if until is None else f"trained to step {until:,}"
        try:
            while waiting or running:
                if self._stop():
                    raise StoppedError("stopped; run the same command again to resume the sweep")
                while waiting and len(running) < self.n_jobs:
                    trial = waiting.pop(0)
                    running[trial.name] = trial, self._start(trial)
                self._tell(f"{n_done} of {len(trials)} runs {goal}; now {', '.join(running)}")
                time.sleep(_POLL)
                for name, (trial, process) in list(running.items()):
                    code = process.poll()
                    if code is not None:
                        del running[name]
                        n_done += 1
                        self._note(trial, code, until)
                    elif until is not None and self._is_evaluated(trial) and self._score(trial, until) is not None:
                        process.send_signal(signal.SIGTERM)  # it saves a checkpoint and ends
                        self._note(trial, process.wait(), until)
                        del running[name]
                        n_done += 1
        finally:
            for _, process in running.values():
                process.send_signal(signal.SIGTERM)
            for _, process in running.values():
                process.wait()
        if until is None:
            self._outcome.finished = [trial.name for trial in trials if trial.name not in self._outcome.failed]

    def _start(self, trial: Trial) -> subprocess.Popen[bytes]:
        config = self.plan.config
        options = ["--config", str(self.config_path(trial)), "-o", str(self.run_path(trial)), "--quiet"]
        if config.init_from is not None:
            options = [config.init_from, *options] if config.command == "finetune" else [
                *options, "--init-from", config.init_from
            ]  # fmt: skip
        command = python_command(_PROGRAM.format(parent=os.getpid()), config.command, *options)
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with atomic.open_for_child(self.folder / f"{trial.name}.log") as log:
            # A Ctrl-C reaches this process alone, which stops the others: two signals would end them unsaved.
            return subprocess.Popen(command, stdout=log, start_new_session=True, **streams)

    def _note(self, trial: Trial, code: int, until: int | None) -> None:
        if code and not (until is not None and code in _PAUSED and self._score(trial, until) is not None):
            self._outcome.failed[trial.name] = code

    def _is_done(self, trial: Trial, until: int | None) -> bool:
        status = read_status(self.run_path(trial))
        if status is not None and status.state == "finished":
            return True
        return until is not None and self._score(trial, until) is not None

    # --- scores

    def _is_evaluated(self, trial: Trial) -> bool:
        """Return whether a run was evaluated since the last call.

        The file of training times grows with every evaluation.
        """
        path = RunFolder(self.run_path(trial)).timings_path
        size = path.stat().st_size if path.exists() else 0
        before, self._sizes[trial.name] = self._sizes.get(trial.name, 0), size
        return size > before

    def _score(self, trial: Trial, step: int) -> float | None:
        """Return the score of the first evaluation at ``step`` or later, None so far.

        The score is negated where lower is better.
        """
        path = RunFolder(self.run_path(trial)).metrics_path
        metric = self._metric(trial)
        last = None
        for record in read_records(path) if path.exists() and metric is not None else ():
            if record.get("kind") == "evaluation" and metric in record:
                last = float(record[metric]) * (-1 if metric in LOWER_IS_BETTER else 1)
                if int(record["step"]) >= step:
                    return last
        status = read_status(self.run_path(trial))
        return last if status is not None and status.state == "finished" else None  # it ended before that step

    def _metric(self, trial: Trial) -> str | None:
        try:
            found = load_yaml(self.run_path(trial) / "config.yaml")["limits"]["metric"]
        except (AttnkitError, KeyError, TypeError):
            return None  # not written yet
        return found if isinstance(found, str) else None

    def _halve(self, trials: Sequence[Trial], step: int) -> list[Trial]:
        """Return the runs of the better configurations, by the mean of their seeds."""
        scores: dict[str, list[float]] = {}
        for trial in trials:
            score = self._score(trial, step)
            scores.setdefault(trial.configuration, []).append(-math.inf if score is None else score)
        halving = self.plan.config.halving
        assert halving is not None
        order = sorted(scores, key=lambda name: _worst_if_nan(statistics.fmean(scores[name])), reverse=True)
        kept = set(order[: math.ceil(halving.keep * len(order))])
        self._outcome.ended_early += [name for name in scores if name not in kept]
        return [trial for trial in trials if trial.configuration in kept]


def _worst_if_nan(score: float) -> float:
    return -math.inf if math.isnan(score) else score
