"""Systems that refuse, end or lack what a command takes for granted: code, message, and nothing half-written."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

N = 40
LINES = "".join(f"{i} {i + 1} {i + 2}\n" for i in range(N))
SMALL = "--size 300"
DEVICES = (Path("/dev/full"), Path("/dev/null"))
GONE = "mkdir d; cd d; rmdir ../d"
REAL: dict[str, tuple[str, int, tuple[str, ...]]] = {
    # a shell script in which attnkit is the command, a the text and $1 a run; exit code; words
    "stdout is closed": ("attnkit score-bleu a a >&-", 5, ("cannot write standard output: it is closed",)),
    "stdout is closed to translate": ("attnkit translate $1 -i a >&-", 5, ("standard output: it is closed",)),
    "stdout is full": ("attnkit vocab a -o v --json >/dev/full", 5, ("cannot write standard output: No space left",)),
    "stdout is full to translate": ("attnkit translate $1 -i a >/dev/full", 5, ("standard output: No space left",)),
    "stdout is read no more": ("attnkit translate $1 -i long | head -n 1 >/dev/null; echo read", 0, ("read",)),
    "stdin is closed": ("attnkit translate $1 <&-", 5, ("cannot read standard input: it is closed", "name a file")),
    "stdin is the output": ("attnkit translate $1 <a -o a", 2, ("output file a is also an input file",)),
    "stderr is closed": (f"attnkit vocab a -o v {SMALL} 2>&-", 0, ("v: bpe",)),
    "stderr is full": (f"attnkit vocab a -o v {SMALL} 2>/dev/full", 0, ("v: bpe",)),
    "stderr is read no more": (
        f"(attnkit vocab a -o v {SMALL} >out; echo $? >code) 2>&1 | true; cat out; exit $(cat code)",
        0,
        ("v: bpe",),
    ),
    "a mistake, stderr closed": ("attnkit check none a 2>&-; test $? = 2", 0, ()),
    "a mistake, stderr full": ("attnkit check none a 2>/dev/full; test $? = 2", 0, ()),
    "all closed": (
        f"attnkit vocab a -o v {SMALL} <&- >&- 2>&-; test $? = 5 && attnkit check a a --vocab v",
        0,
        ("usable for training",),
    ),
    "training, stderr full": ("attnkit $TRAIN -o run 2>/dev/full", 0, ("done: 2 steps",)),
    "training, all closed": ("attnkit $TRAIN -o run <&- >&- 2>&-; test $? = 5 && attnkit translate run -i a", 0, ()),
    "into /dev/full": ("attnkit score $1 a a -o /dev/full", 5, ("cannot write /dev/full: No space left",)),
    "vocabulary into /dev/full": (f"attnkit vocab a -o /dev/full {SMALL}", 5, ("write /dev/full: No space",)),
    "vocabulary into /dev/null": (f"attnkit vocab a -o /dev/null {SMALL}", 0, ("/dev/null: bpe",)),
    "vocabulary into a pipe": (f"attnkit vocab a -o /dev/fd/1 {SMALL} | cat", 0, ('{"format":"attnkit vocabulary"',)),
    "32 files to check": ("ulimit -n 32; attnkit check a a", 0, ("usable for training",)),
    "32 files to translate": ("ulimit -n 32; attnkit translate $1 -i a", 0, ()),
    "32 files to train": ("ulimit -n 32; attnkit $TRAIN -o run", 0, ("done: 2 steps",)),
    "8 files to train": ("ulimit -n 8; attnkit $TRAIN -o run", 5, ("Too many open files", "ulimit -n")),
    "the folder is gone": (f"{GONE}; attnkit check $2/a $2/a", 5, ("the working directory does not exist", "cd")),
    "the folder is gone to translate": (
        f"{GONE}; attnkit translate $1 -i $2/a",
        5,
        ("the working directory does not exist",),
    ),
    "no home": ("unset HOME; TMPDIR=/nonexistent attnkit $TRAIN -o run", 0, ("done: 2 steps",)),
    "no home to translate": ("unset HOME; TMPDIR=/proc attnkit translate $1 -i a --threads 2", 0, ()),
    "no place to translate for compiled code": (
        "HOME=/proc XDG_CACHE_HOME=/proc TMPDIR=/proc attnkit translate $1 -i a --device cpu --threads 2",
        0,
        ("compiling the float32 search",),
    ),
    "locale C": ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 attnkit check ü ü", 0, ("usable for training",)),
    "locale POSIX": ("LC_ALL=POSIX PYTHONUTF8=0 attnkit translate $1 -i ü", 0, ()),
    "an unknown locale": ("LC_ALL=xx_XX.latin9 attnkit check none-ü a", 2, ("no such file: none-ü",)),
}
TRAIN = (
    "train --src a --tgt a --preset tiny --max-steps 2 --device cpu --precision float32 --threads 1"
    " --set model.d_model=8 --set model.n_heads=2 --set model.d_ff=8 --set vocabulary.kind=char"
    " --set evaluation.n_samples=0"
)


SLOW = (
    "training, all closed",
    "no place to translate for compiled code",
    "no home to translate",
    "32 files to translate",
    "locale POSIX",
    "stdin is closed",
    "training, stderr full",
    "no home",
    "8 files to train",
    "stdout is closed to translate",
    "stdout is full to translate",
    "stdout is read no more",
    "into /dev/full",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in REAL])
def test_processes(attnkit: Any, trained: Path, tmp_path: Path, name: str) -> None:
    script, code, words = REAL[name]
    (tmp_path / "a").write_text(LINES)
    (tmp_path / "ü").write_text(LINES.replace("1", "ü"))
    (tmp_path / "long").write_text(LINES * 10)
    missing = [device for device in DEVICES if str(device) in script and not device.exists()]
    if missing:
        pytest.skip(f"no {missing[0]} here")
    devices = {device: device.stat().st_mode for device in DEVICES if device.exists()}
    ended = sys.modules["commandline"].real(script, tmp_path, trained, tmp_path, env={"TRAIN": TRAIN})
    ended.check(code, *words)
    assert {device: device.stat().st_mode for device in devices} == devices
    assert (tmp_path / "a").read_text() == LINES
    if not name.startswith("8 files"):  # of which none is left to look through a folder that is to be removed
        assert not list(tmp_path.rglob(".tmp-*"))
    if "2>" in script:
        assert "reading" not in ended.out, "notes go to stderr or nowhere"


def test_memory_is_bound_only_where_the_system_says_how_much_is_taken(attnkit: Any, tmp_path: Path) -> None:
    """As under macOS. No limit is left behind in this process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    sys.modules["commandline"].bound_memory(tmp_path / "none")
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    bound = f"Path('bound').write_text(str(resource.getrlimit(resource.RLIMIT_AS)[0] > {1 << 30}))"
    attnkit(["--help"], tmp_path, before=bound).check(0)
    assert (tmp_path / "bound").read_text() == str(sys.modules["commandline"].STATM.exists())


NO_SEMAPHORES = """
import _multiprocessing
class Refused:
    SEM_VALUE_MAX = 1
    def __init__(self, *given): raise FileNotFoundError(2, "No such file or directory")
_multiprocessing.SemLock = Refused
"""


def test_no_semaphores(attnkit: Any, trained: Path, tmp_path: Path) -> None:
    """As where /dev/shm cannot be written."""
    (tmp_path / "a").write_text(LINES)
    translate = ["translate", trained, "-i", "a", "--device", "cpu", "--threads", "2"]
    for arguments, word in ((translate, ""), ([*TRAIN.split(), "-o", "run"], "done: 2 steps")):
        attnkit(arguments, tmp_path, before=NO_SEMAPHORES).check(0, word)


COMPILERS = {
    # what is started to compile; words
    "missing": (None, ("cannot start the compiler: ", "No such file or directory")),
    "refused": ("", ("cannot start the compiler: ", "Permission denied")),
    "failing": ("#!/bin/sh\necho some >&2; echo words >&2; exit 1\n", ("cannot be compiled: words",)),
    "killed": ("#!/bin/sh\nkill -9 $$\n", ("cannot be compiled: the compiler was ended by signal 9",)),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_that_ends(attnkit: Any, trained: Path, tmp_path: Path, name: str) -> None:
    """As when memory runs out. Compiled code is asked for where there is none yet; torch needs none."""
    (tmp_path / "a").write_text(LINES)
    script, words = COMPILERS[name]
    if script is not None:
        (tmp_path / "compiler").write_text(script)
        (tmp_path / "compiler").chmod(0o755 if script else 0o644)
    given = {"env": {"XDG_CACHE_HOME": str(tmp_path)}}
    given["before"] = "import sys; sys.executable = os.path.abspath('compiler')"
    translate = ["translate", trained, "-i", "a", "--device", "cpu"]
    ended = attnkit([*translate, "-o", "out", "--engine", "compiled"], tmp_path, **given)
    ended.check(5, *words, "help: use --engine torch")
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["a", *["compiler"] * (script is not None)]
    ended = attnkit([*translate, "--engine", "torch"], tmp_path, **given)
    ended.check(0)
    assert "compil" not in ended.err and ended.out.count("\n") == N
    by_itself = attnkit(translate, tmp_path, **given)
    by_itself.check(0, *words, "using torch, which is slower")
    assert by_itself.out == ended.out


def keep_compiled(folder: Path) -> list[Path]:
    """Copy the compiled loops into another cache folder."""
    own = folder / "attnkit" / "numba"
    own.mkdir(parents=True)
    kept = Path(os.environ["XDG_CACHE_HOME"], "attnkit", "numba").glob("*-float32-*.o")
    return [Path(shutil.copy(path, own)) for path in kept]


def test_damaged_compiled_code_is_not_run(attnkit: Any, trained: Path, tmp_path: Path) -> None:
    """It is compiled anew: here by a compiler that refuses, which shows that it was asked."""
    (tmp_path / "a").write_text(LINES)
    translate = ["translate", trained, "-i", "a", "--device", "cpu", "--engine", "compiled"]
    given = {"env": {"XDG_CACHE_HOME": str(tmp_path)}, "before": "import sys; sys.executable = '/none'"}
    whole = {path: path.read_bytes() for path in keep_compiled(tmp_path)}
    attnkit(translate, tmp_path, **given).check(0)
    for damage in (
        lambda data: data[:-1],
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        lambda data: b"",
    ):
        for path, content in whole.items():
            path.write_bytes(damage(content))
        attnkit(translate, tmp_path, **given).check(5, "cannot start the compiler")


TERMINALS: list[dict[str, str | None]] = [{"COLUMNS": n} for n in ("20", "1", "0", "-7", "x", str(10**18))]
TERMINALS += [{"TERM": "dumb"}, {"TERM": None}, {"LINES": "x"}, {"NO_COLOR": "", "TERM": "\x1b"}]


@pytest.mark.sample(2)
@pytest.mark.parametrize("terminal", TERMINALS, ids=str)
def test_terminals(attnkit: Any, tmp_path: Path, terminal: dict[str, str | None]) -> None:
    (tmp_path / "a").write_text(LINES)
    for arguments in (["--help"], ["train", "--help"], ["check", "a", "a"]):
        attnkit(arguments, tmp_path, env=terminal).check(0)
    attnkit(["check", "none", "a"], tmp_path, env=terminal).check(2, "no such file: none")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can come to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        for folder in Path(name).rglob("*"):
            if folder.is_dir():
                folder.chmod(0o755)


WEIGHTS = "run/checkpoints/step-12/model.safetensors"
DENIED: dict[str, tuple[str, int, int, str, tuple[str, ...]]] = {
    # what is forbidden and with which mode; exit code; command; words
    "text to check": ("a", 0, 5, "check a b", ("cannot read a: Permission denied",)),
    "text to train on": ("a", 0, 5, f"{TRAIN} -o out/run", ("cannot read a: Permission denied",)),
    "text for a vocabulary": ("a", 0, 5, "vocab a -o out/v", ("cannot read a: Permission denied",)),
    "text to translate": ("a", 0, 5, "translate run -i a", ("cannot read a: Permission denied",)),
    "text to score": ("a", 0, 5, "score-bleu a b", ("cannot read a: Permission denied",)),
    "folder of text": ("texts", 0, 5, "check texts/a b", ("cannot read texts/a: Permission denied",)),
    "folder of text to train on": ("texts", 0, 5, "train --src texts/a --tgt b -o out/run", ("texts/a: Perm",)),
    "vocabulary": ("v", 0, 5, "check b b --vocab v", ("cannot read v: Permission denied",)),
    "configuration": ("c", 0, 5, "train --config c -o out/run", ("configuration: Permission denied", "at c")),
    "output to translate": ("out", 0o555, 5, "translate run -i b -o out/x", ("cannot write out/x: Permission denied",)),
    "output to score": ("out", 0o555, 5, "score run b b -o out/x", ("cannot write out/x: Permission denied",)),
    "output for a vocabulary": ("out", 0o555, 5, "vocab b -o out/v", ("cannot write out/v: Permission denied",)),
    "output for a corpus": ("out", 0o555, 5, "toy-corpus reverse -o out/toy", ("out/toy: Permission denied", "help: ")),
    "output to train": ("out", 0o555, 5, f"{TRAIN} -o out/run", ("out/run: Permission denied", "help: ")),
    "output that nobody may see": ("out", 0, 5, "translate run -i b -o out/x", ("out/x: Permission denied",)),
    "run to average": ("run", 0o555, 5, "average run", ("run", "Permission denied", "help: ")),
    "run to translate": ("run", 0o555, 0, "translate run -i b", ()),
    "run that nobody may see": ("run", 0, 5, "translate run -i b", ("run", "Permission denied")),
    "checkpoints that nobody may see": ("run/checkpoints", 0, 5, "translate run -i b", ("run", "Permission denied")),
    "weights": (WEIGHTS, 0, 5, "score run b b --checkpoint last", ("model.safetensors: Permission denied",)),
}


@pytest.mark.parametrize("name", DENIED)
def test_permissions(attnkit: Any, trained: Path, open_folder: Path, name: str) -> None:
    path, mode, code, command, words = DENIED[name]
    for text in ("a", "b", "v", "c", "texts/a"):
        (open_folder / text).parent.mkdir(exist_ok=True)
        (open_folder / text).write_text(LINES.replace("1", "b"))
    shutil.copytree(trained, open_folder / "run")
    (open_folder / "out").mkdir()
    keep_compiled(open_folder / "cache")  # root's cannot be read by another user
    drop = ""
    if os.getuid() == 0:  # whom permissions do not bind
        drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
        for entry in [open_folder, *open_folder.rglob("*")]:
            os.chown(entry, 65534, 65534)
    before = sorted(open_folder.rglob("*"))
    (open_folder / path).chmod(mode)
    ended = attnkit(command.split(), open_folder, before=drop, env={"XDG_CACHE_HOME": str(open_folder / "cache")})
    (open_folder / path).chmod(0o755 if stat.S_ISDIR((open_folder / path).stat().st_mode) else 0o644)
    ended.check(code, *words)
    made = {str(entry.relative_to(open_folder)) for entry in open_folder.rglob("*") if entry not in before}
    assert {entry.rsplit("/", 1)[-1] for entry in made} <= {"run", "lock", "status.json", "config.yaml"}
