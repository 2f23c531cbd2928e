"""Helpers of other folders of tests, for the tests of the service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

for _folder in ("formats", "tasks"):
    sys.path.append(str(Path(__file__).parents[1] / _folder))

import finetuned  # noqa: E402
from hub_runs import configure, save_run, shaken, vocabulary  # noqa: E402

from attnkit.models.bert import Bert  # noqa: E402
from attnkit.models.gpt import Gpt  # noqa: E402
from attnkit.serving.limits import Limits  # noqa: E402
from attnkit.serving.models import Models  # noqa: E402

LIMITS = Limits(max_body=20_000, max_texts=20, max_characters=2_000, max_line=1_000, max_beam_size=6)


@pytest.fixture(scope="session")
def runs(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    found = {"digits": trained}
    for name, task in (("bert", "mlm"), ("gpt", "clm")):
        torch.manual_seed(6)
        words = vocabulary("bpe")
        config = configure(task, words)
        model = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
        found[name] = save_run(folder / name, config, shaken(model), words)
    found["mood"] = finetuned.random_run(folder / "mood", "text-classification", ["bad", "good"])
    found["names"] = finetuned.random_run(folder / "names", "token-classification", ["B-PER", "I-PER", "O"])
    found["answers"] = finetuned.random_run(folder / "answers", "question-answering")
    return found


@pytest.fixture(scope="session")
def models(runs: dict[str, Path]) -> Models:
    specs = [f"en:de={runs['digits']}", *(f"{name}={path}" for name, path in runs.items() if name != "digits")]
    return Models(specs, LIMITS, device="cpu", precision="float32", threads=2)
