"""Gradient-based training: a torch model, its optimizer and the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.checkpoints.logs import append_record
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup, join_process_group
from attnkit.engine.checkpointing import RunWriter, stop_error
from attnkit.engine.events import (
    Event,
    PrepareEvent,
    TrainingFinished,
    TrainingStarted,
    TrainRequest,
    ValidationFinished,
)
from attnkit.engine.model_card import model_card, provenance
from attnkit.engine.parallel import (
    broadcast_metrics,
    build_parameter_store,
    compile_layers,
    compiler_failure,
    run_eager,
    uses_fsdp,
)
from attnkit.engine.registry import task_spec
from attnkit.engine.resolve import EMBEDDING_FILES
from attnkit.engine.run_config import RunConfig
from attnkit.engine.run_state import RunState
from attnkit.engine.saved_weights import SavedWeights, count_trained, set_up_adapters
from attnkit.engine.session import TrainingSession
from attnkit.engine.task import AnyTask, Evaluation, EvaluationCancelled, Prepared, TrainingOutcome
from attnkit.engine.vocabularies import check_has_weights, check_init_conflicts
from attnkit.errors import DivergedError
from attnkit.models.linear import layer_draws
from attnkit.runtime.devices import choose_device, choose_precision, name_device, set_threads
from attnkit.runtime.signals import release_free_memory
from attnkit.training.flat_optimizer import Precision
from attnkit.training.loop import TrainingJob, fit
from attnkit.training.records import EvaluationRecord, StepRecord
from attnkit.training.state import TrainState

if TYPE_CHECKING:
    from attnkit.engine.pretrained_embeddings import EmbeddingSource
    from attnkit.engine.tensorboard import TensorBoardLogger


def build_job(
    task: AnyTask,
    config: RunConfig,
    model: Any,
    data: Any,
    evaluation: Evaluation,
    ranks: ProcessGroup,
    stop: Callable[[], bool] | None = None,
) -> TrainingJob:
    """Build the training job: model, batches of this rank, loss and evaluation."""
    loader = BatchLoader(
        task.dataset(data),
        config.seed,
        config.optimization.batch_tokens,
        config.optimization.gradient_accumulation_steps,
        ranks.rank,
        ranks.world,
        task.sampler(config, data),
        uses_fsdp(config, ranks),
        task.dataset_schedule(config, data),
    )
    return TrainingJob(
        model=model,
        feed=loader,
        loss=task.loss(config, model, data, evaluation.device),
        config=config.training,
        evaluate=run_eager(broadcast_metrics(evaluation, ranks, config.metrics), config),
        seed=config.seed,
        rank=ranks.rank,
        reduce=ranks.reduce if ranks.world > 1 else None,
        draw_layers=layer_draws(model, config.seed),
        stop=stop,
        prefetch=evaluation.device.type == "cuda",
    )


_LOG_EVERY = 10  # steps
_SAMPLES, _SAMPLE_LENGTH = 5, 500  # samples of an evaluation that are logged, and characters of each text


class GradientSession(TrainingSession):
    """Training session of a task that provides data, model, loss and evaluation."""

    data: Prepared
    evaluation: Evaluation
    job: TrainingJob
    state: TrainState
    saved: SavedWeights

    def __init__(self, task: AnyTask, request: TrainRequest) -> None:
        """Choose the device and reject contradictory requests."""
        # Nothing is written or locked yet.
        self.task, self.request = task, request
        self.config = config = cast(RunConfig, request.config)
        check_init_conflicts(config, request.init_from)
        if request.overwrite or not RunFolder(request.path).steps():
            check_has_weights(config, request.init_from)
        # Reject unsuitable vectors before anything is written; a resumed run has them in its weights.
        self._embeddings: list[EmbeddingSource | None] = []
        if any(getattr(config.model, key, None) for key in EMBEDDING_FILES):
            from attnkit.engine.pretrained_embeddings import open_embeddings

            if request.overwrite or not RunFolder(request.path).steps():
                self._embeddings = open_embeddings(config)
        self.device = choose_device(config.device)
        set_threads(config.threads)
        # Only this process, until ``join``.
        self.ranks = ProcessGroup()
        self._board: TensorBoardLogger | None = None

    def join(self) -> ProcessGroup:
        self.ranks = join_process_group(self.device.type, self.config.rank_timeout, self.request.stop)
        # Not earlier: querying the capability initializes CUDA, on GPU 0 until the rank has its own device.
        self.precision = choose_precision(self.config.precision, self.device)
        return self.ranks

    def prepare(self, writer: RunWriter) -> Iterator[PrepareEvent]:
        # RUN/data is encoded once and kept. Vocabularies come from the run itself or from --init-from.
        source = writer.run_state.checkpoint or writer.source
        return self.task.prepare(self.config, writer.folder.data_path, source, writer.origin)

    def setup(self, writer: RunWriter) -> list[PrepareEvent]:
        config, task = self.config, self.task
        self.data = task.load_data(config, writer.folder.data_path)
        # The same seed on all ranks, so that each builds the same initial weights without communication.
        torch.manual_seed(config.seed)
        model: torch.nn.Module = task.build_model(config, self.data)
        messages: list[PrepareEvent] = []
        if writer.source is not None:
            task.init_weights(config, model, writer.source, self.data)
        elif writer.run_state.checkpoint is None and any(self._embeddings):
            from attnkit.engine.pretrained_embeddings import init_embeddings

            messages += init_embeddings(model, self._embeddings, self.data.texts)
        if config.lora is not None:
            torch.manual_seed(config.seed)  # the adapters do not depend on what was drawn for the weights
            resumed = writer.run_state.checkpoint
            set_up_adapters(model, config.lora, writer.folder, resumed, writer.is_writer)
        task.freeze(config, model)
        if config.lora is not None:
            messages.append(count_trained(model))
        # Before the flat buffers: parameters must not move once they are views.
        module = model.to(self.device)
        working: Precision = "bfloat16" if self.precision == torch.bfloat16 else "float32"
        multipliers = task.lr_multipliers(config, module)
        self.state = TrainState(build_parameter_store(module, config, working, self.ranks, multipliers), DataPosition())
        self.saved = SavedWeights(self.state.weights, writer.folder, config.lora)
        # Before compiling: compiled layers keep references to the parameters.
        writer.restore(self.data.fingerprint, self.data.texts)
        compile_layers(module, config, self.device)
        if config.tensorboard and writer.is_writer:
            from attnkit.engine.tensorboard import TensorBoardLogger

            self._board = TensorBoardLogger(writer.folder.path / "tensorboard", self.state.step)
        stop = None if self.request.stop is None else self.ranks.stop_requested
        self.evaluation = task.evaluation(config, self.data, self.device, stop)
        self.job = build_job(task, config, module, self.data, self.evaluation, self.ranks, stop)
        return messages

    def started(self) -> TrainingStarted:
        return TrainingStarted(
            step=self.state.step,
            n_parameters=sum(parameter.numel() for parameter in self.state.weights.model.parameters()),
            counts=self.data.counts,
            device=self.device.type,
            precision=str(self.precision).removeprefix("torch."),
            unit=task_spec(self.config.task, self.config.model_kind).unit,
        )

    def records(self) -> Iterator[StepRecord | EvaluationRecord]:
        # The loop does not access files: saving and logging happen between records.
        return fit(self.job, self.state)

    @contextmanager
    def step_errors(self) -> Iterator[None]:
        """Synchronize divergence over ranks, and convert errors of torch's compiler.

        If a stop request interrupted the compiler, the step is skipped; otherwise raises ``SystemFailure``.
        """
        try:
            yield
        except DivergedError:
            with self.ranks.synchronized():
                raise
        except Exception as error:
            failure = compiler_failure(error) if self.config.torch_compile else None
            if failure is None:
                raise
            # With several ranks, the others wait in a collective that only a failure ends.
            if self.ranks.world > 1 or self.job.stop is None or not self.job.stop():
                raise failure from error
            self.state.weights.zero_grad()
            self.state.finished = "stopped"

    def log_and_save(self, record: StepRecord | EvaluationRecord, writer: RunWriter) -> None:
        folder, state = writer.folder, self.state
        if isinstance(record, EvaluationRecord):
            # Outside the block: gathering sharded tensors is a collective of all ranks.
            snapshot, writer.run_state.scores[record.step] = self.snapshot(), record.metrics
            with self.ranks.synchronized():
                if writer.is_writer:
                    logged = {"kind": "evaluation", "step": record.step, "epoch": record.epoch, **record.metrics}
                    if self.evaluation.samples:
                        samples = [
                            [text[:_SAMPLE_LENGTH] for text in one] for one in self.evaluation.samples[:_SAMPLES]
                        ]
                        kept = {"kind": "samples", "step": record.step, "samples": samples}
                        append_record(folder.metrics_path, kept)
                    append_record(folder.metrics_path, logged)
                    clock = {"step": record.step, "minutes": state.minutes, "tokens": state.tokens}
                    append_record(folder.timings_path, clock)
                    writer.write(snapshot)
                    if record.improved:
                        folder.set_best(f"step-{record.step}")
        else:
            every = self.config.checkpoints.save_every
            # Skipped steps are always logged: they are rare and important.
            logs = record.step % _LOG_EVERY == 0 or record.skipped
            saves = every is not None and record.step % every == 0
            if logs or saves:  # the same on all ranks, so that all enter the block
                due = self.snapshot() if saves else None
                with self.ranks.synchronized():
                    if logs and writer.is_writer:
                        # Progress may depend on the clock; metrics.jsonl contains only deterministic fields.
                        fields = {key: value for key, value in record._asdict().items() if key != "progress"}
                        append_record(folder.metrics_path, {"kind": "step", **fields})
                    if due is not None and writer.is_writer:
                        writer.write(due)
        if self._board is not None:
            self._board.add(record)

    def event(self, record: StepRecord | EvaluationRecord) -> Event:
        return ValidationFinished(record, self.evaluation.samples) if isinstance(record, EvaluationRecord) else record

    def finalize(self, writer: RunWriter) -> Iterator[Event]:
        """Average the last checkpoints, if configured; warn of a result that is at chance."""
        yield from self._average(writer)
        release_free_memory()
        with self.ranks.synchronized():
            if writer.is_writer:
                try:
                    yield from self.task.complete(self.config, self.data, writer.folder.path, self.request.stop)
                except EvaluationCancelled:
                    raise stop_error(self.state.step) from None
        if writer.is_writer:
            scores = writer.run_state.scores
            outcome = TrainingOutcome(
                scores=writer.run_state.best_scores(),
                losses=[scores[step]["loss"] for step in sorted(scores) if "loss" in scores[step]],
                n_steps=self.state.step,
                initialized=writer.origin is not None,
            )
            yield from map(WarningEvent, self.task.outcome_warnings(self.config, self.data, outcome))

    def _average(self, writer: RunWriter) -> Iterator[Event]:
        """Average the last checkpoints, if configured, and update ``best``.

        The average becomes ``best`` if its metric is at least as good. Raises ``StoppedError`` on all ranks if stopped.
        """
        if (n_averaged := writer.run_state.n_averaged()) < 2:
            return
        yield StatusEvent(f"averaging the last {n_averaged} checkpoints")
        with self.ranks.synchronized():
            steps = writer.run_state.scheduled_steps()[-self.config.checkpoints.average :]
            # A generator keeps only one checkpoint at a time in memory.
            held, mean = self.saved.average(writer.folder.checkpoint(f"step-{step}")[0] for step in steps)
        # Rank 0 evaluates and broadcasts the result.
        assert self.job.evaluate is not None
        with torch.no_grad(), self.state.weights.use_weights(mean) as model:
            metrics = self.job.evaluate(model)
        if metrics is None:
            raise stop_error(self.state.step)
        with self.ranks.synchronized():
            if writer.is_writer:
                writer.write_averaged({"averaged": steps, "metrics": dict(metrics)}, self.saved.contents(held))
                # Ties go to the average.
                if writer.run_state.is_as_good(metrics, self.state.best):
                    writer.folder.set_best("averaged")

    def outcome(self, state: RunState, already: bool) -> TrainingFinished:
        # For a finished run, the values are those of its checkpoint.
        reason, step = (state.finished, state.step) if already else (self.state.finished, self.state.step)
        return TrainingFinished(str(reason), step, state.best, state.best_scores(), already)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def counters(self) -> dict[str, Any]:
        return self.state.counters()

    def snapshot(self) -> Callable[[], Mapping[str, Content]]:
        return self.saved.snapshot()

    def restore(self, checkpoint: Checkpoint, counters: Mapping[str, Any]) -> None:
        self.state.restore(*self.saved.read(checkpoint), counters)

    def model_card(self, state: RunState, counters: Mapping[str, Any]) -> str:
        name = state.folder.path.name
        fields = self.task.model_card(self.config, name)
        facts = provenance(state.folder.checkpoint()[0], name_device(self.device))
        return model_card(fields, name, self.config.seed, state.best, state.best_scores(), counters, facts)
