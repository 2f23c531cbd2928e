"""Shared code of tasks on examples: preparation, estimates, batched evaluation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.corpus import ExampleCorpus, PreparedExamples, write_examples
from attnkit.data.loader import Batching, make_batches
from attnkit.data.prepared_dir import StatusEvent, is_prepared
from attnkit.data.text_classification import LabeledRows
from attnkit.engine.dry_run import estimate
from attnkit.engine.events import PrepareEvent, Sample
from attnkit.engine.run_config import RunConfig
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import RunEstimate, Stop, until_stopped
from attnkit.engine.vocabularies import provided_tokenizer
from attnkit.metrics.labels import label_scores
from attnkit.models.linear import without_dropout
from attnkit.text.vocabulary import train_vocabulary

ResultT = TypeVar("ResultT")
_BATCH_TOKENS = 16384


def prepare_examples(
    config: RunConfig,
    folder: Path,
    source: Checkpoint | None,
    origin: str | None,
    read_corpus: Callable[[Checkpoint | None], ExampleCorpus[Any]],
) -> Iterator[PrepareEvent]:
    """Encode a corpus into RUN/data, unless that is done (see ``Task.prepare``)."""
    data: Any = config.data
    if is_prepared(folder, [*data.files, *(data.valid_files or ())], origin):
        return
    tokenizer = provided_tokenizer(config, source)
    yield StatusEvent("reading the examples")
    corpus = read_corpus(source)
    corpus.check_valid()
    yield from corpus.messages()
    if tokenizer is None:
        yield StatusEvent("building the vocabulary")
        tokenizer = train_vocabulary(corpus.texts(corpus.train()), config.vocabulary)
    yield from write_examples(corpus, folder, tokenizer, origin)


def estimate_examples(
    config: RunConfig,
    source: Checkpoint | None,
    corpus: ExampleCorpus[Any],
    build: Callable[[int], nn.Module],
    n_classes: int | None = None,
    freeze: Callable[[Any], None] | None = None,
) -> RunEstimate:
    """Estimate a run from samples of its corpus; ``source`` initializes the run.

    ``build`` takes the vocabulary size, which is the number of outputs if ``n_classes`` is None; ``freeze`` is that of
    ``estimate``.
    """
    if corpus.valid_paths:
        corpus.check_valid()  # held-out examples were checked in the first pass
    given = provided_tokenizer(config, source)
    examples = (example for sample, _, _ in corpus.samples for example in sample)
    tokenizer = given or train_vocabulary(corpus.texts(examples), config.vocabulary)
    is_whole = all(total <= n_sampled for _, total, n_sampled in corpus.samples)
    vocab_size = tokenizer.vocab_size if given or is_whole else config.vocabulary.size
    n_examples, n_tokens = 0, 0.0
    for sample, total, n_sampled in corpus.samples:
        n_examples += total
        n_tokens += corpus.n_tokens(tokenizer, sample) * total / max(1, n_sampled)
    n_outputs = vocab_size if n_classes is None else n_classes
    return estimate(config, n_examples, n_tokens, partial(build, vocab_size), n_outputs, f"{corpus.unit}s", freeze)


def in_batches(
    lengths: Sequence[int], n_tokens: int, compute: Callable[[list[int]], Iterable[ResultT]], stop: Stop | None = None
) -> list[ResultT]:
    """Compute one result per row, batched; raise ``EvaluationCancelled`` if stopped."""
    found: list[Any] = [None] * len(lengths)
    for batch in until_stopped(stop, make_batches(lengths, Batching(n_tokens, "tokens"))):
        for i, result in zip(batch, compute(batch), strict=True):
            found[i] = result
    return found


def to_float32(logits: Tensor) -> Tensor:
    """Return logits as float32; float64 logits are unchanged."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def chance_warnings(
    labels: Sequence[str], counts: Sequence[int], scores: Mapping[str, float], advice: str
) -> Iterator[str]:
    """Warn if a classifier is not better than its most frequent development label.

    ``counts`` are those of the labels; ``advice`` says what to try next.
    """
    share = 100 * max(counts) / sum(counts)
    # Of a single label everything is right, which says nothing about the classifier.
    if sum(count > 0 for count in counts) < 2 or not scores.get("accuracy", 100.0) <= share:
        return
    label = labels[counts.index(max(counts))]
    found = f"accuracy {scores['accuracy']:.1f} % is at chance: always predicting '{label:.30}' has {share:.1f} %"
    yield f"{found}\n  {advice}"


@dataclass
class ClassificationEvaluation:
    """Evaluation of a text or document classifier on the development set."""

    prepared: PreparedExamples[LabeledRows, list[str]]
    device: torch.device
    n_samples: int
    stop: Stop | None
    logits: Callable[[Any, Any], Tensor]  #: (model, batch) -> (B, labels)
    samples: list[Sample] = field(default_factory=list)  #: (text, gold label, predicted label)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return ``accuracy`` and ``macro_f1`` in percent, ``loss`` in nats per example."""
        valid = self.prepared.valid
        total = 0.0

        def compute(indices: list[int]) -> list[int]:
            nonlocal total
            batch: Any = valid.batch(np.asarray(indices, np.int64)).to(self.device)
            log_probs = to_float32(self.logits(model, batch)).log_softmax(-1)  # (B, labels)
            total -= float(log_probs.gather(1, batch.labels[:, None]).sum())
            best: list[int] = log_probs.argmax(-1).tolist()
            return best

        with without_dropout(model), torch.inference_mode():
            found = in_batches(valid.lengths[0].tolist(), _BATCH_TOKENS, compute, self.stop)
        texts, labels, expected = self.prepared.valid_examples, self.prepared.labels, valid.labels.ids.tolist()
        picks = sample_indices(len(valid), self.n_samples)
        self.samples = [(texts[i], labels[expected[i]], labels[found[i]]) for i in picks]
        scores = label_scores(found, expected)
        return {"accuracy": scores.accuracy, "loss": total / len(valid), "macro_f1": scores.macro_f1}
