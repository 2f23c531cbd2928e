"""Learning-rate schedules as a pure function: (config, step, progress) -> factor of the configured learning rate."""

import math

from attnkit.training.config import OptimizationConfig


def lr_factor(config: OptimizationConfig, step: int, progress: float) -> float:
    """Return what the learning rate of step ``step``, counted from 1, is multiplied by.

    ``progress`` in [0, 1] is the share of the run used up *before* this step, so that the last step still learns and a
    run limited by minutes or tokens needs no number of steps.
    """
    match config.schedule:
        case "inverse_sqrt":
            # Both branches are 1 at step == warmup_steps.
            return min(step / config.warmup_steps, math.sqrt(config.warmup_steps / step))
        case "noam":
            # Equation 3 of Vaswani et al. 2017 without its d_model^-0.5: min(step^-0.5, step * warmup^-1.5).
            # Written with a square root: warmup^1.5 as a power rounds otherwise.
            return min(1 / math.sqrt(step), step / math.sqrt(config.warmup_steps) ** 3)
        case "constant" | "plateau":
            # The loop lowers plateau when the metric stalls.
            return _warmup(config, step, progress)
        case "cosine":
            # Half a cosine: equation 5 of Loshchilov and Hutter 2017 (SGDR) without restarts.
            share = 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            share = 1 - progress
        case "wsd":
            # Warm up, stay, and fall as 1 - sqrt over the last decay_fraction (Hägele et al. 2024, equation 1).
            into_decay = max(0.0, (progress - (1 - config.decay_fraction)) / config.decay_fraction)
            share = 1 - math.sqrt(min(1.0, into_decay))
    # min, not a product: the warmup may still rise while the decay has begun.
    return min(_warmup(config, step, progress), config.min_lr_ratio + (1 - config.min_lr_ratio) * share)


def _warmup(config: OptimizationConfig, step: int, progress: float) -> float:
    if not config.warmup_steps:
        return 1.0
    # The larger share of the two wins: in a short run the warmup ends after warmup_fraction, not after warmup_steps.
    by_share = progress / config.warmup_fraction if config.warmup_fraction < 1 else 0.0
    return min(1.0, max(step / config.warmup_steps, by_share))
