"""``attnkit verify``: what it says of whole runs, of damaged ones, and of what is no run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.analysis import verify as task
from attnkit.analysis.verify import VerificationReport, verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli.verify import as_text
from attnkit.data.prepared_dir import read_index
from attnkit.errors import RunError
from attnkit.tasks.translation.data import open_prepared

sys.path.insert(0, str(Path(__file__).parent))
from verified import bad, save_changed

Call = Callable[..., tuple[int, str, str]]


def flip(path: Path, place: int = -3) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_whole_run_is_good(call: Call, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    code, out, err = call("verify", run)
    assert (code, err) == (0, "")
    rows = [line.split(maxsplit=2) for line in out.splitlines() if line.startswith(("good ", "BAD "))]
    assert [row[:2] for row in rows] == [
        ["good", name]
        for name in (
            *("step-12", "step-8", "step-4", "averaged", "best", "metrics.jsonl", "timings.jsonl", "status.json"),
            *("config.yaml", "profile.json", "sentences.json", "tokenizer.json", "data"),
        )
    ]
    assert "all 13 parts are good; the newest good checkpoint is step-12" in " ".join(out.split())
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    code, out, err = call("verify", run, run, "--json")
    assert (code, err, out.count("\n")) == (0, "", 2)
    found = json.loads(out.splitlines()[1])
    assert (found["good"], found["newest"], found["in_use"], len(found["things"])) == (True, "step-12", None, 13)


DAMAGE: dict[str, tuple[str, str]] = {
    "a checkpoint": ("checkpoints/step-12/model.safetensors", "step-12: model.safetensors of checkpoint step-12"),
    "a manifest": ("checkpoints/step-4/manifest.json", "step-4: manifest.json of checkpoint step-4"),
    "the average": ("averaged/model.safetensors", "averaged: model.safetensors of checkpoint averaged"),
    "a line of the log": ("metrics.jsonl", "metrics.jsonl: line 7 damaged"),
    "a line of the clock's log": ("timings.jsonl", "timings.jsonl: line 3 damaged"),
    "the copy of the vocabulary": ("tokenizer.json", "tokenizer.json: differs from that in step-12"),
    "the copy of the configuration": ("config.yaml", "config.yaml: "),
    "the status": ("status.json", "status.json: cannot be read"),
    "the name of the best": ("best", "best: the file naming the best checkpoint is damaged"),
    "encoded text": ("data/train/src/ids.bin", "data: train/src/ids.bin is damaged: its checksum does not match"),
    "text to validate on": ("data/valid.src.txt", "data: valid.src.txt is damaged: its checksum does not match"),
    "the vocabulary of the encoded text": (
        "data/tokenizer.json",
        "data: tokenizer.json is damaged: its checksum does not match",
    ),
    "the index of the encoded text": ("data/prepared.json", "data: the prepared text is damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_flipped_bit_is_told(run: Path, what: str) -> None:
    file, said = DAMAGE[what]
    flip(run / file, {"status.json": 1, "best": 2}.get(file, -3))
    found = bad(verify_run(run))
    assert found[0].startswith(said)
    # The best is the average or one of the checkpoints: when that is damaged, so is what is named.
    assert all(other.startswith("best: points to ") for other in found[1:])


MISSING = ["checkpoints/step-8/optimizer.safetensors", "metrics.jsonl", "status.json", "config.yaml", "tokenizer.json"]


@pytest.mark.parametrize("file", [*MISSING, "data/prepared.json", "data/valid/tgt/offsets.bin", "checkpoints/step-12"])
def test_a_missing_file_is_told(run: Path, file: str) -> None:
    shutil.rmtree(run / file) if (run / file).is_dir() else (run / file).unlink()
    assert bad(verify_run(run))


def test_every_damaged_file_has_a_row_of_at_most_eighty_columns(call: Call, run: Path) -> None:
    for file in ("state.json", "model.safetensors", "optimizer.safetensors"):
        flip(run / "checkpoints/step-12" / file)
    (run / "best").write_text("step-12\n")
    code, out, err = call("verify", run)
    assert (code, err) == (4, "")
    assert out.count("BAD ") == 4
    assert max(len(line) for line in out.splitlines()[:-2]) <= 80
    assert "BAD   step-12         state.json of checkpoint step-12 cannot be used: its" in out
    assert "points to step-12, which is damaged" in out
    assert "4 of 15 parts damaged; the newest good checkpoint is step-8" in " ".join(out.split())
    assert json.loads(call("verify", run, "--json")[1])["good"] is False


def test_numbers_that_are_not_finite_and_weights_that_do_not_fit_are_told(run: Path) -> None:
    name = "output.bias"
    save_changed(run, lambda tensors: tensors[name].fill_(float("nan")), "model.safetensors")
    assert bad(verify_run(run))[0] == f"step-12: the weights '{name}' are not finite"
    save_changed(run, lambda tensors: tensors[name].zero_(), "model.safetensors")
    assert [found for found in bad(verify_run(run)) if not found.startswith("best")] == []
    save_changed(run, lambda tensors: tensors[f"exp_avg.{name}"].fill_(float("inf")), "optimizer.safetensors")
    assert f"'exp_avg.{name}' is not finite" in bad(verify_run(run))[0]
    save_changed(run, lambda tensors: tensors.pop(f"exp_avg.{name}"), "optimizer.safetensors")
    assert "step-12: the weights do not fit" in bad(verify_run(run))[0]


def test_a_safetensors_header_that_does_not_fit_is_told(run: Path) -> None:
    folder = RunFolder(run)
    checkpoint = folder.checkpoint("step-12")[0]
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    raw = bytearray(contents["model.safetensors"])
    raw[0] ^= 8
    folder.save(12, {**contents, "model.safetensors": bytes(raw)})
    assert bad(verify_run(run))[0].startswith("step-12: the weights do not fit the configuration: ")


def test_the_best_that_is_not_the_best_is_told(run: Path) -> None:
    counters = json.loads((run / "checkpoints/step-12/state.json").read_bytes())["counters"]
    other = next(step for step in (4, 8, 12) if step != counters["best_step"])
    (run / "best").write_text(f"step-{other}\n")
    assert bad(verify_run(run)) == [f"best: points to step-{other}, but step-{counters['best_step']} was the best"]
    (run / "best").write_text("step-7\n")
    assert bad(verify_run(run)) == ["best: points to step-7, which is missing"]


def test_limits_may_differ_in_the_copy_of_the_configuration_and_nothing_else(run: Path) -> None:
    text = (run / "config.yaml").read_text()
    for old, new, said in (("steps: 12", "steps: 13", []), ("d_ff: 32", "d_ff: 33", ["model.d_ff: 32 -> 33"])):
        assert text.count(old) == 1
        (run / "config.yaml").write_text(text.replace(old, new))
        found = bad(verify_run(run))
        assert len(found) == len(said) and all(words in row for row, words in zip(found, said, strict=True))


def test_a_torn_end_that_no_checkpoint_knows_of_is_no_damage(run: Path) -> None:
    with (run / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"kind":"st')
    found = verify_run(run)
    assert bad(found) == []
    assert "the truncated last line is removed" in next(
        thing.text for thing in found.things if thing.name == "metrics.jsonl"
    )
    (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes().split(b"\n", 1)[0] + b"\n")
    said = bad(verify_run(run))[0]
    assert said.startswith("metrics.jsonl: is ") and said.endswith(" bytes shorter than recorded")


def test_a_run_in_use_is_checked_as_far_as_it_is_complete(
    call: Call, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is rotated away, one is replaced and one comes, between their being listed and being read."""
    folder = RunFolder(run)
    eighth = folder.checkpoint("step-8")[0]
    contents = {name: eighth.read(name) for name in eighth.manifest.files}
    opened = task.open_checkpoint

    def rotating(path: Path, name: str) -> Any:
        if name == "step-4" and path.exists():
            shutil.rmtree(path)
        if name == "step-8" and not (run / "replaced").exists():
            shutil.rmtree(path)
            (run / "replaced").mkdir()
            try:
                return opened(path, name)
            finally:
                folder.save(8, contents)
        if name == "averaged":
            folder.save(16, contents)
            folder.set_best("step-16")
        return opened(path, name)

    monkeypatch.setattr(task, "open_checkpoint", rotating)
    with folder.lock():
        code, out, err = call("verify", run)
    assert code == 0
    assert err.startswith(f"{run} is in use by process {os.getpid()} on ") and "only complete files are checked" in err
    assert "good  step-4          was deleted by rotation during verification" in out
    assert "good  step-8          7 files" in out
    assert "good  best            points to step-16" in out
    assert call("verify", run)[2] == ""


def test_looking_lets_the_lock_go(run: Path) -> None:
    assert verify_run(run).user is None
    with RunFolder(run).lock():
        assert (verify_run(run).user or "").startswith(f"process {os.getpid()} on ")


def test_a_run_without_a_checkpoint_is_good_unless_it_has_lost_them(call: Call, run: Path, tmp_path: Path) -> None:
    RunFolder(tmp_path / "new").lock().release()
    code, out, err = call("verify", tmp_path / "new")
    assert (code, err) == (0, "") and "none saved yet" in out and "no good checkpoint" in out
    shutil.rmtree(run / "checkpoints")
    code, out, err = call("verify", run)
    assert (code, err) == (4, "") and "BAD   checkpoints    all missing" in out


def test_what_is_no_run_is_refused_before_anything_is_looked_at(call: Call, run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    (tmp_path / "text").write_text("text")
    for path, said in (
        (tmp_path / "missing", "no such run folder"),
        (tmp_path / "text", "is a file, not a run folder"),
        (tmp_path / "empty", "is not a run folder"),
        (tmp_path / "other", "is not a run folder"),
        (run / "checkpoints/step-12", "is a checkpoint, not a run folder"),
    ):
        code, out, err = call("verify", run, path)
        assert (code, out) == (4, "")
        assert said in err and err.startswith("error: ") and len(err.splitlines()) <= 3
    code, out, err = call("verify")
    assert (code, out) == (2, "")


def test_the_encoded_text_is_covered_file_by_file(whole: Path) -> None:
    data = whole / "data"
    files = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert set(read_index(data)["contents"]) == files - {"prepared.json"}


def test_opening_the_encoded_text_checks_what_is_read_whole(run: Path) -> None:
    path = run / "data/valid.tgt.txt"
    open_prepared(path.parent)
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(RunError, match=r"valid\.tgt\.txt is damaged: its checksum does not match"):
        open_prepared(path.parent)


def test_long_names_and_words_stay_within_eighty_columns() -> None:
    things = [task.CheckResult("averaged", False, "word " * 60), task.CheckResult("best", True, "x" * 300)]
    lines = as_text(VerificationReport(Path("run"), things, None, None)).splitlines()
    assert max(map(len, lines)) <= 80
