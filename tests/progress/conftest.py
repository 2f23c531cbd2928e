"""A terminal and a notebook, for tests of progress."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def permanent(self) -> list[str]:
        """Return the lines that stay: what was not erased or written over."""
        text = self.getvalue().replace("\r\x1b[K", "\r")
        return [line.split("\r")[-1] for line in text.split("\n")[:-1]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Return what makes standard error a new terminal of 80 columns; pytest would undo it before the test."""

    def connect() -> Terminal:
        found = Terminal()
        monkeypatch.setattr(sys, "stderr", found)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "80")
        return found

    return connect


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, str]]]:
    """A running notebook; each list holds what one output of the cell showed, in order."""
    outputs: list[list[dict[str, str]]] = []

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        shown = [content]
        outputs.append(shown)
        return SimpleNamespace(update=lambda new, raw: shown.append(new))

    running: Any = ModuleType("IPython")
    running.get_ipython = lambda: SimpleNamespace(kernel=object())
    running.display = ModuleType("IPython.display")
    running.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", running)
    monkeypatch.setitem(sys.modules, "IPython.display", running.display)
    return outputs
