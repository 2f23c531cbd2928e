"""Token classification: training data, predicted tags, evaluation and task.

Entity tags are learned in BIO, or in BIOES or BILOU if the data uses them. Other tags, such as parts of speech, are
learned unchanged.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnkit.data.corpus import ExampleCorpus, ExampleEncoder, PreparedExamples, load_examples
from attnkit.data.labels import MAX_LABELS, Labels, check_known_labels
from attnkit.data.prepared_dir import WarningEvent
from attnkit.data.store import Store
from attnkit.data.windows import (
    UNKNOWN,
    InMemoryTokens,
    TagBatch,
    TokenClassificationDataset,
    first_subword_mask,
    n_marks,
    with_tokens,
)
from attnkit.engine.events import Sample
from attnkit.engine.examples import chance_warnings, in_batches, to_float32
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import Evaluation, Stop, TrainingOutcome
from attnkit.errors import DataError
from attnkit.metrics.labels import span_scores
from attnkit.models.bert import TokenTagger
from attnkit.models.linear import without_dropout
from attnkit.protocols import OUTSIDE, UNK_ID, entities, split_tag
from attnkit.tasks.finetuning.config import TokenClassificationConfig
from attnkit.tasks.finetuning.task import ADVICE, FinetuningTask, LabelType
from attnkit.text.conll import LETTERS, Scheme, convert, label_scheme, read_sentences, summarize_tags, tag_warnings
from attnkit.text.offsets import EncodedWords, encode_words
from attnkit.text.tokenizer import Tokenizer

_BATCH_TOKENS = 4096
Sentence = tuple[tuple[str, ...], tuple[str, ...]]  #: words and tags
PreparedTags = PreparedExamples[TokenClassificationDataset, list[Sentence]]


def encode_sentences(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """Encode sentences, with at least one token per word."""
    return [with_tokens(words) for words in encode_words(tokenizer, sentences)]


class TagEncoder(ExampleEncoder[Sentence]):
    """Encoder of sentences into tokens, and marks of first subwords with their tags."""

    def __init__(self, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(tokenizer)
        self.tag_ids = {label: id for id, label in enumerate(labels.labels)}
        self.counts["tags"] = len(self.tag_ids)

    def sizes(self) -> Mapping[str, int]:
        return {"tokens": self.tokenizer.vocab_size, "marks": n_marks(len(self.tag_ids))}

    def rows(self, examples: Sequence[Sentence]) -> tuple[list[list[int]], list[list[int]]]:
        tokens: list[list[int]] = []
        marks: list[list[int]] = []
        sentences = encode_sentences(self.tokenizer, [words for words, _ in examples])
        for words, (_, tags) in zip(sentences, examples, strict=True):
            self.counts["words"] += len(tags)
            self.n_tokens += len(words.ids)
            self.n_unknown += int((words.ids == UNK_ID).sum())
            tokens.append(words.ids.tolist())
            marks.append(first_subword_mask(words, [self.tag_ids.get(tag, UNKNOWN) for tag in tags]).tolist())
        return tokens, marks


class TagCorpus(ExampleCorpus[Sentence]):
    """Corpus of tagged sentences, with tags converted to one scheme."""

    unit, valid_option = "sentence", "--dev"
    n_symbols = 2

    def __init__(self, config: TokenClassificationConfig, known: Labels | None = None, n_sampled: int = 0) -> None:
        """Read all tags; keep the words of ``n_sampled`` sentences in ``samples``.

        ``known`` holds the tags of the initial run, whose scheme is kept. Raises ``DataError`` for other tags.
        """
        super().__init__(config.data)
        where, words = config.data.files[0], list[Sequence[str]]()
        seen, seen_valid = summarize_tags(self.paths, words, n_sampled), summarize_tags(self.valid_paths)
        scheme = seen.scheme()
        if scheme == "plain":
            shown = ", ".join(f"'{tag}'" for tag in sorted(seen.invalid_tags())[:3])
            what = f"tags such as {shown} are not in BIO format (e.g. 'B-PER'); F1 is word accuracy"
            self._tag_warnings = [what]
        else:
            seen.check_tags()
            seen_valid.check_tags()
            self._tag_warnings = tag_warnings(scheme, seen, seen_valid)
        self._scheme: Scheme = "bio" if scheme == "iob1" else scheme
        self.labels: Labels = Labels(labels=_complete(set(seen.tags), self._scheme, where))
        if known is not None:
            self._scheme, self.labels = label_scheme(known.labels), known
            check_known_labels(known, sorted({tag for _, tags in self.read(self.paths) for tag in tags}), where, "tag")
        self.hold_out(seen.n_sentences)
        sample = [(tuple(one), ("",) * len(one)) for one in words]
        self.samples = [(sample, seen.n_sentences - len(self.held_out), len(sample))]

    def read(self, paths: Sequence[Path]) -> Iterator[Sentence]:
        for path in paths:
            for block in read_sentences(path):
                yield block.words, tuple(convert(block.tags, self._scheme))

    def content(self, example: Sentence) -> Hashable:
        return example[0]

    def texts(self, examples: Iterable[Sentence]) -> Iterator[str]:
        return (" ".join(words) for words, _ in examples)

    def display(self, example: Sentence) -> list[str]:
        return [*(f"{word}\t{tag}" for word, tag in zip(*example, strict=True)), ""]

    def messages(self) -> Iterator[WarningEvent]:
        """Yield warnings about unknown, ill-formed and non-entity tags."""
        strange = sorted({tag for _, tags in self.valid for tag in tags} - set(self.labels.labels))
        if strange:
            shown = ", ".join(f"'{tag}'" for tag in strange[:3])
            what = f"tag {shown} does not occur in the training data; words with this tag will be mispredicted"
            yield WarningEvent(what)
        yield from map(WarningEvent, self._tag_warnings)

    def encoder(self, tokenizer: Tokenizer) -> TagEncoder:
        return TagEncoder(tokenizer, self.labels)


def _complete(tags: set[str], scheme: Scheme, where: str) -> list[str]:
    """Return the tags to learn: all tags of the scheme per type, or the plain tags."""
    if not tags:
        raise DataError("no sentences in this file", where=where)
    if len(tags) < 2:
        what = f"every word has the tag '{next(iter(tags))}'"
        raise DataError(what, where=where, help="a tagger needs at least two tags, given in the last column")
    labels = sorted(tags)
    if scheme != "plain":
        types = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
        labels = [OUTSIDE, *(f"{letter}-{type}" for type in types for letter in LETTERS[scheme])]
    if len(labels) > MAX_LABELS:
        raise DataError(f"there are more than {MAX_LABELS:,} tags", where=where)
    return labels


def word_rows(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], longest: int) -> TokenClassificationDataset:
    """Return untagged sentences as rows of at most ``longest`` tokens."""
    encoded = encode_sentences(tokenizer, sentences)
    texts = InMemoryTokens([words.ids.tolist() for words in encoded])
    marks = InMemoryTokens([first_subword_mask(words).tolist() for words in encoded])
    return TokenClassificationDataset(texts, marks, longest)


def tag_logits(model: TokenTagger, batch: TagBatch) -> Tensor:
    """Return logits (N, tags) of the N words of a batch, at least float32."""
    return to_float32(model(batch.ids, batch.real).flatten(0, 1).index_select(0, batch.firsts))


def for_each_word(
    model: TokenTagger,
    rows: TokenClassificationDataset,
    device: torch.device,
    n_tokens: int,
    compute: Callable[[Tensor, TagBatch], Tensor],
    stop: Stop | None = None,
) -> list[NDArray[Any]]:
    """Return the results of ``compute`` for the words of each sentence.

    ``compute`` maps the logits (N, tags) of the N words of a batch to results (N, ...). Batches have about ``n_tokens``
    tokens. Raises ``EvaluationCancelled`` if stopped.
    """

    def of_rows(indices: list[int]) -> list[NDArray[Any]]:
        batch = rows.batch(np.array(indices, np.int64)).to(device)
        found = compute(tag_logits(model, batch), batch).cpu().numpy()
        owners = (batch.firsts // batch.ids.shape[1]).cpu().numpy()
        return np.split(found, np.searchsorted(owners, np.arange(1, len(indices))))

    with without_dropout(model), torch.inference_mode():
        # Concatenated, the words of all rows are the words of all sentences.
        together = np.concatenate(in_batches(rows.lengths[0].tolist(), n_tokens, of_rows, stop))
    return np.split(together, np.cumsum(rows.count_words())[:-1])


@dataclass
class TokenClassificationEvaluation:
    """Word and entity scores on the development set."""

    prepared: PreparedTags
    device: torch.device
    n_samples: int
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: (words, gold, predicted), as entities or as plain tags

    def __call__(self, model: TokenTagger) -> dict[str, float]:
        """Return ``loss`` in nats per word, and the other metrics in percent."""
        labels, sentences = self.prepared.labels, self.prepared.valid_examples
        nll, n_known = 0.0, 0

        def predict(logits: Tensor, batch: TagBatch) -> Tensor:
            nonlocal nll, n_known
            nll += float(F.cross_entropy(logits, batch.labels, ignore_index=UNKNOWN, reduction="sum"))
            n_known += int((batch.labels != UNKNOWN).sum())
            return logits.softmax(-1).argmax(-1)

        tags = for_each_word(model, self.prepared.valid, self.device, _BATCH_TOKENS, predict, self.stop)
        found = [[labels[tag] for tag in part.tolist()] for part in tags]
        plain = label_scheme(labels) == "plain"
        self.samples = []
        for i in sample_indices(len(found), self.n_samples):
            words, gold = sentences[i]
            self.samples.append((" ".join(words), _shown(words, gold, plain), _shown(words, found[i], plain)))
        scores = span_scores(found, [tags for _, tags in sentences])
        whole = (scores.all.precision, scores.all.recall, scores.all.f1)
        precision, recall, f1 = [scores.accuracy] * 3 if plain else whole
        loss = nll / max(1, n_known)
        return {"loss": loss, "accuracy": scores.accuracy, "precision": precision, "recall": recall, "f1": f1}


def _shown(words: Sequence[str], tags: Sequence[str], plain: bool) -> str:
    if plain:
        return " ".join(tags)
    return "; ".join(f"{one.type}: {' '.join(words[one.begin : one.end])}" for one in entities(tags)) or "-"


LEAST_F1 = 1.0  #: in percent; below, a tagger has found no entities but by chance


class WordTags(LabelType[TokenClassificationConfig, PreparedTags, TokenTagger]):
    """One tag per word."""

    description, example = "A token classifier", "words.txt"
    scored = "word accuracy, and entity precision, recall and F1, in percent"
    corpus = TagCorpus

    def load(self, config: TokenClassificationConfig, folder: Path) -> PreparedTags:
        def open_rows(path: Path, n_tags: int) -> TokenClassificationDataset:
            tokens, marks = Store.open(path / "tokens"), Store.open(path / "marks")
            if not np.array_equal(tokens.lengths, marks.lengths) or marks.vocab_size != n_marks(n_tags):
                raise ValueError("the number of tags differs from the number of tokens")
            return TokenClassificationDataset(tokens, marks, config.max_row_length)

        def parse(lines: list[str]) -> list[Sentence]:  # the inverse of ``TagCorpus.display``
            found: list[Sentence] = []
            for empty, group in groupby(lines, key=lambda line: not line):
                if not empty:
                    pairs = [line.split("\t") for line in group]
                    found.append((tuple(word for word, _ in pairs), tuple(tag for _, tag in pairs)))
            return found

        def agree(rows: TokenClassificationDataset, sentences: list[Sentence]) -> bool:
            return rows.count_words() == [len(words) for words, _ in sentences]

        return load_examples(folder, open_rows, parse, agree)

    def model(self, config: TokenClassificationConfig, vocab_size: int, n_labels: int) -> TokenTagger:
        return TokenTagger(config.model, vocab_size, n_labels)

    def logits(self, model: TokenTagger, batch: TagBatch) -> Tensor:
        return tag_logits(model, batch)

    def evaluation(
        self, config: TokenClassificationConfig, data: PreparedTags, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        return TokenClassificationEvaluation(data, device, config.evaluation.n_samples, stop)

    def outcome_warnings(
        self, config: TokenClassificationConfig, data: PreparedTags, outcome: TrainingOutcome
    ) -> Iterator[str]:
        """Warn of a tagger at chance; finding entities may cost accuracy."""
        if label_scheme(data.labels) != "plain" and outcome.scores.get("f1", 100.0) >= LEAST_F1:
            return
        counts = data.valid.label_counts(len(data.labels))
        yield from chance_warnings(data.labels, counts, outcome.scores, ADVICE[config.finetuning.from_scratch])


TASK = FinetuningTask(WordTags())
