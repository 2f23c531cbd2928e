"""``attnkit verify``: a run that changes meanwhile, and what a stranger may have put into one."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.analysis import verify as task
from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.run_state import RunState
from attnkit.errors import RunError
from attnkit.tasks.translation.data import open_prepared
from attnkit.text.vocabulary_schema import MAX_BYTES

sys.path.insert(0, str(Path(__file__).parent))
from verified import bad, save_changed

Call = Callable[..., tuple[int, str, str]]


def test_a_checkpoint_that_goes_before_its_turn_is_no_damage(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "best").write_text("step-12\n")
    opened = task.open_checkpoint

    def rotating(path: Path, name: str) -> Any:
        if name == "step-12":
            shutil.rmtree(run / "checkpoints/step-4", ignore_errors=True)
        return opened(path, name)

    monkeypatch.setattr(task, "open_checkpoint", rotating)
    rows = {thing.name: thing for thing in verify_run(run).things}
    assert (rows["step-4"].good, rows["step-4"].text) == (True, "was deleted by rotation during verification")


@pytest.mark.parametrize("at", ["_best", "_logs", "_status", "_copies"])
def test_the_newest_may_go_while_the_rest_is_looked_at(run: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """A run that trains on saves step 16 and drops step 12, of which everything was good a moment ago."""
    twelfth = RunFolder(run).checkpoint("step-12")[0]
    contents = {name: twelfth.read(name) for name in twelfth.manifest.files}
    state = json.loads(contents["state.json"])
    state["counters"]["step"] = 16
    contents["state.json"] = json.dumps(state).encode()
    part = getattr(task, at)

    def rotating(*arguments: Any, **named: Any) -> Any:
        if twelfth.path.exists():
            RunFolder(run).save(16, contents)
            shutil.rmtree(twelfth.path)
        return part(*arguments, **named)

    monkeypatch.setattr(task, at, rotating)
    verified = verify_run(run)
    assert verified.newest == "step-16"
    assert [row for row in bad(verified) if not row.startswith("best: ")] == []


def test_what_stands_in_a_damaged_file_steers_no_terminal(call: Call, run: Path) -> None:
    name = "output.bias"
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\u061c\u0085"
    save_changed(run, lambda tensors: tensors.update({evil: tensors.pop(name)}), "model.safetensors")
    code, out, err = call("verify", run)
    assert code == 4 and "<U+001B>]0;owned<U+0007>" in "".join(out.split()) and "<U+202E><U+061C>" in out
    assert [sign for sign in out + err if sign != "\n" and not sign.isprintable()] == []
    code, out, err = call("verify", run, "--json")
    assert code == 4 and out.isascii() and [sign for sign in out if sign != "\n" and not sign.isprintable()] == []
    assert any(evil[:9] in thing["text"] for thing in json.loads(out)["things"])


def test_a_vocabulary_in_a_manifest_is_never_read_at_any_size(
    workshop: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(run)
    checkpoint = folder.checkpoint("step-12")[0]
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    folder.save(12, {**contents, "tokenizer.extra": bytes(MAX_BYTES + 1)})
    read = Checkpoint.read

    def small(self: Checkpoint, file: str) -> bytes:
        assert file != "tokenizer.extra"
        return read(self, file)

    monkeypatch.setattr(Checkpoint, "read", small)
    assert "tokenizer.extra: is missing" in bad(verify_run(run))
    (run / "tokenizer.extra").write_bytes(b"x")
    assert "tokenizer.extra: differs from that in step-12" in bad(verify_run(run))
    assert list(RunState.load(folder, workshop.configure()).texts()) == [
        "tokenizer.json",
        "sentences.json",
        "profile.json",
    ]
    folder.save(12, {**contents, "tokenizer.json": bytes(MAX_BYTES + 1)})
    with pytest.raises(RunError, match="more than the"):
        RunState.load(folder, workshop.configure()).texts()


def test_a_log_that_is_no_file_is_a_row_and_a_torn_line_of_the_clock_a_note(call: Call, run: Path) -> None:
    path = run / "timings.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first[:20] + first + b"\n" + rest)
    code, out, err = call("verify", run)
    assert (code, err) == (0, "") and "1 of them truncated" in out
    for log in (path, run / "metrics.jsonl"):
        log.unlink()
        log.mkdir()
    code, out, err = call("verify", run)
    assert (code, err, out.count("cannot be read: not a regular file")) == (4, "", 2)


def test_folders_elsewhere_are_refused(call: Call, run: Path, tmp_path: Path) -> None:
    for name in ("data/train", "data"):
        (run / name).rename(tmp_path / "moved")
        (run / name).symlink_to(tmp_path / "moved")
        assert bad(verify_run(run)) == [f"data: {Path(name).name} is a symbolic link"]
        with pytest.raises(RunError, match=f"{Path(name).name} is a symbolic link"):
            open_prepared(run / "data")
        (run / name).unlink()
        (tmp_path / "moved").rename(run / name)
    (run / "checkpoints").rename(tmp_path / "moved")
    (run / "checkpoints").symlink_to(tmp_path / "moved")
    for arguments in (["verify", run], ["translate", run, "--checkpoint", "last", "-i", run / "config.yaml"]):
        code, out, err = call(*arguments)
        assert (code, out) == (4, "") and "checkpoints is not a folder of this run" in err
