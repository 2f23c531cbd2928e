"""Classification of texts as a task: loss and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.labels import LabeledData, Labels
from attnkit.data.loader import Batching, Dataset, make_batches
from attnkit.data.prepared_dir import is_prepared
from attnkit.data.text_classification import DocumentDataset, TextBatch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.dry_run import SAMPLE, estimate
from attnkit.engine.events import PrepareEvent, Sample
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import (
    Evaluation,
    EvaluationCancelled,
    LossFunction,
    RunEstimate,
    Stop,
    Task,
    VocabularySource,
    until_stopped,
)
from attnkit.engine.vocabularies import provided_tokenizer
from attnkit.metrics.labels import label_scores
from attnkit.models.heads import SequenceClassifier
from attnkit.models.linear import without_dropout
from attnkit.tasks.finetuning.base import (
    check_encoder,
    checked_vocab_size,
    continues_own_task,
    freeze_layers,
    init_weights,
    label_weights,
    lr_multipliers,
)
from attnkit.tasks.finetuning.config import TextClassificationConfig
from attnkit.tasks.finetuning.text_classification_data import (
    LabeledTables,
    PreparedTexts,
    TextEncoder,
    inherited_labels,
    load_texts,
    prepare_texts,
    texts_of,
)
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 16384


def texts_loss(
    model: SequenceClassifier, device: torch.device, smoothing: float = 0.0, weights: Tensor | None = None
) -> Callable[[TextBatch], Mapping[str, LossTerm]]:
    """Return the loss: the negative log-likelihood of the labels, weighted by ``weights`` (labels,).

    The reported value is unweighted.
    """
    weights = None if weights is None else weights.to(device)

    def loss(batch: TextBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        logits = to_float32(text_logits(model, batch))
        own = None if weights is None else weights.to(logits.dtype)
        total = F.cross_entropy(logits, batch.labels, own, reduction="sum", label_smoothing=smoothing)
        return {"nll": LossTerm(total, reported=F.cross_entropy(logits.detach(), batch.labels, reduction="sum"))}

    return loss


def text_logits(model: SequenceClassifier, batch: TextBatch) -> Tensor:
    """Return the logits (B, labels) of texts."""
    logits: Tensor = model(*batch.inputs)
    return logits


def to_float32(logits: Tensor) -> Tensor:
    """Return logits as float32, or float64 if they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@dataclass
class ClassificationEvaluation:
    """Scores of a classifier of texts or documents on the development set."""

    prepared: PreparedTexts | LabeledData[DocumentDataset, str]
    device: torch.device
    n_samples: int
    stop: Stop | None = None
    logits: Callable[[Any, Any], Tensor] = text_logits
    """(model, batch) -> (B, labels)."""
    samples: list[Sample] = field(default_factory=list)
    """(text, gold label, predicted label)."""

    def __call__(self, model: nn.Module) -> dict[str, float] | None:
        """Return ``accuracy`` and ``macro_f1`` in percent, ``loss`` in nats per example; None if stopped."""
        valid, labels = self.prepared.valid, self.prepared.labels.labels
        found, expected, total = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64), 0.0
        batches = make_batches(valid.lengths[0].tolist(), Batching(_BATCH_TOKENS, "tokens"))
        try:
            with without_dropout(model), torch.inference_mode():
                for indices in until_stopped(self.stop, batches):
                    batch = valid.batch(np.asarray(indices, np.int64)).to(self.device)
                    log_probs = to_float32(self.logits(model, batch)).log_softmax(-1)  # (B, labels)
                    total -= float(log_probs.gather(1, batch.labels[:, None]).sum())
                    found[indices] = log_probs.argmax(-1).cpu().numpy()
                    expected[indices] = batch.labels.cpu().numpy()
        except EvaluationCancelled:
            return None
        picks = sample_indices(len(valid), self.n_samples)
        texts = self.prepared.valid_examples
        self.samples = [(texts[i], labels[expected[i]], labels[found[i]]) for i in picks]
        scores = label_scores(found.tolist(), expected.tolist())
        return {"accuracy": scores.accuracy, "loss": total / len(valid), "macro_f1": scores.macro_f1}


def _initial_labels(config: TextClassificationConfig, source: Checkpoint | None) -> Labels | None:
    """Return the labels of the initial weights if they are a classifier's."""
    return read_labels(source) if source is not None and continues_own_task(config, source) else None


class TextClassificationTask(Task[TextClassificationConfig, PreparedTexts, SequenceClassifier]):
    """Classification of texts and pairs of texts by a pretrained encoder."""

    def prepare(
        self, config: TextClassificationConfig, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            return
        source = vocabulary_source()
        yield from prepare_texts(
            config, folder, provided_tokenizer(config, source), origin, _initial_labels(config, source)
        )

    def load_data(self, config: TextClassificationConfig, folder: Path) -> PreparedTexts:
        return load_texts(config, folder)

    def build_model(self, config: TextClassificationConfig, data: PreparedTexts) -> SequenceClassifier:
        model = SequenceClassifier(config.model, data.tokenizer.vocab_size, len(data.labels.labels))
        freeze_layers(config, model)
        return model

    def evaluation(
        self, config: TextClassificationConfig, data: PreparedTexts, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return ClassificationEvaluation(data, device, config.evaluation.n_samples, stop)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: TextClassificationConfig) -> SequenceClassifier:
        n_labels = len(read_labels(checkpoint).labels)
        vocab_size = checked_vocab_size(checkpoint, config, config.model.d_model * (config.model.d_model + n_labels))
        return SequenceClassifier(config.model, vocab_size, n_labels)

    def check_compatible(self, checkpoint: Checkpoint, config: TextClassificationConfig) -> None:
        check_encoder(checkpoint, config)

    def init_weights(self, config: TextClassificationConfig, model: SequenceClassifier, source: Checkpoint) -> None:
        init_weights(config, model, source)

    def lr_multipliers(self, config: TextClassificationConfig, model: SequenceClassifier) -> Mapping[str, float]:
        return lr_multipliers(config, model)

    def model_card(self, config: TextClassificationConfig, name: str) -> ModelCardFields:
        return ModelCardFields(
            what="A classifier of texts (bert)",
            data=[f"`{path}`" for path in config.data.files],
            scored="; accuracy and macro-averaged F1 in percent.",
            use=f"attnkit predict {name} texts.txt",
        )

    def dry_run(self, config: TextClassificationConfig, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if source is not None:
            check_encoder(source, config)
        tables, known = LabeledTables(config.data, SAMPLE), _initial_labels(config, source)
        labels = tables.labels if known is None else inherited_labels(known, tables.labels, config.data.files[0])
        samples, counts = list(tables.samples.values()), list(tables.n_lines.values())
        lines = [line for sample in samples for line in sample]
        given = provided_tokenizer(config, source)
        tokenizer = given or train_vocabulary(texts_of(lines), config.vocabulary)
        size = tokenizer.vocab_size if given or max(counts) <= SAMPLE else config.vocabulary.size
        n_labels = len(labels.labels)
        reader, tokens = TextEncoder(tokenizer, config.max_row_length, config.model.separators), 0.0
        for sample, n_lines in zip(samples, counts, strict=True):
            rows = reader.encode([line.text for line in sample], [line.text2 for line in sample])
            tokens += sum(map(len, rows)) * n_lines / max(1, len(sample))
        return estimate(
            config, sum(counts), tokens, lambda: SequenceClassifier(config.model, size, n_labels), n_labels, "texts"
        )

    def dataset(self, data: PreparedTexts) -> Dataset:
        return data.train

    def loss(
        self, config: TextClassificationConfig, model: SequenceClassifier, data: PreparedTexts, device: torch.device
    ) -> LossFunction:
        weights = label_weights(config.finetuning, data.train.label_counts(len(data.labels.labels)))
        return texts_loss(model, device, config.optimization.label_smoothing, weights)


TASK = TextClassificationTask()
