"""Learning-rate schedules as pure functions: (config, step, progress) -> factor of the configured learning rate.

``step`` counts from 1. ``progress`` in [0, 1] is the share of the run used up *before* this step, so that the last step
still learns and a run limited by minutes or tokens needs no number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attnkit.training.config import OptimizationConfig

Schedule = Callable[[OptimizationConfig, int, float], float]


def _warmup(config: OptimizationConfig, step: int, progress: float) -> float:
    if not config.warmup_steps:
        return 1.0
    # The larger share of the two wins: in a short run the warmup ends after warmup_fraction, not after warmup_steps.
    by_share = progress / config.warmup_fraction if config.warmup_fraction < 1 else 0.0
    return min(1.0, max(step / config.warmup_steps, by_share))


def _bounded(config: OptimizationConfig, warmup: float, share: float) -> float:
    """Scale ``share`` in [0, 1] to [min_rate, 1] and let the warmup cut it from below."""
    # min, not a product: the warmup may still rise while the decay has begun.
    return min(warmup, config.min_lr_ratio + (1 - config.min_lr_ratio) * share)


def constant(config: OptimizationConfig, step: int, progress: float) -> float:
    """Stay at 1 after the warmup. ``plateau`` starts from this too; the loop lowers it when the metric stalls."""
    return _warmup(config, step, progress)


def inverse_sqrt(config: OptimizationConfig, step: int, progress: float) -> float:
    """Fall as sqrt(warmup / step) after the warmup, where the factor is 1."""
    # Both branches are 1 at step == warmup_steps.
    return min(step / config.warmup_steps, math.sqrt(config.warmup_steps / step))


def noam(config: OptimizationConfig, step: int, progress: float) -> float:
    """Return min(step^-0.5, step * warmup^-1.5): equation 3 of Vaswani et al. 2017 without its d_model^-0.5."""
    # Written with a square root: warmup^1.5 as a power rounds otherwise.
    return min(1 / math.sqrt(step), step / math.sqrt(config.warmup_steps) ** 3)


def cosine(config: OptimizationConfig, step: int, progress: float) -> float:
    """Fall along half a cosine: equation 5 of Loshchilov and Hutter 2017 (SGDR) without restarts."""
    return _bounded(config, _warmup(config, step, progress), 0.5 * (1 + math.cos(math.pi * progress)))


def linear(config: OptimizationConfig, step: int, progress: float) -> float:
    """Fall on a straight line to ``min_rate`` at the end."""
    return _bounded(config, _warmup(config, step, progress), 1 - progress)  # 1 at the start, 0 at the end


def wsd(config: OptimizationConfig, step: int, progress: float) -> float:
    """Warm up, stay, and fall as 1 - sqrt over the last ``decay_share`` (Hägele et al. 2024, equation 1)."""
    # 0 before the decay starts, 1 at the end of the run.
    into_decay = max(0.0, (progress - (1 - config.decay_fraction)) / config.decay_fraction)
    return _bounded(config, _warmup(config, step, progress), 1 - math.sqrt(min(1.0, into_decay)))


# Names as in config.ScheduleName; a test compares the two.
SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "inverse_sqrt": inverse_sqrt,
    "noam": noam,
    "cosine": cosine,
    "linear": linear,
    "wsd": wsd,
    "plateau": constant,
}


def lr_factor(config: OptimizationConfig, step: int, progress: float) -> float:
    """Return what the learning rate of step ``step`` (from 1) is multiplied by, at ``progress`` in [0, 1]."""
    return SCHEDULES[config.schedule](config, step, progress)
