"""Shared code of ``attnkit predict``: requests, formats, gold labels and scores."""

import heapq
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.compiled_language_models import set_precision
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.registry import TASKS, load_symbol, task_spec
from attnkit.errors import RunError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.metrics.labels import Confusion, Mistake, confusion, label_scores, rounded
from attnkit.models.linear import pack
from attnkit.runtime.devices import set_threads
from attnkit.text.files import STDIN, open_file, suffix_of
from attnkit.text.lines import LineReader, encoding_warnings, flush_interval, line_batches, open_binary
from attnkit.text.table_rows import can_be_text

Format = Literal["auto", "lines", "pairs", "table", "conll", "jsonl", "squad"]  #: auto: the default of the task
Warn = Callable[[str], None]  #: reports a warning
ExampleT = TypeVar("ExampleT")
MOST_MISTAKES = 50  #: kept with their texts
MAX_SHOWN = 500  #: characters of a text that are kept
READ_AHEAD = 1024  #: examples read before they are sorted by length into batches


@dataclass(frozen=True)
class PredictRequest:
    """Options of ``attnkit predict``."""

    run: Path
    files: list[Path]  #: ``-`` for standard input
    format: Format = "auto"
    gold: bool = False  #: score the predictions against gold labels in the files
    all_labels: bool = False  #: show the probability of every label, not only of the most probable one
    as_json: bool = False
    strict: bool = False  #: reject invalid UTF-8 instead of replacing it with U+FFFD
    batch_tokens: int = 16384
    device: str = "auto"
    precision: Precision = "float32"
    threads: int | None = None
    checkpoint: str | None = None  #: name of a checkpoint; None: the best one
    # Margin of logits by which "no answer" must exceed the best answer. None: 0 for models trained on unanswerable
    # questions; others always answer.
    no_answer_threshold: float | None = None


@dataclass(frozen=True)
class Totals:
    """Scores against gold labels."""

    plain: dict[str, Any]  #: object printed by ``--json``
    headline: str
    rows: Sequence[tuple[str, ...]] = ()  #: table rows, the header first
    confusion: Confusion | None = None
    mistakes: Sequence[Mistake] = ()  #: most confident ones first


def line_ref(path: Path, number: int) -> str:
    """Return the reference to a line that messages use."""
    return f"line {number} of standard input" if path == STDIN else f"{path}:{number}"


class Predictor(ABC):
    """Predictor of one task; iterating over it yields output lines in groups.

    By default, it predicts one label per example. Iterating raises ``DataError`` for a file that violates its format.
    """

    labels: Sequence[str] = ()  #: labels of the model

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        """Initialize from a loaded model, options and a callback for warnings."""
        self.opened, self.request, self.warn = opened, request, warn
        self.task: str = opened.config.task
        self.found: list[Any] = []  #: predictions so far for examples with gold labels
        self.expected: list[Any] = []  #: their gold labels
        self.mistakes: list[Mistake] = []  #: the most confident ones, in a heap

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.request.files:
            yield from self.lines(path, choose_format(self.request, self.task, path))

    @abstractmethod
    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield the output lines of a file in groups."""

    def batches(
        self, path: Path, items: Iterable[ExampleT], n_characters: Callable[[ExampleT], int]
    ) -> Iterator[list[ExampleT]]:
        """Group the examples of a file into lists of at most ``READ_AHEAD``."""
        return line_batches(items, READ_AHEAD, flush_interval(path), n_characters)

    def read(
        self,
        path: Path,
        parse: Callable[[LineReader], Iterable[ExampleT]],
        n_characters: Callable[[ExampleT], int] | None = None,
        most: int = READ_AHEAD,
    ) -> Iterator[list[ExampleT]]:
        """Yield lists of at most ``most`` parsed examples; warn about invalid encoding."""
        open_path = open_file if path.is_file() else open_binary  # questions are given as JSONL
        reader = LineReader(path, on_bad="refuse" if self.request.strict else "replace", open_path=open_path)
        yield from line_batches(parse(reader), most, flush_interval(path), n_characters)
        for message in encoding_warnings(reader.counts, path):
            self.warn(message)

    def label_line(self, row: Sequence[float], gold: str | None, text: str, **more: Any) -> str:
        """Format a prediction, with ``more`` values in JSON; record a gold label."""
        best = max(range(len(row)), key=row.__getitem__)
        if self.request.gold and gold is not None:
            self.found.append(self.labels[best])
            self.expected.append(gold)
            if gold != self.labels[best]:
                heapq.heappush(self.mistakes, Mistake(row[best], text[:MAX_SHOWN], gold, self.labels[best]))
                if len(self.mistakes) > MOST_MISTAKES:
                    heapq.heappop(self.mistakes)
        shares = self.shares(row) if self.request.all_labels else {}
        if not self.request.as_json:
            label = f"{self.labels[best]}\t{row[best]:.4f}"
            return "\t".join(f"{name}={share:.4f}" for name, share in shares.items()) or label
        tree: dict[str, Any] = {"label": self.labels[best], "probability": rounded(row[best])}
        tree |= {"expected": gold} if self.request.gold else {}
        tree |= {"all": shares} if self.request.all_labels else {}
        return json.dumps(tree | more, ensure_ascii=False)

    def shares(self, row: Sequence[float]) -> dict[str, float]:
        """Return the probability of each label, the most probable first."""
        order = sorted(range(len(row)), key=lambda i: -row[i])
        return {self.labels[i]: rounded(row[i]) for i in order}

    def warnings(self) -> list[str]:
        """Return warnings about the input so far; by default, about unknown labels."""
        return unknown_labels(self.labels, self.expected)

    def totals(self) -> Totals:
        """Return scores against gold labels; by default, accuracy and F1 scores."""
        n = len(self.expected)
        if not n:
            return Totals({"examples": 0}, "0 examples")
        scores = label_scores(self.found, self.expected)
        labels = list(dict.fromkeys([*self.labels, *sorted(set(self.expected))]))
        counted = confusion(self.found, self.expected, labels)
        plain = {
            "examples": n,
            "accuracy": scores.accuracy,
            "macro_f1": scores.macro_f1,
            "classes": {label: part.to_dict() for label, part in counted.classes().items()},
            "confusion": {"labels": labels, "counts": counted.counts.tolist()},
        }
        headline = f"{n:,} examples, accuracy {scores.accuracy:.2f} %, macro F1 {scores.macro_f1:.2f} %"
        return Totals(plain, headline, confusion=counted, mistakes=sorted(self.mistakes, reverse=True))


def truncation_warning(n: int, noun: str, most: int, unit: str = "tokens") -> list[str]:
    """Return a warning about ``n`` truncated texts, if any."""
    verb = "s have" if n > 1 else " has"
    return [f"{n:,} {noun}{verb} more than {most:,} {unit}; the rest was truncated"] if n else []


def unknown_labels(labels: Sequence[str], expected: Iterable[str]) -> list[str]:
    """Return a warning about gold labels that the model does not know, if any."""
    known = set(labels)
    unknown = Counter(label for label in expected if label not in known)
    if not unknown:
        return []
    names = ", ".join(f"'{label}'" for label in list(unknown)[:5]) + (", ..." if len(unknown) > 5 else "")
    return [f"gold labels unknown to the model: {names} ({unknown.total():,} gold labels, counted as errors)"]


_UNLABELED = ("lines", "pairs")  #: formats without gold labels


def open_predictor(request: PredictRequest, warn: Warn) -> Predictor:
    """Open a run for prediction; ``warn`` receives warnings, also later ones.

    Raises ``RunError`` if the run is missing, damaged or of an unsupported task, ``UsageError`` for an invalid format.
    """
    set_threads(request.threads)
    chosen, warnings = RunFolder(request.run).checkpoint(request.checkpoint)
    config = read_run_config(chosen)
    task = config.task
    if not TASKS[task].predict_formats:
        known = ", ".join(name for name, spec in TASKS.items() if spec.predict_formats)
        what = f"attnkit predict does not support runs of task '{task}', only {known}"
        help = "fine-tune it with attnkit finetune" if task == "mlm" else f"use attnkit {TASKS[task].command}"
        raise RunError(what, where=str(request.run), help=help)
    for path in request.files:
        choose_format(request, task, path)
    for warning in warnings:
        warn(warning)
    opened = load_model(request.run, task, device=request.device, checkpoint=chosen.name)
    set_precision(opened, request.precision, warn)
    # What runs in compiled loops is packed already.
    ready = replace(opened, model=pack(opened.model)) if request.precision == "float32" else opened
    predictor: Predictor = load_symbol(str(task_spec(task, config.model_kind).predictor_path))(ready, request, warn)
    return predictor


def choose_format(request: PredictRequest, task: str, path: Path) -> Format:
    """Return the format of a file. Raises ``UsageError`` if it is not supported."""
    spec, known = TASKS[task], TASKS[task].predict_formats
    if request.format == "auto":
        if "table" in known and not can_be_text(path):
            return "table"
        named = suffix_of(path) in spec.gold_suffixes
        return cast(Format, known[named or (request.gold and known[0] in _UNLABELED)])
    if request.format not in known:
        what = f"task '{task}' does not support the format '{request.format}'"
        raise UsageError(what, where="--format", help=f"choose {', '.join(known)}")
    if request.gold and request.format in _UNLABELED:
        what = f"--format {request.format} has no gold labels"
        raise UsageError(what, where="--gold", help=f"use --format {known[1]}")
    return request.format
