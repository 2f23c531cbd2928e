"""Hash what every command computes on tiny seeded text, to show that a change of the code changed no number.

    PYTHONPATH=src python benchmarks/behaviour.py --write benchmarks/results/behaviour.json
    PYTHONPATH=src python benchmarks/behaviour.py --compare benchmarks/results/behaviour.json
    PYTHONPATH=src python benchmarks/behaviour.py --only translate

Each task is trained a few dozen steps through the command line, on one thread of a CPU; then every command that decodes
or reports runs on the result. Each line printed is one fact: a name and the start of a SHA-256. ``--compare`` names
the facts that differ and exits with 1 if any does. ``--only`` takes the start of a fact's name and makes just the runs
that those facts need. A run takes four to seven minutes, by how busy the machine is. Hashes of floating-point results
hold for one machine and one version of torch: write the baseline where you compare.

Weights are hashed without their names. JSON gives two facts: ``/values`` hashes the leaves in order and no keys,
``/full`` the keys as well, so that a key may be renamed on purpose. Clock times, speeds, sizes of files and checksums
of lines are masked in both; ``/values`` also leaves out where a setting comes from (``origin``). What goes to stderr is
not hashed, nor are pages and pictures, whose texts may change.

Names of commands, flags, configuration keys and tasks stand in the tables below: rename them there.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import math
import os
import platform
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
WORK = HERE / ".work" / "behaviour"


def _same(names: str) -> dict[str, str]:
    """Return a table in which every name stands for itself."""
    return {name: name for name in names.split()}


# The right-hand dictionary of each table holds what was renamed since the baseline: {"old": "new"}.
COMMANDS = {
    **_same("align analogy attend average check classify cluster compare-context compare-lm convert distance"),
    **_same("embed evaluate explain export fill-mask finetune generate import odd-one one-hot phrases predict"),
    **_same("pretrain-clm pretrain-mlm project score score-bleu similar toy-corpus train translate verify vocab"),
    **_same("word2vec"),
    **{},
}
FLAGS = {
    **_same("--src --tgt --valid-src --valid-tgt --data --valid-data --valid --train --dev --task --model"),
    **_same("--output --vocab --set --max-steps --seed --device --precision --threads --init-from --dry-run"),
    **_same("--json --units --direction --kind --size --symbol --lowercase --pairs --test --input --beam-size"),
    **_same("--sampling --temperature --top-k --top-p --num-hypotheses --return-scores --return-attention"),
    **_same("--length-penalty --no-repeat-ngram-size --target-prefix --shortlist --repetition-penalty"),
    **_same("--coverage-penalty --summary --metric --sentence --against --samples --formula --gold --all --fill"),
    **_same("--top --max-new-tokens --n --what --layer --reconstruct --labeled --head --target --compare"),
    **_same("--alignment --example --pattern --shift --words --last --to --method --run --dim --deterministic"),
    **_same("--epochs --min-count --loss --subwords --buckets --num --classes --format --steps --save --threshold"),
    **_same("--min-length --word --encoder --max-length --iterations --exact --sections --perplexity --passes"),
    **{},
}
KEYS = {
    **_same("optimization.max_tokens optimization.learning_rate optimization.warmup_steps optimization.schedule"),
    **_same("optimization.accumulate optimization.ema_decay optimization.min_rate optimization.decay_share"),
    **_same("vocabulary.kind vocabulary.size joint_vocabulary evaluation.every_steps evaluation.samples"),
    **_same("checkpoints.keep_last model.positions model.d_hidden model.d_code model.cell model.alignment"),
    **_same("model.query model.input_feeding model.tied model.start model.max_length model.next_sentence"),
    **_same(
        "model.d_model model.n_heads model.n_layers model.encoder_layers model.decoder_layers model.d_ff model.norm"
    ),
    **_same("model.gated model.d_word model.d_sentence model.d_attention masking.share noise.drop noise.mask"),
    **_same("noise.shuffle data.length data.documents data.isolated finetuning.frozen finetuning.layer_decay"),
    **_same("finetuning.class_weights data.windows.max_length data.windows.stride masking.span_words masking.span_end"),
    **{
        "optimization.decay_share": "optimization.decay_fraction",
        "optimization.min_rate": "optimization.min_lr_ratio",
        "optimization.accumulate": "optimization.gradient_accumulation_steps",
        "optimization.max_tokens": "optimization.batch_tokens",
        "noise.drop": "noise.word_dropout",
        "noise.mask": "noise.mask_prob",
        "noise.shuffle": "noise.shuffle_prob",
        "masking.share": "masking.mask_prob",
        "masking.span_end": "masking.span_geometric_p",
        "masking.span_words": "masking.max_span_words",
        "model.gated": "model.glu",
        "model.tied": "model.tie_embeddings",
        "model.start": "model.decoder_init",
        "model.query": "model.attention_query",
        "data.isolated": "data.isolate_documents",
        "data.length": "data.sequence_length",
        "data.documents": "data.document_format",
        "finetuning.frozen": "finetuning.freeze_layers",
        "finetuning.layer_decay": "finetuning.layerwise_lr_decay",
        "evaluation.samples": "evaluation.n_samples",
    },
}
TASKS = {
    **_same("translation autoencode classify mlm clm text-classify tag answer word2vec"),
    **{
        "classify": "text-classification",
        "text-classify": "text-classification",
        "tag": "token-classification",
        "answer": "question-answering",
    },
}
FINETUNE_TASKS = {
    **_same("classify tag answer"),
    **{"classify": "text-classification", "tag": "token-classification", "answer": "question-answering"},
}
CHOICES = {**_same("english-french reverse summary code reviews"), **{}}

MASKED_KEYS = re.compile(r"minutes|seconds|per_second|speed|elapsed|^check$|version|mebibytes|megabytes|bytes$")
MASKED_TEXT = [
    (re.compile(r"[\d.,]+ (?:B|kB|KB|MB|GB|KiB|MiB|GiB)\b"), "SIZE"),
    (re.compile(r"\b\d+ (files?|lines?)\b"), r"N \1"),
]
NAMES_OF_TASKS = {new: old for table in (TASKS, FINETUNE_TASKS) for old, new in table.items() if new != old}

Facts = dict[str, str]


class CommandError(Exception):
    """A command ended with an exit code that was not expected."""


FAILED: list[str] = []
GROUPS: dict[str, Callable[[], Facts]] = {}


def group(name: str) -> Callable[[Callable[[], Facts]], Callable[[], Facts]]:
    """Register a function that returns the facts whose names begin with ``name/``."""

    def register(function: Callable[[], Facts]) -> Callable[[], Facts]:
        GROUPS[name] = function
        return function

    return register


# ---------------------------------------------------------------- hashes


def sha(content: bytes | str) -> str:
    """Return a SHA-256, in hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def leaves(tree: Any, key: str = "", *, masked: bool = True) -> Iterator[Any]:
    """Yield the leaves of a JSON tree in order, without keys; what may differ between two runs is masked."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name != "origin":  # of a configuration's value, in words
                yield from leaves(value, name)
    elif isinstance(tree, list):
        yield f"list of {len(tree)}"
        for value in tree:
            yield from leaves(value, key)
    else:
        yield mask(tree, key)


def mask(leaf: Any, key: str) -> Any:
    """Return a leaf, or what stands for it."""
    if MASKED_KEYS.search(key) and not isinstance(leaf, str | None):
        return "MASKED"
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return str(leaf)
    if isinstance(leaf, str):
        if re.fullmatch("[0-9a-f]{8}", leaf):  # the checksum of a line
            return "MASKED"
        for pattern, put in MASKED_TEXT:
            leaf = pattern.sub(put, leaf)
        return NAMES_OF_TASKS.get(leaf, leaf)
    return leaf


def whole(tree: Any, key: str = "") -> Any:
    """Return a JSON tree with its leaves masked and its keys as they are."""
    if isinstance(tree, dict):
        return {name: whole(value, name) for name, value in tree.items()}
    return [whole(value, key) for value in tree] if isinstance(tree, list) else mask(tree, key)


def of_json(name: str, text: str) -> Facts:
    """Return both facts of JSON, or of lines of JSON."""
    try:
        trees = [json.loads(text)]
    except json.JSONDecodeError:
        trees = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {f"{name}/values": sha(json.dumps(list(leaves(trees)))), f"{name}/full": sha(json.dumps(whole(trees)))}


def tensors(path: Path) -> dict[str, str]:
    """Return the hash of each tensor of a safetensors file: of shape, type and bytes."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = sha(f"{entry['shape']} {entry['dtype']} ".encode() + body[begin:end])
    return found


def of_weights(run: str, file: str = "model.safetensors") -> str:
    """Return the hash of all checkpoints' tensors, whatever these are called and in whatever order they stand."""
    files = sorted((WORK / run).rglob(file))
    if not files:
        raise SystemExit(f"no {file} in {run}")
    return sha(json.dumps(sorted(json.dumps(sorted(tensors(path).values())) for path in files)))


def of_file(name: str) -> str:
    """Return the hash of a file's bytes."""
    return sha((WORK / name).read_bytes())


# ---------------------------------------------------------------- the command line


def translated(argument: str, before: str) -> str:
    """Return an argument under its present name; ``before`` is the one that precedes it."""
    if before == "--set":
        key, equals, value = argument.partition("=")
        return KEYS[key] + equals + value
    if before == "--task":
        return argument
    return FLAGS[argument] if argument.startswith("--") else argument


def attnkit(*arguments: str, stdin: str | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """Run a command in the work folder and return what it printed. Commands come first, flags in their long form."""
    given = list(arguments)
    for place in range(2 if given[0] == "word2vec" else 1):
        given[place] = COMMANDS[given[place]]
    present = [translated(argument, before) for argument, before in zip(given, ["", *given], strict=False)]
    done = subprocess.run(
        [sys.executable, "-m", "attnkit", *present],
        cwd=WORK, env=ENVIRONMENT, input=stdin if stdin is not None else "", text=True, capture_output=True,
    )  # fmt: skip
    if done.returncode not in codes:
        raise CommandError(f"attnkit {' '.join(present)}\nexit code {done.returncode}\n{done.stderr}")
    return done.stdout


THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
# Commands run in WORK, where a relative PYTHONPATH would find nothing and the installed attnkit would answer.
SEARCHED = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
ENVIRONMENT = {
    **os.environ, **THREAD, "PYTHONPATH": os.pathsep.join(SEARCHED), "COLUMNS": "100",
    "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip
CPU = ("--device", "cpu", "--threads", "1")
TRAINING = (*CPU, "--precision", "float32", "--seed", "3", "--json")


def put(*pairs: str) -> list[str]:
    """Return a ``--set`` for each ``key=value``."""
    return [word for pair in pairs for word in ("--set", pair)]


SMALL = put(
    *("optimization.max_tokens=500", "optimization.learning_rate=0.004", "optimization.warmup_steps=8"),
    *("evaluation.every_steps=12", "evaluation.samples=1", "checkpoints.keep_last=2"),
)


def of_training(name: str, run: str, printed: str) -> Facts:
    """Return the facts of a training: its report, its log, its weights and the optimizer's state."""
    facts = of_json(f"{name}/report", printed) | {f"{name}/weights": of_weights(run)}
    facts |= of_json(f"{name}/log", (WORK / run / "metrics.jsonl").read_text())
    if list((WORK / run).rglob("optimizer.safetensors")):
        facts[f"{name}/optimizer"] = of_weights(run, "optimizer.safetensors")
    return facts


# ---------------------------------------------------------------- text

NAMES = {
    "place": (["new", "old", "great"], ["york", "rome", "lima"]),
    "person": (["kim", "ada", "bob"], ["lee", "park", "cho"]),
}
PLAIN = ["the", "tall", "man", "and", "a", "small", "dog", "went", "out", "to", "buy", "bread", "for", "her"]
THINGS = {
    "colour": ["red", "green", "blue", "white"],
    "city": ["rome", "oslo", "lima", "cairo"],
    "animal": ["cat", "dog", "owl", "newt"],
}


LEXICON = dict(
    pair.split("-")
    for pair in [
        "the-le",
        "a-un",
        "tall-grand",
        "small-petit",
        "red-rouge",
        "man-homme",
        "woman-femme",
        "dog-chien",
        "cat-chat",
        "girl-fille",
        "went-alla",
        "out-dehors",
        "runs-court",
        "sees-voit",
        "buys-achète",
        "bread-pain",
        "water-eau",
        "house-maison",
        "street-rue",
        "and-et",
        "to-à",
        "two-deux",
        "three-trois",
        "men-hommes",
        "dogs-chiens",
        "old-vieux",
        "near-près",
        "her-elle",
        "him-lui",
        "today-aujourd’hui",
    ]
)


def translations(n: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of sentences: words in any order, and their translations with neighbours exchanged."""
    drawn, found = random.Random(seed), []
    for _ in range(n):
        words = drawn.choices(sorted(LEXICON), k=drawn.randint(3, 9))
        others = [LEXICON[word] for word in words]
        others[::2], others[1::2] = others[::2], others[1::2][::-1]
        ends = drawn.choice([".", "?", " !"])
        found.append(tuple(f"{side[0].capitalize()} {' '.join(side[1:])}{ends}" for side in (words, others)))
    return found


@functools.cache
def text() -> str:
    """Make the parallel text and return its folder."""
    (WORK / "text").mkdir(parents=True, exist_ok=True)
    for name, n, seed in (("train", 400, 1), ("valid", 30, 2), ("test", 12, 3)):
        pairs = translations(n, seed)
        for side, suffix in enumerate(("en", "fr")):
            (WORK / f"text/{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    for name, n in (("train", 240), ("valid", 24)):
        lines = (WORK / f"text/{name}.en").read_text().splitlines()[:n]
        blocks = ["\n".join(lines[i : i + 4]) for i in range(0, len(lines), 4)]
        (WORK / f"text/{name}.txt").write_text("\n\n".join(blocks) + "\n")
    return "text"


def labeled(n: int, seed: int) -> str:
    """Return a table of texts and labels: the label says which kind of thing is named more often."""
    drawn, lines = random.Random(seed), ["label\ttext"]
    for _ in range(n):
        kind = drawn.choice(sorted(THINGS))
        other = drawn.choice(sorted(THINGS))
        words = drawn.choices(PLAIN, k=5) + drawn.choices(THINGS[kind], k=2) + [drawn.choice(THINGS[other])]
        drawn.shuffle(words)
        lines.append(f"{kind}\t{' '.join(words)}")
    return "\n".join(lines) + "\n"


def tagged(n: int, seed: int) -> str:
    """Return CoNLL's columns: places and persons of one word or two."""
    drawn, found = random.Random(seed), []
    for _ in range(n):
        lines: list[str] = []
        for _ in range(drawn.randint(1, 3)):
            lines += [f"{word}\tO" for word in drawn.choices(PLAIN, k=drawn.randint(1, 4))]
            kind = drawn.choice(sorted(NAMES))
            names = [drawn.choice(part) for part in NAMES[kind][: drawn.randint(1, 2)]]
            lines += [f"{name}\t{'I' if i else 'B'}-{kind}" for i, name in enumerate(names)]
        found.append("\n".join(lines))
    return "\n\n".join(found) + "\n"


def asked(n: int, seed: int) -> str:
    """Return JSON as SQuAD 2.0 has it: a paragraph tells two kinds of things, a question asks for one."""
    drawn, paragraphs = random.Random(seed), []
    for number in range(n):
        kinds = drawn.sample(list(THINGS), 2)
        things = {kind: " ".join(drawn.sample(THINGS[kind], drawn.randint(1, 2))) for kind in kinds}
        context = " ".join(f"The {kind} is {thing} ." for kind, thing in things.items())
        questions: list[dict[str, Any]] = []
        for kind in THINGS:
            answers = [{"text": things[kind], "answer_start": context.index(things[kind])}] if kind in things else []
            question = {"id": f"{number}-{kind}", "question": f"Which {kind} is it ?", "answers": answers}
            questions.append({**question, "is_impossible": not answers})
        paragraphs.append({"context": context, "qas": questions})
    return json.dumps({"version": "v2.0", "data": [{"title": "toy", "paragraphs": paragraphs}]})


@functools.cache
def labels() -> str:
    """Make the small labeled files and return their folder."""
    folder = WORK / "labels"
    folder.mkdir()
    for name, n, seed in (("train", 120, 1), ("dev", 24, 2)):
        (folder / f"{name}.tsv").write_text(labeled(n, seed))
        (folder / f"{name}.conll").write_text(tagged(n, seed))
        (folder / f"{name}.json").write_text(asked(n // 3, seed))
        generator = np.random.default_rng(seed)
        rows = generator.standard_normal((n, 3)) @ np.random.default_rng(9).standard_normal((3, 10))
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    return "labels"


@functools.cache
def reviews() -> str:
    """Make documents with labels and return their folder."""
    attnkit(
        "toy-corpus", "reviews", "--output", "reviews", "--pairs", "120", "--valid", "24", "--test", "10", "--seed", "5"
    )
    return "reviews"


# ---------------------------------------------------------------- trainings: each is made once, when a fact needs it


@functools.cache
def trained(run: str) -> str:
    """Train a run of the table below and return what the command printed."""
    return attnkit(*RECIPES[run](), "--output", run, *TRAINING, *SMALL, *EXTRA.get(run, ()))


def pairs() -> list[str]:
    """Return the flags of the parallel text."""
    where = text()
    sides = {"--src": "train.en", "--tgt": "train.fr", "--valid-src": "valid.en", "--valid-tgt": "valid.fr"}
    return [word for flag, name in sides.items() for word in (flag, f"{where}/{name}")]


def pretraining(command: str, kind: str = "txt") -> list[str]:
    """Return a command that trains a language model."""
    where = text()
    return [command, f"{where}/train.{kind}", "--valid", f"{where}/valid.{kind}"]


def finetuning(task: str, ending: str) -> list[str]:
    """Return a command that fine-tunes BERT."""
    trained("mlm")
    train, dev = (f"{labels()}/{name}.{ending}" for name in ("train", "dev"))
    return ["finetune", "mlm", "--task", FINETUNE_TASKS[task], "--train", train, "--dev", dev]


def of_task(task: str, train: str, valid: str) -> list[str]:
    """Return a command that trains on one file."""
    return ["train", "--task", TASKS[task], "--data", train, "--valid-data", valid]


RECIPES: dict[str, Callable[[], list[str]]] = {
    "transformer": lambda: ["train", *pairs(), "--max-steps", "36"],
    "rotary": lambda: ["train", *pairs(), "--max-steps", "24"],
    "additive": lambda: ["train", *pairs(), "--max-steps", "24", "--model", "rnn"],
    "general": lambda: ["train", *pairs(), "--max-steps", "24", "--model", "rnn"],
    "mlm": lambda: [*pretraining("pretrain-mlm"), "--max-steps", "36"],
    "words": lambda: [*pretraining("pretrain-mlm"), "--max-steps", "24", "--units", "words"],
    "spans": lambda: [*pretraining("pretrain-mlm", "en"), "--max-steps", "24", "--units", "spans"],
    "clm": lambda: [*pretraining("pretrain-clm"), "--max-steps", "36"],
    "backwards": lambda: [*pretraining("pretrain-clm"), "--max-steps", "24", "--direction", "right-to-left"],
    "classifier": lambda: [*finetuning("classify", "tsv"), "--max-steps", "36"],
    "tagger": lambda: [*finetuning("tag", "conll"), "--max-steps", "36"],
    "reader": lambda: [*finetuning("answer", "json"), "--max-steps", "36"],
    "lines": lambda: [
        *of_task("autoencode", f"{text()}/train.en", f"{text()}/valid.en"), "--max-steps", "24", "--model", "rnn"
    ],
    "vectors": lambda: [
        *of_task("autoencode", f"{labels()}/train.npy", f"{labels()}/dev.npy"), "--max-steps", "24", "--model", "mlp"
    ],
    "documents": lambda: [
        *of_task("classify", f"{reviews()}/train.tsv", f"{reviews()}/valid.tsv"), "--max-steps", "24", "--model", "han"
    ],
}  # fmt: skip
LANGUAGE = put(
    *("vocabulary.size=600", "model.d_model=32", "model.n_heads=2", "model.n_layers=2", "model.d_ff=64"),
    *("model.max_length=48", "data.length=48"),
)
TRANSLATION = put("vocabulary.size=500", "model.d_model=32")
RECURRENT = [*TRANSLATION, *put("model.d_hidden=48")]
EXTRA: dict[str, list[str]] = {
    "transformer": TRANSLATION
    + put("model.n_heads=2", "model.encoder_layers=2", "model.decoder_layers=2", "model.d_ff=64"),
    "rotary": TRANSLATION
    + put(
        *("model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=2", "model.d_ff=64", "model.norm=pre"),
        *("model.positions=rotary", "model.tied=target", "joint_vocabulary=false", "vocabulary.kind=unigram"),
        *("optimization.schedule=wsd", "optimization.accumulate=2", "optimization.ema_decay=0.9"),
        *("optimization.decay_share=0.5", "optimization.min_rate=0.1"),
    ),
    "additive": RECURRENT + put("model.alignment=additive", "model.cell=gru"),
    "general": RECURRENT
    + put(
        *("model.alignment=general", "model.cell=lstm", "model.query=current", "model.input_feeding=true"),
        *("model.start=layers", "optimization.schedule=linear", "vocabulary.kind=word"),
    ),
    "mlm": LANGUAGE,
    "words": LANGUAGE + put("model.next_sentence=true", "masking.share=0.2", "vocabulary.kind=wordpiece"),
    "spans": LANGUAGE
    + put(
        "masking.span_words=3",
        "masking.span_end=0.4",
        "model.positions=alibi",
        "data.documents=lines",
        "model.gated=true",
    ),
    "clm": LANGUAGE,
    "backwards": LANGUAGE + put("model.positions=rotary", "data.isolated=false", "vocabulary.kind=char"),
    "classifier": put("finetuning.class_weights=balanced", "finetuning.layer_decay=0.8"),
    "tagger": put("finetuning.frozen=1"),
    "reader": put("data.windows.max_length=24", "data.windows.stride=6"),
    "lines": put(
        *("vocabulary.size=400", "model.d_model=24", "model.d_hidden=32", "model.d_code=12", "noise.drop=0.1"),
        *("noise.mask=0.1", "noise.shuffle=0.2"),
    ),
    "vectors": put("model.d_code=3", "model.d_hidden=[16]"),
    "documents": put(
        *("vocabulary.size=400", "model.d_model=16", "model.d_word=12", "model.d_sentence=12", "model.d_attention=12")
    ),
}
WORD_VECTORS = {
    "skip-gram": [],
    "cbow": [],
    "exact": ["--exact"],
    "hierarchical": ["--loss", "hierarchical"],
    "subwords": ["--subwords", "--buckets", "200"],
    "glove": [],
}
METHODS = {"cbow": "cbow", "glove": "glove"}


@functools.cache
def word_vectors(run: str) -> str:
    """Train word vectors and return what the command printed."""
    return attnkit(
        "word2vec", "train", f"{text()}/train.en", "--output", run, "--method", METHODS.get(run, "skip-gram"),
        *WORD_VECTORS[run], "--dim", "12", "--epochs", "3", "--min-count", "2", "--seed", "4", "--deterministic",
        "--threads", "1", "--device", "cpu", "--json",
    )  # fmt: skip


@group("train")
def train() -> Facts:
    """Train every run of the tables."""
    facts: Facts = {}
    for run in RECIPES:
        try:
            facts |= of_training(f"train/{run}", run, trained(run))
        except CommandError as error:
            failed(f"train/{run}", error)
    return facts


@group("train-word2vec")
def train_word2vec() -> Facts:
    """Train word vectors by every method."""
    facts: Facts = {}
    for run in WORD_VECTORS:
        facts |= of_training(f"train-word2vec/{run}", run, word_vectors(run))
    return facts


@group("resume")
def resume() -> Facts:
    """Train half of a run, then the rest in a second command."""
    facts: Facts = {}
    command = [*pretraining("pretrain-mlm"), "--output", "resumed", *TRAINING, *SMALL, *LANGUAGE]
    for steps in ("10", "20"):
        printed = attnkit(*command, *put("optimization.schedule=constant"), "--max-steps", steps)
        facts |= of_training(f"resume/{steps}", "resumed", printed)
    return facts


@group("dry-run")
def dry_run() -> Facts:
    """Tell what the settings of every task are, without training."""
    where = text()
    commands = {
        "translation": ["train", *pairs()],
        "autoencode": of_task("autoencode", f"{where}/train.en", f"{where}/valid.en"),
        "classify": of_task("classify", f"{reviews()}/train.tsv", f"{reviews()}/valid.tsv"),
        "mlm": pretraining("pretrain-mlm"),
        "word2vec": ["word2vec", "train", f"{where}/train.en", "--threads", "1"],
    }
    facts: Facts = {}
    for name, command in commands.items():
        facts |= of_json(f"dry-run/{name}", attnkit(*command, "--output", f"dry-{name}", "--dry-run", "--json"))
    return facts


@group("text")
def toy_corpora() -> Facts:
    """Make every toy corpus."""
    facts: Facts = {}
    for kind in CHOICES:
        folder = f"toy-{kind}"
        printed = attnkit(
            "toy-corpus", CHOICES[kind], "--output", folder,
            "--pairs", "60", "--valid", "5", "--test", "5", "--seed", "2", "--json",
        )  # fmt: skip
        files = sorted((WORK / folder).iterdir())
        facts |= of_json(f"text/{kind}", printed)
        facts[f"text/{kind}/files"] = sha(json.dumps([[path.name, sha(path.read_bytes())] for path in files]))
    return facts


@group("vocab")
def vocabularies() -> Facts:
    """Build a vocabulary of every kind."""
    facts: Facts = {}
    kinds: dict[str, list[str]] = {
        "bpe": [],
        "unigram": [],
        "wordpiece": [],
        "word": [],
        "char": [],
        "symbols": ["--symbol", "<2fr>", "--lowercase"],
    }
    for name, flags in kinds.items():
        kind, file = "bpe" if name == "symbols" else name, f"vocab-{name}.json"
        printed = attnkit(
            *("vocab", f"{text()}/train.en", f"{text()}/train.fr", "--output", file),
            *("--kind", kind, "--size", "640", *flags, "--json"),
        )
        facts |= of_json(f"vocab/{name}", printed)
        facts |= of_json(f"vocab/{name}/file", (WORK / file).read_text())
    return facts


# ---------------------------------------------------------------- what commands print


def failed(name: str, error: CommandError) -> Facts:
    """Say that a command failed, and return no facts: those that are missing will differ."""
    print(f"FAILED {name}: {error}", file=sys.stderr)
    FAILED.append(name)
    return {}


def printed(name: str, *arguments: str, stdin: str | None = None, codes: tuple[int, ...] = (0,)) -> Facts:
    """Run a command and return the facts of its standard output: of JSON with --json, else of the text."""
    try:
        output = attnkit(*arguments, stdin=stdin, codes=codes)
    except CommandError as error:
        return failed(name, error)
    return of_json(name, output) if "--json" in arguments else {f"{name}/text": sha(output)}


@group("translate")
def translate() -> Facts:
    """Translate by every kind of search."""
    for run in ("transformer", "additive", "general", "rotary"):
        trained(run)
    source = f"{text()}/test.en"
    (WORK / "prefix.fr").write_text("Il\n" * 12)
    base = ("--input", source, *CPU, "--min-length", "5")  # such models would rather print nothing
    four = ("--beam-size", "4")
    return {
        **printed("translate/greedy", "translate", "transformer", *base, "--beam-size", "1", "--json"),
        **printed("translate/n-best", "translate", "transformer", *base, *four, "--num-hypotheses", "4", "--json"),
        **printed(
            "translate/sampling", "translate", "transformer", *base, "--sampling", "--temperature", "0.8",
            "--top-k", "50", "--top-p", "0.95", "--seed", "11", "--json",
        ),
        **printed(
            "translate/penalties", "translate", "transformer", *base, *four, "--length-penalty", "0.6",
            "--coverage-penalty", "0.2", "--repetition-penalty", "1.2", "--no-repeat-ngram-size", "2",
            "--return-scores",
        ),
        **printed("translate/prefix", "translate", "rotary", *base, *four, "--target-prefix", "prefix.fr", "--json"),
        **printed(
            "translate/attention", "translate", "additive", *base, *four, "--return-attention",
            "--max-length", "12", "--json",
        ),
        **printed("translate/general", "translate", "general", *base, *four, "--json"),
    }  # fmt: skip


@group("ensemble")
def ensemble() -> Facts:
    """Average checkpoints, translate with two runs at once and with few target words."""
    trained("transformer")
    base = ("--input", f"{text()}/test.en", "--min-length", "5", *CPU, "--beam-size", "3", "--json")
    again = [*RECIPES["transformer"](), "--output", "averaged", *TRAINING, *SMALL, *EXTRA["transformer"]]
    facts = {
        f"ensemble/{name}": value
        for name, value in of_training(
            "trained", "averaged", attnkit(*again, "--seed", "9", "--max-steps", "12", "--init-from", "transformer")
        ).items()
    }
    facts |= printed("ensemble/translate", "translate", "transformer", "averaged", *base)
    return facts


@group("average")
def average() -> Facts:
    """Average the checkpoints of a copy of a run, and translate with the average."""
    trained("transformer")
    shutil.copytree(WORK / "transformer", WORK / "mean")
    facts = printed("average/report", "average", "mean", "--last", "2", "--json")
    facts["average/weights"] = of_weights("mean")
    facts |= printed(
        "average/translate", "translate", "mean", "--input", f"{text()}/test.en", "--min-length", "5", *CPU, "--json"
    )
    return facts


@group("score")
def score() -> Facts:
    """Score pairs by a model, and lines by references."""
    for run in ("transformer", "additive"):
        trained(run)
    where = text()
    pair = (f"{where}/test.en", f"{where}/test.fr")
    (WORK / "hyp.fr").write_text("".join(sorted((WORK / pair[1]).read_text().splitlines(keepends=True))))
    lines = (WORK / pair[1]).read_text().splitlines()
    worse = [" ".join(line.split()[: 3 + i % 4]) for i, line in enumerate(lines)]
    (WORK / "worse.fr").write_text("\n".join(worse) + "\n")
    metrics = ("--metric", "bleu", "--metric", "chrf", "--metric", "ter")
    return {
        **printed("score/transformer", "score", "transformer", *pair, "--device", "cpu", "--json"),
        **printed("score/rnn", "score", "additive", *pair, "--device", "cpu", "--json"),
        **printed("score/bleu", "score-bleu", "worse.fr", pair[1], *metrics, "--json"),
        **printed("score/sentence", "score-bleu", "worse.fr", pair[1], *metrics, "--sentence", "--json"),
        **printed(
            "score/against", "score-bleu", "worse.fr", pair[1], "--against", "hyp.fr", "--samples", "200", "--json"
        ),
        **printed("score/notes", "score-bleu", "worse.fr", pair[1], "--formula", "notes", "--json"),
    }


@group("predict")
def predict() -> Facts:
    """Predict labels, tags and answers, with the totals."""
    dev = f"{labels()}/dev"
    for run in ("classifier", "tagger", "reader"):
        trained(run)
    return {
        **printed("predict/classify", "predict", "classifier", f"{dev}.tsv", "--gold", "--all", *CPU, "--json"),
        **printed("predict/tag", "predict", "tagger", f"{dev}.conll", "--gold", *CPU, "--json"),
        **printed(
            "predict/tag-lines", "predict", "tagger", *CPU, stdin="the man went to new york\nada lee and a dog\n"
        ),
        **printed("predict/answer", "predict", "reader", f"{dev}.json", "--gold", *CPU, "--json"),
    }


@group("language")
def language() -> Facts:
    """Fill masks, generate, compare BERT with GPT."""
    for run in ("mlm", "words", "clm", "backwards"):
        trained(run)
    masked = ("A dog [MASK] in the park.", "The [MASK] will see [MASK] teacher.")
    drawn = ("--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--repetition-penalty", "1.1", "--seed", "5")
    new = ("--max-new-tokens", "20", *CPU, "--json")
    return {
        **printed("language/fill-mask", "fill-mask", "mlm", *masked, "--top", "6", *CPU, "--json"),
        **printed("language/fill-words", "fill-mask", "words", *masked, "--fill", *CPU),
        **printed("language/generate", "generate", "clm", "The teacher", *new),
        **printed("language/sample", "generate", "clm", "The teacher", *drawn, "--n", "3", *new),
        **printed("language/backwards", "generate", "backwards", "the boat.", *new),
        **printed(
            "language/compare-lm", "compare-lm", "mlm", "clm", "The teacher sees a dog.", "--top", "4", *CPU, "--json"
        ),
    }


@group("embed")
def embed() -> Facts:
    """Print line embeddings by every kind of run."""
    for run in ("mlm", "clm", "lines", "vectors"):
        trained(run)
    test = f"{text()}/test.en"
    return {
        **printed("embed/bert", "embed", "mlm", test, *CPU, "--json"),
        **printed("embed/cls", "embed", "mlm", test, "--what", "cls", "--layer", "1", *CPU),
        **printed("embed/static", "embed", "mlm", "--what", "static", *CPU),
        **printed("embed/gpt", "embed", "clm", test, *CPU, "--json"),
        **printed("embed/lines", "embed", "lines", test, *CPU, "--json"),
        **printed("embed/lines-again", "embed", "lines", test, "--reconstruct", *CPU, "--json"),
        **printed("embed/vectors-again", "embed", "vectors", f"{labels()}/dev.npy", "--reconstruct", *CPU, "--json"),
    }


@group("classify")
def classify() -> Facts:
    """Label documents."""
    trained("documents")
    return printed("classify/documents", "predict", "documents", f"{reviews()}/test.tsv", "--gold", *CPU, "--json")


@group("attend")
def attend() -> Facts:
    """Show what models look at."""
    for run in ("transformer", "general", "documents"):
        trained(run)
    line = "Two dogs run in Rome."
    document = (WORK / reviews() / "test.tsv").read_text().splitlines()[0].split("\t")[0]
    every = ("--layer", "all", "--head", "all")
    return {
        **printed("attend/transformer", "attend", "transformer", line, *every, "--device", "cpu", "--json"),
        **printed(
            "attend/encoder", "attend", "transformer", line, "--kind", "encoder", *every, "--device", "cpu", "--json"
        ),
        **printed(
            "attend/target", "attend", "general", line, "--target", "Deux chiens courent.", "--device", "cpu", "--json"
        ),
        **printed("attend/documents", "attend", "documents", document, "--device", "cpu", "--json"),
        **printed("attend/compare", "attend", "general", line, "--compare", "--device", "cpu", "--json"),
        **printed("attend/example", "attend", "--example", "cat", "--alignment", "additive", "--json"),
    }


@group("explain")
def explain() -> Facts:
    """Explain masks, positions and pooling."""
    mask_of = ("explain", "mask", "--words", "a dog runs home")
    return {
        **printed("explain/mask", *mask_of, "--json"),
        **printed("explain/pattern", *mask_of, "--pattern", "global", "--size", "2", "--json"),
        **printed("explain/positions", "explain", "positions", "--shift", "5", "--json"),
        **printed("explain/pooling", "explain", "pooling", "--json"),
    }


@group("check")
def check() -> Facts:
    """Look for faults in text and in run folders."""
    trained("transformer")
    where = text()
    source = (WORK / where / "test.en").read_text().splitlines()
    (WORK / "faulty.en").write_text("\n".join([*source, "", "a b", "same line", "x" * 300, "same line"]) + "\n")
    target = (WORK / where / "test.fr").read_text().splitlines()
    (WORK / "faulty.fr").write_text("\n".join([*target, "vide", "", "same line", "y", "same line"]) + "\n")
    return {
        **printed("check/good", "check", f"{where}/train.en", f"{where}/train.fr", "--json", codes=(0, 3)),
        **printed(
            "check/faulty", "check", "faulty.en", "faulty.fr", "--vocab", "transformer/tokenizer.json",
            "--max-length", "60", "--json", codes=(0, 3),
        ),
        **printed("check/verify", "verify", "transformer", "--json"),
    }  # fmt: skip


@group("align")
def align() -> Facts:
    """Link words and make dictionaries; choose among few target words while translating."""
    trained("transformer")
    pair = (f"{text()}/train.en", f"{text()}/train.fr")
    facts: Facts = {}
    for method in ("forward", "reverse", "intersection", "union", "grow-diag-final-and"):
        output = f"align-{method}.tsv"
        facts |= printed(f"align/{method}", "align", *pair, "--output", output, "--method", method, "--json")
        facts[f"align/{method}/file"] = of_file(output)
    facts |= printed(
        "align/run", "align", *pair, "--run", "transformer", "--output", "tokens.tsv", "--iterations", "3", "--json"
    )
    facts["align/run/file"] = of_file("tokens.tsv")
    facts |= printed(
        *("align/shortlist", "translate", "transformer", "--input", f"{text()}/test.en", "--shortlist", "tokens.tsv"),
        *("--beam-size", "2", "--min-length", "5", *CPU, "--json"),
    )
    return facts


@group("word2vec")
def word2vec() -> Facts:
    """Ask word vectors everything."""
    for run in ("skip-gram", "subwords"):
        word_vectors(run)
    lines = (WORK / text() / "train.en").read_text().split()
    common = sorted({word for word in lines if lines.count(word) > 6 and word.isalpha()})
    a, b, c, d = common[0], common[3], common[6], common[9]
    drawn = random.Random(1)
    judged = [f"{x}\t{y}\t{drawn.randint(0, 10)}" for x, y in itertools.pairwise(common)]
    (WORK / "judged.tsv").write_text("\n".join(judged) + "\n")
    fours = [" ".join(drawn.sample(common, 4)) for _ in range(12)]
    (WORK / "questions.txt").write_text("\n".join([": one", *fours[:6], ": two", *fours[6:]]) + "\n")
    facts = {
        **printed("word2vec/similar", "word2vec", "similar", "skip-gram", a, f"{b} {c}", "--num", "8", "--json"),
        **printed("word2vec/similar-unseen", "word2vec", "similar", "subwords", "teachable", "--json"),
        **printed("word2vec/analogy", "word2vec", "analogy", "skip-gram", a, b, c, "--json"),
        **printed("word2vec/analogy-mul", "word2vec", "analogy", "skip-gram", a, b, c, "--method", "mul", "--json"),
        **printed("word2vec/odd-one", "word2vec", "odd-one", "skip-gram", a, b, c, d, "--json"),
        **printed("word2vec/distance", "word2vec", "distance", "skip-gram", a, b, "--json"),
        **printed(
            "word2vec/evaluate", "word2vec", "evaluate", "skip-gram", "judged.tsv", "questions.txt", "--sections",
            "--json",
        ),
        **printed("word2vec/cluster", "word2vec", "cluster", "skip-gram", "--classes", "6", "--json"),
        **printed("word2vec/clusters", "word2vec", "cluster", "skip-gram", "--classes", "6", "--summary", "--json"),
        **printed("word2vec/project", "word2vec", "project", "skip-gram", "--format", "tsv"),
        **printed(
            "word2vec/project-tsne", "word2vec", "project", "skip-gram", "--format", "tsv", "--method", "tsne",
            "--words", "60", "--perplexity", "8", "--steps", "250",
        ),
        **printed("word2vec/one-hot", "word2vec", "one-hot", a, b, "skip-gram", "--json"),
        **printed(
            "word2vec/phrases", "word2vec", "phrases", f"{text()}/train.en", "--passes", "2", "--threshold", "5",
            "--min-count", "2", "--save", "phrases.tsv", "--output", "joined.txt", "--json",
        ),
        "word2vec/phrases/files": sha(of_file("phrases.tsv") + of_file("joined.txt")),
    }  # fmt: skip
    return facts


@group("word2vec-context")
def word2vec_context() -> Facts:
    """Compare a word in two sentences, by word vectors and by BERT."""
    word_vectors("skip-gram")
    trained("mlm")
    return printed(
        "word2vec-context/compare", "word2vec", "compare-context", "skip-gram", "The old dog sees a cat.",
        "Her man buys the dog bread.", "--word", "dog", "--encoder", "mlm", "--json",
    )  # fmt: skip


@group("convert")
def convert() -> Facts:
    """Write word vectors in every format, and read one back."""
    word_vectors("skip-gram")
    facts: Facts = {}
    for ending in ("txt", "bin", "vec", "glove", "npy", "safetensors"):
        output = f"converted.{ending}"
        facts |= printed(f"convert/{ending}", "word2vec", "convert", "skip-gram", output, "--json")
        content = sorted(tensors(WORK / output).items()) if ending == "safetensors" else of_file(output)
        facts[f"convert/{ending}/file"] = sha(json.dumps(content))
    facts |= printed("convert/read", "word2vec", "similar", "converted.bin", "the", "--json")
    return facts


@group("export")
def export() -> Facts:
    """Write runs for other systems, and read them back."""
    facts: Facts = {}
    for run in ("mlm", "clm", "classifier", "transformer"):
        trained(run)
        folder = f"{run}-hf"
        facts |= printed(f"export/{run}", "export", run, folder, "--to", "huggingface", "--json")
        facts |= of_folder(f"export/{run}", folder)
    for run in ("mlm", "clm", "classifier"):
        facts |= printed(f"import/{run}", "import", "huggingface", f"{run}-hf", "--output", f"{run}-back", "--json")
        facts[f"import/{run}/weights"] = of_weights(f"{run}-back")
    if installed("ctranslate2"):
        trained("rotary")
        facts |= printed("export/ctranslate2", "export", "rotary", "ct2", "--to", "ctranslate2", "--json")
        facts |= of_folder("export/ctranslate2", "ct2")
    return facts


def of_folder(name: str, folder: str) -> Facts:
    """Return a fact for each file of an exported folder but its README; tensors are hashed with their names."""
    facts = {}
    for path in sorted((WORK / folder).iterdir()):
        if path.suffix == ".safetensors":
            facts[f"{name}/{path.name}"] = sha(json.dumps(sorted(tensors(path).items())))
        elif path.suffix != ".md":
            facts[f"{name}/{path.name}"] = sha(path.read_bytes())
    return facts


# ---------------------------------------------------------------- the script


def installed(package: str) -> str | None:
    """Return a package's version, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def collect(only: str) -> Facts:
    """Return the facts whose names begin with ``only``."""
    facts: Facts = {}
    for name, function in GROUPS.items():
        if name == only.partition("/")[0] or ("/" not in only and name.startswith(only)):
            started = time.monotonic()
            try:
                found = function()
            except CommandError as error:
                found = failed(name, error)
            facts |= {fact: value[:16] for fact, value in found.items() if fact.startswith(only)}
            print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    return dict(sorted(facts.items()))


def main() -> int:
    """Print the facts; write them, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="Store the facts as JSON.")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="Name the facts that differ from this file's.")
    parser.add_argument("--only", default="", metavar="PREFIX", help="Only facts whose names begin so.")
    given = parser.parse_args()
    known = json.loads(given.compare.read_text())["facts"] if given.compare else {}
    started = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    facts = collect(given.only)
    for name, value in facts.items():
        print(name, value)
    seconds = round(time.monotonic() - started)
    print(f"{len(facts)} facts in {seconds} s", file=sys.stderr)
    if given.write:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, text=True, capture_output=True).stdout.strip()
        about = {
            "commit": commit,
            "machine": "AMD EPYC without AMX",
            "python": platform.python_version(),
            **{package: installed(package) for package in ("torch", "numpy", "numba", "tokenizers", "ctranslate2")},
            "seconds": seconds,
        }
        given.write.write_text(json.dumps({"about": about, "facts": facts}, indent=1) + "\n")
    if not given.compare:
        return 1 if FAILED else 0
    wanted = {name: value for name, value in known.items() if name.startswith(given.only)}
    different = sorted(name for name in facts.keys() | wanted.keys() if facts.get(name) != wanted.get(name))
    for name in different:
        print(f"DIFFERS {name}: {wanted.get(name, 'absent')} before, {facts.get(name, 'absent')} now")
    print(f"{len(different)} of {len(facts.keys() | wanted.keys())} facts differ")
    return 1 if different or FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
