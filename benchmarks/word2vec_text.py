"""The text of word2vec.py: one plain file of lower-cased a-z words for all systems, its parts, and its vocabulary."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import Message

OPENERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
LETTERS = bytes(
    code if 97 <= code <= 122 or code == 10 else code + 32 if 65 <= code <= 90 else 32
    for code in range(256)
)  # fmt: skip
"""What each byte becomes: A-Z are lowered, a-z and the end of a line stay, all else is a blank."""


@dataclass(frozen=True)
class Text:
    """A plain file of words, and what is known of it."""

    path: Path
    words: int
    vocabulary: Path
    """``word<TAB>count`` a line, by falling count, among equals as they first occur."""
    vocabulary_size: int
    kept: float
    """Words that are expected to survive subsampling, in one epoch."""


def prepare(source: Path, folder: Path, share: float, settings: Message) -> Text:
    """Make the file of a share of the source (its first lines) and count it; what was made before is taken."""
    name = f"{hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]}-{share:g}-{settings['min_count']}"
    path, counts, facts = (folder / f"{name}.{suffix}" for suffix in ("txt", "counts.tsv", "json"))
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        total = sum(len(line) for line in _lines(source)) if share < 1 else 0
        counted: Counter[bytes] = Counter()
        taken = 0
        with path.open("wb") as out:
            for line in _lines(source):
                if share < 1 and taken >= share * total:
                    break
                taken += len(line)
                words = line.translate(LETTERS).split()
                counted.update(words)
                if words:
                    out.write(b" ".join(words) + b"\n")
        vocabulary = [(word, n) for word, n in counted.most_common() if n >= settings["min_count"]]
        counts.write_bytes(b"".join(b"%s\t%d\n" % pair for pair in vocabulary))
        known = {
            "words": sum(counted.values()),
            "vocabulary_size": len(vocabulary),
            "kept": _kept([n for _, n in vocabulary], settings["sample"]),
        }
        facts.write_text(json.dumps(known))
    return Text(path=path, vocabulary=counts, **json.loads(facts.read_text()))


def _lines(source: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or compressed."""
    with OPENERS.get(source.suffix, open)(source, "rb") as lines:
        yield from lines


def _kept(counts: list[int], sample: float) -> float:
    """Return how many words subsampling keeps: of one that occurs c times, c min(1, (√(c/(t·N)) + 1) t·N / c)."""
    threshold = sample * sum(counts)
    return sum(c * min(1.0, ((c / threshold) ** 0.5 + 1) * threshold / c) for c in counts)
