"""Pretraining as a task: what joins raw text, a language model, its loss and its scores; BERT and GPT alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import refuse_fewer
from attnkit.data.prepared_dir import Stage, Warned, choose_held_out, is_made
from attnkit.distributed.process_group import Ranks
from attnkit.engine.dry_run import Plan, outline
from attnkit.engine.load import given_tokenizer, read_tokenizer
from attnkit.engine.model_card import About
from attnkit.engine.task import Stop, Task
from attnkit.engine.trainer import Parts, make_job, row_feed
from attnkit.errors import DataError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig
from attnkit.tasks.language_modeling.data import Encoder, PreparedText, build_text, open_text, refuse_maskless
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, language_loss
from attnkit.text.document_format import Shape, read_documents, shape_of
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.loop import Job

Config = MlmConfig | ClmConfig
_SAMPLE = 2_000_000
"""Characters of a file that a plan looks at."""


def make_model(config: Config, vocab_size: int) -> Bert | Gpt:
    """Return a fresh model; torch is seeded."""
    return Bert(config.model, vocab_size) if isinstance(config, MlmConfig) else Gpt(config.model, vocab_size)


def _prepare(
    config: Config, folder: Path, giver: Callable[[], Checkpoint | None], origin: str | None
) -> Iterator[Stage | Warned]:
    if not is_made(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
        yield from build_text(config, folder, given_tokenizer(config, giver()), origin)


def _build(config: Config, prepared: PreparedText) -> Bert | Gpt:
    return make_model(config, prepared.tokenizer.vocab_size)


def _evaluation(config: Config, prepared: PreparedText, device: torch.device, stop: Stop | None) -> LanguageEvaluation:
    return LanguageEvaluation(prepared, config, device, stop)


def _job(
    config: Config,
    model: Bert | Gpt,
    prepared: PreparedText,
    evaluation: LanguageEvaluation,
    ranks: Ranks,
    stop: Stop | None = None,
) -> Job:
    feed = row_feed(config, prepared.train, ranks, prepared.train.draw)
    loss = language_loss(model, evaluation.device, config.optimization.label_smoothing)
    return make_job(config, Parts(model, feed, loss), evaluation, ranks, stop)


def _refuse_misfit(checkpoint: Checkpoint, config: Config) -> None:
    refuse_fewer(checkpoint, config.model.least_weights(read_tokenizer(checkpoint).vocab_size))


def _fitting(checkpoint: Checkpoint, config: Config) -> Bert | Gpt:
    _refuse_misfit(checkpoint, config)
    return make_model(config, read_tokenizer(checkpoint).vocab_size)


def _about(config: Config, name: str) -> About:
    data = [f"`{path}`" for path in config.data.files]
    if isinstance(config, MlmConfig):
        return About(
            what="A masked language model (bert)",
            data=data,
            scored=", of held-out tokens that were hidden: nats; accuracies in percent.",
            use=f'attnkit fill-mask {name} "The cat sat on the [MASK]."',
        )
    return About(
        what=f"A language model (gpt, {config.direction})",
        data=data,
        scored=", of held-out tokens: nats; accuracies in percent.",
        use=f'attnkit generate {name} "The cat sat"',
    )


@dataclass(frozen=True)
class _Looked:
    """What a plan knows of a file."""

    sample: list[str]
    """Its first documents."""
    n_documents: int
    share: float
    """Of its characters that are in the sample."""


def _documents(path: Path, shape: Shape | Literal["auto"]) -> Iterator[str]:
    return read_documents(path, shape_of(path) if shape == "auto" else shape)


def _look(path: Path, shape: Shape | Literal["auto"]) -> _Looked:
    sample: list[str] = []
    n = size = held = 0
    for text in _documents(path, shape):
        if held < _SAMPLE:
            sample.append(text)
            held += len(text)
        n, size = n + 1, size + len(text)
    return _Looked(sample, n, held / max(1, size))


def _plan(config: Config, init_from: Path | None = None) -> Plan:
    source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    data = config.data
    for path in map(Path, data.valid_files or ()):
        if next(_documents(path, data.document_format), None) is None:
            raise DataError("there is no document to validate on", where=str(path))
    files = [_look(Path(name), data.document_format) for name in data.files]
    for name, file in zip(data.files, files, strict=True):
        if not data.valid_files:
            choose_held_out(file.n_documents, 1, data.held_out_seed, name)
    texts = [text for file in files for text in file.sample]
    given = given_tokenizer(config, source)
    tokenizer = given or train_vocabulary(texts, config.vocabulary)
    refuse_maskless(config, tokenizer)
    size = tokenizer.vocab_size if given or all(file.share == 1 for file in files) else config.vocabulary.size
    tokens = 0.0
    ends = 0 if isinstance(config, ClmConfig) else 3 if config.model.next_sentence else 2
    for file in files:
        lengths = map(len, Encoder(tokenizer, config).encode(file.sample))
        tokens += sum(n + ends * -(-n // (data.sequence_length - ends)) for n in lengths) / max(file.share, 1e-9)
    n_documents = sum(file.n_documents for file in files)
    return outline(config, n_documents, tokens, lambda: make_model(config, size), size, "documents")


TASK = Task(
    prepare=_prepare,
    open=open_text,
    build=_build,
    evaluation=_evaluation,
    job=_job,
    fitting=_fitting,
    refuse_misfit=_refuse_misfit,
    about=_about,
    plan=_plan,
)
