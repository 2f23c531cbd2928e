"""Pretraining as a task: masked (BERT) and causal (GPT) language models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import check_min_parameters
from attnkit.data.loader import Dataset, Sampler
from attnkit.data.prepared_dir import is_prepared, sample_validation_indices
from attnkit.engine.dry_run import estimate
from attnkit.engine.events import PrepareEvent
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.task import Evaluation, LossFunction, RunEstimate, Stop, Task, VocabularySource
from attnkit.engine.vocabularies import provided_tokenizer, read_tokenizer
from attnkit.errors import DataError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig
from attnkit.tasks.language_modeling.data import Encoder, PreparedText, check_mask_token, load_text, prepare_text
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, language_loss
from attnkit.text.documents import DocumentFormat, detect_document_format, read_documents
from attnkit.text.vocabulary import train_vocabulary

Config = MlmConfig | ClmConfig
_SAMPLE = 2_000_000
"""Characters per file that a dry run encodes."""


def make_model(config: Config, vocab_size: int) -> Bert | Gpt:
    """Return a fresh model; torch is seeded."""
    return Bert(config.model, vocab_size) if isinstance(config, MlmConfig) else Gpt(config.model, vocab_size)


@dataclass(frozen=True)
class _FileSample:
    """Sample of a file for a dry run."""

    sample: list[str]
    """Its first documents."""
    n_documents: int
    share: float
    """Fraction of its characters in the sample."""


def _documents(path: Path, shape: DocumentFormat | Literal["auto"]) -> Iterator[str]:
    return read_documents(path, detect_document_format(path) if shape == "auto" else shape)


def _sample_file(path: Path, shape: DocumentFormat | Literal["auto"]) -> _FileSample:
    sample: list[str] = []
    n = size = held = 0
    for text in _documents(path, shape):
        if held < _SAMPLE:
            sample.append(text)
            held += len(text)
        n, size = n + 1, size + len(text)
    return _FileSample(sample, n, held / max(1, size))


class LanguageModelingTask(Task[Config, PreparedText, Bert | Gpt]):
    """Masked (BERT) and causal (GPT) language modeling."""

    def prepare(
        self, config: Config, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if not is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            yield from prepare_text(config, folder, provided_tokenizer(config, vocabulary_source()), origin)

    def load_data(self, config: Config, folder: Path) -> PreparedText:
        return load_text(config, folder)

    def build_model(self, config: Config, data: PreparedText) -> Bert | Gpt:
        return make_model(config, data.tokenizer.vocab_size)

    def evaluation(self, config: Config, data: PreparedText, device: torch.device, stop: Stop | None) -> Evaluation:
        return LanguageEvaluation(data, config, device, stop)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: Config) -> Bert | Gpt:
        self.check_compatible(checkpoint, config)
        return make_model(config, read_tokenizer(checkpoint).vocab_size)

    def check_compatible(self, checkpoint: Checkpoint, config: Config) -> None:
        check_min_parameters(checkpoint, config.model.min_parameters(read_tokenizer(checkpoint).vocab_size))

    def model_card(self, config: Config, name: str) -> ModelCardFields:
        data = [f"`{path}`" for path in config.data.files]
        if isinstance(config, MlmConfig):
            return ModelCardFields(
                what="A masked language model (bert)",
                data=data,
                scored=", of masked held-out tokens: nats; accuracies in percent.",
                use=f'attnkit fill-mask {name} "The cat sat on the [MASK]."',
            )
        return ModelCardFields(
            what=f"A language model (gpt, {config.direction})",
            data=data,
            scored=", of held-out tokens: nats; accuracies in percent.",
            use=f'attnkit generate {name} "The cat sat"',
        )

    def dry_run(self, config: Config, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        data = config.data
        for path in map(Path, data.valid_files or ()):
            if next(_documents(path, data.document_format), None) is None:
                raise DataError("no document to validate on", where=str(path))
        files = [_sample_file(Path(name), data.document_format) for name in data.files]
        for name, file in zip(data.files, files, strict=True):
            if not data.valid_files:
                sample_validation_indices(file.n_documents, 1, data.held_out_seed, name)
        texts = [text for file in files for text in file.sample]
        given = provided_tokenizer(config, source)
        tokenizer = given or train_vocabulary(texts, config.vocabulary)
        check_mask_token(config, tokenizer)
        size = tokenizer.vocab_size if given or all(file.share == 1 for file in files) else config.vocabulary.size
        tokens = 0.0
        ends = 0 if isinstance(config, ClmConfig) else 3 if config.model.next_sentence else 2
        for file in files:
            lengths = map(len, Encoder(tokenizer, config).encode(file.sample))
            tokens += sum(n + ends * -(-n // (data.sequence_length - ends)) for n in lengths) / max(file.share, 1e-9)
        n_documents = sum(file.n_documents for file in files)
        return estimate(config, n_documents, tokens, lambda: make_model(config, size), size, "documents")

    def dataset(self, data: PreparedText) -> Dataset:
        return data.train

    def sampler(self, config: Config, data: PreparedText) -> Sampler | None:
        return data.train.draw

    def loss(self, config: Config, model: Bert | Gpt, data: PreparedText, device: torch.device) -> LossFunction:
        return language_loss(model, device, config.optimization.label_smoothing)


TASK = LanguageModelingTask()
