"""Origins of settings: kept in the run, shown by reports, harmless if hostile."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.analysis.report_page import report_page
from attnkit.analysis.run_report import ReportRequest, build_report
from attnkit.analysis.run_table import list_runs
from attnkit.checkpoints.logs import MAX_ORIGINS_BYTES, origins_text, read_origins

Call = Callable[..., tuple[int, str, str]]
TINY = "{d_model: 16, n_heads: 2, encoder_layers: 1, decoder_layers: 1, d_ff: 16}"


@pytest.fixture(scope="module")
def command(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """A training command with settings from a file, from --set and from flags."""
    file = tmp_path_factory.mktemp("origins") / "usual.yaml"
    file.write_text(f"model: {TINY}\nvocabulary: {{kind: word, size: 16}}\noptimization: {{warmup_steps: 3}}\n")
    files = ["--src", workshop.file("train.src"), "--tgt", workshop.file("train.tgt")]
    return [
        "train",
        *files,
        "--config",
        file,
        "--set",
        "optimization.learning_rate=0.004",
        "--preset",
        "tiny",
        "--quiet",
    ]


def differing(*runs: Path) -> list[dict[str, str] | None]:
    rows = {row.path: row.origins for row in list_runs(runs)}
    return [None if (found := rows[run]) is None else dict(found) for run in runs]


def test_a_run_keeps_the_origins_of_its_settings(command: list[Any], call: Call, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    assert call(*command, "--max-steps", "2", "-o", run)[0] == 0
    stored = json.loads((run / "origins.json").read_text())
    planned = json.loads(call(*command, "--max-steps", "2", "-o", run, "--dry-run", "--json")[1])["configuration"]
    for key, setting in planned.items():
        assert stored.get(key, "default") == setting["origin"], key
    assert stored["limits.max_steps"] == "flag" and stored["optimization.warmup_steps"] == str(command[6])
    assert stored["optimization.learning_rate"] == "--set optimization.learning_rate"
    assert stored["optimization.batch_tokens"] == "preset tiny" and "checkpoints.keep_best" not in stored
    shorter = [word for word in command if word not in ("--set", "optimization.learning_rate=0.004")]
    assert call(*shorter, "--max-steps", "2", "--set", "model.d_ff=24", "-o", other)[0] == 0
    first, second = differing(run, other)
    assert first == {"optimization.learning_rate": "--set optimization.learning_rate", "model.d_ff": str(command[6])}
    assert second == {"optimization.learning_rate": "preset tiny", "model.d_ff": "--set model.d_ff"}
    page = report_page(build_report([run, other], ReportRequest()))
    assert '24</bdi> <span class="quiet"><bdi>--set model.d_ff</bdi></span></td>' in page
    tree = json.loads(call("report", run, other, "--json")[1])
    assert [one["row"]["origins"] for one in tree["runs"]] == [first, second]
    # A run of an earlier version.
    (other / "origins.json").unlink()
    assert differing(run, other) == [first, None]
    assert "24</bdi></td>" in report_page(build_report([run, other], ReportRequest()))


def test_a_resumed_run_keeps_the_origins_of_unchanged_values(command: list[Any], call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    automatic = [word for word in command if word not in ("--preset", "tiny")]
    assert call(*automatic, "--set", "limits.max_steps=2", "-o", run)[0] == 0
    before = json.loads((run / "origins.json").read_text())
    assert before["preset"] == "number of lines"
    assert call(*automatic, "--max-steps", "3", "-o", run)[0] == 0
    after = json.loads((run / "origins.json").read_text())
    assert (before.pop("limits.max_steps"), after.pop("limits.max_steps")) == ("--set limits.max_steps", "flag")
    assert before == after


def test_a_run_without_a_checkpoint_yet_keeps_them(command: list[Any], call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    automatic = [*(word for word in command if word not in ("--preset", "tiny")), "--max-steps", "2", "-o", run]
    assert call(*automatic)[0] == 0
    before = (run / "origins.json").read_bytes()

    def restart(*more: str) -> bytes:
        """Run the command again, as after a kill before the first checkpoint."""
        for entry in run.iterdir():
            if entry.name not in ("config.yaml", "origins.json", "data", "lock"):
                (shutil.rmtree if entry.is_dir() else os.unlink)(entry)
        assert call(*automatic, *more)[0] == 0
        return (run / "origins.json").read_bytes()

    assert restart() == before
    assert json.loads(restart("--set", "model.d_ff=24"))["model.d_ff"] == "--set model.d_ff"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_library_keeps_them_too(workshop: Any, tmp_path: Path) -> None:
    tiny = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 16}
    settings = {
        "vocabulary.kind": "word",
        "vocabulary.size": 16,
        **{f"model.{key}": value for key, value in tiny.items()},
    }
    files = workshop.file("train.src"), workshop.file("train.tgt")
    attnkit.train(*files, tmp_path / "run", max_steps=1, settings=settings, quiet=True)
    found = read_origins(tmp_path / "run")
    assert found is not None and found["model.d_ff"] == found["limits.max_steps"] == "flag"


def test_a_hostile_file_is_as_good_as_none(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    path = run / "origins.json"
    for content in (
        b"",
        b"[]",
        b'{"a": 1}',
        b'{"a": "b", "a": "c"}',
        b"{" * 10_000,
        b"\xff",
        b" " * MAX_ORIGINS_BYTES + b"{}",
    ):
        path.write_bytes(content)
        assert read_origins(run) is None, content[:20]
    path.unlink()
    os.mkfifo(path)
    assert read_origins(run) is None
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(origins_text({"seed": "flag"}))
    path.symlink_to(tmp_path / "elsewhere")
    assert read_origins(run) is None
    path.unlink()
    path.write_bytes(b'{"seed": "\\ud800 x"}')
    assert read_origins(run) == {"seed": "? x"}
    assert origins_text({"seed": "a\udcff.yaml"}) == b'{\n "seed": "a\\\\udcff.yaml"\n}\n'


def test_origins_are_text_on_the_page(workshop: Any, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    workshop.train(workshop.configure(limits__max_steps=2, seed=9), tmp_path / "other")
    (run / "origins.json").write_text(json.dumps({"seed": "<script>\u202ealert(1)"}))
    page = report_page(build_report([run, tmp_path / "other"], ReportRequest()))
    assert "&lt;script&gt;" in page and "<script" not in page and "\u202e" not in page
