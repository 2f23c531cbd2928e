"""The peers of word2vec.py: one training of gensim or fastText in a process of its own, and gensim's evaluation.

    PEERS-PYTHON word2vec_peers.py train gensim '{"text": …}'
    PEERS-PYTHON word2vec_peers.py evaluate '{"vectors": …}'

Prints one JSON line; what the libraries print goes to stderr. The vectors are saved in word2vec's binary format.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

Message = dict[str, Any]


def gensim(spec: Message) -> Message:
    """Train by gensim from a file of lines (``corpus_file``, its fastest way); the vocabulary's scan is timed apart."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        sg=int(spec["method"] == "skip-gram"), hs=0, cbow_mean=1, vector_size=spec["dim"], window=spec["window"],
        negative=spec["negative"], sample=spec["sample"], min_count=spec["min_count"], alpha=spec["alpha"],
        min_alpha=spec["min_alpha"], epochs=spec["epochs"], workers=spec["threads"], seed=spec["seed"],
    )  # fmt: skip
    began = time.perf_counter()
    model.build_vocab(corpus_file=spec["text"])
    built = time.perf_counter()
    model.train(
        corpus_file=spec["text"], total_words=model.corpus_total_words, total_examples=model.corpus_count,
        epochs=spec["epochs"],
    )  # fmt: skip
    trained = time.perf_counter()
    model.wv.save_word2vec_format(spec["vectors"], binary=True)
    saved = time.perf_counter()
    return {"seconds": trained - built, "vocabulary seconds": built - began, "saving seconds": saved - trained}


def fasttext(spec: Message) -> Message:
    """Train by fastText. Reading the text comes first; training is timed from the first progress report on.

    That report is printed 0.1 s after the threads began; the last one when they have ended.
    """
    import fasttext as library
    from fasttext import FastText

    build = FastText._build_args

    def seeded(*given: Any) -> Any:
        built = build(*given)
        built.seed = spec["seed"]  # the one argument that the library knows but does not let through
        return built

    FastText._build_args = seeded
    clock = Clock()
    began = time.perf_counter()
    model = library.train_unsupervised(
        spec["text"], model="skipgram" if spec["method"] == "skip-gram" else "cbow", dim=spec["dim"],
        ws=spec["window"], neg=spec["negative"], t=spec["sample"], minCount=spec["min_count"], lr=spec["alpha"],
        epoch=spec["epochs"], thread=spec["threads"], minn=spec["min_n"], maxn=spec["max_n"], bucket=spec["buckets"],
        loss="ns", verbose=2,
    )  # fmt: skip
    trained = time.perf_counter()
    first, last = clock.stop()
    words = [word for word in model.words if word != "</s>"]  # its end of a line counts as a word
    write_binary(Path(spec["vectors"]), words, spec["dim"], model.get_word_vector)
    saved = time.perf_counter()
    unseen = {
        word: {"known": word in words, "neighbours": [near for _, near in model.get_nearest_neighbors(word, k=10)]}
        for word in spec.get("misspelt", [])
    }
    seconds = last - first + 0.1
    return {
        "seconds": seconds,
        "vocabulary seconds": trained - began - seconds,
        "saving seconds": saved - trained,
        "unseen": unseen,
    }


class Clock:
    """Notes when progress is printed on stderr, and passes on what is."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.true = os.dup(2)
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self.thread = threading.Thread(target=self._listen, args=(read,))
        self.thread.start()

    def _listen(self, pipe: int) -> None:
        while chunk := os.read(pipe, 1 << 16):
            if b"Progress" in chunk:
                self.times.append(time.perf_counter())
            os.write(self.true, chunk)
        os.close(pipe)

    def stop(self) -> tuple[float, float]:
        """Return when the first and the last progress was printed."""
        os.dup2(self.true, 2)
        self.thread.join()
        return self.times[0], self.times[-1]


def write_binary(path: Path, words: list[str], dim: int, vector: Any) -> None:
    """Write word2vec's binary format."""
    with path.open("wb") as out:
        out.write(f"{len(words)} {dim}\n".encode())
        for word in words:
            out.write(word.encode() + b" " + struct.pack(f"<{dim}f", *vector(word)) + b"\n")


def evaluate(spec: Message) -> Message:
    """Return what gensim's own functions make of saved vectors: what ours are checked against."""
    from gensim.models import KeyedVectors

    vectors = KeyedVectors.load_word2vec_format(spec["vectors"], binary=True)
    pairs = {
        name: float(vectors.evaluate_word_pairs(spec[name])[1].statistic) for name in ("wordsim353", "simlex999")
    }  # fmt: skip
    analogies, sections = vectors.evaluate_word_analogies(spec["analogies"], restrict_vocab=spec["restrict"])
    asked = len(sections[-1]["correct"]) + len(sections[-1]["incorrect"])
    return {**pairs, "analogies": float(analogies), "analogies asked": asked}


def main() -> None:
    """Do what is asked, and answer on what was stdout."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = json.loads(sys.argv[-1])
    if sys.argv[1] == "evaluate":
        answer = evaluate(spec)
    else:
        answer = {"gensim": gensim, "fasttext": fasttext}[sys.argv[2]](spec)
    replies.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
