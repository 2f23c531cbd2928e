"""The version of the installed package."""

from __future__ import annotations


def installed_version() -> str:
    """Return the version, or ``0+unknown`` in a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow: a tenth of the time of a help page

    try:
        return version("attnkit")
    except PackageNotFoundError:
        return "0+unknown"
