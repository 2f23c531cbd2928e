"""Plans of training runs: size, memory and time, by a rate that is measured.

The rate is that of real training steps on random ids, with the model, batches and lengths of rows of the planned run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnkit.config import flatten
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.dry_run import estimate_run
from attnkit.engine.parallel import build_parameter_store, compile_layers
from attnkit.engine.plan_advice import advise
from attnkit.engine.registry import TASKS, task_spec
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.run_config import RunConfig, choose
from attnkit.engine.task import AnyTask, CorpusSize, task_of
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.models.linear import layer_draws
from attnkit.runtime.devices import choose_device, choose_precision, name_device, set_threads
from attnkit.training.config import LimitsConfig
from attnkit.training.flat_optimizer import Precision
from attnkit.training.loop import TrainingJob, fit
from attnkit.training.state import TrainState

SUPPORTED = ("translation", "mlm", "clm")  #: tasks that can be planned
TOKENS_PER_SENTENCE, TOKENS_PER_DOCUMENT = 25, 100
"""Assumed if a corpus is given by its number of tokens, pairs or documents alone."""
_WARM_UP = 2  #: steps that are not timed: the first ones allocate memory and load libraries
_MIN_STEPS = 3  #: timed, however long they take
_N_ROWS = 50_000  #: random rows at most
_MAX = 1e18  # of any number that is given


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is made of, beside the settings of the run."""

    settings: Mapping[str, Any]  #: dotted key -> value; None: not given
    sets: Sequence[str] = ()
    file: Path | None = None
    preset: str = "auto"
    init_from: Path | None = None
    examples: int | None = None  #: pairs or documents of a corpus without files
    tokens: float | None = None  #: tokens of a corpus without files
    devices: int = 1
    hours: float | None = None  #: that the run may take
    rate: float | None = None  #: tokens per second of a device, measured elsewhere
    seconds: float = 10.0  #: for the measurement


@dataclass(frozen=True)
class TrainingPlan(PlainResult):
    """Size, memory and time of a planned run."""

    task: str
    model: str  #: kind of model
    preset: str | None
    n_parameters: int
    vocab_sizes: Sequence[int]
    n_examples: int
    unit: str  #: plural noun of the examples
    tokens_per_epoch: int
    batch_tokens: int  #: tokens of a step, without padding
    tokens: int  #: that the whole run trains on
    steps: int
    epochs: float
    limited_by: str  #: what ends the run: steps, epochs, tokens, minutes or hours
    device: str
    n_devices: int
    precision: str
    memory: int  #: bytes, on each device
    memory_parts: Mapping[str, int]  #: see ``RunEstimate``
    tokens_per_second: float  #: of one device
    is_measured: bool  #: whether the rate was measured here
    hours: float  #: of training steps on all devices
    device_hours: float
    advice: Sequence[str] = field(default_factory=list)  #: by published scaling results, as sentences


def plan(request: PlanRequest, progress: Callable[[str], None] = lambda text: None) -> TrainingPlan:
    """Plan a run; measure the rate of training steps, unless it is given.

    ``progress`` is called with what takes time.

    Raises:
        UsageError: no corpus or two, a task that cannot be planned, or invalid settings.
    """
    _check_numbers(request)
    config = _resolve(request)
    if config.lora is not None and request.rate is None:
        help = "give the rate of such a run: --rate TOKENS_PER_SECOND"
        raise UsageError("training steps of adapters are not measured", where="adapter", help=help)
    task, unit = task_of(config), task_spec(config.task, config.model_kind).unit
    corpus = _given_size(request, config) or task.corpus_size(config, request.init_from)
    run = estimate_run(task, config, corpus, unit)
    if request.rate is None:
        progress(f"measuring training steps, some {request.seconds:g} seconds")
        rate, batch_tokens = measure_rate(task, config, corpus, request.seconds)
    else:
        rate, batch_tokens = request.rate, run.tokens_per_epoch / run.steps_per_epoch
    limits = config.limits
    per_hour = 3600 * rate * request.devices  # tokens; devices are assumed to share the work without loss
    ends = {
        "steps": limits.max_steps and limits.max_steps * batch_tokens,
        "epochs": limits.max_epochs and limits.max_epochs * corpus.tokens,
        "tokens": limits.max_tokens,
        "minutes": limits.max_minutes and limits.max_minutes / 60 * per_hour,
        "hours": request.hours and request.hours * per_hour,
    }
    tokens, limited_by = min((end, name) for name, end in ends.items() if end is not None)
    device = choose_device(config.device)
    return TrainingPlan(
        task=config.task,
        model=config.model_kind,
        preset=config.preset,
        n_parameters=run.n_parameters,
        vocab_sizes=list(corpus.vocab_sizes),
        n_examples=corpus.n_examples,
        unit=unit,
        tokens_per_epoch=run.tokens_per_epoch,
        batch_tokens=round(batch_tokens),
        tokens=round(tokens),
        steps=math.ceil(tokens / batch_tokens),
        epochs=tokens / max(1, corpus.tokens),
        limited_by=limited_by,
        device=name_device(device),
        n_devices=request.devices,
        precision=run.precision,
        memory=run.memory,
        memory_parts=run.memory_parts,
        tokens_per_second=rate,
        is_measured=request.rate is None,
        hours=tokens / per_hour,
        device_hours=tokens / per_hour * request.devices,
        advice=advise(config.task, run.n_parameters, corpus.n_examples, tokens, corpus.tokens),
    )


def _check_numbers(request: PlanRequest) -> None:
    """Raise ``UsageError`` for numbers that no plan can be made of."""
    least = {"examples": 2, "tokens": 1, "devices": 1, "hours": 0, "rate": 0, "seconds": 0}
    for name, lowest in least.items():
        value = getattr(request, name)
        if value is not None and not (max(lowest, 1e-6) <= value <= _MAX):
            what = f"{name} must be a number from {lowest or 'above 0'} to {_MAX:g}, not {value}"
            raise UsageError(what, where=f"--{name}", help="attnkit plan --help has an example")


def _resolve(request: PlanRequest) -> RunConfig:
    """Return the configuration; a corpus without files has names that nothing reads."""
    given = {key: value for key, value in request.settings.items() if value is not None}
    name = str(given.get("task", "translation"))
    if name not in SUPPORTED:
        help = f"choose one of {', '.join(SUPPORTED)}; others: --dry-run of their command"
        raise UsageError(f"runs of task '{name[:40]}' cannot be planned", where="--task", help=help)
    keys, preset = TASKS[name].required_keys, request.preset
    has_files = any(given.get(key) for key in keys) or request.file is not None
    if has_files == (request.examples is not None or request.tokens is not None):
        help = f"give files ({TASKS[name].example.partition(': ')[2]}), or --tokens N"
        raise UsageError("a plan needs a corpus: files, or its size, not both", help=help)
    if not has_files:
        given |= {key: ["corpus"] for key in keys}
        if preset == "auto" and "preset" not in flatten(dict(given)):
            preset = choose(_n_examples(request, name), TASKS[name].preset_thresholds)
    fixed = None if request.init_from is None else inherited(request.init_from, None)
    found: RunConfig = resolve(given, sets=request.sets, file=request.file, preset_name=preset, fixed=fixed).config
    return found


def _n_examples(request: PlanRequest, task: str) -> int:
    if request.examples is not None:
        return request.examples
    length = 2 * TOKENS_PER_SENTENCE if task == "translation" else TOKENS_PER_DOCUMENT
    return max(2, round((request.tokens or 0) / length))


def _given_size(request: PlanRequest, config: RunConfig) -> CorpusSize | None:
    """Return the size of a corpus without files, with lengths that vary by a third."""
    if request.examples is None and request.tokens is None:
        return None
    n_sides = 2 if config.task == "translation" else 1
    n = _n_examples(request, config.task)
    usual = n * n_sides * (TOKENS_PER_SENTENCE if n_sides == 2 else TOKENS_PER_DOCUMENT)
    tokens = usual if request.tokens is None else request.tokens
    drawn = np.random.default_rng(0).normal(tokens / n / n_sides, tokens / n / n_sides / 3, (n_sides, 1000))
    lengths = np.maximum(1, drawn.round() - 1).astype(np.int32)
    return CorpusSize(n, tokens, (config.vocabulary.size,) * n_sides, tuple(lengths))


def measure_rate(task: AnyTask, config: RunConfig, corpus: CorpusSize, seconds: float) -> tuple[float, float]:
    """Return the tokens per second of training steps, and the tokens of a step."""
    device = choose_device(config.device)
    set_threads(config.threads)
    precision = choose_precision(config.precision, device)
    n_rows = math.ceil(_N_ROWS / len(corpus.lengths[0]))
    some = tuple(np.tile(lengths, n_rows)[:_N_ROWS] for lengths in corpus.lengths)
    sampled = CorpusSize(len(some[0]), 0.0, corpus.vocab_sizes, some)
    optimization = config.optimization.model_copy(update={"schedule": "constant"})  # others need an end
    settings = config.training.model_copy(
        update={"optimization": optimization, "limits": LimitsConfig(max_steps=10**9)}
    )
    with atomic.temporary_dir() as folder:
        dataset = task.random_dataset(config, sampled, folder)
        torch.manual_seed(config.seed)
        model = task.sized_model(config, corpus.vocab_sizes).to(device)
        task.freeze(config, model)
        working: Precision = "bfloat16" if precision == torch.bfloat16 else "float32"
        weights = build_parameter_store(model, config, working, ProcessGroup(), task.lr_multipliers(config, model))
        compile_layers(model, config, device)
        accumulate = optimization.gradient_accumulation_steps
        job = TrainingJob(
            model=model,
            feed=BatchLoader(dataset, config.seed, optimization.batch_tokens, accumulate),
            loss=task.loss(config, model, None, device),
            config=settings,
            draw_layers=layer_draws(model, config.seed),
            prefetch=device.type == "cuda",
        )
        n_steps = n_tokens = 0
        start = time.perf_counter()
        for record in fit(job, TrainState(weights, DataPosition())):
            # A record holds the loss of its step, so the device has computed it.
            now = time.perf_counter()
            n_steps += 1
            if n_steps == _WARM_UP:
                start, n_tokens = now, 0
            elif n_steps > _WARM_UP:
                n_tokens += getattr(record, "n_tokens", 0)
                if now - start >= seconds and n_steps >= _WARM_UP + _MIN_STEPS:
                    break
    return n_tokens / (now - start), n_tokens / (n_steps - _WARM_UP)
