"""Translation speed of attnkit, Hugging Face's generate and CTranslate2 with the same weights.

    PYTHONPATH=src python benchmarks/speed_translation.py --run RUN --data SOURCE [--reference TARGET] [--lines 1000]
        [--repeats 5] [--train-src A --train-tgt B [--best 50]]

RUN is a trained attnkit Transformer, post-norm with sinusoidal positions and one joint vocabulary. Its weights are put
into a MarianMTModel, whose logits must equal attnkit's to 1e-4 before anything is timed, and exported to CTranslate2.
Each system is timed greedily and with beam 5 (length penalty 1, the same greatest length) at its fastest split of
workers and threads (1x2, 2x1, ...) and batch size, found in a probe on the first --probe lines; Hugging Face both in
the file's order and sorted by length, in float32 and bfloat16. The rows are timed in turn, --repeats times, and
reported as median and range of sentences a second. attnkit's time is from text to text; the others' from ids to ids.
With --train-src and --train-tgt, the text that RUN was trained on, there are also rows of attnkit in bfloat16 over a
lexical shortlist (`attnkit translate --shortlist`); `attnkit align` makes its lexicon, --best translations a token.

Resumable by row and repeat; figures go to benchmarks/results/speed_translation.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marian import write_marian
from peers import WORK, Message, Worker, add_options, median_and_range, open_result, peers_python, save_result
from shortlist import lexicon_key, make_lexicon
from translation_workers import in_line_order, make_batches

RESULT = Path(__file__).parent / "results" / "speed_translation.json"
CAP = 128  # greatest length of a translation in tokens, its end included
PROBES = 3
BEAMS = (1, 5)
TOLERANCE = 1e-4  # of logits


@dataclass(frozen=True)
class Row:
    """One line of the table, timed at each beam size."""

    system: str
    precision: str
    by_length: bool = True
    shortlist: bool = False

    def name(self, beam: int) -> str:
        """Return the key of its figures."""
        order = "" if self.by_length else ", file order"
        return f"{self.system} {self.precision}{order}{' over a shortlist' if self.shortlist else ''}, beam {beam}"


ROWS = (
    Row("huggingface", "float32", by_length=False),
    Row("huggingface", "float32"),
    Row("huggingface", "bfloat16"),
    Row("ctranslate2", "float32"),
    Row("ctranslate2", "int8"),
    Row("attnkit", "float32"),
    Row("attnkit", "bfloat16"),
    Row("attnkit", "int8"),
)
SHORTLIST = Row("attnkit", "bfloat16", shortlist=True)
BASE = ROWS[1]  # what ratios are taken against: Hugging Face's best in float32


class Systems:
    """The workers of all systems, and the lines they translate."""

    def __init__(self, options: argparse.Namespace, work: Path, python: Path) -> None:
        from attnkit.tasks.translation.loading import load_run

        source = json.loads((work / "source.json").read_text())
        self.lengths = [len(ids) for ids in source["ids"]]
        self.tokenizer = load_run(options.run).tgt_tokenizer
        script = Path(__file__).with_name("translation_workers.py")

        def start(system: str, number: int = 0) -> Worker:
            interpreter = sys.executable if system == "attnkit" else python
            arguments = [system, str(work), "--lines", str(options.lines)]
            return Worker(interpreter, script, arguments, work / f"{system}-{number}.log")

        most = max(workers for workers, _ in options.splits)
        self.attnkit, self.ctranslate2 = start("attnkit"), start("ctranslate2")
        self.huggingface = [start("huggingface", number) for number in range(most)]

    def translate(self, row: Row, beam: int, choice: Message, n: int) -> tuple[float, list[str]]:
        """Return the seconds and the texts of the first n lines."""
        message = {"precision": row.precision, "beam": beam, "cap": CAP, "n": n, **choice}
        message["shortlist"] = row.shortlist
        if row.system == "huggingface":
            return self._translate_batches(row, message, n)
        worker = self.attnkit if row.system == "attnkit" else self.ctranslate2
        began = time.perf_counter()
        found = worker.ask(message)
        seconds = time.perf_counter() - began
        return seconds, found["texts"] if "texts" in found else self.tokenizer.decode(found["ids"])

    def _translate_batches(self, row: Row, message: Message, n: int) -> tuple[float, list[str]]:
        """Deal the batches out to several processes."""
        batches = make_batches(self.lengths[:n], message["batch"], by_length=row.by_length)
        workers = self.huggingface[: message["workers"]]
        shares = [batches[number :: len(workers)] for number in range(len(workers))]
        began = time.perf_counter()
        for worker, share in zip(workers, shares, strict=True):
            worker.send({**message, "batches": share})
        found = [ids for worker in workers for ids in worker.receive()["ids"]]
        seconds = time.perf_counter() - began
        return seconds, self.tokenizer.decode(in_line_order([batch for share in shares for batch in share], found))

    def check(self) -> float:
        """Return how far Hugging Face's logits are from attnkit's."""
        return float(self.huggingface[0].ask({"check": True})["largest difference"])

    def close(self) -> None:
        """End all workers."""
        for worker in (self.attnkit, self.ctranslate2, *self.huggingface):
            worker.close()


def prepare_files(options: argparse.Namespace, work: Path, result: Message) -> None:
    """Write what the workers read: lines, ids, weights, logits to compare with, and the exported model."""
    import torch
    from safetensors.torch import save_file

    from attnkit.conversion.export_ctranslate2 import export_ctranslate2
    from attnkit.engine.seq2seq import pad_sources
    from attnkit.io import atomic
    from attnkit.tasks.translation.loading import load_run
    from attnkit.text.lines import read_lines

    run = load_run(options.run, device="cpu")
    lines = [line for line in read_lines(options.data) if line.strip()][: options.lines]
    encoded = run.src_tokenizer.encode(lines)
    source = {"run": str(options.run.resolve()), "lines": lines, "ids": [[*ids, 2] for ids in encoded]}
    if options.train_src:
        source["lexicon"] = str(make_lexicon(options, options.best, result))
    (work / "source.json").write_text(json.dumps(source))
    write_marian(work / "marian", run.config.model, run.model)
    src, mask = pad_sources(encoded[:8], run.device)
    tgt_in = torch.cat([torch.ones(len(src), 1, dtype=torch.int64), src[:, :-1]], 1)  # any target will do
    with torch.inference_mode():
        logits = run.model.head(run.model.hidden(src, mask, tgt_in))
    save_file({"src": src, "tgt_in": tgt_in, "logits": logits.contiguous()}, work / "logits.safetensors")
    atomic.remove_tree(work / "ctranslate2")
    export_ctranslate2(options.run, work / "ctranslate2")


def choose(systems: Systems, row: Row, beam: int, options: argparse.Namespace) -> Message:
    """Return the fastest split and batch size on a few lines: of each the best of PROBES turns, after a warm-up."""
    choices: list[Message] = [
        {"workers": workers, "threads": threads, "batch": batch}
        for workers, threads in options.splits
        for batch in options.batch_sizes
    ]
    times: list[list[float]] = [[] for _ in choices]
    for turn in range(PROBES + 1):
        for choice, spent in zip(choices, times, strict=True):
            n = options.probe if turn else min(options.probe, 2 * int(choice["batch"]))
            seconds, _ = systems.translate(row, beam, choice, n)
            if turn:
                spent.append(seconds)
    best = choices[min(range(len(choices)), key=lambda i: min(times[i]))]
    print(f"{row.name(beam)}: {best} is fastest", file=sys.stderr)
    return best


def score(texts: list[str], own: list[str], options: argparse.Namespace) -> Message:
    """Return BLEU, where there is a reference, and the share of texts that equal attnkit's in float32."""
    found: Message = {"identical": sum(a == b for a, b in zip(texts, own, strict=True)) / len(own)}
    if options.reference:
        import sacrebleu

        from attnkit.text.lines import read_lines

        sources = read_lines(options.data)
        pairs = zip(sources, read_lines(options.reference), strict=True)
        references = [reference for line, reference in pairs if line.strip()][: len(texts)]
        metric = sacrebleu.metrics.BLEU()
        found |= {"bleu": metric.corpus_score(texts, [references]).score, "signature": str(metric.get_signature())}
    return found


def measure(systems: Systems, options: argparse.Namespace, result: Message, path: Path) -> None:
    """Time all rows in turn until each has its repeats; what a result file holds already stays."""
    figures: dict[str, Any] = result.setdefault("figures", {})
    own = {beam: systems.translate(Row("attnkit", "float32"), beam, {"workers": 1, "threads": 1, "batch": 64},
                                   options.lines)[1] for beam in BEAMS}  # fmt: skip
    rows = rows_of(options)
    for row in rows:
        for beam in BEAMS:
            if row.name(beam) not in figures:
                figures[row.name(beam)] = {"choice": choose(systems, row, beam, options), "sentences/s": []}
                save_result(path, result)
    for repeat in range(options.repeats):
        for beam in BEAMS:
            for row in rows:
                found = figures[row.name(beam)]
                if len(found["sentences/s"]) > repeat:
                    continue
                seconds, texts = systems.translate(row, beam, found["choice"], options.lines)
                found["sentences/s"].append(round(len(texts) / seconds, 2))
                found |= score(texts, own[beam], options)
                save_result(path, result)
                print(f"{repeat + 1}. {row.name(beam)}: {found['sentences/s'][-1]}", file=sys.stderr)


def rows_of(options: argparse.Namespace) -> tuple[Row, ...]:
    """Return what is timed."""
    return (*ROWS, SHORTLIST) if options.train_src else ROWS


def report(result: Message, rows: tuple[Row, ...]) -> str:
    """Return the markdown table: speeds, ratios to Hugging Face's float32 at its best, text and BLEU."""
    lines = []
    for beam in BEAMS:
        lines += ["", f"| {'greedy' if beam == 1 else f'beam {beam}'} | workers x threads, batch "
                  "| sentences/s, median (range) | ratio | text as attnkit float32 | BLEU |",
                  "|---|---|---|---|---|---|"]  # fmt: skip
        base = statistics.median(result["figures"][BASE.name(beam)]["sentences/s"])
        for row in rows:
            found = result["figures"][row.name(beam)]
            choice = "{workers}x{threads}, {batch}".format_map(found["choice"])
            ratio = statistics.median(found["sentences/s"]) / base
            bleu = f"{found['bleu']:.2f}" if "bleu" in found else "-"
            lines.append(f"| {row.name(beam).rpartition(',')[0]} | {choice} "
                         f"| {median_and_range(found['sentences/s'], 1)} | {ratio:.2f} "
                         f"| {found['identical']:.1%} | {bleu} |")  # fmt: skip
    return "\n".join(lines)


def split(text: str) -> tuple[int, int]:
    """Read ``2x1`` as two workers of one thread."""
    workers, _, threads = text.partition("x")
    return int(workers), int(threads)


def main() -> None:
    """Measure what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="source lines")
    parser.add_argument("--reference", type=Path, help="their translations, for BLEU")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--probe", type=int, default=384, help="lines on which settings are chosen")
    parser.add_argument("--splits", type=split, nargs="+", default=[(1, 2), (2, 1)], metavar="WORKERSxTHREADS")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 64, 128])
    for name in ("train-src", "train-tgt"):
        parser.add_argument(f"--{name}", type=Path, help="what RUN was trained on, for the rows over a shortlist")
    parser.add_argument("--best", type=int, default=50, help="translations of a token in the shortlist's lexicon")
    add_options(parser)
    options = parser.parse_args()
    if bool(options.train_src) != bool(options.train_tgt):
        parser.error("--train-src and --train-tgt go together")
    path = options.result or RESULT
    names = ("run", "data", "lines", "probe", "splits", "batch_sizes")  # more repeats may be added
    settings = {name: getattr(options, name) for name in names}
    settings |= {"run": options.run.name, "data": options.data.name, "splits": [list(s) for s in options.splits]}
    if options.train_src:
        settings["shortlist"] = {"best": options.best, "lexicon": lexicon_key(options)}
    result = open_result(path, settings, again=options.again)
    work = WORK / "speed_translation"
    work.mkdir(parents=True, exist_ok=True)
    python = peers_python(options.peers_python)
    prepare_files(options, work, result)
    systems = Systems(options, work, python)
    try:
        result["largest difference of logits"] = difference = systems.check()
        if not difference <= TOLERANCE:
            sys.exit(f"the logits differ by {difference}: these are not the same models")
        measure(systems, options, result, path)
    finally:
        systems.close()
    print(f"largest difference of logits {difference:.1e}\n{report(result, rows_of(options))}")


if __name__ == "__main__":
    main()
