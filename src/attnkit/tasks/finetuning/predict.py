"""Predictions of fine-tuned runs: labels of texts, tags of words, answers to questions. Knows no terminals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.loading import load_model
from attnkit.engine.registry import TASKS, load_symbol, task_spec
from attnkit.errors import RunError, UsageError
from attnkit.models.linear import pack
from attnkit.runtime.devices import set_threads
from attnkit.tasks.finetuning.prediction import Format, Predictor, PredictRequest, Tell

FORMATS: dict[str, tuple[Format, ...]] = {
    "text-classification": ("lines", "table", "pairs"),
    "token-classification": ("lines", "conll"),
    "question-answering": ("jsonl", "squad"),
}
"""Of each kind of run what it reads: by default, where labels are asked for or the name says so, and else."""
_UNLABELED: tuple[Format, ...] = ("lines", "pairs")
_BY_NAME = {
    "token-classification": (".conll", ".bio", ".iob", ".iob2", ".bioes", ".bilou"),
    "question-answering": (".json",),
}
"""Suffixes of files that are read as where labels are asked for."""
_COMPRESSED = (".gz", ".xz", ".bz2")


@dataclass(frozen=True)
class OpenPredictor:
    """A run that is ready to predict, and what is asked of it."""

    predictor: Predictor
    request: PredictRequest
    task: str

    def __iter__(self) -> Iterator[list[str]]:
        """Yield output lines in groups as they are ready. Raises ``DataError`` where a file is not of its format."""
        for path in self.request.files:
            yield from self.predictor.lines(path, choose_format(self.request, self.task, path))


def open_predictor(request: PredictRequest, tell: Tell) -> OpenPredictor:
    """Open a run for predictions; ``tell`` takes warnings, now and later.

    Raises:
        RunError: no run, a damaged one, or one of another kind.
        UsageError: its kind does not read the format.
    """
    set_threads(request.threads)
    chosen, warnings = RunFolder(request.run).checkpoint(request.checkpoint)
    config = read_run_config(chosen)
    task = config.task
    if task not in FORMATS:
        what = f"this run is of the kind '{task}', not one that predict takes: {', '.join(FORMATS)}"
        help = "attnkit finetune makes one of it" if task == "mlm" else f"attnkit {TASKS[task].command} takes it"
        raise RunError(what, where=str(request.run), help=help)
    for path in request.files:
        choose_format(request, task, path)
    for warning in warnings:
        tell(warning)
    opened = load_model(request.run, task, device=request.device, checkpoint=chosen.name)
    ready = replace(opened, model=pack(opened.model))
    predictor: Predictor = load_symbol(str(task_spec(task, config.model_kind).predictor_path))(ready, request, tell)
    return OpenPredictor(predictor, request, task)


def choose_format(request: PredictRequest, task: str, path: Path) -> Format:
    """Return how a file is read, which its name may tell. Raises ``UsageError`` where that makes no sense."""
    known = FORMATS[task]
    if request.format == "auto":
        named = _suffix(path) in _BY_NAME.get(task, ())
        return known[named if task == "question-answering" else request.gold or named]
    if request.format not in known:
        what = f"a run of the kind '{task}' reads no {request.format}"
        raise UsageError(what, where="--format", help=f"it reads {', '.join(known)}")
    if request.gold and request.format in _UNLABELED:
        what = f"{request.format} do not say what is right"
        raise UsageError(what, where="--gold", help=f"give a file for --format {known[1]}")
    return request.format


def _suffix(path: Path) -> str:
    """Return the last suffix of a name but for that of what is compressed, in small letters."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    return suffixes[-1] if suffixes else ""
