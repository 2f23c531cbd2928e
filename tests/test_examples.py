"""The examples on the corpora that the project makes itself: the commands at their tops, and what they reach."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FLOORS = {"summary": 90.0, "code": 90.0}
"""BLEU on the test part. English-French is the demo's: the test of an installed wheel runs that."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOORS)
def test_an_example_learns_its_corpus(name: str, tmp_path: Path) -> None:
    header = re.match(r"(#.*\n)*", (EXAMPLES / f"{name}.yaml").read_text())
    assert header is not None
    text = re.sub(r"\\\n# *", "", header[0])
    commands = [shlex.split(line) for line in re.findall(r"^# +attnkit (.+)$", text, re.MULTILINE)]
    assert [command[0] for command in commands] == ["toy-corpus", "train", "translate", "score-bleu"]
    for command in commands:
        arguments = [str(EXAMPLES.parent / word) if word.startswith("examples/") else word for word in command]
        done = subprocess.run(
            [sys.executable, "-m", "attnkit", *arguments], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
        )
    score = re.search(r" = ([0-9.]+)", done.stdout)
    assert score is not None and float(score[1]) >= FLOORS[name], done.stdout
