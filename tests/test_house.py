"""The house rules that can be read off the sources: imports run down, torch stays out of the torch-free rooms."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "attnkit"
FLOORS = [
    {"errors"},
    {"io", "protocols", "runtime"},
    {"kernels"},
    {"text", "models", "decoding", "training", "metrics", "plotting", "config", "distributed"},
    {"data", "formats", "checkpoints", "compiled", "quality"},
    {"engine"},
    {"tasks"},
    {"analysis", "conversion", "demo", "progress"},
    {"library"},
    {"serving"},
    {"cli", "__init__"},
    {"__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a file imports, inside functions too, save for type checking alone."""
    typing_only = {
        id(node)
        for block in nodes_of(path)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    rooms = set()
    for node in nodes_of(path):
        if id(node) in typing_only:
            continue
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("attnkit.")}
    return rooms


def test_imports_run_down() -> None:
    """Name all offenders at once."""
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        here = room_of(path)
        assert here in FLOOR, f"{here} is not a room of the design"
        for room in imported_rooms(path) & set(FLOOR) - {here, "__init__"}:
            if FLOOR[room] >= FLOOR[here]:
                wrong.append(f"{path.relative_to(SOURCES)} imports {room}")
    assert wrong == []


SIDEWAYS = {("finetuning", "language_modeling"), ("translation", "language_modeling")}
"""Packages of tasks that may know another's configuration."""


def test_packages_of_tasks_do_not_import_each_other() -> None:
    wrong = []
    for path in sorted((SOURCES / "tasks").rglob("*/*.py")):
        here = path.relative_to(SOURCES / "tasks").parts[0]
        for name in imported_modules(path):
            other = name.split(".")[2] if name.startswith("attnkit.tasks.") else here
            if other != here and (here, other) not in SIDEWAYS:
                wrong.append(f"{path.relative_to(SOURCES)} imports {name}")
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    """Imports in functions and for types count; what the registry names by text is imported by nobody it needs."""
    files = {f"attnkit.{'.'.join(p.relative_to(SOURCES).with_suffix('').parts)}": p for p in SOURCES.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    arrows: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnkit"):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    named.add(full if full in files else str(node.module))
        arrows[name] = named - {name}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> list[str]:
        if name in way:
            return [" -> ".join([*way[way.index(name) :], name])]
        if name in done:
            return []
        found = [cycle for other in sorted(arrows.get(name, ())) for cycle in visit(other, (*way, name))]
        done.add(name)
        return found

    assert [cycle for name in sorted(arrows) for cycle in visit(name, ())] == []


def test_names_of_test_files_are_unique() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_class_name_has_one_home() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCES)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_what_benchmarks_import_is_there() -> None:
    """Nothing else runs most of them."""
    missing = []
    for path in sorted((SOURCES.parents[1] / "benchmarks").glob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attnkit":
                found = importlib.import_module(str(node.module))
                parts = {module.name for module in pkgutil.iter_modules(getattr(found, "__path__", []))}
                names = [alias.name for alias in node.names if alias.name not in parts]
                missing += [f"{path.name}: {name}" for name in names if not hasattr(found, name)]
    assert missing == []


def test_torch_free_rooms_stay_free() -> None:
    free = ["__init__", "errors", "checkpoints.torchrun", "engine.checkpoint_metadata", "data.arrays"]
    free += ["engine.registry", "engine.resolve", "engine.run_config"]
    for room in ("io", "text", "metrics", "plotting", "kernels", "config", "progress", "cli"):
        free += [".".join(p.relative_to(SOURCES).with_suffix("").parts) for p in (SOURCES / room).rglob("*.py")]
    with_torch = ("torch_loop",)
    vectors = (SOURCES / "tasks" / "word2vec").glob("*.py")
    free += [f"tasks.word2vec.{path.stem}" for path in vectors if path.stem not in with_torch]
    free += [f"{room}.config" for room in ("data", "models", "training", "decoding")]
    free += [".".join(p.relative_to(SOURCES).with_suffix("").parts) for p in SOURCES.glob("tasks/*/config.py")]
    modules = sorted({f"attnkit.{name}".removesuffix(".__init__") for name in free})
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


TRAIN = """
import sys
from attnkit.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
loaded = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "attnkit"}
print(*(name for name, module in loaded.items() if not hasattr(module, "__path__")))
"""


def imported_at_top(path: Path) -> set[str]:
    """Return the modules that a file imports at its top, by ``from``."""
    return {str(node.module) for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)}


def test_training_a_translator_imports_little(tmp_path: Path) -> None:
    """Less than a third of the modules, packages' own files aside: what a reader of the main job has to know."""
    for side in ("src", "tgt"):
        (tmp_path / f"train.{side}").write_text("".join(f"{i} {i % 7}\n" for i in range(200)))
    sides = [f"--{side}={tmp_path / 'train'}.{side}" for side in ("src", "tgt")]
    options = [
        "-o",
        str(tmp_path / "run"),
        "--preset=tiny",
        "--max-steps=2",
        "--device=cpu",
        "--set=decoding.max_length=5",
    ]
    argv = [sys.executable, "-c", TRAIN, "train", *sides, *options]
    done = subprocess.run(argv, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    # The check of the text is one function, imported when there is text to check; what only it needs does not count.
    behind = {f"attnkit.quality.{path.stem}" for path in (SOURCES / "quality").glob("*.py")} | {"attnkit.kernels.ibm1"}
    behind -= imported_at_top(SOURCES / "tasks" / "translation" / "data.py")
    loaded = [name for name in done.stdout.splitlines()[-1].split() if name not in behind]
    assert "attnkit.training.loop" in loaded and len(loaded) <= 116, loaded


RUNNERS = re.compile(
    r"(pickle|_pickle|cPickle|cloudpickle|dill|joblib|jsonpickle|marshal|shelve|code|codeop|runpy|imp|torch\.package"
    r"|torch\.hub|torch\.distributed\.checkpoint|yaml\.(unsafe_|full_)?load(_all)?|torch\.(load|save)"
    r"|torch\.serialization|torch\.jit\.(load|save)|numpy\.load|os\.(system|popen|exec[lv]p?e?|spawn\w+)"
    r"|pty\.spawn|subprocess\.get(status)?output|builtins\.(eval|exec|compile|__import__))(\..+)?"
)
"""Modules and functions that run code which occurs in data, or in text."""
CALLS = re.compile(
    r"eval|exec|compile|__import__|breakpoint"
    r"|(torch|yaml|pickle|marshal|dill|joblib)\.(load|loads|save|unsafe_load|full_load|load_all)"
    r"|os\.(system|popen|exec[lv]p?e?|spawn\w+)"
    r"|.*\.((all_)?gather_object|(broadcast|scatter|send|recv)_object_list|load_library)"
)
OURS = re.compile(r"f?['\"]attnkit\.")


def forbidden_in(source: str) -> list[str]:
    """Return the lines that would run code found in data: unpickling, evaluating, a shell, object collectives."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if RUNNERS.fullmatch(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            dotted = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            names = [name for name in dotted if RUNNERS.fullmatch(name)]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            words = [word for word in node.keywords if word.arg in ("shell", "allow_pickle")]
            names = [called] if CALLS.fullmatch(called) else []
            if called in ("np.load", "numpy.load"):  # unpickles unless it is told not to
                names = [] if any(word.arg == "allow_pickle" for word in words) else [called]
            names += [ast.unparse(word) for word in words if ast.unparse(word.value) != "False"]
            if called.split(".")[-1] == "import_module" and not OURS.match(ast.unparse(node.args[0])):
                names.append(ast.unparse(node))
        elif isinstance(node, ast.Name):  # handed on, to be called elsewhere
            names = [node.id] if node.id in ("eval", "exec") else []
        elif isinstance(node, ast.Attribute) and node.attr in ("load", "save"):
            names = [ast.unparse(node)] if ast.unparse(node.value) == "torch" else []
        found += [(node.lineno, name) for name in names]
    return [f"{line}: {name}" for line, name in sorted(set(found))]


FORBIDDEN = (
    *("import pickle", "from pickle import loads", "import marshal", "import shelve", "import dill", "import runpy"),
    *("import torch.distributed.checkpoint as dcp", "from torch.distributed import checkpoint", "import joblib"),
    *("torch.load(path)", "torch.save(state, path)", "load = torch.load", "from torch import load", "numpy.load(path)"),
    *("eval('1')", "exec(text)", "compile(text, '', 'exec')", "__import__('pickle')", "run = exec", "np.load(path)"),
    *("import_module('pickle')", "importlib.import_module(name)", "subprocess.run(text, shell=True)"),
    *("os.system('ls')", "os.popen('ls')", "from os import system", "subprocess.Popen(text, shell=flag)"),
    *("np.load(path, allow_pickle=True)", "yaml.load(text, Loader=yaml.Loader)", "yaml.unsafe_load(text)"),
    *("yaml.load_all(text)", "from yaml import load", "dist.broadcast_object_list(found)", "dist.gather_object(x)"),
    *("torch.ops.load_library(path)", "import torch.hub", "os.execvp(a, b)"),
)


@pytest.mark.parametrize("source", FORBIDDEN)
def test_forbidden_calls_are_seen(source: str) -> None:
    assert forbidden_in(f"import os\n{source}\n")


def test_what_only_looks_forbidden_is_not() -> None:
    allowed = [
        "np.load(path, allow_pickle=False)",
        "model.eval()",
        "re.compile(text)",
        "safetensors.torch.load(raw)",
        "json.load(stream)",
    ]
    allowed += ["torch.compile(m)", "import_module(f'attnkit.cli.{name}')", "subprocess.run(words, shell=False)"]
    assert [forbidden_in(source) for source in allowed] == [[]] * len(allowed)


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples"])
def test_forbidden_calls_are_absent(folder: str) -> None:
    root = SOURCES.parents[1] / folder
    # A hidden folder is where a benchmark works: what lies in it is not ours.
    paths = [path for path in sorted(root.rglob("*.py")) if "/." not in f"/{path.relative_to(root)}"]
    found = [f"{path}:{line}" for path in paths for line in forbidden_in(path.read_text())]
    assert not found
    assert paths or folder == "examples"


def test_yaml_is_read_by_the_strict_loader_alone() -> None:
    users = [path for path in SOURCES.rglob("*.py") if "yaml" in imported_modules(path)]
    assert [path.relative_to(SOURCES).as_posix() for path in users] == ["config/plain.py"]


def imported_modules(path: Path) -> set[str]:
    nodes = nodes_of(path)
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


OPENERS = re.compile(r"(.+\.)?(open|fdopen|FileIO)")
WRITING_MODE = re.compile(r"[rbtU]*[wax+][rwaxbtU+]*")
WRITING_FLAG = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")


def writes_in(source: str) -> list[str]:
    """Return what writes a file by itself: modes that say so, pathlib's short ways, flags of ``os.open``."""
    found = []
    nodes = [*ast.walk(ast.parse(source))]
    calls = [node for node in nodes if isinstance(node, ast.Call)] if "devnull" in source else []
    nowhere = [node for node in calls if "devnull" in ast.unparse(node)]
    harmless = {id(inner) for node in nowhere for inner in ast.walk(node)}
    for node in nodes:
        if id(node) in harmless:
            continue
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            short = called.split(".")[-1] in ("write_text", "write_bytes") and not called.startswith("atomic.")
            given = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
            modes = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            opens = OPENERS.fullmatch(called) and any(map(WRITING_MODE.fullmatch, modes))
            found += [ast.unparse(node)] if short or opens else []
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if WRITING_FLAG.fullmatch(name):
                found.append(ast.unparse(node))  # wherever it stands: it may be on its way to a call
    return found


WRITES = (
    *("path.write_text(text)", "self.path.write_bytes(atomic.data)", "Path('a.txt').write_text('x')"),
    *("open(path, 'w')", "path.open('ab')", "open(path, mode='x')", "path.open(mode='r+b')", "gzip.open(path, 'wt')"),
    *("os.open(path, os.O_WRONLY)", "os.open(path, flags=os.O_RDWR)", "os.open(path, O_CREAT | os.O_EXCL, 0o666)"),
    *("os.fdopen(number, 'wb')", "io.FileIO(path, 'w')", "flags = os.O_RDWR | os.O_CLOEXEC"),
)


@pytest.mark.parametrize("source", WRITES)
def test_writes_are_seen(source: str) -> None:
    # That a file works with atomic.py elsewhere is no excuse.
    assert writes_in(f"from attnkit.io import atomic\n{source}\n")


def test_what_only_looks_like_a_write_is_none() -> None:
    allowed = ["atomic.write_text(path, 'w')", "path.open('rb')", "open(path)", "os.open(path, os.O_RDONLY)"]
    allowed += ["os.open(os.devnull, os.O_RDWR)", "Path(os.devnull).open('w')", "config.model_dump(mode='json')"]
    assert [writes_in(source) for source in allowed] == [[]] * len(allowed)


def test_writes_go_through_files() -> None:
    """Nobody but atomic.py opens for writing; ``durability/test_writers.py`` watches every command at work."""
    paths = [path for path in SOURCES.rglob("*.py") if path != SOURCES / "io" / "atomic.py"]
    assert [f"{path}: {call}" for path in paths for call in writes_in(path.read_text())] == []


def test_what_formulas_are_checked_against_is_installed() -> None:
    """Where it can be: else those tests would be skipped, and nobody would know."""
    assert sys.version_info < (3, 11) or importlib.util.find_spec("transformers") is not None
