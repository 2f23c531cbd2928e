"""What a release needs: one version everywhere, archives that build the same bytes twice, workflows and forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PROJECT = (ROOT / "pyproject.toml").read_text()


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def build(folder: Path) -> dict[str, bytes]:
    """Build both archives in this environment; nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_archives_are_the_same_bytes_twice(tmp_path: Path) -> None:
    first = build(tmp_path / "first")
    assert first == build(tmp_path / "second")
    version = re.search(r'^version = "(.+)"$', PROJECT, re.MULTILINE)
    assert version and sorted(first) == [f"attnkit-{version[1]}-py3-none-any.whl", f"attnkit-{version[1]}.tar.gz"]
    assert max(map(len, first.values())) < 3_200_000
    assert len(first[f"attnkit-{version[1]}-py3-none-any.whl"]) < 1_600_000
    with tarfile.open(tmp_path / "first" / f"attnkit-{version[1]}.tar.gz") as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt", "pyproject.toml", ".ci/run"}
    assert (
        "hatch_build.py" in names and needed | {"src/attnkit/py.typed", "tests/conftest.py", "docs/index.md"} <= names
    )
    assert not any(re.search(r"__pycache__|\.venv|\.work/|-run/", name) for name in names)


def test_the_wheel_lists_its_direct_dependencies(tmp_path: Path) -> None:
    """The bill of materials has what the metadata requires, extras for users as optional, and nothing else."""
    build(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        read = {re.sub(r"^[^/]+dist-info/", "", name): archive.read(name).decode() for name in archive.namelist()}
    assert [name for name in read if name.startswith("sboms/")] == ["sboms/attnkit.cdx.json"]
    bill, metadata = json.loads(read["sboms/attnkit.cdx.json"]), message_from_string(read["METADATA"])
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    root = bill["metadata"]["component"]
    assert root["purl"] == f"pkg:pypi/attnkit@{metadata['Version']}" == root["bom-ref"]
    assert root["licenses"] == [{"expression": metadata["License-Expression"]}]
    wanted: dict[str, str] = {}
    for line in metadata.get_all("Requires-Dist", []):
        if not re.search(r"extra == '(docs|test)'", line):
            name = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line)[0]).lower()
            wanted.setdefault(f"pkg:pypi/{name}", "optional" if "extra ==" in line else "required")
    assert {part["purl"]: part["scope"] for part in bill["components"]} == wanted and len(wanted) > 15
    assert bill["dependencies"][0] == {"ref": root["bom-ref"], "dependsOn": sorted(wanted)}
    assert not re.search(r"timestamp|serialNumber|/tmp|20\d\d-", read["sboms/attnkit.cdx.json"])


def test_the_citation_names_this_version() -> None:
    cited = load(ROOT / "CITATION.cff")
    assert f'version = "{cited["version"]}"' in PROJECT and f'license = "{cited["license"]}"' in PROJECT
    assert {"cff-version", "message", "title", "authors", "type"} <= cited.keys()


@pytest.mark.parametrize("path", sorted(GITHUB.glob("workflows/*.yml")), ids=lambda path: path.name)
def test_workflows_run_what_is_there_with_few_rights(path: Path) -> None:
    found = load(path)
    assert found["permissions"] == {"contents": "read"}
    makefile = (ROOT / "Makefile").read_text()
    for job in found["jobs"].values():
        assert job.get("permissions", {"contents": "read"}) in ({"contents": "read"}, {"id-token": "write"})
        for step in job["steps"]:
            command = step.get("run", "")
            for target in re.findall(r"\bmake (\w+)", command):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            for script in re.findall(r"^\.ci/\w+", command):
                assert (ROOT / script).stat().st_mode & 0o100


def test_every_supported_python_is_tested() -> None:
    bounds = re.search(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"$', PROJECT, re.MULTILINE)
    assert bounds is not None
    versions = load(GITHUB / "workflows" / "checks.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(int(bounds[1]), int(bounds[2]))]


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_forms_ask_for_what_an_answer_needs(name: str) -> None:
    form = load(GITHUB / "ISSUE_TEMPLATE" / name)
    assert form["name"] and form["description"]
    parts = [part["id"] for part in form["body"]]
    assert len(set(parts)) == len(parts) and any(part.get("validations", {}).get("required") for part in form["body"])
