"""Initialization of word vectors from those of another run or file. Torch-free."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.errors import UsageError
from attnkit.formats.word_vectors.table import Rows, finite_rows_at
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import INPUTS, OUTPUTS, Floats, Matrices, read, read_words, shapes, wanted
from attnkit.tasks.word2vec.vector_files import width_at
from attnkit.tasks.word2vec.vectors import Vectors
from attnkit.text.word_vocabulary import WordVocabulary

_BLOCK = 1 << 12  # words


def init_matrices(config: Word2VecConfig, words: WordVocabulary, matrices: Matrices) -> Iterator[str]:
    """Overwrite random vectors with those of ``init_from``; yield a coverage message."""
    if config.init_from is None:
        return
    path, dim = Path(config.init_from), config.dim
    source = _open_source(config, path)
    inputs, outputs, n_found = matrices[INPUTS], matrices[OUTPUTS], 0
    for begin in range(0, len(words), _BLOCK):
        places = source.find_rows(words.words[begin : begin + _BLOCK])
        known = np.flatnonzero(places >= 0)
        rows, own = finite_rows_at(source.inputs, places[known], str(path)), begin + known
        if source.outputs is not None:
            outputs[own, :dim] = source.outputs[places[known]]
        elif config.method == "glove":
            # GloVe's vectors are W + W': their sum becomes the given rows. Their random difference W - W' is kept, so
            # that the two matrices do not start equal.
            apart = (inputs[own, :dim] - outputs[own, :dim]) / 2
            outputs[own, :dim] = rows / 2 - apart
            rows = rows - outputs[own, :dim]
        inputs[own, :dim] = rows
        n_found += len(known)
    if source.buckets is not None:
        inputs[len(words) :, :dim] = source.buckets
    share = n_found / len(words)
    more = " and all n-grams" if source.buckets is not None else ""
    yield f"{n_found:,} of {len(words):,} words ({share:.1%}){more} initialized from {path}"


def check_init_vectors(config: Word2VecConfig) -> None:
    """Raise ``UsageError`` if ``init_from`` has no vectors or another dimension."""
    if config.init_from is not None:
        _check_width(config, width_at(Path(config.init_from)))


class _InitSource(NamedTuple):
    """Rows of another run or of a vector file."""

    find_rows: Callable[[Sequence[str]], NDArray[np.int64]]  #: returns the row of each word, -1 for unknown words
    inputs: Rows
    outputs: Floats | None = None  #: output rows, if they mean the same in this run
    buckets: Floats | None = None  #: rows of n-grams, if both runs use the same n-grams


def _open_source(config: Word2VecConfig, path: Path) -> _InitSource:
    """Return the trained rows of a run, or the vectors of a file of any format."""
    if is_run(path):
        checkpoint = RunFolder(path).checkpoint()[0]
        other, words = read_run_config(checkpoint, "word2vec"), read_words(checkpoint)
        _check_width(config, other.dim)
        # A run with other n-grams provides its composed word vectors, like a file.
        if other.subwords is None or other.subwords == config.subwords:
            saved, kind = read(checkpoint, shapes(other, len(words))), ("loss", "method", "context")
            alike = all(getattr(other, name) == getattr(config, name) for name in kind)
            alike = alike and config.loss != "hierarchical"
            # GloVe continues with separate W and W'; other methods take its final vectors W + W'.
            inputs = saved[INPUTS] if alike else wanted(other, saved[INPUTS], saved[OUTPUTS])
            outputs = saved[OUTPUTS] if alike and saved[OUTPUTS].shape[1] == config.dim else None
            buckets = inputs[len(words) :] if other.subwords is not None else None
            return _InitSource(words.ids, inputs[: len(words)], outputs, buckets)
    vectors = Vectors.load(path, mmap=True)
    _check_width(config, vectors.vector_size)
    index = vectors.key_to_index
    return _InitSource(lambda words: np.array([index.get(word, -1) for word in words], np.int64), vectors.vectors)


def _check_width(config: Word2VecConfig, width: int) -> None:
    if width != config.dim:
        what = f"these vectors have dimension {width}, not {config.dim}"
        raise UsageError(what, where=config.init_from, help=f"use --dim {width}")
