"""The modules beside the tests are no package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "formats"))  # for runs of random weights


@pytest.fixture(scope="session")
def forward(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose hypotheses end by themselves: it has learned to write three digits."""
    from attnkit.engine.resolve import resolve

    folder = tmp_path_factory.mktemp("forward")
    flags: dict[str, Any] = {"model.kind": "transformer"}
    for part, prefix in (("train", ""), ("valid", "valid_")):
        short = folder / f"{part}.tgt"
        short.write_text("".join(f"{line[:5]}\n" for line in workshop.file(f"{part}.tgt").read_text().splitlines()))
        flags |= {f"data.{prefix}src": [str(workshop.file(f"{part}.src"))], f"data.{prefix}tgt": [str(short)]}
    sets = workshop.settings(limits__max_steps=40)
    workshop.train(resolve(flags, sets=sets, preset_name="tiny").config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def backward(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the opposite direction with another vocabulary, whose log-probabilities differ from one another."""
    from reranked import configure

    folder = tmp_path_factory.mktemp("backward") / "run"
    config = configure(workshop, ("tgt", "src"), vocabulary__kind="bpe", vocabulary__size=300, limits__max_steps=40)
    workshop.train(config, folder)
    return folder
