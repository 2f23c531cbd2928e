"""Runs of ``pretrain-mlm`` and ``pretrain-clm`` behind calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from attnkit.analysis.embed_transformer import line_vectors, make_reader
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.checkpoint_metadata import checkpoint_scores
from attnkit.engine.compiled_language_models import set_precision
from attnkit.engine.engine_choice import Engine
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.run_summary import RunSummary, describe_model, find_languages
from attnkit.engine.search_backend import exclude_padding_ids
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import as_lines, warn
from attnkit.runtime.devices import set_threads
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.fill_mask import FilledText, FillMaskPipeline
from attnkit.tasks.language_modeling.generate import GeneratedText, Generator, search_config
from attnkit.tasks.language_modeling.score import TextScore, score_texts
from attnkit.text.lines import line_batches

Floats = npt.NDArray[np.float32]
_WINDOW = 256  #: lines of a stream that are read ahead


def open_model(
    run: str | Path, task: str, device: str, precision: Precision, threads: int | None, checkpoint: str | None
) -> tuple[LoadedModel, RunSummary]:
    """Load a run of a task, its encoder in a precision; return it with its summary."""
    set_threads(threads)
    opened = load_model(Path(run), task, device=device, checkpoint=checkpoint, warn=warn)
    compiled = precision != "float32" and task != "clm"
    if compiled:
        set_precision(opened, precision, warn)
    return opened, summarize(opened, precision, "compiled" if compiled else "torch")


def summarize(opened: LoadedModel, precision: str, engine: str) -> RunSummary:
    """Return the summary of a loaded model."""
    config = opened.config
    return RunSummary(
        path=opened.path,
        task=config.task,
        languages=find_languages(config.data),
        model=describe_model(config),
        checkpoint=opened.checkpoint.name,
        scores=checkpoint_scores(opened.checkpoint, config.metrics),
        n_parameters=sum(parameter.numel() for parameter in opened.model.parameters()),
        vocab_size=read_tokenizer(opened.checkpoint).vocab_size if reads_text(opened) else 0,
        device=str(opened.device),
        precision=precision,
        engine=engine,
    )


def reads_text(opened: LoadedModel) -> bool:
    """Return whether a run has a vocabulary: auto-encoders of vectors have none."""
    return "tokenizer.json" in opened.checkpoint.manifest.files


class MaskedLM:
    """A masked language model (BERT): fill masks, score and embed texts.

    >>> model = attnkit.MaskedLM.load("bert")  # doctest: +SKIP
    >>> model.fill(["The cat sat on the [MASK]."])[0].filled  # doctest: +SKIP
    'The cat sat on the mat.'
    """

    def __init__(self, opened: LoadedModel, summary: RunSummary) -> None:
        self.summary = summary
        self._opened = opened
        self._filler = FillMaskPipeline(opened)

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        threads: int | None = None,
        checkpoint: str | None = None,
    ) -> MaskedLM:
        """Load a run of ``pretrain-mlm`` or ``import``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        return cls(*open_model(run, "mlm", device, precision, threads, checkpoint))

    def __repr__(self) -> str:
        return f"MaskedLM({self.summary})"

    def fill(self, lines: Sequence[str], *, top: int = 5) -> list[FilledText]:
        """Return the ``top`` predictions for each [MASK], given all masks unfilled.

        Raises:
            DataError: a line has no mask or too many tokens.
        """
        self._filler.top = top
        return self._filler.fill(as_lines(lines))

    def fill_stream(self, lines: Iterable[str], *, top: int = 5) -> Iterator[FilledText]:
        """Yield what ``fill`` returns, line by line; read a window of lines ahead."""
        for window in line_batches(lines, _WINDOW, None):
            yield from self.fill(window, top=top)

    def score(self, lines: Sequence[str]) -> list[TextScore]:
        """Return pseudo-log-likelihoods (Salazar et al. 2020): each token masked in turn.

        Raises:
            DataError: a line has too many tokens.
        """
        texts = as_lines(lines)
        if any(MASK in line for line in texts):
            raise DataError(f"a text to be scored contains {MASK}", help=f"fill {MASK} first")
        return score_texts(self._opened, texts)

    def embed(self, lines: Sequence[str], *, what: Literal["mean", "cls"] = "mean", layer: int | None = None) -> Floats:
        """Return one vector per line (n, D): the mean of its tokens, or that of [CLS].

        ``layer`` 0 is the embedding layer, None the last.
        """
        return line_vectors(make_reader(self._opened, layer), as_lines(lines), what)


class CausalLM:
    """A causal language model (GPT): generate, score and embed texts.

    Options of generation are those of ``attnkit generate``: greedy by default, sampling with ``temperature``,
    ``top_k``, ``top_p``, ``seed`` or ``n`` above 1. A text depends only on its prompt, its place among the prompts,
    its sample number and the seed.
    """

    def __init__(self, opened: LoadedModel, summary: RunSummary, generator: Generator) -> None:
        self.summary = summary
        self._opened, self._generator = opened, generator
        self._lock = threading.Lock()  # the generator has one configuration at a time
        self._stops: StopFlags | None = None

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        engine: Engine = "auto",
        threads: int | None = None,
        checkpoint: str | None = None,
    ) -> CausalLM:
        """Load a run of ``pretrain-clm`` or ``import``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the engine or the precision is not available for the model or the device.
        """
        opened, summary = open_model(run, "clm", device, precision, threads, checkpoint)
        generator = Generator(opened, search_config({}), engine=engine, precision=precision, notify=warn)
        chosen = "torch" if generator.compiled is None else "compiled"
        return cls(opened, replace(summary, engine=chosen), generator)

    def __repr__(self) -> str:
        return f"CausalLM({self.summary})"

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int = 100,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        n: int = 1,
        seed: int | None = None,
    ) -> list[GeneratedText]:
        """Return ``n`` texts per prompt, those of one prompt after each other.

        Raises:
            UsageError: an invalid option, or several texts per prompt without sampling.
        """
        options = {"max_length": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        config = search_config({**options, "repetition_penalty": repetition_penalty, "seed": seed}, n)
        with self._configured(config, self._stops) as generator:
            found = generator.generate(as_lines(prompts), n)
            for text in generator.warnings():
                warn(text)
        return [text for texts in found for text in texts]

    def set_stops(self, stops: StopFlags | None) -> None:
        """Let flags end prompts of the calls of ``generate`` from now on; None: no longer.

        Another thread sets them while a call runs. Prompts count from 0 in each call.
        """
        self._stops = stops

    def stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int = 100,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Yield a text in pieces as it is generated, the prompt first.

        The pieces together are the text of ``generate`` for this prompt alone. A caller who stops early stops the
        generation.

        Raises:
            UsageError: an invalid option, or a right-to-left model, which generates the beginning last.
        """
        if self._generator.backwards:
            raise UsageError("a right-to-left model cannot stream: it generates the beginning of the text last")
        options = {"max_length": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        config = search_config({**options, "repetition_penalty": repetition_penalty, "seed": seed})
        return self._stream(prompt, config)

    def _stream(self, prompt: str, config: SearchConfig) -> Iterator[str]:
        pieces: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
        abandoned = threading.Event()

        def show(text: str) -> None:
            if abandoned.is_set():
                raise _AbandonedError
            if text:
                pieces.put(text)

        def run() -> None:
            try:
                with self._configured(config) as generator:
                    generator.stream(prompt, show)
            except _AbandonedError:
                pass
            except BaseException as error:  # raised where the pieces are taken
                pieces.put(error)
            pieces.put(None)

        # The search calls back for each token; a thread of its own turns that into an iterator.
        worker = threading.Thread(target=run, daemon=True)
        worker.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            abandoned.set()
            worker.join()

    def score(self, lines: Sequence[str]) -> list[TextScore]:
        """Return the log-probability of each text, without an end symbol.

        Raises:
            DataError: a line has too many tokens.
        """
        return score_texts(self._opened, as_lines(lines))

    def embed(self, lines: Sequence[str], *, layer: int | None = None) -> Floats:
        """Return one vector per line (n, D), the mean of its tokens; layer 0: embeddings."""
        return line_vectors(make_reader(self._opened, layer), as_lines(lines), "mean")

    @contextmanager
    def _configured(self, config: SearchConfig, stops: StopFlags | None = None) -> Iterator[Generator]:
        """Yield the generator with other search settings, for one caller at a time."""
        with self._lock:
            self._generator.config = exclude_padding_ids(config, self._generator.tokenizer)
            self._generator.n_truncated, self._generator.stops = 0, stops
            yield self._generator


class _AbandonedError(Exception):
    """The caller of a stream has stopped."""
