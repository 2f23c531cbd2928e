"""A shell that completes a line gets words, without torch, and never an error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("attnkit tr", ["train", "translate"]),
        ("attnkit train --pre", ["--preset", "--precision"]),
        ("attnkit train --preset ti", ["tiny"]),
        ("attnkit trian x", []),
    ],
)
def test_bash_completes(line: str, wanted: list[str]) -> None:
    words = {"_ATTNKIT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    code = "import sys; from attnkit.cli.main import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", wanted)
