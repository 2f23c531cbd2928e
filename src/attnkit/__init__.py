"""attnkit: a translation and pretraining toolkit, for the command line and Python.

``import attnkit`` is cheap: torch is imported by the first call that needs it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.engine.engine_choice import Engine
    from attnkit.kernels.simd.targets import Precision
    from attnkit.tasks.translation.translator import TranslationPipeline
    from attnkit.tasks.word2vec.fit import Word2Vec
    from attnkit.tasks.word2vec.vectors import Vectors

    __version__: str

# On CPU, torch caches 1,024 compiled matrix products and oneDNN as many again, each with its buffers. In training,
# shapes keep changing, and caching them takes gigabytes. Decoding repeats its shapes and is a fifth slower with 64
# entries. Torch reads the first variable when it is loaded, so both are set here.
for _name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "128")

__all__ = ["Vectors", "Word2Vec", "__version__", "load", "train"]
_CLASSES = {"Vectors": "tasks.word2vec.vectors", "Word2Vec": "tasks.word2vec.fit"}


def __getattr__(name: str) -> Any:
    """Import a class, or look up the version, on access."""
    if name in _CLASSES:
        return getattr(import_module(f"attnkit.{_CLASSES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # slow: a tenth of the time of a help page

        try:
            return version("attnkit")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0+unknown"
    raise AttributeError(f"module 'attnkit' has no attribute {name!r}")


def train(
    src: str | Path,
    tgt: str | Path,
    run: str | Path,
    *,
    preset: str = "auto",
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> TranslationPipeline:
    """Train a translation model, or resume its run, and return the best model.

    Works like ``attnkit train``, but without output. Problems in text or checkpoints are issued as ``UserWarning``.

    Args:
        src: source text, one sentence per line.
        tgt: target text; line n translates line n of ``src``.
        run: run folder.
        preset: preset of all other keys: tiny, small, base, big or auto (by corpus size; a resumed run keeps its own).
        settings: configuration keys and values, e.g. ``{"model.d_model": 512, "limits.max_epochs": 10.0}``.
        overwrite: rename an existing run folder and start a new run.

    Raises:
        UsageError: unknown setting or invalid value.
        DataError: text that cannot be used for training.
    """
    from attnkit.data.prepared_dir import DataCheckEvent, WarningEvent
    from attnkit.engine.resolve import preset_of, resolve
    from attnkit.engine.trainer import TrainRequest
    from attnkit.engine.trainer import train as events
    from attnkit.plotting.progress_text import data_check_lines

    flags = {"data.src": [str(src)], "data.tgt": [str(tgt)], **(settings or {})}
    earlier = None if overwrite else preset_of(Path(run))
    resolved = resolve(flags, preset_name=preset, earlier=earlier)
    for event in events(TrainRequest(resolved.config, Path(run), overwrite=overwrite)):
        is_check, is_warning = isinstance(event, DataCheckEvent), isinstance(event, WarningEvent)
        texts = data_check_lines(event.report) if is_check else [event.text] if is_warning else []
        for text in texts:
            warnings.warn(text, stacklevel=2)
    return load(run, device=resolved.config.device)


def load(
    run: str | Path,
    *runs: str | Path,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: int | None = None,
) -> TranslationPipeline:
    """Load a run, or several runs as an ensemble, for translation and scoring.

    ``engine`` selects compiled loops (CPU) or torch, ``auto`` compiled loops if possible. ``threads``: None takes all
    CPUs. If a damaged checkpoint is skipped in favour of an older one, a ``UserWarning`` is issued.

    Raises:
        RunError: a run is missing, damaged or of another task.
        UsageError: the engine or the precision is not available for these runs.
    """
    from attnkit.tasks.translation.translator import load_translator

    paths = [Path(run), *map(Path, runs)]
    translator = load_translator(paths, device=device, precision=precision, engine=engine, threads=threads)
    for text in dict.fromkeys(text for loaded in translator.runs for text in loaded.warnings):
        warnings.warn(text, stacklevel=2)
    return translator
