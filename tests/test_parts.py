"""Slow tests in parts: together they are all of them, and none is in two but those that are in each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(10))
def test_cases(case):
    pass

@pytest.mark.slow
def test_long():
    pass

@pytest.mark.slow
def test_other():
    pass

@pytest.mark.slow(every_part=True)
def test_always():
    pass
"""


def run(folder: Path, *options: str) -> set[str]:
    """Return the tests that pytest runs with options, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"::(\S+) PASSED", done.stdout))


@pytest.mark.slow
def test_parts_are_disjoint_and_complete(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_bytes((Path(__file__).parent / "conftest.py").read_bytes())
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: x\n  sample(n): x\n")
    whole = run(tmp_path, "-m", "slow")
    assert whole == {
        "test_long",
        "test_other",
        "test_always",
        *(f"test_cases[{case}]" for case in range(10) if case % 3),
    }
    parts = [run(tmp_path, "-m", "slow", "--part", f"{k}/4") for k in range(4)]
    assert set.union(*parts) == whole and set.intersection(*parts) == {"test_always"}
    assert [len(part) for part in parts] == [3, 3, 3, 3] and len(whole) == 9
    usual = run(tmp_path, "-m", "not slow", "--part", "1/4")
    assert usual == {f"test_cases[{case}]" for case in range(0, 10, 3)}
