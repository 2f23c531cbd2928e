"""The modules beside the tests are no package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "formats"))  # for runs of random weights


@pytest.fixture(scope="session")
def backward(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the opposite direction with another vocabulary, whose log-probabilities differ from one another."""
    from reranked import configure

    folder = tmp_path_factory.mktemp("backward") / "run"
    config = configure(workshop, ("tgt", "src"), vocabulary__kind="bpe", vocabulary__size=300, limits__max_steps=40)
    workshop.train(config, folder)
    return folder
