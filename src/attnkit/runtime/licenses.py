"""Licences of the installed dependencies, as their metadata names them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from attnkit.errors import SystemFailure

FOR_DEVELOPMENT = ("docs", "test")  #: extras that nothing needs at run time
UNKNOWN = "unknown"
_REQUIREMENT = re.compile(r"^\s*([\w.-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_MAX_NAME = 80  #: characters; a longer field holds the text of a licence, not its name


@dataclass(frozen=True)
class License:
    """An installed distribution and its licence.

    Attributes:
        package: Name of the distribution.
        version: Installed version.
        license: SPDX expression, or the name that the metadata gives, or ``unknown``.
        required_by: ``attnkit``, ``attnkit[EXTRA]``, or the first distribution that requires it.
    """

    package: str
    version: str
    license: str
    required_by: str

    def to_dict(self) -> dict[str, str]:
        """Return all fields."""
        return asdict(self)


def installed_licenses(name: str = "attnkit") -> list[License]:
    """Return the licences of everything installed that a distribution requires.

    Requirements of requirements are included, and so are extras, other than those for development. What is not
    installed is left out: a requirement for another system, or an extra that was not chosen.

    Raises:
        SystemFailure: The distribution has no metadata, as in a source tree that was never installed.
    """
    try:
        root = distribution(name)
    except PackageNotFoundError as error:
        help = "install it: pip install -e . in the source tree"
        raise SystemFailure(f"{name} is not installed: its requirements are unknown", help=help) from error
    found: dict[str, License] = {}
    # Breadth first, so that a direct requirement is not listed as that of another distribution.
    waiting = deque(_requirements(root, None))
    while waiting:
        wanted, extras, by = waiting.popleft()
        try:
            installed = distribution(wanted)
        except PackageNotFoundError:
            continue
        key = _normalized(wanted)
        if key not in found and key != _normalized(name):
            found[key] = License(installed.name, installed.version, license_of(installed), by)
            waiting.extend(_requirements(installed, extras))
    return [found[key] for key in sorted(found)]


def _requirements(
    installed: Distribution, extras: tuple[str, ...] | None
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield name, extras and requirer of each requirement.

    Without ``extras``, the requirements of all extras for users are included.
    """
    for text in installed.requires or ():
        parts = _REQUIREMENT.match(text)
        if parts is None:
            continue
        name, chosen, marker = parts[1], parts[2] or "", parts[3] or ""
        of = _EXTRA.findall(marker)
        used = [extra for extra in of if (extra not in FOR_DEVELOPMENT if extras is None else extra in extras)]
        if of and not used:
            continue
        by = f"{installed.name}[{used[0]}]" if used else installed.name
        yield name, tuple(part.strip() for part in chosen.split(",") if part.strip()), by


def license_of(installed: Distribution) -> str:
    """Return the licence that a distribution's metadata names.

    It is the SPDX expression if there is one (PEP 639), else a name that authors have chosen.
    """
    metadata = installed.metadata
    named = (metadata.get_all(field) or [""] for field in ("License-Expression", "License"))
    expression, value = (str(values[0]).strip() for values in named)
    if expression:
        return expression
    if value and value.upper() != "UNKNOWN" and "\n" not in value and len(value) <= _MAX_NAME:
        return value
    kinds = [value for value in metadata.get_all("Classifier") or () if value.startswith("License ::")]
    names = [kind.rpartition("::")[2].strip() for kind in kinds if kind != "License :: OSI Approved"]
    return ", ".join(names) or UNKNOWN


def _normalized(name: str) -> str:
    """Return the form in which names of distributions are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
