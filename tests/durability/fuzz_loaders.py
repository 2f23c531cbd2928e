"""Feeds damaged files to whatever reads files, in forked children with limits, and tells what came out.

Run as a script: ``fuzz_loaders.py RUN CORPUS WORKPLACE`` reads requests ``loader first count`` on standard input and
answers each with a line of JSON: how many ended how, and every one that ended as none may.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fuzz_adapters
import numpy as np
import torch
from commandline import bound_memory
from crafted_pieces import piece_vocabulary
from fuzz_hub import HUB, import_damaged_llama, make_llama
from fuzz_layouts import ENCODERS, LAYOUTS, import_damaged_layout, make_layouts
from fuzz_tables import make_tables, read_damaged
from mutations import mutate_bytes, mutate_folder, mutate_json, mutate_safetensors, resign

from attnkit.checkpoints.checkpoint import open_checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import load_yaml, validate
from attnkit.engine.averaging import average_run
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.resolve import resolve
from attnkit.errors import AttnkitError
from attnkit.formats.huggingface.weights import DTYPES, opened
from attnkit.quality.check import check_pair
from attnkit.tasks.autoencoding.vectors import load_vectors, prepare_vectors
from attnkit.tasks.text_classification.task import TASK as DOCUMENTS
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.data import open_prepared, prepare
from attnkit.tasks.translation.engines import Engine
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.config import VocabularyConfig
from attnkit.text.origin import Origin
from attnkit.text.parallel import read_parallel
from attnkit.text.tokenizer import Tokenizer, load
from attnkit.text.translation_lexicon import Entries, lexicon_lines, load_dictionary, load_tokens
from attnkit.text.vocabulary import train_vocabulary

SECONDS = 20
"""Of work after which one attempt is ended: the longest takes a twentieth."""
WAIT = 300
"""Seconds after which one that only waits is ended, however much else the machine has to do."""
BATCH = 25
TEXT = ["0 1 2 3", "", "x  y é日本 \U0001f600", "a" * 500]
VOCABULARIES = ("a" * 64, "b" * 64)
KINDS = ("bpe", "unigram", "wordpiece", "word", "char")


@dataclass(frozen=True)
class Base:
    """Good files, of which damaged copies are made."""

    run: Path
    corpus: Path
    folder: Path
    """Where a child works."""

    @property
    def newest(self) -> Path:
        """The newest checkpoint of the copy."""
        return self.folder / "run" / "checkpoints" / "step-12"

    def copy(self, part: str = "") -> Path:
        """Make a fresh copy of the run, or of a part of it, and return the run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "outside").mkdir()
        (self.folder / "outside" / "text").write_text("outside")
        shutil.copytree(self.run / part, self.folder / "run" / part)
        return self.folder / "run"

    def damaged(self, name: str, content: bytes) -> Path:
        """Write a damaged file into an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        path = self.folder / name
        path.write_bytes(content)
        return path

    def change(self, path: Path, change: Callable[[bytes, random.Random], bytes], source: random.Random) -> None:
        """Damage a file."""
        path.write_bytes(change(path.read_bytes(), source))


def configuration(base: Base, source: random.Random) -> None:
    damaged = base.folder.parent / "damaged.yaml"
    damaged.write_bytes(mutate_bytes((base.run / "config.yaml").read_bytes(), source))
    validate(TranslationConfig, load_yaml(damaged))


def vocabulary(base: Base, source: random.Random) -> None:
    path = base.folder.parent / f"{source.choice(KINDS)}.json"
    damaged = base.folder.parent / "damaged.json"
    damaged.write_bytes(mutate_json(path.read_bytes(), source))
    tokenizer = load(damaged)
    if tokenizer.origin is not None:
        with contextlib.suppress(ValueError):  # the reason for which an export is refused
            tokenizer.origin.files()
    tokenizer.decode(tokenizer.encode(TEXT))
    tokenizer.tokens(range(tokenizer.vocab_size))


def sentencepiece(base: Base, source: random.Random) -> None:
    tree = json.loads((base.folder.parent / "pieces.json").read_text())
    raw = mutate_bytes(base64.b64decode(tree["tokenizer"]["sentencepiece"]), source)
    tree["tokenizer"]["sentencepiece"] = base64.b64encode(raw).decode()
    tokenizer = Tokenizer.from_json(json.dumps(tree))
    tokenizer.decode(tokenizer.encode(TEXT))
    tokenizer.encode_with_offsets(TEXT)
    tokenizer.tokens(range(tokenizer.vocab_size))


def pickled(base: Base, source: random.Random) -> None:
    name = source.choice(("archive", "sequence"))
    path = base.damaged("pytorch_model.bin", mutate_bytes((base.folder.parent / f"{name}.bin").read_bytes(), source))
    with opened(path) as file:
        file.check_size(file.entries)
        for name, entry in file.entries.items():
            if entry.dtype in DTYPES:
                file.read(name)


def manifest(base: Base, source: random.Random) -> None:
    base.copy("checkpoints/step-12")
    base.change(base.newest / "manifest.json", mutate_json, source)
    open_checkpoint(base.newest, "step-12").verify()


def state(base: Base, source: random.Random) -> None:
    run = base.copy()
    base.change(base.newest / "state.json", mutate_json, source)
    resign(base.newest)
    go_on(run, base)


def safetensors(base: Base, source: random.Random) -> None:
    file = source.choice(("model.safetensors", "optimizer.safetensors"))
    run = base.copy("" if file == "optimizer.safetensors" else "checkpoints/step-12")
    base.change(base.newest / file, mutate_safetensors, source)
    resign(base.newest)
    if file == "optimizer.safetensors":
        go_on(run, base)
    else:
        engine: Engine = source.choice(("compiled", "torch"))
        load_translator([run], device="cpu", checkpoint="last", engine=engine).translate(TEXT[:1])


def text(base: Base, source: random.Random) -> None:
    shutil.rmtree(base.folder, ignore_errors=True)
    base.folder.mkdir()
    paths = []
    for side in ("src", "tgt"):
        raw = b"".join((base.corpus / f"train.{side}").read_bytes().splitlines(keepends=True)[:60])
        path = base.folder / f"text.{side}"
        path.write_bytes(mutate_bytes(raw, source) if side == "src" or source.random() < 0.3 else raw)
        paths.append(path)
    check_pair(*paths)
    config = VocabularyConfig(kind=source.choice(KINDS), size=700)
    train_vocabulary(paths, config).encode([line for pair in read_parallel(*paths) for line in pair])
    asked = read_run_config(open_checkpoint(base.run / "checkpoints" / "step-12", "step-12"), "translation")
    data = asked.data.model_copy(update={"src": (str(paths[0]),), "tgt": (str(paths[1]),)})
    for _ in prepare(asked.model_copy(update={"data": data}), base.folder / "data"):
        pass
    open_prepared(base.folder / "data")


def tsv(base: Base, source: random.Random) -> None:
    raw = b"".join((base.corpus / "documents.tsv").read_bytes().splitlines(keepends=True)[:60])
    path = base.damaged("documents.tsv", mutate_bytes(raw, source))
    sets = ["vocabulary.kind=char", "data.held_out=4"]
    config = resolve({"task": "text-classification", "data.files": [str(path)]}, sets=sets, preset_name="tiny").config
    for _ in DOCUMENTS.prepare(config, base.folder / "data", None, None):
        pass
    DOCUMENTS.load_data(config, base.folder / "data")


def vectors(base: Base, source: random.Random) -> None:
    name = source.choice(("vectors.npy", "vectors.csv"))
    raw = (base.folder.parent / name).read_bytes()
    if name == "vectors.npy" and source.random() < 0.7:  # most of the file are numbers, which may be any
        raw = mutate_bytes(raw[:128], source) + raw[128:]
    else:
        raw = mutate_bytes(raw, source)
    path = base.damaged(name, raw)
    config = resolve({"task": "autoencode", "data.files": [str(path)]}, sets=["data.held_out=4"], preset_name="tiny")
    for _ in prepare_vectors(config.config, base.folder / "data", None):
        pass
    load_vectors(config.config, base.folder / "data")


def lexicon(base: Base, source: random.Random) -> None:
    words = source.random() < 0.5
    raw = (base.folder.parent / ("words.lexicon" if words else "tokens.lexicon")).read_bytes()
    path = base.damaged("lexicon.tsv", mutate_bytes(raw, source))
    load_dictionary(path) if words else load_tokens(path, VOCABULARIES, (50, 60))


def folder(base: Base, source: random.Random) -> None:
    run = base.copy()
    mutate_folder(run, source, base.folder / "outside")
    kind = source.randrange(4)
    try:
        if kind == 0:
            load_translator([run], device="cpu").translate(TEXT[:1])
        elif kind == 1:
            loaded = load_run(run, device="cpu", checkpoint="last")
            list(score_pairs(loaded, loaded.model, loaded.device, [("1 2", "2 1")]))
        elif kind == 2:
            average_run(run, None, [])
        else:
            go_on(run, base)
    finally:
        left = {path.name: path.read_text() for path in (base.folder / "outside").iterdir()}
        assert left == {"text": "outside"}, "something was written outside"


def peft(base: Base, source: random.Random) -> None:
    fuzz_adapters.import_damaged(base.folder.parent, base.folder, source)


def adapter(base: Base, source: random.Random) -> None:
    fuzz_adapters.use_damaged(base.folder.parent, base.folder, source)


def head(base: Base, source: random.Random) -> None:
    fuzz_adapters.use_damaged_head(base.folder.parent, base.folder, source)


def llama(base: Base, source: random.Random) -> None:
    import_damaged_llama(base.folder.parent, base.folder, source)


def layout(kind: str) -> Callable[[Base, random.Random], None]:
    """Return what reads damaged folders of a layout of the hub."""
    return lambda base, source: import_damaged_layout(kind, base.folder.parent, base.folder, source)


def tables(base: Base, source: random.Random) -> None:
    shutil.rmtree(base.folder, ignore_errors=True)
    read_damaged(base.folder.parent, base.folder, source)


def go_on(run: Path, base: Base) -> None:
    """Train a step more."""
    asked = read_run_config(open_checkpoint(base.run / "checkpoints" / "step-12", "step-12"), "translation")
    limits = asked.limits.model_copy(update={"max_steps": 13})
    for _ in train(TrainRequest(asked.model_copy(update={"limits": limits}), run)):
        pass


READERS = (
    configuration,
    vocabulary,
    sentencepiece,
    pickled,
    manifest,
    state,
    safetensors,
    text,
    tsv,
    vectors,
    lexicon,
    folder,
    peft,
    adapter,
    head,
    llama,
    tables,
)
LOADERS = {reader.__name__: reader for reader in READERS} | {kind: layout(kind) for kind in (*LAYOUTS, *ENCODERS)}
LOADERS |= {f"peft:{kind}": fuzz_adapters.reader(kind, True) for kind in fuzz_adapters.KINDS}
LOADERS |= {f"good:{kind}": fuzz_adapters.reader(kind, False) for kind in fuzz_adapters.KINDS}


def make_files(corpus: Path, place: Path) -> None:
    """Write the good files that no run and no corpus has."""
    lines = (corpus / "train.src").read_text().splitlines()
    for kind in KINDS:
        made = train_vocabulary([*lines, "words and more words"] * 2, VocabularyConfig(kind=kind, size=600))
        if kind == "word":  # as if it had been imported
            made.origin = Origin.of_files("bert", range(made.vocab_size), {"vocab.txt": b"a\n" * 200})
        (place / f"{kind}.json").write_text(made.to_json())
    weights = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)).state_dict()
    for name in ("archive", "sequence"):
        torch.save(weights, place / f"{name}.bin", _use_new_zipfile_serialization=name == "archive")
    make_llama(place / HUB)
    make_layouts(place)
    fuzz_adapters.make_adapters(place)
    make_tables(place)
    (place / "pieces.json").write_text(piece_vocabulary().to_json())
    rows = np.load(corpus / "vectors.npy", allow_pickle=False)[:60]
    np.save(place / "vectors.npy", rows, allow_pickle=False)
    np.savetxt(place / "vectors.csv", rows, "%.4f", ",")
    entries = Entries(np.arange(40) // 2 - 1, np.arange(40) % 17 + 4, np.linspace(0.01, 1, 40))
    names = [f"word{i}" for i in range(60)]
    words, tokens = (
        lexicon_lines(entries, (names, names)),
        lexicon_lines(entries, vocabularies=VOCABULARIES, frequent=[4, 5, 6]),
    )
    for name, found in ("words", words), ("tokens", tokens):
        (place / f"{name}.lexicon").write_text("".join(line + "\n" for line in found))


def attempt(loader: str, seed: int, base: Base) -> str:
    """Return "accepted", the name of a documented error, or a traceback."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            LOADERS[loader](base, random.Random(f"{loader} {seed}"))
    except AttnkitError as error:
        if error.exit_code not in (2, 3, 4, 5, 6) or len(error.lines()) > 3:
            return f"exit code {error.exit_code}: {error.lines()}"
        return type(error).__name__
    except BaseException:
        return traceback.format_exc()
    return "accepted"


def batch(loader: str, seeds: range, base: Base) -> list[str]:
    """Run some attempts in a child; what it did not live to tell is told here."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.setpgid(0, 0)
        bound_memory()
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAIT)
            outcome = attempt(loader, seed, base)
            os.write(writer, json.dumps(outcome).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        told = [json.loads(line) for line in stream]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(told) < len(seeds):
        told.append(f"ended with {code}, a signal below zero")
    return told


def fuzz(loader: str, first: int, count: int, base: Base) -> dict[str, object]:
    """Return how often each outcome came, and all that no reader may do."""
    outcomes: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    seed = first
    while seed < first + count:
        told = batch(loader, range(seed, min(seed + BATCH, first + count)), base)
        for outcome in told:
            if " " in outcome or "\n" in outcome:
                wrong[seed] = outcome
            outcomes["wrong" if seed in wrong else outcome] += 1
            seed += 1
    return {"outcomes": outcomes, "wrong": wrong}


def main() -> None:
    """Answer requests."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    run, corpus, place = map(Path, sys.argv[1:])
    base = Base(run, corpus, place / "work")
    make_files(corpus, place)
    assert RunFolder(run).steps()[-1] == 12
    gc.freeze()
    for request in sys.stdin:
        loader, first, count = request.split()
        print(json.dumps(fuzz(loader, int(first), int(count), base)), file=answers, flush=True)


if __name__ == "__main__":
    main()
