"""The runs of a service: names, languages, queues, reloading."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.engine_choice import number_of_threads
from attnkit.errors import AttnkitError, RunError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.library.loading import load
from attnkit.library.translation import Translator
from attnkit.serving.batching import Batcher, OnDone, Worker, count_characters
from attnkit.serving.limits import Limits, RefusedError
from attnkit.serving.specs import RunSpec, choose_languages, find_languages, parse_spec, split_spec
from attnkit.tasks.translation.directions import OPTIONS
from attnkit.tasks.translation.loading import CONFIDENCE_NAME
from attnkit.text.tags import language_of_code

SLICE = 4096  #: characters of a slice of lines without a search, but at least a line
STOPPING = 2.0  #: seconds until a stopped search ends

Batched = tuple[str, Hashable]
"""Name of a call, and its options."""


class _Found(NamedTuple):
    """The best checkpoint of a run, before it is loaded."""

    config: Any
    state: bytes  #: which changes with what is loaded


def _find(run: Path) -> _Found:
    checkpoint, confidence = RunFolder(run).checkpoint()[0], run / CONFIDENCE_NAME
    # Not the checkpoint's name: "averaged" stays the best while its weights change.
    state = checkpoint.manifest.render() + (confidence.read_bytes() if confidence.is_file() else b"")
    return _Found(read_run_config(checkpoint), state)


@dataclass(frozen=True)
class _Loaded:
    """What is in use of a run; a reload replaces it as a whole."""

    model: Any
    replicas: list[Any]  #: the model for each thread of its queue
    state: bytes  #: of the files that it was loaded from
    task: str
    beam_size: int  #: of the run's own search
    languages: tuple[str, str] | None  #: source and target of a translator

    @classmethod
    def load(cls, spec: RunSpec, options: dict[str, Any], found: _Found, n_threads: int | None = None) -> _Loaded:
        """Load the best checkpoint, which is ``found``, for the threads of a queue.

        ``n_threads`` is their number; None: as many as the model can use.
        """
        config = found.config
        is_translation, spec = config.task == "translation", find_languages(spec, config)
        if is_translation:
            options = options | choose_languages(config, spec)
        try:
            model: Any = load(spec.path, **options)
        except UsageError as error:
            if error.where in OPTIONS and spec.languages is not None:  # which serve does not have
                error.where = f"{':'.join(spec.languages)}={spec.path}"
            raise
        assert model.summary is not None, "it is loaded from a run"
        if is_translation and (codes := config.vocabulary.language_codes) and not model.summary.languages:
            help = f"name two of its languages: {':'.join(map(language_of_code, codes[:2]))}={spec.path}"
            raise UsageError("the run has no usual languages", where=str(spec.path), help=help)
        if n_threads is None:
            is_compiled = isinstance(model, Translator) and model.summary.engine == "compiled"
            n_threads = number_of_threads(options.get("threads")) if is_compiled else 1
        replicas = [model] if n_threads == 1 else [model.replicate() for _ in range(n_threads)]
        beam_size = config.decoding.beam_size if is_translation else 1
        return cls(model, replicas, found.state, config.task, beam_size, spec.languages)


class ServedModel:
    """A loaded run with its queue; a compiled translator has a thread per CPU."""

    def __init__(self, spec: RunSpec, options: Mapping[str, Any], limits: Limits) -> None:
        self.spec, self.options, self.limits = spec, dict(options), limits
        self._loaded = _Loaded.load(spec, self.options, _find(spec.path))
        self.n_reloads = 0
        self.is_outdated = False  #: whether a newer checkpoint could not be loaded
        n = 4 if self.model.summary.device.startswith("cuda") else 1
        larger = replace(limits, batch_lines=n * limits.batch_lines, batch_characters=n * limits.batch_characters)
        n_threads = len(self._loaded.replicas)
        self.batcher = Batcher(self._compute, larger, spec.name, n_threads, lambda what: what[0] in WHOLE)
        self._reloading = threading.Lock()

    @property
    def model(self) -> Any:
        """The run, loaded."""
        return self._loaded.model

    @property
    def task(self) -> str:
        """Task of the run, which a reload does not change."""
        return self._loaded.task

    @property
    def beam_size(self) -> int:
        """Beam size of the run's own search; 1 for other tasks."""
        return self._loaded.beam_size

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target language of a translator, which a reload may change."""
        return self._loaded.languages

    @property
    def reads_vectors(self) -> bool:
        """Whether the run takes vectors instead of texts."""
        return bool(getattr(self.model, "reads_vectors", False))

    @property
    def name(self) -> str:
        """Name by which requests select the model."""
        return self.spec.name

    def _compute(
        self, items: list[Any], what: Batched, worker: Worker, stops: StopFlags, on_done: OnDone
    ) -> Sequence[Any]:
        """Call the model for the items of a batch, which have equal options."""
        model = self._loaded.replicas[worker.number]
        if isinstance(model, Translator):
            model.set_threads(worker.n_threads)
        call, options = what
        assert isinstance(options, tuple), "sorted pairs of names and values"
        given = dict(options)
        if "glossary" in given:
            given["glossary"] = dict(given["glossary"])
        if call in WHOLE:
            model.set_stops(stops.one(0))
            (item,) = items
            return [WHOLE[call](model, item, given)]
        if call in STOPPING_CALLS:
            model.set_stops(stops)
            return STOPPING_CALLS[call](model, items, given, on_done)
        if call in SIMPLE_CALLS:
            compute, size = SIMPLE_CALLS[call]
            return compute_in_slices(lambda own: compute(model, own, given), items, stops, on_done, size)
        method: Callable[..., Sequence[Any]] = getattr(model, call)
        return compute_in_slices(lambda own: method(*_columns(own), **given), items, stops, on_done)

    def reload(self) -> bool:
        """Load the newest best checkpoint; return whether there was one.

        Whatever it raises, the old model stays in use.
        """
        with self._reloading:
            self.is_outdated = True
            found = _find(self.spec.path)
            changed = found.state != self._loaded.state
            if changed:
                if (task := found.config.task) != self.task:
                    raise RunError(f"the run is of task {task} now, not {self.task}", where=str(self.spec.path))
                # Batches in progress keep the old one.
                self._loaded = _Loaded.load(self.spec, self.options, found, len(self._loaded.replicas))
                self.n_reloads += 1
            self.is_outdated = False
            return changed


def compute_in_slices(
    compute: Callable[[Sequence[Any]], Sequence[Any]],
    items: Sequence[Any],
    stops: StopFlags,
    on_done: OnDone,
    size: int | None = None,
) -> list[Any]:
    """Return the result of each item, but None for those whose flag is set in time.

    Flags are read before each slice, which has ``size`` characters (None: 4,096) or an item. Slices have items of
    similar length, as padding costs time.
    """
    sizes = [count_characters(item) for item in items]
    order = sorted(range(len(items)), key=sizes.__getitem__)
    found: list[Any] = [None] * len(items)
    check = stops.check(range(len(items)))
    while order:
        n = bisect_right(list(accumulate(sizes[place] for place in order)), size or SLICE)
        places, order = order[: max(1, n)], order[max(1, n) :]
        stopped = check()
        if left := [place for place in places if not stopped[place]]:
            for place, result in zip(left, compute([items[place] for place in left]), strict=True):
                found[place] = result
                on_done(place, result)
    return found


def _columns(items: Sequence[Any]) -> list[list[Any]]:
    """Return the columns of pairs, or the items as one."""
    return [list(column) for column in zip(*items, strict=True)] if isinstance(items[0], tuple) else [list(items)]


def _translate(
    model: Any, items: Sequence[tuple[str, str]], options: Mapping[str, Any], on_done: OnDone | None = None
) -> Sequence[Any]:
    """Translate lines with their prefixes."""
    prefixes = [prefix for _, prefix in items]
    found: Sequence[Any] = model.translate(
        [text for text, _ in items], prefixes=prefixes if any(prefixes) else None, on_done=on_done, **options
    )
    return found


WHOLE: dict[str, Callable[[Any, Any, Mapping[str, Any]], Any]] = {
    "translate_html": lambda model, text, options: model.translate_document(text, "html").text,
    "translate_samples": _translate,
    "generate": lambda model, prompts, options: model.generate(prompts, **options),
}
"""Calls of one item at a time, each the whole of a request or a document."""
SIMPLE_CALLS: dict[str, tuple[Callable[[Any, Sequence[Any], Mapping[str, Any]], Sequence[Any]], int]] = {
    "embed_words": (lambda model, words, options: model[words], SLICE),
    "embed_vectors": (lambda model, rows, options: model.embed(np.array(rows, np.float32)), SLICE),
    # Each word is compared with the whole vocabulary: one at a time.
    "similar": (lambda model, words, options: [model.most_similar(word, **options) for word in words], 1),
}
"""Calls whose items are not texts, or that are not methods of a list, with the size of their slices."""
STOPPING_CALLS: dict[str, Callable[[Any, Sequence[Any], Mapping[str, Any], OnDone], Sequence[Any]]] = {
    "translate": _translate,
    "translate_texts": lambda model, lines, options, on_done: model.translate_texts(lines, on_done=on_done, **options),
    "score": lambda model, items, options, on_done: model.score(*_columns(items)),
}
"""Calls that end lines themselves when their flags are set."""


class Models:
    """All runs of a service, by name and by languages."""

    def __init__(
        self,
        specs: Sequence[str],
        limits: Limits,
        *,
        device: str,
        precision: Precision,
        threads: int | None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load all runs; ``tell`` receives which cannot be, if others can.

        Raises:
            UsageError: two runs have one name.
            AttnkitError: no run can be served; that of the first.
        """
        self.limits, self.is_stopped = limits, False
        self.by_name: dict[str, ServedModel] = {}
        self._options = {"device": device, "precision": precision, "threads": threads}
        self._texts: dict[str, str] = {}  #: as on the command line, by name
        self._reloading = threading.Lock()
        for text in specs:
            spec = split_spec(text)
            if spec.name in self._texts:
                what = f"two runs are named '{spec.name}'"
                raise UsageError(what, where=str(spec.path), help=f"name them: NAME={spec.path}")
            self._texts[spec.name] = text
        errors: dict[str, Exception] = {}
        for step in (parse_spec, self._load):  # all are read before the first is loaded, which takes longer
            for name, text in self._texts.items():
                try:
                    if name not in errors:
                        step(text)
                except Exception as error:  # a damaged folder may raise anything
                    errors[name] = error
        if not self.by_name:
            raise next(iter(errors.values()))
        for name, found in errors.items():
            tell(f"{name} is not served: {_said(found)}")

    def _load(self, text: str) -> None:
        """Load a run and serve it."""
        spec = parse_spec(text)
        found = {**self.by_name, spec.name: ServedModel(spec, self._options, self.limits)}
        # A new dictionary, as requests read the old one; in the order of the command line.
        self.by_name = {name: found[name] for name in self._texts if name in found}

    @property
    def failed(self) -> dict[str, RunSpec]:
        """Runs that could not be loaded, by name."""
        return {name: split_spec(text) for name, text in self._texts.items() if name not in self.by_name}

    def find(self, name: str | None, *tasks: str) -> ServedModel:
        """Return a model by name, or the only one for these tasks.

        Raises:
            RefusedError: there is none (404), several (400), or it has another task (400).
        """
        if name is not None:
            found = self.by_name.get(name)
            if name in self.failed:
                raise _failed(name)
            if found is None:
                raise RefusedError(404, f"no model '{name[:100]}'; there are {', '.join(self.by_name)}")
            if found.task not in tasks:
                raise RefusedError(400, f"model '{found.name}' is of task {found.task}, not {' or '.join(tasks)}")
            return found
        fitting = [model for model in self.by_name.values() if model.task in tasks]
        if not fitting:
            raise RefusedError(404, f"no model of task {' or '.join(tasks)} is served")
        if len(fitting) > 1:
            raise RefusedError(400, f"several models fit, name one: {', '.join(model.name for model in fitting)}")
        return fitting[0]

    def translator(self, source: str | None, target: str | None) -> ServedModel:
        """Return the translator of two languages; a source of ``auto`` or None fits all.

        Raises:
            RefusedError: there is no such translator, or several (400).
        """
        wanted = [None if code in (None, "", "auto") else code.lower() for code in (source, target)]
        fitting = [model for model in self.translators() if _fits(wanted, model.languages or ("", ""))]
        if len(fitting) == 1:
            return fitting[0]
        pairs = ", ".join("-".join(model.languages or ()) for model in self.translators()) or "none"
        for name, spec in {} if fitting else self.failed.items():
            if spec.languages is not None and _fits(wanted, spec.languages):
                raise _failed(name)
        if not fitting:
            raise RefusedError(400, f"no translator from {source} to {target}; there are {pairs}")
        raise RefusedError(400, f"several translators fit, name both languages: {pairs}")

    def translators(self) -> list[ServedModel]:
        """Return all translators."""
        return [model for model in self.by_name.values() if model.task == "translation"]

    def reload(self) -> list[str]:
        """Reload runs with a newer best checkpoint, and load those that failed.

        Returns a message for each run.
        """
        with self._reloading:
            return [self._reload(name, text) for name, text in self._texts.items()]

    def _reload(self, name: str, text: str) -> str:
        model, changed = self.by_name.get(name), True
        try:
            if model is None:
                self._load(text)
            else:
                changed = model.reload()
        except Exception as error:  # a damaged folder may raise anything
            return f"{name} {'is not served' if model is None else 'keeps its model'}: {_said(error)}"
        return f"{name}: {self.by_name[name].model.summary.checkpoint}{'' if changed else ' (unchanged)'}"

    def stop(self) -> None:
        """Refuse what waits, and stop what runs."""
        self.is_stopped = True
        for model in self.by_name.values():
            model.batcher.close()
            model.batcher.stop()

    def close(self, timeout: float) -> None:
        """End all queues when they are empty, and stop what runs when the time is over."""
        batchers = [model.batcher for model in self.by_name.values()]
        end = time.monotonic() + timeout
        for batcher in batchers:
            batcher.close()
        for batcher in batchers:
            batcher.join(max(0.0, end - time.monotonic()))
        self.stop()
        for batcher in batchers:
            batcher.join(STOPPING)


def _said(error: Exception) -> str:
    """Return an error in one line."""
    return error.what if isinstance(error, AttnkitError) else " ".join(f"{type(error).__name__}: {error}".split())


def _failed(name: str) -> RefusedError:
    return RefusedError(503, f"model '{name}' could not be loaded", {"Retry-After": "60"})


def _fits(wanted: Sequence[str | None], own: Sequence[str]) -> bool:
    """Return whether languages are those wanted; None fits any."""
    return all(code in (None, other.lower()) for code, other in zip(wanted, own, strict=True))
