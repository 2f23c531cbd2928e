"""Labels of documents from files, by a trained classifier: a label for each line, and how many are right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attnkit.data.documents import Sentences, batch_of
from attnkit.data.inference_batches import Batching, make_batches
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError
from attnkit.metrics.labels import LabelScores, label_scores
from attnkit.runtime.devices import set_threads
from attnkit.tasks.text_classification.data import DocumentEncoder
from attnkit.text.documents import read_labeled
from attnkit.text.line_stream import encoding_warnings, flush_interval, line_batches
from attnkit.text.lines import LineReader

_WINDOW, _BATCH_TOKENS = 1024, 16384


@dataclass(frozen=True)
class ClassifyRequest:
    """What ``attnkit classify`` is asked to do."""

    run: Path
    files: list[Path]
    """Documents, one a line; ``-`` for standard input."""
    labeled: bool = False
    """Each line is a document, a tab, its label: count how many are found."""
    device: str = "auto"
    threads: int | None = None
    checkpoint: str | None = None
    strict: bool = False
    """Refuse bytes that are not UTF-8 instead of putting U+FFFD in their place."""


@dataclass(frozen=True)
class DocumentPrediction:
    """A document with the label found, and what the model looked at."""

    label: str
    probabilities: dict[str, float]
    sentences: list[list[str]]
    """The tokens of each sentence that was read; none of a blank document."""
    word_weights: list[list[float]]
    """For each sentence a weight for each token; they sum to 1 unless the model's distribution is sigmoid or local."""
    sentence_weights: list[float]
    """They sum to 1, with the same exceptions."""

    def to_json(self) -> str:
        """Return a line of JSON."""
        return json.dumps(vars(self), ensure_ascii=False)


@dataclass
class LabelCounts:
    """The labels found and expected so far, where they are known."""

    found: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def scores(self) -> LabelScores:
        """Return accuracy and macro-averaged F1, 0 of no documents."""
        return label_scores(self.found, self.expected) if self.expected else LabelScores(0.0, 0.0)

    def as_dictionary(self) -> dict[str, Any]:
        """Return the totals as plain data for ``--json``."""
        scores = self.scores()
        return {"documents": len(self.expected), "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}

    def __str__(self) -> str:
        scores = self.scores()
        n = f"{len(self.expected):,} documents"
        return f"{n}, accuracy {scores.accuracy:.2f} %, macro F1 {scores.macro_f1:.2f} %"


class Classifier:
    """Documents in, labels out. A result depends on its own document alone."""

    def __init__(self, opened: LoadedModel) -> None:
        self.opened = opened
        self.labels = read_labels(opened.checkpoint).labels
        self.reader = DocumentEncoder(read_tokenizer(opened.checkpoint), opened.config.data)

    def classify(self, documents: Sequence[str]) -> list[DocumentPrediction]:
        """Return the label of each document, with the weights of words and sentences."""
        return self.label(self.reader.encode(documents))

    def complaints(self) -> list[str]:
        """Return what of the documents so far was not read, in words."""
        n, most = self.reader.n_cut, self.reader.data.max_sentences
        said = f"{n:,} document{'s have' if n > 1 else ' has'} more than {most:,} sentences; the rest was not read"
        return [said] if n else []

    def label(self, encoded: Sequence[Sentences]) -> list[DocumentPrediction]:
        """Return the same for documents as the reader encodes them."""
        sizes = [sum(len(ids) + 1 for ids in sentences) for sentences in encoded]
        found: list[DocumentPrediction | None] = [None] * len(encoded)
        for batch in make_batches(sizes, Batching(_BATCH_TOKENS, "tokens")):
            for i, labeled in zip(batch, self._batch([encoded[i] for i in batch]), strict=True):
                found[i] = labeled
        return [labeled for labeled in found if labeled is not None]

    def _batch(self, documents: Sequence[Sentences]) -> Iterator[DocumentPrediction]:
        model, inputs = self.opened.model, batch_of(documents).to(self.opened.device).inputs
        with torch.inference_mode():
            features, of_all_words, of_all_sentences = model.forward_with_weights(*inputs)
            probabilities = model.output(features).float().softmax(-1).tolist()
            words, sentences = of_all_words.tolist(), of_all_sentences.tolist()
        pieces = self.reader.tokenizer.tokens
        for row, document, of_words, of_sentences in zip(probabilities, documents, words, sentences, strict=True):
            yield DocumentPrediction(
                label=self.labels[max(range(len(row)), key=row.__getitem__)],
                probabilities=dict(zip(self.labels, row, strict=True)),
                sentences=[pieces(ids) for ids in document],
                word_weights=[weights[: len(ids)] for ids, weights in zip(document, of_words, strict=False)],
                sentence_weights=of_sentences[: len(document)],
            )


def classify_stream(
    request: ClassifyRequest, tally: LabelCounts, tell: Callable[[str], None]
) -> Iterator[list[DocumentPrediction]]:
    """Yield the labels in groups as they are ready; ``tell`` takes warnings, ``tally`` keeps what was expected.

    Raises:
        RunError: the run is no classifier's.
        DataError: with ``labeled``, a line without a label, or a label that the model does not know.
    """
    set_threads(request.threads)
    opened = load_model(request.run, "classify", device=request.device, checkpoint=request.checkpoint)
    for warning in opened.warnings:
        tell(warning)
    classifier = Classifier(opened)
    for path in request.files:
        yield from _labeled(classifier, path, tally) if request.labeled else _plain(classifier, path, request, tell)
    for message in classifier.complaints():
        tell(message)


def _plain(
    classifier: Classifier, path: Path, request: ClassifyRequest, tell: Callable[[str], None]
) -> Iterator[list[DocumentPrediction]]:
    lines = LineReader(path, on_bad="refuse" if request.strict else "replace")
    for window in line_batches(lines, _WINDOW, flush_interval(path)):
        yield classifier.classify(window)
    for message in encoding_warnings(lines.counts, path):
        tell(message)


def _labeled(classifier: Classifier, path: Path, tally: LabelCounts) -> Iterator[list[DocumentPrediction]]:
    known, pairs = set(classifier.labels), list[tuple[str, str]]()

    def flush() -> list[DocumentPrediction]:
        found = classifier.classify([document for document, _ in pairs])
        tally.found += [labeled.label for labeled in found]
        tally.expected += [label for _, label in pairs]
        pairs.clear()
        return found

    for number, (document, label) in enumerate(read_labeled(path), 1):
        if label not in known:
            help = f"it knows {', '.join(classifier.labels[:10])}"
            raise DataError(f"the model does not know the label '{label}'", where=f"{path}:{number}", help=help)
        pairs.append((document, label))
        if len(pairs) == _WINDOW:
            yield flush()
    if pairs:
        yield flush()
