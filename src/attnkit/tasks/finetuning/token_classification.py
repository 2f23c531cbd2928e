"""Token classification as a task: loss, predicted tags and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Batching, Dataset, make_batches
from attnkit.data.prepared_dir import StatusEvent, is_prepared
from attnkit.data.token_classification import UNKNOWN, TagBatch, TokenClassificationDataset, group_by_sentence
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
from attnkit.metrics.spans import span_scores
from attnkit.models.heads import TokenClassifier
from attnkit.models.linear import without_dropout
from attnkit.protocols import entities
from attnkit.tasks.finetuning import base as finetune
from attnkit.tasks.finetuning.config import TokenClassificationConfig
from attnkit.tasks.finetuning.token_classification_data import (
    PreparedTags,
    Sentence,
    TaggedCorpus,
    encode_sentences,
    load_tagged,
    prepare_tagged,
    scheme_of,
)
from attnkit.text.vocabulary import train_vocabulary
from attnkit.training.losses import LossTerm

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class TagPrediction:
    """Predictions for the words of some sentences."""

    tags: list[list[int]]
    """The most probable tag of each word, by sentence."""
    probabilities: list[list[float]]
    """Of these tags."""
    nll: float
    """Sum over the words with a known gold tag, in nats."""
    n_known: int


def tag_logits(model: TokenClassifier, batch: TagBatch) -> Tensor:
    """Return logits (N, tags) of the N words of a batch, at least float32."""
    logits: Tensor = model(batch.ids, batch.real).flatten(0, 1).index_select(0, batch.firsts)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def tag_loss(
    model: TokenClassifier, device: torch.device, smoothing: float, weights: Tensor | None = None
) -> Callable[[TagBatch], Mapping[str, LossTerm]]:
    """Return the loss: the negative log-likelihood of words' tags, weighted by tag."""
    weighed = None if weights is None else weights.to(device)

    def loss(batch: TagBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        logits = tag_logits(model, batch)
        by_tag = None if weighed is None else weighed.to(logits.dtype)
        total = _cross_entropy(logits, batch.tags, by_tag, smoothing)
        return {"nll": LossTerm(total, reported=_cross_entropy(logits.detach(), batch.tags))}

    return loss


def predict_tags(
    model: TokenClassifier, rows: TokenClassificationDataset, device: torch.device, stop: Stop | None = None
) -> TagPrediction:
    """Return the tags of all words of all rows. Raises ``EvaluationCancelled`` if stopped."""
    tags: list[list[int]] = [[] for _ in range(len(rows))]
    sure: list[list[float]] = [[] for _ in range(len(rows))]
    nll, n_known = 0.0, 0
    with without_dropout(model), torch.inference_mode():
        for indices in until_stopped(stop, make_batches(rows.lengths[0].tolist(), Batching(_BATCH_TOKENS, "tokens"))):
            batch = rows.batch(np.asarray(indices, np.int64)).to(device)
            logits = tag_logits(model, batch)
            nll += float(_cross_entropy(logits, batch.tags))
            n_known += int((batch.tags != UNKNOWN).sum())
            best = logits.softmax(-1).max(-1)
            owners = (batch.firsts // batch.ids.shape[1]).tolist()
            for owner, tag, probability in zip(owners, best.indices.tolist(), best.values.tolist(), strict=True):
                tags[indices[owner]].append(tag)
                sure[indices[owner]].append(probability)
    return TagPrediction(list(group_by_sentence(rows, tags)), list(group_by_sentence(rows, sure)), nll, n_known)


def _cross_entropy(logits: Tensor, tags: Tensor, weights: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(logits, tags, weights, ignore_index=UNKNOWN, reduction="sum", label_smoothing=smoothing)


@dataclass
class TokenClassificationEvaluation:
    """Scores on the words and entities of the development set."""

    prepared: PreparedTags
    device: torch.device
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)
    """(words, gold entities, predicted entities); tags instead if they name no entities."""

    def __call__(self, model: TokenClassifier) -> dict[str, float] | None:
        """Return ``loss`` in nats per word; ``accuracy``, ``precision``, ``recall`` and ``f1`` in percent."""
        try:
            guessed = predict_tags(model, self.prepared.valid, self.device, self.stop)
        except EvaluationCancelled:
            return None
        scheme, labels = scheme_of(self.prepared.labels), self.prepared.labels.labels
        found = [[labels[tag] for tag in tags] for tags in guessed.tags]
        self.samples = [
            _sample(self.prepared.valid_examples[i], found[i], scheme == "plain")
            for i in sample_indices(len(found), self.n_samples)
        ]
        scores = span_scores(found, [tags for _, tags in self.prepared.valid_examples])
        whole = (scores.all.precision, scores.all.recall, scores.all.f1)
        precision, recall, f1 = whole if scheme != "plain" else [scores.accuracy] * 3
        loss = guessed.nll / max(1, guessed.n_known)
        return {"loss": loss, "accuracy": scores.accuracy, "precision": precision, "recall": recall, "f1": f1}


def _sample(sentence: Sentence, found: Sequence[str], plain: bool) -> Sample:
    words, tags = sentence

    def shown(tags: Sequence[str]) -> str:
        if plain:
            return " ".join(tags)
        return "; ".join(f"{one.type}: {' '.join(words[one.begin : one.end])}" for one in entities(tags)) or "-"

    return " ".join(words), shown(tags), shown(found)


def _corpus(config: TokenClassificationConfig, source: Checkpoint | None, n_sampled: int = 0) -> TaggedCorpus:
    """Return the corpus, with the tags of the initial weights if they are a tagger's."""
    known = read_labels(source) if source is not None and finetune.continues_own_task(config, source) else None
    return TaggedCorpus(config.data, known, n_sampled)


class TokenClassificationTask(Task[TokenClassificationConfig, PreparedTags, TokenClassifier]):
    """Tagging of words by a pretrained encoder."""

    def prepare(
        self, config: TokenClassificationConfig, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        if is_prepared(folder, [*config.data.files, *(config.data.valid_files or ())], origin):
            return
        source = vocabulary_source()
        tokenizer = provided_tokenizer(config, source)
        yield StatusEvent("reading the sentences")
        corpus = _corpus(config, source)
        if tokenizer is None:
            yield StatusEvent("building the vocabulary")
            tokenizer = train_vocabulary((" ".join(words) for words, _ in corpus.sentences()), config.vocabulary)
        yield from prepare_tagged(corpus, folder, tokenizer, origin)

    def load_data(self, config: TokenClassificationConfig, folder: Path) -> PreparedTags:
        return load_tagged(config, folder)

    def build_model(self, config: TokenClassificationConfig, data: PreparedTags) -> TokenClassifier:
        model = TokenClassifier(config.model, data.tokenizer.vocab_size, len(data.labels.labels))
        finetune.freeze_layers(config, model)
        return model

    def evaluation(
        self, config: TokenClassificationConfig, data: PreparedTags, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return TokenClassificationEvaluation(data, device, config.evaluation.n_samples, stop)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: TokenClassificationConfig) -> TokenClassifier:
        n_tags = len(read_labels(checkpoint).labels)
        return TokenClassifier(
            config.model, finetune.checked_vocab_size(checkpoint, config, n_tags * config.model.d_model), n_tags
        )

    def check_compatible(self, checkpoint: Checkpoint, config: TokenClassificationConfig) -> None:
        finetune.check_encoder(checkpoint, config)

    def init_weights(self, config: TokenClassificationConfig, model: TokenClassifier, source: Checkpoint) -> None:
        finetune.init_weights(config, model, source)

    def lr_multipliers(self, config: TokenClassificationConfig, model: TokenClassifier) -> Mapping[str, float]:
        return finetune.lr_multipliers(config, model)

    def model_card(self, config: TokenClassificationConfig, name: str) -> ModelCardFields:
        return ModelCardFields(
            what="A tagger of words (bert)",
            data=[f"`{path}`" for path in config.data.files],
            scored="; accuracy of words, and precision, recall and F1 of entities, in percent.",
            use=f"attnkit predict {name} words.txt",
        )

    def dry_run(self, config: TokenClassificationConfig, init_from: Path | None = None) -> RunEstimate:
        source = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if source is not None:
            finetune.check_encoder(source, config)
        corpus = _corpus(config, source, SAMPLE)
        sample, n_sentences = corpus.sample, corpus.n_sentences
        given = provided_tokenizer(config, source)
        tokenizer = given or train_vocabulary((" ".join(words) for words in sample), config.vocabulary)
        size = tokenizer.vocab_size if given or n_sentences <= SAMPLE else config.vocabulary.size
        tokens = sum(2 + len(words.ids) for words in encode_sentences(tokenizer, sample))
        n_tags = len(corpus.labels.labels)
        return estimate(
            config,
            n_sentences,
            tokens * n_sentences / max(1, len(sample)),
            lambda: TokenClassifier(config.model, size, n_tags),
            n_tags,
            "sentences",
        )

    def dataset(self, data: PreparedTags) -> Dataset:
        return data.train

    def loss(
        self, config: TokenClassificationConfig, model: TokenClassifier, data: PreparedTags, device: torch.device
    ) -> LossFunction:
        weights = finetune.label_weights(config.finetuning, data.train.count_tags(len(data.labels.labels)))
        return tag_loss(model, device, config.optimization.label_smoothing, weights)


TASK = TokenClassificationTask()
