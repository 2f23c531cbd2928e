"""Telling a run folder from anything else that may lie at a path, with errors that say what does."""

from __future__ import annotations

import os
from pathlib import Path

from attnkit.checkpoints import lock, logs, manifest
from attnkit.errors import RunError, system_failure

_ELSEWHERE = "choose a new or empty folder"


def is_run(path: Path) -> bool:
    """Tell whether a run was begun in this folder; it need not have a checkpoint yet."""
    if not path.is_dir():
        return False
    return (
        _has_checkpoint(path)
        or lock.read_owner(path) is not None
        or logs.read_status(path / logs.STATUS_NAME) is not None
    )


def check_is_run(path: Path) -> None:
    """Raise ``RunError`` unless ``path`` is a run folder."""
    if not os.path.lexists(path):
        raise RunError(f"there is no run folder {path}", help="check the spelling, or train one: attnkit train -o RUN")
    if not path.is_dir():
        raise RunError(f"{path} is no run folder but a file", help="name the folder that attnkit train wrote")
    if (path / manifest.FILE_NAME).exists() and path.resolve().parent.name == "checkpoints":
        run = path.resolve().parent.parent
        raise RunError(f"{path} is one checkpoint of a run", help=f"name {run} and add --checkpoint {path.name}")
    if not is_run(path):
        raise RunError(f"{path} is no run folder", help="name the folder that attnkit train wrote")


def check_target_dir(path: Path) -> None:
    """Raise ``RunError`` when a run cannot be begun or continued at ``path`` because something else lies there."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise RunError(f"{path} is no folder", help=_ELSEWHERE)
    for name in ("checkpoints", "data"):
        check_not_symlink(path / name)
    try:
        # A process killed while it began leaves no more than an empty lock file.
        empty = all(entry.name == lock.FILE_NAME for entry in path.iterdir())
    except OSError as error:
        raise system_failure("read", path, error) from error
    if not empty and not is_run(path):
        raise RunError(f"{path} holds other files and no run", help=_ELSEWHERE)


def check_not_symlink(folder: Path) -> None:
    """Raise ``RunError`` when a folder inside a run is a link or a file: a run writes nowhere but inside itself."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunError(f"{folder} is no folder of this run", help="put the folder itself in its place")


def _has_checkpoint(path: Path) -> bool:
    folders = [path / "averaged", *(path / "checkpoints").glob("step-*")]
    return any((folder / manifest.FILE_NAME).exists() for folder in folders)
