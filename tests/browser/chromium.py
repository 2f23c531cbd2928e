"""Chromium, driven over a pipe by its own protocol: no further package is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = ("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage")
FLAGS += ("--hide-scrollbars", "--disable-background-networking", "--disable-extensions", "--force-color-profile=srgb")
PATIENCE = 60.0  # seconds


class Browser:
    """One Chromium with one page; ``events`` holds what it has told since the last ``open``."""

    def __init__(self, program: str, profile: Path) -> None:
        (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()
        # The protocol takes descriptors 3 and 4; high numbers first, for the pipes may have these themselves.
        high_in, high_out = (fcntl.fcntl(each, fcntl.F_DUPFD, 20) for each in (theirs_in, theirs_out))

        def place() -> None:
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        line = [program, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(line, stdout=quiet, stderr=quiet, pass_fds=(3, 4), preexec_fn=place)
        for each in (theirs_in, theirs_out, high_in, high_out):
            os.close(each)
        self._in, self._out, self._number, self._rest = ours_in, ours_out, 0, b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)  # else events of focus may come late, or never

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something and return the answer; what is told meanwhile is kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return dict(found["result"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0], "Chromium says nothing"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium has ended"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        found = dict(json.loads(message))
        if "id" not in found:
            self.events.append(found)
        return found

    def open(self, page: Path, width: int = 1400, *, dark: bool = False) -> None:
        """Show a file in a window of a width, and wait until it has drawn itself."""
        self.visit(page.as_uri(), width, dark=dark)

    def visit(self, url: str, width: int = 1400, *, dark: bool = False) -> None:
        """Show an address in a window of a width, and wait until it has drawn itself."""
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=media)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        loader = self.send("Page.navigate", url=url)["loaderId"]
        while not any(self._is_loaded(event, loader) for event in self.events):  # the page before may load still
            self._next()
        self.settle()

    @staticmethod
    def _is_loaded(event: dict[str, Any], loader: str) -> bool:
        told = event.get("params", {})
        return (
            event["method"] == "Page.lifecycleEvent" and told.get("name") == "load" and told.get("loaderId") == loader
        )

    def settle(self) -> None:
        """Wait until what was asked of the page has been drawn."""
        self.ask(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"
        )

    def ask(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        given = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        found = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        codes |= {" ": 32, "Enter": 13, "Escape": 27, "+": 187, "-": 189, "0": 48}
        given = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        if name == "Enter":  # without its character, buttons and forms do not see the key
            self.send("Input.dispatchKeyEvent", type="keyDown", text="\r", **given)
        else:
            self.send("Input.dispatchKeyEvent", type="rawKeyDown", **given)
        self.send("Input.dispatchKeyEvent", type="keyUp", **given)
        self.settle()

    def write(self, text: str) -> None:
        """Write a text where the focus is, as a keyboard does."""
        self.send("Input.insertText", text=text)
        self.settle()

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """Return the events of some kinds."""
        return [event["params"] for event in self.events if event["method"] in methods]

    def complaints(self) -> list[dict[str, Any]]:
        """Return errors and warnings of the console, exceptions, dialogs."""
        said = [e for e in self.told("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        logged = [e for e in self.told("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        return [*said, *logged, *self.told("Runtime.exceptionThrown", "Page.javascriptDialogOpening")]

    def requests(self) -> list[str]:
        """Return what was asked for, the page itself aside, and what occurs in it."""
        urls = [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]
        return [url for url in urls[1:] if not url.startswith("data:")]

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a picture."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End it."""
        os.close(self._out)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)
