"""During one pass of every command nobody but ``attnkit/io/atomic.py`` writes to disk."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import pytest

import attnkit
from attnkit.cli.main import COMMANDS
from attnkit.models.config import TransformerConfig
from attnkit.models.translation import build_model
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TASK

if TYPE_CHECKING:
    from tests.conftest import Workshop

pytest.importorskip("ctranslate2")
pytest.importorskip("tensorboard")

PACKAGE = str(Path(attnkit.__file__).parent) + os.sep
PASSES: dict[str, list[str]] = {
    "demo": ["demo -o demo"],
    "check": ["check {corpus}/train.src {corpus}/train.tgt --json"],
    "clean": ["clean {corpus}/train.src {corpus}/train.tgt -o cleaned --repair"],
    "vocab": ["vocab {corpus}/train.src {corpus}/train.tgt -o vocabulary.json --size 300"],
    "train": ["{train}", "{train}", "{train} --overwrite --tensorboard", "{train} --tensorboard --dry-run"],
    "translate": [
        "translate run -i {corpus}/test.src -o output.txt --device cpu",
        "translate run -i {corpus}/test.src -o output.txt --device cpu --json",
        "translate run -i {corpus}/test.src --device cpu",
    ],
    "back-translate": ["back-translate run {corpus}/test.src -o synthetic --device cpu --keep-flagged"],
    "augment": [
        "augment {corpus}/test.src {corpus}/test.tgt -o augmented --forward run --backward run --device cpu"
        " --keep-flagged --sampling --num-hypotheses 2"
    ],
    "distill": [
        "distill run {corpus}/test.src {corpus}/test.tgt -o distilled --device cpu --beam-size 2 --keep-flagged"
    ],
    "attend": [
        "attend run '1 2 3' --html page.html --svg map.svg --png map.png --device cpu",
        "attend --example cat --json",
    ],
    "align": [
        "align {corpus}/test.src {corpus}/test.tgt -o words.tsv --summary",
        "align {corpus}/test.src {corpus}/test.tgt --run run --json",
    ],
    "explain": ["explain mask", "explain pooling --svg curve.svg"],
    "licenses": ["licenses"],
    "score": ["score run {corpus}/test.src {corpus}/test.tgt --device cpu"],
    "score-bleu": ["score-bleu {corpus}/test.src {corpus}/test.tgt --json"],
    "compare": ["compare run run --src {corpus}/test.src --tgt {corpus}/test.tgt"],
    "runs": ["runs . --json"],
    "plan": ["plan --src {corpus}/train.src --tgt {corpus}/train.tgt --preset tiny --device cpu --seconds 0.1"],
    # Its runs are processes of their own, of commands that are here.
    "sweep": ["sweep {sweep} -o experiments --dry-run"],
    "report": ["report run -o page.html --text '1 2'"],
    "average": ["average run"],
    "export": ["export run exported --to ctranslate2"],
    "import": [
        "pretrain-mlm {corpus}/train.src -o begun --preset tiny --max-steps 2 --device cpu --set vocabulary.size=300",
        "export begun hub --to huggingface",
        "import huggingface hub -o imported",
    ],
    "pretrain-mlm": [
        "pretrain-mlm {corpus}/train.src -o mlm --preset tiny --max-steps 2 --device cpu --set vocabulary.size=300"
    ],
    "pretrain-clm": [
        "pretrain-clm {corpus}/train.src -o clm --preset tiny --max-steps 2 --device cpu --set vocabulary.size=300"
    ],
    "fill-mask": ["fill-mask mlm '1 [MASK] 3' --device cpu"],
    "generate": ["generate clm '1 2' --max-new-tokens 3 --device cpu"],
    "compare-lm": ["compare-lm mlm clm '1 2 3' --device cpu"],
    "finetune": [
        "finetune mlm --task text-classification --train {texts} --dev {texts} -o labeler --max-steps 2 --device cpu"
    ],
    "predict": ["predict labeler {texts} --gold --confusion confusion.html --device cpu"],
    "toy-corpus": ["toy-corpus reverse -o digits --pairs 20 --valid 2 --test 2"],
    "embed": [
        "train --task autoencode --data {corpus}/train.src -o codes --max-steps 2 --device cpu",
        "embed codes {corpus}/test.src -o codes.npy --device cpu",
    ],
    "word2vec": [
        "word2vec train {corpus}/train.src -o word-vectors --dim 20 --epochs 1 --min-count 1 --threads 1",
        "word2vec convert word-vectors word-vectors.npy",
        "word2vec convert word-vectors projector",
        "word2vec cluster word-vectors -k 2 --top 5 -o classes",
    ],
    "documents": [
        "toy-corpus reviews -o reviews --pairs 40 --valid 8 --test 8",
        "train --task text-classification --max-steps 2 -o labels --data reviews/train.tsv"
        " --valid-data reviews/valid.tsv",
        "predict labels reviews/test.tsv --gold --device cpu",
    ],
    "verify": ["verify run"],
}


class Event(NamedTuple):
    """What ``writers.Watch`` has seen."""

    event: str
    paths: list[str]
    by: list[str]

    @property
    def writer(self) -> str:
        """Return the file of attnkit at work, or an exemption."""
        files = [file.removeprefix(PACKAGE) for file in self.by if file.startswith(PACKAGE)]
        path, innermost = Path(self.paths[0]), self.by[0]
        if "__pycache__" in path.parts and innermost == "<frozen importlib._bootstrap_external>":
            return "the interpreter's own cache"
        # As it is imported, sacreBLEU's lock looks for a folder for temporary files.
        if innermost == tempfile.__file__ and self.by[1].endswith("/portalocker/utils.py"):
            return "sacreBLEU's lock"
        # Compiled code is kept in the user's cache folder, outside of what is promised.
        below = any(parent.name == "attnkit" and parent.parent.name == "folder" for parent in (path, *path.parents))
        if below and any(file.endswith("/numba/core/caching.py") for file in self.by):
            return "numba's own cache"
        # It lists the fonts of the machine, once for every version.
        if any(parent.name == "matplotlib" and parent.parent.name == "folder" for parent in (path, *path.parents)):
            return "matplotlib's own cache"
        # CTranslate2 writes a model itself, into the temporary folder that atomic.new_folder makes whole and durable.
        below = any(parent.name.startswith(".tmp-exported-") for parent in path.parents)
        if innermost.endswith("/ctranslate2/specs/model_spec.py") and below and self.event == "open":
            return "ctranslate2's own writer"
        below = any((parent.name, parent.parent.name) == ("tensorboard", "run") for parent in (path, *path.parents))
        if below and any("/tensorboard/" in file for file in self.by) and files[:1] != ["io/atomic.py"]:
            return "tensorboard's own writer"
        return files[0] if files else innermost


def keep_loops(folder: Path) -> None:
    """Put the loops of word vectors and of translation into another cache, as compiling each takes seconds."""
    from attnkit.kernels import jit as compiled
    from attnkit.kernels import native, word2vec_backend, words
    from attnkit.kernels.simd.targets import choose_target

    words.compiled_loops()
    word2vec_backend.CompiledBackend(
        word2vec_backend.LoopSpec(dim=20, exact=True), word2vec_backend.LookupTables(np.empty(0, np.uint32)), np.uint16
    )
    if (
        kept := compiled.cache_folder() / compiled.sources_digest()
    ).is_dir():  # what others are writing now is left out
        shutil.copytree(kept, folder / compiled.sources_digest(), ignore=shutil.ignore_patterns("*.tmp.*"))
    for loops in get_args(native.Loops):
        native.load_loops(loops, choose_target(), "float32")
    folder.mkdir(parents=True, exist_ok=True)
    for path in compiled.cache_folder().glob("*-float32-*.o"):
        shutil.copy(path, folder)


def watched(commands: Any, tmp_path: Path) -> tuple[list[Event], set[str]]:
    """Run every command once and more; return what was seen and the files that there are at the end."""
    report, folder = tmp_path / "report", tmp_path / "folder"
    folder.mkdir()
    train = shlex.join(commands.train("transformer", Path("run"), limits__max_steps=4))
    texts = tmp_path / "texts.tsv"
    texts.write_text("label\ttext\n" + "odd\t1 2 3\neven\t2 2 4\n" * 9)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("values: {model.dropout: [0.0, 0.1]}\n")
    environment = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(folder))
    keep_loops(folder / "attnkit" / "numba")
    for name in (name for name in COMMANDS if name != "serve"):  # which writes nothing, and runs until stopped
        for text in PASSES[name]:
            argv = shlex.split(
                text.format(corpus=shlex.quote(str(commands.corpus)), train=train, texts=texts, sweep=sweep)
            )
            asked = {"watch": str(report), "folder": str(folder), "environment": environment, "quick": True}
            commands.done(*argv, **asked, small_demo=name == "demo")
    events = [Event(**json.loads(line)) for line in report.read_text().splitlines()]
    return events, {str(path) for path in folder.rglob("*") if path.is_file()}


def test_nobody_but_files_writes(commands: Any, tmp_path: Path) -> None:
    events, there = watched(commands, tmp_path)
    others = {"the interpreter's own cache", "sacreBLEU's lock", "ctranslate2's own writer"}
    others |= {"tensorboard's own writer", "numba's own cache", "matplotlib's own cache"}
    rare = {"the interpreter's own cache", "sacreBLEU's lock"}
    writers = {event.writer for event in events}
    assert [event for event in events if event.writer not in {"io/atomic.py", *others}] == []
    assert writers >= {"io/atomic.py", *others} - rare, "an exemption too many"
    # Compiled code can write unseen: nothing lies there that nobody was seen to open.
    known: set[str] = set()
    for event in events:
        if event.event == "open":
            known.add(event.paths[0])
        elif event.event == "os.rename":
            old, new = event.paths
            known = {new + path.removeprefix(old) if path.startswith(old) else path for path in known}
    # A process of its own compiles the loops of word vectors, into numba's own cache.
    assert sorted(path for path in there - known if "/attnkit/numba/" not in path) == []
    assert len(there) > 50 and len(events) > 300


POSITIONS = get_args(TransformerConfig.model_fields["positions"].annotation)
UNDRAWN = """
import json, sys
from attnkit.cli.main import main
for sys.argv in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
"""


def test_a_dry_run_leaves_the_compiler_alone(workshop: Workshop, tmp_path: Path) -> None:
    """It is imported where a model without memory draws its weights, takes a second and makes a folder of its own."""
    plans = [("transformer", {"model__positions": positions}) for positions in POSITIONS] + [("rnn", {})]
    calls = [[*workshop.arguments(kind, tmp_path / "run", **changes), "--dry-run"] for kind, changes in plans]
    argv = json.dumps([["attnkit", *call] for call in calls])
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", UNDRAWN, argv], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_plan_counts_the_parameters_of_the_model_that_is_trained(
    workshop: Workshop, trained: Path, kind: str
) -> None:
    config = workshop.configure(kind)
    sizes = (load_run(trained, device="cpu").src_tokenizer.vocab_size,) * 2
    assert TASK.dry_run(config).n_parameters == sum(p.numel() for p in build_model(config.model, *sizes).parameters())
