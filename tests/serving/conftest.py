"""Helpers of other folders of tests, for the tests of the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from task_runs import task_runs

from attnkit.serving.limits import Limits
from attnkit.serving.models import Models

LIMITS = Limits(max_body=20_000, max_texts=20, max_characters=2_000, max_line=1_000, max_beam_size=6)


@pytest.fixture(scope="session")
def runs(trained: Path, workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    workshop.train(workshop.configure_task("vectors"), folder / "rows")
    return {"digits": trained, **task_runs(folder), "rows": folder / "rows"}


@pytest.fixture(scope="session")
def models(runs: dict[str, Path]) -> Models:
    specs = [f"en:de={runs['digits']}", *(f"{name}={path}" for name, path in runs.items() if name != "digits")]
    return Models(specs, LIMITS, device="cpu", precision="float32", threads=2)
