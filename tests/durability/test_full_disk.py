"""A disk that is really full, and files that really may not grow: exit 5, nothing half-written, and going on works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.run_folder import RunFolder

PAGE = 4096
FULL, TOO_LARGE = "No space left on device", "File too large"
Mount = Callable[[int], Path]


@pytest.fixture
def mount(commands: Any, tmp_path: Path) -> Iterator[Mount]:
    """Return what gives a fresh file system of so many bytes, which only the commands see."""
    folder, entered = tmp_path / "mounted", []
    folder.mkdir()

    def fresh(size: int) -> Path:
        if entered:
            commands(leave=True)
        entered[:] = [True]
        ended = commands(enter=str(folder), size=size)
        if ended.code:
            pytest.skip(f"this machine allows no file system of one's own: {ended.err}")
        return folder

    yield fresh
    if entered:
        commands(leave=True)


@pytest.fixture(scope="module")
def whole(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that had all the space it needed."""
    run: Path = tmp_path_factory.mktemp("whole") / "run"
    commands.done(*commands.train("transformer", run))
    return run


def assert_refused(ended: Any, why: str, path: Path) -> None:
    said = [line for line in ended.err.splitlines() if line.startswith(("error: ", "  at ", "help: "))]
    assert ended.code == 5 and said[0].startswith("error: ") and len(said) <= 3, ended
    assert why in said[0] and str(path) in said[0] and said[-1].endswith("run the same command again"), ended


def assert_whole(commands: Any, run: Path) -> None:
    """Check that what a refused command left behind is a run of which every checkpoint is whole."""
    steps = RunFolder(run).steps()
    newest, warnings = RunFolder(run).newest()
    assert warnings == [] and (newest.step if newest else None) == (steps[-1] if steps else None)
    assert len(commands.temporaries(run)) <= 1


@pytest.mark.parametrize("share", [0.5, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.1, 0.9))])
def test_training_on_a_full_disk(commands: Any, mount: Mount, whole: Path, tmp_path: Path, share: float) -> None:
    needed = sum(-(-path.stat().st_size // PAGE) for path in whole.rglob("*") if path.is_file())
    disk = mount(int(share * needed) * PAGE)
    train = commands.train("transformer", disk / "run")
    assert_refused(commands(*train), FULL, disk / "run")
    assert_refused(commands(*train), FULL, disk / "run")
    commands(copy=[str(disk / "run"), str(tmp_path / "refused")])
    assert_whole(commands, tmp_path / "refused")
    commands(size=1 << 26)
    commands.done(*train)
    commands(copy=[str(disk / "run"), str(tmp_path / "run")])
    assert commands.outcome(tmp_path / "run") == commands.outcome(whole)


@pytest.mark.parametrize("limit", [3000, *(pytest.param(limit, marks=pytest.mark.slow) for limit in (300, 20_000))])
def test_training_with_files_that_may_not_grow(commands: Any, whole: Path, tmp_path: Path, limit: int) -> None:
    assert max(path.stat().st_size for path in whole.rglob("*") if path.is_file()) > limit
    run = tmp_path / "run"
    assert_refused(commands(*commands.train("transformer", run), largest_file=limit), TOO_LARGE, run)
    assert_whole(commands, run)
    commands.done(*commands.train("transformer", run))
    assert commands.outcome(run) == commands.outcome(whole)


def outputs(commands: Any, run: Path, output: Path) -> list[list[str | Path]]:
    """Return the commands that write one file."""
    texts = [commands.corpus / name for name in ("test.src", "train.src", "train.tgt")]
    translate: list[str | Path] = ["translate", run, "-i", texts[0], "-o", output, "--device", "cpu"]
    return [translate, ["vocab", *texts, "-o", output, "--size", "300"]]


@pytest.mark.parametrize("number", [0, 1], ids=["translate", "vocab"])
def test_an_output_on_a_full_disk(commands: Any, mount: Mount, whole: Path, tmp_path: Path, number: int) -> None:
    """The old output stays until there is room for the new one."""
    expected = tmp_path / "expected"
    commands.done(*outputs(commands, whole, expected)[number])
    (tmp_path / "full").mkdir()
    (tmp_path / "full/output").write_text("old")
    (tmp_path / "full/ballast").write_bytes(bytes(PAGE))
    disk = mount(2 * PAGE)
    commands(copy=[str(tmp_path / "full"), str(disk / "full")])
    command = outputs(commands, whole, disk / "full" / "output")[number]
    assert_refused(commands(*command), FULL, disk / "full" / "output")
    commands(copy=[str(disk / "full"), str(tmp_path / "refused")])
    assert {path.name: path.read_bytes() for path in (tmp_path / "refused").iterdir()} == {
        "output": b"old",
        "ballast": bytes(PAGE),
    }
    commands(size=1 << 20)
    commands.done(*command)
    commands(copy=[str(disk / "full"), str(tmp_path / "written")])
    assert (tmp_path / "written/output").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("number", [0, 1], ids=["translate", "vocab"])
def test_an_output_that_may_not_grow(commands: Any, whole: Path, tmp_path: Path, number: int) -> None:
    output = tmp_path / "output"
    command = outputs(commands, whole, output)[number]
    assert_refused(commands(*command, largest_file=20), TOO_LARGE, output)
    assert list(tmp_path.iterdir()) == []
    commands.done(*command)
    assert output.stat().st_size > 20
