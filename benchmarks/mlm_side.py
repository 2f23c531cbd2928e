"""What mlm.py asks of attnkit's own modules: encoded text for the peer, counts of tokens, held-out losses.

Letters: B rows, T tokens of a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import Message
from safetensors.numpy import save_file

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.language_modeling import LanguageModelBatch, MlmDataset
from attnkit.data.loader import BatchLoader
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.loading import load_model
from attnkit.tasks.language_modeling.config import MlmConfig
from attnkit.tasks.language_modeling.data import PreparedText, load_text
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, layout_of


def opened(run: Path, table: str) -> tuple[MlmConfig, PreparedText]:
    """Return the text of a run, its rows as a table has them: isolated, or across documents."""
    config: Any = read_run_config(RunFolder(run).checkpoint()[0], "mlm")
    config = config.model_copy(update={"data": config.data.model_copy(update={"isolated": table == "isolated"})})
    return config, load_text(config, run / "data")


def write_ids(run: Path, path: Path) -> None:
    """Write every document of the training text, encoded, and how attnkit packs them."""
    rows = opened(run, "isolated")[1].train
    assert isinstance(rows, MlmDataset)
    lengths = rows.store.lengths.astype(np.int64)
    n = len(lengths)
    ids = rows.store.gather_parts(np.arange(n), np.zeros(n, np.int64), lengths)
    packing = rows.packing
    save_file({"ids": ids, "lengths": lengths, "row_starts": packing.row_starts, "documents": packing.documents,
             "offsets": packing.offsets, "sizes": packing.lengths}, path)  # fmt: skip


def write_held_out(run: Path, table: str, path: Path) -> None:
    """Write the rows that every evaluation scores: what is read, what sees what, where it stands, what is hidden."""
    config, text = opened(run, table)
    parts = [_as_arrays(batch, config.data.sequence_length) for batch in evaluation(config, text)._batches()]
    save_file({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, path)


def evaluation(config: MlmConfig, text: PreparedText) -> LanguageEvaluation:
    """Return attnkit's own scoring of the held-out text."""
    return LanguageEvaluation(text, config, torch.device("cpu"))


def _as_arrays(batch: LanguageModelBatch, length: int) -> dict[str, Any]:
    n, width = batch.ids.shape
    labels = torch.full((n * width,), -100)
    labels[batch.chosen] = batch.targets
    passages = torch.zeros(n, width, dtype=torch.int64) if batch.passages is None else batch.passages
    places = layout_of(batch).positions
    if places is None:
        places = torch.arange(width).expand(n, width)
    whole = {"ids": (batch.ids, 0), "passages": (passages, -1), "places": (places, 0),
             "labels": (labels.view(n, width), -100)}  # fmt: skip
    return {
        name: torch.nn.functional.pad(part, (0, length - width), value=fill).numpy()
        for name, (part, fill) in whole.items()
    }


def score(run: Path, text_run: Path, table: str) -> Message:
    """Return what attnkit's evaluation gives for the weights of a run, on the text of another."""
    config, text = opened(text_run, table)
    model = load_model(run, "mlm", device="cpu").model
    found = evaluation(config, text)(model)
    assert found is not None
    return dict(found)


def counted(run: Path, table: str, steps: int | None = None, seed: int = 1, max_tokens: int | None = None) -> Message:
    """Return how many tokens of text, and tokens and places in all, so many steps of a seed train on; or an epoch.

    A step is as large as the run's, or of ``max_tokens``.
    """
    config, text = opened(run, table)
    rows = text.train
    assert isinstance(rows, MlmDataset)
    feed = BatchLoader(rows, seed, max_tokens or config.optimization.batch_tokens)
    found = np.zeros(3, np.int64)
    n_done = epoch = 0
    while steps is None or n_done < steps:
        plan = feed.plan(epoch)
        most = plan.n_batches if steps is None else min(plan.n_batches, steps - n_done)
        for number in range(most):
            indices = plan.batch(number)
            sizes = rows.sizes[rows.mixture.rows(indices)]
            found += (int(rows.n_free(indices).sum()), int(sizes.sum()), len(indices) * int(sizes.max()))
        n_done, epoch = n_done + most, epoch + 1
        if steps is None:
            break
    text_tokens, real, places = found.tolist()
    return {"steps": n_done, "text tokens": text_tokens, "real tokens": real, "padding": 1 - real / places}
