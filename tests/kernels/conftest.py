"""Let the tests of this folder share a module."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package
