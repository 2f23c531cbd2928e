"""AdamW on flat parameters. Knows no schedule: the learning rate comes with each step."""

from __future__ import annotations

import torch
from torch.optim.adamw import adamw

from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_parameters import FlatParameters


class AdamW:
    """Decoupled weight decay with Adam (Loshchilov and Hutter 2019), as torch's fused kernel over a few flat slices."""

    def __init__(self, flat: FlatParameters, config: OptimizationConfig) -> None:
        self._flat = flat
        self._config = config
        self.exp_avg = torch.zeros_like(flat.gradient)
        self.exp_avg_sq = torch.zeros_like(flat.gradient)
        self._steps = [torch.zeros((), device=flat.gradient.device) for _ in flat.parts]
        self.n_updates = 0

    def set_updates(self, n_updates: int) -> None:
        """Restore the number of steps taken, on which the bias correction depends."""
        self.n_updates = n_updates
        for step in self._steps:
            step.fill_(n_updates)

    def clip(self, norm: float) -> None:
        """Scale the gradient, whose norm is ``norm``, down to ``clip_norm`` if it is larger (Pascanu et al. 2013)."""
        limit = self._config.clip_norm
        if limit is not None and norm > limit:
            self._flat.gradient.mul_(limit / norm)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the master weights from the flat gradient and hand them to the module."""
        beta1, beta2 = self._config.betas
        for part, step in zip(self._flat.parts, self._steps, strict=True):
            span = part.span
            adamw(
                [self._flat.master[span]],
                [self._flat.gradient[span]],
                [self.exp_avg[span]],
                [self.exp_avg_sq[span]],
                [],
                [step],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=learning_rate * part.rate,
                weight_decay=self._config.weight_decay if part.decayed else 0.0,
                eps=self._config.eps,
                maximize=False,
            )
        self.n_updates += 1
        self._flat.sync_working_copy()
