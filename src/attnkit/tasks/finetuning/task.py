"""Base of fine-tuning tasks: initial weights, layer-wise learning rates, loss.

A fine-tuned model has an ``encoder`` and a task head. The encoder is initialized with the pretrained weights, the task
head randomly; the language-model head is dropped. After pretraining with next-sentence prediction, text classifiers
keep the pooler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.checkpoints.arrays import check_min_parameters
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import load_weights, read_tensors, tensors_of
from attnkit.data.corpus import ExampleCorpus, PreparedExamples
from attnkit.data.labels import Labels
from attnkit.data.windows import UNKNOWN
from attnkit.engine.checkpoint_metadata import read_labels, read_run_config
from attnkit.engine.dry_run import SAMPLE, SkipWeightInit
from attnkit.engine.events import PrepareEvents
from attnkit.engine.examples import estimate_examples, prepare_examples, to_float32
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.registry import EXCLUDED_INIT_KEYS
from attnkit.engine.resolve import EMBEDDING_KEYS
from attnkit.engine.task import Evaluation, LossFunction, RunEstimate, Stop, Task, TrainingOutcome
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.metrics.labels import class_weights
from attnkit.models.bert import SequenceClassifier, SpanPredictor, TokenTagger, freeze, layers_of
from attnkit.models.electra import Electra, build_pretrained
from attnkit.models.parts import language_part_of
from attnkit.tasks.finetuning.config import FinetuneConfig, LabelingConfig
from attnkit.tasks.language_modeling.config import MlmConfig
from attnkit.training.losses import LossTerm

ENCODER_PREFIX = "encoder."
DISCARDED_PREFIXES = ("predictor.", "output.", "next_sentence.")  #: name prefixes of weights outside the encoder
POOLER = "next_sentence.pooler."  #: name prefix in a pretrained model; in a classifier it is ``pooler.``
MLM_HEAD = "predictor."
ADVICE = {
    False: "train --from-scratch into another -o: if that is better, pretrain longer or at\n"
    "  a lower learning rate; if not, try a lower optimization.learning_rate, more\n"
    "  --max-epochs or more examples",
    True: "try more --max-epochs, another optimization.learning_rate or more examples",
}
"""What to try next where a fine-tuned model has learned nothing, by ``finetuning.from_scratch``."""
ConfigT = TypeVar("ConfigT", bound=FinetuneConfig)
DataT = TypeVar("DataT", bound=PreparedExamples[Any, Any])
ModelT = TypeVar("ModelT", bound=SequenceClassifier | TokenTagger | SpanPredictor)


class LabelType(ABC, Generic[ConfigT, DataT, ModelT]):
    """Output type of a fine-tuned model: text labels, word tags or answers."""

    description: ClassVar[str]  #: these three appear in the model card
    scored: ClassVar[str]
    example: ClassVar[str]
    has_labels: ClassVar[bool] = True  #: whether checkpoints store labels, which runs initialized from them keep
    has_pooler: ClassVar[bool] = False
    #: Build the corpus from configuration, labels of an initial run of the same task, and number of samples.
    corpus: Callable[[ConfigT, Labels | None, int], ExampleCorpus[Any]]

    @abstractmethod
    def load(self, config: ConfigT, folder: Path) -> DataT:
        """Open the data in RUN/data."""

    @abstractmethod
    def model(self, config: ConfigT, vocab_size: int, n_labels: int) -> ModelT:
        """Build a randomly initialized model."""

    @abstractmethod
    def evaluation(self, config: ConfigT, data: DataT, device: torch.device, stop: Stop | None) -> Evaluation:
        """Return the evaluation on the development set."""

    def outcome_warnings(self, config: ConfigT, data: DataT, outcome: TrainingOutcome) -> Iterator[str]:
        """Yield warnings about the development scores of a run that has ended."""
        yield from ()

    def logits(self, model: ModelT, batch: Any) -> Tensor:
        """Return logits (N, labels) for the N labeled items of a batch."""
        raise NotImplementedError

    def loss(self, config: ConfigT, model: ModelT, data: DataT, device: torch.device) -> LossFunction:
        """Return the loss, by default the cross-entropy of ``logits``."""
        assert isinstance(config.finetuning, LabelingConfig)
        weights = None
        if config.finetuning.class_weights == "balanced":
            weights = torch.tensor(class_weights(data.train.label_counts(len(data.labels))), dtype=torch.float32)
        return label_loss(partial(self.logits, model), device, config.optimization.label_smoothing, weights)


class FinetuningTask(Task[ConfigT, DataT, ModelT]):
    """Fine-tuning of a pretrained encoder."""

    def __init__(self, labels: LabelType[ConfigT, DataT, ModelT]) -> None:
        self.labels = labels

    def _corpus(self, config: ConfigT, source: Checkpoint | None, n_sampled: int = 0) -> ExampleCorpus[Any]:
        inherits = source is not None and self.labels.has_labels and continues_own_task(config, source)
        return self.labels.corpus(config, read_labels(source) if inherits and source else None, n_sampled)

    def prepare(self, config: ConfigT, folder: Path, source: Checkpoint | None, origin: str | None) -> PrepareEvents:
        return prepare_examples(config, folder, source, origin, partial(self._corpus, config))

    def load_data(self, config: ConfigT, folder: Path) -> DataT:
        return self.labels.load(config, folder)

    def build_model(self, config: ConfigT, data: DataT) -> ModelT:
        return self.labels.model(config, data.tokenizer.vocab_size, len(data.labels))

    def freeze(self, config: ConfigT, model: ModelT) -> None:
        if config.lora is not None:  # all weights are frozen; the head is always trained
            for name, parameter in model.named_parameters():
                if not name.startswith(ENCODER_PREFIX):
                    parameter.requires_grad_(True)
            return
        freeze(model.encoder, config.finetuning.freeze_layers)
        for name, parameter in model.encoder.named_parameters():
            if language_part_of(name) in config.finetuning.freeze:
                parameter.requires_grad_(False)

    def evaluation(self, config: ConfigT, data: DataT, device: torch.device, stop: Stop | None) -> Evaluation:
        return self.labels.evaluation(config, data, device, stop)

    def outcome_warnings(self, config: ConfigT, data: DataT, outcome: TrainingOutcome) -> Iterator[str]:
        return self.labels.outcome_warnings(config, data, outcome)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: ConfigT) -> ModelT:
        """Build a model for a checkpoint. Raises ``RunError`` if it has too few weights."""
        vocab_size = read_tokenizer(checkpoint).vocab_size
        n_labels = len(read_labels(checkpoint).labels) if self.labels.has_labels else 2
        alone = config.model.model_copy(update={"tie_embeddings": True})
        n_head = config.model.d_model * (n_labels + (config.model.d_model if self.labels.has_pooler else 0))
        check_min_parameters(checkpoint, alone.min_parameters(vocab_size) + n_head)
        return self.labels.model(config, vocab_size, n_labels)

    def check_compatible(self, checkpoint: Checkpoint, config: ConfigT) -> None:
        """Check that a checkpoint can initialize the run; raise ``RunError`` if not."""
        stored = read_run_config(checkpoint)
        pretrained, model = isinstance(stored, MlmConfig), stored.model
        alone = model if pretrained else model.model_copy(update={"tie_embeddings": True})
        check_min_parameters(checkpoint, alone.min_parameters(read_tokenizer(checkpoint).vocab_size))
        if config.finetuning.from_scratch:
            return
        # Pretraining does not use ``separators`` and ``pooling``; only learned positions limit ``max_length``.
        free = {*EXCLUDED_INIT_KEYS, *EMBEDDING_KEYS, *(["separators", "pooling"] if pretrained else [])}
        free |= {"max_length"} if config.model.max_positions is None else set()
        there = model.model_dump()
        for key, value in config.model.model_dump().items():
            if key not in free and there.get(key) != value:
                what = f"model.{key} is {value}, but the encoder was trained with {there.get(key)}"
                help = f"leave model.{key} out, or set finetuning.from_scratch=true"
                raise RunError(what, where=str(checkpoint.path), help=help)

    def init_weights(self, config: ConfigT, model: ModelT, source: Checkpoint, data: DataT) -> None:
        """Copy the encoder of a pretrained run, or all weights of a run of the same task."""
        if config.finetuning.from_scratch:
            return
        if continues_own_task(config, source):
            load_weights(model, source)
            return
        with torch.device("meta"), SkipWeightInit():
            stored = read_run_config(source, "mlm")
            pretrained = build_pretrained(stored.model, read_tokenizer(source).vocab_size, stored.generator)
        expected = tensors_of(pretrained)
        near = ENCODER_PREFIX if isinstance(pretrained, Electra) else ""
        kept = {
            name: ENCODER_PREFIX + name.removeprefix(near)
            for name in expected
            if name.startswith(near) and not name.startswith(DISCARDED_PREFIXES)
        }
        # A pooler of the form of the masked-LM head starts from that head.
        pooler = MLM_HEAD if config.model.pooler == "mlm_head" else POOLER
        kept |= {name: "pooler." + name.removeprefix(pooler) for name in expected if name.startswith(pooler)}
        weights, own = read_tensors(source, MODEL, expected), tensors_of(model)
        with torch.no_grad():
            for name, target in kept.items():
                if target in own:  # question answering has no pooler
                    own[target].copy_(weights[name])

    def lr_multipliers(self, config: ConfigT, model: ModelT) -> Mapping[str, float]:
        """Return learning-rate multipliers: decay ** k for the k-th layer from the top."""
        decay, n_layers = config.finetuning.layerwise_lr_decay, config.model.n_layers
        if config.finetuning.from_scratch or decay == 1:
            return {}
        names = {id(parameter): name for name, parameter in model.encoder.named_parameters()}
        rates: dict[str, float] = {}
        for number, group in enumerate(layers_of(model.encoder)):  # the final norm belongs to the highest layer
            rate = decay ** (n_layers + 1 - min(number, n_layers))
            rates |= {ENCODER_PREFIX + names[id(parameter)]: rate for parameter in group}
        return rates

    def model_card(self, config: ConfigT, name: str) -> ModelCardFields:
        return ModelCardFields(
            what=f"{self.labels.description} (bert)",
            data=[f"`{path}`" for path in config.data.files],
            scored=f"; {self.labels.scored}.",
            use=f"attnkit predict {name} {self.labels.example}",
            hub_task=config.task,
            hub_metrics=("exact_match", "f1") if config.task == "question-answering" else ("accuracy", "f1"),
        )

    def dry_run(self, config: ConfigT, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if source is not None:
            self.check_compatible(source, config)
        corpus = self._corpus(config, source, SAMPLE)
        n_labels = len(corpus.labels.labels) if corpus.labels else 2
        build = partial(self.labels.model, config, n_labels=n_labels)
        return estimate_examples(config, source, corpus, build, n_labels, partial(self.freeze, config))

    def loss(self, config: ConfigT, model: ModelT, data: DataT, device: torch.device) -> LossFunction:
        return self.labels.loss(config, model, data, device)


def continues_own_task(config: FinetuneConfig, source: Checkpoint) -> bool:
    """Return whether a checkpoint of the same task initializes the head too."""
    return not config.finetuning.from_scratch and read_run_config(source).task == config.task


def label_loss(
    logits_of: Callable[[Any], Tensor], device: torch.device, smoothing: float = 0.0, weights: Tensor | None = None
) -> LossFunction:
    """Return the loss: NLL of ``batch.labels``, weighted by ``weights`` (labels,).

    ``UNKNOWN`` labels are ignored. The reported value is neither weighted nor smoothed.
    """
    weights = None if weights is None else weights.to(device)

    def loss(batch: Any) -> dict[str, LossTerm]:
        batch = batch.to(device)
        logits = to_float32(logits_of(batch))
        own = None if weights is None else weights.to(logits.dtype)
        nll = partial(F.cross_entropy, target=batch.labels, ignore_index=UNKNOWN, reduction="sum")
        return {"nll": LossTerm(nll(logits, weight=own, label_smoothing=smoothing), reported=nll(logits.detach()))}

    return loss
