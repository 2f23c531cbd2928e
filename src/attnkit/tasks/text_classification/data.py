"""Corpus and encoder of labeled documents."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from attnkit.data.config import DocumentsConfig
from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples
from attnkit.data.labels import Labels, check_known_labels, check_valid_label, count_labels
from attnkit.data.text_classification import LabeledRows, Sentences, flatten
from attnkit.tasks.text_classification.config import HanClassificationConfig
from attnkit.text.documents import SEPARATOR, read_labeled, space_words, split_sentences
from attnkit.text.tokenizer import Tokenizer

LabeledDocument = tuple[str, str]  #: (document, label)
PreparedDocuments = PreparedExamples[LabeledRows, list[str]]


def _sentences(document: str, spaced: bool) -> list[str]:
    """Split a document into sentences; ``spaced`` puts spaces around punctuation."""
    found = split_sentences(document)
    return [space_words(part) for part in found] if spaced else found


class DocumentEncoder(ExampleEncoder[LabeledDocument]):
    """Encoder of documents as token ids; ``cut_short`` counts truncated documents."""

    def __init__(self, tokenizer: Tokenizer, data: DocumentsConfig, labels: Sequence[str] = ()) -> None:
        super().__init__(tokenizer)
        self.data = data
        self.label_ids = {label: id for id, label in enumerate(labels)}
        self.counts["labels"] = len(labels)

    def sizes(self) -> Mapping[str, int]:
        return {"documents": self.tokenizer.vocab_size, "labels": len(self.label_ids)}

    def rows(self, examples: Sequence[LabeledDocument]) -> tuple[list[list[int]], list[list[int]]]:
        documents = self.encode([document for document, _ in examples])
        return [flatten(sentences) for sentences in documents], [[self.label_ids[label]] for _, label in examples]

    def encode(self, documents: Sequence[str]) -> list[Sentences]:
        """Encode documents as sentences; split long sentences and drop excess ones."""
        texts = [_sentences(document, self.tokenizer.config.kind == "word") for document in documents]
        rows = iter(self.tokenizer.encode([sentence for document in texts for sentence in document]))
        longest, found = self.data.max_length, list[Sentences]()
        for document in texts:
            whole = list(islice(rows, len(document)))
            parts = (ids[i : i + longest] for ids in whole for i in range(0, len(ids), longest))
            found.append(list(islice(parts, self.data.max_sentences)))
            self.counts["cut_short"] += next(parts, None) is not None
        return found


class LabeledDocuments(ExampleCorpus[LabeledDocument]):
    """Corpus of the labeled documents in a run's files."""

    unit = "document"
    n_symbols = 1  # the label counts as a target token

    def __init__(self, config: HanClassificationConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        super().__init__(config.data)
        self._data, self._spaced = config.data, config.vocabulary.kind == "word"
        where, labels = config.data.files[0], (label for _, label in self.first_pass(n_sampled))
        self._found, total = count_labels(labels, self.unit, where)
        self.labels: Labels = known or Labels(labels=sorted(self._found))
        check_known_labels(self.labels, sorted(self._found), where)
        self.hold_out(total)

    def read(self, paths: Sequence[Path]) -> Iterator[LabeledDocument]:
        for path in paths:
            for document, label in read_labeled(path):
                if paths is self.valid_paths:
                    check_valid_label(label, self._found, str(path))
                yield document, label

    def content(self, example: LabeledDocument) -> Hashable:
        return example[0]

    def is_blank(self, example: LabeledDocument) -> bool:
        return not example[0].replace(SEPARATOR, "").strip()

    def n_characters(self, example: LabeledDocument) -> int:
        return len(example[0])

    def texts(self, examples: Iterable[LabeledDocument]) -> Iterator[str]:
        return (sentence for document, _ in examples for sentence in _sentences(document, self._spaced))

    def display(self, example: LabeledDocument) -> list[str]:
        return [example[0]]

    def encoder(self, tokenizer: Tokenizer) -> DocumentEncoder:
        return DocumentEncoder(tokenizer, self._data, self.labels.labels)
