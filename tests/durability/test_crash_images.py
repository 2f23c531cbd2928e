"""A power cut at any moment of a run's life leaves the old checkpoint or the new one, and all that was promised."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from power_cuts import PAGE, Disk, Mark, Op, Orders, Recorder, Sync, Tree, torn

from attnkit.checkpoints.checkpoint import Checkpoint, open_checkpoint
from attnkit.checkpoints.logs import Status, append_record, read_status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import AttnkitError


def contents(version: int) -> dict[str, bytes]:
    return {
        "config.yaml": b"a: 1\n",
        "model.safetensors": b"".join(b"%d" % version * PAGE for _ in range(2)) + b"%d" % version * 99,
        "state.json": b'{"version": %d}' % version,
    }


class Found(NamedTuple):
    """What a run folder says of itself after a power cut."""

    problem: str = ""
    newest: int | None = None
    best: tuple[str, int] | None = None
    status: int | None = None
    metrics: bytes = b""


def version_of(checkpoint: Checkpoint) -> int:
    """Return which of the saved checkpoints it is, byte for byte; fails where it is none."""
    read = {file: checkpoint.read(file) for file in checkpoint.manifest.files}
    version = int(read["state.json"][len('{"version": ') : -1])
    assert read == contents(version)
    return version


def look(path: Path) -> Found:
    run = RunFolder(path)
    try:
        newest, warnings = run.newest()
        for name, folder in run.list_checkpoints():  # an old one neither: it is whole or it is gone
            open_checkpoint(folder, name).verify()
        name = run.best_name()
        best = None if name is None else (name, version_of(run.checkpoint("best")[0]))
    except AttnkitError as error:
        return Found(problem=error.what)
    status = read_status(run.path)
    return Found(
        problem="; ".join(warnings),
        newest=None if newest is None else version_of(newest),
        best=best,
        status=None if status is None else status.step,
        metrics=run.metrics_path.read_bytes() if run.metrics_path.exists() else b"",
    )


def goes_on(path: Path) -> str:
    """Lock, save, rotate, as the next process does; return what is wrong afterwards."""
    run = RunFolder(path)
    try:
        with run.lock():
            run.save(9, contents(9))
            run.set_best("step-9")
            run.apply_retention(keep_last=1, keep_best=0, metrics={})
    except AttnkitError as error:
        return error.what
    left = [str(found) for found in path.rglob("*") if found.name.startswith(".tmp-") or ".replaced" in found.name]
    found = look(path)
    if left or run.steps() != [9] or (found.problem, found.newest, found.best) != ("", 9, ("step-9", 9)):
        return f"left {left}, steps {run.steps()}, {found}"
    return ""


def life(run: RunFolder, record: Recorder) -> dict[int, bytes]:
    """Live through everything that writes to a run; return how much of ``metrics.jsonl`` each save promises."""
    promised: dict[int, bytes] = {}

    def act(do: Callable[..., object], *arguments: Any, **facts: Any) -> None:
        record.mark(facts, done=False)
        do(*arguments)
        record.mark(facts, done=True)

    def save(step: int, version: int) -> None:
        promised[version] = run.metrics_path.read_bytes() if version > 1 else b""
        act(run.save, step, contents(version), newest=version, **{f"step-{step}": version})

    act(lambda: run.lock().release())  # a process that ends before its first save
    act(run.write_copy, "config.yaml", b"a: 1\n")
    with run.lock():
        save(1, 1)
        act(run.set_best, "step-1", best="step-1")
        act(run.write_status, Status(state="running", step=1), status=1)
        append_record(run.metrics_path, {"step": 1})
        append_record(run.metrics_path, {"step": 2})
        save(2, 2)
        act(run.write_status, Status(state="running", step=2), status=2)
        append_record(run.metrics_path, {"lost": 1})
        run.truncate_metrics(len(promised[2]))
        append_record(run.metrics_path, {"step": 3})
        save(3, 3)
        act(run.set_best, "step-3", best="step-3")
        save(3, 4)
        act(run.apply_retention, 1, 0, {})
        act(run.save_averaged, 3, contents(5), averaged=5)
        act(run.set_best, "averaged", best="averaged")
        act(run.save_averaged, 3, contents(6), averaged=6)
        act(run.write_status, Status(state="finished", step=3), status=3)
    return promised


class Story(NamedTuple):
    record: Recorder
    promised: dict[int, bytes]
    seen: dict[Tree, Found]
    """What was found on each image, which lies at ``images`` one after the other."""
    went_on: dict[Tree, str]
    images: Path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    root = tmp_path_factory.mktemp("disk")
    record = Recorder(root)
    with pytest.MonkeyPatch.context() as patch:
        record.install(patch)
        promised = life(RunFolder(root / "run"), record)
    # Thousands of folders come and go: in memory, where the machine has such a place.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as images:
        yield Story(record, promised, {}, {}, Path(images))


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are laid out and read by one process that lives on: what it fsyncs there makes no difference."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def lay(path: Path, old: Tree | None, new: Tree | None) -> None:
    """Turn what lies at a path into something else."""
    if old == new:
        return
    if isinstance(old, tuple) and not isinstance(new, tuple):
        shutil.rmtree(path)
    elif isinstance(old, bytes) and not isinstance(new, bytes):
        path.unlink()
    if isinstance(new, bytes):
        # In place: some file systems flush a file that is emptied first.
        with path.open("r+b" if isinstance(old, bytes) else "wb") as stream:
            stream.write(new)
            stream.truncate()
    elif new is not None:
        path.mkdir(exist_ok=True)
        before, after = dict(old) if isinstance(old, tuple) else {}, dict(new)
        for name in before | after:
            lay(path / name, before.get(name), after.get(name))


def shape(tree: Tree, depth: int = 0) -> Tree:
    """Return an image without the bytes that lie in folders of the run: what going on depends on."""
    if isinstance(tree, bytes):
        return tree if depth < 3 else b""
    return tuple((name, shape(below, depth + 1)) for name, below in tree)


def images(story: Story, ops: list[Op], orders: Orders) -> Iterator[tuple[Tree, dict[str, Any], dict[str, Any]]]:
    """Yield every image at every moment, with what is promised by then and what is on its way."""
    disk = Disk(story.record, orders)
    facts: dict[str, Any] = {}
    coming: dict[str, Any] = {}
    trees = disk.trees()
    for op in ops:
        if isinstance(op, Mark):
            facts, coming = ({**facts, **op.facts}, {}) if op.done else (facts, dict(op.facts))
        else:
            disk.do(op)
            trees = disk.trees()
        for tree in trees:
            yield tree, facts, coming


def complaint(story: Story, found: Found, facts: dict[str, Any], coming: dict[str, Any]) -> str:
    """Return what breaks a promise, nothing if all are kept."""

    def allowed(key: str) -> list[Any]:
        return [facts.get(key), coming.get(key, facts.get(key))]

    if found.problem:
        return found.problem
    if found.newest not in allowed("newest"):
        return f"newest is {found.newest}, not one of {allowed('newest')}"
    if (found.best and found.best[0]) not in allowed("best"):
        return f"best is {found.best}, not one of {allowed('best')}"
    if found.best and found.best[1] not in allowed(found.best[0]):
        return f"best is {found.best}, not one of {allowed(found.best[0])}"
    if found.status not in allowed("status"):
        return f"status is {found.status}, not one of {allowed('status')}"
    if found.newest is not None and not found.metrics.startswith(story.promised[found.newest]):
        return f"metrics {found.metrics!r} lack what version {found.newest} knew"
    return ""


def first_complaint(story: Story, ops: list[Op], orders: Orders, every_goes_on: bool = False) -> tuple[str, int]:
    """Return what is wrong on the first bad image, and how many images were looked at."""
    here, lying = story.images / "here", None
    shutil.rmtree(here, ignore_errors=True)
    looked: set[Tree] = set()
    for tree, facts, coming in images(story, ops, orders):
        looked.add(tree)
        if tree not in story.seen:
            lay(here, lying, tree)
            lying = tree
            story.seen[tree] = look(here / "run")
        if wrong := complaint(story, story.seen[tree], facts, coming):
            return f"{wrong} {facts} {coming}", len(looked)
        key = tree if every_goes_on else shape(tree)
        if key not in story.went_on:
            lay(story.images / "next", None, tree)
            story.went_on[key] = goes_on(story.images / "next" / "run")
            shutil.rmtree(story.images / "next")
        if wrong := story.went_on[key]:
            return f"cannot continue: {wrong}", len(looked)
    return "", len(looked)


def test_the_record_has_every_change(story: Story) -> None:
    """A writer that it does not hear would not be proved anything about."""

    def on_disk(path: Path) -> Tree:
        if path.is_file():
            return path.read_bytes()
        return tuple((below.name, on_disk(below)) for below in sorted(path.iterdir()))

    assert story.record.tree() == on_disk(story.record.root)
    disk = Disk(story.record, "prefixes")
    for op in story.record.ops:
        disk.do(op)
    assert story.record.tree() in disk.trees()


def test_a_power_cut_leaves_the_old_checkpoint_or_the_new(story: Story) -> None:
    wrong, n_images = first_complaint(story, story.record.ops, "prefixes")
    assert wrong == ""
    assert n_images > 500


@pytest.mark.slow
def test_changes_to_a_folder_may_be_lost_in_any_order(story: Story) -> None:
    wrong, n_images = first_complaint(story, story.record.ops, "subsets", every_goes_on=True)
    print(f"{n_images} images")
    assert wrong == ""
    assert n_images > 1000


NEEDED = (
    ("model.safetensors", r"model\.safetensors of checkpoint step-1 cannot be used"),
    ("manifest.json", r"manifest\.json of checkpoint step-1 cannot be used"),
    (r"\.tmp-step-1-\d+", r"of checkpoint step-1 cannot be used"),
    ("checkpoints", r"newest is None, not one of \[1"),
    ("metrics.jsonl", r"metrics .* lack what version 2 knew"),
    (r"\.tmp-best-\d+", "the file naming the best checkpoint is damaged"),
    (r"\.tmp-status\.json-\d+", "status is None"),
    ("run", r"cannot continue|not one of"),
    ("lock", r"cannot continue: .* contains other files and is not a run folder"),
)


@pytest.mark.parametrize(("name", "wrong"), NEEDED, ids=[name for name, _ in NEEDED])
def test_without_one_fsync_an_image_is_bad(story: Story, name: str, wrong: str) -> None:
    """That the images above are all good says something only because these are not."""
    kept = [op for op in story.record.ops if not (isinstance(op, Sync) and re.fullmatch(name, op.name))]
    assert len(kept) < len(story.record.ops)
    assert re.search(wrong, first_complaint(story, kept, "prefixes")[0])


def test_torn_contents_by_hand() -> None:
    old, new = b"a" * PAGE + b"a", b"b" * (PAGE + 2)
    found = set(torn(old, new))
    assert found == {page + rest for page in (b"a" * PAGE, b"b" * PAGE) for rest in (b"a", b"b", b"a\0", b"bb")}
    pages, rests = (b"\0" * PAGE, b"x" * PAGE), (b"\0" * 904, b"x" * 904)
    assert set(torn(b"", b"x" * 5000)) == {b"", *pages, *(page + rest for page in pages for rest in rests)}
