"""Predictions of fine-tuned runs: batches, totals and the predictor of each task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Batching, make_batches
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.loading import load_model
from attnkit.engine.registry import TASKS, load_symbol, task_spec
from attnkit.errors import RunError, UsageError
from attnkit.metrics.labels import Confusion, confusion, label_scores, rounded
from attnkit.models.linear import pack
from attnkit.runtime.devices import set_threads
from attnkit.text.lines import STDIN

Format = Literal["auto", "lines", "pairs", "table", "conll", "jsonl", "squad"]
"""How a file holds what is to be predicted; ``auto`` is what the kind of run usually has."""
Warn = Callable[[str], None]
"""Takes warnings."""
_T = TypeVar("_T")
READ_AHEAD = 1024
"""Texts that are read before they are sorted by length."""


@dataclass(frozen=True)
class PredictRequest:
    """What ``attnkit predict`` is asked to do."""

    run: Path
    files: list[Path]
    """``-`` for standard input."""
    format: Format = "auto"
    gold: bool = False
    """The files say what is right: count how often it is found."""
    all_labels: bool = False
    """Give the probability of every label, not of the likeliest alone."""
    as_json: bool = False
    strict: bool = False
    """Refuse bytes that are not UTF-8 where otherwise U+FFFD is put in their place."""
    batch_tokens: int = 16384
    device: str = "auto"
    threads: int | None = None
    checkpoint: str | None = None
    """A checkpoint by name; without it the best."""
    no_answer_threshold: float | None = None
    """Margin of logits by which no answer must beat the best answer; None: any,
    of a reader that has learned that there may be none."""


@dataclass(frozen=True)
class Totals:
    """How much of what was expected was found."""

    plain: dict[str, Any]
    """For programs."""
    headline: str
    rows: Sequence[tuple[str, ...]] = ()
    """A table for people, its header first."""
    confusion: Confusion | None = None


def line_ref(path: Path, number: int) -> str:
    """Return a line's name in messages."""
    return f"line {number} of standard input" if path == STDIN else f"{path}:{number}"


class Predictor(Protocol):
    """Says what a run of one kind finds in text."""

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield the output lines of a file in groups as they are ready."""
        ...

    def warnings(self) -> list[str]:
        """Return what should be said of all that was read, in words."""
        ...

    def totals(self) -> Totals:
        """Return the scores of all that was read, where its labels are known."""
        ...


def in_batches(sizes: Sequence[int], n_tokens: int, compute: Callable[[list[int]], Iterable[_T]]) -> list[_T]:
    """Return what is computed for rows of some sizes, in their order, batches being made by length."""
    found: list[Any] = [None] * len(sizes)
    for batch in make_batches(sizes, Batching(n_tokens, "tokens")):
        for i, result in zip(batch, compute(batch), strict=True):
            found[i] = result
    return found


def truncation_warning(n: int, noun: str, most: int) -> list[str]:
    """Return what is said of texts of which the end was not read: nothing where there are none."""
    return (
        [f"{n:,} {noun}{'s have' if n > 1 else ' has'} more than {most:,} tokens; the rest was not read"] if n else []
    )


def label_probabilities(labels: Sequence[str], row: Sequence[float]) -> dict[str, float]:
    """Return the probability of each label, the likeliest first."""
    order = sorted(range(len(row)), key=lambda i: -row[i])
    return {labels[i]: rounded(row[i]) for i in order}


def format_probabilities(labels: Sequence[str], row: Sequence[float]) -> str:
    """Return the same between tabs, for people and ``cut``."""
    return "\t".join(f"{label}={share:.4f}" for label, share in label_probabilities(labels, row).items())


def as_json(tree: dict[str, Any]) -> str:
    """Return a line of JSON."""
    return json.dumps(tree, ensure_ascii=False)


class GoldLabels:
    """Predicted and gold labels of the examples read so far."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Take the labels of the model."""
        self._labels = labels
        self._found: list[str] = []
        self._expected: list[str] = []

    def format(self, request: PredictRequest, row: Sequence[float], gold: str | None, **more: Any) -> str:
        """Return the output line of an example from its probabilities, and count it where a gold label is given.

        ``more`` are further values of a JSON line.
        """
        best = max(range(len(row)), key=row.__getitem__)
        if request.gold and gold is not None:
            self._found.append(self._labels[best])
            self._expected.append(gold)
        if not request.as_json:
            label = f"{self._labels[best]}\t{row[best]:.4f}"
            return format_probabilities(self._labels, row) if request.all_labels else label
        tree: dict[str, Any] = {"label": self._labels[best], "probability": rounded(row[best])}
        tree |= {"expected": gold} if request.gold else {}
        tree |= {"all": label_probabilities(self._labels, row)} if request.all_labels else {}
        return as_json(tree | more)

    def warnings(self) -> list[str]:
        """Return a warning on gold labels that the model does not know."""
        known = set(self._labels)
        return unknown_labels(Counter(label for label in self._expected if label not in known))

    def totals(self) -> Totals:
        """Return accuracy, macro-averaged F1 and the scores of each label."""
        n = len(self._expected)
        if not n:
            return Totals({"examples": 0}, "0 examples")
        scores = label_scores(self._found, self._expected)
        labels = list(dict.fromkeys([*self._labels, *sorted(set(self._expected))]))
        counted = confusion(self._found, self._expected, labels)
        plain = {
            "examples": n,
            "accuracy": scores.accuracy,
            "macro_f1": scores.macro_f1,
            "classes": {label: asdict(part) for label, part in counted.classes().items()},
            "confusion": {"labels": labels, "counts": counted.counts.tolist()},
        }
        headline = f"{n:,} examples, accuracy {scores.accuracy:.2f} %, macro F1 {scores.macro_f1:.2f} %"
        return Totals(plain, headline, confusion=counted)


def unknown_labels(unknown: dict[str, int]) -> list[str]:
    """Return what is said of expected labels that the model does not know, with how often they were expected."""
    if not unknown:
        return []
    total, names = sum(unknown.values()), [f"'{label}'" for label in list(unknown)[:5]]
    more = ", ..." if len(unknown) > len(names) else ""
    return [
        f"the model does not know the labels {', '.join(names)}{more}, expected {total:,} times: that counts as wrong"
    ]


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


def open_predictor(request: PredictRequest, warn: Warn) -> OpenPredictor:
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
        warn(warning)
    opened = load_model(request.run, task, device=request.device, checkpoint=chosen.name)
    ready = replace(opened, model=pack(opened.model))
    predictor: Predictor = load_symbol(str(task_spec(task, config.model_kind).predictor_path))(ready, request, warn)
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
