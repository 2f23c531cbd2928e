"""Training loop, a generator of step and evaluation records, with its schedules."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from attnkit.errors import DivergedError, UsageError
from attnkit.training.config import LimitsConfig, OptimizationConfig, TrainingConfig
from attnkit.training.losses import LossTerm
from attnkit.training.records import EvaluationRecord, StepBatches, StepRecord
from attnkit.training.state import TrainState


class BatchSource(Protocol):
    """Source whose batches are a pure function of position and progress."""

    def batch_at(self, position: Any, progress: float, /) -> tuple[StepBatches, Any]:
        """Return the batches of the step at a position, and the next position.

        ``progress`` is the share of the run completed before the step; masking, for example, may depend on it.
        """


Prefetched = dict[Any, tuple[StepBatches, Any]]  #: prefetched step and next position, by position
_MAX_SKIPPED = 10
_ROUNDING = 1e-9  # tolerance for rounding errors in sums of epochs


@dataclass(frozen=True)
class TrainingJob:
    """Model, data and settings of a run; equal on all ranks except clock and stop."""

    model: nn.Module
    feed: BatchSource  #: positions must be hashable
    loss: Callable[[Any], Mapping[str, LossTerm]]
    """Loss terms of a micro-batch by name; the names are those of ``StepBatches.counts``."""
    config: TrainingConfig
    evaluate: Callable[[nn.Module], Mapping[str, float] | None] | None = None
    """Metrics of the model by name, the same on every rank; None if a stop request interrupts the evaluation."""
    seed: int = 1
    rank: int = 0
    reduce: Callable[[Tensor], None] | None = None  #: sums a tensor over ranks in place; None for a single rank
    draw_layers: Callable[[int], None] | None = None
    """Chooses the layers that a step skips, given its number: the same on all ranks. None skips no layers."""
    stop: Callable[[], bool] | None = None  #: called once per step; all ranks stop if it returns True on any rank
    clock: Callable[[], float] = time.monotonic  #: seconds
    prefetch: bool = False
    """Whether to read the next step while the device computes the current one, for asynchronous devices."""


def fit(job: TrainingJob, state: TrainState) -> Iterator[StepRecord | EvaluationRecord]:
    """Train until a limit or stop request; yield a record per step and evaluation.

    ``state.finished`` contains the reason for the end. Another call resumes a stopped or restored state, and returns
    at once for a finished one; limits are checked again, so raised limits take effect.

    An interrupted evaluation is discarded and repeated before the next step.

    Raises:
        DivergedError: Ten consecutive steps had a non-finite loss or gradient.
        UsageError: The configuration requires a metric that evaluation does not provide.
    """
    if state.weights.model is not job.model:
        raise ValueError("the state belongs to a different model")
    for wanted, key in (
        (job.config.limits.early_stopping_patience is not None, "limits.early_stopping_patience"),
        (job.config.optimization.schedule == "plateau", "optimization.schedule plateau"),
    ):
        if wanted and job.evaluate is None:
            raise UsageError(f"{key} needs validation data")
    # The start is moved into the past, so that minutes before a restart count.
    started = job.clock() - 60 * state.minutes
    ahead: Prefetched = {}
    state.finished = _limit_reached(job.config.limits, state)
    while True:
        if state.skipped_in_row >= _MAX_SKIPPED:
            raise DivergedError(
                f"the loss or its gradient was not finite in {_MAX_SKIPPED} steps in a row, up to step {state.step}",
                help="lower optimization.learning_rate or increase optimization.warmup_steps",
            )
        # Before the next step, also after a restart: repeat an evaluation that a stop request interrupted.
        if state.eval_pending and state.finished != "stopped":
            record = _evaluate(job, state)
            if record is None:
                state.finished = "stopped"
            else:
                yield record
        if state.finished:
            return
        yield _train_step(job, state, started, ahead)


def lr_factor(config: OptimizationConfig, step: int, progress: float) -> float:
    """Return the learning-rate factor of step ``step``, counted from 1.

    ``progress`` in [0, 1] is the share of the run completed *before* this step, so that the last step still learns and
    a run limited by minutes or tokens needs no total number of steps.
    """
    match config.schedule:
        case "inverse_sqrt":
            # Both branches are 1 at step == warmup_steps.
            return min(step / config.warmup_steps, math.sqrt(config.warmup_steps / step))
        case "noam":
            # Equation 3 of Vaswani et al. 2017 without its d_model^-0.5: min(step^-0.5, step * warmup^-1.5).
            # Written with a square root, since warmup^1.5 as a power rounds differently.
            return min(1 / math.sqrt(step), step / math.sqrt(config.warmup_steps) ** 3)
        case "constant" | "plateau":
            # For plateau, the loop lowers the rate when the metric stops improving.
            return _warmup(config, step, progress)
        case "cosine":
            # Half a cosine: equation 5 of Loshchilov and Hutter 2017 (SGDR) without restarts.
            share = 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            share = 1 - progress
        case "wsd":
            # Warmup, constant, then decay as 1 - sqrt over the last decay_fraction (Hägele et al. 2024, equation 1).
            into_decay = max(0.0, (progress - (1 - config.decay_fraction)) / config.decay_fraction)
            share = 1 - math.sqrt(min(1.0, into_decay))
    # min, not a product: the decay may start before the end of warmup.
    return min(_warmup(config, step, progress), config.min_lr_ratio + (1 - config.min_lr_ratio) * share)


def _warmup(config: OptimizationConfig, step: int, progress: float) -> float:
    if not config.warmup_steps:
        return 1.0
    # The larger of the two shares applies: in a short run, warmup ends after warmup_fraction, not warmup_steps.
    by_share = progress / config.warmup_fraction if config.warmup_fraction < 1 else 0.0
    return min(1.0, max(step / config.warmup_steps, by_share))


def progress(limits: LimitsConfig, state: TrainState) -> float:
    """Return the completed share of the run in [0, 1], the maximum over all limits."""
    # The last step may exceed a limit: tokens and minutes are not multiples of a step.
    return min(1.0, max(share for _, share in _shares(limits, state)))


def _shares(limits: LimitsConfig, state: TrainState) -> list[tuple[str, float]]:
    parts: list[tuple[str, float, float | None]] = [
        ("steps", state.step, limits.max_steps),
        ("epochs", state.epoch + _ROUNDING, limits.max_epochs),
        ("tokens", state.tokens, limits.max_tokens),
        ("minutes", state.minutes, limits.max_minutes),
    ]
    return [(name, done / most) for name, done, most in parts if most is not None]


def _limit_reached(limits: LimitsConfig, state: TrainState) -> str | None:
    for name, share in _shares(limits, state):
        if share >= 1:
            return name
    patience = limits.early_stopping_patience
    return "patience" if patience is not None and state.evals_without_improvement >= patience else None


def _train_step(job: TrainingJob, state: TrainState, started: float, ahead: Prefetched) -> StepRecord:
    optimization = job.config.optimization
    # Progress before the step, so that the last step has a learning rate above the end of the schedule.
    before = progress(job.config.limits, state)
    # The batches and the next position are a pure function of position and progress. A restored state may require
    # another step than the prefetched one.
    at = state.position
    step, after = ahead.pop(at) if at in ahead else job.feed.batch_at(at, before)
    ahead.clear()
    # Schedules count steps from 1: step 0 of a warmup would learn nothing.
    rate = optimization.learning_rate * state.lr_scale * lr_factor(optimization, state.step + 1, before)
    sums = [torch.zeros((), device=state.weights.device) for _ in range(2)]  # objective, reported loss
    # An evaluation between two steps leaves the model in evaluation mode.
    job.model.train()
    if job.draw_layers is not None:
        job.draw_layers(state.step)
    n_counted = len(step.micro_batches) - step.n_padding_batches
    for i, batch in enumerate(step.micro_batches):
        # Dropout is seeded by step, micro-batch and rank, so that no random state has to be saved.
        seed = int(np.random.SeedSequence([job.seed, state.step, i, job.rank]).generate_state(1)[0])
        # On a CPU its generator alone: for devices never used, torch.manual_seed formats the call stack (0.1 to 1 ms).
        (torch.default_generator if state.weights.device.type == "cpu" else torch.random).manual_seed(seed)
        objective: Tensor | None = None
        for name, term in job.loss(batch).items():
            # Padding batches only equalize the number of passes across ranks: their gradient is multiplied by 0.
            # Divided by the global count: accumulation and the number of ranks do not change the gradient.
            share = term.weight / max(1, step.counts[name]) if i < n_counted else 0.0
            part = term.total * share
            reported = term.total if term.reported is None else term.reported
            sums[0], sums[1] = sums[0] + part.detach(), sums[1] + reported.detach() * share
            objective = part if objective is None else objective + part
        # A micro-batch may have nothing to predict, and a step may skip all layers that are trained: there is no graph.
        if objective is not None and objective.requires_grad:
            objective.backward()  # type: ignore[no-untyped-call]
        state.weights.accumulate_grads()
    state.weights.all_reduce_grads(job.reduce)
    if job.prefetch:
        # The device is still computing: reading the next batch now hides its cost. Of the progress after this step,
        # only the minutes are not known yet.
        then = replace(state, step=state.step + 1, epoch=step.epoch, tokens=state.tokens + step.n_tokens)
        ahead[after] = job.feed.batch_at(after, progress(job.config.limits, then))
    objective_sum, loss, stop, minutes, norm = _all_reduce_stats(job, state, sums, started)
    # All ranks see the same totals, so all of them skip or none does.
    applied = math.isfinite(objective_sum) and math.isfinite(norm)
    if applied:
        state.weights.update(rate, norm)
    state.weights.zero_grad()
    n_evaluations = _evaluations_until(job, state)
    state.step += 1
    state.position, state.epoch = after, step.epoch
    state.tokens += step.n_tokens
    state.minutes = minutes
    # A skipped step counts as a step: otherwise a resumed run would read the batch again and skip forever.
    state.skipped += not applied
    state.skipped_in_row = 0 if applied else state.skipped_in_row + 1
    reached = _limit_reached(job.config.limits, state)
    # Compared before and after: one or more evaluations may become due within a step.
    is_due = reached is not None or _evaluations_until(job, state) > n_evaluations
    state.eval_pending = state.eval_pending or (job.evaluate is not None and is_due)
    state.finished = "stopped" if stop else reached
    return StepRecord(
        step=state.step,
        epoch=state.epoch,
        loss=loss,
        learning_rate=rate,
        grad_norm=norm,
        n_tokens=step.n_tokens,
        tokens=state.tokens,
        progress=progress(job.config.limits, state),
        skipped=not applied,
    )


def _all_reduce_stats(job: TrainingJob, state: TrainState, local: list[Tensor], started: float) -> list[float]:
    """Return objective, loss, stop requests, minutes and gradient norm over all ranks."""
    device = state.weights.device
    # All ranks use the norm of rank 0: with different rounding they would clip differently, and weights would diverge.
    norm = state.weights.grad_norm()  # ()
    norm = norm if job.rank == 0 else torch.zeros_like(norm)
    dtype = torch.float32 if device.type == "mps" else torch.float64  # Apple GPUs have no float64
    # A sum over ranks: more than 0 if any rank wants to stop.
    stop = float(job.stop is not None and job.stop())
    minutes = (job.clock() - started) / 60 if job.rank == 0 else 0.0  # only the clock of rank 0 counts
    # One tensor, one reduction, one transfer to the host per step.
    mine = torch.tensor([stop, minutes], dtype=dtype).to(device)
    shared = torch.cat([torch.stack(local).to(dtype), mine, norm.to(dtype)[None]])  # (5,)
    if job.reduce is not None:
        job.reduce(shared)
    totals: list[float] = shared.tolist()
    return totals


def _evaluations_until(job: TrainingJob, state: TrainState) -> int:
    """Return the number of evaluations that have become due so far."""
    evaluation = job.config.evaluation
    if evaluation.every_steps is not None:
        return state.step // evaluation.every_steps
    # epoch is a sum of fractions: 0.1 + 0.2 must count as 0.3.
    return math.floor((state.epoch + _ROUNDING) / (evaluation.every_epochs or 1))


def _evaluate(job: TrainingJob, state: TrainState) -> EvaluationRecord | None:
    assert job.evaluate is not None  # otherwise no evaluation becomes due
    limits, optimization = job.config.limits, job.config.optimization
    job.model.eval()  # no dropout; _train_step switches back
    with torch.no_grad(), state.weights.inference() as model:
        metrics = job.evaluate(model)
    if metrics is None:
        return None
    if limits.metric not in metrics:
        choices = f"choose {', '.join(sorted(metrics))}"
        raise UsageError(f"unknown metric '{limits.metric}'", where="limits.metric", help=choices)
    value, loss = metrics[limits.metric], metrics.get("loss")
    # NaN compares false with everything: a first evaluation with NaN must not become the best.
    improved = math.isfinite(value) and (
        state.best is None or (value > state.best if limits.higher_is_better else value < state.best)
    )
    # Coarse metrics repeat values, such as BLEU 0.0 early in training: the loss breaks ties; otherwise, the first of
    # many equal checkpoints would stay the best.
    if value == state.best and loss is not None and state.best_loss is not None:
        improved = loss < state.best_loss
    if improved:
        state.best, state.best_step, state.best_loss = value, state.step, loss
        state.evals_without_improvement = state.plateau_wait = 0
    else:
        state.evals_without_improvement += 1
        state.plateau_wait += 1
        if optimization.schedule == "plateau" and state.plateau_wait >= optimization.plateau_patience:
            state.lr_scale = max(optimization.min_lr_ratio, state.lr_scale * optimization.plateau_factor)
            state.plateau_wait = 0  # early stopping keeps counting, plateau starts again
    state.eval_pending = False
    state.finished = _limit_reached(limits, state)
    return EvaluationRecord(state.step, state.epoch, dict(metrics), improved)
