"""The trainings of mlm.py: what both sides are given, one training in a process of its own, its time and its loss."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers import WORK, Message, without_warm_up
from word2vec_runs import UNSET, measured

HERE = Path(__file__).resolve().parent
HOME = WORK / "mlm"
MINI = {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024}
VALID_ROWS = 512
"""Of the held-out text, that are scored."""
CLOSE = 2e-5
"""How far the peer's own loss may be from attnkit's of the same weights: beyond it they are not the same function."""


@dataclass(frozen=True)
class Way:
    """How the peer is set up, besides precision and dropout."""

    layout: str
    """Its rows: ``across``, ``alone`` or ``packed``."""
    grouped: bool = False
    workers: int = 0
    attention: str = "sdpa"
    compiled: bool = False

    @property
    def name(self) -> str:
        """Return it in words."""
        words = [self.layout, self.attention, f"{self.workers} workers"]
        return ", ".join(words + ["grouped"] * self.grouped + ["compiled"] * self.compiled)


@dataclass(frozen=True)
class System:
    """Who trains, and how precisely."""

    name: str
    peer: bool
    precision: str
    dropout: float


@dataclass(frozen=True)
class Case:
    """What one training is given; ``minutes`` instead of ``steps`` for attnkit alone."""

    system: System
    table: str
    seed: int
    way: Way | None = None
    steps: int | None = None
    minutes: float | None = None
    sets: tuple[str, ...] = ()
    """Further keys of attnkit."""
    clocked: bool = False
    """attnkit's first steps are counted as the mean of the others, as the peer's are: they may compile."""


@dataclass(frozen=True)
class Shared:
    """What all trainings have in common."""

    steps: int
    learning_rate: float
    warmup: int
    threads: int
    documents: str
    """``lines`` (paragraphs) or ``blocks`` (articles)."""
    length: int = 128
    """Tokens of a row."""
    vocabulary: int = 8000
    batch: int = 4096
    """Places of a step of attnkit; the peer's rows are as many as hold the same text."""
    device: str = "cpu"
    sizes: dict[str, int] = field(default_factory=lambda: dict(MINI))
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0


def articles(path: Path, share: float) -> Iterator[bytes]:
    """Yield the lines of the first articles of a text, plain or .xz, up to a share of its bytes."""
    opener: Any = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rb") as lines:
        total = sum(map(len, lines)) if share < 1 else 0
    taken = 0
    with opener(path, "rb") as lines:
        for line in lines:
            if share < 1 and taken >= share * total and not line.strip():
                return
            taken += len(line)
            yield line


class Place:
    """Where things are: the text's parts, the vocabulary, initial weights, the ids for the peer. Made when needed."""

    def __init__(self, data: Path, share: float, python: Path, shared: Shared) -> None:
        parts = [data.resolve(), share, shared.documents, shared.length, shared.vocabulary, shared.sizes]
        key = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:8]
        self.folder, self.data, self.share, self.python, self.shared = HOME / key, data, share, python, shared
        self.train, self.valid = self.folder / "train.txt", self.folder / "valid.txt"
        self.ids = self.folder / "ids.safetensors"

    def prepare(self) -> None:
        """Make text, vocabulary, and what the peer reads."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, share in ((self.train, self.share), (self.valid, min(1.0, 5 * self.share))):
            if not path.exists():
                path.with_suffix(".tmp").write_bytes(b"".join(articles(self.data / f"{path.name}.xz", share)))
                path.with_suffix(".tmp").replace(path)
        if not (self.folder / "vocab.json").exists():
            attnkit(
                "vocab",
                self.train,
                "-o",
                self.folder / "vocab.json",
                "--size",
                self.shared.vocabulary,
                "--symbol",
                "[MASK]",
            )
        if not self.ids.exists():
            from mlm_side import write_ids

            write_ids(self.initial(1, 0.0), self.ids)

    def initial(self, seed: int, dropout: float) -> Path:
        """Return a run that has drawn its weights and not learnt anything: its one step is too small to move them."""
        run = self.folder / f"initial-{seed}-{dropout:g}"
        if not (run / "README.md").exists():
            shutil.rmtree(run, ignore_errors=True)
            sets = [f"model.{name}={value}" for name, value in self.shared.sizes.items()]
            sets += [f"model.dropout={dropout}", f"model.attention_dropout={dropout}"]
            sets += [f"data.sequence_length={self.shared.length}", f"model.max_length={self.shared.length}"]
            sets += ["model.positions=learned"]  # as the peer's BERT has them
            sets += ["optimization.learning_rate=1e-30"]
            sets += [
                f"data.valid_rows={VALID_ROWS}",
                f"data.document_format={self.shared.documents}",
                "evaluation.n_samples=0",
            ]
            attnkit("pretrain-mlm", self.train, "-o", run, "--valid", self.valid, "--preset", "mini",
                    "--vocab", self.folder / "vocab.json", "--seed", seed, "--max-steps", 1, *_sets(sets))  # fmt: skip
        return run

    def exported(self, seed: int) -> Path:
        """Return the same weights as the peer reads them."""
        folder = self.folder / f"initial-{seed}-huggingface"
        if not folder.exists():
            attnkit("export", self.initial(seed, 0.0), folder, "--to", "huggingface")
        return folder

    def held_out(self, table: str) -> Path:
        """Return the rows that are scored."""
        path = self.folder / f"held-out-{table}.safetensors"
        if not path.exists():
            from mlm_side import write_held_out

            write_held_out(self.initial(1, 0.0), table, path)
        return path

    def rows(self, table: str, layout: str) -> int:
        """Return how many rows of the peer hold as much text as a step of attnkit."""
        path = self.folder / "rows.json"
        known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        name = f"{table} {layout} {self.shared.batch}"
        if name not in known:
            from mlm_side import counted

            epoch = counted(self.initial(1, 0.0), table, max_tokens=self.shared.batch)
            known[name] = round(epoch["text tokens"] / epoch["steps"] / self._text_of_a_row(layout))
            path.write_text(json.dumps(known))
        return known[name]

    def _text_of_a_row(self, layout: str) -> float:
        from safetensors.numpy import load_file

        found = load_file(self.ids)
        lengths = found["lengths"]
        n_text, length = int(lengths.sum()), self.shared.length
        if layout == "across":
            return n_text / ((n_text + 2 * len(lengths)) / length)
        n_rows = len(found["row_starts"]) - 1 if layout == "packed" else int((-(-lengths // (length - 2))).sum())
        return n_text / n_rows


def _sets(values: list[str]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def environment() -> dict[str, str]:
    """Return the variables of a training: threads are told by flags."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**kept, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def attnkit(*arguments: object, times: Path | None = None) -> tuple[str, Message]:
    """Run a command of the toolkit; return what it prints, with time and memory. It may note the times of its steps."""
    program: list[object] = ["-m", "attnkit"] if times is None else [HERE / "mlm_clock.py", times]
    command = [sys.executable, *program, *arguments]
    return measured(command, environment(), HOME / f"attnkit-{arguments[0]}.log")


def train(case: Case, place: Place, *, scores: bool = True) -> Message:
    """Train once and score the weights on the held-out text by attnkit's evaluation."""
    now = place.folder / "now"
    shutil.rmtree(now, ignore_errors=True)
    now.mkdir()
    record = _peer(case, place, now, scores) if case.system.peer else _own(case, place, now)
    record["tokens/s"] = round(record["text tokens"] / record["seconds"], 1)
    record["load average"] = round(os.getloadavg()[0], 2)
    shutil.rmtree(now)
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in record.items()}


def _own(case: Case, place: Place, now: Path) -> Message:
    shared, system = place.shared, case.system
    limit = ["--max-minutes", case.minutes] if case.minutes is not None else ["--max-steps", case.steps]
    sets = [
        f"data.isolate_documents={str(case.table == 'isolated').lower()}", f"data.valid_rows={VALID_ROWS}",
        f"data.sequence_length={shared.length}", f"data.document_format={shared.documents}",
        f"optimization.learning_rate={shared.learning_rate}",
        f"optimization.warmup_steps={shared.warmup}", f"optimization.batch_tokens={shared.batch}",
        "limits.max_epochs=null",
        f"optimization.betas={list(shared.betas)}", f"optimization.weight_decay={shared.weight_decay}",
        f"optimization.clip_norm={shared.clip}", "optimization.schedule=linear", "optimization.warmup_fraction=1.0",
        "evaluation.every_steps=1000000", "evaluation.n_samples=0", *case.sets,
    ]  # fmt: skip
    printed, record = attnkit(
        "pretrain-mlm", place.train, "-o", now / "run", "--valid", place.valid, "--preset", "mini",
        "--init-from", place.initial(case.seed, system.dropout), "--seed", case.seed, "--threads", shared.threads,
        "--precision", system.precision, "--device", shared.device, *limit, "--json", *_sets(sets),
        times=now / "times.json" if case.clocked else None,
    )  # fmt: skip
    told = json.loads(printed)
    timing = json.loads((now / "run" / "timings.jsonl").read_text().splitlines()[-1])
    from mlm_side import counted

    done = counted(now / "run", case.table, told["step"], case.seed)
    if done["real tokens"] != timing["tokens"]:
        sys.exit(f"{timing['tokens']} tokens were trained on, {done['real tokens']} were planned")
    seconds = 60 * timing["minutes"]
    counted_seconds = without_warm_up(json.loads((now / "times.json").read_text())) if case.clocked else seconds
    return {**record, **done, "seconds": counted_seconds, "all seconds": seconds, "loss": told["metrics"]["loss"]}


def _peer(case: Case, place: Place, now: Path, scores: bool) -> Message:
    shared, system, way = place.shared, case.system, case.way
    assert way is not None
    spec = {
        **asdict(shared), **asdict(way), "model": str(place.exported(case.seed)), "ids": str(place.ids),
        "out": str(now / "out"), "rows": place.rows(case.table, way.layout), "seed": case.seed,
        "precision": system.precision, "dropout": system.dropout, "steps": case.steps,
        "held out": str(place.held_out(case.table)) if scores else None,
    }  # fmt: skip
    command = [place.python, HERE / "mlm_peers.py", json.dumps(spec)]
    printed, record = measured(command, environment(), HOME / "huggingface.log")
    record |= json.loads(printed)
    if scores:
        from mlm_side import score

        attnkit("import", "huggingface", now / "out" / "model", "-o", now / "imported")
        record["loss"] = score(now / "imported", place.initial(1, 0.0), case.table)["loss"]
        if abs(record["loss"] - record["own loss"]) > CLOSE:
            sys.exit(f"of the same weights attnkit has the loss {record['loss']}, transformers {record['own loss']}")
    return record
