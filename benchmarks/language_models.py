"""Speed of BERT and GPT beside transformers with the same weights, text to text on both sides.

    PYTHONPATH=src python benchmarks/language_models.py --bert RUN --classifier RUN --gpt RUN --text FILE

attnkit's `embed`, `fill-mask` and `predict` in bfloat16 and int8 stand beside transformers in bfloat16; `generate`, of
one prompt and of 64 of mixed lengths, beside transformers in float32 (greedy, 64 tokens). transformers gets the
exported runs, its fast tokenizer, lines sorted by length, and the best of several batch sizes; only the logits of masks
are computed, which is not its default. Systems take turns, --repeats times; medians count. Figures go to
benchmarks/results/language_models.json, under --name. The figures there: `pretrain-mlm` and `pretrain-clm` on the test
text of WikiText-2 with --preset mini, vocabulary.size=8000 and, for BERT, model.positions=learned, 40 and 150 steps;
`finetune` on sentence-polarity, 30 steps.
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

RESULT = Path(__file__).parent / "results" / "language_models.json"
N_LINES, N_PROMPTS, N_NEW = 1000, 64, 64
Job = Callable[[], Any]


def words_of(line: str, n: int) -> str:
    return " ".join(line.split()[:n])


def read(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    """Return lines, lines with a mask, and prompts of mixed lengths."""
    rows = [line.strip() for line in options.text.read_text().splitlines() if len(line.split()) > 20]
    lines = [words_of(line, 10 + 7 * i % 40) for i, line in enumerate(rows[:N_LINES])]
    masked = []
    for i, line in enumerate(lines):
        words = line.split()
        words[i % len(words)] = "[MASK]"
        masked.append(" ".join(words))
    return lines, masked, [words_of(row, 3 + 7 * i % 28) for i, row in enumerate(rows[:N_PROMPTS])]


def by_attnkit(options: argparse.Namespace, precision: Any) -> dict[str, Job]:
    """Return attnkit's jobs in a precision."""
    from attnkit.analysis.embed_transformer import line_vectors, open_reader
    from attnkit.engine.compiled_language_models import set_precision
    from attnkit.engine.loading import load_model
    from attnkit.engine.predict import PredictRequest, open_predictor
    from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
    from attnkit.tasks.language_modeling.generate import Generator, search_config

    lines, masked, prompts = read(options)
    if precision == "float32":
        jobs: dict[str, Job] = {}
    else:
        reader = open_reader(options.bert, precision=precision)
        bert = load_model(options.bert, "mlm")
        set_precision(bert, precision, print)
        filler = FillMaskPipeline(bert, 1)
        request = PredictRequest(options.classifier, [options.lines], precision=precision)
        jobs = {
            "embed": lambda: line_vectors(reader, lines, "mean"),
            "fill-mask": lambda: filler.fill(masked),
            "predict": lambda: [row for group in open_predictor(request, print) for row in group],
        }
    gpt = load_model(options.gpt, "clm")
    generator = Generator(gpt, search_config({"max_length": N_NEW}), engine="compiled", precision=precision)
    return jobs | {
        "generate, one prompt": lambda: generator.generate(prompts[:1]),
        "generate, 64 prompts": lambda: generator.generate(prompts),
    }


def by_transformers(options: argparse.Namespace, work: Path, batch: int) -> dict[str, Job]:
    """Return the jobs of transformers, for a batch size."""
    import torch
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )  # fmt: skip

    lines, masked, prompts = read(options)
    bert, classifier, gpt = (work / name for name in ("bert", "classifier", "gpt"))
    half = {"dtype": torch.bfloat16}
    encoder, filler = AutoModel.from_pretrained(bert, **half).eval(), AutoModelForMaskedLM.from_pretrained(bert, **half)
    labels = AutoModelForSequenceClassification.from_pretrained(classifier, **half).eval()
    causal = AutoModelForCausalLM.from_pretrained(gpt).eval()
    filler.eval()
    tokenizers = {path.name: AutoTokenizer.from_pretrained(path) for path in (bert, classifier, gpt)}
    tokenizers["gpt"].padding_side = "left"

    def batches(name: str, texts: list[str]) -> Any:
        order = sorted(texts, key=len)
        for first in range(0, len(order), batch):
            yield tokenizers[name](order[first : first + batch], return_tensors="pt", padding=True, truncation=True)

    @torch.inference_mode()
    def embed() -> list[Any]:
        found = []
        for rows in batches("bert", lines):
            hidden, mask = encoder(**rows).last_hidden_state.float(), rows["attention_mask"][..., None]
            found.append((hidden * mask).sum(1) / mask.sum(1))
        return found

    @torch.inference_mode()
    def fill() -> list[Any]:
        mask_id, found = tokenizers["bert"].mask_token_id, []
        for rows in batches("bert", masked):
            hidden = filler.base_model(**rows).last_hidden_state[rows["input_ids"] == mask_id]
            head = filler.get_output_embeddings()
            logits = filler.cls(hidden) if hasattr(filler, "cls") else head(hidden)
            found += tokenizers["bert"].batch_decode(logits.float().softmax(-1).max(-1).indices[:, None])
        return found

    @torch.inference_mode()
    def classify() -> list[Any]:
        return [labels(**rows).logits.float().softmax(-1).max(-1) for rows in batches("classifier", lines)]

    @torch.inference_mode()
    def generate(texts: list[str]) -> list[str]:
        rows = tokenizers["gpt"](texts, return_tensors="pt", padding=True)
        rows.pop("token_type_ids", None)
        made = causal.generate(**rows, max_new_tokens=N_NEW, do_sample=False, pad_token_id=0)
        return tokenizers["gpt"].batch_decode(made, skip_special_tokens=True)

    return {
        "embed": embed,
        "fill-mask": fill,
        "predict": classify,
        "generate, one prompt": lambda: generate(prompts[:1]),
        "generate, 64 prompts": lambda: generate(prompts),
    }


def seconds(job: Job) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bert", "classifier", "gpt", "text"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--name", default="default")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        options.lines = work / "lines.txt"
        options.lines.write_text("".join(line + "\n" for line in read(options)[0]))
        for name in ("bert", "classifier", "gpt"):
            command = [sys.executable, "-m", "attnkit", "export", str(getattr(options, name)), str(work / name)]
            subprocess.run([*command, "--to", "huggingface"], check=True, capture_output=True)
        choices = [by_transformers(options, work, batch) for batch in (8, 32, 128)]
        systems = {"transformers": {name: min((one[name] for one in choices), key=seconds) for name in choices[0]}}
        systems |= {
            f"attnkit {precision}": by_attnkit(options, precision) for precision in ("float32", "bfloat16", "int8")
        }
        times: dict[str, dict[str, list[float]]] = {}
        for repeat in range(options.repeats + 1):  # the first warms up
            for name, jobs in systems.items():
                for what, job in jobs.items():
                    spent = seconds(job)
                    if repeat:
                        times.setdefault(what, {}).setdefault(name, []).append(round(spent, 4))
        found: dict[str, Any] = {"machine": machine(), "rows": {}}
        for what, of_systems in times.items():
            medians = {name: statistics.median(values) for name, values in of_systems.items()}
            ratios = {name: round(medians["transformers"] / value, 2) for name, value in medians.items()}
            found["rows"][what] = {"seconds": medians, "ratio": ratios, "all": of_systems}
            print(what, *(f"{name} {medians[name]:.3f} s ({ratios[name]})" for name in medians), sep="  ")
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    RESULT.write_text(json.dumps(results | {options.name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
