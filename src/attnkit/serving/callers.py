"""Host names and origins of requests."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request

from attnkit.serving.limits import RefusedError


def check_host(request: Request, names: Collection[str]) -> None:
    """Raise ``RefusedError`` (421) for a ``Host`` that is not this service's.

    A page may point its own name at this machine (DNS rebinding): a browser then lets it read answers, but sends that
    name. Addresses cannot be pointed elsewhere: all are taken, as are ``localhost`` and ``names``. All browsers send
    a ``Host``, so a request without one is taken.
    """
    given = request.headers.get("host")
    if given is None or is_own_name(host_of(given), names):
        return
    shown = host_of(given)[:100]
    raise RefusedError(
        421, f"this service is not '{shown}'; --allowed-host {shown} would let it be called by this name"
    )


def check_origin(request: Request, origins: Collection[str]) -> None:
    """Raise ``RefusedError`` (403) for a form that a page of another origin sends.

    Browsers ask before they send JSON elsewhere (CORS), but not before a form.
    """
    origin = request.headers.get("origin")
    if origin is None or origin in origins or "*" in origins:
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower() or origin == "null":
        raise RefusedError(403, "pages of other origins may not send forms; --cors-origin names those that may")


def host_of(given: str) -> str:
    """Return the host of a ``Host`` header, without a port, in lower case.

    >>> host_of("LocalHost:8000"), host_of("[::1]:80"), host_of("::1")
    ('localhost', '::1', '::1')
    """
    given = given.strip().lower()
    if given.startswith("["):
        return given[1:].partition("]")[0]
    name, _, port = given.rpartition(":")
    return (name if name and ":" not in name and (port.isdigit() or not port) else given).rstrip(".")


def is_own_name(host: str, names: Collection[str]) -> bool:
    """Return whether a host is an address, ``localhost``, or one of ``names``."""
    if host == "localhost" or host in names or "*" in names:
        return True
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
