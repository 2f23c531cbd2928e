"""Compiled code: where it is kept, and that nothing depends on keeping it or on numba."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.kernels import ibm1, word2vec_backend
from attnkit.kernels import jit as module
from attnkit.kernels.jit import cache_folder, compiled
from attnkit.kernels.word2vec_backend import CompiledBackend, LookupTables, LoopSpec
from attnkit.runtime.signals import python_command


def triangle(n: int) -> int:
    total = 0
    for i in range(n + 1):
        total += i
    return total


def kept_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.nb?") if "triangle" in path.name]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_numba_is_what_runs() -> None:
    assert ibm1.fastest().name == "numba"


def test_compiled_code_lies_in_the_users_cache_folder(cache: Path) -> None:
    loop = compiled(triangle, (3,))
    assert loop is not None and loop(100) == 5050 and loop is not triangle
    assert cache_folder() == cache / "attnkit" / "numba"
    assert len(kept_files(cache / "attnkit" / "numba")) == 2  # its index and itself
    assert not kept_files(Path(__file__).parent)
    import numba

    assert not numba.config.CACHE_DIR  # other code that uses numba is left alone


def test_a_damaged_cache_changes_nothing(cache: Path) -> None:
    assert compiled(triangle, (3,))
    files = kept_files(cache)
    for path in files:
        path.write_bytes(b"no pickle")
    loop = compiled(triangle, (3,))
    assert loop is not None and loop(4) == 10


def test_a_folder_that_cannot_be_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    loop = compiled(triangle, (3,))
    assert loop is not None and loop(4) == 10
    assert not kept_files(Path(module.__file__).parent) and not kept_files(Path(__file__).parent)


def test_without_numba_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled(triangle, (3,)) is None
    ibm1.fastest.cache_clear()
    ibm1.compiled_loops.cache_clear()
    try:
        assert ibm1.fastest() is ibm1.IN_NUMPY
    finally:
        ibm1.fastest.cache_clear()
        ibm1.compiled_loops.cache_clear()


def test_numba_is_imported_when_it_is_needed() -> None:
    code = "import sys, attnkit.tasks.word_alignment.lexicon, attnkit.cli.align\n"
    code += "assert not {'numba', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Watch the processes that are asked to compile."""
    asked: list[list[str]] = []

    def run(words: list[str], **options: object) -> None:
        assert words[:3] == python_command(module._PROGRAM) and words[3] == str(os.getpid())
        asked.append(words[4:])
        if words[-1] != "missing":
            compiled(triangle, (3,), ["missing"])  # as the child does, in a cache that has nothing yet

    monkeypatch.setattr(module.subprocess, "run", run)
    return asked


def test_a_fast_loop_is_compiled_elsewhere_and_only_once(cache: Path, children: list[list[str]]) -> None:
    first = compiled(triangle, (3,), ["that.module", "its", "words"])
    assert first(100) == 5050 and children[0] == ["that.module", "its", "words"]
    assert sum(first.stats.cache_hits.values()) == 1  # loaded, not compiled again
    n_asked = len(children)
    assert compiled(triangle, (3,), ["that.module"])(4) == 10 and len(children) == n_asked
    assert len(kept_files(cache)) == 2


def test_of_several_that_want_a_loop_one_has_it_compiled(cache: Path, children: list[list[str]]) -> None:
    with ThreadPoolExecutor(3) as pool:  # each opens the lock anew, as processes do
        found = [pool.submit(compiled, triangle, (3,), ["that.module"]) for _ in range(3)]
    assert [loop.result()(4) for loop in found] == [10, 10, 10]
    wanted = [words for words in children if words[-1] != "missing"]
    assert wanted == [["that.module"]]


def test_what_no_child_compiles_is_compiled_here(cache: Path, children: list[list[str]]) -> None:
    assert compiled(triangle, (3,), ["missing"])(100) == 5050
    assert children == [["missing"]]
    for path in kept_files(cache):
        path.write_bytes(b"no pickle")
    assert compiled(triangle, (3,), ["missing"])(100) == 5050
    with pytest.raises(TypeError):
        compiled(triangle, (3,), ["missing"])("a")


def test_a_change_in_any_source_of_the_loops_is_a_new_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNKIT_COMPILES", "1")  # as in the child itself, which asks no other
    compiled(triangle, (3,), ["missing"])
    (before,) = (cache / "attnkit" / "numba").iterdir()
    monkeypatch.setattr(module, "sources_digest", lambda: "otherwise")
    compiled(triangle, (3,), ["missing"])
    assert {path.name for path in (cache / "attnkit" / "numba").iterdir()} == {before.name, "otherwise"}


def test_the_childs_command_compiles_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds in the cache what this process has put there: so it asks for the same, and would have put it there."""
    asked: list[list[str]] = []

    def watched(loop: Any, arguments: Any, child: list[str]) -> Any:
        asked.append(child)
        return compiled(loop, arguments, child)

    monkeypatch.setattr(word2vec_backend, "compiled", watched)
    word2vec_backend.compiled_loop.cache_clear()
    CompiledBackend(LoopSpec(dim=20, window=7, exact=True), LookupTables(np.empty(0, np.uint32)), np.uint16)
    word2vec_backend.compiled_loop.cache_clear()
    folder = cache_folder() / module.sources_digest()
    before = {path for path in folder.rglob("*.nbc") if "word2vec.pairs-" in path.name}
    environment = {**os.environ, "ATTNKIT_COMPILES": "1"}
    command = python_command(module._PROGRAM, str(os.getpid()), *asked[0])
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert before and {path for path in folder.rglob("*.nbc") if "word2vec.pairs-" in path.name} == before
