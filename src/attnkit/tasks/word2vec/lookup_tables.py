"""What the loops of word vectors look up by word: sampling tables, Huffman paths and subword rows."""

from __future__ import annotations

from dataclasses import replace

from attnkit.data.words import Encoded
from attnkit.kernels.huffman import huffman
from attnkit.kernels.sampling import alias_table, keep_thresholds
from attnkit.kernels.word2vec import LookupTables
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.text.subwords import Subwords

FEW = 2000
"""Words of a vocabulary below which skip-gram shares no negatives: a block of words would train the few rows there are
many times at once, under weights that none of its steps has seen."""


def threads(config: Word2VecConfig) -> str:
    """Return the threads of a configuration in words."""
    several = "s that share the weights" if not config.deterministic else "s with a copy each"
    return "1 thread" if config.threads == 1 else f"{config.threads} thread{several}"


def tables(config: Word2VecConfig, encoded: Encoded) -> LookupTables:
    """Return what loops look up by word."""
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
