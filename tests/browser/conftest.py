"""A browser for the tests of the page, and the page. Without Chromium they are skipped.

With ATTNKIT_BROWSER=required a machine without it fails instead (``.ci/run`` sets that).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from chromium import Browser
from looked import FACTS, LONG, SENTENCE

from attnkit.plotting.html.attention import build_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        (pytest.fail if os.environ.get("ATTNKIT_BROWSER") == "required" else pytest.skip)("no Chromium here")
    running = Browser(program, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(build_page([SENTENCE, LONG], FACTS), encoding="utf-8")
    return path
