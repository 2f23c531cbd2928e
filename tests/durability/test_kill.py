"""Whenever a command that trains is killed, the same command again ends where one that was never killed does."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TAILS: dict[str, dict[str, Any]] = {
    "the only save": {"limits__max_steps": 1, "checkpoints": {"average": 0}},
    "one to drop": {"limits__max_steps": 2, "checkpoints": {"keep_last": 1, "keep_best": 0, "average": 0}},
    "an average": {"limits__max_steps": 3, "checkpoints": {"keep_last": 1, "keep_best": 0, "average": 2}},
}
KINDS = ("transformer", "rnn", "demo")
TASKS: dict[str, dict[str, Any]] = {
    "lines": {"noise": {"word_dropout": 0.2, "mask_prob": 0.1, "shuffle_prob": 0.3}, "model__dropout": 0.3},
    "vectors": {"noise": {"mask_prob": 0.3}},
    "documents": {"model__dropout": 0.3},
    "masked tokens": {"model__dropout": 0.3, "optimization__optimizer": "muon"},
    "pairs": {"model__dropout": 0.3},
    "next words": {"model__dropout": 0.3},
}
"""What is trained besides translation, with noise or dropout."""
BLOCKS, BLOCK = 4, 25
MOST_KILLS = 3


@dataclass(frozen=True)
class Whole:
    """A command that nobody interrupted."""

    outcome: dict[str, bytes]
    seconds: float
    n_calls: int


@pytest.fixture(scope="module")
def wholes(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    return whole_ones(commands, KINDS, tmp_path_factory)


@pytest.fixture(scope="module")
def whole_tasks(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    return whole_ones(commands, tuple(TASKS), tmp_path_factory)


def whole_ones(commands: Any, kinds: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    found = {}
    for kind in kinds:
        folder = tmp_path_factory.mktemp(f"whole-{kind}")
        ended = start(commands, kind, folder)
        assert ended.code == 0, ended.err
        found[kind] = Whole(commands.outcome(folder / "run"), ended.seconds, len(ended.calls))
    return found


def start(commands: Any, kind: str, folder: Path, **request: Any) -> Any:
    """Run the command that leaves ``folder/run``, killed as the request says. No machine dies here, only processes."""
    request["quick"] = True
    if kind == "demo":
        return commands("demo", "-o", ".", folder=str(folder), small_demo=True, **request)
    train = commands.train_task if kind in TASKS else commands.train
    return commands(*train(kind, folder / "run", **TASKS.get(kind, {})), **request)


def moment(chance: random.Random, whole: Whole, biased: bool, attempt: int) -> dict[str, Any]:
    """Draw when to kill: at any time, at one of the calls that change the disk, or shortly after one has begun.

    A run that continues has less before it, so that later kills come sooner.
    """
    share = chance.random() / attempt
    if not biased:
        return {"kill_after": share * whole.seconds}
    call = 1 + int(share * whole.n_calls)
    return {"kill_call": call} if chance.random() < 0.5 else {"kill_call": call, "kill_late": chance.random() * 0.003}


def trial(commands: Any, wholes: dict[str, Whole], folder: Path, seed: int) -> tuple[int, list[str]]:
    """Kill a command again and again, then let it end; return how often it was, and what is not as it should be."""
    chance = random.Random(seed)
    kinds = [kind for kind in wholes if kind != "demo"]
    kind, biased = kinds[seed % len(kinds)] if seed % 10 or "demo" not in wholes else "demo", seed // 2 % 2 == 1
    folder.mkdir()
    kills = 0
    for attempt in range(1, chance.randint(1, MOST_KILLS) + 1):
        ended = start(commands, kind, folder, **moment(chance, wholes[kind], biased, attempt))
        kills += ended.code == -9
        if ended.code == 0:
            break
        assert ended.code == -9, f"seed {seed}: {ended.err}"
    ended = start(commands, kind, folder)
    assert ended.code == 0, f"seed {seed}: {ended.err}"
    found, expected = commands.outcome(folder / "run"), wholes[kind].outcome
    shutil.rmtree(folder)
    return kills, [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]


def judge(commands: Any, wholes: dict[str, Whole], folder: Path, seeds: range) -> None:
    outcomes = {seed: trial(commands, wholes, folder / str(seed), seed) for seed in seeds}
    kills = sum(n for n, _ in outcomes.values())
    same = sum(not odd for _, odd in outcomes.values())
    print(f"{same} of {len(seeds)} identical after {kills} kills")
    assert {seed: odd for seed, (_, odd) in outcomes.items() if odd} == {}
    assert kills >= len(seeds) // 2, "most moments came too late"


def test_a_killed_command_ends_where_a_whole_one_does(commands: Any, wholes: dict[str, Whole], tmp_path: Path) -> None:
    judge(commands, wholes, tmp_path, range(10))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_100_killed_commands(commands: Any, wholes: dict[str, Whole], tmp_path: Path, block: int) -> None:
    judge(commands, wholes, tmp_path, range(1000 + block * BLOCK, 1000 + (block + 1) * BLOCK))


@pytest.mark.slow
def test_60_killed_trainings_of_other_tasks(commands: Any, whole_tasks: dict[str, Whole], tmp_path: Path) -> None:
    judge(commands, whole_tasks, tmp_path, range(2000, 2060))


def kill_after_the_last_save(commands: Any, folder: Path, case: str, some: int | None = None) -> None:
    """Kill at each call after the last checkpoint stands at its place, or at the first and some others."""
    few = {**TAILS[case], "evaluation": {"every_steps": 1, "n_samples": 0}}
    ended = commands.done(*commands.train("transformer", folder / "whole/run", **few), quick=True)
    expected = commands.outcome(folder / "whole/run")
    last = max(k for k, (name, path) in enumerate(ended.calls, 1) if name == "replace" and "/checkpoints/" in path)
    calls = range(last + 1, len(ended.calls) + 1)
    for k in calls if some is None else [last + 1, *random.Random(1).sample(calls, some)]:
        train = commands.train("transformer", folder / str(k) / "run", **few)
        assert commands(*train, kill_call=k, quick=True).code == -9
        commands.done(*train, quick=True)
        assert commands.outcome(folder / str(k) / "run") == expected, f"call {k}: {ended.calls[k - 1]}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", TAILS)
def test_a_kill_after_the_last_save_leaves_nothing_undone(commands: Any, tmp_path: Path, case: str) -> None:
    kill_after_the_last_save(commands, tmp_path, case, some=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", TAILS)
def test_any_kill_after_the_last_save_leaves_nothing_undone(commands: Any, tmp_path: Path, case: str) -> None:
    kill_after_the_last_save(commands, tmp_path, case)


def test_a_run_killed_again_and_again_while_it_begins_is_still_known(commands: Any, tmp_path: Path) -> None:
    """Before the first checkpoint nothing but the lock and a few words say that the folder is a run's."""
    train = commands.train("transformer", tmp_path / "run", limits__max_steps=1)
    begun = [path for _, path in commands(*train, kill_call=60, quick=True).calls]
    assert any(path.endswith("/run/config.yaml") or "/.tmp-data-" in path for path in begun)
    for k in range(1, 13):
        ended = commands(*train, kill_call=k, quick=True)
        assert ended.code == -9, ended.err
    commands.done(*train, quick=True)
