"""Scores of the development set, told by rank 0: what one process needs for it, and what it does not."""

from __future__ import annotations

from typing import Any

import torch

from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.parallel import broadcast_metrics

SCORES = {"loss": 1.5, "perplexity": 4.5, "bleu": 1 / 3, "chrf": 0.1}


class Scored:
    """An evaluation on a device that has no float64 (and that is missing where tests run)."""

    device = torch.device("mps")

    def __call__(self, model: object) -> dict[str, float]:
        return SCORES


def test_one_process_puts_no_scores_on_the_device() -> None:
    evaluation: Any = Scored()
    assert broadcast_metrics(evaluation, ProcessGroup(), tuple(SCORES))(evaluation) == SCORES
