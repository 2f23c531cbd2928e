"""The quality of saved word vectors, the same code for all systems of word2vec.py: WordSim-353, SimLex-999, analogies.

    python word2vec_quality.py VECTORS.bin --vocabulary COUNTS.tsv --evaluation DIR [--restrict 30000]

Prints one JSON line. Knows neither attnkit nor a peer: it reads word2vec's binary format itself. The vectors must be of
just the words of COUNTS.tsv, in any order; analogies are asked among its first 30,000, so that ties in frequency cannot
give two systems different questions. Pairs and questions with other words are left out and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def read_binary(path: Path) -> tuple[list[str], Matrix]:
    """Read word2vec's binary format."""
    data = path.read_bytes()
    end = data.index(b"\n")
    n_words, dim = map(int, data[:end].split())
    words, matrix, at = [], np.empty((n_words, dim), np.float32), end + 1
    for row in range(n_words):
        blank = data.index(b" ", at)
        words.append(data[at:blank].decode().lstrip("\n"))
        matrix[row] = np.frombuffer(data, "<f4", dim, blank + 1)
        at = blank + 1 + 4 * dim
    return words, matrix


def in_order(words: list[str], matrix: Matrix, vocabulary: list[str]) -> Matrix:
    """Return the rows in the vocabulary's order, of length one. Exits unless both have the same words."""
    row = {word: i for i, word in enumerate(words)}
    if len(row) != len(words) or set(row) != set(vocabulary):
        only = sorted(set(row) - set(vocabulary))[:5], sorted(set(vocabulary) - set(row))[:5]
        sys.exit(f"not the same vocabulary: {len(words)} and {len(vocabulary)} words, only in one of them: {only}")
    ordered = matrix[[row[word] for word in vocabulary]]
    if not np.isfinite(ordered).all():
        sys.exit("vectors that are not finite")
    unit: Matrix = ordered / np.linalg.norm(ordered, axis=1, keepdims=True)
    return unit


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks, ties at the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: NDArray[np.float64] = ((last - counts + last - 1) / 2)[inverse]
    return mean


def spearman(path: Path, row: dict[str, int], unit: Matrix) -> dict[str, Any]:
    """Return Spearman's correlation of cosines with people's judgements; word, word, judgement by tabs."""
    left, right, judged, unknown = [], [], [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        a, b, value = line.lower().split("\t")[:3]
        if a in row and b in row:
            left.append(row[a]), right.append(row[b]), judged.append(float(value))
        else:
            unknown += 1
    cosines = (unit[left].astype(np.float64) * unit[right]).sum(1)
    rho = np.corrcoef(ranks(np.asarray(judged)), ranks(cosines))[0, 1]
    return {"score": float(rho), "asked": len(judged), "unknown": unknown}


def analogies(path: Path, row: dict[str, int], unit: Matrix, restrict: int) -> dict[str, Any]:
    """Return the share of questions a:b, c:? that the nearest row to b - a + c answers, the three left out."""
    questions, unknown = [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(":") or not line.strip():
            continue
        asked = [row.get(word, restrict) for word in line.lower().split()]
        if max(asked) < restrict:
            questions.append(asked)
        else:
            unknown += 1
    if not questions:
        return {"score": 0.0, "asked": 0, "unknown": unknown}
    table, correct = unit[:restrict], 0
    for begin in range(0, len(questions), 256):
        part = np.asarray(questions[begin : begin + 256])
        a, b, c, answer = part.T
        scores = (table[b] - table[a] + table[c]) @ table.T  # (256, restrict)
        np.put_along_axis(scores, part[:, :3], -np.inf, axis=1)
        correct += int((scores.argmax(1) == answer).sum())
    return {"score": correct / len(questions), "asked": len(questions), "unknown": unknown}


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--restrict", type=int, default=30_000)
    parser.add_argument("--ordered", type=Path, help="write the vectors in the vocabulary's order, for a check")
    options = parser.parse_args()
    vocabulary = [line.split("\t")[0] for line in options.vocabulary.read_text().splitlines()]
    words, matrix = read_binary(options.vectors)
    unit = in_order(words, matrix, vocabulary)
    if options.ordered:
        with options.ordered.open("wb") as out:
            out.write(f"{len(vocabulary)} {unit.shape[1]}\n".encode())
            for word, vector in zip(vocabulary, unit.astype("<f4"), strict=True):
                out.write(word.encode() + b" " + vector.tobytes() + b"\n")
    row = {word: i for i, word in enumerate(vocabulary)}
    found = {name: spearman(options.evaluation / f"{name}.tsv", row, unit) for name in ("wordsim353", "simlex999")}
    found["analogies"] = analogies(options.evaluation / "questions-words.txt", row, unit, options.restrict)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
