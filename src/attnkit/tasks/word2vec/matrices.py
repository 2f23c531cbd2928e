"""Matrices of a run and the sampling tables, Huffman paths and subword rows beside them. Torch-free."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.words import Encoded
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_bounded
from attnkit.errors import RunError
from attnkit.io.atomic import Data
from attnkit.io.safe_read import parse_json
from attnkit.kernels.word2vec import LANES, LookupTables, rows
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.text.word_vocabulary import FILE as WORDS
from attnkit.text.word_vocabulary import Subwords, WordVocabulary

FEW = 2000
"""Words of a vocabulary below which skip-gram shares no negatives: a block of words would train the few rows there are
many times at once, under weights that none of its steps has seen."""


def threads(config: Word2VecConfig) -> str:
    """Return the threads of a configuration in words."""
    several = "s that share the weights" if not config.deterministic else "s with a copy each"
    return "1 thread" if config.threads == 1 else f"{config.threads} thread{several}"


def tables(config: Word2VecConfig, encoded: Encoded) -> LookupTables:
    """Return the tables that training loops look up by word."""
    # Here, since vectors are loaded and queried without numba.
    from attnkit.kernels.huffman import huffman
    from attnkit.kernels.sampling import alias_table, keep_thresholds

    counts = encoded.words.counts
    found = LookupTables(keep_thresholds(counts, config.sample))
    if config.loss == "negative":
        prob, alias = alias_table(counts, config.ns_exponent)
        found = replace(found, prob=prob, alias=alias)
    elif config.loss == "hierarchical":
        paths = huffman(counts)
        found = replace(found, path_starts=paths.starts, nodes=paths.nodes, codes=paths.codes)
    if (sub := config.subwords) is not None:
        starts, rows = Subwords(sub.min_n, sub.max_n, sub.buckets).tables(encoded.words.words)
        found = replace(found, subword_starts=starts, subword_rows=rows)
    return found


FILE = "model.safetensors"
INPUTS, OUTPUTS = "inputs", "outputs"
_PREFIX, _ALIGNED = 8, 64
_BLOCK = 1 << 12  # rows
_MOST_HEADER = 1 << 14

Floats = NDArray[np.float32]
Matrices = dict[str, Floats]
"""Name -> (n, P): rows are as wide as the loops want them, the numbers beyond a vector's own are 0."""


@dataclass(frozen=True)
class Shape:
    """Of one matrix, as it is saved."""

    n: int
    width: int

    @property
    def padded(self) -> int:
        """P, the width in memory."""
        return -(-self.width // LANES) * LANES

    @property
    def n_bytes(self) -> int:
        """Bytes that are saved."""
        return 4 * self.n * self.width


Shapes = Mapping[str, Shape]


def shapes(config: Word2VecConfig, n_words: int) -> dict[str, Shape]:
    """Return the matrices of a configuration, ``inputs`` being the vectors that are wanted."""
    n_buckets = 0 if config.subwords is None else config.subwords.buckets
    n_outputs = max(1, n_words - 1) if config.loss == "hierarchical" else n_words
    hidden = config.dim * (2 * config.window if config.context == "concat" else 1)
    found = {INPUTS: Shape(n_words + n_buckets, config.dim), OUTPUTS: Shape(n_outputs, hidden)}
    if config.method == "glove":
        squares = {f"{name}_squares": shape for name, shape in found.items()}
        biases = {f"{name}_bias{end}": Shape(n_words, 1) for name in found for end in ("", "_squares")}
        found |= squares | biases
    return found


def wanted(config: Word2VecConfig, inputs: Floats, outputs: Floats) -> Floats:
    """Return the rows that are the vectors of a run: the inputs, or of GloVe W + W' (its section 4.2)."""
    return inputs + outputs if config.method == "glove" else inputs


def empty(found: Shapes) -> Matrices:
    """Return matrices of zeros."""
    return {name: rows(shape.n, shape.padded) for name, shape in found.items()}


def copied(matrices: Matrices) -> Matrices:
    """Return copies, whose rows begin where the loops want them to."""
    found = {name: rows(*matrix.shape) for name, matrix in matrices.items()}
    for name, matrix in matrices.items():
        found[name][:] = matrix
    return found


def draw(matrix: Floats, width: int, seed: int) -> None:
    """Fill a matrix with what lies evenly within ±0.5 / width, row by row."""
    random = np.random.default_rng([seed, 0x77327665])
    for begin in range(0, len(matrix), _BLOCK):
        block = matrix[begin : begin + _BLOCK, :width]
        block[:] = (random.random(block.shape, np.float32) - np.float32(0.5)) / np.float32(width)


def content(matrices: Matrices, found: Shapes) -> Iterator[Data]:
    """Yield the safetensors file of matrices, without what pads their rows and without copying them whole."""
    place, header = 0, {}
    for name, shape in found.items():
        size = shape.n_bytes
        header[name] = {"dtype": "F32", "shape": [shape.n, shape.width], "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX + len(text)) % _ALIGNED)  # so that they can be mapped as they lie
    yield len(text).to_bytes(_PREFIX, "little") + text
    for name, shape in found.items():
        for begin in range(0, shape.n, _BLOCK):
            yield np.ascontiguousarray(matrices[name][begin : begin + _BLOCK, : shape.width]).data.cast("B")


def fill(matrices: Matrices, found: Shapes, checkpoint: Checkpoint) -> None:
    """Read the matrices of a checkpoint. Raises ``RunError`` where they do not fit ``found``, or are not finite."""
    for name, saved in read(checkpoint, found).items():
        matrices[name][:, : found[name].width] = saved


def read(checkpoint: Checkpoint, found: Shapes) -> Matrices:
    """Return the matrices of a checkpoint without padding. Raises ``RunError`` as ``fill`` does."""
    size, least = checkpoint.entry(FILE).size, sum(shape.n_bytes for shape in found.values())
    if not least < size <= least + _PREFIX + _MOST_HEADER:
        raise _misfit(checkpoint, f"it has {size:,} bytes, the configuration asks for about {least:,}")
    raw = checkpoint.read(FILE)
    try:
        begin = _PREFIX + int.from_bytes(raw[:_PREFIX], "little")
        places = _places(raw, begin, found)
    except ValueError as error:
        raise _misfit(checkpoint, str(error)) from error
    matrices = {}
    for name, shape in found.items():
        flat = np.frombuffer(raw, "<f4", shape.n * shape.width, begin + places[name])
        matrices[name] = flat.reshape(shape.n, shape.width)
        if not math.isfinite(float(np.add.reduce(flat, dtype=np.float64))) and not np.isfinite(flat).all():
            raise RunError(f"the weights '{name}' are not finite", where=str(checkpoint.path))
    return matrices


def read_words(checkpoint: Checkpoint) -> WordVocabulary:
    """Return the words of a checkpoint. Raises ``RunError`` where they are invalid."""
    data = read_bounded(checkpoint, WORDS, TEXT_FILES[WORDS])
    words = WordVocabulary.from_bytes(data, where=str(checkpoint.path / WORDS))
    if not words.words:
        raise RunError(f"invalid {WORDS} in checkpoint {checkpoint.name}: no words", where=str(checkpoint.path / WORDS))
    return words


def _places(raw: bytes, begin: int, found: Shapes) -> dict[str, int]:
    """Return where each matrix begins after the header. Raises ``ValueError`` unless these are all, end to end."""
    if begin > len(raw) or begin > _PREFIX + _MOST_HEADER:
        raise ValueError("its header is too long")
    header = parse_json(raw[_PREFIX:begin])
    if not isinstance(header, dict) or header.keys() != found.keys():
        raise ValueError(f"it does not hold {', '.join(found)}")
    places, place = {}, 0
    for name, shape in found.items():
        places[name] = place
        span = [place, place := place + shape.n_bytes]
        if header[name] != {"dtype": "F32", "shape": [shape.n, shape.width], "data_offsets": span}:
            raise ValueError(f"'{name}' is not described as {shape.n} rows of {shape.width} numbers of 32 bits")
    if begin + place != len(raw):
        raise ValueError("it does not end where its last matrix does")
    return places


def _misfit(checkpoint: Checkpoint, why: str) -> RunError:
    return RunError(f"the weights do not fit the configuration: {why}", where=str(checkpoint.path / FILE))
