"""Runs of ``train --task autoencode`` behind calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from attnkit.config.arguments import Count, checked
from attnkit.engine.loading import LoadedModel
from attnkit.engine.run_summary import RunSummary
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import windows
from attnkit.library.language_models import Floats, open_model
from attnkit.tasks.autoencoding.lines import encode_lines, reconstruct
from attnkit.text.tokenizer import Tokenizer

Inputs = Sequence[str] | npt.NDArray[np.floating]
"""Lines for a model of text (n), or vectors (n, D) for a model of vectors."""


class AutoEncoder:
    """An auto-encoder of lines or vectors: codes and reconstructions."""

    def __init__(self, opened: LoadedModel, summary: RunSummary) -> None:
        self.summary = summary
        self._opened = opened
        self.reads_vectors: bool = opened.config.model.kind == "mlp"

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        threads: Count | None = None,
        checkpoint: str | None = None,
    ) -> AutoEncoder:
        """Load a run of ``train --task autoencode``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        return cls(*open_model(run, "autoencode", device, precision, threads, checkpoint))

    def __repr__(self) -> str:
        return f"AutoEncoder({self.summary})"

    @checked
    def embed(self, inputs: Inputs) -> Floats:
        """Return the codes (n, C) of lines or vectors.

        Raises:
            UsageError: lines for a model of vectors, or the other way round, or vectors of another width.
        """
        if self.reads_vectors:
            with torch.inference_mode():
                codes: Floats = self._opened.model.encode(self._vectors(inputs)).float().cpu().numpy()
            return codes
        lines = self._lines(inputs)
        if not lines:
            return np.empty((0, self._opened.config.model.d_code), np.float32)
        return encode_lines(self._opened.model, self._tokenizer().encode(lines), self._opened.device)

    @checked
    def embed_stream(self, inputs: Iterable[str] | Iterable[Floats]) -> Iterator[Floats]:
        """Yield the codes (C,) of lines, or of vectors (D,); errors: see ``embed``."""
        for (window,) in windows(inputs):
            yield from self.embed(np.stack(window) if self.reads_vectors else window)

    @checked
    def reconstruct(self, inputs: Inputs) -> list[str] | Floats:
        """Return reconstructed lines, or vectors (n, D); errors: see ``embed``."""
        if self.reads_vectors:
            with torch.inference_mode():
                vectors: Floats = self._opened.model(self._vectors(inputs)).float().cpu().numpy()
            return vectors
        lines, tokenizer = self._lines(inputs), self._tokenizer()
        found = reconstruct(self._opened.model, tokenizer.encode(lines), tokenizer, self._opened.device)
        return [text if line.strip() else "" for text, line in zip(found, lines, strict=True)]

    @checked
    def reconstruct_stream(self, inputs: Iterable[str] | Iterable[Floats]) -> Iterator[str | Floats]:
        """Yield reconstructed lines, or vectors (D,); errors: see ``embed``."""
        for (window,) in windows(inputs):
            yield from self.reconstruct(np.stack(window) if self.reads_vectors else window)

    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self._opened.checkpoint)

    def _lines(self, inputs: Inputs) -> list[str]:
        if isinstance(inputs, np.ndarray):
            raise UsageError("this auto-encoder reads lines, not vectors", where=str(self._opened.path))
        return list(inputs)

    def _vectors(self, inputs: Inputs) -> torch.Tensor:
        """Return vectors (n, D) as a tensor on the model's device."""
        width = self._opened.model.mean.numel()
        if not isinstance(inputs, np.ndarray) or inputs.ndim != 2 or inputs.shape[1] != width:
            what = f"this auto-encoder reads vectors of width {width:,}"
            raise UsageError(what, where=str(self._opened.path), help=f"give an array of shape (n, {width})")
        return torch.from_numpy(np.ascontiguousarray(inputs, np.float32)).to(self._opened.device)
