"""Translators with a run of the opposite direction, shared by the tests of reranking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnkit.engine.resolve import resolve
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.translation.loading import LoadedRun
from attnkit.tasks.translation.reranking import open_reranker
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator

LINES = ["1 2 3 4 5", "", "9 8", "7 7 1 0 2 6", "4", "3 1 4 1 5 9 2", "2 7 1 8"]
WEIGHT = 30.0  #: so large that untrained models disagree


def configure(workshop: Any, sides: tuple[str, str], **changes: Any) -> Any:
    """Return the configuration of a run that reads the first side."""
    flags: dict[str, Any] = {
        f"data.{prefix}{key}": [str(workshop.file(f"{part}.{side}"))]
        for prefix, part in (("", "train"), ("valid_", "valid"))
        for key, side in zip(("src", "tgt"), sides, strict=True)
    }
    flags["model.kind"] = changes.pop("kind", "transformer")
    return resolve(flags, sets=workshop.settings(flags["model.kind"], **changes), preset_name="tiny").config


def pipeline(
    runs: Sequence[Path], reversed_run: Path | None, weight: float = WEIGHT, engine: Any = "auto"
) -> TranslationPipeline:
    found = load_translator(runs, device="cpu", engine=engine, threads=1)
    if reversed_run is not None:
        found.reranker = open_reranker(reversed_run, weight, "cpu", "float32", engine, 1)
    return found


@torch.inference_mode()
def log_prob(run: LoadedRun, src: list[int], tgt: list[int], *, ended: bool = True) -> float:
    """Return the log-probability of a target alone in its batch, with its end; the softmax is numpy's, in float64."""
    hidden = run.model.hidden(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))
    logits = run.model.head(hidden)[0].numpy().astype(np.float64)  # (T, V)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(log_probs[np.arange(len(tgt) + 1), [*tgt, EOS_ID]][: len(tgt) + ended].sum())
