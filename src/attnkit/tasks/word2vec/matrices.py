"""Matrices of a run: how they are laid out, drawn, saved and read, and the tables beside them. Torch-free."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.words import Encoded
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_bounded
from attnkit.errors import RunError
from attnkit.io.atomic import Data
from attnkit.io.safe_read import parse_json
from attnkit.kernels.word2vec_backend import LANES, LookupTables, rows
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.text.word_vocabulary import FILE as WORDS
from attnkit.text.word_vocabulary import Subwords, WordVocabulary

# Vocabularies below this share no negatives in skip-gram: a block of words would train the few rows there are many
# times at once, under weights that none of its steps has seen.
FEW = 2000


def lookup_tables(config: Word2VecConfig, encoded: Encoded) -> LookupTables:
    """Return the tables that training loops look up by word."""
    # Here, since vectors are loaded and queried without numba.
    from attnkit.kernels.sampling import alias_table, huffman, keep_thresholds

    counts = encoded.words.counts
    found = LookupTables(keep_thresholds(counts, config.sample))
    if config.loss == "negative":
        prob, alias = alias_table(counts, config.ns_exponent)
        found = found._replace(prob=prob, alias=alias)
    elif config.loss == "hierarchical":
        starts, nodes, codes = huffman(counts)
        found = found._replace(path_starts=starts, nodes=nodes, codes=codes)
    if (cut := config.subwords) is not None:
        starts, rows = Subwords(cut.min_n, cut.max_n, cut.buckets).tables(encoded.words.words)
        found = found._replace(subword_starts=starts, subword_rows=rows)
    return found


FILE = "model.safetensors"
INPUTS, OUTPUTS = "inputs", "outputs"
_PREFIX, _ALIGNED = 8, 64
_BLOCK = 1 << 12  # rows
_MAX_HEADER = 1 << 14

Floats = NDArray[np.float32]
Matrices = dict[str, Floats]  #: name -> (n, P), rows as wide as the loops want them: padded with zeros


@dataclass(frozen=True)
class MatrixShape:
    """Shape of a saved matrix."""

    n: int
    width: int

    @property
    def padded(self) -> int:
        """P, the width in memory."""
        return -(-self.width // LANES) * LANES

    @property
    def n_bytes(self) -> int:
        """Return the size of the saved matrix in bytes."""
        return 4 * self.n * self.width


Shapes = Mapping[str, MatrixShape]


def shapes(config: Word2VecConfig, n_words: int) -> dict[str, MatrixShape]:
    """Return the matrices of a configuration, ``inputs`` being the vectors that are wanted."""
    n_buckets = 0 if config.subwords is None else config.subwords.buckets
    n_outputs = max(1, n_words - 1) if config.loss == "hierarchical" else n_words
    hidden = config.dim * (2 * config.window if config.context == "concat" else 1)
    found = {INPUTS: MatrixShape(n_words + n_buckets, config.dim), OUTPUTS: MatrixShape(n_outputs, hidden)}
    if config.method == "glove":
        squares = {f"{name}_squares": shape for name, shape in found.items()}
        biases = {f"{name}_bias{end}": MatrixShape(n_words, 1) for name in found for end in ("", "_squares")}
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


def draw(matrix: Floats, width: int, key: Sequence[int], divisor: int) -> None:
    """Fill the first ``width`` columns with what lies evenly within ±0.5 / divisor; ``key`` decides what is drawn."""
    random = np.random.default_rng(key)
    for begin in range(0, len(matrix), _BLOCK):
        block = matrix[begin : begin + _BLOCK, :width]
        block[:] = (random.random(block.shape, np.float32) - np.float32(0.5)) / np.float32(divisor)


def _header(found: Shapes) -> dict[str, dict[str, Any]]:
    """Return the safetensors header of matrices that lie end to end."""
    place, header = 0, {}
    for name, shape in found.items():
        span = [place, place := place + shape.n_bytes]
        header[name] = {"dtype": "F32", "shape": [shape.n, shape.width], "data_offsets": span}
    return header


def content(matrices: Matrices, found: Shapes) -> Iterator[Data]:
    """Yield the safetensors file of matrices, without what pads their rows and without copying them whole."""
    text = json.dumps(_header(found), separators=(",", ":")).encode()
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
    where = str(checkpoint.path / FILE)
    size, least = checkpoint.entry(FILE).size, sum(shape.n_bytes for shape in found.values())
    try:
        if not least < size <= least + _PREFIX + _MAX_HEADER:
            raise ValueError(f"the file has {size:,} bytes, expected about {least:,}")
        raw = checkpoint.read(FILE)
        begin = _PREFIX + int.from_bytes(raw[:_PREFIX], "little")
        if begin > len(raw) or begin > _PREFIX + _MAX_HEADER:
            raise ValueError("the header is too long")
        header, expected = parse_json(raw[_PREFIX:begin]), _header(found)
        if not isinstance(header, dict) or header.keys() != found.keys():
            raise ValueError(f"the file does not contain {', '.join(found)}")
        for name, shape in found.items():
            if header[name] != expected[name]:
                raise ValueError(f"'{name}' is not a float32 matrix of shape ({shape.n}, {shape.width})")
        if begin + least != len(raw):
            raise ValueError(f"the file has {len(raw):,} bytes, expected {begin + least:,}")
    except ValueError as error:
        raise RunError(f"the weights do not fit the configuration: {error}", where=where) from error
    matrices = {}
    for name, shape in found.items():
        flat = np.frombuffer(raw, "<f4", shape.n * shape.width, begin + expected[name]["data_offsets"][0])
        matrices[name] = flat.reshape(shape.n, shape.width)
        if not math.isfinite(float(np.add.reduce(flat, dtype=np.float64))) and not np.isfinite(flat).all():
            raise RunError(f"the weights '{name}' are not finite", where=str(checkpoint.path))
    return matrices


def read_words(checkpoint: Checkpoint) -> WordVocabulary:
    """Return the words of a checkpoint. Raises ``RunError`` where they are invalid."""
    where = str(checkpoint.path / WORDS)
    words = WordVocabulary.from_bytes(read_bounded(checkpoint, WORDS, TEXT_FILES[WORDS]), where=where)
    if not words.words:
        raise RunError(f"invalid {WORDS} in checkpoint {checkpoint.name}: no words", where=where)
    return words
