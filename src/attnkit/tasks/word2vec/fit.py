"""``Word2Vec``: a Python interface for training on sentences. Torch-free."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.config import validate
from attnkit.config.arguments import checked
from attnkit.data.store import write_store
from attnkit.data.words import Encoded, encode_words
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.checkpoint_metadata import read_run_config, read_state
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.events import TrainRequest
from attnkit.engine.resolve import resolve
from attnkit.engine.vocabularies import open_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig, Word2VecCounters, WordTextConfig
from attnkit.tasks.word2vec.initial import init_matrices
from attnkit.tasks.word2vec.loop import train_slices
from attnkit.tasks.word2vec.session import Word2VecSession
from attnkit.tasks.word2vec.vector_files import composed_vectors
from attnkit.tasks.word2vec.vectors import Vectors
from attnkit.tasks.word2vec.workload import build_workload, check_available
from attnkit.text.lines import read_lines
from attnkit.text.punctuation import split_words
from attnkit.text.word_vocabulary import FILE as WORDS
from attnkit.text.word_vocabulary import WordVocabulary

Sentences: TypeAlias = Iterable[Sequence[str] | str]
TextSource: TypeAlias = Sentences | str | Path
_BATCH = 10_000  # sentences


def count_words(sentences: Sentences, config: WordTextConfig) -> tuple[WordVocabulary, int, int]:
    """Return the vocabulary, and the numbers of words and sentences read.

    Raises ``DataError`` if no word is frequent enough, or if a vocabulary word cannot be saved.
    """
    found: Counter[str] = Counter()
    n_sentences = 0
    for sentence in split_sentences(sentences, config):
        found.update(sentence)
        n_sentences += 1
    kept = [(word, n) for word, n in found.most_common(config.max_vocab) if n >= config.min_count]
    if not kept:
        n = max(found.values(), default=0)
        often = "once" if n == 1 else f"{n:,} times"
        most = f"the most frequent of {len(found):,} occurs {often}" if found else "there are no words"
        raise DataError(f"no word occurs min_count={config.min_count} times: {most}", help="lower min_count")
    for word, _ in kept:
        if word.encode(errors="ignore").decode() != word:
            why = "contains a lone surrogate"
        elif not word or {"\t", "\n"} & set(word):
            why = "contains a tab or a line feed" if word else "is empty"
        else:
            continue
        raise DataError(f"the word {word!r} {why} and cannot be saved", help="remove such words")
    words = WordVocabulary([word for word, _ in kept], np.array([n for _, n in kept], np.int64))
    return words, found.total(), n_sentences


def encode_sentences(folder: Path, sentences: Sentences, words: WordVocabulary, config: WordTextConfig) -> Encoded:
    """Encode sentences to disk; raise ``DataError`` if no line has two known words."""
    n_raw, longest = 0, 0

    def rows() -> Iterator[list[list[int]]]:
        nonlocal n_raw, longest
        lines = split_sentences(sentences, config)
        while batch := list(islice(lines, _BATCH)):
            n_raw += sum(map(len, batch))
            ids = [[id for id in map(words.index, line) if id is not None] for line in batch]
            longest = max(longest, max(map(len, ids)))
            yield [line for line in ids if line]

    store = write_store(folder, rows(), len(words))
    if longest < 2:
        help = "a sentence is a list of words; lower min_count if words are too rare"
        raise DataError("no sentence contains two in-vocabulary words: no training pairs", help=help)
    return Encoded(words, store, n_raw)


def split_sentences(sentences: Sentences, config: WordTextConfig) -> Iterator[list[str]]:
    """Yield the words of each sentence; raise ``DataError`` if a word is not a string.

    A sentence that is one string is split as ``config`` says, a list of words is not.
    """
    for number, sentence in enumerate(sentences, 1):
        split = split_words if config.separate_punctuation else str.split
        line = split(sentence) if isinstance(sentence, str) else list(sentence)
        if not all(isinstance(word, str) for word in line):
            what = f"sentence {number:,} contains an item that is not text"
            raise DataError(what, help="a sentence is a list of words")
        yield [word.lower() for word in line] if config.lower else line


IN_MEMORY = "(sentences)"  #: ``data.files`` of a model trained on sentences in memory


class Word2Vec:
    """Trainable word vectors; the parameters are named as in gensim.

    >>> model = Word2Vec([["a", "dog", "runs"], ["a", "cat", "runs"]] * 50, vector_size=16, negative=2)
    >>> model.wv["dog"].shape
    (16,)
    """

    @checked
    def __init__(
        self,
        sentences: TextSource | None = None,
        corpus_file: str | Path | None = None,
        *,
        vector_size: int = 100,
        window: int = 5,
        min_count: int = 5,
        sg: int = 0,
        hs: int = 0,
        negative: int = 5,
        sample: float = 1e-3,
        alpha: float | None = None,
        min_alpha: float = 1e-4,
        epochs: int = 5,
        workers: int | None = None,
        seed: int = 1,
        cbow_mean: int = 1,
        ns_exponent: float = 0.75,
        max_final_vocab: int | None = None,
        shrink_windows: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the training options; train if ``sentences`` or ``corpus_file`` is given.

        Args:
            sentences: lists of words, or strings that are split at white space; iterated more than once. A single
                string or path is a file name, as in ``corpus_file``.
            corpus_file: text file, plain or compressed, one sentence per line.
            vector_size: dimension of the vectors.
            window: maximum number of context words on either side of a word.
            min_count: minimum count of a word to get a vector.
            sg: 1 for skip-gram, 0 for CBOW.
            hs: 1 for hierarchical softmax, 0 for negative sampling.
            negative: negative samples per predicted word; ignored with ``hs``.
            sample: subsampling threshold; words with a larger share of the text are randomly dropped.
            alpha: initial learning rate; None: the default of the method.
            min_alpha: final learning rate.
            epochs: passes over the text.
            workers: number of threads; None: one per processor.
            seed: random seed.
            cbow_mean: 1 to average the context vectors, 0 to sum them.
            ns_exponent: negatives are drawn in proportion to the word count to this power.
            max_final_vocab: maximum vocabulary size; the most frequent words are kept.
            shrink_windows: draw the window of each word from 1 to ``window``.
            settings: other keys of ``attnkit word2vec train``, such as ``{"method": "glove", "subwords.min_n": 2}``.

        Raises:
            UsageError: a setting is invalid, or the sentences can be iterated only once.
            DataError: the text is not suitable for training.
        """
        keys: dict[str, Any] = {"task": "word2vec", "data.files": [IN_MEMORY], "window": window, "sample": sample}
        keys |= {"alpha": alpha, "min_alpha": min_alpha, "epochs": epochs, "seed": seed, "ns_exponent": ns_exponent}
        keys |= {"dim": vector_size, "data.min_count": min_count, "data.max_vocab": max_final_vocab, "threads": workers}
        keys |= {"method": "skip-gram" if sg else "cbow", "loss": "hierarchical" if hs else "negative"}
        keys |= {"context": "sum" if not (sg or cbow_mean) else None, "dynamic_window": bool(shrink_windows)}
        keys |= {"negative": negative or (None if hs else 0)}
        self.config: Word2VecConfig = resolve({**keys, **(settings or {})}).config
        self.words: WordVocabulary | None = None
        self.state = Word2VecCounters()
        # Number of sentences and words; after training, only sentences with at least one in-vocabulary word count.
        self.corpus_count = self.corpus_total_words = 0
        self._matrices: mats.Matrices = {}
        self._wv: Vectors | None = None
        if (text := _only(sentences, corpus_file)) is not None:
            self.fit(text)

    @property
    def epochs(self) -> int:
        """Number of passes over the text."""
        return self.config.epochs

    @property
    def wv(self) -> Vectors:
        """Trained vectors. Raises ``UsageError`` before any training."""
        if self.words is None or not self._matrices:
            raise _untrained()
        if self._wv is None:
            inputs, outputs = (self._matrices[name][:, : self.config.dim] for name in (mats.INPUTS, mats.OUTPUTS))
            table = composed_vectors(self.config, self.words, inputs, outputs)
            self._wv = Vectors(table.words, table.rows, counts=table.counts, unseen=table.unseen)
        return self._wv

    def fit(self, sentences: TextSource) -> Word2Vec:
        """Train from scratch on sentences or the text of a file; return the model."""
        return self._train(sentences, self.config, None, {})

    def build_vocab(self, corpus_iterable: TextSource | None = None, corpus_file: str | Path | None = None) -> None:
        """Build the vocabulary for ``train``; replace any existing vocabulary."""
        if (text := _only(corpus_iterable, corpus_file)) is None:
            raise UsageError("no text", help="give sentences, or corpus_file=")
        counted = count_words(_sentences(text, self.config.data), self.config.data)
        self.words, self.corpus_total_words, self.corpus_count = counted
        self._matrices, self._wv = {}, None

    def train(
        self,
        corpus_iterable: TextSource | None = None,
        corpus_file: str | Path | None = None,
        *,
        epochs: int | None = None,
        total_examples: int | None = None,
        total_words: int | None = None,
        start_alpha: float | None = None,
        end_alpha: float | None = None,
    ) -> Word2Vec:
        """Start or continue training; out-of-vocabulary words get no vector.

        ``total_examples`` and ``total_words`` exist for compatibility with gensim and are ignored.
        """
        if (text := _only(corpus_iterable, corpus_file)) is None:
            raise UsageError("no text to train on", help="give sentences, or corpus_file=")
        changed = {"epochs": epochs, "alpha": start_alpha, "min_alpha": end_alpha}
        tree = self.config.model_dump(mode="json") | {key: v for key, v in changed.items() if v is not None}
        return self._train(text, validate(Word2VecConfig, tree), self.words, self._matrices)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a run folder in the format of ``attnkit word2vec train``."""
        if (words := self.words) is None or not self._matrices:
            raise _untrained()
        if is_run(Path(path)) and not overwrite:
            raise UsageError(f"{path} already contains a run", help="choose another name, or overwrite=True")
        request = TrainRequest(self.config, Path(path), overwrite)
        session = Word2VecSession(request)
        session.adopt(words, self._matrices, self.state)
        with RunWriter(request, session, ProcessGroup()) as writer:
            writer.restore("", {WORDS: words.to_bytes()})
            writer.save()
            writer.finish()

    @classmethod
    def load(cls, path: str | Path) -> Word2Vec:
        """Load a word2vec run; raise ``RunError`` if it is damaged or of another task."""
        checkpoint, found = RunFolder(Path(path)).checkpoint()
        for text in found:
            warnings.warn(text, stacklevel=2)
        model = cls()
        model.config, model.words = read_run_config(checkpoint, "word2vec"), mats.read_words(checkpoint)
        shapes = mats.shapes(model.config, len(model.words))
        model._matrices = mats.empty(shapes)
        model.state = Word2VecCounters.model_validate(read_state(checkpoint)["counters"])
        mats.fill(model._matrices, shapes, checkpoint)
        return model

    def _train(
        self, sentences: TextSource, config: Word2VecConfig, words: WordVocabulary | None, matrices: mats.Matrices
    ) -> Word2Vec:
        """Train; first build a missing vocabulary and initialize missing matrices."""
        check_available(config)
        with atomic.temporary_dir() as folder:
            target = folder / "words"
            if words is None and isinstance(sentences, str | Path):
                name = config.data.tokenizer
                tokenizer = None if name is None else open_tokenizer(Path(name))
                encoded = encode_words(target, [Path(sentences)], config.data, tokenizer=tokenizer)
            else:
                sentences = _sentences(sentences, config.data)
                if words is None:
                    words, _, _ = count_words(sentences, config.data)
                encoded = encode_sentences(target, sentences, words, config.data)
            for text in encoded.warnings:
                warnings.warn(text, stacklevel=3)
            work = build_workload(config, encoded, Path(folder), lambda text: None)
            if not matrices:
                matrices = mats.empty(work.shapes)
                work.begin(matrices)
                for _ in init_matrices(config, encoded.words, matrices):
                    pass
            n_steps = config.epochs * work.n_pieces
            state = Word2VecCounters(n_steps=n_steps, raw=encoded.n_raw)
            for progress in train_slices(config, work, matrices, state):
                state = progress.counters
        self.corpus_count, self.corpus_total_words = len(encoded.store), encoded.n_raw
        self.config, self.words, self.state, self._matrices, self._wv = config, encoded.words, state, matrices, None
        return self


def _untrained() -> UsageError:
    return UsageError("no vectors yet", help="call model.fit(sentences) first")


def _only(sentences: TextSource | None, corpus_file: str | Path | None) -> TextSource | None:
    if sentences is not None and corpus_file is not None:
        raise UsageError("sentences and corpus_file cannot be combined", help="give one of them")
    return corpus_file if sentences is None else sentences


def _sentences(text: TextSource, config: WordTextConfig) -> Sentences:
    """Return ``text`` as sentences that can be iterated more than once.

    Raises ``UsageError`` for an iterator, for anything else than sentences, and if phrases or a tokenizer are set.
    """
    if config.tokenizer is not None or config.phrases.passes:
        what = "phrases and tokenizer require corpus_file and training from scratch"
        help = "use Word2Vec(corpus_file=...), or pass sentences that are already tokenized"
        raise UsageError(what, where="settings", help=help)
    if isinstance(text, str | Path):
        return _Lines(Path(text))
    help = "pass a list, or an object with a restartable __iter__; a generator is exhausted after one pass"
    if not isinstance(text, Iterable):
        raise UsageError(f"sentences must be lists of words, not {type(text).__name__}", help=help)
    if isinstance(text, Iterator):
        what = f"sentences ({type(text).__name__}) can be iterated only once, but training needs several passes"
        raise UsageError(what, help=help)
    return text


class _Lines:
    """Re-iterable lines of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)
