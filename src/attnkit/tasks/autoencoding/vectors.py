"""Auto-encoding of vectors: training data, loss and evaluation."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.arrays import MAX_COLUMNS, Vectors, read_vectors
from attnkit.data.config import NoiseConfig
from attnkit.data.denoising import VectorDataset, write_vectors
from attnkit.data.prepared_dir import (
    StatusEvent,
    is_prepared,
    open_prepared_dir,
    sample_validation_indices,
    write_index,
)
from attnkit.engine.checkpoint_metadata import read_bounded
from attnkit.engine.events import Sample
from attnkit.engine.task import Stop, until_stopped
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.models.autoencoder import VectorAutoencoder
from attnkit.models.linear import without_dropout
from attnkit.tasks.autoencoding.config import AutoencodeConfig

_BLOCK = 4096  # rows
_MAX_SHAPE_BYTES = 1 << 10  # bytes


class Shape(BaseModel, extra="forbid", strict=True):
    """Content of ``vectors.json`` in a checkpoint."""

    format: Literal["attnkit vectors"] = "attnkit vectors"
    width: int = Field(gt=0, le=MAX_COLUMNS)


@dataclass(frozen=True)
class PreparedVectors:
    """Prepared training and validation vectors."""

    train: VectorDataset
    valid: VectorDataset
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Return the hash of the training vectors."""
        return self.train.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Return the text files of a checkpoint: name -> content."""
        return {"vectors.json": json.dumps(Shape(width=self.train.width).model_dump()).encode()}


def prepare_vectors(config: AutoencodeConfig, folder: Path, origin: str | None) -> Iterator[StatusEvent]:
    """Write training and validation vectors to RUN/data, unless already done."""
    data = config.data
    paths, valid_paths = [Path(name) for name in data.files], [Path(name) for name in data.valid_files or ()]
    if is_prepared(folder, [str(path) for path in (*paths, *valid_paths)], origin):
        return
    with atomic.atomic_dir(folder) as temporary:
        yield StatusEvent("reading the vectors")
        width = next(read_vectors(paths[0])).shape[1]

        def blocks(paths: list[Path]) -> Iterator[Vectors]:
            for path in paths:
                yield from read_vectors(path, width)

        def select(inside: bool) -> Iterator[Vectors]:
            first = 0
            for block in blocks(paths):
                yield block[[(first + i in held_out) == inside for i in range(len(block))]]
                first += len(block)

        held_out: set[int] = set()
        if not valid_paths:
            total = sum(map(len, blocks(paths)))
            held_out = sample_validation_indices(total, data.held_out, data.held_out_seed, str(paths[0]))
        n_train = write_vectors(temporary / "train", select(False))
        n_valid = write_vectors(temporary / "valid", blocks(valid_paths) if valid_paths else select(True))
        counts = {"train": n_train, "valid": n_valid, "numbers_each": width}
        write_index(temporary, [*paths, *valid_paths], origin, counts)


def load_vectors(config: AutoencodeConfig, folder: Path) -> PreparedVectors:
    """Open the vectors in RUN/data. Raises ``RunError`` if they are damaged."""
    with open_prepared_dir(folder) as index:
        train = VectorDataset.open(folder / "train", config.noise)
        valid = VectorDataset.open(folder / "valid", NoiseConfig())
        if train.width != valid.width:
            raise ValueError("training and validation vectors have different widths")
        return PreparedVectors(train, valid, index["counts"])


def read_width(checkpoint: Checkpoint) -> int:
    """Return a checkpoint's vector width. Raises ``RunError`` if the file is invalid."""
    try:
        return Shape.model_validate_json(read_bounded(checkpoint, "vectors.json", _MAX_SHAPE_BYTES)).width
    except ValidationError as error:
        raise RunError("invalid vectors.json", where=str(checkpoint.path)) from error


@dataclass
class VectorsEvaluation:
    """Reconstruction error on the development set, without noise."""

    prepared: PreparedVectors
    device: torch.device
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: always empty: vectors are not text
    _baseline: float | None = None

    def __call__(self, model: VectorAutoencoder) -> dict[str, float]:
        """Return ``error`` and ``mean_error`` (mean squares), and the share ``explained``."""
        valid = self.prepared.valid
        total = 0.0
        with without_dropout(model), torch.inference_mode():
            for start in until_stopped(self.stop, range(0, len(valid), _BLOCK)):
                vectors = torch.from_numpy(valid.vectors[start : start + _BLOCK].astype(np.float32))
                vectors = vectors.to(self.device)
                total += float((model(vectors) - vectors).square().sum(dtype=torch.float32).cpu())
        if self._baseline is None:
            self._baseline = valid.spread(self.prepared.train.mean)
        error = total / (len(valid) * valid.width)
        return {"error": error, "explained": explained(error, self._baseline), "mean_error": self._baseline}


def explained(error: float, baseline: float) -> float:
    """Return 1 - error / baseline; 0 for a baseline of 0."""
    return 1 - error / baseline if baseline > 0 else 0.0
