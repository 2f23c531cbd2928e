"""Speed of compiled translation beside CTranslate2 with the same weights, text to text on both sides.

    PYTHONPATH=src python benchmarks/engine.py --run RUN --data SOURCE --reference TARGET [--name NAME] [--hold SET]

Each system translates the same lines greedily and with beam 5 (length penalty 1, at most 128 tokens): CTranslate2 with
`tokenizers` before and after it. Both are probed first: CTranslate2 at several batch sizes and splits of the processors
into workers and threads, attnkit with all threads; each then runs at its best. Systems take turns, --repeats times;
medians count. A row also has the time of one sentence on one thread, and BLEU. It takes four minutes; figures go to
benchmarks/results/engine.json, under NAME. With --hold both systems may use AVX2 (avx2), or AVX-512 with VNNI and
BF16 but not AMX (avx512), and no later instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import machine

RESULT = Path(__file__).parent / "results" / "engine.json"
CAP = 128  # maximum tokens of a translation
BEAMS = (1, 5)
ROWS = (
    ("ctranslate2", "float32"), ("ctranslate2", "int8"), ("attnkit", "float32"), ("attnkit", "bfloat16"),
    ("attnkit", "int8"),
)  # fmt: skip
# Names of the instruction sets for CTranslate2, oneDNN and MKL.
HELD = {"avx2": ("AVX2", "AVX2", "AVX2"), "avx512": ("AVX512", "AVX512_CORE_BF16", "AVX512_E3")}
Translate = Callable[[list[str], int], list[str]]


def attnkit(run: Path, precision: Any, threads: int) -> Translate:
    """Return attnkit's function from lines and beam size to lines."""
    from attnkit.tasks.translation.translator import load_translator

    translator = load_translator([run], device="cpu", precision=precision, engine="compiled", threads=threads)
    return lambda lines, beam: translator.translate(lines, beam_size=beam, max_length=CAP, length_penalty=1.0)


def ctranslate2(model: Path, tokenizer: Any, precision: str, split: tuple[int, int], batch: int) -> Translate:
    """Return CTranslate2's function from lines and beam size to lines."""
    import ctranslate2

    workers, threads = split
    translator = ctranslate2.Translator(
        str(model), "cpu", compute_type=precision, inter_threads=workers, intra_threads=threads
    )
    known = json.loads((model / "shared_vocabulary.json").read_text())
    ids = {name: number for number, name in enumerate(known)}

    def translate(lines: list[str], beam: int) -> list[str]:
        rows = [[known[i] for i in row] for row in tokenizer.encode(lines)]  # it adds the end of the source itself
        found = translator.translate_batch(
            rows, beam_size=beam, max_decoding_length=CAP, max_batch_size=batch, length_penalty=1,
        )  # fmt: skip
        texts: list[str] = tokenizer.decode([[ids[token] for token in one.hypotheses[0]] for one in found])
        return texts

    return translate


def seconds(translate: Translate, lines: list[str], beam: int) -> float:
    """Return how long lines take."""
    began = time.perf_counter()
    translate(lines, beam)
    return time.perf_counter() - began


def hold(name: Any) -> None:
    """Hold both systems to an instruction set."""
    isa, onednn, mkl = HELD[name]
    os.environ |= {"CT2_FORCE_CPU_ISA": isa, "ONEDNN_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl}
    from attnkit.compiled import packed_layers
    from attnkit.kernels.simd.targets import choose_target

    packed_layers.choose_target = lambda: choose_target(name)


def build(options: argparse.Namespace, work: Path, tokenizer: Any, lines: list[str]) -> dict[str, dict[int, Translate]]:
    """Return the function of each row and beam size, at its best setting."""
    n = os.cpu_count() or 1
    systems: dict[str, dict[int, Translate]] = {}
    for system, precision in ROWS:
        if system == "attnkit":
            found = attnkit(options.run, precision, n)
            systems[f"{system} {precision}"] = dict.fromkeys(BEAMS, found)
            continue
        splits = {(n, 1), (1, n)}
        choices = [
            ctranslate2(work, tokenizer, precision, split, batch) for split in splits for batch in (16, 32, 64, 128)
        ]
        probe = lines[:300]
        best = {
            beam: min(choices, key=lambda one, beam=beam: min(seconds(one, probe, beam) for _ in range(2)))
            for beam in BEAMS
        }
        systems[f"{system} {precision}"] = best
    return systems


def one_sentence(options: argparse.Namespace, work: Path, tokenizer: Any, lines: list[str]) -> dict[str, float]:
    """Return milliseconds per sentence, one by one on one thread: median of 100 lines, systems in turn."""
    systems = {"ctranslate2 int8": ctranslate2(work, tokenizer, "int8", (1, 1), 1)}
    systems |= {f"attnkit {precision}": attnkit(options.run, precision, 1) for precision in ("float32", "int8")}
    found: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for name, translate in systems.items():
            for beam in BEAMS:
                translate(lines[:3], beam)
                times = [1e3 * seconds(translate, [line], beam) for line in lines[:100]]
                found.setdefault(f"{name}, beam {beam}", []).append(statistics.median(times))
    return {key: round(statistics.median(times), 3) for key, times in found.items()}


def shell(run: Path) -> float:
    """Return the seconds of one sentence from the shell with bytecode in place, median of 7."""
    command = [sys.executable, "-m", "attnkit", "translate", str(run)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(8):  # the first one writes bytecode
        began = time.perf_counter()
        subprocess.run(command, input=b"A dog runs.\n", check=True, capture_output=True, env=environment)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--name", default="multi30k")
    parser.add_argument("--hold", choices=[*HELD], help="hold both systems to this instruction set")
    options = parser.parse_args()
    if options.hold:
        hold(options.hold)
    from attnkit.conversion.export_ctranslate2 import export_ctranslate2
    from attnkit.metrics.bleu import corpus_bleu
    from attnkit.tasks.translation.loading import open_run
    from attnkit.text.lines import read_lines

    tokenizer = open_run(options.run).tgt_tokenizer
    lines, references = list(read_lines(options.data)), list(read_lines(options.reference))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "ctranslate2"
        export_ctranslate2(options.run, work)
        systems = build(options, work, tokenizer, lines)
        single = one_sentence(options, work, tokenizer, lines)
        rates: dict[str, list[float]] = {}
        scores: dict[str, float] = {}
        for repeat in range(options.repeats + 1):
            for name, by_beam in systems.items():
                for beam, translate in by_beam.items():
                    key = f"{name}, beam {beam}"
                    if not repeat:  # warms up
                        scores[key] = round(corpus_bleu(translate(lines, beam), [references]).score, 2)
                    else:
                        rates.setdefault(key, []).append(len(lines) / seconds(translate, lines, beam))
    rows = {
        key: {"rate": round(statistics.median(found)), "rates": [round(x) for x in found], "bleu": scores[key]}
        for key, found in rates.items()
    }
    for key, row in rows.items():
        base = rows[f"ctranslate2 {'float32' if 'float32' in key else 'int8'}, beam {key[-1]}"]["rate"]
        row["ratio"] = round(row["rate"] / base, 2)
        print(f"{key:28} {row['rate']:6} sentences/s  {row['ratio']:5.2f}  BLEU {row['bleu']}")
    for key, value in single.items():
        print(f"{key:28} {value:6.2f} ms per sentence, one thread")
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results[options.name] = {
        "machine": machine(),
        "rows": rows,
        "one sentence, ms": single,
        "shell, s": round(shell(options.run), 3),
    }
    print("one line from the shell:", results[options.name]["shell, s"], "s")
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
