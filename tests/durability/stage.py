"""A run folder to craft things in, with something outside of it that nobody may touch."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mutations import resign

SECONDS = 10
"""Of work, in which an answer has to come; the process is ended then. One that waits ends by ``commandline.LIMIT``."""
BOUND = f"resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))"


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


@dataclass(frozen=True)
class Stage:
    """A folder with ``run``, ``text`` and ``outside``."""

    folder: Path
    train: tuple[str, ...]
    """The command line that continues with the run."""

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def newest(self) -> Path:
        """The newest checkpoint."""
        return self.run / "checkpoints" / "step-12"

    @property
    def pickled(self) -> bytes:
        """A pickle that leaves a mark."""
        return pickle.dumps(Touch(self.outside / "canary"))

    def put(self, name: str, content: bytes | str) -> Path:
        """Write a file, in place of what lies there."""
        path = self.folder / name
        self.remove(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def remove(self, name: str) -> Path:
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return path

    def sign(self, file: str, content: bytes | str) -> None:
        """Write a file of the newest checkpoint, and a manifest that vouches for it."""
        self.put(f"run/checkpoints/step-12/{file}", content)
        resign(self.newest)

    def sign_json(self, file: str, change: Callable[[Any], Any]) -> None:
        """Change the tree of a JSON file of the newest checkpoint; ``map`` returns a new one, or None."""
        tree = json.loads((self.newest / file).read_bytes())
        self.sign(file, json.dumps(change(tree) or tree))

    def edit_json(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change the tree of a JSON file that nobody signs."""
        tree = json.loads((self.folder / name).read_bytes())
        self.put(name, json.dumps(change(tree) or tree))

    def sparse(self, name: str, size: int = 10 << 30) -> None:
        """Make a file that says it is large."""
        os.truncate(self.put(name, b""), size)

    def pipe(self, name: str) -> None:
        """Put a pipe in the place of a file, which nobody ever writes to."""
        os.mkfifo(self.remove(name))

    def link(self, name: str, goal: Path | str) -> None:
        """Put a link in the place of a file or folder."""
        self.remove(name).symlink_to(goal)

    def everything(self) -> dict[str, Any]:
        """Return what lies outside, with its content, and the names beside the run."""
        outside: dict[str, Any] = dict.fromkeys(map(str, self.outside.rglob("*")))
        for path in map(Path, outside):
            if path.is_file():
                outside[str(path)] = path.read_bytes(), path.stat().st_mtime_ns
        return {"outside": outside, "beside": {path.name for path in self.folder.iterdir()} - OUTPUTS}


class Case(NamedTuple):
    name: str
    craft: Callable[[Stage], Any]
    command: str
    code: int
    said: str = ""


OUTPUTS = {"out", "made.json", "exported", "other"}
COMMANDS = {
    "translate": "translate run -i text -o out --device cpu",
    "translate last": "translate run -i text -o out --device cpu --checkpoint last",
    "translate by torch": "translate run -i text -o out --device cpu --checkpoint last --engine torch",
    "translate averaged": "translate run -i text -o out --device cpu --checkpoint averaged",
    "translate 12": "translate run -i text -o out --device cpu --checkpoint step-12",
    "score 12": "score run text text -o out --device cpu --checkpoint step-12",
    "average": "average run",
    "export 12": "export run exported --to ctranslate2 --checkpoint step-12",
    "init": "new --init-from run",
    "check": "check text text",
    "check vocab": "check text text --vocab vocab.json",
    "vocab": "vocab text -o made.json",
}


def words(command: str, stage: Stage) -> list[str]:
    """Return the command line of a named command."""
    given = COMMANDS.get(command, command).split()
    if given[0] == "train":  # continues with the run
        return [*stage.train, *given[1:]]
    if given[0] == "new":
        own = ["other" if word == str(stage.run) else word for word in stage.train]
        if "--init-from" in given:  # the model is the other run's
            own = [word for i, word in enumerate(own) if not any(w.startswith("model.") for w in own[i : i + 2])]
        return [*own, *given[1:]]
    return given


def make(folder: Path, trained: Path, train: Iterable[str]) -> Stage:
    """Set the stage."""
    stage = Stage(folder, tuple(train))
    shutil.copytree(trained, stage.run)
    (stage.outside / "folder").mkdir(parents=True)
    stage.put("outside/text", "precious\n")
    stage.put("text", "1 2 3\n4 5\n")
    return stage


def perform(case: Case, attnkit: Any, stage: Stage) -> None:
    """Craft, call, and assert how it ended and that nothing outside was touched."""
    case.craft(stage)
    before = stage.everything()
    attnkit(words(case.command, stage), stage.folder, before=BOUND).check(case.code, case.said)
    assert stage.everything() == before
