"""A run folder that a stranger has made: whatever lies in it, no code runs, nothing hangs, nothing outside is touched.

Each case ends within ten seconds of work and a gigabyte, with a documented exit code and at most three lines said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from stage import Case, Stage, make, perform

if TYPE_CHECKING:
    from tests.conftest import Workshop

RUN, NEWEST = "run/", "run/checkpoints/step-12/"
DATA = ("prepared.json", "tokenizer.json", "valid.src.txt", "train/pairs.json", "train/src/index.json")
MAPPED = ("train/src/ids.bin", "train/tgt/offsets.bin")
UNUSABLE = "cannot be used"


def borders(file: str, *values: int) -> Callable[[Stage], None]:
    """Return what overwrites borders of rows at the start of an array, after its first."""

    def craft(stage: Stage) -> None:
        path = stage.run / "data/train" / file
        found = np.fromfile(path, "<i8")
        found[1 : 1 + len(values)] = values
        found.tofile(path)

    return craft


def unknown_ids(stage: Stage) -> None:
    path = stage.run / "data/train/src/ids.bin"
    np.full(path.stat().st_size // 2, 60_000, "<u2").tofile(path)


def everywhere(stage: Stage) -> None:
    for name in ("status.json", "timings.jsonl", "README.md", "config.yaml", "tokenizer.json", "lock"):
        stage.put(RUN + name, stage.pickled)


def outside_folder(name: str) -> Callable[[Stage], None]:
    """Return what puts a folder of the run outside, and a link in its place."""

    def craft(stage: Stage) -> None:
        (stage.folder / name).rename(stage.outside / "folder" / "moved")
        stage.put("outside/folder/moved/.tmp-data-1", "precious")
        stage.link(name, stage.outside / "folder" / "moved")

    return craft


def averaged(stage: Stage) -> None:
    stage.link(RUN + "averaged", stage.newest)


CASES = [
    Case("pickle as best", lambda s: s.put("run/best", s.pickled), "translate", 4, "best checkpoint is damaged"),
    Case("pickle under every name for people", everywhere, "train", 0),
    *(
        Case(f"pickle as data/{name}", lambda s, n=name: s.put(f"run/data/{n}", s.pickled), "train", 4, "rm -r")
        for name in (*DATA, *MAPPED)
    ),
    Case(
        "an array of objects",
        lambda s: s.edit_json("run/data/train/src/index.json", lambda t: {**t, "dtype": "|O"}),
        "train",
        4,
        "does not describe this folder",
    ),
    Case(
        "rows below zero",
        lambda s: s.edit_json("run/data/train/src/index.json", lambda t: {**t, "lines": -1}),
        "train",
        4,
        "does not describe this folder",
    ),
    Case(
        "10^18 rows",
        lambda s: s.edit_json("run/data/train/src/index.json", lambda t: {**t, "lines": 10**18}),
        "train",
        4,
        "does not describe this folder",
    ),
    Case("an id beyond the vocabulary", unknown_ids, "train", 4, "damaged"),
    Case("borders below zero", borders("src/offsets.bin", -(2**62)), "train", 4, "damaged"),
    Case("borders beyond the end", borders("tgt/offsets.bin", 2**62), "train", 4, "damaged"),
    Case("borders that go back", borders("src/offsets.bin", 300, 2), "train", 4, "damaged"),
    Case(
        "text for counts",
        lambda s: s.edit_json("run/data/prepared.json", lambda t: {**t, "counts": {"valid": "8"}}),
        "train",
        4,
        "rm -r",
    ),
    Case(
        "pairs of no text",
        lambda s: s.edit_json("run/data/train/pairs.json", lambda t: {**t, "corpora": [1e3]}),
        "train",
        4,
        "rm -r",
    ),
    Case("more text to validate on", lambda s: s.sparse("run/data/valid.tgt.txt"), "train", 4, "rm -r"),
    Case("an array that is a link", lambda s: s.link("run/data/train/src/ids.bin", s.outside / "text"), "train", 4),
    *(
        Case(f"data/{name} that is a pipe", lambda s, n=name: s.pipe(f"run/data/{n}"), "train", 4, "rm -r")
        for name in ("prepared.json", "valid.src.txt", "train/src/ids.bin", "train/src/index.json", "tokenizer.json")
    ),
    Case("checkpoints elsewhere", outside_folder("run/checkpoints"), "train", 4, "not a folder of this run"),
    Case("data elsewhere", outside_folder("run/data"), "train", 4, "not a folder of this run"),
    Case("a checkpoint elsewhere", outside_folder("run/checkpoints/step-12"), "translate last", 0, "symbolic link"),
    Case("an average elsewhere", averaged, "translate averaged", 4, "symbolic link"),
    Case("events elsewhere", lambda s: s.link("run/tensorboard", s.outside / "folder"), "train --tensorboard", 4),
    *(
        Case(f"{name} elsewhere", lambda s, n=name: s.link(f"run/{n}", s.outside / "text"), "train", code)
        for name, code in (
            ("lock", 5),
            ("metrics.jsonl", 5),
            ("timings.jsonl", 5),
            ("status.json", 0),
            ("README.md", 0),
            ("config.yaml", 0),
            ("best", 0),
            ("tokenizer.json", 0),
        )
    ),
    Case("best is /dev/zero", lambda s: s.link("run/best", "/dev/zero"), "translate", 4, "best checkpoint is damaged"),
    Case("best is itself", lambda s: s.link("run/best", "best"), "translate", 0),
    Case("best names another place", lambda s: s.put("run/best", "../../outside\n"), "translate", 4, "damaged"),
    Case("best of 10 GB", lambda s: s.sparse("run/best"), "translate", 4, "damaged"),
    *(
        Case(f"{name} is a pipe", lambda s, n=name: s.pipe(f"run/{n}"), "train", code)
        for name, code in (("best", 0), ("lock", 5), ("metrics.jsonl", 5), ("status.json", 0), ("config.yaml", 0))
    ),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_crafted_run_is_harmless(case: Case, attnkit: Any, workshop: Workshop, trained: Path, tmp_path: Path) -> None:
    go_on = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=13)
    perform(case, attnkit, make(tmp_path, trained, go_on))
