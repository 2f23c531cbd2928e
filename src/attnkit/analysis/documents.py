"""Where a document classifier looks: the words of each sentence, and the sentences of the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnkit.analysis.attention_request import Answer, Question, paired
from attnkit.engine.loading import open_run
from attnkit.errors import DataError, UsageError
from attnkit.plotting.attention_maps import Map, Sentence
from attnkit.tasks.text_classification.predict import Classifier, Labeled


def look_at_documents(question: Question) -> Answer:
    """Load a classifier and return the weights of its documents, a document a line.

    Raises:
        UsageError: what only a translation has was asked for.
        DataError: a document is blank.
    """
    if question.targets or question.beam_size is not None:
        raise UsageError(
            "a document classifier writes nothing", where=str(question.run), help="leave out --target and --beam-size"
        )
    opened = open_run(question.run, "classify", device=question.device, checkpoint=question.checkpoint)
    facts = {
        "run": str(opened.path),
        "checkpoint": opened.checkpoint.name,
        "model": "hierarchical attention over words and sentences",
    }
    classifier = Classifier(opened)
    return Answer(facts, _sentences(classifier, question), opened.warnings, classifier.complaints)


def _sentences(classifier: Classifier, question: Question) -> Iterator[Sentence]:
    for number, document, _ in paired(question):
        encoded = classifier.reader.encode([document])
        (found,) = classifier.label(encoded)
        if not found.sentences:
            raise DataError("this document is blank: there is nothing to look at", where=f"source:{number}")
        maps = _maps(found, classifier.reader.tokenizer.decode(encoded[0]))
        facts = {"probability": round(found.probabilities[found.label], 4)}
        yield Sentence(document, found.label, maps, facts=facts, sides=("Document", "Label"))


def _maps(found: Labeled, texts: Sequence[str]) -> list[Map]:
    """Return the words' map, a row a sentence and a column for every word of the document, and the sentences'."""
    words = [word for sentence in found.sentences for word in sentence]
    weights = np.zeros((1, 1, len(found.sentences), len(words)), np.float32)
    first = 0
    for row, of_words in enumerate(found.word_weights):
        weights[0, 0, row, first : first + len(of_words)] = of_words
        first += len(of_words)
    names = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    over_sentences = np.array(found.sentence_weights, np.float32)[None, None, None]
    return [Map("word", names, words, weights), Map("sentence", ["document"], names, over_sentences)]
