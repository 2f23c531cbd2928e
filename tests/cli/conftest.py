"""A whole run, and the command line in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.run_folder import RunFolder

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def whole(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the checkpoints 4, 8 and 12, and an average."""
    path = tmp_path_factory.mktemp("verified") / "run"
    config = workshop.configure(evaluation={"every_steps": 4}, checkpoints={"keep_last": 3, "average": 2})
    workshop.train(config, path)
    assert RunFolder(path).steps() == [4, 8, 12]
    return path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))
