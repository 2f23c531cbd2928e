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
from attnkit.checkpoints.weights import refuse_fewer
from attnkit.data.arrays import count_rows, read_vectors
from attnkit.data.prepared_dir import Stage, is_made
from attnkit.distributed.process_group import Ranks
from attnkit.engine.dry_run import SAMPLE, Plan, outline
from attnkit.engine.load import given_tokenizer, read_tokenizer
from attnkit.engine.model_card import About
from attnkit.engine.task import Evaluation, Stop, Task
from attnkit.engine.trainer import Parts, make_job, row_feed
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
from attnkit.tasks.translation.loss import pairs_loss
from attnkit.text.lines import count_lines, read_lines
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.loop import Job

Prepared = PreparedLines | PreparedVectors


def _prepare(
    config: AutoencodeConfig, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[Stage]:
    if is_made(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
        return
    if config.model.kind == "mlp":
        yield from build_vectors(config, folder, origin)
    else:
        yield from build_lines(config, folder, given_tokenizer(config, giver()), origin)


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
    ranks: Ranks,
    stop: Stop | None = None,
) -> Job:
    device = evaluation.device
    feed = row_feed(config, prepared.train, ranks)
    loss: Callable[[Any], Any]
    if isinstance(prepared, PreparedVectors):
        loss = vectors_loss(cast(VectorAutoencoder, model), device)
    else:
        loss = pairs_loss(cast(SequenceAutoencoder, model), device, config.optimization.label_smoothing)
    return make_job(config, Parts(model, feed, loss), evaluation, ranks, stop)


def _refuse_misfit(checkpoint: Checkpoint, config: AutoencodeConfig) -> None:
    if config.model.kind == "mlp":
        refuse_fewer(checkpoint, config.model.least_weights(read_width(checkpoint)))
    else:
        refuse_fewer(checkpoint, config.model.least_weights(read_tokenizer(checkpoint).vocab_size))


def _fitting(checkpoint: Checkpoint, config: AutoencodeConfig) -> nn.Module:
    _refuse_misfit(checkpoint, config)
    if config.model.kind == "mlp":
        return VectorAutoencoder(config.model, read_width(checkpoint))
    return SequenceAutoencoder(config.model, read_tokenizer(checkpoint).vocab_size)


def _about(config: AutoencodeConfig, name: str) -> About:
    text = config.model.kind == "rnn"
    scored = ": nats a token; exact in percent of the lines." if text else ": mean squares of one number."
    model = f"{config.model.kind}, code of {config.model.d_code} numbers"
    return About(
        what=f"An auto-encoder of {'lines' if text else 'vectors'} ({model})",
        data=[f"`{path}`" for path in config.data.files],
        scored=scored,
        use=f"attnkit embed {name} {'input.txt' if text else 'input.npy'} -o codes.npy",
    )


def _plan(config: AutoencodeConfig, init_from: Path | None = None) -> Plan:
    source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    paths, model = [Path(name) for name in config.data.files], config.model
    if model.kind == "mlp":
        width = next(read_vectors(paths[0])).shape[1]
        n_rows = sum(count_rows(p) if p.suffix == ".npy" else sum(map(len, read_vectors(p, width))) for p in paths)
        return outline(config, n_rows, 2.0 * n_rows, lambda: VectorAutoencoder(model, width), width, "vectors")
    counts = [count_lines(path) for path in paths]
    samples = [[line for line in islice(read_lines(path), SAMPLE) if line.strip()] for path in paths]
    tokenizer = given_tokenizer(config, source) or train_vocabulary(
        (line for sample in samples for line in sample), config.vocabulary
    )
    size = tokenizer.vocab_size if source or max(counts) <= SAMPLE else config.vocabulary.size
    tokens = 0.0
    for sample, n_lines in zip(samples, counts, strict=True):
        tokens += 2 * sum(len(ids) + 1 for ids in tokenizer.encode(sample)) * n_lines / max(1, len(sample))
    return outline(config, sum(counts), tokens, lambda: SequenceAutoencoder(model, size), size, "lines")


TASK = Task(
    prepare=_prepare,
    open=_open,
    build=_build,
    evaluation=_evaluation,
    job=_job,
    fitting=_fitting,
    refuse_misfit=_refuse_misfit,
    about=_about,
    plan=_plan,
)
