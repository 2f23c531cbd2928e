"""Routes of fixed paths: an ASGI application without middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """Calls the handler of a method and path; a slash at the end is ignored."""

    def __init__(
        self,
        handlers: Mapping[tuple[str, str], Handler],
        unknown: Callable[[list[str]], Response],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Take what answers.

        Args:
            handlers: (method, path) -> handler; those of GET answer HEAD too.
            unknown: makes the answer for other paths, or other methods of a path that has those of the list.
            close: is called when the server ends.
        """
        self.handlers = dict(handlers)
        self.handlers |= {("HEAD", path): handler for (method, path), handler in handlers.items() if method == "GET"}
        self._unknown, self._close = unknown, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the start and end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path = scope["path"].rstrip("/") or "/"
        handler = self.handlers.get((scope["method"], path))
        if handler is None:
            response = self._unknown(sorted(method for method, known in self.handlers if known == path))
        else:
            response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})
