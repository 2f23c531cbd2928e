"""What a process gives back: mapped files that nobody has changed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnkit.runtime.signals import _unchanged

SMAPS = """\
10000-20000 r-xp 00000000 08:01 11 /lib/libfirst.so
Rss:                  64 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
20000-30000 r--p 00010000 08:01 11 /lib/libfirst.so
Private_Dirty:         8 kB
Anonymous:             8 kB
30000-40000 rw-p 00020000 08:01 11 /lib/libfirst.so
Private_Dirty:         0 kB
40000-50000 r--p 00000000 08:01 12 /lib/libsecond.so
Private_Dirty:         0 kB
50000-60000 rw-p 00000000 00:00 0
Private_Dirty:         0 kB
60000-70000 r--p 00030000 08:01 11 /lib/libfirst.so
Private_Dirty:         0 kB
Swap:                  4 kB
""".splitlines()


def test_only_mappings_that_are_as_their_file_are_found() -> None:
    assert _unchanged(SMAPS, "libfirst") == [(0x10000, 0x20000)]
    assert _unchanged(SMAPS, "libsecond") == [(0x40000, 0x50000)]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="another system")
def test_a_compiler_that_was_given_back_compiles_again() -> None:
    code = (
        "import numba\n"
        "from attnkit.runtime.signals import release_library\n"
        "def resident():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(line for line in lines if line.startswith('RssFile')).split()[1])\n"
        "double = numba.njit('int64(int64)')(lambda x: x + x)\n"
        "before = resident()\n"
        "release_library('libllvmlite')\n"
        "assert resident() < before - 20_000, (before, resident())\n"
        "half = numba.njit('float64(int64)')(lambda x: x / 2)\n"
        "print(double(21), half(21))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("42 10.5\n", "")
