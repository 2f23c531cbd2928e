"""Build hook of the wheel: a bill of materials (SBOM) of attnkit and its direct dependencies, in CycloneDX JSON.

It is written to ``.dist-info/sboms/`` (PEP 770). It follows from ``pyproject.toml`` alone and has no time of building:
the same sources give the same bytes. Versions are those that the requirements allow; which ones are installed is what
``attnkit licenses`` prints.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOR_DEVELOPMENT = ("docs", "test")
FILE = "attnkit.cdx.json"


class SbomHook(BuildHookInterface):
    """Adds the bill of materials to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file outside the sources and name it to the builder, which copies it into the archive."""
        core = self.metadata.core
        text = bill(
            core.name, self.metadata.version, core.license_expression, core.dependencies, core.optional_dependencies
        )
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / FILE
        path.write_text(text, encoding="utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file, which the archive has by now, and compress the archive as well as deflate can."""
        self._folder.cleanup()
        with zipfile.ZipFile(artifact_path) as archive:
            contents = [(info, archive.read(info)) for info in archive.infolist()]
        with zipfile.ZipFile(artifact_path, "w", zipfile.ZIP_DEFLATED) as archive:
            for info, data in contents:
                archive.writestr(info, data, compresslevel=9)


def bill(name: str, version: str, license: str, required: list[str], extras: dict[str, list[str]]) -> str:
    """Return the bill of materials: what is required, and what the extras for users add, as optional."""
    root = f"pkg:pypi/{canonicalize_name(name)}@{version}"
    components = {}
    for extra, texts in [(None, required), *((key, extras[key]) for key in sorted(extras))]:
        for text in texts if extra not in FOR_DEVELOPMENT else ():
            component = _component(text, extra)
            components.setdefault(component["bom-ref"], component)
    names = sorted(components)
    tree = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": name,
                "version": version,
                "licenses": [{"expression": license}],
                "purl": root,
            }
        },
        "components": [components[key] for key in names],
        "dependencies": [{"ref": root, "dependsOn": names}, *({"ref": key} for key in names)],
    }
    return json.dumps(tree, indent=1) + "\n"


def _component(text: str, extra: str | None) -> dict[str, Any]:
    """Return a requirement as a component: without a version, since the requirement allows several."""
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    properties = [("attnkit:requirement", text), *([("attnkit:extra", extra)] if extra else [])]
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "scope": "optional" if extra else "required",
        "purl": f"pkg:pypi/{name}",
        "properties": [{"name": key, "value": value} for key, value in properties],
    }
