"""Runs of ``pretrain-mlm`` and ``pretrain-clm`` behind calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from attnkit.analysis.embed_transformer import line_vectors, make_reader
from attnkit.config.arguments import Count, checked
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
from attnkit.library.files import as_path, warn, windows
from attnkit.runtime.devices import set_threads
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.electra import masked_language_model
from attnkit.tasks.language_modeling.fill_mask import FilledText, FillMaskPipeline
from attnkit.tasks.language_modeling.generate import GeneratedText, Generator, search_config
from attnkit.tasks.language_modeling.score import TextScore, score_texts

if TYPE_CHECKING:
    from typing_extensions import Unpack

Floats = npt.NDArray[np.float32]


def open_model(
    run: str | Path,
    task: str,
    device: str,
    precision: Precision,
    threads: int | None,
    checkpoint: str | None,
    adapter: str | Path | None = None,
) -> tuple[LoadedModel, RunSummary]:
    """Load a run of a task, its encoder in a precision; return it with its summary.

    Of an ELECTRA, the precision is that of the generator, which predicts; the encoder follows it. The summary names the
    precision that is used: float32 if compiled loops lack an option of the model.
    """
    set_threads(threads)
    options: dict[str, Any] = {"device": device, "checkpoint": checkpoint, "adapter": as_path(adapter)}
    opened = load_model(Path(run), task, warn=warn, **options)
    if task == "clm":
        return opened, summarize(opened, precision, "torch")
    predicting = masked_language_model(opened)
    compiled = set_precision(predicting, precision, warn)
    if compiled and predicting is not opened:
        set_precision(opened, precision, warn)  # for embeddings of texts
    return opened, summarize(opened, precision if compiled else "float32", "compiled" if compiled else "torch")


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
        self.tokenizer = self._filler.tokenizer
        self._stops: StopFlags | None = None

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
    ) -> MaskedLM:
        """Load a run of ``pretrain-mlm`` or ``import``.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the model or the device does not have the precision.
        """
        return cls(*open_model(run, "mlm", device, precision, threads, checkpoint))

    def __repr__(self) -> str:
        return f"MaskedLM({self.summary})"

    @checked
    def fill(self, lines: Sequence[str], *, top: Count = 5) -> list[FilledText]:
        """Return the ``top`` predictions for each [MASK], given all masks unfilled.

        Raises:
            DataError: a line has no mask or too many tokens.
        """
        self._filler.top = top
        return self._filler.fill(list(lines))

    @checked
    def fill_stream(self, lines: Iterable[str], *, top: Count = 5) -> Iterator[FilledText]:
        """Yield what ``fill`` returns, line by line; read a window of lines ahead."""
        for (window,) in windows(lines):
            yield from self.fill(window, top=top)

    @checked
    def score(self, lines: Sequence[str]) -> list[TextScore]:
        """Return pseudo-log-likelihoods (Salazar et al. 2020): each token masked in turn.

        Raises:
            DataError: a line has too many tokens.
        """
        texts = list(lines)
        if any(MASK in line for line in texts):
            raise DataError(f"a text to be scored contains {MASK}", help=f"fill {MASK} first")
        return score_texts(self._opened, texts, self._stops)

    @checked
    def set_stops(self, stops: StopFlags | None) -> None:
        """Let flags end lines of ``score`` from now on; None: no longer.

        Another thread sets them while a call runs; lines end between batches. Lines count from 0 in each call; a stream
        needs a single flag.
        """
        self._stops = stops

    @checked
    def score_stream(self, lines: Iterable[str]) -> Iterator[TextScore]:
        """Yield what ``score`` returns, line by line; read a window of lines ahead."""
        for (window,) in windows(lines):
            yield from self.score(window)

    @checked
    def embed(self, lines: Sequence[str], *, what: Literal["mean", "cls"] = "mean", layer: int | None = None) -> Floats:
        """Return one vector per line (n, D): the mean of its tokens, or that of [CLS].

        ``layer`` 0 is the embedding layer, None the last.
        """
        return line_vectors(make_reader(self._opened, layer), list(lines), what)

    @checked
    def embed_stream(
        self, lines: Iterable[str], *, what: Literal["mean", "cls"] = "mean", layer: int | None = None
    ) -> Iterator[Floats]:
        """Yield the vectors (D,) that ``embed`` returns, line by line."""
        for (window,) in windows(lines):
            yield from self.embed(window, what=what, layer=layer)


class GenerationArguments(TypedDict, total=False):
    """Options of generation, as those of ``attnkit generate``."""

    max_new_tokens: int
    """Maximum tokens of a continuation; 100 by default."""
    temperature: float | None
    top_k: int | None
    top_p: float | None
    repetition_penalty: float | None
    seed: int | None


class CausalLM:
    """A causal language model (GPT): generate, score and embed texts.

    Generation is greedy by default, sampling with ``temperature``, ``top_k``, ``top_p``, ``seed`` or ``n`` above 1. A
    text depends only on its prompt, its place among the prompts, its sample number and the seed.
    """

    def __init__(self, opened: LoadedModel, summary: RunSummary, generator: Generator) -> None:
        self.summary = summary
        self._opened, self._generator = opened, generator
        self.tokenizer = generator.tokenizer
        self._lock = threading.Lock()  # the generator has one configuration at a time
        self._stops: StopFlags | None = None

    @classmethod
    @checked
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        engine: Engine = "auto",
        threads: Count | None = None,
        checkpoint: str | None = None,
        adapter: str | Path | None = None,
        window: Annotated[int, 2] | None = None,
    ) -> CausalLM:
        """Load a run of ``pretrain-clm`` or ``import``.

        ``adapter`` is the run of an adapter of it, ``window`` the context in tokens; None: that of training.

        Raises:
            RunError: the run is missing, damaged or of another task.
            UsageError: the engine or the precision is not available for the model or the device.
        """
        opened, summary = open_model(run, "clm", device, precision, threads, checkpoint, adapter)
        generator = Generator(opened, search_config({}), window, engine=engine, precision=precision, notify=warn)
        chosen = "torch" if generator.compiled is None else "compiled"
        return cls(opened, replace(summary, engine=chosen), generator)

    def __repr__(self) -> str:
        return f"CausalLM({self.summary})"

    @checked
    def generate(
        self, prompts: Sequence[str], *, n: Count = 1, **options: Unpack[GenerationArguments]
    ) -> list[GeneratedText]:
        """Return ``n`` texts per prompt, those of one prompt after each other.

        Raises:
            UsageError: an invalid option, or several texts per prompt without sampling.
        """
        return self._generate(prompts, n, options, 0)

    @checked
    def generate_stream(
        self, prompts: Iterable[str], *, n: Count = 1, **options: Unpack[GenerationArguments]
    ) -> Iterator[GeneratedText]:
        """Yield what ``generate`` returns, text by text; read a window of prompts ahead."""
        first = 0
        for (window,) in windows(prompts):
            yield from self._generate(window, n, options, first)
            first += len(window)

    def _generate(
        self, prompts: Sequence[str], n: int, options: GenerationArguments, first: int
    ) -> list[GeneratedText]:
        """Return the texts of prompts of which ``first`` came before."""
        with self._configured(_config(options, n), self._stops) as generator:
            found = generator.generate(prompts, n, first)
            for text in generator.warnings():
                warn(text)
        return [text for texts in found for text in texts]

    @checked
    def set_stops(self, stops: StopFlags | None) -> None:
        """Let flags end prompts of ``generate`` and lines of ``score``; None: no longer.

        Another thread sets them while a call runs. Prompts count from 0 in each call; a stream needs a single flag.
        """
        self._stops = stops

    @checked
    def stream(self, prompt: str, **options: Unpack[GenerationArguments]) -> Iterator[str]:
        """Yield a text in pieces as it is generated, the prompt first.

        The pieces together are the text of ``generate`` for this prompt alone. A caller who stops early stops the
        generation.

        Raises:
            UsageError: an invalid option, or a right-to-left model, which generates the beginning last.
        """
        if self._generator.backwards:
            raise UsageError("a right-to-left model cannot stream: it generates the beginning of the text last")
        return self._stream(prompt, _config(options))

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

    @checked
    def score(self, lines: Sequence[str]) -> list[TextScore]:
        """Return the log-probability of each text, without an end symbol.

        Raises:
            DataError: a line has too many tokens.
        """
        return score_texts(self._opened, list(lines), self._stops)

    @checked
    def score_stream(self, lines: Iterable[str]) -> Iterator[TextScore]:
        """Yield what ``score`` returns, text by text; read a window of texts ahead."""
        for (window,) in windows(lines):
            yield from self.score(window)

    @checked
    def embed(self, lines: Sequence[str], *, layer: int | None = None) -> Floats:
        """Return one vector per line (n, D), the mean of its tokens; layer 0: embeddings."""
        return line_vectors(make_reader(self._opened, layer), list(lines), "mean")

    @checked
    def embed_stream(self, lines: Iterable[str], *, layer: int | None = None) -> Iterator[Floats]:
        """Yield the vectors (D,) that ``embed`` returns, line by line."""
        for (window,) in windows(lines):
            yield from self.embed(window, layer=layer)

    @contextmanager
    def _configured(self, config: SearchConfig, stops: StopFlags | None = None) -> Iterator[Generator]:
        """Yield the generator with other search settings, for one caller at a time."""
        with self._lock:
            self._generator.config = exclude_padding_ids(config, self._generator.tokenizer)
            self._generator.n_truncated, self._generator.stops = 0, stops
            yield self._generator


def _config(options: GenerationArguments, n: int = 1) -> SearchConfig:
    given = {name: value for name, value in options.items() if name != "max_new_tokens"}
    return search_config({"max_length": options.get("max_new_tokens", 100), **given}, n)


class _AbandonedError(Exception):
    """The caller of a stream has stopped."""
