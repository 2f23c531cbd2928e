"""Tags of a token-classification run for lines of words or CoNLL columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import LoadedModel
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import UsageError
from attnkit.metrics.labels import confusion, label_scores, rounded
from attnkit.metrics.spans import span_scores
from attnkit.protocols import entities
from attnkit.tasks.finetuning.predict import (
    READ_AHEAD,
    Format,
    PredictRequest,
    Totals,
    Warn,
    as_json,
    in_batches,
    label_probabilities,
    line_ref,
    unknown_labels,
)
from attnkit.tasks.finetuning.token_classification import tag_logits
from attnkit.tasks.finetuning.token_classification_data import scheme_of, word_rows
from attnkit.text.conll import Block, convert, read_blocks, write_tags
from attnkit.text.line_stream import encoding_warnings, flush_interval, line_batches
from attnkit.text.lines import STDIN, LineReader

Probabilities = npt.NDArray[np.float32]
Words = Sequence[str]


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence with predicted tags."""

    words: Words
    tags: list[str]
    probabilities: Probabilities
    """(words, tags)."""

    def as_dictionary(self, labels: Sequence[str], every: bool) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        found = {
            "words": list(self.words),
            "tags": self.tags,
            "probabilities": [rounded(row) for row in self.probabilities.max(axis=1, initial=0).tolist()],
            "entities": [
                {**entity._asdict(), "text": " ".join(self.words[entity.begin : entity.end])}
                for entity in entities(self.tags)
            ],
        }
        return (
            {**found, "all": [label_probabilities(labels, row) for row in self.probabilities.tolist()]}
            if every
            else found
        )


class TaggingPipeline:
    """Tags words. Each result depends on its own sentence alone."""

    def __init__(self, opened: LoadedModel, batch_tokens: int = 16384) -> None:
        self.opened = opened
        self.labels = read_labels(opened.checkpoint)
        self._tokenizer, self._batch_tokens = read_tokenizer(opened.checkpoint), batch_tokens

    def tag(self, sentences: Sequence[Words]) -> list[TaggedSentence]:
        """Return the tags of each sentence's words."""
        names, found = self.labels.labels, []
        for words, table in zip(sentences, self._probabilities(sentences), strict=True):
            found.append(TaggedSentence(words, [names[i] for i in table.argmax(axis=1).tolist()], table))
        return found

    def _probabilities(self, sentences: Sequence[Words]) -> list[Probabilities]:
        """Return the probabilities (N, L) of the tags of each sentence's words."""
        full = [words for words in sentences if words]
        nothing = np.empty((0, len(self.labels.labels)), np.float32)
        if not full:
            return [nothing for _ in sentences]
        rows = word_rows(self._tokenizer, full, self.opened.config.max_row_length)

        def compute(indices: list[int]) -> list[Probabilities]:
            batch = rows.batch(np.array(indices, np.int64)).to(self.opened.device)
            with torch.inference_mode():
                found: Probabilities = tag_logits(self.opened.model, batch).softmax(-1).cpu().numpy()
            owners = (batch.firsts // batch.ids.shape[1]).cpu().numpy()
            return np.split(found, np.searchsorted(owners, np.arange(1, len(indices))))

        # The words of all rows, end to end, are those of all sentences.
        together = np.concatenate(in_batches(rows.lengths[0].tolist(), self._batch_tokens, compute))
        each = iter(np.split(together, np.cumsum([len(words) for words in full])[:-1]))
        return [next(each) if words else nothing for words in sentences]


@dataclass
class TokenClassificationPredictor:
    """``attnkit predict`` for token classification; satisfies ``predict.Predictor``."""

    opened: LoadedModel
    request: PredictRequest
    warn: Warn
    found: list[list[str]] = field(default_factory=list)
    """Predicted tags of the sentences with gold tags so far."""
    expected: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.request.all_labels and not self.request.as_json:
            what = "the probabilities of all tags are shown as JSON only"
            help = "add --json, which gives that of each tag found even without --all"
            raise UsageError(what, where="--all", help=help)
        self.tagger = TaggingPipeline(self.opened, self.request.batch_tokens)
        self.scheme = scheme_of(self.tagger.labels)

    def lines(self, path: Path, format: Format) -> Iterator[list[str]]:
        """Yield one line of tags per line of words, or CoNLL columns with a column added."""
        if format == "conll":
            blocks = read_blocks(path, tagged=self.request.gold)
            for window in line_batches(
                blocks, READ_AHEAD, flush_interval(path), lambda block: sum(map(len, block.words))
            ):
                yield list(self._columns(window))
            return
        reader = LineReader(path, on_bad="refuse" if self.request.strict else "replace")
        n_before, fault = 0, None
        for lines in line_batches(reader, READ_AHEAD, flush_interval(path)):
            if fault is None and (fault := _columns_warning(lines, path, n_before, set(self.tagger.labels.labels))):
                self.warn(fault)
            n_before += len(lines)
            found = self.tagger.tag([line.split() for line in lines])
            yield [self._json(one) if self.request.as_json else " ".join(one.tags) for one in found]
        for message in encoding_warnings(reader.counts, path):
            self.warn(message)

    def _columns(self, blocks: Sequence[Block]) -> Iterator[str]:
        for block, one in zip(blocks, self.tagger.tag([block.words for block in blocks]), strict=True):
            if block.words and self.request.gold:
                self.found.append(one.tags)
                self.expected.append(convert(block.tags, self.scheme))
            if not self.request.as_json:
                yield from write_tags(block, one.tags)
            elif block.words:
                yield self._json(one, self.expected[-1] if self.request.gold else None)

    def _json(self, one: TaggedSentence, expected: list[str] | None = None) -> str:
        plain = one.as_dictionary(self.tagger.labels.labels, self.request.all_labels)
        return as_json(plain if expected is None else {**plain, "expected": expected})

    def warnings(self) -> list[str]:
        """Return a warning on gold tags that the model does not know."""
        known = set(self.tagger.labels.labels)
        return unknown_labels(Counter(tag for tags in self.expected for tag in tags if tag not in known))

    def totals(self) -> Totals:
        """Return the scores of entities, or of tags that name no entities."""
        found, expected = (list(chain.from_iterable(part)) for part in (self.found, self.expected))
        counts = {"sentences": len(self.expected), "words": len(expected)}
        told = f"{counts['sentences']:,} sentences, {counts['words']:,} words"
        if not self.expected:
            return Totals(counts, told)
        taken = confusion(found, expected, list(dict.fromkeys([*self.tagger.labels.labels, *expected])))
        plain: dict[str, Any] = {**counts, "accuracy": taken.accuracy}
        where = {"confusion": {"labels": list(taken.labels), "counts": taken.counts.tolist()}}
        if self.scheme == "plain":
            macro = label_scores(found, expected).macro_f1
            told = f"{told}, accuracy {taken.accuracy:.2f} %, macro F1 {macro:.2f} %"
            return Totals({**plain, "macro_f1": macro, **where}, told, confusion=taken)
        scores = span_scores(self.found, self.expected)
        parts = {"entities": scores.all, **scores.by_type}
        table = [("", "precision", "recall", "F1", "expected", "found")]
        table += [
            (name, f"{p.precision:.2f}", f"{p.recall:.2f}", f"{p.f1:.2f}", f"{p.expected:,}", f"{p.found:,}")
            for name, p in parts.items()
        ]
        rates = {n: {**asdict(p), "precision": p.precision, "recall": p.recall, "f1": p.f1} for n, p in parts.items()}
        plain |= {**rates.pop("entities"), "types": rates}
        return Totals(
            {**plain, **where}, f"{told}, F1 {scores.all.f1:.2f} %, {taken.accuracy:.2f} % right", table, taken
        )


def _columns_warning(lines: Sequence[str], path: Path, n_before: int, labels: Collection[str]) -> str | None:
    """Return a warning if a line holds a tab or most lines end in tags; ``n_before`` lines precede them."""
    number = next((i for i, line in enumerate(lines, n_before + 1) if "\t" in line), None)
    if number is not None:
        return f"{line_ref(path, number)} holds a tab and is read as a sentence; --format conll reads columns"
    rows = [words for line in lines if (words := line.split())]
    tagged = [words for words in rows if len(words) > 1 and words[-1] in labels]
    if len(tagged) < 2 or 2 * len(tagged) <= len(rows) or len(set(map(len, tagged))) > 1:
        return None
    shown = f"'{' '.join(tagged[0])}'"
    whose = "standard input" if path == STDIN else str(path)
    return f"lines of {whose} end in a tag, as {shown}, and are read as sentences; --format conll reads columns"
