"""Predicted tags of a token-classification run, for lines or CoNLL columns."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import LoadedModel
from attnkit.engine.predict import Format, Predictor, PredictRequest, Totals, Warn, line_ref, unknown_labels
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.metrics.labels import confusion, label_scores, rounded, span_scores
from attnkit.protocols import entities
from attnkit.tasks.finetuning.token_classification import for_each_word, word_rows
from attnkit.text.conll import Block, convert, label_scheme, read_blocks, write_tags
from attnkit.text.files import STDIN

Probabilities = npt.NDArray[np.float32]
Words = Sequence[str]


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with predicted tags."""

    words: Words
    tags: list[str]
    probabilities: Probabilities  #: (words, tags)


class TokenClassificationPredictor(Predictor):
    """Predictor of ``attnkit predict`` for token classification."""

    def __init__(self, opened: LoadedModel, request: PredictRequest, warn: Warn) -> None:
        super().__init__(opened, request, warn)
        if request.all_labels and not request.as_json:
            what = "--all requires --json"
            help = "add --json, or leave out --all"
            raise UsageError(what, where="--all", help=help)
        self.labels, self.tokenizer = read_labels(opened.checkpoint).labels, read_tokenizer(opened.checkpoint)
        self.scheme = label_scheme(self.labels)

    def tag(self, sentences: Sequence[Words]) -> list[TaggedSentence]:
        """Predict tags for sentences; each result depends only on its own sentence."""
        opened, full = self.opened, [words for words in sentences if words]
        tables: Iterator[Probabilities] = iter(())
        if full:
            rows, most = word_rows(self.tokenizer, full, opened.config.max_row_length), self.request.batch_tokens
            shares = for_each_word(opened.model, rows, opened.device, most, lambda logits, batch: logits.softmax(-1))
            tables = iter(shares)
        found, nothing = [], np.empty((0, len(self.labels)), np.float32)
        for words in sentences:
            table = next(tables) if words else nothing  # (words, tags)
            found.append(TaggedSentence(words, [self.labels[i] for i in table.argmax(axis=1).tolist()], table))
        return found

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield batches of output lines: tags, JSON, or CoNLL with a predicted column."""
        if format == "conll":
            blocks = read_blocks(path, tagged=self.request.gold)
            for part in self.batches(path, blocks, lambda block: sum(map(len, block.words))):
                yield list(self._columns(part))
            return
        n_before, warning = 0, None
        for lines in self.read(path, iter):
            if warning is None and (warning := _columns_warning(lines, path, n_before, set(self.labels))):
                self.warn(warning)
            n_before += len(lines)
            found = self.tag([line.split() for line in lines])
            yield [self._json(one) if self.request.as_json else " ".join(one.tags) for one in found]

    def _columns(self, blocks: Sequence[Block]) -> Iterator[str]:
        for block, one in zip(blocks, self.tag([block.words for block in blocks]), strict=True):
            if block.words and self.request.gold:
                self.found.append(one.tags)
                self.expected.append(convert(block.tags, self.scheme))
            if not self.request.as_json:
                yield from write_tags(block, one.tags)
            elif block.words:
                yield self._json(one, self.expected[-1] if self.request.gold else None)

    def _json(self, one: TaggedSentence, expected: list[str] | None = None) -> str:
        tree: dict[str, Any] = {
            "words": list(one.words),
            "tags": one.tags,
            "probabilities": [rounded(row) for row in one.probabilities.max(axis=1, initial=0).tolist()],
            "entities": [
                {**entity._asdict(), "text": " ".join(one.words[entity.begin : entity.end])}
                for entity in entities(one.tags)
            ],
        }
        tree |= {"all": [self.shares(row) for row in one.probabilities.tolist()]} if self.request.all_labels else {}
        tree |= {} if expected is None else {"expected": expected}
        return json.dumps(tree, ensure_ascii=False)

    def warnings(self) -> list[str]:
        """Return a warning about gold tags unknown to the model."""
        return unknown_labels(self.labels, chain.from_iterable(self.expected))

    def totals(self) -> Totals:
        """Return entity scores, or word scores if the tags name no entities."""
        found, expected = (list(chain.from_iterable(part)) for part in (self.found, self.expected))
        plain: dict[str, Any] = {"sentences": len(self.expected), "words": len(expected)}
        headline = f"{len(self.expected):,} sentences, {len(expected):,} words"
        if not self.expected:
            return Totals(plain, headline)
        counted = confusion(found, expected, list(dict.fromkeys([*self.labels, *expected])))
        plain["accuracy"] = counted.accuracy
        where = {"confusion": {"labels": list(counted.labels), "counts": counted.counts.tolist()}}
        if self.scheme == "plain":
            macro = label_scores(found, expected).macro_f1
            headline = f"{headline}, accuracy {counted.accuracy:.2f} %, macro F1 {macro:.2f} %"
            return Totals({**plain, "macro_f1": macro, **where}, headline, confusion=counted)
        scores = span_scores(self.found, self.expected)
        table = [("", "precision", "recall", "F1", "expected", "found")]
        table += [
            (name, f"{p.precision:.2f}", f"{p.recall:.2f}", f"{p.f1:.2f}", f"{p.expected:,}", f"{p.found:,}")
            for name, p in {"entities": scores.all, **scores.by_type}.items()
        ]
        types = {name: {**asdict(part), **part.to_dict()} for name, part in scores.by_type.items()}
        plain |= {**asdict(scores.all), **scores.all.to_dict(), "types": types, **where}
        return Totals(plain, f"{headline}, F1 {scores.all.f1:.2f} %, accuracy {counted.accuracy:.2f} %", table, counted)


def _columns_warning(lines: Sequence[str], path: Path, n_before: int, labels: Collection[str]) -> str | None:
    """Return a warning if lines look like columns: tabs, or tags as last words."""
    number = next((i for i, line in enumerate(lines, n_before + 1) if "\t" in line), None)
    if number is not None:
        return f"{line_ref(path, number)} contains a tab but is read as a sentence; for columns use --format conll"
    rows = [words for line in lines if (words := line.split())]
    tagged = [words for words in rows if len(words) > 1 and words[-1] in labels]
    if len(tagged) < 2 or 2 * len(tagged) <= len(rows) or len(set(map(len, tagged))) > 1:
        return None
    shown = f"'{' '.join(tagged[0])}'"
    whose = "standard input" if path == STDIN else str(path)
    return f"lines of {whose} end in a tag, e.g. {shown}, but are read as sentences; for columns use --format conll"
