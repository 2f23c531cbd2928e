"""What is learnt in one model and used in another: word vectors in a BERT and a translator, BERT in a translator.

    PYTHONPATH=src python benchmarks/transfer.py --data DIR
    PYTHONPATH=src python benchmarks/transfer.py --data DIR --only bert --seeds 1
    PYTHONPATH=src python benchmarks/transfer.py --data DIR --report

DIR holds multi30k and wikipedia-en. Four groups of short trainings, each of two to three minutes on two cores:

- bert: a tiny BERT on the first PARAGRAPHS of wikipedia-en, its embeddings drawn at random, or begun with Word2Vec
  vectors of the same text: of words (only pieces that are whole words have one) or of the BERT's own pieces; as they
  are, and scaled to the spread of drawn ones (std 0.02);
- translator: Multi30k English-German with embeddings drawn, or begun with vectors: of English words from wikipedia-en
  on the source's side, and of German ones, from Multi30k's own training text, on the target's side too; scaled to the
  spread of drawn ones (std D^-0.5) but for one;
- encoder: a translator of BERT's architecture with its encoder drawn, and begun with the BERT of the first group;
- languages: both sides of Multi30k in one encoder, a quarter of the German alone, with data.language_sampling_alpha 1,
  0.5 and 0.3: the share of each language in the rows of five epochs beside p^alpha, and the accuracy for masked tokens
  of each.

All runs of a group take the same vocabularies, order, steps and learning rate. A row holds the curve on the development
set. Runs resume; figures go to benchmarks/results/transfer.json after each; --report makes tables and curves (SVG) of
them. --steps shortens all, to try it out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import WORK, Message, digest, read_rows, update_rows
from transfer_report import plots, report

from attnkit import Vectors
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.packed_batches import sampling_probabilities
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.tasks.language_modeling.config import MlmConfig
from attnkit.tasks.language_modeling.data import load_text

RESULT = Path(__file__).parent / "results" / "transfer.json"
WIDTH, EPOCHS = 128, 5
Curve = list[dict[str, Any]]
BERT = {"drawn": None, "words": ("words", None), "words, scaled": ("words", 0.02), "pieces, scaled": ("pieces", 0.02)}
"""Name -> the vectors that the embeddings begin with, and their standard deviation if it is changed."""
SPREAD = WIDTH**-0.5
TRANSLATOR = {
    "drawn": {},
    "source": {"embeddings": ("words", None)},
    "source, scaled": {"embeddings": ("words", SPREAD)},
    "both, scaled": {"embeddings": ("words", SPREAD), "target_embeddings": ("german", SPREAD)},
}
ALPHAS = (1.0, 0.5, 0.3)


def attnkit(*arguments: object) -> str:
    """Run a command of the toolkit and return what it said on stderr."""
    command = [sys.executable, "-m", "attnkit", *map(str, arguments)]
    done = subprocess.run(command, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return done.stderr


def settings_of(given: argparse.Namespace) -> Message:
    """Return all that figures depend on."""
    return {
        "runs": {"bert": BERT, "translator": TRANSLATOR, "alphas": ALPHAS},
        "paragraphs": given.paragraphs,
        "steps": given.steps,
        "threads": given.threads,
        "width": WIDTH,
        "torch": torch.__version__,
    }


class Workplace:
    """The texts, vocabularies and vectors that the trainings of one call share."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.settings = given, settings_of(given)
        self.home = WORK / "transfer" / digest(self.settings)
        self.home.mkdir(parents=True, exist_ok=True)
        self.fixed = ["--threads", given.threads, "--max-steps", given.steps]
        every = max(1, given.steps // 10)
        self.fixed += self.sets(f"evaluation.every_steps={every}", "evaluation.n_samples=0")

    @staticmethod
    def sets(*keys: str) -> list[str]:
        """Return flags that set keys."""
        return [word for key in keys for word in ("--set", key)]

    def made(self, name: str, lines: Iterator[str] | None = None, *command: object) -> Path:
        """Return a file or run, made by its lines or by a command the first time."""
        path = self.home / name
        if lines is not None and not path.exists():
            path.with_suffix(".tmp").write_text("".join(lines))
            path.with_suffix(".tmp").rename(path)
        if command:
            attnkit(*command, "-o", path)
        return path

    def multi30k(self, part: str, side: str) -> Path:
        """Return a file of Multi30k."""
        return Path(self.given.data) / "multi30k" / f"{part}.{side}.gz"

    def wikipedia(self, part: str = "train") -> Path:
        """Return the first paragraphs of Wikipedia, its headings and blank lines left out."""
        most = self.given.paragraphs if part == "train" else max(20, self.given.paragraphs // 40)
        with lzma.open(Path(self.given.data) / "wikipedia-en" / f"{part}.txt.xz", "rt", encoding="utf-8") as stream:
            return self.made(f"{part}.txt", islice((line for line in stream if len(line) > 80), most))

    def vocabulary(self, name: str, text: Path, *symbols: str) -> Path:
        """Return a vocabulary of 4,000 pieces."""
        path = self.home / f"{name}.vocab.json"
        if not path.exists():
            attnkit("vocab", text, "-o", path, "--size", 4000, *(w for s in symbols for w in ("--symbol", s)))
        return path

    def vectors(self, name: str, std: float | None) -> Path:
        """Return word vectors of a text as a file, scaled to a standard deviation if one is given."""
        text = self.multi30k("train", "de") if name == "german" else self.wikipedia()
        pieces = ["--tokenizer", self.vocabulary("wikipedia", text, "[MASK]")] if name == "pieces" else []
        run, path = self.home / f"vectors-{name}", self.home / f"vectors-{name}-{std}.safetensors"
        if not path.exists():
            attnkit("word2vec", "train", text, "-o", run, "--dim", WIDTH, "--epochs", 5, "--seed", 1, *pieces)
            given = Vectors.load(run)
            rows = np.array(given.vectors[:])
            Vectors(given.index_to_key, rows if std is None else rows * np.float32(std / rows.std())).save(path)
        return path

    def train(self, name: str, *words: object) -> Message:
        """Train, or go on, and return the curve with what was said of vectors."""
        run = self.home / name
        said = attnkit(*words, "-o", run, *self.fixed)
        kept = run.with_suffix(".coverage")
        coverage = [line.strip() for line in said.splitlines() if "begin with a vector" in line]
        if coverage:
            kept.write_text("\n".join(coverage))
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        curve: Curve = [
            {k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == "evaluation"
        ]
        clock = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
        found: Message = {"curve": curve, "minutes": clock[-1]["minutes"]}
        if kept.exists():
            found["vectors"] = kept.read_text().replace(f"{self.home}/", "").splitlines()
        return found

    def bert(self, name: str, seed: int) -> Message:
        """Pretrain a BERT."""
        text = self.wikipedia()
        words = ["pretrain-mlm", text, "--valid", self.wikipedia("valid"), "--preset", "tiny", "--seed", seed]
        words += ["--vocab", self.vocabulary("wikipedia", text, "[MASK]"), *self.sets("data.document_format=lines")]
        if (chosen := BERT[name]) is not None:
            words += self.sets(f"model.embeddings={self.vectors(*chosen)}")
        return self.train(f"bert-{digest([name, seed])}", *words)

    def pair(self, seed: int) -> list[object]:
        """Return the arguments that all translators share."""
        texts = [("--src", "train", "en"), ("--tgt", "train", "de"), ("--valid-src", "val", "en")]
        texts.append(("--valid-tgt", "val", "de"))
        files = [word for flag, *which in texts for word in (flag, self.multi30k(*which))]
        return ["train", *files, "--preset", "tiny", "--seed", seed]

    def translator(self, name: str, seed: int) -> Message:
        """Train a translator with two vocabularies."""
        sides = [self.vocabulary(side, self.multi30k("train", side)) for side in ("en", "de")]
        words = [*self.pair(seed), "--vocab", sides[0], "--vocab", sides[1]]
        keys = [f"model.{key}={self.vectors(*chosen)}" for key, chosen in TRANSLATOR[name].items()]
        return self.train(f"translator-{digest([name, seed])}", *words, *self.sets(*keys))

    def encoder(self, name: str, seed: int) -> Message:
        """Train a translator of a BERT's architecture, begun with its encoder or drawn."""
        self.bert("drawn", seed)
        bert, begun = self.home / f"bert-{digest(['drawn', seed])}", self.home / f"encoder-{digest(['bert', seed])}"
        found = self.train(begun.name, *self.pair(seed), "--init-from", bert)
        if name == "bert":
            return found
        config = read_run_config(RunFolder(begun).checkpoint()[0]).model_dump(mode="json")
        keys = [f"model.{key}={json.dumps(value)}" for key, value in config["model"].items() if value is not None]
        lengths = {f"{part}.max_length": config[part]["max_length"] for part in ("data", "decoding")}
        keys += [f"{key}={value}" for key, value in lengths.items() if value is not None]
        both = ["--vocab", begun / "tokenizer.json", "--vocab", begun / "tokenizer.target.json"]
        drawn = self.home / f"encoder-{digest([name, seed])}"
        found = self.train(drawn.name, *self.pair(seed), *both, *self.sets(*keys))
        model = read_run_config(RunFolder(drawn).checkpoint()[0]).model_dump(mode="json")["model"]
        if model != config["model"]:
            sys.exit(f"the two translators differ: {model}, {config['model']}")
        return found

    def languages(self, alpha: float, seed: int) -> Message:
        """Pretrain one encoder for English and a quarter of the German, and count what it is shown."""
        with gzip.open(self.multi30k("train", "de"), "rt", encoding="utf-8") as stream:
            german = self.made("quarter.de", islice(stream, 29_000 // 4))
        name = f"languages-{digest([alpha, seed])}"
        files = [self.multi30k("train", "en"), german]
        valid = [word for side in ("en", "de") for word in ("--valid", self.multi30k("val", side))]
        words = ["pretrain-mlm", *files, *valid, "--preset", "tiny", "--seed", seed]
        sets = (f"data.language_sampling_alpha={alpha}", "data.document_format=lines", "data.sequence_length=64")
        found = self.train(name, *words, *self.sets(*sets, "model.max_length=64"))
        return {**found, **shown(self.home / name, alpha)}


def shown(run: Path, alpha: float) -> Message:
    """Return the share of each language in what a run was shown in EPOCHS epochs, and what it should have been."""
    config = read_run_config(RunFolder(run).checkpoint()[0])
    assert isinstance(config, MlmConfig)
    rows = load_text(config, run / "data").train
    counts = np.zeros(2)
    for epoch in range(EPOCHS):
        drawn = rows.mixture.draw(config.seed, epoch)
        numbers = np.arange(len(rows)) if drawn is None else np.asarray(drawn, np.int64)
        counts += np.bincount(rows.mixture.corpus(numbers), rows.n_free(numbers), minlength=2)
    corpora = rows.corpora
    tokens = [int(corpora.store.lengths[span].sum()) for span in corpora.spans]
    return {
        "tokens": tokens,
        "share of all": [size / sum(tokens) for size in tokens],
        "p^alpha": sampling_probabilities(tokens, alpha),
        "share of what was shown": (counts / counts.sum()).tolist(),
    }


def main() -> None:
    """Train what the result file lacks, write figures after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=["bert", "translator", "encoder", "languages"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--paragraphs", type=int, default=40_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--report", action="store_true", help="print and draw what is measured, train nothing")
    given = parser.parse_args()
    if given.report:
        rows = read_rows(given.result, settings_of(given))
        for group, drawn in plots(rows).items():
            given.result.with_name(f"{given.result.stem}-{group}.svg").write_bytes(drawn)
        print(report(rows))
        return
    place = Workplace(given)
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "bert": (place.bert, list(BERT)),
        "translator": (place.translator, list(TRANSLATOR)),
        "encoder": (place.encoder, ["drawn", "bert"]),
        "languages": (place.languages, list(ALPHAS)),
    }
    for seed in given.seeds:
        for kind in given.only or kinds:
            measure, names = kinds[kind]
            for name in names:
                key = f"{kind}: {name}, seed {seed}"
                if key in read_rows(given.result, place.settings):
                    continue
                row = measure(name, seed)
                with update_rows(given.result, place.settings) as rows:
                    rows[key] = row
                print(key, json.dumps(row["curve"][-1]), f"{row['minutes']:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
