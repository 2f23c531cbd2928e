"""Word vectors: attnkit against gensim and fastText from PyPI: speed at equal quality, memory, scaling. Resumable.

    PYTHONPATH=src python benchmarks/word2vec.py --text TEXT.xz --evaluation DIR
    PYTHONPATH=src python benchmarks/word2vec.py --text TEXT.xz --evaluation DIR --only cbow subwords

TEXT is turned once into one plain file of lower-cased a-z words, the same for all; DIR holds wordsim353.tsv,
simlex999.tsv and questions-words.txt. Every training is a process of its own: `attnkit word2vec train` as a user calls
it, gensim's Word2Vec with `corpus_file`, fastText's train_unsupervised. All get dim 100, window 5, 5 negatives, sample
1e-3, min-count 5 and --threads threads; the words that get a vector must be the same, or the row ends.

Words/s are words of the file, those below min-count and those that subsampling drops included, times epochs, by the
seconds that training takes. gensim's scan for the vocabulary is not counted, nor attnkit's encoding and compilation,
nor fastText's reading: the row end-to-end counts all of that, from the start of the process to saved vectors, attnkit
once without any compiled code and once with it.

Each system's learning rate is searched with seeds that are not used again, by the mean of its three scores: all rates
of GRID with one seed, going up until two in a row are worse than the best; then those within CLOSE of the best with
two more seeds, and the best mean of three is taken; of n-grams, where a training takes minutes, one seed is all. Then
systems take turns, seed by seed: A B C A B C. Their scores are compared by Welch's t: the lower bound of the one-sided
95 % interval of the mean difference must be -.015 or more.
One code scores all (word2vec_quality.py); on the first seed it is checked against gensim's own functions.

Rows: skip-gram, cbow, exact, deterministic, end-to-end, subwords (--subword-seeds), scaling. Skip-gram, exact and
deterministic share gensim's trainings; end-to-end takes the same as well, and wants --only skip-gram beside it, or no
--only. Scaling trains on the first quarter, the first half and all of the text (1x, 2x, 4x): no line is repeated, so
the vocabulary grows as it does; 3 epochs by attnkit, --repeats times, 1 by gensim, once. A stop loses one training at
most; the same command goes on. Figures go to benchmarks/results/word2vec.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import word2vec_report as tables
from peers import Message, add_options, forget_rows, machine, peers_python, read_rows, update_rows
from word2vec_runs import HOME, MISSPELT, Case, Place, System, measured, train
from word2vec_text import Text, prepare

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "word2vec.json"
GRID = (0.025, 0.035, 0.05, 0.075, 0.1)
SEARCH_SEEDS = (1000, 1001, 1002)
"""One alone picks by chance: of CBOW's scores the spread is as large as the steps from rate to rate."""
CLOSE = 0.01
"""Twice the spread of a mean score from seed to seed: what is further below the best is not the best by chance."""
SHARED = {
    "window": 5, "negative": 5, "sample": 1e-3, "min_count": 5, "min_alpha": 1e-4,
    "min_n": 3, "max_n": 6, "buckets": 2_000_000,
}  # fmt: skip
DIM = 100
EPOCHS = {"skip-gram": 3, "cbow": 5, "subwords": 1}
KERNEL = {"window": 5, "shared": 32, "block": 16}
"""Of attnkit's skip-gram: what the machine's limits are reckoned for."""
SKIP_GRAM = System("gensim skip-gram", "gensim", "skip-gram")
OWN = System("attnkit skip-gram", None, "skip-gram")
PAIRS = {
    "skip-gram": (SKIP_GRAM, OWN),
    "cbow": (System("gensim cbow", "gensim", "cbow"), System("attnkit cbow", None, "cbow")),
    "exact": (SKIP_GRAM, System("attnkit exact", None, "skip-gram", ("--exact",))),
    "deterministic": (SKIP_GRAM, System("attnkit deterministic", None, "skip-gram", ("--deterministic",))),
    "subwords": (
        System("fasttext subwords", "fasttext", "skip-gram", subwords=True),
        System("attnkit subwords", None, "skip-gram", subwords=True),
    ),
}
ROWS = (*PAIRS, "end-to-end", "scaling")
SIZES = {"1x": 0.25, "2x": 0.5, "4x": 1.0}


def mean_score(records: list[Message]) -> float:
    """Return the mean of the three scores over some trainings."""
    return statistics.mean(record["scores"][name]["score"] for record in records for name in tables.SETS)


def cells() -> Iterator[tuple[int, str, int]]:
    """Yield threads, size and dim of what scaling trains."""
    for threads in (1, 2):
        yield from ((threads, size, DIM) for size in SIZES)
    yield from ((2, "4x", dim) for dim in (50, 200, 300))


class Experiment:
    """The trainings of a call, and the result file that they go to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path: Path = options.result or RESULT
        self.text = prepare(options.text, HOME, options.share, SHARED)
        self.place = Place(peers_python(options.peers_python, "word2vec.txt"), options.evaluation)
        self.settings = {
            "text": options.text.name, "share": options.share, "words": self.text.words,
            "vocabulary": self.text.vocabulary_size, "dim": DIM, "threads": options.threads, **SHARED,
            "peers": (HERE / "word2vec.txt").read_text().split("\n")[1:3],
        }  # fmt: skip

    def rows(self) -> dict[str, Message]:
        """Return all that is measured by now."""
        return read_rows(self.path, self.settings)

    def keep(self, name: str, record: Message) -> None:
        """Save a figure."""
        with update_rows(self.path, self.settings) as rows:
            rows[name] = record

    def epochs(self, system: System) -> int:
        """Return how often a system reads the text."""
        kind = "subwords" if system.subwords else system.method
        return self.options.epochs or EPOCHS[kind]

    def name(self, system: System, alpha: float, seed: int, cold: bool = False) -> str:
        """Return the name of a training in the result file."""
        return f"{system.name}{', cold' if cold else ''} | {self.epochs(system)} epochs | alpha {alpha:g} | seed {seed}"

    def train(self, system: System, alpha: float, seed: int, cold: bool = False) -> Message:
        """Return what a training gave, which is done unless it was before."""
        name = self.name(system, alpha, seed, cold)
        if name in (rows := self.rows()):
            return rows[name]
        case = Case(system, alpha, seed, self.text, self.epochs(system), DIM, self.options.threads, SHARED, cold)
        record = train(case, self.place, scores=not cold, check=seed == 1 and system.method == "skip-gram")
        self.keep(name, record)
        scored = {key: round(record["scores"][key]["score"], 4) for key in tables.SETS} if not cold else ""
        print(f"{name}: {record['words/s']:,.0f} words/s, {record['wall']:.1f} s in all {scored}", file=sys.stderr)
        return record

    def search(self, system: System) -> None:
        """Train with the rates of the grid, and once more and again with those that are close to the best."""
        found: dict[float, float] = {}
        for alpha in self.options.grid:
            found[alpha] = mean_score([self.train(system, alpha, SEARCH_SEEDS[0])])
            if len(found) > 2 and max(list(found.values())[-2:]) < max(found.values()):
                break
        close = [alpha for alpha, score in found.items() if score >= max(found.values()) - CLOSE]
        for seed in SEARCH_SEEDS[1:] if len(close) > 1 and not system.subwords else ():
            for alpha in close:
                self.train(system, alpha, seed)

    def searched(self, system: System) -> dict[float, list[float]]:
        """Return the mean scores by learning rate and seed that a search has found by now, without training."""
        rows, found = self.rows(), {}
        for alpha in self.options.grid:
            known = [rows[name] for seed in SEARCH_SEEDS if (name := self.name(system, alpha, seed)) in rows]
            if known:
                found[alpha] = [mean_score([record]) for record in known]
        return found

    def alpha(self, system: System) -> float | None:
        """Return the chosen learning rate, None before the search: the best of those that were tried most often."""
        found = self.searched(system)
        most = max(map(len, found.values()), default=0)
        tried = {alpha: statistics.mean(scores) for alpha, scores in found.items() if len(scores) == most}
        return max(tried, key=lambda alpha: tried[alpha]) if tried else None

    def trained(self, system: System, cold: bool = False, again: bool = False) -> list[Message]:
        """Return the trainings after the search that are done, by seed; ``again``: later ones, for the memory alone."""
        alpha, rows = self.alpha(system), self.rows()
        if alpha is None:
            return []
        names = (self.name(system, alpha, seed, cold) for seed in range(1, self.options.seeds + 1))
        names = (f"{name} | again" for name in names) if again else names
        return [rows[name] for name in names if name in rows]

    def compare(self, wanted: list[str]) -> None:
        """Search, then train seed by seed, every system in its turn."""
        systems = list(dict.fromkeys(system for row in wanted if row in PAIRS for system in PAIRS[row]))
        for system in systems:
            self.search(system)
        for seed in range(1, self.options.seeds + 1):
            for system in systems:
                if not system.subwords or seed <= self.options.subword_seeds:
                    alpha = self.alpha(system)
                    assert alpha is not None
                    self.train(system, alpha, seed)
            alpha = self.alpha(OWN)
            if "end-to-end" in wanted and alpha is not None and seed <= self.options.repeats:
                self.train(OWN, alpha, seed, cold=True)

    def sized(self, size: str) -> Text:
        """Return a part of the text."""
        return prepare(self.options.text, HOME, SIZES[size] * self.options.share, SHARED)

    def scale(self) -> None:
        """Train at other sizes, threads and widths; measure what the machine could do."""
        for threads, size, dim in cells():
            self._limit(threads, dim)
            for repeat in range(1, self.options.repeats + 1):
                for system, epochs in ((SKIP_GRAM, 1), (OWN, 3)):
                    name = f"scaling | {system.name} | {threads} threads | {size} | dim {dim} | {repeat}"
                    if (system.peer and repeat > 1) or name in self.rows():
                        continue
                    case = Case(system, 0.025, repeat, self.sized(size), epochs, dim, threads, SHARED)
                    record = train(case, self.place, scores=False)
                    self.keep(name, record)
                    print(f"{name}: {record['words/s']:,.0f} words/s", file=sys.stderr)

    def _limit(self, threads: int, dim: int) -> None:
        name = f"limits | {threads} threads | dim {dim}"
        if name not in self.rows():
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
            arguments = [threads, self.text.vocabulary_size, dim]
            command = [sys.executable, HERE / "word2vec_limits.py", *arguments]
            self.keep(name, json.loads(measured(command, environment, HOME / "limits.log")[0]))

    def report(self) -> str:
        """Return every table that there are figures for."""
        pairs = {row: (self.trained(peer), self.trained(own)) for row, (peer, own) in PAIRS.items()}
        pairs = {row: sides for row, sides in pairs.items() if all(sides)}
        peer, own = pairs.get("skip-gram", ([], []))
        cold = self.trained(OWN, cold=True)
        systems = dict.fromkeys(system for row in pairs for system in PAIRS[row])
        parts = [
            tables.search_table({system.name: (self.searched(system), self.alpha(system)) for system in systems}),
            tables.speed_table(pairs),
            tables.quality_table(pairs),
            tables.memory_table(
                {row: (peer, self.trained(PAIRS[row][1], again=True) or own) for row, (peer, own) in pairs.items()}
            ),
        ]
        if cold and peer:
            parts.append(tables.end_to_end_table(peer, cold, own))
        if "subwords" in pairs:
            theirs, ours = (side[0]["unseen"] for side in pairs["subwords"])
            parts.append(tables.misspelt_table(theirs, ours, MISSPELT))
        parts.append(self._scaling())
        parts.append(tables.verdicts(pairs, (peer, cold)))
        return "\n\n".join(part for part in parts if part)

    def _scaling(self) -> str:
        rows, found, limits = self.rows(), [], {}
        for threads, size, dim in cells():
            limit = rows.get(f"limits | {threads} threads | dim {dim}")
            if limit is None:
                return ""
            limits.setdefault(str(threads), {})[str(dim)] = limit
            start = {s: f"scaling | {s.name} | {threads} threads | {size} | dim {dim} | " for s in (SKIP_GRAM, OWN)}
            done = {s: [record for name, record in rows.items() if name.startswith(start[s])] for s in start}
            text = self.sized(size)
            found.append({"threads": threads, "name": size, "dim": dim, "words": text.words, "kept": text.kept,
                          "gensim": done[SKIP_GRAM], "attnkit": done[OWN]})  # fmt: skip
        return tables.scaling_table(found, limits, KERNEL)


def main() -> None:
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="plain or compressed text")
    parser.add_argument("--evaluation", type=Path, required=True, help="folder of the three test sets")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--seeds", type=int, default=5, help="of each side")
    parser.add_argument("--subword-seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of cold starts and of scaling")
    parser.add_argument("--epochs", type=int, help=f"for all, instead of {EPOCHS}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--grid", type=float, nargs="+", default=list(GRID), help="learning rates")
    parser.add_argument("--share", type=float, default=1.0, help="of the text, its beginning, to try this script out")
    parser.add_argument("--report", action="store_true", help="print what is measured by now, and train nothing")
    add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the training under way ends too
    experiment = Experiment(options)
    if options.again:
        forget_rows(experiment.path, experiment.settings, list(experiment.rows()) if experiment.path.exists() else [])
    if not options.report:
        print(json.dumps(machine()), file=sys.stderr)
        experiment.compare(options.only)
        if "scaling" in options.only:
            experiment.scale()
    print(experiment.report())


if __name__ == "__main__":
    main()
