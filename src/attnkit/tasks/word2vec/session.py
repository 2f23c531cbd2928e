"""Training session of word vectors. Torch-free unless a loop needs torch."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.checkpoints.logs import append_record
from attnkit.data.prepared_dir import StatusEvent, WarningEvent, is_prepared, open_prepared_dir, write_index
from attnkit.data.words import encode_words, open_words
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.events import PrepareEvent, TrainingFinished, TrainingProgress, TrainingStarted, TrainRequest
from attnkit.engine.model_card import card_header, provenance
from attnkit.engine.run_state import RunState
from attnkit.engine.session import TrainingSession
from attnkit.engine.vocabularies import open_tokenizer
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.kernels.jit import release_compiler
from attnkit.runtime.signals import release_free_memory
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig, Word2VecCounters
from attnkit.tasks.word2vec.initial import init_matrices
from attnkit.tasks.word2vec.loop import SliceRecord, train_slices
from attnkit.tasks.word2vec.workload import Workload, build_workload
from attnkit.text.files import only_once
from attnkit.text.word_vocabulary import FILE as WORDS
from attnkit.text.word_vocabulary import WordVocabulary

WORDS_FOLDER = "words"  #: folder of the encoded text in RUN/data


class Word2VecSession(TrainingSession):
    """Session that trains word vectors chunk by chunk in several threads."""

    state: Word2VecCounters
    work: Workload
    matrices: mats.Matrices

    def __init__(self, request: TrainRequest) -> None:
        self.request = request
        self.config = cast(Word2VecConfig, request.config)
        self.state = Word2VecCounters()
        self._loop: Iterator[SliceRecord] | None = None
        self._saved_at = 0.0

    def prepare(self, writer: RunWriter) -> Iterator[PrepareEvent]:
        config, folder = self.config.data, writer.folder.data_path
        if is_prepared(folder, config.files, None):
            return
        yield StatusEvent("counting and encoding the words")
        sources = [Path(name) for name in config.files]
        tokenizer = None if config.tokenizer is None else open_tokenizer(Path(config.tokenizer))
        with atomic.atomic_dir(folder) as temporary:
            encoded = encode_words(temporary / WORDS_FOLDER, sources, config, self.request.report_progress, tokenizer)
            counts = {"words": encoded.n_raw}
            write_index(temporary, [path for path in sources if not only_once(path)], None, counts)
        yield from map(WarningEvent, encoded.warnings)

    def setup(self, writer: RunWriter) -> list[PrepareEvent]:
        config, folder = self.config, writer.folder.data_path
        with open_prepared_dir(folder):
            encoded = open_words(folder / WORDS_FOLDER)
        self.work = build_workload(config, encoded, folder, self.request.report_progress)
        release_compiler()
        self.matrices = mats.empty(self.work.shapes)
        self.state = Word2VecCounters(n_steps=config.epochs * self.work.n_pieces, raw=encoded.n_raw)
        writer.restore(encoded.store.fingerprint, {WORDS: encoded.words.to_bytes()})
        messages: list[PrepareEvent] = []
        if writer.run_state.checkpoint is None:
            self.work.begin(self.matrices)
            messages += map(StatusEvent, init_matrices(config, encoded.words, self.matrices))
        self._n_words = len(encoded.words)
        del encoded  # the word list takes more memory than all else besides the matrices
        release_free_memory()
        return messages

    def started(self) -> TrainingStarted:
        return TrainingStarted(
            step=self.step,
            n_parameters=sum(shape.n * shape.width for shape in self.work.shapes.values()),
            counts={"in the text": self.state.raw, "with a vector": self._n_words},
            device=self.work.where,
            precision="float32",
            unit="words",
        )

    def records(self) -> Iterator[SliceRecord]:
        self._saved_at = time.monotonic()
        self._loop = train_slices(self.config, self.work, self.matrices, self.state, self.request.stop)
        return self._loop

    def log_and_save(self, record: SliceRecord, writer: RunWriter) -> None:
        self.state = record.counters
        for line in record.log:
            append_record(writer.folder.metrics_path, line)
            clock = {"step": line["step"], "seconds": round(60 * self.state.minutes, 3)}
            append_record(writer.folder.timings_path, clock)
        due = time.monotonic() - self._saved_at >= 60 * self.config.save_every
        if self.state.finished == "epochs" or (due and self.state.finished is None):
            writer.save()
            self._saved_at = time.monotonic()

    def event(self, record: SliceRecord) -> TrainingProgress:
        done = record.counters.step / record.counters.n_steps
        left = 60 * record.counters.minutes * (1 - done) / done
        speed = record.n_words / max(record.seconds, 1e-9)
        return TrainingProgress(self.step, done, record.loss, record.learning_rate, speed, left, "words")

    def outcome(self, state: RunState, already: bool) -> TrainingFinished:
        counters = Word2VecCounters.model_validate(state.stored["counters"]) if already else self.state
        speed = counters.raw * self.config.epochs / (60 * counters.minutes) if counters.minutes else 0.0
        n_words = len(mats.read_words(state.checkpoint)) if already and state.checkpoint is not None else self._n_words
        figures: dict[str, float] = {"n_words": n_words, "dim": self.config.dim, "loss": counters.loss or 0.0}
        figures |= {"minutes": counters.minutes, "words_per_second": speed}
        return TrainingFinished("epochs", counters.step, state.best, figures, already)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()  # type: ignore[attr-defined]

    def counters(self) -> dict[str, Any]:
        return self.state.model_dump(mode="json")

    def snapshot(self) -> Callable[[], Mapping[str, Content]]:
        shapes = mats.shapes(self.config, self._n_words)
        return lambda: {mats.FILE: partial(mats.content, self.matrices, shapes)}

    def restore(self, checkpoint: Checkpoint, counters: Mapping[str, Any]) -> None:
        saved = Word2VecCounters.model_validate(counters)
        if saved.n_steps != self.state.n_steps:
            what = f"this run has {saved.n_steps:,} steps, not {self.state.n_steps:,}: the encoded text differs"
            help = "restore the old text, or start over with --overwrite"
            raise RunError(what, where=str(checkpoint.path), help=help)
        self.state = saved.model_copy(update={"finished": None if saved.finished == "stopped" else saved.finished})
        mats.fill(self.matrices, self.work.shapes, checkpoint)

    def adopt(self, words: WordVocabulary, matrices: mats.Matrices, counters: Word2VecCounters) -> None:
        """Adopt words, matrices and counters trained elsewhere, in order to save them."""
        self.matrices, self._n_words = matrices, len(words)
        self.state = counters.model_copy(update={"finished": "epochs", "step": counters.n_steps})

    def model_card(self, state: RunState, counters: Mapping[str, Any]) -> str:
        config, name = self.config, state.folder.path.name
        method = "GloVe"
        if config.method != "glove":
            losses = {"negative": f"{config.negative} negatives", "hierarchical": "hierarchical softmax"}
            context = f", {config.context} of the context" if config.method == "cbow" else ""
            grams = config.subwords and f", n-grams of {config.subwords.min_n} to {config.subwords.max_n} characters"
            method = f"{config.method}{context}, {losses.get(config.loss, 'full softmax')}{grams or ''}"
        sources = "\n".join(f"- {item}" for item in config.data.files)
        loss = "" if counters["loss"] is None else f"\nMean loss at the end: {counters['loss']:.4f}.\n"
        return f"""{card_header("feature-extraction", ())}
# {name}

Word vectors of dimension {config.dim} ({method}), trained with attnkit.

{provenance(state.folder.checkpoint()[0], config.device)}

## Data

{sources}

{counters["raw"]:,} words, including words with fewer than {config.data.min_count} occurrences.

## Training

{config.epochs} epochs, window {config.window}, {counters["minutes"]:.1f} minutes, seed {config.seed}. The full
configuration is in `config.yaml`.
{loss}
## Use

    attnkit word2vec similar {name} WORD
"""
