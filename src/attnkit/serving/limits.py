"""Limits of a service, and the answers to requests that exceed them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request, and all waiting requests together, may ask for."""

    max_body: int = 1 << 20  #: bytes of a request's body
    max_bodies: int = 1 << 28  #: bytes of the bodies of all requests that are read or answered
    max_texts: int = 512  #: texts of a request, and lines of all its texts
    max_characters: int = 100_000  #: characters of all texts of a request
    max_line: int = 10_000  #: characters of a line
    max_answer: int = 1 << 22  #: characters of an answer that repeats the text for each mask
    max_beam_size: int = 16
    max_new_tokens: int = 1024
    max_streams: int = 8  #: texts that are generated as streams at a time
    max_waiting: int = 4096  #: lines that wait for a model
    max_waiting_characters: int = 1_000_000  #: characters that wait for a model
    max_wait: float = 10.0  #: seconds until a model begins with a request, and by its recent speed until a line is done
    batch_lines: int = 64  #: lines that a model takes at a time on a CPU: more cost no less each
    batch_characters: int = 16_384  #: characters that it takes at a time, but at least a line
    seconds: float = 60.0  #: until a request is answered
    read_seconds: float = 10.0  #: until a request has arrived
    connections: int = 2000


class RefusedError(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def busy(seconds: float) -> RefusedError:
    """Return the answer to a request that finds the queue full."""
    wait = str(max(1, round(seconds)))
    return RefusedError(503, f"too much text is waiting; try again in {wait} s", {"Retry-After": wait})
