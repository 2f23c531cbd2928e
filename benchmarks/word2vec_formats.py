"""Do attnkit, gensim and fastText read each other's vectors and answer alike? How long does a large file take to load?

    PYTHONPATH=src python benchmarks/word2vec_formats.py --text TEXT [--pairs FILE...] [--analogies FILE]
        [--peers-python PYTHON] [--large 3000000] [--again]

gensim and fastText train on TEXT (a sentence a line) and save what they can; attnkit loads each file, and must name the
neighbours, products of cosines, odd ones and scores that gensim names. Then attnkit writes every format, must read its
own numbers back to the last bit, and gensim must name the same neighbours from those that it reads. --large rows of 300
numbers (0: none) are loaded in fresh processes, by attnkit from each mapped format and by gensim from the binary one,
files in the page cache; the time is that of the first import too, once without and once with a first question.

Figures go to benchmarks/results/word2vec-formats.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import WORK, Message, add_options, open_result, peers_python, save_result

RESULT = Path(__file__).parent / "results" / "word2vec-formats.json"
HOME = WORK / "word2vec-formats"
THEIRS = ("gensim.txt", "gensim.bin", "gensim-without-header.txt", "fasttext.vec")
READ_BY_GENSIM = ("ours.txt", "ours.bin", "ours.vec", "ours.glove")
OURS = (*READ_BY_GENSIM, "ours.safetensors", "ours.npy", "ours-projector")
N_WORDS, N_NEAR = 200, 10
CLOSE = 2e-6
"""Cosines are of 32 bits, summed in another order."""


def is_bare(name: str) -> bool:
    """Return whether a file of this name has no header."""
    return "without-header" in name or name.endswith(".glove")


def gensim_loads(path: Path) -> Any:
    """Return a file's vectors as gensim reads them."""
    from gensim.models import KeyedVectors

    return KeyedVectors.load_word2vec_format(str(path), binary=path.suffix == ".bin", no_header=is_bare(path.name))


def peers_make(spec: Message) -> Message:
    """Train and save by gensim and fastText; return the versions."""
    import fasttext
    import gensim
    from gensim.models import Word2Vec

    model = Word2Vec(
        corpus_file=spec["text"], sg=1, vector_size=100, min_count=5, epochs=spec["epochs"], workers=1, seed=1
    )
    model.wv.save_word2vec_format(str(HOME / "gensim.txt"))
    model.wv.save_word2vec_format(str(HOME / "gensim.bin"), binary=True)
    model.wv.save_word2vec_format(str(HOME / "gensim-without-header.txt"), write_header=False)
    found = fasttext.train_unsupervised(spec["text"], dim=100, epoch=1, thread=1, bucket=20_000, verbose=0)
    words = found.get_words()
    with (HOME / "fasttext.vec").open("w") as out:  # as fastText's own command writes it, a space after each number
        out.write(f"{len(words)} {found.get_dimension()}\n")
        for word in words:
            out.write(word + " " + " ".join(f"{number:.5g}" for number in found.get_word_vector(word)) + " \n")
    return {"gensim": gensim.__version__, "words": len(model.wv), "fasttext words": len(words)}


def peers_ask(spec: Message) -> Message:
    """Return gensim's answers from a file."""
    vectors = gensim_loads(Path(spec["path"]))
    found = answers(vectors)
    if spec["scores"]:
        found["pairs"] = {}
        for path in spec["pairs"]:
            pearson, spearman, missing = vectors.evaluate_word_pairs(path, restrict_vocab=30_000)
            found["pairs"][path] = [float(spearman.statistic), float(pearson.statistic), missing]
        if spec["analogies"]:
            right, sections = vectors.evaluate_word_analogies(spec["analogies"], restrict_vocab=30_000)
            last = sections[-1]
            found["analogies"] = [right, len(last["correct"]) + len(last["incorrect"])]
    return found


def answers(vectors: Any) -> Message:
    """Return answers that both libraries give by the same names: neighbours, products, odd ones."""
    words = vectors.index_to_key
    step = max(1, len(words) // N_WORDS)
    asked = words[::step][:N_WORDS]
    triples = [asked[i : i + 3] for i in range(0, len(asked) - 3, 3)]
    return {
        "neighbours": {word: vectors.most_similar(word, topn=N_NEAR) for word in asked},
        "sums": [vectors.most_similar([b, c], [a], topn=N_NEAR) for a, b, c in triples],
        "products": [vectors.most_similar_cosmul([b, c], [a], topn=N_NEAR) for a, b, c in triples],
        "odd": [vectors.doesnt_match(words) for words in triples],
        "similarity": [float(vectors.similarity(a, b)) for a, b, _ in triples],
        "group": [float(vectors.n_similarity([a, b], [c])) for a, b, c in triples],
    }


def compared(ours: Message, theirs: Message) -> Message:
    """Return how much of two sets of answers is the same; equal cosines may stand in either order."""
    lists = [(ours["neighbours"][word], found) for word, found in theirs["neighbours"].items()]
    for key in ("sums", "products"):
        lists += list(zip(ours[key], theirs[key], strict=True))
    gap = max(abs(mine[1] - other[1]) for a, b in lists for mine, other in zip(a, b, strict=True))
    numbers = [abs(a - b) for key in ("similarity", "group") for a, b in zip(ours[key], theirs[key], strict=True)]
    same = sum([word for word, _ in a] == [word for word, _ in b] for a, b in lists)
    ties = sum(is_same(a, b) for a, b in lists)
    return {
        "lists": len(lists),
        "same words in the same order": same,
        "same but for equal scores": ties,
        "largest difference of a score": max(gap, *numbers),
        "odd ones alike": sum(a == b for a, b in zip(ours["odd"], theirs["odd"], strict=True)) / len(ours["odd"]),
    }


def is_same(ours: list[Any], theirs: list[Any]) -> bool:
    """Return whether two lists of words and scores differ only where scores are equal, as near as 32 bits tell."""
    found, last = dict(ours), theirs[-1][1]
    return all(abs(found.get(word, last) - score) < CLOSE for word, score in theirs)


def ask_peers(python: Path, what: str, spec: Message) -> Message:
    """Run a function of this file under the peers' interpreter."""
    run = subprocess.run([python, __file__, what, json.dumps(spec)], stdout=subprocess.PIPE, text=True, check=True)
    answer: Message = json.loads(run.stdout.splitlines()[-1])
    return answer


def read_theirs(options: argparse.Namespace, python: Path) -> dict[str, Message]:
    """Return, for each file of the peers', how attnkit's answers compare with gensim's."""
    from attnkit import Vectors
    from attnkit.tasks.word2vec.evaluate import Known, read_analogies, read_pairs, score_analogies, score_pairs

    known, rows = Known(30_000, True), {}
    for name in THEIRS:
        vectors = Vectors.load(HOME / name)
        spec = {"path": str(HOME / name), "scores": True, "pairs": options.pairs, "analogies": options.analogies}
        theirs = ask_peers(python, "ask", spec)
        rows[name] = compared(json.loads(json.dumps(answers(vectors))), theirs)
        gaps = []
        for path, (spearman, pearson, missing) in theirs["pairs"].items():
            found = score_pairs(vectors, read_pairs(Path(path)), known)
            unknown = 100 * found.unknown / (found.known + found.unknown)
            gaps += [abs((found.spearman or 0) - spearman), abs((found.pearson or 0) - pearson), abs(unknown - missing)]
        if options.analogies:
            total = score_analogies(vectors, read_analogies(Path(options.analogies)), known).total
            gaps += [abs((total.accuracy or 0) - theirs["analogies"][0]), abs(total.known - theirs["analogies"][1])]
        rows[name]["largest difference of a benchmark's score"] = max(gaps, default=None)
    return rows


def read_ours(python: Path) -> dict[str, Message]:
    """Return, for each format that attnkit writes, whether it comes back, and how gensim's answers compare."""
    import numpy as np

    from attnkit import Vectors

    vectors = Vectors.load(HOME / "gensim.bin")
    mine = json.loads(json.dumps(answers(vectors)))
    rows: dict[str, Message] = {}
    for name in OURS:
        subprocess.run(["rm", "-rf", HOME / name], check=True)
        vectors.save(HOME / name)
        again = Vectors.load(HOME / name)
        exact = again.index_to_key == vectors.index_to_key and np.array_equal(again.vectors[:], vectors.vectors[:])
        rows[name] = {"comes back to the last bit": bool(exact)}
        if name in READ_BY_GENSIM:
            theirs = ask_peers(python, "ask", {"path": str(HOME / name), "scores": False})
            rows[name] |= compared(mine, theirs)
    return rows


LOADING = """
import sys, time
began = time.perf_counter()
if sys.argv[1] == "gensim":
    from gensim.models import KeyedVectors
    vectors = KeyedVectors.load_word2vec_format(sys.argv[2], binary=True)
else:
    from attnkit import Vectors
    vectors = Vectors.load(sys.argv[2])
loaded = time.perf_counter()
found = vectors.most_similar(vectors.index_to_key[7], topn=3)
asked = time.perf_counter()
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")]
print(len(vectors), loaded - began, asked - began, time.process_time(), int(peak[0]) / 1024)
"""


def large_cases(python: Path) -> list[tuple[str, str, str]]:
    """Return interpreter, system and file of every loading that is timed."""
    ours = [(sys.executable, "attnkit", f"large{ending}") for ending in (".safetensors", ".npy", ".bin")]
    return [*ours, (str(python), "gensim", "large.bin")]


def time_loading(interpreter: str, system: str, name: str) -> Message:
    """Return how long a file takes to load in a fresh process, the fastest of three, and the memory not mapped."""
    runs = []
    for _ in range(1 if system == "gensim" else 3):
        with (HOME / name).open("rb") as stream:  # into the page cache
            while stream.read(1 << 24):
                pass
        call = [interpreter, "-c", LOADING, system, str(HOME / name)]
        out = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True).stdout
        runs.append([float(number) for number in out.split()])
    best = min(runs, key=lambda run: run[1])
    names = ("words", "seconds to load", "seconds to the first answer", "processor seconds", "MiB of its own")
    found = {key: round(value, 2) for key, value in zip(names, best, strict=True)}
    return {**found, "load average": round(os.getloadavg()[0], 1)}


def make_large(n_words: int) -> None:
    """Write files of random rows, once."""
    import numpy as np

    from attnkit import Vectors

    wanted = [HOME / f"large{ending}" for ending in (".npy", ".safetensors", ".bin")]
    if not wanted[0].exists():
        random, step = np.random.default_rng(1), 10_000
        rows = np.lib.format.open_memmap(HOME / "rows.npy", "w+", np.float32, (n_words, 300))
        for start in range(0, n_words, step):
            rows[start : start + step] = random.standard_normal((min(step, n_words - start), 300), np.float32)
        Vectors([f"word_{number}" for number in range(n_words)], rows).save(wanted[0])
        (HOME / "rows.npy").unlink()
    for path in wanted[1:]:
        if not path.exists():
            Vectors.load(wanted[0]).save(path)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--pairs", nargs="*", default=[])
    parser.add_argument("--analogies")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--large", type=int, default=3_000_000)
    options = parser.parse_args()
    python = peers_python(options.peers_python, "word2vec.txt")
    HOME.mkdir(parents=True, exist_ok=True)
    settings = {
        "text": options.text.name,
        "epochs": options.epochs,
        "pairs": len(options.pairs),
        "large": options.large,
    }
    path = options.result or RESULT
    result = open_result(path, settings, again=options.again)
    if "made" not in result or not all((HOME / name).exists() for name in THEIRS):
        result["made"] = ask_peers(python, "make", {"text": str(options.text), "epochs": options.epochs})
        save_result(path, result)
    if "attnkit reads theirs" not in result:
        result["attnkit reads theirs"] = read_theirs(options, python)
        save_result(path, result)
    if "what attnkit writes" not in result:
        result["what attnkit writes"] = read_ours(python)
        save_result(path, result)
    if options.large:
        make_large(options.large)
        for interpreter, system, name in large_cases(python):
            rows = result.setdefault("large files", {})
            if f"{system}, {name}" not in rows:
                rows[f"{system}, {name}"] = time_loading(interpreter, system, name)
                save_result(path, result)
    result["measured"] = time.strftime("%Y-%m-%d")
    save_result(path, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] in (["make"], ["ask"]):
        asked = json.loads(sys.argv[2])
        print(json.dumps(peers_make(asked) if sys.argv[1] == "make" else peers_ask(asked)))
    else:
        main()
