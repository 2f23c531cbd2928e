"""``attnkit.load``: a trained run of any task. Torch-free until a call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attnkit.config.arguments import Count, checked
from attnkit.engine.engine_choice import Engine
from attnkit.errors import RunError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import warn

if TYPE_CHECKING:
    import torch

    from attnkit.library.autoencoder import AutoEncoder
    from attnkit.library.classifiers import QuestionAnswering, TextClassifier, TokenClassifier
    from attnkit.library.language_models import CausalLM, MaskedLM
    from attnkit.library.translation import Translator
    from attnkit.tasks.word2vec.vectors import Vectors

    Loaded = (
        Translator | MaskedLM | CausalLM | TextClassifier | TokenClassifier | QuestionAnswering | AutoEncoder | Vectors
    )

ModuleT = TypeVar("ModuleT", bound="torch.nn.Module")
CLASSES = {
    "translation": "library.translation:Translator",
    "mlm": "library.language_models:MaskedLM",
    "clm": "library.language_models:CausalLM",
    "text-classification": "library.classifiers:TextClassifier",
    "token-classification": "library.classifiers:TokenClassifier",
    "question-answering": "library.classifiers:QuestionAnswering",
    "autoencode": "library.autoencoder:AutoEncoder",
    "word2vec": "tasks.word2vec.vectors:Vectors",
}
"""Task -> the class that uses its runs."""


@checked
def load(
    run: str | Path,
    *runs: str | Path,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: Count | None = None,
    checkpoint: str | None = None,
    adapter: str | Path | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Loaded:
    """Load a run as the class of its task; several translators are an ensemble.

    Each class has a ``load`` of its own, with its own return type: ``attnkit.Translator.load(RUN)``.

    Args:
        run: run folder.
        runs: further translators of an ensemble.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: ``float32``, or on CPUs ``bfloat16`` and ``int8``.
        engine: of translators and generators: compiled loops (CPU) or torch; ``auto``: compiled loops if possible.
        threads: None takes all CPUs.
        checkpoint: ``best``, ``last``, ``averaged`` or ``step-N``; None: the best.
        adapter: run of an adapter of a translator or a generator.
        src_lang: source language of an imported translator with language codes, e.g. ``eng_Latn``.
        tgt_lang: target language of a translator that has several, e.g. ``de``.

    Raises:
        RunError: a run is missing or damaged, or several runs are not all translators.
        UsageError: an argument that the run's task does not have, or that the machine cannot offer.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.engine.checkpoint_metadata import read_run_config
    from attnkit.engine.registry import load_symbol

    task = read_run_config(RunFolder(Path(run)).checkpoint(checkpoint)[0]).task
    found: Any = load_symbol(CLASSES[task])
    given: dict[str, Any] = {"checkpoint": checkpoint}
    if task != "word2vec":
        given |= {"device": device, "precision": precision, "threads": threads}
    if task in ("translation", "clm"):
        given |= {"engine": engine, "adapter": adapter}
    elif adapter is not None:
        raise UsageError(f"a run of task '{task}' has no adapter", where="adapter", help="leave it out")
    elif engine != "auto":
        raise UsageError(f"a run of task '{task}' has no choice of engine", where="engine", help="leave it out")
    if task == "translation":
        given |= {"src_lang": src_lang, "tgt_lang": tgt_lang}
    for name, language in {"src_lang": src_lang, "tgt_lang": tgt_lang}.items():
        if task != "translation" and language is not None:
            side = "source" if name == "src_lang" else "target"
            raise UsageError(f"a run of task '{task}' has no {side} language", where=name, help="leave it out")
    if runs and task != "translation":
        raise UsageError("only translators can be an ensemble", where=str(run), help="load the runs one by one")
    loaded: Loaded = found.load(run, *runs, **given)
    return loaded


@checked
def load_module(run: str | Path, kind: type[ModuleT], *, device: str = "cpu", checkpoint: str | None = None) -> ModuleT:
    """Load the torch module of a run, with its weights, in evaluation mode.

    Args:
        run: run folder of any task but word vectors.
        kind: class of ``attnkit.models`` that it must have; ``torch.nn.Module``: any.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        checkpoint: ``best``, ``last``, ``averaged`` or ``step-N``; None: the best.

    Raises:
        RunError: the run is missing or damaged, or its model has another class.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.engine.checkpoint_metadata import read_run_config
    from attnkit.engine.loading import load_model

    task = read_run_config(RunFolder(Path(run)).checkpoint(checkpoint)[0]).task
    if task == "word2vec":
        raise RunError("word vectors have no module", where=str(run), help="use attnkit.Vectors.load")
    model = load_model(Path(run), task, device=device, checkpoint=checkpoint, warn=warn).model
    if not isinstance(model, kind):
        name = type(model).__name__
        what = f"the model of this run is a {name}, not a {kind.__name__}"
        raise RunError(what, where=str(run), help=f"give attnkit.models.{name}")
    return model
