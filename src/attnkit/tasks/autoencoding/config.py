"""Configuration and presets of auto-encoders. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from attnkit.data.config import NoiseConfig, RowsConfig
from attnkit.engine.run_config import SCALES, RunConfig
from attnkit.models.recurrent_config import AUTOENCODER_SIZES, AutoencoderConfig

VECTORS = (".npy", ".csv")  #: suffixes of vector files; all other files are text
OPTIMIZATION: dict[str, dict[str, Any]] = {
    "rnn": {"label_smoothing": 0.0, "weight_decay": 0.0},
    "mlp": {
        "learning_rate": 5e-3,
        "label_smoothing": 0.0,
        "weight_decay": 0.0,
        "batch_tokens": 256,
        "warmup_steps": 50,
        "ema_decay": None,  # an average lags behind in runs of a few hundred steps
    },
}
METRICS = {"rnn": ("loss", "perplexity", "unigram_loss", "exact"), "mlp": ("error", "mean_error", "explained")}
BEST = {"rnn": "loss", "mlp": "error"}


class AutoencodeConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration of an auto-encoder run."""

    task: Literal["autoencode"] = "autoencode"
    """The task."""
    data: RowsConfig
    """Lines of text (model rnn) or vectors (model mlp)."""
    model: AutoencoderConfig
    """The architecture."""
    noise: NoiseConfig = NoiseConfig()
    """Noise on the input; without noise, a plain auto-encoder is trained."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the evaluation metrics.

        Text: ``loss`` and ``unigram_loss`` in nats per token, ``exact`` in percent of the lines. Vectors: ``error`` and
        the baseline ``mean_error`` as mean squared errors per number, ``explained`` = 1 - error / mean_error.
        """
        return METRICS[self.model.kind]

    @model_validator(mode="after")
    def _files_fit_the_model(self) -> AutoencodeConfig:
        files = (*self.data.files, *(self.data.valid_files or ()))
        wanted = self.model.kind == "mlp"
        odd = [name for name in files if name.endswith(VECTORS) != wanted]
        if odd:
            what = "vectors, .npy or .csv" if wanted else "text, but this is a vector file: use model.kind=mlp"
            raise ValueError(f"data.files: '{odd[0]}' does not fit: model.kind={self.model.kind} reads {what}")
        if wanted and (self.noise.word_dropout or self.noise.shuffle_prob):
            raise ValueError("noise.word_dropout and noise.shuffle_prob require text; use noise.mask_prob")
        if wanted and self.vocabulary_files is not None:
            raise ValueError("vocabulary_files: vectors have no vocabulary")
        return self


def autoencode_kind(given: Mapping[str, Any]) -> str:
    """Return the default kind of model for the suffix of the first file."""
    data = given.get("data")
    files = data.get("files") if isinstance(data, Mapping) else None
    return "mlp" if isinstance(files, list) and files and str(files[0]).endswith(VECTORS) else "rnn"


def autoencode_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset; unknown kinds get text settings."""
    scale = SCALES[name]
    return {
        **scale,
        "optimization": {**scale["optimization"], **OPTIMIZATION.get(kind, OPTIMIZATION["rnn"])},
        "limits": {**scale["limits"], "metric": BEST.get(kind, "loss")},
        "model": {"kind": kind, **AUTOENCODER_SIZES.get(kind, {}).get(name, {})},
    }
