from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attnkit.engine.resolve import resolve
from attnkit.runtime.devices import set_threads
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.text.toy.corpus import make_reversal

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

KINDS = {
    "post-norm, joint": [],
    "pre-norm, separate": ["model.norm=pre", "joint_vocabulary=false", "model.tie_embeddings=target"],
}


SETTINGS = {
    "vocabulary.kind": "word",
    "data.held_out": 20,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.n_heads": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "optimization.label_smoothing": 0.0,
    "optimization.learning_rate": 5e-3,
    "optimization.warmup_steps": 40,
    "optimization.batch_tokens": 1000,
    "limits.max_steps": 200,
    "evaluation.every_steps": 1000,
    "precision": "float32",
}
LETTERS = str.maketrans("0123456789", "abcdefghij")
"""So that the vocabularies of the two sides differ."""


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with train.src, train.tgt and test.src: short digit strings and their reversal in letters."""
    folder = tmp_path_factory.mktemp("digits")
    made = make_reversal(5, 15000, 1, 12_000)
    for name, size in (("train", 3000), ("test", 1000)):
        made[name] = [pair for pair in made[name] if 2 <= len(pair[0].split()) <= 5][:size]
        for side, k in (("src", 0), ("tgt", 1)):
            text = "".join(pair[k] + "\n" for pair in made[name])
            (folder / f"{name}.{side}").write_text(text if side == "src" else text.translate(LETTERS))
    return folder


def train_briefly(folder: Path, digits: Path, sets: list[str]) -> Path:
    set_threads(1)
    torch.manual_seed(0)
    sets = [f"{key}={value}" for key, value in SETTINGS.items()] + sets
    flags = {"data.src": [str(digits / "train.src")], "data.tgt": [str(digits / "train.tgt")]}
    config = resolve(flags, sets=sets, preset_name="tiny").config
    for _ in train(TrainRequest(config, folder)):
        pass
    return folder


@pytest.fixture(scope="session")
def train_on_digits(digits: Path) -> Callable[[Path, list[str]], Path]:
    """Return what trains a run, in a folder, with other settings than usual."""
    return lambda folder, sets: train_briefly(folder, digits, sets)


KINDS_NOW = [pytest.param(kind, marks=pytest.mark.slow if kind.startswith("pre") else ()) for kind in KINDS]


@pytest.fixture(scope="session", params=KINDS_NOW)
def run(request: pytest.FixtureRequest, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was trained long enough to say something sensible."""
    return train_briefly(tmp_path_factory.mktemp("runs") / "run", digits, KINDS[request.param])
