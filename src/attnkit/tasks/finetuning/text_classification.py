"""Classification of texts and pairs of texts: training data, loss and the task."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples, load_examples
from attnkit.data.labels import Labels, check_known_labels, check_valid_label, count_labels
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.data.text_classification import TextBatch, TextClassificationDataset, join
from attnkit.engine.examples import ClassificationEvaluation
from attnkit.engine.task import Evaluation, Stop
from attnkit.errors import DataError
from attnkit.models.bert import SequenceClassifier
from attnkit.protocols import UNK_ID
from attnkit.tasks.finetuning.config import TextClassificationConfig
from attnkit.tasks.finetuning.task import FinetuningTask, LabelType
from attnkit.text.documents import KINDS, Columns, LabeledTable, LabeledText
from attnkit.text.long_lines import encode_prefixes
from attnkit.text.tokenizer import Tokenizer

_HEADER = "begin each file with the same header: label<TAB>text or label<TAB>text<TAB>text2"
PreparedTexts = PreparedExamples[TextClassificationDataset, list[str]]


class TextEncoder(ExampleEncoder[LabeledText]):
    """Encodes texts and pairs as rows of at most ``max_length`` tokens, with ``separators`` ends between two texts."""

    def __init__(self, tokenizer: Tokenizer, max_length: int, separators: int = 1, labels: Sequence[str] = ()) -> None:
        super().__init__(tokenizer)
        self.max_length, self.separators = max_length, separators
        self.label_ids = {label: id for id, label in enumerate(labels)}
        self.counts["labels"] = len(labels)

    def sizes(self) -> Mapping[str, int]:
        return {"texts": self.tokenizer.vocab_size, "labels": len(self.label_ids)}

    def rows(self, examples: Sequence[LabeledText]) -> tuple[list[list[int]], list[list[int]]]:
        rows = self.encode([line.text for line in examples], [line.text2 for line in examples])
        return rows, [[self.label_ids[line.label or ""]] for line in examples]

    def encode(self, texts: Sequence[str], texts2: Sequence[str | None]) -> list[list[int]]:
        """Return one row per text, or per pair if there is a second text; count truncated rows as ``cut_short``."""
        # Ids beyond the length of a row are never encoded.
        given = [text for text in texts2 if text is not None]
        seconds = iter(encode_prefixes(self.tokenizer, given, self.max_length))
        rows = []
        for ids, text2 in zip(encode_prefixes(self.tokenizer, texts, self.max_length), texts2, strict=True):
            row, cut = join(ids, None if text2 is None else next(seconds), self.max_length, self.separators)
            self.counts["cut_short"] += cut
            self.n_tokens += len(row)
            self.n_unknown += row.count(UNK_ID)
            rows.append(row)
        return rows


class TextCorpus(ExampleCorpus[LabeledText]):
    """The labeled lines of a run's tables."""

    unit, valid_option = "text", "--dev"

    def __init__(self, config: TextClassificationConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        super().__init__(config.data)
        self._config = config
        self.columns: dict[Path, Columns] = {}
        """Columns of each file read so far."""
        labels = (line.label or "" for line in self.first_pass(n_sampled))
        self._found, total = count_labels(labels, self.unit, config.data.files[0])
        self.labels: Labels = Labels(labels=sorted(self._found), columns=list(self.columns[self.paths[0]].taken))
        if known is not None:
            self.labels = inherited_labels(known, self.labels, config.data.files[0])
        self.hold_out(total)

    def read(self, paths: Sequence[Path]) -> Iterator[LabeledText]:
        for path in paths:
            table = LabeledTable(path)
            self.columns[path] = table.columns
            n, there = (len(self.columns[one].texts) for one in (path, self.paths[0]))
            if n != there:
                what = f"this file has {KINDS[n - 1]}, {self.paths[0]} has {KINDS[there - 1]}"
                raise DataError(what, where=f"{path}:1", help=_HEADER)
            for line in table:
                if paths is self.valid_paths:
                    check_valid_label(line.label, self._found, self.unit, f"{path}:{line.line}")
                yield line

    def content(self, example: LabeledText) -> Hashable:
        return example.text, example.text2

    def is_blank(self, example: LabeledText) -> bool:
        return not example.text.strip() and not (example.text2 or "").strip()

    def n_characters(self, example: LabeledText) -> int:
        return n_characters(example)

    def texts(self, examples: Iterable[LabeledText]) -> Iterator[str]:
        for line in examples:
            yield from (line.text,) if line.text2 is None else (line.text, line.text2)

    def display(self, example: LabeledText) -> list[str]:
        return [example.text if example.text2 is None else f"{example.text} ||| {example.text2}"]

    def messages(self) -> Iterator[StatusEvent]:
        yield from map(StatusEvent, dict.fromkeys(columns.message() for columns in self.columns.values()))

    def encoder(self, tokenizer: Tokenizer) -> TextEncoder:
        return TextEncoder(tokenizer, self._config.max_row_length, self._config.model.separators, self.labels.labels)

    def warnings(self, counts: Mapping[str, int]) -> Iterator[WarningEvent]:
        train, valid = counts["cut_short"], counts["cut_short_in_validation"]
        if train + valid:
            there = f"{train:,} of {counts['train']:,} texts, and {valid:,} of {counts['valid']:,} for validation,"
            what = f"{there} are longer than {self._config.max_row_length} tokens: their end is not read"
            yield WarningEvent(what)


def n_characters(line: LabeledText) -> int:
    """Return the length of both texts."""
    return len(line.text) + len(line.text2 or "")


def inherited_labels(known: Labels, found: Labels, where: str) -> Labels:
    """Return the labels of the initial run, by their ids, and the columns of the texts.

    Raises:
        DataError: a label is unknown, or single texts are given for pairs or vice versa.
    """
    check_known_labels(known, found.labels, where)
    if known.pairs is not None and known.pairs != found.pairs:
        what = f"this file has {KINDS[bool(found.pairs)]}, and the initial run was trained on {KINDS[known.pairs]}"
        raise DataError(what, where=f"{where}:1", help=_HEADER)
    return Labels(labels=known.labels, columns=found.columns)


class TextLabels(LabelType[TextClassificationConfig, PreparedTexts, SequenceClassifier]):
    """Texts and pairs of texts with a label each."""

    description, scored, example = "A classifier of texts", "accuracy and macro-averaged F1 in percent", "texts.txt"
    has_pooler = True

    def corpus(self, config: TextClassificationConfig, known: Labels | None, n_sampled: int) -> TextCorpus:
        return TextCorpus(config, known, n_sampled)

    def load(self, config: TextClassificationConfig, folder: Path) -> PreparedTexts:
        return load_examples(folder, lambda path, _: TextClassificationDataset(path, config.model.separators), list)

    def model(self, config: TextClassificationConfig, vocab_size: int, n_labels: int) -> SequenceClassifier:
        return SequenceClassifier(config.model, vocab_size, n_labels)

    def logits(self, model: SequenceClassifier, batch: TextBatch) -> Tensor:
        found: Tensor = model(*batch.inputs)  # (B, labels)
        return found

    def evaluation(
        self, config: TextClassificationConfig, data: PreparedTexts, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return ClassificationEvaluation(data, device, config.evaluation.n_samples, stop, self.logits)


TASK = FinetuningTask(TextLabels())
