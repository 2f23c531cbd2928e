"""What a lexical shortlist gives and what it costs: speed, BLEU, and the share of lines that stay as they were.

    PYTHONPATH=src python benchmarks/shortlist.py --run RUN --data SOURCE --reference TARGET --train-src A --train-tgt B
        [--precision float32 bfloat16] [--best 10 50] [--lines 1000] [--repeats 5] [--threads 2] [--batch 64]

RUN is a trained run, A and B are the text that it was trained on. `attnkit align` makes a lexicon of RUN's tokens from
them, once for each of --best (translations a token). SOURCE is translated with each and with none, greedily and by beam
5, in each precision. The rows of one precision and beam size take turns, --repeats times, and each repeat begins with
another of them; each is run once on a few lines before it is timed. A ratio is that of a row to the one with all words
in the same repeat, identical lines are counted against it in the same precision. Speed is from text to text.

Resumable by row and repeat; figures go to benchmarks/results/shortlist.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from peers import WORK, Message, digest, machine, median_and_range, open_result, save_result

RESULT = Path(__file__).parent / "results" / "shortlist.json"
BEAMS = (1, 5)
WARM_UP = 128  # lines that each row translates before it is timed


class Row(NamedTuple):
    """What is timed: a precision, a beam size, and how many translations a token has; None is all words."""

    precision: str
    beam: int
    best: int | None

    @property
    def key(self) -> str:
        """Return the name of its figures."""
        return f"{self.precision}, beam {self.beam}, " + ("all words" if self.best is None else f"best {self.best}")


def lexicon_key(options: argparse.Namespace) -> str:
    """Return a short name of a run's vocabularies and the text that a lexicon is made of."""
    from attnkit.tasks.translation.loading import load_run

    text = [[str(path.resolve()), path.stat().st_size] for path in (options.train_src, options.train_tgt)]
    return digest([load_run(options.run, device="cpu").vocabularies, text])


def make_lexicon(options: argparse.Namespace, best: int, result: Message) -> Path:
    """Return a lexicon of the run's tokens, made the first time; the seconds that this took go into the result."""
    path: Path = WORK / "shortlist" / f"{lexicon_key(options)}-{best}.tsv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        unfinished = path.with_suffix(".part")
        command = ["align", options.train_src, options.train_tgt, "--run", options.run, "-o", unfinished]
        subprocess.run(
            [sys.executable, "-m", "attnkit", *map(str, command), "--best", str(best), "--summary"], check=True
        )
        unfinished.replace(path)
        result.setdefault("seconds of align", {})[str(best)] = round(time.perf_counter() - began, 1)
    return path


class Translators:
    """One model in each precision, with each shortlist in turn or none."""

    def __init__(self, options: argparse.Namespace, lexicons: dict[int, Path]) -> None:
        from attnkit.data.loader import Batching
        from attnkit.runtime.devices import set_threads
        from attnkit.tasks.translation.shortlist import LexiconShortlist
        from attnkit.tasks.translation.translator import load_translator

        set_threads(options.threads)
        self.translators = {
            precision: load_translator([options.run], device="cpu", precision=precision)
            for precision in options.precision
        }
        first = self.translators[options.precision[0]]
        self.tokenizer, self.batching = first.src_tokenizer, Batching(options.batch)
        self.shortlists = {
            best: LexiconShortlist(path, first.src_tokenizer, first.tgt_tokenizer) for best, path in lexicons.items()
        }

    def translate(self, lines: list[str], row: Row) -> tuple[float, list[str]]:
        """Return the seconds and the texts."""
        translator = self.translators[row.precision]
        translator.shortlist = None if row.best is None else self.shortlists[row.best]
        config = translator.configure({"scores": False, "beam_size": row.beam})
        began = time.perf_counter()
        found = [translation.outputs[0].text for translation in translator.stream(lines, config, self.batching)]
        return time.perf_counter() - began, found

    def room(self, lines: list[str], best: int) -> float:
        """Return how many tokens a line may use, on average."""
        encoded = self.tokenizer.encode(lines)
        return statistics.mean(len(self.shortlists[best].of(ids)) for ids in encoded)


class Measurement:
    """The text, and the figures that are kept as they come."""

    def __init__(self, options: argparse.Namespace, result: Message, translators: Translators) -> None:
        from attnkit.text.lines import read_lines

        self.options, self.result, self.translators = options, result, translators
        self.lines = list(read_lines(options.data))[: options.lines]
        self.references = list(read_lines(options.reference))[: options.lines]
        self.figures: Message = result.setdefault("rows", {})

    def measure(self) -> None:
        """Time what is missing, the rows of each precision and beam size in turns."""
        for precision in self.options.precision:
            for beam in BEAMS:
                self._measure_turns([Row(precision, beam, best) for best in (None, *self.options.best)])

    def _measure_turns(self, rows: list[Row]) -> None:
        for row in rows:
            self.figures.setdefault(row.key, {"sentences a second": []})
        done = min(len(self.figures[row.key]["sentences a second"]) for row in rows)
        if done >= self.options.repeats:
            return
        for row in rows:
            self.translators.translate(self.lines[:WARM_UP], row)
        base: list[str] = self.translators.translate(self.lines, rows[0])[1]
        for repeat in range(done, self.options.repeats):
            first = repeat % len(rows)
            for row in (*rows[first:], *rows[:first]):
                if len(self.figures[row.key]["sentences a second"]) == repeat:
                    self._measure_row(row, base)

    def _measure_row(self, row: Row, base: list[str]) -> None:
        from attnkit.metrics.bleu import corpus_bleu

        seconds, texts = self.translators.translate(self.lines, row)
        found = self.figures[row.key]
        found["sentences a second"].append(round(len(self.lines) / seconds, 2))
        found["bleu"] = corpus_bleu(texts, [self.references]).score
        if row.best is not None:
            found["identical lines"] = sum(map(str.__eq__, texts, base)) / len(base)
            found["tokens a line"] = round(self.translators.room(self.lines, row.best), 1)
        self._compare(row)
        save_result(self.options.result, self.result)

    def _compare(self, row: Row) -> None:
        """Put the ratios of each repeat next to the speeds that have them, whichever of the two came first."""
        base = self.figures[row._replace(best=None).key]["sentences a second"]
        for best in self.options.best:
            found = self.figures[row._replace(best=best).key]
            found["ratios"] = [round(a / b, 3) for a, b in zip(found["sentences a second"], base, strict=False)]


def show(result: Message) -> None:
    """Print a line for each row."""
    for name, row in result["rows"].items():
        speed = f"{name}: {median_and_range(row['sentences a second'], 1)} sentences/s, BLEU {row['bleu']:.2f}"
        if "ratios" in row:
            ratio, identical = median_and_range(row["ratios"], 2), 100 * row["identical lines"]
            speed += f", {ratio} times, {identical:.1f} % identical, {row['tokens a line']:,.0f} tokens a line"
        print(speed)


def main() -> None:
    """Make the lexicons, measure, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "data", "reference", "train-src", "train-tgt"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--best", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--precision", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="sentences")
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--result", type=Path, default=RESULT, help="the result file")
    options = parser.parse_args()
    names = ("best", "precision", "lines", "threads", "batch")  # more repeats may be added
    settings = {name: getattr(options, name) for name in names}
    settings |= {"run": options.run.name, "data": options.data.name, "lexicon": lexicon_key(options)}
    settings["cpu"] = machine()["cpu"]
    result = open_result(options.result, settings, again=options.again)
    lexicons = {best: make_lexicon(options, best, result) for best in options.best}
    Measurement(options, result, Translators(options, lexicons)).measure()
    save_result(options.result, result)
    show(result)


if __name__ == "__main__":
    main()
