"""Small corpora and runs, for the tests that go all the way from text to a translator."""

from __future__ import annotations

import fcntl
import gc
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from attnkit.engine.run_config import RunConfig
    from attnkit.engine.trainer import TrainingFinished
    from attnkit.tasks.translation.config import TranslationConfig
    from attnkit.tasks.translation.loading import LoadedRun

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # beside other tests, threads that spin while they wait cost dearly
# Compiled code is kept where this user's is, also for commands with another home: compiling the loops takes long.
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")))

gc.disable()  # what is made while tests are collected lives until the end: see ``pytest_collection_finish``

# A shell lets a background job ignore Ctrl-C, and children inherit that: tests of it need it back.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

# How long a case takes says more about what else the machine is doing than about the case.
settings.register_profile("attnkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("attnkit")

LONGEST = (
    "test_examples.py",
    "test_packaging.py",
    "durability/test_ranks_torchrun.py",
    "tasks/test_translate_invariance.py",
    "durability/test_kill.py",
    "durability/test_stops.py",
    "tasks/test_resume_run.py",
    "durability/test_hostile_system.py",
    "durability/test_ranks_stopped.py",
    "durability/test_writers.py",
    "browser/test_page_in_chromium.py",
    "durability/test_non_finite.py",
    "formats/test_ctranslate2_export.py",
    "durability/test_full_disk.py",
)
"""Files that a worker takes first: whoever got one last would leave the others without work meanwhile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "of the slow cases of sample(n), run the K-th part of N: K/N, and every second slow test if N > 1"
    parser.addoption("--part", default="0/1", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the first of every n cases of ``sample(n)`` to the default run; put the longest files first.

    The others are slow. ``--part`` K/N runs every N-th slow test, beside those with ``every_part``.
    """
    found = re.fullmatch(r"(\d+)/([1-9]\d*)", given := config.getoption("--part"))
    if found is None or int(found[1]) >= int(found[2]):
        raise pytest.UsageError(f"--part {given}: give K/N with K from 0 to N - 1")
    number, n_parts = int(found[1]), int(found[2])
    rank = {name: place for place, name in enumerate(LONGEST)}
    folder = Path(__file__).parent
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is not None:
            case = item.path, item.originalname if isinstance(item, pytest.Function) else item.name
            if seen[case] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[case] += 1
    slow = [item for item in items if item.get_closest_marker("slow")]
    parted = [item for item in slow if not item.get_closest_marker("slow").kwargs.get("every_part")]
    left = {id(item) for place, item in enumerate(parted) if place % n_parts != number}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
    items[:] = [item for item in items if id(item) not in left]
    items.sort(key=lambda item: rank.get(item.path.relative_to(folder).as_posix(), len(rank)))


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among modules and tests: searching them takes a quarter of a second."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks() -> Iterator[None]:
    """Skip what fsync does: no machine dies here. When it is called, and what follows if not, is another matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _not_quiet() -> None:
    """Undo that a command with --quiet silences all that follows it in this process."""
    from attnkit.progress import console

    console.set_quiet(False)


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Undo that a command which has ended heeds no signal any more: here its process continues."""
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)
    yield
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command in this process: its exit code, output and errors."""
    from attnkit.cli.main import main

    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attnkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


COMMON = {
    "limits.max_steps": 12,
    "evaluation": {"every_steps": 5, "n_samples": 1},
    "optimization.batch_tokens": 300,
    "optimization.warmup_steps": 4,
    "optimization.learning_rate": 0.01,
    "decoding": {"beam_size": 3, "max_ratio": 1.0, "extra": 4},
    "vocabulary.kind": "char",
    "precision": "float32",
    "device": "cpu",
    "threads": 1,
}
SIZES = {
    "transformer": {
        "model.d_model": 16,
        "model.n_heads": 2,
        "model.d_ff": 32,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
    },
    "rnn": {"model.d_model": 16, "model.d_hidden": 16},
}


FITTING = {
    "limits.max_steps": 12,
    "evaluation": {"every_steps": 5, "n_samples": 1},
    "optimization.warmup_steps": 4,
    "optimization.learning_rate": 0.01,
    "precision": "float32",
    "device": "cpu",
    "threads": 1,
}
LANGUAGE = {
    "data.files": "text.txt",
    "data.sequence_length": 24,
    "vocabulary.size": 300,
    "optimization.batch_tokens": 300,
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.n_layers": 1,
    "model.d_ff": 32,
    "model.max_length": 24,
}
PAIRS = {"data.document_format": "blocks", "model.next_sentence": True}
TABLE = {"task": "text-classification", "model.kind": "bert", "data.files": "table.tsv"}
TASKS: dict[str, dict[str, Any]] = {
    "lines": {
        "task": "autoencode",
        "data.files": "train.src",
        "data.valid_files": "valid.src",
        "vocabulary.kind": "char",
        "optimization.batch_tokens": 300,
        "model.d_model": 16,
        "model.d_hidden": 16,
        "model.d_code": 8,
    },
    "vectors": {
        "task": "autoencode",
        "data.files": "vectors.npy",
        "optimization.batch_tokens": 64,
        "model.d_hidden": [8],
        "model.d_code": 2,
    },
    "documents": {
        "task": "text-classification",
        "data.files": "documents.tsv",
        "optimization.batch_tokens": 600,
        "model.d_model": 16,
        "model.d_word": 16,
        "model.d_sentence": 16,
        "model.d_attention": 16,
    },
    "masked tokens": {"task": "mlm", **LANGUAGE, "masking": {"mask_unit": "words", "mask_prob": 0.3}},
    "replaced tokens": {"task": "mlm", **LANGUAGE, "objective": "electra", "model.n_heads": 4},
    "pairs": {"task": "mlm", **LANGUAGE, **PAIRS},
    "pairs, two layers": {"task": "mlm", **LANGUAGE, **PAIRS, "model.n_layers": 2},
    "next words": {"task": "clm", **LANGUAGE, "direction": "right-to-left"},
    "texts": {**{k: v for k, v in LANGUAGE.items() if k != "data.sequence_length"}, **TABLE},
}
"""Tasks but translation, with the files that they read of the workshop."""


@dataclass(frozen=True)
class Workshop:
    """A corpus of reversed digits, and everything that tests do with it."""

    corpus: Path

    def file(self, name: str) -> Path:
        return self.corpus / name

    def settings(self, kind: str = "transformer", **changes: Any) -> list[str]:
        """Return ``key=value`` texts of a tiny model; a double underscore in a name represents the dot."""
        given = {key.replace("__", "."): value for key, value in changes.items()}
        return [f"{key}={json.dumps(value)}" for key, value in {**COMMON, **SIZES[kind], **given}.items()]

    def configure(self, kind: str = "transformer", **changes: Any) -> TranslationConfig:
        from attnkit.engine.resolve import resolve

        flags = {
            "data.src": [str(self.file("train.src"))],
            "data.tgt": [str(self.file("train.tgt"))],
            "data.valid_src": [str(self.file("valid.src"))],
            "data.valid_tgt": [str(self.file("valid.tgt"))],
            "model.kind": kind,
        }
        return resolve(flags, sets=self.settings(kind, **changes), preset_name="tiny").config

    def configure_task(self, name: str, **changes: Any) -> RunConfig:
        """Return the configuration of a tiny run of another task, by its name in ``TASKS``."""
        from attnkit.engine.resolve import resolve

        flags = {key: self.named(value) if key.endswith("files") else value for key, value in TASKS[name].items()}
        given = {key.replace("__", "."): value for key, value in changes.items()}
        sets = [f"{key}={json.dumps(value)}" for key, value in {**FITTING, **given}.items()]
        return resolve(flags, sets=sets, preset_name="tiny").config

    def named(self, name: str) -> list[str]:
        return [str(self.file(name))]

    def arguments(self, kind: str, run: Path, **changes: Any) -> list[str]:
        """Return the command line that trains the same."""
        names = {"--src": "train.src", "--tgt": "train.tgt", "--valid-src": "valid.src", "--valid-tgt": "valid.tgt"}
        files = [text for flag, name in names.items() for text in (flag, str(self.file(name)))]
        sets = [text for setting in self.settings(kind, **changes) for text in ("--set", setting)]
        return ["train", *files, "-o", str(run), "--preset", "tiny", "--model", kind, *sets]

    def task_arguments(self, name: str, run: Path, **changes: Any) -> list[str]:
        """Return the command line of a tiny run of another task, by its name in ``TASKS``."""
        given = {key.replace("__", "."): value for key, value in changes.items()}
        settings = {**FITTING, **TASKS[name], **given}
        flags = ["--task", settings.pop("task"), "--data", *self.named(settings.pop("data.files"))]
        if "data.valid_files" in settings:
            flags += ["--valid-data", *self.named(settings.pop("data.valid_files"))]
        sets = [text for key, value in settings.items() for text in ("--set", f"{key}={json.dumps(value)}")]
        return ["train", *flags, "-o", str(run), "--preset", "tiny", *sets]

    def train(self, config: RunConfig, run: Path, *, stops: Sequence[int] = (), **options: Any) -> TrainingFinished:
        """Train to the end in several goes; ``stops`` are the questions that get a yes, in each.

        Training asks once per step, and once a batch of an evaluation, whether to stop.
        """
        from attnkit.engine.trainer import TrainingFinished, TrainRequest, train
        from attnkit.errors import StoppedError

        for steps in stops:
            calls = itertools.count(1)
            with pytest.raises(StoppedError):
                drain(
                    train(
                        TrainRequest(config, run, stop=lambda calls=calls, steps=steps: next(calls) == steps, **options)
                    )
                )
        last = drain(train(TrainRequest(config, run, **options)))[-1]
        assert isinstance(last, TrainingFinished)
        return last

    def random_run(self, trained: Path, kind: str, ends: float = 8.0, **changes: Any) -> LoadedRun:
        """Return a run of random weights, strong enough that translations differ and end, with a trained vocabulary."""
        import torch

        from attnkit.models.linear import pack
        from attnkit.models.translation import build_model
        from attnkit.protocols import EOS_ID
        from attnkit.tasks.translation.loading import load_run

        other = load_run(trained, device="cpu")
        torch.manual_seed(3)
        torch.set_num_threads(1)
        config = self.configure(kind, **changes)
        model: Any = build_model(config.model, other.src_tokenizer.vocab_size, other.tgt_tokenizer.vocab_size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
            model.output.bias -= 9.0  # but for digits, so that what comes out is text and not bytes
            model.output.bias[sorted(set(other.src_tokenizer.encode(["0123456789 "])[0]))] += 9.0
            model.output.bias[EOS_ID] += ends
        model.eval()
        return replace(other, config=config, model=cast(Any, pack(model)))


def drain(events: Iterable[Any]) -> list[Any]:
    return list(events)


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker to ask for it fills; the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)  # of a worker that failed
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder


def compile_engine() -> None:
    """Compile the loops of float32, unless the cache has them: commands that do not find them say so.

    Called while the others wait for ``trained``: each would compile them, for about 20 seconds.
    """
    from attnkit.kernels.jit import is_available
    from attnkit.kernels.native import Loops, load_loops
    from attnkit.kernels.simd.targets import choose_target

    if is_available():
        with ThreadPoolExecutor(2) as pool:  # each compiles in a process of its own
            list(pool.map(lambda loops: load_loops(loops, choose_target(), "float32"), get_args(Loops)))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    from attnkit.text.toy.corpus import make_files

    def make(folder: Path) -> None:
        for name, lines in make_files("reverse", 160, 1, n_valid=8, n_test=40).items():
            write_lines(folder / name, lines)
        write_lines(folder / "documents.tsv", labeled_documents(160, seed=1))
        write_lines(folder / "table.tsv", labeled_table(160, seed=3))
        write_lines(folder / "text.txt", blocks_of_lines(60, seed=2))
        save_vectors(folder / "vectors.npy", low_rank(200, 6, 2, seed=1))

    return Workshop(made_once(tmp_path_factory, "corpus", make))


def labeled_documents(n: int, seed: int) -> list[str]:
    """Return documents of two to five sentences, of which one holds the word that decides the label."""
    drawn, lines = random.Random(seed), []
    for _ in range(n):
        label = drawn.choice(sorted(VERDICTS))
        sentences = [drawn.choices(FILLERS, k=drawn.randint(2, 6)) for _ in range(drawn.randint(2, 5))]
        telling = drawn.choice(sentences)
        telling[drawn.randrange(len(telling))] = drawn.choice(VERDICTS[label])
        lines.append(" ".join(" ".join(words) + "." for words in sentences) + f"\t{label}")
    return lines


def labeled_table(n: int, seed: int) -> list[str]:
    """Return a table of short texts, one word of which decides the label."""
    drawn, lines = random.Random(seed), ["text\tlabel"]
    for _ in range(n):
        label = drawn.choice(sorted(VERDICTS))
        words = drawn.choices(FILLERS, k=drawn.randint(2, 9))
        words[drawn.randrange(len(words))] = drawn.choice(VERDICTS[label])
        lines.append(" ".join(words) + f".\t{label}")
    return lines


FILLERS = [
    "the",
    "a",
    "film",
    "was",
    "about",
    "some",
    "people",
    "who",
    "went",
    "to",
    "see",
    "it",
    "and",
    "then",
    "came",
    "back",
    "home",
    "again",
]
VERDICTS = {"bad": ["awful", "dull", "poor"], "good": ["superb", "witty", "lovely"], "mixed": ["uneven", "middling"]}


def blocks_of_lines(n: int, seed: int) -> list[str]:
    """Return blocks of two to four lines of several sentences each, with blank lines between them."""
    drawn, lines = random.Random(seed), []
    for _ in range(n):
        for _ in range(drawn.randint(2, 4)):
            sentences = [drawn.choices(FILLERS, k=drawn.randint(2, 6)) for _ in range(drawn.randint(1, 4))]
            lines.append(" ".join(" ".join(words) + "." for words in sentences))
        lines.append("")
    return lines


def low_rank(n: int, width: int, rank: int, seed: int) -> Any:
    """Return (n, width) float32 vectors of that rank, far from zero, with a little noise."""
    import numpy as np

    drawn = np.random.default_rng(seed)
    found = drawn.normal(size=(n, rank)) @ drawn.normal(size=(rank, width)) + 3 + 0.05 * drawn.normal(size=(n, width))
    return found.astype(np.float32)


def save_vectors(path: Path, vectors: Any) -> Path:
    import numpy as np

    np.save(path, vectors, allow_pickle=False)
    return path


@pytest.fixture(scope="session")
def pretrained(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers that has seen a few steps of pairs of segments."""
    config = workshop.configure_task("pairs, two layers", limits__max_steps=3)
    return made_once(tmp_path_factory, "pretrained", lambda folder: workshop.train(config, folder / "run")) / "run"


@pytest.fixture(scope="session")
def trained(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer that has seen a few steps."""
    config = workshop.configure("transformer")

    def make(folder: Path) -> None:
        compile_engine()
        workshop.train(config, folder / "run")

    return made_once(tmp_path_factory, "trained", make) / "run"
