"""Classification of texts and text pairs: training data, task and predictor."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples, load_examples
from attnkit.data.labels import Labels, check_known_labels, check_valid_label, count_labels
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.data.text_classification import LabeledRows, TextBatch, join, text_batch, text_rows
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.examples import ClassificationEvaluation, chance_warnings, in_batches
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import Format, Predictor, PredictRequest, Warn, line_ref, truncation_warning
from attnkit.engine.task import Evaluation, Stop, TrainingOutcome
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.models.bert import SequenceClassifier
from attnkit.protocols import UNK_ID
from attnkit.tasks.finetuning.config import TextClassificationConfig
from attnkit.tasks.finetuning.task import ADVICE, FinetuningTask, LabelType
from attnkit.text.documents import KINDS, Columns, LabeledTable, LabeledText
from attnkit.text.long_lines import encode_prefixes
from attnkit.text.tokenizer import Tokenizer

_HEADER = "begin each file with the same header: label<TAB>text or label<TAB>text<TAB>text2"
PreparedTexts = PreparedExamples[LabeledRows, list[str]]


class TextEncoder(ExampleEncoder[LabeledText]):
    """Encoder of texts and text pairs; ``separators`` end symbols divide a pair."""

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
        """Return one row per text or text pair; count truncated ones as ``cut_short``."""
        # Text beyond the maximum length of a row is not encoded.
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
    """Corpus of labeled texts and text pairs from tables."""

    unit, valid_option = "text", "--dev"

    def __init__(self, config: TextClassificationConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        super().__init__(config.data)
        self._config = config
        self.columns: dict[Path, Columns] = {}  #: columns of each file read so far
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
                    check_valid_label(line.label, self._found, f"{path}:{line.line}")
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
            there = f"{train:,} of {counts['train']:,} training and {valid:,} of {counts['valid']:,} validation texts"
            what = f"{there} are longer than {self._config.max_row_length} tokens and are truncated"
            yield WarningEvent(what)


def n_characters(line: LabeledText) -> int:
    """Return the total number of characters of both texts."""
    return len(line.text) + len(line.text2 or "")


def inherited_labels(known: Labels, found: Labels, where: str) -> Labels:
    """Return known labels with the columns found. Raises ``DataError`` on a mismatch."""
    check_known_labels(known, found.labels, where)
    if known.pairs is not None and known.pairs != found.pairs:
        what = f"this file has {KINDS[bool(found.pairs)]}, but the initial run was trained on {KINDS[known.pairs]}"
        raise DataError(what, where=f"{where}:1", help=_HEADER)
    return Labels(labels=known.labels, columns=found.columns)


class TextLabels(LabelType[TextClassificationConfig, PreparedTexts, SequenceClassifier]):
    """One label per text or text pair."""

    description, scored, example = "A text classifier", "accuracy and macro-averaged F1 in percent", "texts.txt"
    has_pooler, corpus = True, TextCorpus

    def load(self, config: TextClassificationConfig, folder: Path) -> PreparedTexts:
        return load_examples(folder, lambda path, _: text_rows(path, config.model.separators), list)

    def model(self, config: TextClassificationConfig, vocab_size: int, n_labels: int) -> SequenceClassifier:
        return SequenceClassifier(config.model, vocab_size, n_labels)

    def logits(self, model: SequenceClassifier, batch: TextBatch) -> Tensor:
        found: Tensor = model(*batch.inputs)  # (B, labels)
        return found

    def evaluation(
        self, config: TextClassificationConfig, data: PreparedTexts, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return ClassificationEvaluation(data, device, config.evaluation.n_samples, stop, self.logits)

    def outcome_warnings(
        self, config: TextClassificationConfig, data: PreparedTexts, outcome: TrainingOutcome
    ) -> Iterator[str]:
        counts = data.valid.label_counts(len(data.labels))
        return chance_warnings(data.labels, counts, outcome.scores, ADVICE[config.finetuning.from_scratch])


class TextClassificationPredictor(Predictor):
    """Predictor of ``attnkit predict`` for text classification."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        self.label_file, config = read_labels(opened.checkpoint), opened.config
        self.labels = self.label_file.labels
        self.reader = TextEncoder(read_tokenizer(opened.checkpoint), config.max_row_length, config.model.separators)
        pairs, asked = self.label_file.pairs, request.format
        if pairs is not None and asked == ("lines" if pairs else "pairs"):
            what = f"this run was trained on {KINDS[pairs]}, but --format {asked} reads {KINDS[not pairs]}"
            raise UsageError(what, where="--format", help=f"use --format {'pairs' if pairs else 'lines'} or table")

    def classify(self, texts: Sequence[str], texts2: Sequence[str | None]) -> list[list[float]]:
        """Return label probabilities of each text, or pair if ``texts2`` has a text.

        Each result depends only on its own text or pair.
        """
        rows = self.reader.encode(texts, texts2)

        def compute(indices: list[int]) -> list[list[float]]:
            batch = text_batch([rows[i] for i in indices], self.reader.separators).to(self.opened.device)
            with torch.inference_mode():
                logits = self.opened.model(*batch.inputs)
                found: list[list[float]] = logits.float().softmax(-1).tolist()
            return found

        return in_batches([len(row) for row in rows], self.request.batch_tokens, compute)

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield batches of output lines, one per text; table headers are skipped."""
        if format == "table":
            batches = self.batches(path, self._table(path), n_characters)
        else:
            pairs = format == "pairs" or (self.request.format == "auto" and bool(self.label_file.pairs))
            batches = self.read(path, partial(self._texts, path, pairs), n_characters)
        for batch in batches:
            rows = self.classify([one.text for one in batch], [one.text2 for one in batch])
            yield [
                self.label_line(row, one.label, f"{one.text} {one.text2}" if one.text2 else one.text)
                for one, row in zip(batch, rows, strict=True)
            ]

    def _texts(self, path: Path, pairs: bool, lines: Iterable[str]) -> Iterator[LabeledText]:
        """Yield lines as texts, with a warning at the first tab, or as pairs of texts."""
        warned = False
        for number, line in enumerate(lines, 1):
            if not pairs:
                if "\t" in line and not warned:
                    warned = True
                    where = line_ref(path, number)
                    self.warn(f"{where} contains a tab but is read as text; for columns use --format pairs or table")
                yield LabeledText(line, None, None, number)
                continue
            parts = line.split("\t") if line else ["", ""]
            if len(parts) != 2:
                what = f"this line has {len(parts)} column{'s'[: len(parts) != 1]}, expected two"
                raise DataError(what, where=f"{path}:{number}", help="separate two texts by one tab")
            yield LabeledText(parts[0], parts[1], None, number)

    def _table(self, path: Path) -> Iterator[LabeledText]:
        """Yield the rows of a table; report the choice of columns if names are unusual."""
        known = self.label_file
        table = LabeledTable(path, labeled=self.request.gold, trained=known.columns or ())
        columns = table.columns
        pairs = len(columns.texts) == 2
        if known.pairs is not None and pairs != known.pairs:
            there = f"the run was trained on {KINDS[known.pairs]}"
            what = f"this table has {KINDS[pairs]}, but {there}: {columns.message()}"
            help = "name the columns in the first line: " + "<TAB>".join(("text", "text2")[: 1 + known.pairs])
            raise DataError(what, where=f"{path}:1", help=help)
        usual = {"label", "text", "text2", *(known.columns or ())}
        if not {name.lower() for name in columns.names} <= {name.lower() for name in usual}:
            self.warn(f"{line_ref(path, 1)}: {columns.message()}")
        yield from table

    def warnings(self) -> list[str]:
        """Return warnings about truncated texts and gold labels unknown to the model."""
        cut = truncation_warning(self.reader.counts["cut_short"], "text", self.opened.config.max_row_length)
        return cut + super().warnings()


TASK = FinetuningTask(TextLabels())
