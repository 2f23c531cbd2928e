"""Classification of documents by a hierarchical attention network as a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import check_min_parameters
from attnkit.data.loader import Dataset
from attnkit.data.prepared_dir import is_prepared
from attnkit.data.text_classification import DocumentBatch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.dry_run import SAMPLE, estimate
from attnkit.engine.events import PrepareEvent
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.task import Evaluation, LossFunction, RunEstimate, Stop, Task, VocabularySource
from attnkit.engine.vocabularies import provided_tokenizer, read_tokenizer
from attnkit.models.han import HierarchicalAttentionNetwork
from attnkit.tasks.finetuning.text_classification import ClassificationEvaluation
from attnkit.tasks.text_classification.config import HanClassificationConfig
from attnkit.tasks.text_classification.data import DocumentEncoder, PreparedDocuments, load_documents, prepare_documents
from attnkit.text.documents import read_labeled, space_words, split_sentences
from attnkit.text.lines import count_lines
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.losses import LossTerm, linear_cross_entropy


def documents_loss(
    model: HierarchicalAttentionNetwork, device: torch.device, smoothing: float
) -> Callable[[DocumentBatch], Mapping[str, LossTerm]]:
    """Return the loss of a batch: the negative log-likelihood of the labels."""

    def loss(batch: DocumentBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        features = model.hidden(*batch.inputs)
        total, nll = linear_cross_entropy(features, model.output.weight, model.output.bias, batch.labels, smoothing)
        return {"nll": LossTerm(total, reported=nll)}

    return loss


def document_logits(model: HierarchicalAttentionNetwork, batch: DocumentBatch) -> Tensor:
    """Return the logits (B, labels) of documents."""
    logits: Tensor = model.output(model.hidden(*batch.inputs))
    return logits


def _sizes(checkpoint: Checkpoint) -> tuple[int, int]:
    return read_tokenizer(checkpoint).vocab_size, len(read_labels(checkpoint).labels)


class HanTask(Task[HanClassificationConfig, PreparedDocuments, HierarchicalAttentionNetwork]):
    """Document classification by a hierarchical attention network."""

    def prepare(
        self, config: HanClassificationConfig, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            return
        source = vocabulary_source()
        labels = None if source is None else read_labels(source)
        yield from prepare_documents(config, folder, provided_tokenizer(config, source), origin, labels)

    def load_data(self, config: HanClassificationConfig, folder: Path) -> PreparedDocuments:
        return load_documents(config, folder)

    def build_model(self, config: HanClassificationConfig, data: PreparedDocuments) -> HierarchicalAttentionNetwork:
        return HierarchicalAttentionNetwork(config.model, data.tokenizer.vocab_size, len(data.labels.labels))

    def evaluation(
        self, config: HanClassificationConfig, data: PreparedDocuments, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return ClassificationEvaluation(data, device, config.evaluation.n_samples, stop, document_logits)

    def model_for_checkpoint(
        self, checkpoint: Checkpoint, config: HanClassificationConfig
    ) -> HierarchicalAttentionNetwork:
        self.check_compatible(checkpoint, config)
        return HierarchicalAttentionNetwork(config.model, *_sizes(checkpoint))

    def check_compatible(self, checkpoint: Checkpoint, config: HanClassificationConfig) -> None:
        check_min_parameters(checkpoint, config.model.min_parameters(*_sizes(checkpoint)))

    def model_card(self, config: HanClassificationConfig, name: str) -> ModelCardFields:
        return ModelCardFields(
            what=f"A document classifier ({config.model.kind})",
            data=[f"`{path}`" for path in config.data.files],
            scored="; accuracy and macro-averaged F1 in percent.",
            use=f"attnkit predict {name} documents.txt",
        )

    def dry_run(self, config: HanClassificationConfig, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        paths = [Path(name) for name in config.data.files]
        samples = [list(islice(read_labeled(path), SAMPLE)) for path in paths]
        counts = [count_lines(path) for path in paths]
        texts = [part for sample in samples for document, _ in sample for part in split_sentences(document)]
        if config.vocabulary.kind == "word":
            texts = list(map(space_words, texts))
        tokenizer = provided_tokenizer(config, source) or train_vocabulary(texts, config.vocabulary)
        size = tokenizer.vocab_size if source or max(counts) <= SAMPLE else config.vocabulary.size
        n_labels = len({label for sample in samples for _, label in sample})
        reader, tokens = DocumentEncoder(tokenizer, config.data), 0.0
        for sample, n_lines in zip(samples, counts, strict=True):
            documents = reader.encode([document for document, _ in sample])
            n_tokens = sum(1 + sum(len(ids) + 1 for ids in sentences) for sentences in documents)
            tokens += n_tokens * n_lines / max(1, len(sample))
        return estimate(
            config,
            sum(counts),
            tokens,
            lambda: HierarchicalAttentionNetwork(config.model, size, n_labels),
            n_labels,
            "documents",
        )

    def dataset(self, data: PreparedDocuments) -> Dataset:
        return data.train

    def loss(
        self,
        config: HanClassificationConfig,
        model: HierarchicalAttentionNetwork,
        data: PreparedDocuments,
        device: torch.device,
    ) -> LossFunction:
        return documents_loss(model, device, config.optimization.label_smoothing)


TASK = HanTask()
