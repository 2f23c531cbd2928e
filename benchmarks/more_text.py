"""Back-translation, distillation and one model for both directions on Multi30k. Resumable: run it again to go on.

    python benchmarks/more_text.py --data DIR

DIR holds train/val/test_2016_flickr in .en and .de. The first 2,500 pairs are the true ones of the back-translation,
the German lines of the others its monolingual text. Small models and short trainings, so that all of it takes some two
hours of one core; each figure is of one seed. Work lies in benchmarks/.work/more_text, the figures are written to
benchmarks/results/more_text.json. The two speeds are measured at the end, in turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sacrebleu

HERE = Path(__file__).parent
WORK = HERE / ".work" / "more_text"
RESULT = HERE / "results" / "more_text.json"
N_TRUE = 2500  #: pairs
WEIGHT = 5  #: passes per epoch over the true pairs, beside one over the synthetic ones


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    options: tuple[object, ...]
    steps: int
    settings: dict[str, object] = field(default_factory=dict)


MULTI30K = ("--config", HERE.parent / "examples" / "multi30k.yaml")
TINY = ("--preset", "tiny")
DROPOUT: dict[str, object] = {"model.dropout": 0.3}
SIZE = {"d_model": 192, "n_heads": 4, "d_ff": 768, "encoder_layers": 2, "decoder_layers": 1}
FEW = Recipe(TINY, 1277, DROPOUT)  # 40 epochs of 2,500 pairs
BETTER = Recipe(TINY, 2200)  # less dropout than for many epochs of few pairs
TEACHER = Recipe(
    MULTI30K, 2000, {"model.dropout": 0.15, "optimization.warmup_steps": 300, "optimization.ema_decay": 0.998}
)
STUDENT = Recipe(
    MULTI30K,
    1200,
    {
        **{f"model.{key}": value for key, value in SIZE.items()},
        "model.dropout": 0.1,
        "optimization.warmup_steps": 300,
        "optimization.ema_decay": 0.995,
    },
)
ONE_WAY = Recipe(TINY, 700)
BOTH_WAYS = Recipe(TINY, 1400)  # as many steps per direction


def attnkit(*arguments: object) -> None:
    """Run a command of the toolkit; its messages go to a file beside its output."""
    names = [str(argument) for argument in arguments]
    log = WORK / f"{Path(names[names.index('-o') + 1]).name}.log"
    with log.open("a") as stream:
        command = [sys.executable, "-m", "attnkit", *names]
        subprocess.run(command, check=True, stdout=stream, stderr=subprocess.STDOUT)


class Experiment:
    """The trainings, and what is made of them; each is done once."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.data, self.given = given.data, given
        for side in ("en", "de"):
            lines = (given.data / f"train.{side}").read_text().split("\n")[:-1]
            (WORK / f"few.{side}").write_text("".join(f"{line}\n" for line in lines[:N_TRUE]))
            (WORK / f"mono.{side}").write_text("".join(f"{line}\n" for line in lines[N_TRUE:]))

    def train(self, name: str, *files: object, recipe: Recipe, src: str = "en") -> None:
        """Train a model; ``files`` are the options that name its text."""
        if (WORK / f"{name}.done").exists():
            return
        tgt = "de" if src == "en" else "en"
        settings = {"threads": self.given.threads, "seed": self.given.seed, **recipe.settings}
        settings |= {"evaluation.every_steps": max(1, recipe.steps // 6), "evaluation.n_samples": 1}
        attnkit(
            "train", *recipe.options, "-o", WORK / name, *files,
            "--valid-src", self.data / f"val.{src}", "--valid-tgt", self.data / f"val.{tgt}",
            "--max-steps", recipe.steps,
            *(part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")),
        )  # fmt: skip
        (WORK / f"{name}.done").touch()

    def pairs(self, src: str, part: str = "train") -> list[object]:
        """Return the options for the files of a part."""
        folder = self.data if part == "train" else WORK
        tgt = "de" if src == "en" else "en"
        return ["--src", folder / f"{part}.{src}", "--tgt", folder / f"{part}.{tgt}"]

    def make(self, command: str, name: str, *arguments: object) -> None:
        """Write synthetic pairs, in compiled loops."""
        if not (WORK / name / "report.json").exists() or (WORK / name / "progress.json").exists():
            attnkit(command, *arguments, "-o", WORK / name, "--threads", self.given.threads)

    def bleu(self, name: str, src: str = "en", *more: str) -> float | None:
        """Translate the test set with beam 5; return BLEU, cased, 13a; None without a model."""
        if not (WORK / f"{name}.done").exists():
            return None
        tgt = "de" if src == "en" else "en"
        output = WORK / f"{name}.{src}-{tgt}.txt"
        if not output.exists():
            options = ("--beam-size", 5, "--threads", self.given.threads, *more)
            attnkit("translate", WORK / name, "-i", self.data / f"test_2016_flickr.{src}", "-o", output, *options)
        files = output, self.data / f"test_2016_flickr.{tgt}"
        lines, references = (path.read_text().split("\n")[:-1] for path in files)
        return round(sacrebleu.corpus_bleu(lines, [references]).score, 2)

    def seconds(self, name: str) -> float:
        """Return the seconds of translating the 1,000 test sentences greedily, loading left out."""
        from attnkit import Translator

        translator = Translator.load(WORK / name, threads=1)
        lines = (self.data / "test_2016_flickr.en").read_text().split("\n")[:-1]
        translator.translate_texts(lines[:200], beam_size=1)
        began = time.perf_counter()
        translator.translate_texts(lines, beam_size=1)
        return time.perf_counter() - began


def jobs_of(experiment: Experiment) -> dict[str, Callable[[], None]]:
    """Return what is to be done, in order."""
    data, train, make, pairs = experiment.data, experiment.train, experiment.make, experiment.pairs
    weights = ["--weight", WEIGHT, "--weight", 1]
    both = ["--bidirectional", *pairs("en")]

    def of(name: str) -> list[object]:
        return ["--src", WORK / name / "pairs.src", "--tgt", WORK / name / "pairs.tgt"]

    mixed = [*pairs("en", "few"), *of("synthetic"), *weights]
    return {
        "back": lambda: train("back", *pairs("de", "few"), recipe=FEW, src="de"),
        "few": lambda: train("few", *pairs("en", "few"), recipe=FEW),
        "synthetic": lambda: make("back-translate", "synthetic", WORK / "back", WORK / "mono.de"),
        "better": lambda: train("better", *mixed, recipe=BETTER),
        "en-de": lambda: train("en-de", *pairs("en"), recipe=ONE_WAY),
        "de-en": lambda: train("de-en", *pairs("de"), recipe=ONE_WAY, src="de"),
        "both": lambda: train("both", *both, recipe=BOTH_WAYS),
        "teacher": lambda: train("teacher", *pairs("en"), recipe=TEACHER),
        "distilled": lambda: make("distill", "distilled", WORK / "teacher", data / "train.en"),
        "student": lambda: train("student", *pairs("en"), recipe=STUDENT),
        "student-distilled": lambda: train("student-distilled", *of("distilled"), recipe=STUDENT),
        "nearest": lambda: make("distill", "nearest", WORK / "teacher", data / "train.en", data / "train.de"),
        "student-nearest": lambda: train("student-nearest", *of("nearest"), recipe=STUDENT),
    }


def report(experiment: Experiment) -> dict[str, Any]:
    """Return the figures of what is done so far."""
    bleu, reports = experiment.bleu, {}
    for name in ("synthetic", "distilled", "nearest"):
        if (WORK / name / "report.json").exists():
            one = json.loads((WORK / name / "report.json").read_text())
            reports[name] = {key: one[key] for key in ("n_lines", "kept", "dropped", "reference_bleu")}
    result: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "seed": experiment.given.seed,
        "back-translation": {
            "2,500 pairs alone": bleu("few"),
            "with 26,500 German lines": bleu("better"),
            "de-en run that translated them": bleu("back", "de"),
        },
        "distillation": {
            "teacher": bleu("teacher"),
            "student on the original text": bleu("student"),
            "student on the teacher's translations": bleu("student-distilled"),
            "student on the nearest of 5": bleu("student-nearest"),
        },
        "both directions": {
            "two models": [bleu("en-de"), bleu("de-en", "de")],
            "one model": [bleu("both", "en", "--tgt-lang", "de"), bleu("both", "de", "--tgt-lang", "en")],
        },
        "metric": "BLEU, test_2016_flickr, beam 5, cased, 13a",
        "pairs": reports,
    }
    if all((WORK / f"{name}.done").exists() for name in ("teacher", "student-distilled")):
        turns = [(experiment.seconds("teacher"), experiment.seconds("student-distilled")) for _ in range(5)]
        ratios = sorted(round(teacher / student, 2) for teacher, student in turns)
        result["speed"] = {
            "ratio student / teacher, greedy, one thread, median and range": [ratios[2], ratios[0], ratios[-1]],
            "sentences per second, teacher and student": [[round(1000 / one) for one in turn] for turn in turns],
        }
    return result


def with_earlier(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return figures, with earlier ones for models that were not trained this time."""
    found = {**old, **new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            found[name] = with_earlier(value, old[name])
        elif value is None or (isinstance(value, list) and None in value):
            found[name] = old.get(name)
    return found


def main() -> None:
    """Train, translate, score, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of jobs; default: all")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    experiment = Experiment(given)
    for name, job in jobs_of(experiment).items():
        if not given.only or name in given.only:
            print(name, flush=True)
            job()
    result = report(experiment)
    if given.only and RESULT.exists():
        result = with_earlier(result, json.loads(RESULT.read_text()))
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
