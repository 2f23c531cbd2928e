"""The wheel: what it holds, and that what it holds is enough to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "attnkit"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel by hatchling in this environment: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    call = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*call, "-w", str(folder), str(ROOT)], check=True, timeout=120)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_wheel_holds_every_module_and_nothing_else(unpacked: Path) -> None:
    wanted = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")} | {"py.typed"}
    wanted |= {str(path.relative_to(SOURCE)) for path in (SOURCE / "text" / "toy").glob("*.txt")}
    wanted |= {str(path.relative_to(SOURCE)) for kind in ("html", "css", "js") for path in SOURCE.rglob(f"*.{kind}")}
    found = {str(p.relative_to(unpacked / "attnkit")) for p in (unpacked / "attnkit").rglob("*") if p.is_file()}
    assert found == wanted
    assert {path.name.split("-")[0] for path in unpacked.iterdir()} == {"attnkit"}


def test_every_folder_is_a_package() -> None:
    """A folder without ``__init__.py`` would import from a source tree and be easy to lose elsewhere."""
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_metadata(unpacked: Path) -> None:
    (info,) = unpacked.glob("*.dist-info")
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "attnkit = attnkit.cli.main:main" in (info / "entry_points.txt").read_text()
    metadata = message_from_string((info / "METADATA").read_text())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.14,>=3.10"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {requirement.split(">")[0].split("<")[0].lower() for requirement in needed}
    core = {"torch", "typer", "tokenizers", "rich", "pyyaml", "safetensors", "sacrebleu", "pydantic", "numpy", "numba"}
    assert names == core


def test_the_wheel_alone_runs(unpacked: Path, tmp_path: Path) -> None:
    """Import and help come from the unpacked wheel, away from the source tree, every command's module included."""
    code = (
        "import sys, attnkit\n"
        "from attnkit.cli.main import COMMANDS, GROUPS, import_command\n"
        "tables = [COMMANDS, *GROUPS.values()]\n"
        "names = [module for table in tables for module, _ in table.values()]\n"
        "for name in names: import_command(name)\n"
        "assert 'torch' not in sys.modules\n"
        "print(attnkit.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    line = [sys.executable, "-c", code]
    done = subprocess.run(
        line, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert Path(done.stdout.strip()).is_relative_to(unpacked)


@pytest.mark.slow
def test_an_installed_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, from the wheel and its declared requirements: needs a package index."""
    venv.create(tmp_path / "env", with_pip=True)
    commands = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def call(program: str, *arguments: str) -> str:
        line = [str(commands / program), *arguments]
        return subprocess.run(line, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    call("pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel))
    assert call("pip", "check").startswith("No broken requirements")
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version and call("attnkit", "--version") == f"attnkit {version[1]}\n"
    shown = call("attnkit", "demo")
    scores = [float(score) for score in re.findall(r"(?:unseen sentences|corpus lexicon): ([0-9.]+)", shown)]
    assert len(scores) == 2 and scores[0] >= 90 and scores[1] <= 50, shown
    assert "étudiant" in shown and "assis sur la natte" in shown, shown
    test = (tmp_path / "demo-run" / "corpus" / "test.en").read_bytes()
    call("attnkit", "translate", "demo-run/run", "-i", "demo-run/corpus/test.en", "-o", "out.fr")
    assert (tmp_path / "out.fr").read_bytes().count(b"\n") == test.count(b"\n") == 1000
    assert call("attnkit", "score-bleu", "out.fr", "demo-run/corpus/test.fr").startswith("BLEU|nrefs:1")
