"""Entries and merges of ``bpe`` and ``wordpiece`` from counted words.

The result equals that of the trainers of Hugging Face ``tokenizers`` on a text with these words.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attnkit.kernels.merges import PairMerger
from attnkit.text.vocabulary_schema import CHARACTERS


def merge_words(
    words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int, continued: str = ""
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the entries in id order, and the merges in the order in which they apply.

    Raises ``RuntimeError`` without numba.

    Args:
        words: Counts of the words, in the byte alphabet.
        alphabet: First entries: the characters, and with ``continued`` those again with this prefix.
        size: Maximum number of entries; the alphabet is kept in any case.
        min_frequency: Minimum count of a pair that is merged.
        continued: Prefix of entries inside a word, or empty.
    """
    names = list(alphabet)
    ids = {name: id for id, name in enumerate(names)}
    merger = _new_merger(words, ids, continued)
    # Two ways may lead to one entry, for example ab + c and a + bc. A pair whose parts are made again in other words is
    # merged again, and the later place in the order counts.
    merges: dict[tuple[str, str], None] = {}
    while len(names) < size and (found := merger.pop()) is not None:
        left, right, count = found
        if count < max(1, min_frequency):
            break
        joined = names[left] + names[right].removeprefix(continued)
        if (id := ids.setdefault(joined, len(names))) == len(names):
            names.append(joined)
        pair = names[left], names[right]
        merges.pop(pair, None)
        merges[pair] = None
        merger.merge(id)
    return names, list(merges)


def _new_merger(words: Mapping[str, int], ids: Mapping[str, int], continued: str) -> PairMerger:
    # Characters of the byte alphabet are below U+0200; 0 where a name is not in the alphabet.
    tables = np.zeros((2, 512), np.int32)
    for row, prefix in enumerate(("", continued)):
        for character in CHARACTERS:
            tables[row, ord(character)] = ids.get(prefix + character, 0)
    sizes = np.fromiter(map(len, words), np.int32, len(words))
    codes = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
    encoded = tables[1][codes]
    first = (np.cumsum(sizes, dtype=np.int64) - sizes)[sizes > 0]
    encoded[first] = tables[0][codes[first]]
    return PairMerger(encoded, sizes, np.fromiter(words.values(), np.int64, len(words)))
