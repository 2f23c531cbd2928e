"""The document classification task, with a hierarchical attention network."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torch import Tensor
from torch import device as Device

from attnkit.checkpoints.arrays import check_min_parameters
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.corpus import load_examples
from attnkit.data.text_classification import DocumentBatch, document_rows
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.dry_run import SAMPLE
from attnkit.engine.events import PrepareEvents
from attnkit.engine.examples import ClassificationEvaluation, chance_warnings, estimate_examples, prepare_examples
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.task import Evaluation, LossFunction, RunEstimate, Stop, Task, TrainingOutcome
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.models.han import HierarchicalAttentionNetwork as Model
from attnkit.tasks.text_classification.config import HanClassificationConfig as Config
from attnkit.tasks.text_classification.data import LabeledDocuments, PreparedDocuments
from attnkit.training.losses import LossTerm, linear_cross_entropy


def document_logits(model: Model, batch: DocumentBatch) -> Tensor:
    """Return the logits (B, labels) of a batch of documents."""
    logits: Tensor = model.output(model.hidden(*batch.inputs))
    return logits


def _corpus(config: Config, source: Checkpoint | None, n_sampled: int = 0) -> LabeledDocuments:
    return LabeledDocuments(config, None if source is None else read_labels(source), n_sampled)


def _sizes(checkpoint: Checkpoint) -> tuple[int, int]:
    return read_tokenizer(checkpoint).vocab_size, len(read_labels(checkpoint).labels)


class HanTask(Task[Config, PreparedDocuments, Model]):
    """Document classification with a hierarchical attention network."""

    def prepare(self, config: Config, folder: Path, source: Checkpoint | None, origin: str | None) -> PrepareEvents:
        return prepare_examples(config, folder, source, origin, partial(_corpus, config))

    def load_data(self, config: Config, folder: Path) -> PreparedDocuments:
        return load_examples(folder, lambda path, _: document_rows(path), list)

    def build_model(self, config: Config, data: PreparedDocuments) -> Model:
        return Model(config.model, data.tokenizer.vocab_size, len(data.labels))

    def evaluation(self, config: Config, data: PreparedDocuments, device: Device, stop: Stop | None) -> Evaluation:
        return ClassificationEvaluation(data, device, config.evaluation.n_samples, stop, document_logits)

    def outcome_warnings(self, config: Config, data: PreparedDocuments, outcome: TrainingOutcome) -> Iterator[str]:
        advice = "try more --max-epochs, another optimization.learning_rate or more documents"
        counts = data.valid.label_counts(len(data.labels))
        return chance_warnings(data.labels, counts, outcome.scores, advice)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: Config) -> Model:
        self.check_compatible(checkpoint, config)
        return Model(config.model, *_sizes(checkpoint))

    def check_compatible(self, checkpoint: Checkpoint, config: Config) -> None:
        check_min_parameters(checkpoint, config.model.min_parameters(*_sizes(checkpoint)))

    def model_card(self, config: Config, name: str) -> ModelCardFields:
        return ModelCardFields(
            what=f"A document classifier ({config.model.kind})",
            data=[f"`{path}`" for path in config.data.files],
            scored="; accuracy and macro-averaged F1 in percent.",
            use=f"attnkit predict {name} documents.txt",
            hub_task="text-classification",
            hub_metrics=("accuracy", "f1"),
        )

    def dry_run(self, config: Config, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        corpus = _corpus(config, source, SAMPLE)
        n_labels = len(corpus.labels.labels)
        build = partial(Model, config.model, n_labels=n_labels)
        return estimate_examples(config, source, corpus, build, n_labels)

    def loss(self, config: Config, model: Model, data: PreparedDocuments, device: Device) -> LossFunction:
        smoothing, output = config.optimization.label_smoothing, model.output

        def loss(batch: DocumentBatch) -> dict[str, LossTerm]:
            batch = batch.to(device)
            features = model.hidden(*batch.inputs)
            total, nll = linear_cross_entropy(features, output.weight, output.bias, batch.labels, smoothing)
            return {"nll": LossTerm(total, reported=nll)}

        return loss


TASK = HanTask()
