"""``attnkit runs``: which runs it finds, their states, their order, and what differs between them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnkit.analysis.run_table import RunGroup, RunRow, _order, group_by_seed, list_runs, sort_groups, unusual
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import RunError, UsageError

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(workshop: Any, whole: Path, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three translators of which one is nested, a BERT, and folders that are no runs."""
    path = tmp_path_factory.mktemp("experiments")
    shutil.copytree(whole, path / "usual")
    shutil.copytree(whole, path / "again")
    faster = workshop.configure(
        evaluation={"every_steps": 2}, optimization={"learning_rate": 0.004}, limits={"max_steps": 6, "metric": "loss"}
    )
    workshop.train(faster, path / "deep" / "er" / "faster")
    shutil.copytree(pretrained, path / "bert")
    shutil.copytree(whole, path / ".hidden" / "run")
    (path / "empty").mkdir()
    (path / "link").symlink_to(whole)
    return path


def by_name(rows: Any) -> dict[str, Any]:
    return {row.path.name: row for row in rows}


def test_runs_are_found_at_any_depth_with_their_scores(folder: Path) -> None:
    rows = list_runs([folder])
    assert [row.path.relative_to(folder).as_posix() for row in rows] == ["again", "bert", "deep/er/faster", "usual"]
    found = by_name(rows)
    assert [row.task for row in rows] == ["translation", "mlm", "translation", "translation"]
    assert {row.state for row in rows} == {"finished"}
    for name, n in (("usual", 3), ("deep/er/faster", 3)):
        row = found[Path(name).name]
        assert row.metric == yaml.safe_load((folder / name / "config.yaml").read_text())["limits"]["metric"]
        log = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        scores = {f"step-{line['step']}": line[row.metric] for line in log if line["kind"] == "evaluation"}
        state = json.loads((folder / name / "averaged" / "state.json").read_text()) if name == "usual" else None
        scores |= {"averaged": state["metrics"][row.metric]} if state else {}
        assert len(scores) == n + bool(state) and row.best == scores[row.checkpoint]
    usual = found["usual"]
    assert (usual.step, found["faster"].step) == (12, 6)
    clock = json.loads((folder / "usual" / "timings.jsonl").read_text().splitlines()[-1])
    assert usual.minutes == clock["minutes"] > 0


def test_only_settings_that_differ_within_a_task_are_named(folder: Path) -> None:
    found = by_name(list_runs([folder]))
    assert found["bert"].differs == {}, "the only run of its task"
    differing = found["usual"].differs
    assert differing == found["again"].differs and differing.keys() == found["faster"].differs.keys()
    trees = [yaml.safe_load((found[name].path / "config.yaml").read_text()) for name in ("usual", "faster")]
    assert differing["optimization.learning_rate"] == trees[0]["optimization"]["learning_rate"] != 0.004
    assert found["faster"].differs["optimization.learning_rate"] == 0.004
    assert found["faster"].differs["limits.max_steps"] == 6 and "model.d_model" not in differing
    rows = list_runs([folder])
    shown = dict(zip((row.path.name for row in rows), unusual(rows), strict=True))
    assert shown["usual"] == shown["again"] == shown["bert"] == {}, "two of three runs have these values"
    assert shown["faster"] == dict(found["faster"].differs)


def test_orders(folder: Path) -> None:
    names = [row.path.name for row in list_runs([folder], "best")]
    assert names == ["bert", "again", "usual", "faster"], "by task, then by metric"
    ordered = [RunRow(Path(str(k)), "clm", metric="accuracy", best=k) for k in (1.0, 3.0, float("nan"), 2.0)]
    assert [row.best for row in sorted(ordered, key=lambda row: _order(row, "best"))[:3]] == [3.0, 2.0, 1.0]
    losses = [RunRow(Path(str(k)), "clm", metric="loss", best=k) for k in (1.0, 3.0, None, 2.0)]
    assert [row.best for row in sorted(losses, key=lambda row: _order(row, "best"))] == [1.0, 2.0, 3.0, None]
    assert [row.step for row in list_runs([folder], "step")][:2] == [12, 12]
    minutes = [row.minutes for row in list_runs([folder], "minutes")]
    assert minutes == sorted(minutes, reverse=True)
    with pytest.raises(UsageError, match="unknown order 'x'"):
        list_runs([folder], "x")  # type: ignore[arg-type]
    groups = [RunGroup([], "clm", "loss", mean, None, [], {}) for mean in (2.0, None, 1.0)]
    assert [group.mean for group in sort_groups(groups)] == [1.0, 2.0, None]


def test_states(whole: Path, tmp_path: Path) -> None:
    def state(name: str) -> tuple[str, str]:
        row = by_name(list_runs([tmp_path]))[name]
        return row.state, row.problem

    def with_status(name: str, **fields: object) -> Path:
        path = Path(shutil.copytree(whole, tmp_path / name))
        status = json.loads((path / "status.json").read_text())
        (path / "status.json").write_text(json.dumps({**status, **fields}))
        return path

    with_status("killed", state="running")
    with_status("failed", state="failed", reason="the loss is NaN")
    held = with_status("held", state="finished")
    damaged = with_status("damaged")
    for config in damaged.rglob("*/config.yaml"):  # of all checkpoints and the average
        config.write_text("task: [")
    with_status("imported", state="stopped", step=0, reason="imported from hub")
    (with_status("unsaid") / "status.json").write_text("{")
    moved = with_status("moved")
    (moved / "checkpoints").rename(tmp_path / ".elsewhere")
    (moved / "checkpoints").symlink_to(tmp_path / ".elsewhere")
    (with_status("odd") / "timings.jsonl").unlink()
    (tmp_path / "odd" / "timings.jsonl").mkdir()
    begun = tmp_path / "begun"
    begun.mkdir()
    with RunFolder(begun).lock(), RunFolder(held).lock():
        assert state("begun") == ("running", "") and state("held") == ("running", "")
    assert state("begun") == ("interrupted", ""), "killed before its first checkpoint"
    assert state("held") == ("finished", "")
    assert state("killed") == ("interrupted", "")
    assert state("failed") == ("failed", "the loss is NaN")
    assert state("imported") == ("imported", "")
    for name in ("unsaid", "moved", "odd"):
        what, _ = state(name)
        assert what == "damaged", name
    assert "checkpoints" in state("moved")[1]
    what, why = state("damaged")
    assert what == "damaged" and "config.yaml" in why


def test_the_command(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code, out, err = call("runs", "--sort", "best")
    assert (code, err) == (0, "") and all(len(line) <= 80 for line in out.splitlines())
    assert out.splitlines()[0].split() == ["run", "task", "state", "best", "step", "time"]
    rows = [line.split()[0] for line in out.splitlines()[1:] if not line.startswith(" ")]
    assert sorted(rows) == ["again", "bert", "deep/er/faster", "usual"] and rows[0] == "bert"
    assert "optimization.learning_rate=0.004" in out
    code, out, err = call("runs", "usual", "deep", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and [row["path"] for row in found] == ["deep/er/faster", "usual"]
    assert found[0]["differs"]["optimization.learning_rate"] == 0.004


def test_what_is_no_folder_of_runs(call: Call, folder: Path) -> None:
    code, out, err = call("runs", folder / "nowhere")
    assert (code, out) == (4, "") and "no such folder" in err and len(err.splitlines()) <= 3
    code, out, err = call("runs", folder / "empty")
    assert (code, out) == (4, "") and "no run folder in" in err
    with pytest.raises(RunError, match="no run folder"):
        list_runs([folder / "empty"])
    twice = list_runs([folder, folder / "deep" / ".." / "usual", folder / "bert"])
    assert len(twice) == 4, "a run with two spellings is one run"


def test_runs_of_several_seeds_are_one_row(call: Call, workshop: Any, tmp_path: Path) -> None:
    for name, changes in {
        "two": {"seed": 2},
        "three": {"seed": 3},
        "other": {"seed": 2, "model__dropout": 0.3},
    }.items():
        workshop.train(workshop.configure(limits__max_steps=1, **changes), tmp_path / name)
    rows = [replace(row, best=best) for row, best in zip(list_runs([tmp_path]), (9.0, 4.0, 2.0), strict=True)]
    assert [row.path.name for row in rows] == ["other", "three", "two"]
    other, both = group_by_seed(rows)
    assert [path.name for path in both.paths] == ["two", "three"] and both.scores == [2.0, 4.0]
    assert (both.mean, both.deviation) == (3.0, pytest.approx(2**0.5))
    assert (other.mean, other.deviation, other.differs) == (9.0, None, {"model.dropout": 0.3})
    assert "seed" not in both.differs
    assert group_by_seed([replace(rows[0], state="running")]) == [], "its score is not final"
    again = group_by_seed([*rows, replace(rows[1], best=100.0), replace(rows[2], path=Path("copy"))])
    assert again == [other, both], "a seed counts once"
    unknown = group_by_seed([rows[1], replace(rows[2], best=float("nan"))])[0]
    assert (unknown.scores, unknown.deviation) == ([4.0], None)
    nothing = group_by_seed([replace(rows[0], best=None)])[0]
    assert (nothing.mean, nothing.scores) == (None, [])
    code, out, _ = call("runs", tmp_path, "--seeds", "--json")
    found = json.loads(out)
    assert code == 0 and [len(one["paths"]) for one in found] == [1, 2]
    code, out, _ = call("runs", tmp_path, "--seeds")
    assert code == 0 and out.splitlines()[0].split()[:4] == ["first", "run", "runs", "score"]
    assert "model.dropout=0.3" in out
