"""Lines from a file, a pipe or a keyboard through a translator, as output lines. Knows no terminals."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from attnkit.errors import AttnkitError, DataError, RunError, UsageError
from attnkit.runtime.devices import set_threads
from attnkit.tasks.translation.search_pool import Batching, SearchJob
from attnkit.tasks.translation.shortlist import Shortlist, load_unknowns
from attnkit.tasks.translation.translator import Output, Translation, Translator, load_translator
from attnkit.text.lines import LineCounts, LineReader, is_stream, read_lines

ROOM = 1 << 22
"""Characters of lines that are held at once, and those of one line more."""
_PATIENCE = 0.02  # seconds
Item = TypeVar("Item")


@dataclass(frozen=True)
class TranslateRequest:
    """What ``attnkit translate`` is asked to do."""

    runs: list[Path]
    source: Path
    """A file, or ``-`` for standard input."""
    search: dict[str, Any] = field(default_factory=dict)
    """Fields of ``SearchConfig`` that replace the run's own."""
    prefixes: Path | None = None
    scores: bool = False
    attention: bool = False
    as_json: bool = False
    batching: Batching = field(default_factory=Batching)
    workers: int = 1
    device: str = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    threads: int | None = None
    checkpoint: str | None = None
    """A checkpoint by name; without it the best."""
    strict: bool = False
    """Refuse bytes that are not UTF-8 instead of putting U+FFFD in their place."""
    shortlist: Path | None = None
    """A lexicon of tokens, of which alone, and of the most frequent ones, translations are made."""
    unknowns: bool = False
    """Put words in the place of ``<unk>``: translations of source words by ``dictionary``, or the words themselves."""
    dictionary: Path | None = None


def translate_stream(request: TranslateRequest, tell: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield output lines as they are ready, in groups that belong together; ``tell`` takes warnings.

    The first group is empty: everything is loaded, and reading begins. A line is answered as soon as no further one
    follows quickly, so that a pipe or a person never waits for a full window.
    """
    _refuse(request)
    set_threads(request.threads)
    translator = load_translator(
        request.runs,
        device=request.device,
        precision=request.precision,
        workers=request.workers,
        checkpoint=request.checkpoint,
    )
    try:
        # A greedy text needs no normalised scores; nobody sees them unless they are asked for.
        shown = request.scores or request.as_json
        config = translator.configure({"scores": shown, **request.search})
        _equip(translator, request)
        record = request.attention or config.coverage_penalty != 0 or request.unknowns
        for run in translator.runs:
            for warning in run.warnings:
                tell(warning)
            if record and not run.has_attention:
                raise UsageError("this model has no attention", where=str(run.path), help="leave that option out")
        lines = LineReader(request.source, on_bad="refuse" if request.strict else "replace")
        prefixes = iter(read_lines(request.prefixes)) if request.prefixes is not None else None
        offset = 0
        yield []
        for window in line_batches(lines, request.batching.window, flush_interval(request.source)):
            given = list(islice(prefixes, len(window))) if prefixes is not None else None
            if given is not None and len(given) < len(window):
                raise DataError(
                    f"there are only {offset + len(given)} target prefixes for more lines",
                    where=str(request.prefixes),
                    help="give one line for each source line; a blank one leaves the translation free",
                )
            parts = translator.split(window, given, offset)
            found = translator.translate_window(window, parts, SearchJob(config, record), request.batching)
            yield [line for translation in found for line in render(translation, request)]
            offset += len(window)
        for message in encoding_warnings(lines.counts, request.source):
            tell(message)
        if prefixes is not None and next(prefixes, None) is not None:
            tell(f"{request.prefixes} has more lines than there were to translate; the rest was not used")
    finally:
        translator.close()


def _equip(translator: Translator, request: TranslateRequest) -> None:
    """Give a translator the lexicons that are asked for."""
    src, tgt = translator.src_tokenizer, translator.tgt_tokenizer
    if request.shortlist is not None:
        translator.shortlist = Shortlist(request.shortlist, src, tgt)
    if request.unknowns:
        translator.unknowns = load_unknowns(request.dictionary, src, tgt)


def _refuse(request: TranslateRequest) -> None:
    """Say what cannot be meant before anything is loaded."""
    if request.dictionary is not None and not request.unknowns:
        raise UsageError("a dictionary is for unknown words", where="--dictionary", help="add --replace-unknowns")
    if request.attention and not request.as_json:
        raise UsageError("attention is shown as JSON only", where="--return-attention", help="add --json")
    if request.workers > 1 and request.threads is not None:
        raise UsageError("workers have one thread each", where="--threads", help="leave out --threads or --workers")
    for path in request.runs:
        if path.is_file():
            help = f"text is given by -i: attnkit translate RUN -i {path}"
            raise RunError(f"{path} is no run folder but a file", help=help)


def flush_interval(source: Path) -> float | None:
    """Return after how many seconds without a further line the lines so far are translated; None: never.

    Nobody waits for the lines of a file. However slowly it is read, its windows are full, and the same in every call.
    """
    return _PATIENCE if is_stream(source) else None


def line_batches(
    items: Iterable[Item],
    most: int,
    patience: float | None = _PATIENCE,
    size: Callable[[Item], int] | None = None,
) -> Iterator[list[Item]]:
    """Group lines, or what else is read, into lists of at most ``most``, ended early by ``ROOM`` characters.

    A list ends too when nothing comes for ``patience`` seconds. What is read is read by a thread, since a blocked
    read cannot be given a time limit. Its errors are raised here.

    Args:
        size: the characters of an item; without it a line has its own, and nothing else any.
    """
    measure = size or _characters
    if patience is None:
        yield from _full_windows(items, most, measure)
        return
    ahead = _Ahead(items, 2 * most, measure)
    window: list[Item] = []
    n_characters = 0
    while True:
        try:
            given = ahead.get(patience if window else None)
        except queue.Empty:
            yield window
            window, n_characters = [], 0
            continue
        if isinstance(given, tuple):
            window.append(given[0])
            n_characters += measure(given[0])
        if window and (len(window) == most or n_characters >= ROOM or not isinstance(given, tuple)):
            yield window
            window, n_characters = [], 0
        if isinstance(given, BaseException):
            raise given
        if given is None:
            return


class _Ahead(Generic[Item]):
    """What a thread has read that nobody has taken yet: so many items, and not many more than ``ROOM`` characters."""

    def __init__(self, items: Iterable[Item], most: int, measure: Callable[[Item], int]) -> None:
        self._items, self._measure = items, measure
        self._waiting: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(maxsize=most)
        self._taken = threading.Condition()
        self._n_characters = 0
        threading.Thread(target=self._read, daemon=True, name="attnkit reader").start()

    def get(self, timeout: float | None) -> tuple[Item] | BaseException | None:
        """Return an item, in a tuple, or what ended them. Raises ``queue.Empty`` when none comes in time."""
        given = self._waiting.get(timeout=timeout)
        if isinstance(given, tuple):
            with self._taken:
                self._n_characters -= self._measure(given[0])
                self._taken.notify()
        return given

    def _read(self) -> None:
        try:
            for item in self._items:
                with self._taken:
                    self._taken.wait_for(lambda: self._n_characters < ROOM)
                    self._n_characters += self._measure(item)
                self._waiting.put((item,))
            self._waiting.put(None)
        except BaseException as error:
            self._waiting.put(error)


def _characters(item: object) -> int:
    return len(item) if isinstance(item, str) else 0


def _full_windows(items: Iterable[Item], most: int, measure: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Group what is read into lists of ``most``, or of ``ROOM`` characters; those before an error come before it."""
    window: list[Item] = []
    n_characters = 0
    try:
        for item in items:
            window.append(item)
            n_characters += measure(item)
            if len(window) == most or n_characters >= ROOM:
                yield window
                window, n_characters = [], 0
    except AttnkitError:
        if window:
            yield window
        raise
    if window:
        yield window


def render(translation: Translation, request: TranslateRequest) -> list[str]:
    """Return the output lines of one input line: one a hypothesis, or one JSON object."""
    if request.as_json:
        return [json.dumps(as_dictionary(translation, request.attention), ensure_ascii=False)]
    if request.scores:
        return [f"{output.score:.6f}\t{output.text}" for output in translation.outputs]
    return [output.text for output in translation.outputs]


def as_dictionary(translation: Translation, attention: bool) -> dict[str, Any]:
    """Return a translation as plain data for ``--json``."""

    def of(output: Output) -> dict[str, Any]:
        plain: dict[str, Any] = {"text": output.text, "score": output.score, "log_prob": output.log_prob}
        if attention:
            plain |= {"tokens": output.tokens, "attention": output.attention}
        return plain

    found: dict[str, Any] = {"source": translation.source, "translations": [of(o) for o in translation.outputs]}
    if attention:
        found["source_tokens"] = translation.source_tokens
    return found


def encoding_warnings(counts: LineCounts, source: Path) -> list[str]:
    """Return what should be said of the bytes that were read."""
    name = "standard input" if str(source) == "-" else str(source)
    found = []
    if counts.n_bad:
        found.append(
            f"{counts.n_bad} lines are not UTF-8, the first at {name}:{counts.first_bad}; bad bytes became U+FFFD"
        )
    if counts.n_carriage_returns:
        found.append(f"{counts.n_carriage_returns} lines of {name} ended in a carriage return, which was dropped")
    return found
