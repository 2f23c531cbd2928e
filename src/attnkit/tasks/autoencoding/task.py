"""Auto-encoding as a task, of lines (a recurrent model) or of vectors (layers); see the two modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import check_min_parameters
from attnkit.data.arrays import count_rows, read_vectors
from attnkit.data.prepared_dir import StatusEvent, is_prepared
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.dry_run import SAMPLE, RunEstimate, estimate
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq_loss import seq2seq_loss
from attnkit.engine.task import Evaluation, Stop, Task
from attnkit.engine.trainer import TrainingInputs, build_training_job, make_loader
from attnkit.engine.vocabularies import provided_tokenizer, read_tokenizer
from attnkit.models.autoencoder import SequenceAutoencoder, VectorAutoencoder
from attnkit.tasks.autoencoding.config import AutoencodeConfig
from attnkit.tasks.autoencoding.lines import LinesEvaluation, PreparedLines, build_lines, open_lines
from attnkit.tasks.autoencoding.vectors import (
    PreparedVectors,
    VectorsEvaluation,
    build_vectors,
    make_model,
    open_vectors,
    read_width,
    vectors_loss,
)
from attnkit.text.lines import count_lines, read_lines
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.loop import TrainingJob

Prepared = PreparedLines | PreparedVectors


def _prepare(
    config: AutoencodeConfig, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[StatusEvent]:
    if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
        return
    if config.model.kind == "mlp":
        yield from build_vectors(config, folder, origin)
    else:
        yield from build_lines(config, folder, provided_tokenizer(config, giver()), origin)


def _open(config: AutoencodeConfig, folder: Path) -> Prepared:
    return open_vectors(config, folder) if config.model.kind == "mlp" else open_lines(config, folder)


def _build(config: AutoencodeConfig, prepared: Prepared) -> nn.Module:
    if isinstance(prepared, PreparedVectors):
        return make_model(config, prepared)
    assert config.model.kind == "rnn"
    return SequenceAutoencoder(config.model, prepared.tokenizer.vocab_size)


def _evaluation(config: AutoencodeConfig, prepared: Prepared, device: torch.device, stop: Stop | None) -> Evaluation:
    if isinstance(prepared, PreparedVectors):
        return VectorsEvaluation(prepared, device, stop)
    return LinesEvaluation(prepared, device, config.evaluation.n_samples, stop)


def _job(
    config: AutoencodeConfig,
    model: nn.Module,
    prepared: Prepared,
    evaluation: Evaluation,
    ranks: ProcessGroup,
    stop: Stop | None = None,
) -> TrainingJob:
    device = evaluation.device
    feed = make_loader(config, prepared.train, ranks)
    loss: Callable[[Any], Any]
    if isinstance(prepared, PreparedVectors):
        loss = vectors_loss(cast(VectorAutoencoder, model), device)
    else:
        loss = seq2seq_loss(cast(SequenceAutoencoder, model), device, config.optimization.label_smoothing)
    return build_training_job(config, TrainingInputs(model, feed, loss), evaluation, ranks, stop)


def _refuse_misfit(checkpoint: Checkpoint, config: AutoencodeConfig) -> None:
    if config.model.kind == "mlp":
        check_min_parameters(checkpoint, config.model.min_parameters(read_width(checkpoint)))
    else:
        check_min_parameters(checkpoint, config.model.min_parameters(read_tokenizer(checkpoint).vocab_size))


def _fitting(checkpoint: Checkpoint, config: AutoencodeConfig) -> nn.Module:
    _refuse_misfit(checkpoint, config)
    if config.model.kind == "mlp":
        return VectorAutoencoder(config.model, read_width(checkpoint))
    return SequenceAutoencoder(config.model, read_tokenizer(checkpoint).vocab_size)


def _about(config: AutoencodeConfig, name: str) -> ModelCardFields:
    text = config.model.kind == "rnn"
    scored = ": nats a token; exact in percent of the lines." if text else ": mean squares of one number."
    model = f"{config.model.kind}, code of {config.model.d_code} numbers"
    return ModelCardFields(
        what=f"An auto-encoder of {'lines' if text else 'vectors'} ({model})",
        data=[f"`{path}`" for path in config.data.files],
        scored=scored,
        use=f"attnkit embed {name} {'input.txt' if text else 'input.npy'} -o codes.npy",
    )


def _plan(config: AutoencodeConfig, init_from: Path | None = None) -> RunEstimate:
    source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    paths, model = [Path(name) for name in config.data.files], config.model
    if model.kind == "mlp":
        width = next(read_vectors(paths[0])).shape[1]
        n_rows = sum(count_rows(p) if p.suffix == ".npy" else sum(map(len, read_vectors(p, width))) for p in paths)
        return estimate(config, n_rows, 2.0 * n_rows, lambda: VectorAutoencoder(model, width), width, "vectors")
    counts = [count_lines(path) for path in paths]
    samples = [[line for line in islice(read_lines(path), SAMPLE) if line.strip()] for path in paths]
    tokenizer = provided_tokenizer(config, source) or train_vocabulary(
        (line for sample in samples for line in sample), config.vocabulary
    )
    size = tokenizer.vocab_size if source or max(counts) <= SAMPLE else config.vocabulary.size
    tokens = 0.0
    for sample, n_lines in zip(samples, counts, strict=True):
        tokens += 2 * sum(len(ids) + 1 for ids in tokenizer.encode(sample)) * n_lines / max(1, len(sample))
    return estimate(config, sum(counts), tokens, lambda: SequenceAutoencoder(model, size), size, "lines")


TASK = Task(
    prepare=_prepare,
    load_data=_open,
    build_model=_build,
    evaluation=_evaluation,
    build_job=_job,
    model_for_checkpoint=_fitting,
    check_compatible=_refuse_misfit,
    model_card=_about,
    dry_run=_plan,
)
