"""Labels of a text classifier for texts or pairs of texts, in lines or in tables with a header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from attnkit.data.text_classification import text_batch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.examples import in_batches
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import (
    READ_AHEAD,
    Format,
    GoldLabels,
    Predictor,
    PredictRequest,
    Totals,
    Warn,
    line_ref,
    truncation_warning,
)
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.tasks.finetuning.text_classification import TextEncoder, n_characters
from attnkit.text.documents import KINDS, LabeledTable, LabeledText
from attnkit.text.lines import flush_interval, line_batches


class TextClassifier:
    """Classifies texts. Each result depends on its own text alone."""

    def __init__(self, opened: LoadedModel, batch_tokens: int = 16384) -> None:
        self.opened = opened
        self.label_file = read_labels(opened.checkpoint)
        self.labels = self.label_file.labels
        config = opened.config
        self.reader = TextEncoder(read_tokenizer(opened.checkpoint), config.max_row_length, config.model.separators)
        self._batch_tokens = batch_tokens

    def classify(self, texts: Sequence[str], texts2: Sequence[str | None]) -> list[list[float]]:
        """Return the probability of each label for each text, or pair of texts if ``texts2`` has one."""
        rows = self.reader.encode(texts, texts2)

        def compute(indices: list[int]) -> list[list[float]]:
            batch = text_batch([rows[i] for i in indices], self.reader.separators).to(self.opened.device)
            with torch.inference_mode():
                logits = self.opened.model(*batch.inputs)
                found: list[list[float]] = logits.float().softmax(-1).tolist()
            return found

        return in_batches([len(row) for row in rows], self._batch_tokens, compute)


class TextClassificationPredictor(Predictor):
    """``attnkit predict`` for text classification."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        self.classifier = TextClassifier(self.opened, self.request.batch_tokens)
        self.gold = GoldLabels(self.classifier.labels)
        pairs, asked = self.classifier.label_file.pairs, self.request.format
        if pairs is not None and asked == ("lines" if pairs else "pairs"):
            what = f"this run was trained on {KINDS[pairs]}, but --format {asked} reads {KINDS[not pairs]}"
            raise UsageError(what, where="--format", help=f"use --format {'pairs' if pairs else 'lines'} or table")

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield one line per text; none for the header of a table."""
        if format == "table":
            for window in line_batches(self._table(path), READ_AHEAD, flush_interval(path), n_characters):
                yield self._label(window)
            return
        if self.request.format == "auto" and self.classifier.label_file.pairs:
            format = "pairs"
        parse = self._pairs if format == "pairs" else self._singles
        for texts in self.read(path, partial(parse, path), n_characters):
            yield self._label(texts)

    def _singles(self, path: Path, lines: Iterable[str]) -> Iterator[LabeledText]:
        """Yield each line as a text; warn of the first tab, which does not separate columns here."""
        warned = False
        for number, line in enumerate(lines, 1):
            if "\t" in line and not warned:
                warned = True
                where = line_ref(path, number)
                self.warn(f"{where} holds a tab and is read as one text; --format pairs or table reads columns")
            yield LabeledText(line, None, None, number)

    def _pairs(self, path: Path, lines: Iterable[str]) -> Iterator[LabeledText]:
        """Yield each line as two texts, a blank line as two blank ones. Raises ``DataError`` for other numbers."""
        for number, line in enumerate(lines, 1):
            parts = line.split("\t") if line else ["", ""]
            if len(parts) != 2:
                what = f"this line has {len(parts)} column{'s'[: len(parts) != 1]}, not two"
                raise DataError(what, where=f"{path}:{number}", help="separate two texts by one tab")
            yield LabeledText(parts[0], parts[1], None, number)

    def _table(self, path: Path) -> Iterator[LabeledText]:
        """Yield the rows of a table; warn of the choice of columns unless their names are the usual ones."""
        known = self.classifier.label_file
        table = LabeledTable(path, labeled=self.request.gold, trained=known.columns or ())
        columns = table.columns
        pairs = len(columns.texts) == 2
        if known.pairs is not None and pairs != known.pairs:
            what = (
                f"this table has {KINDS[pairs]}, but the run was trained on {KINDS[known.pairs]}: {columns.message()}"
            )
            help = "name the columns in the first line: " + "<TAB>".join(("text", "text2")[: 1 + known.pairs])
            raise DataError(what, where=f"{path}:1", help=help)
        usual = {"label", "text", "text2", *(known.columns or ())}
        if not {name.lower() for name in columns.names} <= {name.lower() for name in usual}:
            self.warn(f"{line_ref(path, 1)}: {columns.message()}")
        yield from table

    def _label(self, given: Sequence[LabeledText]) -> list[str]:
        found = self.classifier.classify([one.text for one in given], [one.text2 for one in given])
        return [self.gold.format(self.request, row, one.label) for one, row in zip(given, found, strict=True)]

    def warnings(self) -> list[str]:
        """Return warnings on truncated texts and on gold labels that the model does not know."""
        cut = truncation_warning(self.classifier.reader.counts["cut_short"], "text", self.opened.config.max_row_length)
        return cut + self.gold.warnings()

    def totals(self) -> Totals:
        """Return accuracy, macro-averaged F1, and the scores of each label."""
        return self.gold.totals()
