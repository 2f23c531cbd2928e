"""An imported Llama: speed of `generate` beside transformers in float32 with the same weights, text to text.

    PYTHONPATH=src python benchmarks/imported_llama.py [--rounds 3] [--prepare]

The model is a Llama of transformers with random weights: 8 layers of 512, 8 heads that share keys and values in pairs,
inner width 1376, 8,000 entries. Its byte-level tokenizer is trained on this repository's documents, whose lines are the
prompts: one, and 64 of 3 to 30 words. Every text is continued greedily by 64 tokens. Systems take turns; transformers
has the faster of two batch sizes. --prepare makes the model and compiles the loops, and measures nothing. Needs
transformers in this environment. Figures go to benchmarks/results/imported_llama.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import HERE, WORK, Message, machine

HOME = WORK / "imported-llama"
RESULT = HERE / "results" / "imported_llama.json"
ENTRIES, N_NEW, N_PROMPTS = 8000, 64, 64
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)  #: of Llama 3's tokenizer
Job = Callable[[], list[str]]


def read_lines() -> list[str]:
    """Return the lines of the documents."""
    paths = sorted([*HERE.parent.glob("*.md"), *(HERE.parent / "docs").rglob("*.md")])
    return [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def prompts() -> list[str]:
    """Return prompts of 3 to 30 words."""
    rows = [line.split() for line in read_lines() if len(line.split()) > 30 and not line.startswith("|")]
    return [" ".join(row[: 3 + 7 * i % 28]) for i, row in enumerate(rows[:N_PROMPTS])]


def make_folder(folder: Path) -> None:
    """Write the model as transformers stores it."""
    import torch
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    engine = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    specials = ["<|begin_of_text|>", "<|end_of_text|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES - len(specials), initial_alphabet=alphabet, show_progress=False, max_token_length=16
    )
    engine.train_from_iterator(read_lines(), trainer)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(specials)
    ids = [(name, engine.token_to_id(name)) for name in specials]
    engine.post_processor = processors.TemplateProcessing(single=f"{specials[0]} $A", special_tokens=ids)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, bos_token=specials[0], eos_token=specials[1], clean_up_tokenization_spaces=False
    )
    config = transformers.LlamaConfig(
        vocab_size=ENTRIES, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
        intermediate_size=1376, max_position_embeddings=512, bos_token_id=ids[0][1], eos_token_id=ids[1][1],
    )  # fmt: skip
    torch.manual_seed(1)
    model: Any = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(4)  # else all words are nearly equal
        model.lm_head.weight[ids[1][1]] = 0  # the logit of the end is 0, never the largest
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def by_transformers(folder: Path, batch: int) -> dict[str, Job]:
    """Return the jobs of transformers, for a batch size."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token

    @torch.inference_mode()
    def generate(texts: list[str]) -> list[str]:
        made: dict[str, str] = {}
        order = sorted(texts, key=len)
        for first in range(0, len(order), batch):
            own = order[first : first + batch]
            rows = tokenizer(own, return_tensors="pt", padding=True)
            rows.pop("token_type_ids", None)
            found = model.generate(**rows, max_new_tokens=N_NEW, do_sample=False, pad_token_id=tokenizer.eos_token_id)
            new = found[:, rows["input_ids"].shape[1] :]
            made |= zip(own, tokenizer.batch_decode(new, skip_special_tokens=True), strict=True)
        return [made[text] for text in texts]

    return {"one prompt": lambda: generate(prompts()[:1]), "64 prompts": lambda: generate(prompts())}


def by_attnkit(run: Path, precision: Any) -> dict[str, Job]:
    """Return attnkit's jobs in a precision."""
    from attnkit.engine.loading import load_model
    from attnkit.tasks.language_modeling.generate import Generator, search_config

    config = search_config({"max_length": N_NEW})
    generator = Generator(load_model(run, "clm", device="cpu"), config, engine="compiled", precision=precision)

    def generate(texts: list[str]) -> list[str]:
        return [own[0].made for own in generator.generate(texts)]

    return {"one prompt": lambda: generate(prompts()[:1]), "64 prompts": lambda: generate(prompts())}


def clock(job: Job) -> tuple[float, list[str]]:
    """Return how long a job takes, and its texts."""
    began = time.perf_counter()
    texts = job()
    return round(time.perf_counter() - began, 4), texts


def main() -> None:
    """Make what is missing and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prepare", action="store_true", help="make the model, compile the loops, measure nothing")
    parser.add_argument("--name", default="default", help="name of the figures")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    hub, run = HOME / "hub", HOME / "run"
    if not (hub / "tokenizer.json").exists():
        make_folder(hub)
    if not run.exists():
        from attnkit.conversion.import_huggingface import import_huggingface

        import_huggingface(hub, run)
    systems = {f"attnkit {precision}": by_attnkit(run, precision) for precision in ("float32", "bfloat16", "int8")}
    if options.prepare:
        return
    choices = [by_transformers(hub, batch) for batch in (16, 64)]
    first = {name: [clock(one[name]) for one in choices] for name in choices[0]}  # warms up, too
    best = {name: min(range(2), key=lambda i: times[i][0]) for name, times in first.items()}
    systems = {"transformers": {name: choices[i][name] for name, i in best.items()}, **systems}
    found: Message = {"machine": machine(), "rows": {}}
    for what in choices[0]:
        times: dict[str, list[float]] = {}
        for repeat in range(options.rounds + 1):  # the first warms up
            texts = {}
            for name, jobs in systems.items():
                spent, texts[name] = clock(jobs[what])
                if repeat:
                    times.setdefault(name, []).append(spent)
        medians = {name: statistics.median(values) for name, values in times.items()}
        ratios = {name: round(medians["transformers"] / value, 2) for name, value in medians.items()}
        equal = {
            name: sum(a == b for a, b in zip(own, texts["transformers"], strict=True)) for name, own in texts.items()
        }
        found["rows"][what] = {"seconds": medians, "ratio": ratios, "texts as of transformers": equal, "all": times}
        print(
            what, *(f"{name} {medians[name]:.3f} s ({ratios[name]}, {equal[name]} texts)" for name in medians), sep="  "
        )
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    RESULT.write_text(json.dumps(results | {options.name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
