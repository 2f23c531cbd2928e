"""Labels of documents by a hierarchical attention network, with the weights of their words and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attnkit.data.text_classification import Sentences, document_batch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.examples import in_batches
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import READ_AHEAD, Format, GoldLabels, Predictor, PredictRequest, Totals, Warn
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.tasks.text_classification.data import DocumentEncoder
from attnkit.text.documents import read_labeled
from attnkit.text.lines import flush_interval, line_batches


@dataclass(frozen=True)
class DocumentPrediction:
    """The prediction for a document, with its attention weights."""

    label: str
    probabilities: list[float]  #: one per label of the model, in that order
    sentences: list[list[str]]  #: tokens per encoded sentence; empty for a blank document
    word_weights: list[list[float]]
    """For each sentence one weight per token; they sum to 1 unless the model's distribution is sigmoid or local."""
    sentence_weights: list[float]  #: they sum to 1, with the same exceptions


class DocumentClassifier:
    """Classifies documents. Each result depends on its own document alone."""

    def __init__(self, opened: LoadedModel, batch_tokens: int = 16384) -> None:
        self.opened = opened
        self.labels = read_labels(opened.checkpoint).labels
        self.reader = DocumentEncoder(read_tokenizer(opened.checkpoint), opened.config.data)
        self._batch_tokens = batch_tokens

    def classify(self, documents: Sequence[str]) -> list[DocumentPrediction]:
        """Return the prediction for each document."""
        return self.classify_encoded(self.reader.encode(documents))

    def warnings(self) -> list[str]:
        """Return warnings on documents that were truncated so far."""
        n, most = self.reader.counts["cut_short"], self.reader.data.max_sentences
        text = f"{n:,} document{'s have' if n > 1 else ' has'} more than {most:,} sentences; the rest was not read"
        return [text] if n else []

    def classify_encoded(self, encoded: Sequence[Sentences]) -> list[DocumentPrediction]:
        """Return the prediction for each encoded document."""
        sizes = [sum(len(ids) + 1 for ids in sentences) for sentences in encoded]
        return in_batches(sizes, self._batch_tokens, lambda batch: self._batch([encoded[i] for i in batch]))

    def _batch(self, documents: Sequence[Sentences]) -> Iterator[DocumentPrediction]:
        model, inputs = self.opened.model, document_batch(documents).to(self.opened.device).inputs
        with torch.inference_mode():
            features, word_weights, sentence_weights = model.forward_with_weights(*inputs)
            probabilities = model.output(features).float().softmax(-1).tolist()  # (B, labels)
        tokens = self.reader.tokenizer.tokens
        rows = zip(probabilities, documents, word_weights.tolist(), sentence_weights.tolist(), strict=True)
        for row, document, of_words, of_sentences in rows:
            yield DocumentPrediction(
                label=self.labels[max(range(len(row)), key=row.__getitem__)],
                probabilities=row,
                sentences=[tokens(ids) for ids in document],
                word_weights=[weights[: len(ids)] for ids, weights in zip(document, of_words, strict=False)],
                sentence_weights=of_sentences[: len(document)],
            )


class HanPredictor(Predictor):
    """``attnkit predict`` for documents."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        self.classifier = DocumentClassifier(opened, request.batch_tokens)
        self.gold = GoldLabels(self.classifier.labels)
        if request.format == "pairs":
            raise UsageError("this model reads single documents", where="--format", help="use lines or table")

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield one line per document; a table has lines of document, tab, label, as in training."""
        if format == "table":
            for window in line_batches(read_labeled(path), READ_AHEAD, flush_interval(path), lambda row: len(row[0])):
                yield self._format([text for text, _ in window], [label for _, label in window])
            return
        for texts in self.read(path, iter):
            yield self._format(texts, [None] * len(texts))

    def _format(self, documents: Sequence[str], gold: Sequence[str | None]) -> list[str]:
        lines = []
        for one, expected in zip(self.classifier.classify(documents), gold, strict=True):
            attention = {"word_weights": one.word_weights, "sentence_weights": one.sentence_weights}
            lines.append(
                self.gold.format(self.request, one.probabilities, expected, sentences=one.sentences, **attention)
            )
        return lines

    def warnings(self) -> list[str]:
        """Return warnings on truncated documents and on gold labels that the model does not know."""
        return self.classifier.warnings() + self.gold.warnings()

    def totals(self) -> Totals:
        """Return accuracy, macro-averaged F1, and the scores of each label."""
        return self.gold.totals()
