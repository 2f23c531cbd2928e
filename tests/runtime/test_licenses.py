"""Licences of installed dependencies, read from metadata of distributions made here, and by the command."""

from __future__ import annotations

import json
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from attnkit.cli.main import main
from attnkit.errors import SystemFailure
from attnkit.runtime.licenses import License, installed_licenses

PACKAGES = {
    "Root-Kit": ("1.0", ["License: ignored"], ["first>=1", "absent", "Second[fast] (>2)", "plots; extra == 'draw'"]),
    "first": ("1.1", ["License-Expression: MIT AND BSD-3-Clause", "License: MIT"], ["third; python_version>'3'"]),
    "second": ("2.5", ["Classifier: License :: OSI Approved :: BSD License", "Classifier: Topic :: X"], []),
    "third": ("3.0", ["License: UNKNOWN", "Classifier: License :: OSI Approved :: ISC License (ISCL)"], ["root.kit"]),
    "plots": ("4.0", ["License: A license", " of many lines"], ["first", "never; extra == 'all'"]),
    "never": ("5.0", [], []),
    "quick": ("6.0", ["License: Zlib"], []),
    "sphinxlike": ("7.0", ["License: MIT"], []),
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make distributions that only these tests see."""
    needs = {name: list(requires) for name, (_, _, requires) in PACKAGES.items()}
    needs["second"] += ['quick; extra == "fast"', 'never; extra == "slow"']
    needs["Root-Kit"] += ["sphinxlike; extra == 'docs'"]
    for name, (version, fields, _) in PACKAGES.items():
        folder = tmp_path / f"{name.lower().replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *fields]
        lines += [f"Requires-Dist: {need}" for need in needs[name]]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


@pytest.mark.usefixtures("installed")
def test_requirements_of_requirements_are_listed_once_with_their_licences() -> None:
    assert installed_licenses("root_kit") == [
        License("first", "1.1", "MIT AND BSD-3-Clause", "Root-Kit"),
        License("plots", "4.0", "unknown", "Root-Kit[draw]"),
        License("quick", "6.0", "Zlib", "second[fast]"),
        License("second", "2.5", "BSD License", "Root-Kit"),
        License("third", "3.0", "ISC License (ISCL)", "first"),
    ]


@pytest.mark.usefixtures("installed")
def test_without_metadata_the_error_says_what_to_do() -> None:
    with pytest.raises(SystemFailure, match="not-there is not installed: its requirements are unknown") as raised:
        installed_licenses("not-there")
    assert "pip install" in str(raised.value.help)


def test_the_command_lists_what_is_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnkit", "licenses", "--json"])
    with pytest.raises(SystemExit):
        main()
    found = {one["package"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["numpy"] == {
        "package": "numpy",
        "version": distribution("numpy").version,
        "license": distribution("numpy").metadata["License-Expression"],
        "required_by": "attnkit",
    }
    assert "filelock" in found and "pytest" not in found and "attnkit" not in found
    monkeypatch.setattr(sys, "argv", ["attnkit", "licenses"])
    with pytest.raises(SystemExit):
        main()
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["package", "version", "required", "by", "licence"] and len(rows) == len(found) + 1
