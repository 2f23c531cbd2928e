"""Helpers of this and other folders of tests, for the tests of the library."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("", "formats", "library", "tasks"):
    sys.path.append(str(Path(__file__).parents[1] / _folder))
