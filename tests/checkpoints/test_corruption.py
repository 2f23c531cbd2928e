"""Whatever changes in a checkpoint is seen, named, and passed over for an older one."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from attnkit.checkpoints import checkpoint
from attnkit.checkpoints.checkpoint import open_checkpoint
from attnkit.checkpoints.logs import LogSummary, append_record, read_log
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import RunError, SystemFailure

FILES = ("config.yaml", "tokenizer.json", "model.safetensors", "optimizer.safetensors", "state.json")
EVERY = (*FILES, checkpoint.FILE_NAME)
STEPS = (10, 20, 30)
N_CORRUPTIONS = 1000
Tree = dict[str, bytes]
"""Path below ``checkpoints`` -> content."""


def contents(step: int) -> dict[str, bytes]:
    """Return files of which some are the same in all checkpoints of a run, and one has a page of zeros."""
    source, same = random.Random(step), random.Random(0)
    found = {"config.yaml": same.randbytes(300), "tokenizer.json": same.randbytes(2000)}
    found["model.safetensors"] = source.randbytes(5000) + bytes(8192) + source.randbytes(7000)
    return found | {"optimizer.safetensors": source.randbytes(9000), "state.json": b'{"step": %d}' % step * 9}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.lock().release()
    folder.save(10, contents(10))
    folder.save(20, contents(20))
    return folder


def flip(tree: Tree, path: str, source: random.Random) -> None:
    data = bytearray(tree[path])
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    tree[path] = bytes(data)


def zero(tree: Tree, path: str, source: random.Random) -> None:
    start = source.randrange(0, len(tree[path]), 4096)
    page = bytes(len(tree[path][start : start + 4096]))
    tree[path] = tree[path][:start] + page + tree[path][start + 4096 :]


def cut(tree: Tree, path: str, source: random.Random) -> None:
    tree[path] = tree[path][: source.randrange(len(tree[path]))]


def grow(tree: Tree, path: str, source: random.Random) -> None:
    tree[path] += source.randbytes(source.randrange(1, 50))


def swap_inside(tree: Tree, path: str, source: random.Random) -> None:
    other = f"{path.split('/')[0]}/{source.choice(EVERY)}"
    tree[path], tree[other] = tree[other], tree[path]


def swap_between(tree: Tree, path: str, source: random.Random) -> None:
    other = f"step-{source.choice(STEPS)}/{path.split('/')[1]}"
    tree[path], tree[other] = tree[other], tree[path]


def take_from_another(tree: Tree, path: str, source: random.Random) -> None:
    tree[path] = tree[f"step-{source.choice(STEPS)}/{path.split('/')[1]}"]


def copy_whole(tree: Tree, path: str, source: random.Random) -> None:
    other = source.choice(STEPS)
    for file in EVERY:
        tree[f"{path.split('/')[0]}/{file}"] = tree[f"step-{other}/{file}"]


def lose(tree: Tree, path: str, source: random.Random) -> None:
    del tree[path]


CORRUPTIONS = (flip, zero, cut, grow, swap_inside, swap_between, take_from_another, copy_whole, lose)


def corrupt(good: Tree, number: int) -> Tree:
    """Return a tree with one corruption: of every kind in every file in turn, each time elsewhere."""
    source = random.Random(number)
    kind = CORRUPTIONS[number % len(CORRUPTIONS)]
    file = EVERY[number // len(CORRUPTIONS) % len(EVERY)]
    while True:
        tree = dict(good)
        kind(tree, f"step-{source.choice(STEPS)}/{file}", source)
        if tree != good:  # a page may be zero already, two files the same
            return tree
        if kind in (swap_between, take_from_another):  # the same in every checkpoint
            file = source.choice(EVERY)


def lay(folder: Path, old: Tree, new: Tree) -> None:
    """Write what differs, where it stands: some file systems flush a file that is emptied first."""
    for path in old.keys() | new.keys():
        if path not in new:
            (folder / path).unlink()
        elif old.get(path) != new[path]:
            with (folder / path).open("r+b" if path in old else "wb") as stream:
                stream.write(new[path])
                stream.truncate()


def read(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_thousand_corruptions_are_seen_and_named_and_the_newest_good_checkpoint_is_taken(run: RunFolder) -> None:
    run.save(30, contents(30))
    good = lying = read(run.checkpoints_path)
    assert len(good) == len(STEPS) * len(EVERY)
    hit: set[tuple[str, str]] = set()
    for number in range(N_CORRUPTIONS):
        bad = corrupt(good, number)
        lay(run.checkpoints_path, lying, bad)
        lying = bad
        changed = {path for path in good if bad.get(path) != good[path]}
        hit |= {(CORRUPTIONS[number % len(CORRUPTIONS)].__name__, path.split("/")[1]) for path in changed}
        for step in STEPS:
            name = f"step-{step}"
            files = {path.split("/")[1] for path in changed if path.startswith(f"{name}/")}
            assert faults(run.checkpoints_path / name) == expected_faults(files, name), (number, changed)
        sound = max(step for step in STEPS if not any(path.startswith(f"step-{step}/") for path in changed))
        checkpoint, warnings = run.newest()
        assert checkpoint is not None
        assert checkpoint.step == sound, number
        assert {file: checkpoint.read(file) for file in FILES} == contents(sound)
        passed_over = [step for step in reversed(STEPS) if step > sound]
        assert len(warnings) == len(passed_over)
        for step, warning in zip(passed_over, warnings, strict=True):
            named = warning.split(" of checkpoint ")[0]
            assert f"step-{step}/{named}" in changed and f"checkpoint step-{step} cannot be used" in warning
    assert len(hit) == len(CORRUPTIONS) * len(EVERY) - len(never_differ())


def faults(folder: Path) -> set[str]:
    """Return the files that are said to be damaged."""
    try:
        found = list(open_checkpoint(folder, folder.name).find_mismatches())
    except RunError as error:
        found = [error]
    assert all(f" of checkpoint {folder.name} cannot be used: " in error.what for error in found)
    return {error.what.split(" of checkpoint ")[0] for error in found}


def expected_faults(files: set[str], name: str) -> set[str]:
    """A manifest that is damaged itself says nothing of the others."""
    return {checkpoint.FILE_NAME} if checkpoint.FILE_NAME in files else files


def never_differ() -> list[tuple[str, str]]:
    """Kinds of corruption that change nothing in files that are the same in every checkpoint."""
    same = ("config.yaml", "tokenizer.json")
    return [(kind.__name__, file) for kind in (swap_between, take_from_another, copy_whole) for file in same]


def test_damage_to_the_average_and_to_the_best_is_seen(run: RunFolder) -> None:
    run.save_averaged(20, contents(25))
    for name, folder in (("averaged", run.path / "averaged"), ("step-10", run.checkpoints_path / "step-10")):
        run.set_best(name)
        good = lying = {f"{name}/{path}": data for path, data in read(folder).items()}
        for number in range(100):
            bad, source = dict(good), random.Random(number)
            path = f"{name}/{EVERY[number % len(EVERY)]}"
            (flip, cut, grow, lose)[number // len(EVERY) % 4](bad, path, source)
            lay(folder.parent, lying, bad)
            lying = bad
            with pytest.raises(RunError, match=rf"{path.split('/')[1]} of checkpoint {name} cannot be used"):
                run.checkpoint("best")[0].verify()
            with pytest.raises(RunError, match=rf"of checkpoint {name} cannot be used"):
                chosen = run.checkpoint()[0]
                for file in FILES:
                    chosen.read(file)
        lay(folder.parent, lying, good)


def test_every_bit_of_the_name_of_the_best_counts(run: RunFolder) -> None:
    """Where it does not turn into the name of another checkpoint that is there; of that ``verify`` tells."""
    path = run.path / "best"
    run.set_best("step-20")
    raw = path.read_bytes()
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(RunError, match=r"damaged|has no checkpoint step-\d+"):
                run.checkpoint()


def test_every_bit_of_a_line_of_the_log_counts(run: RunFolder) -> None:
    for step in range(3):
        append_record(run.metrics_path, {"kind": "step", "step": step, "loss": 1.5})
    raw = run.metrics_path.read_bytes()
    assert read_log(run.metrics_path, None) == LogSummary(len(raw), 3, 0, (), 0)
    first = raw.index(b"\n") + 1
    for place in range(first):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            run.metrics_path.write_bytes(changed)
            found = read_log(run.metrics_path, None)
            assert found.damaged[:1] == (1,), (place, bit)
            late = read_log(run.metrics_path, 0)
            assert (late.n_damaged, late.damaged, late.n_truncated > 0) == (0, (), True)
    run.metrics_path.write_bytes(raw[:-1])
    assert read_log(run.metrics_path, len(raw)).damaged == (3,)


def test_lines_that_a_power_cut_tore_are_told_from_damaged_ones(run: RunFolder) -> None:
    for step in range(3):
        append_record(run.timings_path, {"step": step, "minutes": 1.5, "tokens": 7})
    path = run.timings_path
    raw = path.read_bytes()
    first = raw.index(b"\n") + 1
    for kept in range(first):
        for zeros in (0, 1, 30):
            torn = raw[:kept] + bytes(zeros)
            for after in (b"", raw[first:]):
                path.write_bytes(raw + torn + after)
                found = read_log(path, None)
                n_lines = 3 + (2 if after else len(torn) > 0)
                assert found == LogSummary(len(raw + torn + after), n_lines, 0, (), int(len(torn) > 0)), (torn, after)
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            assert read_log(path, None).n_damaged, (place, bit)


def test_a_log_of_nothing_but_damage_takes_no_memory_for_each_line(run: RunFolder) -> None:
    run.metrics_path.write_bytes(b"x\n" * 200_000)
    assert read_log(run.metrics_path, None) == LogSummary(400_000, 200_000, 200_000, (1, 2, 3), 0)


def test_a_log_that_cannot_be_read_is_damaged_unless_this_process_is_why(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.timings_path
    path.mkdir()
    with pytest.raises(ValueError, match="cannot be read: not a regular file"):
        read_log(path, None)
    path.rmdir()
    path.symlink_to(run.path / "lock")
    with pytest.raises(ValueError, match="cannot be read: "):
        read_log(path, None)
    for code, expected in ((errno.EIO, ValueError), (errno.EACCES, SystemFailure), (errno.EMFILE, SystemFailure)):

        def failing(*_: object, code: int = code) -> int:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", failing)
            with pytest.raises(expected, match=os.strerror(code)):
                read_log(path, None)
