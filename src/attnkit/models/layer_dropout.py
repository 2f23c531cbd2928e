"""LayerDrop: a training step skips random layers of a stack (Fan et al. 2020).

Reducing Transformer Depth on Demand with Structured Dropout, section 3.2: every layer is left out with the same
probability, and what it would read goes to the next one. Nothing is scaled; outside of training all layers serve.
"""

from collections.abc import Callable

import numpy as np
from torch import nn

_LAYERS = 1  # spawn key: other random numbers of a step are drawn from its seeds without one


class LayerDropout(nn.Module):
    """Choice of the layers of a stack that a training step skips; ``draw`` makes it.

    The choice is not drawn in a pass over the model: all micro-batches of a step and all ranks skip the same layers, so
    that a step does not depend on how its batch is split, and shards of weights are gathered by all ranks or by none.
    """

    def __init__(self, rate: float, n_layers: int) -> None:
        """Keep all layers until ``draw`` is called."""
        super().__init__()
        self.rate, self.kept = rate, [True] * n_layers

    def draw(self, generator: np.random.Generator) -> None:
        """Choose the layers of the next step."""
        self.kept = (generator.random(len(self.kept)) >= self.rate).tolist()

    def keeps(self, layer: int) -> bool:
        """Return whether a layer, from 0, is computed: all of them outside training."""
        return not self.training or self.kept[layer]

    def extra_repr(self) -> str:
        """Return the rate, for print(model)."""
        return f"rate={self.rate}"


def layer_draws(model: nn.Module, seed: int) -> Callable[[int], None] | None:
    """Return what chooses the layers that a step skips; None if no layer is ever skipped.

    The function takes the number of the step, from 0. Its choice is a function of seed and step alone.
    """
    stacks = [part for part in model.modules() if isinstance(part, LayerDropout) and part.rate]
    if not stacks:
        return None

    def draw(step: int) -> None:
        # One generator for all stacks, in the order of the model, so that they differ.
        generator = np.random.default_rng(np.random.SeedSequence([seed, step], spawn_key=(_LAYERS,)))
        for stack in stacks:
            stack.draw(generator)

    return draw
