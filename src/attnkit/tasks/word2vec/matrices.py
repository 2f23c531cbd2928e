"""Matrices of a run: shapes, initialization, files, lookup tables. Torch-free."""

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

# Skip-gram with a smaller vocabulary does not share negatives: a block would update its few rows many times at once,
# all from the same stale weights.
FEW = 2000


def lookup_tables(config: Word2VecConfig, encoded: Encoded) -> LookupTables:
    """Return the tables of the training loops, indexed by word."""
    # Imported here, since vectors are loaded and queried without numba.
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
Matrices = dict[str, Floats]  #: name -> (n, P), rows zero-padded to the width that the loops require


@dataclass(frozen=True)
class MatrixShape:
    """Shape of a saved matrix."""

    n: int
    width: int

    @property
    def padded(self) -> int:
        """P, the padded row width in memory."""
        return -(-self.width // LANES) * LANES

    @property
    def n_bytes(self) -> int:
        """Size of the saved matrix in bytes."""
        return 4 * self.n * self.width


Shapes = Mapping[str, MatrixShape]


def shapes(config: Word2VecConfig, n_words: int) -> dict[str, MatrixShape]:
    """Return the shapes of all matrices of a configuration, by name."""
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
    """Return the word vectors of a run: the inputs, or W + W' for GloVe (section 4.2)."""
    return inputs + outputs if config.method == "glove" else inputs


def empty(found: Shapes) -> Matrices:
    """Return zero matrices of the given shapes."""
    return {name: rows(shape.n, shape.padded) for name, shape in found.items()}


def copied(matrices: Matrices) -> Matrices:
    """Return copies whose rows are aligned as the loops require."""
    found = {name: rows(*matrix.shape) for name, matrix in matrices.items()}
    for name, matrix in matrices.items():
        found[name][:] = matrix
    return found


def draw(matrix: Floats, width: int, key: Sequence[int], divisor: int) -> None:
    """Fill ``width`` columns uniformly within ±0.5 / ``divisor``, seeded with ``key``."""
    random = np.random.default_rng(key)
    for begin in range(0, len(matrix), _BLOCK):
        block = matrix[begin : begin + _BLOCK, :width]
        block[:] = (random.random(block.shape, np.float32) - np.float32(0.5)) / np.float32(divisor)


def _header(found: Shapes) -> dict[str, dict[str, Any]]:
    """Return the safetensors header of matrices stored contiguously."""
    place, header = 0, {}
    for name, shape in found.items():
        span = [place, place := place + shape.n_bytes]
        header[name] = {"dtype": "F32", "shape": [shape.n, shape.width], "data_offsets": span}
    return header


def content(matrices: Matrices, found: Shapes) -> Iterator[Data]:
    """Yield the matrices, without padding, as a safetensors file in blocks of bytes."""
    text = json.dumps(_header(found), separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX + len(text)) % _ALIGNED)  # aligned for memory mapping
    yield len(text).to_bytes(_PREFIX, "little") + text
    for name, shape in found.items():
        for begin in range(0, shape.n, _BLOCK):
            yield np.ascontiguousarray(matrices[name][begin : begin + _BLOCK, : shape.width]).data.cast("B")


def fill(matrices: Matrices, found: Shapes, checkpoint: Checkpoint) -> None:
    """Read the matrices of a checkpoint into ``matrices``; errors as in ``read``."""
    for name, saved in read(checkpoint, found).items():
        matrices[name][:, : found[name].width] = saved


def read(checkpoint: Checkpoint, found: Shapes) -> Matrices:
    """Return a checkpoint's unpadded matrices; raise ``RunError`` if they are invalid."""
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
    """Return the words of a checkpoint; raise ``RunError`` if they are invalid."""
    where = str(checkpoint.path / WORDS)
    words = WordVocabulary.from_bytes(read_bounded(checkpoint, WORDS, TEXT_FILES[WORDS]), where=where)
    if not words.words:
        raise RunError(f"invalid {WORDS} in checkpoint {checkpoint.name}: no words", where=where)
    return words
