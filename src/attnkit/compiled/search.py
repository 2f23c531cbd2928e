"""Whole searches in compiled loops, without torch.

The loops read and write raw addresses. Everything they address is made or checked here: ids, lengths, limits, and the
size of every buffer.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnkit.compiled.memory import Memory
from attnkit.compiled.packed_layers import MAX_HEAD, PackedLayers
from attnkit.compiled.workers import WATCH, Threads, receives_signals
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import NOTHING, Hypothesis, differences
from attnkit.decoding.stopping import StopCheck
from attnkit.kernels import layout
from attnkit.kernels.jit import is_available
from attnkit.kernels.layout import Choice, Results, Sentences, Settings, Slots, States, Work
from attnkit.kernels.native import Library, PreparedArgument, load_loops
from attnkit.kernels.simd import packing
from attnkit.kernels.simd.targets import Precision
from attnkit.models.config import TransformerConfig
from attnkit.protocols import EOS_ID, UNK_ID

if TYPE_CHECKING:
    from attnkit.compiled.packed_language_model import PackedLanguageModel
    from attnkit.compiled.packed_transformer import PackedTransformer
    from attnkit.compiled.reports import Reports

# Letters: D model width, A heads times head width, F inner width, H heads, d head width, R sentences that a thread
# works on, K beams, M rows, T steps, N padded words.
MAX_CACHE = 1 << 28  #: bytes of keys and values per thread, unless one sentence needs more
GREEDY_SLOTS: dict[Precision, int] = {"float32": 48, "bfloat16": 48, "int8": 24}
"""Sentences that a thread works on: more would leave its cache, earlier where weights are read sooner."""
BEAM_ROWS: dict[Precision, int] = {"float32": 160, "bfloat16": 40, "int8": 40}
"""Rows of beams; in float32 more share each panel of the output layer that is computed in full."""
TILE_SLOTS, TILE_BEAM_ROWS = 48, 80  #: the same where AMX multiplies, 16 rows at a time
ENCODED_TOKENS = 512  #: tokens that are encoded together, unless one sentence has more
FEW_SENTENCES = 64  #: of which progress is told at their end alone
MAX_BEAMS = 64
NO_NUMBA = "an installation without numba"  #: a reason against any model
SLOT_NUMBERS = ("active", "free", "sentence", "step", "n_beams", "n_ended", "side")  #: fields of ``Slots``, (R,) each
MAX_TOKENS = 1 << 14  #: tokens of a source or a translation


def reason_against_model(config: Any) -> str | None:
    """Return a property of a model that compiled loops do not support, or None."""
    if not is_available():
        return NO_NUMBA
    if not isinstance(config, TransformerConfig):
        return f"a model of kind {config.kind}"
    if config.score_scale is None:
        return "attention other than dot or scaled_dot with softmax"
    if config.pattern != "none":
        return "sparse attention"
    if config.d_head > MAX_HEAD:
        return f"heads wider than {MAX_HEAD}"
    return None


def reason_against_search(search: SearchConfig) -> str | None:
    """Return a search setting that compiled loops do not support; None if all are."""
    if search.sampling:
        return "sampling"
    if search.coverage_penalty != 0:
        return "a coverage penalty"
    if search.repetition_penalty != 1:
        return "a repetition penalty"
    if search.no_repeat_ngram_size:
        return "forbidden n-grams"
    if search.beam_size > min(MAX_BEAMS, (search.n_words or MAX_BEAMS + 3) - 3):
        return f"a beam of {search.beam_size}"
    return None


class CompiledSearch:
    """Greedy and beam search over encoded sentences, in threads."""

    n_appended = 1  #: tokens behind those of a source: EOS

    def __init__(
        self,
        packed: PackedTransformer | PackedLanguageModel,
        *,
        n_threads: int = 1,
        notify: Callable[[str], None] = lambda text: None,
        library: Library | None = None,
    ) -> None:
        """Load the loops for a packed model, unless they are given.

        ``notify`` receives a note before they are compiled. Raises ``SystemFailure`` if they cannot be.
        """
        self.library = library or load_loops("search", packed.target, packed.precision, notify)
        self.packed, self.n_threads = packed, n_threads
        self._threads = Threads(n_threads)
        self._lock = threading.Lock()  # of the workspaces: one search at a time
        self._spaces: list[_Workspace] = []
        self._reports: Reports | None = None  # of the search that runs

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        search: SearchConfig,
        stops: StopCheck | None = None,
        progress: Callable[[int], None] = lambda n_done: None,
        report: Callable[[int, list[Hypothesis]], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return ``num_hypotheses`` or fewer translations of each sentence, best first.

        Args:
            sources: ids of each, EOS left out.
            limits: most tokens of each translation, EOS included.
            stops: says which sentences are to end; those have no words.
            progress: receives the number of sentences done, again and again; the caller's thread calls it. Beside the
                main thread it learns the end alone of a few sentences.
            report: receives sentences soon after they are done, while others are searched, in any order and perhaps in
                another thread; not those that end last, nor those that are stopped. It must return soon and not search
                here; what it raises is raised at the end.

        Raises:
            ValueError: a setting that the loops do not have, an id outside of the vocabulary, or a length that is not
                between 1 and the positions of the model.
        """
        if (reason := reason_against_search(search)) is not None:
            raise ValueError(f"compiled loops do not support {reason}")
        if search.n_words not in (None, self.packed.n_words):
            raise ValueError(f"n_words must be {self.packed.n_words}, as the weights are packed, not {search.n_words}")
        if self._reports is not None and self._reports.is_reporting_here:
            raise ValueError("a function that receives results cannot search where they come from")
        if not len(sources):
            return []
        own = self._sources(sources, limits)
        with self._lock:
            return self._search(own, search, stops, progress, report)

    def _search(
        self,
        own: Sentences,
        search: SearchConfig,
        stops: StopCheck | None,
        progress: Callable[[int], None],
        report: Callable[[int, list[Hypothesis]], None] | None,
    ) -> list[list[Hypothesis]]:
        """Search with the workspaces of this object, which the caller has locked."""
        n_tokens = np.diff(own.begins)
        # Long sentences first: all threads end at nearly the same time.
        own = own._replace(order=np.argsort(-n_tokens, kind="stable"))
        n_threads = max(1, min(self.n_threads, len(n_tokens)))
        settings = self._fitting(self._settings(search, int(n_tokens.max()), int(own.limits.max())), n_threads)
        settings = settings._replace(n_used=min(settings.n_slots, -(-len(n_tokens) // n_threads)))
        sized = self.packed.model(_max_places(self.packed, settings))
        results = _results(own.limits, search.num_hypotheses)
        shared = np.zeros(2, np.int64)
        name = "greedy" if search.beam_size == 1 else "beam"

        def run(i: int) -> None:
            self.library.call(name, sized.prepared, own, settings, self._spaces[i].work, results, shared)

        limits = own.limits.copy()
        stop_watch = None if stops is None else _StopWatch(stops, own.limits, results.lengths, shared)
        reports = None
        if report is not None:
            from attnkit.compiled.reports import Reports  # by a service

            of_rows = partial(_hypotheses, results, own._replace(limits=limits), search)
            reports = self._reports = Reports(report, results.lengths, lambda: own.limits == limits, of_rows)

        def watch() -> None:
            if stop_watch is not None:
                stop_watch.look()
            if reports is not None:
                reports.look()

        def look() -> None:
            watch()
            # The loops give each sentence its lengths when it is done: nothing is counted twice, in any order.
            progress(int(np.count_nonzero(results.lengths[:, 0] >= 0)))

        look()  # what is stopped already is not begun
        if n_threads == 1 and len(n_tokens) <= FEW_SENTENCES and not receives_signals():
            with WATCH.calling(None if stop_watch is None and reports is None else watch):
                run(0)
            look()
        else:
            self._threads.run(run, n_threads, shared, look)
        self._reports = None
        if reports is not None:
            reports.end()
        results.lengths[own.limits != limits] = -1
        return list(_hypotheses(results, own._replace(limits=limits), search))

    def _sources(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> Sentences:
        """Return checked sentences, with EOS where the model encodes them."""
        lengths = np.array([len(ids) + self.n_appended for ids in sources], np.int64)
        most = min(MAX_TOKENS, self.packed.config.max_positions or MAX_TOKENS)
        steps = np.array(limits, np.int64)
        if len(steps) != len(lengths):
            raise ValueError(f"{len(steps)} limits for {len(lengths)} sentences")
        for values in (lengths, steps):
            if values.min() < 1 or values.max() > most:
                raise ValueError(f"a sentence must have between 1 and {most} tokens")
        if not self.n_appended and (lengths + steps).max() - 1 > most:
            raise ValueError(f"a text must have at most {most} tokens, with those that are added")
        begins = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(begins[-1], EOS_ID, np.int64)
        for begin, row in zip(begins, sources, strict=False):
            ids[begin : begin + len(row)] = row
        if ids.min() < 0 or ids.max() >= self.packed.src_vocab_size:
            raise ValueError(f"ids must be between 0 and {self.packed.src_vocab_size - 1}")
        return Sentences(ids.astype(np.int32), token_positions(begins), begins, np.zeros(0, np.int64), steps)

    def _settings(self, search: SearchConfig, max_source: int, max_steps: int) -> Settings:
        packed, k = self.packed, search.beam_size
        # Rounded up, so that most calls find their buffers made.
        max_source, max_steps = (-(-n // 32) * 32 for n in (max_source, max_steps))
        per_sentence = _kept_bytes(packed) * (max_source + max_steps * k)
        n_greedy, n_rows = GREEDY_SLOTS[packed.precision], BEAM_ROWS[packed.precision]
        if packed.target.multiplies_tiles(packed.precision):
            n_greedy, n_rows = TILE_SLOTS, TILE_BEAM_ROWS
        n_slots = n_greedy if k == 1 else max(4, n_rows // k)
        return Settings(
            n_slots=max(1, min(n_slots, MAX_CACHE // per_sentence)),
            n_used=0,
            n_beams=k,
            n_results=search.num_hypotheses,
            first_word=UNK_ID + 1 if search.no_unk else EOS_ID + 1,
            n_words=min(packed.n_words, packed.vocab_size),
            min_length=search.min_length,
            length_penalty=float(search.length_penalty),
            # The other form masks neither EOS nor UNK.
            scores=int(search.scores or search.token_scores or search.min_length > 0 or search.no_unk),
            max_source=max_source,
            max_steps=max_steps,
            max_encoded=max(ENCODED_TOKENS, max_source),
            panel=packed.tile.panel,
            extra_rows=packed.target.extra_rows,
            lane_bytes=packed.lane_bytes,
            kept_bytes=packed.kept_bytes,
        )

    def _fitting(self, settings: Settings, n_threads: int) -> Settings:
        """Make working memory for n threads, or adopt the sizes of the last search.

        Limits differ from sentence to sentence: without this, most calls would make new memory.
        """
        if self._spaces:
            old = self._spaces[0].settings
            sizes = {name: getattr(old, name) for name in ("n_slots", "max_source", "max_steps", "max_encoded")}
            if old.n_beams == settings.n_beams and all(sizes[name] >= getattr(settings, name) for name in sizes):
                settings = settings._replace(**sizes)
            else:
                self._spaces.clear()
        while len(self._spaces) < n_threads:
            self._spaces.append(_Workspace(self.packed, settings))
        return settings


class _StopWatch:
    """Ends sentences of a running search.

    Loops need no flags for it: they read limits and the shared flag at each step. A limit
    may only fall: results were given room for the first one.
    """

    def __init__(
        self,
        stops: StopCheck,
        limits: NDArray[np.int64],  # (n,), those that the loops read
        lengths: NDArray[np.int64],  # (n, n_results), of the results; -1 until a sentence is done
        shared: NDArray[np.int64],
    ) -> None:
        self._stops, self._limits, self._lengths, self._shared = stops, limits, lengths, shared

    def look(self) -> None:
        """Make the next step the last one of stopped sentences."""
        stopped = self._stops()  # (n,)
        if stopped.any():
            self._limits[stopped] = 0
            # What has not begun would be encoded first: with nothing else to do, all ends at once.
            if bool((stopped | (self._lengths[:, 0] >= 0)).all()):
                self._shared[layout.STOP] = 1


def _kept_bytes(packed: PackedLayers) -> int:
    """Return the bytes of one position's keys and values in all layers."""
    return 2 * (packed.n_decoder_layers or packed.n_encoder_layers) * packed.d_kept * packed.kept_bytes


def _max_places(packed: PackedLayers, settings: Settings) -> int:
    """Return how many positions a row may attend to."""
    if packed.n_decoder_layers:
        return max(settings.max_source, settings.max_steps)
    return settings.max_source + settings.max_steps  # a language model: the prompt and what follows


def token_positions(begins: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the position of each token in its sentence."""
    return (np.arange(begins[-1]) - np.repeat(begins[:-1], np.diff(begins))).astype(np.int32)


class _Workspace(Memory):
    """Working memory of one thread."""

    def __init__(self, packed: PackedTransformer | PackedLanguageModel, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        r, k, t = settings.n_slots, settings.n_beams, settings.max_steps
        # A language model keeps its prompts where it keeps its steps, and reads many of their tokens at once.
        n_kept, n_source, n_rows = _kept_bytes(packed), settings.max_source, r * k
        n_steps = t * k
        if not packed.n_decoder_layers:
            n_source, n_steps, n_rows = 0, n_source + t, max(r, settings.max_encoded)
        memory, cache = self.bytes(r * n_source * n_kept), self.bytes(r * n_steps * n_kept)
        of_slots = {name: self.array(np.int64, r) for name in SLOT_NUMBERS}
        slots = Slots(
            **of_slots,
            score=self.array(np.float32, r, k),
            words=self.array(np.int32, r, t, k),
            parents=self.array(np.int32, r, t, k),
            past_scores=self.array(np.float32, r, t, k),
            ancestors=self.array(np.int32, 2, r, k, -(-t // 4) * 4),
            ended=self.array(np.int64, r, 2 * k, 4),
            ended_log_prob=self.array(np.float32, r, 2 * k),
            ended_score=self.array(np.float64, r, 2 * k),
        )
        states = States(*(self.array(np.int64, n_rows) for _ in States._fields))
        buffers = self.buffers(packed, max(r * k, settings.max_encoded), _max_places(packed, settings))
        choice = self._choice(packing.padded(packed.vocab_size), packed.d_model, settings)
        self.work = PreparedArgument(Work(memory, cache, states, slots, choice, buffers))

    def _choice(self, n_words: int, d_model: int, settings: Settings) -> Choice:
        k, rows = settings.n_beams, settings.n_slots * settings.n_beams + settings.extra_rows
        n_logits = -(-(layout.LOGIT_ROWS + k + settings.extra_rows) // 16) * 16  # sums are combined 16 rows at a time
        return Choice(
            logits=self.bytes(4 * n_logits * n_words),
            peaks=self.bytes(4 * n_logits * (n_words // settings.panel)),
            peaks_stride=4 * n_logits,
            shares=self.bytes(4 * n_logits * (n_words // settings.panel)),
            tops=self.bytes(4 * n_logits),
            totals=self.bytes(4 * n_logits),
            best_panel=self.bytes(4 * rows * settings.panel),
            best=self.bytes(4 * rows),
            panel_number=self.array(np.int64, rows),
            group_value=self.array(np.float32, k),
            group_place=self.array(np.int64, k),
            value=self.array(np.float32, k),
            flat=self.array(np.int64, k),
            end=self.array(np.float32, k),
            encoded=self.bytes(n_logits * d_model * 2),
            scales=self.bytes(4 * n_logits),
            squares=self.bytes(8),
            bounds=self.array(np.float64, n_logits),
            near=self.bytes(4 * n_logits),
            gathered=self.bytes(4 * n_logits * d_model),
            gathered_rows=self.array(np.int64, n_logits),
            gathered_logits=self.bytes(4 * n_logits * settings.panel),
            gathered_sums=self.bytes(8 * n_logits),
        )


def _results(limits: NDArray[np.int64], n_results: int) -> Results:
    n = len(limits)
    begins = np.concatenate([[0], np.cumsum(limits * n_results)])
    numbers = [np.zeros((n, n_results), np.int64) for _ in range(3)]
    lengths, steps, finished = numbers
    lengths[:] = -1
    ids, scores = np.zeros(begins[-1], np.int32), np.zeros(begins[-1], np.float32)
    return Results(ids, scores, begins[:-1].copy(), lengths, np.zeros((n, n_results)), steps, finished)


def _hypotheses(
    results: Results, sentences: Sentences, search: SearchConfig, rows: NDArray[np.int64] | slice = slice(None)
) -> Iterator[list[Hypothesis]]:
    """Yield the hypotheses of each sentence, or of those in some rows."""
    has_scores = search.scores or search.token_scores or search.beam_size > 1
    # Lists: taking single items of arrays would take as long as a tenth of the search.
    columns = (results.begins, sentences.limits, results.lengths, results.log_probs, results.steps, results.finished)
    for begin, limit, *of_ranks in zip(*(column[rows].tolist() for column in columns), strict=True):
        found = []
        for rank, (n, log_prob, n_steps, finished) in enumerate(zip(*of_ranks, strict=True)):
            if n >= 0:
                first = begin + rank * limit
                ids = results.ids[first : first + n].tolist()
                log_prob = log_prob if has_scores else math.nan
                score = log_prob / n_steps**search.length_penalty
                sums = results.token_scores[first : first + n_steps] if search.token_scores else None
                own = None if sums is None else differences(sums)
                found.append(Hypothesis(ids, score, log_prob, None, bool(finished), own))
        # Only a model whose numbers are not finite leaves a sentence without any.
        yield found or [NOTHING]
