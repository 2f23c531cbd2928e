"""Reranking by a run of the opposite direction on Multi30k: BLEU by beam and weight.

    PYTHONPATH=src python benchmarks/reranking.py --data MULTI30K [--epochs 20] [--preset tiny]
    PYTHONPATH=src python benchmarks/reranking.py --data MULTI30K --forward RUN --backward RUN

MULTI30K has train, val and test_2016_flickr in .en and .de. Without runs, a model of each direction is trained for the
epochs, one after the other, with one thread. Each beam is searched once: its hypotheses are scored by both runs, and
the weights are tried on these scores. The weight with the best BLEU on the development set is chosen for each beam; the
test set is scored with that weight alone, beside the same beam without reranking (paired bootstrap). A length penalty
chosen in the same way is the control: it shows what longer texts alone explain. Resumable: a run that is finished is
not trained again. The figures are written to benchmarks/results/reranking.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu
from peers import WORK as WORK_FOLDER
from peers import machine
from sacrebleu.significance import PairedTest

HERE = Path(__file__).parent
WORK = WORK_FOLDER / "reranking"
RESULT = HERE / "results" / "reranking.json"
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
BEAMS = (5, 10, 20, 40)
DEVELOPMENT, TEST = "val", "test_2016_flickr"
ALPHAS = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)  #: exponents of the length penalty


class Candidate(NamedTuple):
    """A hypothesis of the beam."""

    text: str
    score: float
    reverse: float
    log_prob: float
    n_tokens: int  #: with the end


Candidates = list[list[Candidate]]


def lines_of(data: Path, name: str) -> list[str]:
    return (data / name).read_text(encoding="utf-8").split("\n")[:-1]


def train(given: argparse.Namespace, src: str, tgt: str) -> Path:
    """Train a run of a direction, unless it is finished."""
    run = WORK / f"{given.preset}-{given.epochs:g}-{src}-{tgt}"
    files = [("--src", "train", src), ("--tgt", "train", tgt)]
    files += [("--valid-src", DEVELOPMENT, src), ("--valid-tgt", DEVELOPMENT, tgt)]
    named = [part for option, name, side in files for part in (option, str(given.data / f"{name}.{side}"))]
    limits = ["--set", f"limits.max_epochs={given.epochs}", "--set", f"seed={given.seed}"]
    command = ["train", *named, "-o", str(run), "--preset", given.preset, "--threads", "1", "--quiet", *limits]
    subprocess.run([sys.executable, "-m", "attnkit", *command], check=True)
    return run


def candidates(forward: Path, backward: Path, lines: Sequence[str], beam: int) -> Candidates:
    """Return the hypotheses of each line with both scores."""
    from attnkit import Translator

    translator = Translator.load(forward, device="cpu", threads=1, split="lines", rerank_with=backward, rerank_weight=0)
    found = translator.translate(lines, beam_size=beam, num_hypotheses=beam, quiet=True)
    # A reversed run with learned positions reads no longer lines: these keep the order of the search.
    return [
        [
            Candidate(one.text, one.score, one.reverse_score or 0.0, one.log_prob, len(one.tokens) + 1)
            for one in (line, *line.alternatives)
        ]
        for line in found
    ]


def choose(rows: Candidates, rank: Callable[[Candidate], float]) -> list[str]:
    """Return the best text of each line."""
    return [max(row, key=rank).text for row in rows]


def by_weight(weight: float) -> Callable[[Candidate], float]:
    """Return the rank by both runs; a weight of 0 is the search's own."""
    return lambda one: one.score + weight * one.reverse


def by_length(alpha: float) -> Callable[[Candidate], float]:
    """Return the rank by another length penalty: what the length of the texts alone explains."""
    return lambda one: one.log_prob / one.n_tokens**alpha


def bleu(hypotheses: list[str], references: list[str]) -> float:
    return round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)


def compare(plain: list[str], ranked: list[str], references: list[str]) -> dict[str, float]:
    """Return the scores of both on the test set and the p-value of their difference."""
    metrics = {"BLEU": sacrebleu.BLEU(references=[references])}
    _, scores = PairedTest([("beam", plain), ("ranked", ranked)], metrics, [references], "bs", 1000)()
    p_value = scores["BLEU"][1].p_value
    lengths = [round(sacrebleu.corpus_bleu(one, [references]).sys_len / len(references), 2) for one in (plain, ranked)]
    return {
        "beam": bleu(plain, references),
        "ranked": bleu(ranked, references),
        "p": 1.0 if plain == ranked else round(float(p_value or 0.0), 4),
        "words per line": lengths,  # type: ignore[dict-item]
    }


def main() -> None:
    """Train, search, choose the weight on the development set, score the test set once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=20.0, help="of training, per direction")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forward", type=Path, help="finished en-de run")
    parser.add_argument("--backward", type=Path, help="finished de-en run")
    parser.add_argument("--beams", type=int, nargs="*", default=list(BEAMS))
    given = parser.parse_args()
    if (given.forward is None) != (given.backward is None):
        parser.error("give both runs or none")
    WORK.mkdir(parents=True, exist_ok=True)
    forward = given.forward or train(given, "en", "de")
    backward = given.backward or train(given, "de", "en")
    sources, references = (
        {part: lines_of(given.data, f"{part}.{side}") for part in (DEVELOPMENT, TEST)} for side in ("en", "de")
    )
    result: dict[str, Any] = {
        "machine": machine(),
        "models": {"preset": given.preset, "epochs": given.epochs, "seed": given.seed}
        if given.forward is None
        else [str(forward), str(backward)],
        "metric": "BLEU, cased, 13a; weight chosen on val, then test_2016_flickr once",
        "beams": {},
    }
    for beam in given.beams:
        rows = candidates(forward, backward, sources[DEVELOPMENT], beam)
        weights = {w: bleu(choose(rows, by_weight(w)), references[DEVELOPMENT]) for w in WEIGHTS}
        alphas = {alpha: bleu(choose(rows, by_length(alpha)), references[DEVELOPMENT]) for alpha in ALPHAS}
        weight, alpha = max(WEIGHTS, key=lambda w: (weights[w], -w)), max(ALPHAS, key=lambda a: (alphas[a], -a))
        test = candidates(forward, backward, sources[TEST], beam)
        plain = choose(test, by_weight(0.0))
        result["beams"][f"{beam}"] = {
            "development set, by weight": {f"{w:g}": score for w, score in weights.items()},
            "weight": weight,
            "test set": compare(plain, choose(test, by_weight(weight)), references[TEST]),
            "development set, by length penalty alone": {f"{a:g}": score for a, score in alphas.items()},
            "length penalty": alpha,
            "test set, length penalty alone": compare(plain, choose(test, by_length(alpha)), references[TEST]),
        }
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result["beams"][f"{beam}"]), flush=True)


if __name__ == "__main__":
    main()
