"""Helpers of other folders of tests, for the tests of the service."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("formats", "tasks"):
    sys.path.append(str(Path(__file__).parents[1] / _folder))
