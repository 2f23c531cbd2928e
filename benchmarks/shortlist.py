"""What a lexical shortlist gives and what it costs: speed, BLEU, and the share of lines that stay as they were.

    python benchmarks/shortlist.py --run RUN --data SOURCE --reference TARGET --train-src A --train-tgt B

RUN is a trained run, A and B are the text that it was trained on. `attnkit align` makes a lexicon of RUN's tokens from
them, once for each of --best (translations a token). SOURCE is translated with each and with none, greedily and by beam
5, in turns, --repeats times; speed is from text to text, on --threads threads. Everything is attnkit's float32.

Resumable by row and repeat; figures go to benchmarks/results/shortlist.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from peers import WORK, Message, median_and_range, open_result, save_result

RESULT = Path(__file__).parent / "results" / "shortlist.json"
BEAMS = (1, 5)
WARM_UP = 100  # lines, before anything is timed


def make_lexicon(options: argparse.Namespace, best: int) -> tuple[Path, float]:
    """Return a lexicon of the run's tokens and the seconds that it took, nan if it was there."""
    path: Path = WORK / "shortlist" / f"tokens-{best}.tsv"
    if path.exists():
        return path, float("nan")
    path.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    command = ["align", options.train_src, options.train_tgt, "--run", options.run, "-o", path, "--best", best]
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, command), "--summary"], check=True)
    return path, time.perf_counter() - began


class Translators:
    """One model, with each shortlist in turn or none."""

    def __init__(self, options: argparse.Namespace, lexicons: dict[int, Path]) -> None:
        from attnkit.runtime import set_threads
        from attnkit.tasks.shortlist import Shortlist
        from attnkit.tasks.translate import load_translator

        set_threads(options.threads)
        self.translator = load_translator([options.run], device="cpu")
        tokenizers = (self.translator.src_tokenizer, self.translator.tgt_tokenizer)
        self.shortlists = {best: Shortlist(path, *tokenizers) for best, path in lexicons.items()}

    def translate(self, lines: list[str], beam: int, best: int | None) -> tuple[float, list[str]]:
        """Return the seconds and the texts."""
        self.translator.shortlist = None if best is None else self.shortlists[best]
        began = time.perf_counter()
        texts = self.translator.translate(lines, beam_size=beam)
        return time.perf_counter() - began, texts

    def room(self, lines: list[str], best: int) -> float:
        """Return how many tokens a line may use, on average."""
        encoded = self.translator.src_tokenizer.encode(lines)
        return statistics.mean(len(self.shortlists[best].of(ids)) for ids in encoded)


def row_name(beam: int, best: int | None) -> str:
    """Return the key of a row's figures."""
    return f"beam {beam}, " + ("all words" if best is None else f"best {best}")


def measure(options: argparse.Namespace, result: Message, translators: Translators) -> None:
    """Time what is missing, row by row in turns, and keep it as it comes."""
    from attnkit.metrics.bleu import corpus_bleu
    from attnkit.text.lines import read_lines

    lines = list(read_lines(options.data))[: options.lines]
    references = list(read_lines(options.reference))[: options.lines]
    rows: Message = result.setdefault("rows", {})
    kept: dict[int, list[str]] = {}
    translators.translate(lines[:WARM_UP], 1, None)
    for repeat in range(options.repeats):
        for beam in BEAMS:
            for best in (None, *options.best):
                row = rows.setdefault(row_name(beam, best), {"sentences a second": []})
                if len(row["sentences a second"]) > repeat:
                    continue
                if beam not in kept and best is not None:
                    kept[beam] = translators.translate(lines, beam, None)[1]
                seconds, texts = translators.translate(lines, beam, best)
                if best is None:
                    kept[beam] = texts
                else:
                    same = sum(one == other for one, other in zip(texts, kept[beam], strict=True))
                    row |= {"identical lines": same / len(lines), "tokens a line": translators.room(lines, best)}
                row["bleu"] = corpus_bleu(texts, [references]).score
                row["sentences a second"].append(len(lines) / seconds)
                save_result(options.result or RESULT, result)
    for beam in BEAMS:
        base = statistics.median(rows[row_name(beam, None)]["sentences a second"])
        for best in options.best:
            row = rows[row_name(beam, best)]
            row["ratio"] = statistics.median(row["sentences a second"]) / base


def show(result: Message) -> None:
    """Print a line for each row."""
    for name, row in result["rows"].items():
        speed = median_and_range(row["sentences a second"], 1)
        ratio = f", {row['ratio']:.2f} times, {100 * row['identical lines']:.1f} % identical" if "ratio" in row else ""
        print(f"{name}: {speed} sentences/s, BLEU {row['bleu']:.2f}{ratio}")


def main() -> None:
    """Make the lexicons, measure, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "data", "reference", "train-src", "train-tgt"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--best", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--result", type=Path, help="the result file, if not the one under benchmarks/results")
    options = parser.parse_args()
    settings = {
        "run": options.run.name,
        "data": options.data.name,
        "best": options.best,
        "lines": options.lines,
        "threads": options.threads,
    }
    result = open_result(options.result or RESULT, settings, again=options.again)
    lexicons = {}
    for best in options.best:
        lexicons[best], seconds = make_lexicon(options, best)
        if seconds == seconds:
            result.setdefault("seconds of align", {})[str(best)] = round(seconds, 1)
    measure(options, result, Translators(options, lexicons))
    save_result(options.result or RESULT, result)
    show(result)


if __name__ == "__main__":
    main()
