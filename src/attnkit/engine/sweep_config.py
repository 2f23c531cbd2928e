"""Configuration of a sweep: which runs it has. Torch-free."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from attnkit.config import Layer, load_yaml, merge, nest, validate
from attnkit.errors import UsageError

SweepCommand = Literal["train", "pretrain-mlm", "pretrain-clm", "finetune"]
MOST_RUNS = 1000
_NOT_IN_NAMES = str.maketrans(dict.fromkeys('/\\:*?"<>|\x00\n\r\t ', "_"))


class Halving(BaseModel, frozen=True, extra="forbid", strict=True):
    """Early end of the worse configurations.

    Successive halving: Jamieson and Talwalkar 2016, Non-stochastic Best Arm Identification and Hyperparameter
    Optimization.
    """

    steps: list[int] = Field(min_length=1)
    """Steps at which configurations are compared, by their first evaluation at that step or later."""
    keep: float = Field(default=0.5, gt=0, lt=1)
    """Share of the configurations that remain, rounded up."""

    @field_validator("steps")
    @classmethod
    def _check_steps(cls, steps: list[int]) -> list[int]:
        if steps[0] < 1 or any(a >= b for a, b in itertools.pairwise(steps)):
            raise ValueError("steps must be positive and ascending")
        return steps


class SweepTest(BaseModel, frozen=True, extra="forbid", strict=True):
    """Test files on which the configurations of translators are compared at the end."""

    src: str
    tgt: str


class SweepConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Content of the file of a sweep."""

    command: SweepCommand = "train"
    """Command that trains each run."""
    config: str | None = None
    """Configuration that all runs have in common, beside the file of the sweep."""
    init_from: str | None = None
    """Run that provides the initial weights; the pretrained one for ``finetune``."""
    settings: dict[str, Any] = {}
    """Further settings of all runs, nested or with dots in their keys."""
    values: dict[str, list[Any]] = {}
    """Key -> its values; every combination is a configuration."""
    seeds: list[int] = Field(default=[1], min_length=1)
    """Each configuration is trained once with each seed."""
    halving: Halving | None = None
    """When the worse configurations end early; without it all runs are trained to their end."""
    tests: list[SweepTest] = []
    """Test files: each configuration is compared with the first one, by the run of its first seed."""

    @model_validator(mode="after")
    def _check_values(self) -> SweepConfig:
        for key, values in self.values.items():
            if not values:
                raise ValueError(f"values of {key}: give at least one")
            if key == "seed":
                raise ValueError("seeds have a list of their own: seeds")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed is listed twice")
        if self.tests and self.command != "train":
            raise ValueError(f"tests are for translators, not for {self.command}")
        if self.command == "finetune" and self.init_from is None:
            raise ValueError("finetune needs init_from, the pretrained run")
        return self


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    name: str  #: of its folder
    configuration: str  #: name without the seed
    tree: Mapping[str, Any]  #: its whole configuration


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep, by configuration in the order of the file, then by seed."""

    config: SweepConfig
    trials: list[Trial]


def read_sweep(path: Path) -> SweepPlan:
    """Read the file of a sweep, and the configuration that it names.

    Raises:
        UsageError: a file is missing or not as it should be, there are too many runs, or two have the same settings.
    """
    config = validate(SweepConfig, load_yaml(path))
    base = {} if config.config is None else load_yaml(path.parent / config.config)
    n_runs = math.prod(map(len, config.values.values())) * len(config.seeds)
    if n_runs > MOST_RUNS:
        raise UsageError(f"{n_runs:,} runs; a sweep has at most {MOST_RUNS:,}", where=str(path))
    names = short_names(list(config.values))
    trials = []
    for chosen in itertools.product(*config.values.values()):
        values = dict(zip(config.values, chosen, strict=True))
        own = ",".join(f"{names[key]}={_shown(value)}" for key, value in values.items()).translate(_NOT_IN_NAMES)
        configuration = own[:120] or "base"
        for seed in config.seeds:
            given = (_nested(tree) for tree in (base, config.settings, values, {"seed": seed}))
            tree = merge(Layer(str(path), one) for one in given)[0]
            trials.append(Trial(f"{configuration},seed={seed}", configuration, tree))
    if len({trial.name for trial in trials}) < len(trials):
        raise UsageError("two runs of the sweep would have one name", where=str(path), help="list each value once")
    return SweepPlan(config, trials)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest ends of dotted keys that differ.

    >>> short_names(["model.dropout", "optimization.learning_rate", "a.kind", "b.kind"])
    {'model.dropout': 'dropout', 'optimization.learning_rate': 'learning_rate', 'a.kind': 'a.kind', 'b.kind': 'b.kind'}
    """
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-n:]) for n in range(1, len(parts)))
        found[key] = next((end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1), key)
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_shown, value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _nested(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dots in their keys as nested ones."""
    layers = []
    for key, value in tree.items():
        layers.append(Layer("", nest(key.split("."), _nested(value) if isinstance(value, dict) else value)))
    return merge(layers)[0]
