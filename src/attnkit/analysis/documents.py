"""Where a document classifier looks: the words of each sentence, and the sentences of the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnkit.analysis.attention_request import AttentionQuery, AttentionReport, pair_lines
from attnkit.engine.loading import load_model
from attnkit.errors import DataError, UsageError
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap
from attnkit.tasks.text_classification.predict import Classifier, DocumentPrediction


def look_at_documents(question: AttentionQuery) -> AttentionReport:
    """Load a classifier and return the weights of its documents, a document a line.

    Raises:
        UsageError: what only a translation has was asked for.
        DataError: a document is blank.
    """
    if question.targets or question.beam_size is not None:
        raise UsageError(
            "a document classifier writes nothing", where=str(question.run), help="leave out --target and --beam-size"
        )
    opened = load_model(question.run, "text-classification", device=question.device, checkpoint=question.checkpoint)
    facts = {
        "run": str(opened.path),
        "checkpoint": opened.checkpoint.name,
        "model": "hierarchical attention over words and sentences",
    }
    classifier = Classifier(opened)
    return AttentionReport(facts, _sentences(classifier, question), opened.warnings, classifier.complaints)


def _sentences(classifier: Classifier, question: AttentionQuery) -> Iterator[AttentionExample]:
    for number, document, _ in pair_lines(question):
        encoded = classifier.reader.encode([document])
        (found,) = classifier.classify_encoded(encoded)
        if not found.sentences:
            raise DataError("this document is blank: there is nothing to look at", where=f"source:{number}")
        maps = _maps(found, classifier.reader.tokenizer.decode(encoded[0]))
        facts = {"probability": round(max(found.probabilities), 4)}
        yield AttentionExample(document, found.label, maps, facts=facts, sides=("Document", "Label"))


def _maps(found: DocumentPrediction, texts: Sequence[str]) -> list[AttentionMap]:
    """Return the words' map, a row a sentence and a column for every word of the document, and the sentences'."""
    words = [word for sentence in found.sentences for word in sentence]
    weights = np.zeros((1, 1, len(found.sentences), len(words)), np.float32)
    first = 0
    for row, of_words in enumerate(found.word_weights):
        weights[0, 0, row, first : first + len(of_words)] = of_words
        first += len(of_words)
    names = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    over_sentences = np.array(found.sentence_weights, np.float32)[None, None, None]
    return [AttentionMap("word", names, words, weights), AttentionMap("sentence", ["document"], names, over_sentences)]
