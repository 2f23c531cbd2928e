"""The examples of every help page, run on small text: each of them works as it is printed."""

from __future__ import annotations

import gzip
import inspect
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from attnkit.cli.main import COMMANDS, GROUPS, import_command, main

ROOT = Path(__file__).parents[1]
SMALL = "--preset tiny --max-steps 2 --device cpu --threads 1 --overwrite"
ADDED = {
    **dict.fromkeys(("train", "pretrain-mlm", "pretrain-clm", "finetune"), SMALL),
    "toy-corpus": "--pairs 150 --valid 10 --test 10 --overwrite",
    "word2vec train": "--dim 8 --epochs 1 --min-count 1 --threads 1 --overwrite",
    "word2vec project": "--words 120",
    **dict.fromkeys(("back-translate", "augment", "distill"), "--keep-flagged --overwrite --device cpu"),
}
"""Appended to an example, so that it is quick: the last of equal flags wins."""
RUN = {
    "train": None,
    "fill-mask": "bert",
    "generate": "gpt",
    "predict": "labels",
    "embed": "codes",
    "embed vectors.npy": "vector-codes",
}
"""The run that a command's examples call ``run``: the translator for those not named."""
HUB_MODEL, HUB_T5 = "nllb-200-distilled-600M", "t5-small"  #: in whose place are small ones of the same layouts
UNAVAILABLE = {
    "attnkit demo": "tested by make demo",
    "attnkit check a.en a.de --src-lang en --tgt-lang de": "these tests' German is French, and is refused as that",
    "attnkit back-translate de-en mono.de -o synthetic --min-log-prob -1.5": "two steps of training pass no threshold",
    "attnkit back-translate de-en mono.de -o synthetic --forward run --min-round-trip 40 --min-forward-log-prob -3": (
        "as above; tested in tests/tasks/test_synthetic_pairs.py"
    ),
    "attnkit serve run": "runs until it is stopped; tested in tests/durability/test_serve_process.py",
    "attnkit serve en:de=run1 de:en=run2 --port 8080 --precision int8": "as above",
    "attnkit serve run --host 0.0.0.0 --api-key-file key.txt": "as above",
}


def commands() -> Iterator[tuple[str, str]]:
    """Yield the name of each command and its help page, groups of commands included."""
    for name, (module, _) in COMMANDS.items():
        yield name, inspect.getdoc(import_command(module)) or ""
        for inner, (path, _) in GROUPS.get(name, {}).items():
            yield f"{name} {inner}", inspect.getdoc(import_command(path)) or ""


def examples() -> Iterator[tuple[str, str]]:
    """Yield the name of each command and an example of its help page, continued lines joined."""
    for name, help in commands():
        shown = re.split(r"Examples?:|First steps:", help, maxsplit=1)[-1]
        for line in re.findall(r"^ +((?:attnkit|echo) .+)$", re.sub(r"\\\n\s*", "", shown), re.MULTILINE):
            yield name, line


EXAMPLES = [(name, line) for name, line in examples() if line not in UNAVAILABLE]


def run_line(line: str) -> int:
    """Run a command of a shell and return its exit code, in this process where nothing is redirected."""
    if re.search(r"[<>|](?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", line):
        command = re.sub(r"\battnkit(?= )", f"{shlex.quote(sys.executable)} -m attnkit", line)
        return subprocess.run(command, shell=True, timeout=120).returncode
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", shlex.split(line))
        main()
    return int(ended.value.code or 0)


WORDS = [
    "king",
    "queen",
    "man",
    "woman",
    "paris",
    "france",
    "berlin",
    "london",
    "motel",
    "hotel",
    "breakfast",
    "cereal",
    "dinner",
    "lunch",
    "apple",
    "vector",
    "glove",
    "a",
    "dog",
    "runs",
    "home",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    "new",
    "york",
    "i",
    "eat",
    "an",
    "released",
    "ios",
    "inc",
    "it",
    "rained",
    "nobody",
    "came",
]
SQUAD = """{"version": "1.1", "data": [{"title": "t", "paragraphs": [%s]}]}"""
PARAGRAPH = """{"context": "The cat number %d sat on the mat.", "qas": [{"id": "%d", "question": "Where did it sit?",
 "answers": [{"text": "the mat", "answer_start": %d}]}]}"""


def write_text(folder: Path) -> None:
    """Write all text files that examples name."""
    lines = (folder / "toy" / "train.en").read_text().splitlines()
    rng = np.random.default_rng(1)
    lines += [" ".join(rng.permutation(WORDS)[:12]) + "." for _ in range(150)]
    # As many words as `cluster -k 500` needs: marks are no longer parts of them.
    lines += [" ".join(f"item{number}" for number in range(first, first + 10)) for first in range(0, 100, 10)]
    text = "\n".join(lines) + "\n"
    for name in ("text.txt", "more.txt", "corpus.txt", "b.txt", "lines.txt"):
        (folder / name).write_text(text)
    (folder / "text.txt.xz").write_bytes(lzma.compress(text.encode()))
    for name, source in {"a": "train", "b": "train", "test": "test"}.items():
        for language, other in (("en", "en"), ("de", "fr")):
            shutil.copy(folder / "toy" / f"{source}.{other}", folder / f"{name}.{language}")
    (folder / "shards").mkdir()
    shutil.copy(folder / "test.en", folder / "shards")
    (folder / "a.en.gz").write_bytes(gzip.compress((folder / "a.en").read_bytes()))
    for side in ("en", "de"):
        shutil.copy(folder / f"a.{side}", folder / f"train.{side}")
    for name in ("out.de", "new.de", "old.de", "mono.de", "test.fr"):
        shutil.copy(folder / "test.de", folder / name)
    (folder / "site").mkdir()
    for name in ("page.html", "site/index.html"):
        (folder / name).write_text("<p>A dog <b>runs</b> now.</p>\n")
    (folder / "lines.txt").write_text("The cat sat on the [MASK].\nA dog runs.\n")
    (folder / "prompts.txt").write_text("The cat\nA dog\n")
    (folder / "words.txt").write_text("king\nqueen\n")
    (folder / "terms.tsv").write_text("artist\tpeintre\n")
    table = "text\tlabel\n" + "".join(f"{line}\t{'ab'[i % 2]}\n" for i, line in enumerate(lines[:80]))
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (folder / name).write_text(table)
    (folder / "reviews.tsv").write_text("".join(f"{line}\t{'ab'[i % 2]}\n" for i, line in enumerate(lines[:80])))
    tagged = "".join(f"The O\n{word} B-A\n{WORDS[-i]} O\n\n" for i, word in enumerate(WORDS))
    for name in ("train.conll", "test.conll", "dev.conll"):
        (folder / name).write_text(tagged)
    paragraphs = [PARAGRAPH % (i, i, len(f"The cat number {i} sat on ")) for i in range(40)]
    for name in ("squad.json", "dev.json", "train.json"):
        (folder / name).write_text(SQUAD % ",".join(paragraphs))
    (folder / "sweep.yaml").write_text(SWEEP)
    np.save(folder / "vectors.npy", rng.normal(size=(40, 6)).astype(np.float32))
    (folder / "wordsim353.tsv").write_text("king\tqueen\t8\nmotel\thotel\t9\ncat\tfrance\t1\ndog\tberlin\t2\n")
    shutil.copy(folder / "wordsim353.tsv", folder / "simlex999.tsv")
    (folder / "questions-words.txt").write_text(": capitals\nparis france berlin london\nman king woman queen\n")


SWEEP = """
settings:
  {preset: tiny, device: cpu, threads: 1, limits.max_steps: 2, evaluation.every_steps: 1,
    data: {src: [a.en], tgt: [a.de]}}
values: {model.dropout: [0.0, 0.1]}
halving: {steps: [1]}
"""
MARIAN = "--set model.positions=sinusoidal --set model.activation=relu"
RUNS = (
    f"train --src a.en --tgt a.de -o run {SMALL} --max-steps 5 --set evaluation.every_steps=1 --set "
    "checkpoints.keep_last=5",
    f"train --src a.en --tgt a.de -o word-run --set vocabulary.kind=word {SMALL}",
    f"train --src a.en --tgt a.de -o lora-run --init-from run --set adapter.kind=lora {SMALL}",
    "export lora-run lora-peft --to peft",
    f"train --task text-classification --data reviews.tsv -o opinions {SMALL}",
    f"train --task autoencode --data text.txt -o codes {SMALL}",
    f"train --task autoencode --data vectors.npy -o vector-codes {SMALL}",
    f"pretrain-mlm text.txt -o bert {SMALL}",
    f"pretrain-clm text.txt -o gpt {SMALL}",
    f"finetune bert --task text-classification --train train.tsv -o labels {SMALL}",
    f"finetune bert --task token-classification --train train.conll -o tagger {SMALL}",
    f"finetune bert --task question-answering --train squad.json -o reader {SMALL}",
    f"word2vec train text.txt -o vectors {ADDED['word2vec train']}",
    "word2vec convert vectors GoogleNews.bin",
    "word2vec convert vectors glove.6B.100d.txt",
    "word2vec phrases text.txt -o joined.txt --save p.tsv",
    f"train --src a.de --tgt a.en -o de-en {SMALL}",
    f"train --src a.en --tgt a.de -o en-de --set model.decoder_start=zero --set model.norm=post {MARIAN} {SMALL}",
    f"train --src a.en --tgt a.de --bidirectional -o both {SMALL}",
    f"train --denoise a.en --denoise a.de -o restored {SMALL}",
    f"back-translate de-en mono.de -o synthetic {ADDED['back-translate']}",
    f"augment a.en a.de -o more --backward de-en {ADDED['augment']}",
    f"distill run test.en -o distilled {ADDED['distill']}",
    "align a.en a.de -o words.tsv",
    "align a.en a.de --run run -o tokens.tsv",
    "vocab a.en a.de -o vocab.json",
    "vocab a.en a.de -o vocab.json --placeholders",
    "export bert --to huggingface bert-base-uncased",
    "export en-de --to huggingface opus-mt-en-de",
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file and run that examples name."""
    folder = tmp_path_factory.mktemp("help")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_line(f"attnkit toy-corpus english-french -o toy {ADDED['toy-corpus']}") == 0
        write_text(folder)
        for line in RUNS:
            assert run_line(f"attnkit {line}") == 0, line
    for name in ("run1", "run2", "run-1", "run-2"):
        shutil.copytree(folder / "run", folder / name)
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def link_weights(source: str, target: str) -> None:
    """Copy a file; link weights, which nothing changes in place: a hundred copies would take 50 GB."""
    (os.link if source.endswith(".safetensors") else shutil.copy2)(source, target)


def test_every_command_has_an_example() -> None:
    shown = {name for name, _ in examples()}
    assert len(EXAMPLES) > 100
    assert sorted({name for name, _ in commands()} - shown) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_works(
    name: str, line: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(workspace, folder, copy_function=link_weights)
    monkeypatch.chdir(folder)
    called = " ".join(line.split()[1:3])
    key = "embed vectors.npy" if "vectors.npy" in line and name == "embed" else name
    other = RUN.get(key, "run")
    if HUB_MODEL in line or " nllb " in line:
        pytest.importorskip("transformers")
        pytest.importorskip("sentencepiece")
        monkeypatch.syspath_prepend(str(Path(__file__).parent / "formats"))
        from translators import nllb_folder

        nllb_folder(folder / HUB_MODEL, languages=["deu_Latn", "eng_Latn", "fra_Latn"])
        if HUB_MODEL not in line:
            given = "--src-lang eng_Latn --tgt-lang deu_Latn"
            assert run_line(f"attnkit import huggingface {HUB_MODEL} -o nllb {given}") == 0
    if HUB_T5 in line:
        pytest.importorskip("transformers")
        pytest.importorskip("sentencepiece")
        monkeypatch.syspath_prepend(str(Path(__file__).parent / "formats"))
        from t5_folders import t5_folder

        t5_folder(folder / HUB_T5)
    if called.startswith("import "):
        shutil.rmtree("bert")
        shutil.rmtree("en-de")
    if other != "run":
        shutil.rmtree("run")
        if other is not None:
            Path(other).rename("run")
    command = next((known for known in ADDED if called.startswith(known)), None)
    assert run_line(f"{line} {ADDED[command]}" if command else line) == 0
