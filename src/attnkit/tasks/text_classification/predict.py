"""Document labels and attention weights of a hierarchical attention network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attnkit.data.text_classification import Sentences, document_batch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.examples import in_batches
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import Format, Predictor, PredictRequest, Warn, truncation_warning
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.tasks.text_classification.data import DocumentEncoder
from attnkit.text.documents import read_labeled


@dataclass(frozen=True)
class DocumentPrediction:
    """Prediction and attention weights for one document."""

    label: str
    probabilities: list[float]  #: one per label, in the model's order
    sentences: list[list[str]]  #: tokens of each encoded sentence; empty for a blank document
    word_weights: list[list[float]]  #: one per token; sum to 1 per sentence, except with sigmoid and local
    sentence_weights: list[float]  #: one per sentence; sum to 1, with the same exceptions


class HanPredictor(Predictor):
    """Predictor for documents; each result depends only on its own document."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        self.labels = read_labels(opened.checkpoint).labels
        self.reader = DocumentEncoder(read_tokenizer(opened.checkpoint), opened.config.data)
        if request.format == "pairs":
            raise UsageError("a document classifier does not read pairs", where="--format", help="use lines or table")

    def classify(self, documents: Sequence[str]) -> list[DocumentPrediction]:
        """Return the prediction for each document."""
        return self.classify_encoded(self.reader.encode(documents))

    def classify_encoded(self, encoded: Sequence[Sentences]) -> list[DocumentPrediction]:
        """Return the prediction for each encoded document."""
        model, tokens = self.opened.model, self.reader.tokenizer.tokens

        def predict(indices: list[int]) -> Iterator[DocumentPrediction]:
            documents = [encoded[i] for i in indices]
            inputs = document_batch(documents).to(self.opened.device).inputs
            with torch.inference_mode():
                features, word_weights, sentence_weights = model.forward_with_weights(*inputs)
                probabilities = model.output(features).float().softmax(-1).tolist()  # (B, labels)
            rows = zip(probabilities, documents, word_weights.tolist(), sentence_weights.tolist(), strict=True)
            for row, document, of_words, of_sentences in rows:
                yield DocumentPrediction(
                    label=self.labels[max(range(len(row)), key=row.__getitem__)],
                    probabilities=row,
                    sentences=[tokens(ids) for ids in document],
                    word_weights=[weights[: len(ids)] for ids, weights in zip(document, of_words, strict=False)],
                    sentence_weights=of_sentences[: len(document)],
                )

        sizes = [sum(len(ids) + 1 for ids in sentences) for sentences in encoded]
        return in_batches(sizes, self.request.batch_tokens, predict)

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield a line per document; input tables have lines of ``document<TAB>label``."""
        if format == "table":
            rows: Iterator[tuple[str, str | None]] = read_labeled(path)
            batches = self.batches(path, rows, lambda row: len(row[0]))
        else:
            batches = self.read(path, lambda lines: ((line, None) for line in lines), lambda row: len(row[0]))
        for batch in batches:
            lines = []
            predictions = self.classify([document for document, _ in batch])
            for one, (document, gold) in zip(predictions, batch, strict=True):
                attention = {"word_weights": one.word_weights, "sentence_weights": one.sentence_weights}
                lines.append(self.label_line(one.probabilities, gold, document, sentences=one.sentences, **attention))
            yield lines

    def warnings(self) -> list[str]:
        """Return warnings on truncated documents and unknown gold labels."""
        most = self.reader.data.max_sentences
        cut = truncation_warning(self.reader.counts["cut_short"], "document", most, "sentences")
        return cut + super().warnings()
