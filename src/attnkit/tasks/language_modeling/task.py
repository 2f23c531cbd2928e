"""Pretraining task: masked (BERT) and causal (GPT) language modeling."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from attnkit.checkpoints.arrays import check_min_parameters
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import load_weights
from attnkit.data.language_modeling import ClmDataset, MlmDataset, MlmMasking
from attnkit.data.loader import Dataset, DatasetSchedule, Sampler
from attnkit.data.masking import MaskVocabulary
from attnkit.data.next_sentence import NspDataset
from attnkit.data.packed_batches import PackedCorpora
from attnkit.data.prepared_dir import is_prepared, sample_validation_indices
from attnkit.data.store import Store, store_writer
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.dry_run import estimate_run, random_rows
from attnkit.engine.events import PrepareEvent
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.task import CorpusSize, Evaluation, LossFunction, RunEstimate, Stop, Task, TrainingOutcome
from attnkit.engine.vocabularies import provided_tokenizer, read_tokenizer
from attnkit.errors import DataError, RunError
from attnkit.models.bert import Bert
from attnkit.models.electra import Electra, build_pretrained
from attnkit.models.gpt import Gpt
from attnkit.models.parts import is_in_lowest_layers, language_part_of, layerwise_rates
from attnkit.protocols import SPECIALS
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig
from attnkit.tasks.language_modeling.data import (
    CorpusEncoder,
    PreparedText,
    check_mask_token,
    load_text,
    prepare_text,
    table_warnings,
)
from attnkit.tasks.language_modeling.electra import ElectraEvaluation, electra_loss, electra_warnings
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, language_loss, unigram_loss
from attnkit.text.documents import read_documents
from attnkit.text.encoding import EncodedLines
from attnkit.text.offsets import WordBoundaries
from attnkit.text.vocabulary import train_vocabulary

Config = MlmConfig | ClmConfig
Model = Bert | Electra | Gpt
_SAMPLE = 2_000_000  #: characters that a dry run encodes per file
_MIN_EVALUATIONS = 3  #: of fewer, the first may well be the best
_MIN_STEPS = 100  #: of shorter runs nobody expects much
_LEAST_GAIN = 0.05  #: share by which a loss must be lower than that of token frequencies
_ADVICE = "try a lower optimization.learning_rate, or more --max-epochs"


def make_model(config: Config, vocab_size: int) -> Model:
    """Build a randomly initialized model; the caller seeds torch."""
    if isinstance(config, ClmConfig):
        return Gpt(config.model, vocab_size)
    return build_pretrained(config.model, vocab_size, config.generator)


class LanguageModelingTask(Task[Config, PreparedText, Model]):
    """Masked (BERT) and causal (GPT) language modeling."""

    def prepare(
        self, config: Config, folder: Path, source: Checkpoint | None, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if not is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            yield from prepare_text(config, folder, provided_tokenizer(config, source), origin)

    def load_data(self, config: Config, folder: Path) -> PreparedText:
        return load_text(config, folder)

    def build_model(self, config: Config, data: PreparedText) -> Model:
        return make_model(config, data.tokenizer.vocab_size)

    def freeze(self, config: Config, model: Model) -> None:
        finetuning = config.finetuning
        for name, parameter in model.named_parameters():  # tied weights occur once, as embeddings
            if language_part_of(name) in finetuning.frozen or is_in_lowest_layers(name, finetuning.freeze_layers):
                parameter.requires_grad_(False)

    def lr_multipliers(self, config: Config, model: Model) -> Mapping[str, float]:
        decay = config.finetuning.layerwise_lr_decay
        names = (name for name, _ in model.named_parameters())
        return {} if decay == 1 else layerwise_rates(names, decay, language_part_of)

    def evaluation(self, config: Config, data: PreparedText, device: torch.device, stop: Stop | None) -> Evaluation:
        electra = isinstance(config, MlmConfig) and config.generator is not None
        return (ElectraEvaluation if electra else LanguageEvaluation)(data, config, device, stop)

    def outcome_warnings(self, config: Config, data: PreparedText, outcome: TrainingOutcome) -> Iterator[str]:
        """Warn of a loss like that of token frequencies, and of one that only rose."""
        if outcome.n_steps < _MIN_STEPS:
            return
        if isinstance(config, MlmConfig) and config.generator is not None:
            yield from electra_warnings(outcome)
            return
        best, losses = outcome.scores.get("loss"), outcome.losses
        if best is None:
            return
        unigram = unigram_loss(data)
        if best > (1 - _LEAST_GAIN) * unigram:
            yield f"little is learned: loss {best:.2f}; of token frequencies alone, {unigram:.2f}\n  {_ADVICE}"
        elif len(losses) >= _MIN_EVALUATIONS and not outcome.initialized and min(losses) == losses[0]:
            yield f"the loss did not fall after the first evaluation, {losses[0]:.2f}\n  {_ADVICE}"

    def init_weights(self, config: Config, model: Model, source: Checkpoint, data: PreparedText) -> None:
        """Copy all weights."""
        load_weights(model, source)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: Config) -> Model:
        self.check_compatible(checkpoint, config)
        return make_model(config, read_tokenizer(checkpoint).vocab_size)

    def check_compatible(self, checkpoint: Checkpoint, config: Config) -> None:
        """Raise ``RunError`` if the weights are of another objective or size."""
        if isinstance(config, MlmConfig):
            _check_objective(read_run_config(checkpoint, config.task), config)
        check_min_parameters(checkpoint, config.model.min_parameters(read_tokenizer(checkpoint).vocab_size))

    def model_card(self, config: Config, name: str) -> ModelCardFields:
        data = [f"`{path}`" for path in config.data.files]
        if isinstance(config, MlmConfig) and config.generator is not None:
            command, *options = config.usage
            return ModelCardFields(
                what="An encoder (bert) with the generator that it was trained against (ELECTRA)",
                data=data,
                scored="; replaced held-out tokens: losses in nats, all else in percent.",
                use=" ".join(["attnkit", command, name, *options]),
                hub_task="feature-extraction",
            )
        if isinstance(config, MlmConfig):
            return ModelCardFields(
                what="A masked language model (bert)",
                data=data,
                scored="; masked held-out tokens: loss in nats, accuracies in percent.",
                use=f'attnkit fill-mask {name} "The cat sat on the [MASK]."',
                hub_task="fill-mask",
                hub_metrics=("perplexity", "accuracy"),
            )
        return ModelCardFields(
            what=f"A language model (gpt, {config.direction})",
            data=data,
            scored="; held-out tokens: loss in nats, accuracies in percent.",
            use=f'attnkit generate {name} "The cat sat"',
            hub_task="text-generation",
            hub_metrics=("perplexity", "accuracy"),
        )

    def dry_run(self, config: Config, init_from: Path | None = None) -> RunEstimate:
        if init_from is not None:
            self.check_compatible(RunFolder(init_from).checkpoint()[0], config)
        return estimate_run(self, config, self.corpus_size(config, init_from), "documents")

    def corpus_size(self, config: Config, init_from: Path | None = None) -> CorpusSize:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        data = config.data
        for path in map(Path, data.valid_files or ()):
            if next(read_documents(path, data.document_format), None) is None:
                raise DataError("no validation documents", where=str(path))
        samples: list[tuple[list[str], float]] = []  # per file: first documents, and their share of its characters
        n_documents = 0
        for name in data.files:
            texts: list[str] = []
            n = n_characters = n_read = 0
            for text in read_documents(Path(name), data.document_format):
                if n_read < _SAMPLE:
                    texts.append(text)
                    n_read += len(text)
                n, n_characters = n + 1, n_characters + len(text)
            if not data.valid_files:
                sample_validation_indices(n, 1, data.held_out_seed, name)
            samples.append((texts, n_read / max(1, n_characters)))
            n_documents += n
        given = provided_tokenizer(config, source)
        tokenizer = given or train_vocabulary(chain.from_iterable(texts for texts, _ in samples), config.vocabulary)
        check_mask_token(config, tokenizer)
        complete = given is not None or all(share == 1 for _, share in samples)
        size = tokenizer.vocab_size if complete else config.vocabulary.size
        tokens, found = 0.0, []
        ends = 0 if isinstance(config, ClmConfig) else 3 if config.model.next_sentence else 2
        for texts, share in samples:
            lengths = CorpusEncoder(tokenizer, config).finish(EncodedLines.of(tokenizer.encode(texts))).lengths
            found.append(lengths)
            special = ends * -(-lengths // (data.sequence_length - ends))
            tokens += int((lengths + special).sum()) / max(share, 1e-9)
        note = "\n".join(f"warning: {text}" for text in table_warnings(data))
        return CorpusSize(n_documents, tokens, (size,), (np.concatenate(found),), note)

    def sized_model(self, config: Config, vocab_sizes: Sequence[int]) -> Model:
        return make_model(config, vocab_sizes[0])

    def random_dataset(self, config: Config, corpus: CorpusSize, folder: Path) -> Dataset:
        (size,), (lengths,) = corpus.vocab_sizes, corpus.lengths
        with store_writer(folder, size) as writer:
            writer.add_encoded(random_rows(lengths, size))
        data = config.data
        corpora = PackedCorpora(Store.open(folder), data.sequence_length, isolate_documents=data.isolate_documents)
        if isinstance(config, ClmConfig):
            return ClmDataset(corpora)
        # Every id is a word, the first ordinary one the mask, and every twentieth may end a sentence.
        alone = np.zeros(size, np.uint8)
        words = MaskVocabulary(len(SPECIALS), np.arange(len(SPECIALS) + 1, size))
        # A masking rate that changes linearly costs what its mean costs.
        boundaries, replaces = WordBoundaries(alone, alone), config.generator is not None
        masking = MlmMasking(config.masking.at(0.5), words, boundaries, replaces)
        if config.model.next_sentence:
            return NspDataset(corpora, masking, np.arange(size) % 20 == 0)
        return MlmDataset(corpora, masking)

    def sampler(self, config: Config, data: PreparedText) -> Sampler | None:
        return data.train.mixture.draw

    def dataset_schedule(self, config: Config, data: PreparedText) -> DatasetSchedule | None:
        changes = isinstance(config, MlmConfig) and config.masking.final_mask_prob is not None
        return data.train.at if changes and not isinstance(data.train, ClmDataset) else None

    def loss(self, config: Config, model: Model, data: PreparedText, device: torch.device) -> LossFunction:
        smoothing = config.optimization.label_smoothing
        if isinstance(model, Electra):
            assert isinstance(config, MlmConfig)
            return electra_loss(model, device, smoothing, config.electra.detection_weight)
        return language_loss(model, device, smoothing)


def _check_objective(stored: MlmConfig, config: MlmConfig) -> None:
    """Raise ``RunError`` if a run cannot initialize another for its objective."""
    key, old, new = "objective", str(stored.objective), str(config.objective)
    if old == new:
        if config.generator is None:
            return
        key, sizes = "electra.generator_size", (stored.electra.generator_size, config.electra.generator_size)
        # Sizes that round to the same number of heads are the same generator.
        heads = [config.model.generator_architecture(size).n_heads for size in sizes]
        if heads[0] == heads[1]:
            return
        old, new = (f"{size:g}" for size in sizes)
    what = f"{key} is {new}, but the run was trained with {old}"
    raise RunError(what, where=key, help=f"leave {key} out: --init-from sets it")


TASK = LanguageModelingTask()
