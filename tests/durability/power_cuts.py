"""What a power cut can leave on a disk: a record of the calls that change it, and the states that POSIX allows after.

The disk has a volatile part, which every call changes, and a durable part, which a power cut leaves. What is enumerated
after each call, every choice combined with every other:

- A file holds what it held when it was last fsynced, or any later content, or one torn between the durable and a later
  content or between two that follow one another: its size is the old, the new or any page border between, and each page
  is the old or the new one (zeros where that one had none).
- A folder holds the names it held when it was last fsynced and a prefix of the changes made since (``PREFIXES``), or
  any part of them of which each still finds the name it works on (``SUBSETS``). A rename is one change, never half.
- Fsyncing one makes nothing else durable: neither a new file's name, nor what a named file or folder holds.

Not enumerated: three or more contents of a file mixed page by page, pages torn inside (4,096 bytes), a disk that lies.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

PAGE = 4096
MOST_SUBSETS = 8
Orders: TypeAlias = Literal["prefixes", "subsets"]
Names: TypeAlias = dict[str, int]
Tree: TypeAlias = "bytes | tuple[tuple[str, Tree], ...]"
"""The content of a file, or what a folder holds by name."""


class Change(NamedTuple):
    """Names that go from a folder, names that come, with the nodes they represent."""

    node: int
    gone: tuple[tuple[str, int], ...]
    come: tuple[tuple[str, int], ...]


class Content(NamedTuple):
    """A file holds something else."""

    node: int
    data: bytes


class Sync(NamedTuple):
    """A file or folder was fsynced, which was opened by this name."""

    node: int
    name: str


class Mark(NamedTuple):
    """What is promised from here on; until ``done`` the old may be true as well."""

    facts: Mapping[str, Any]
    done: bool


Op: TypeAlias = Change | Content | Sync | Mark


class Recorder:
    """Follows everything below a folder, empty at first, through the calls that change it. Nothing is fsynced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ops: list[Op] = []
        self.now: dict[int, Names | bytes] = {0: {}}
        self._descriptors: dict[int, tuple[int, str]] = {}
        self._inside = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Listen to ``os`` and to ``Path``, which calls it through references of its own in some releases."""
        notes: dict[str, Callable[..., None]] = {
            "open": self._open, "write": self._write, "pwrite": self._pwrite,
            "fsync": self._fsync, "ftruncate": self._cut,
            **dict.fromkeys(("unlink", "remove", "rmdir"), self._remove),
            **dict.fromkeys(("rename", "replace"), self._rename),
            "mkdir": self._make_folder,
        }  # fmt: skip
        for owner, name in itertools.product((os, Path), notes):
            if hasattr(owner, name) and not (owner is Path and name == "open"):
                patch.setattr(owner, name, self._listening(getattr(owner, name), notes[name]))

    def _listening(self, real: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self._inside:
                return real(*args, **options)
            self._inside = True
            try:
                result = None if note == self._fsync else real(*args, **options)
                note(result, *args, **options)
                return result
            finally:
                self._inside = False

        return call

    def mark(self, facts: Mapping[str, Any], done: bool) -> None:
        """Note what is promised once ``done``, and may be true already before."""
        self.ops.append(Mark(dict(facts), done))

    def node(self, path: Path | str) -> int | None:
        """Return what stands at a path now."""
        found = 0
        try:
            parts = Path(os.path.abspath(path)).relative_to(self.root).parts  # noqa: PTH100
        except ValueError:
            return None
        for part in parts:
            names = self.now.get(found)
            if not isinstance(names, dict) or part not in names:
                return None
            found = names[part]
        return found

    def tree(self, node: int = 0) -> Tree:
        """Return what the record says lies on the disk now."""
        held = self.now[node]
        return held if isinstance(held, bytes) else tuple((name, self.tree(held[name])) for name in sorted(held))

    def _place(self, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
        path = Path(os.fsdecode(path))
        folder = self.node(path.parent) if dir_fd is None else self._descriptors.get(dir_fd, (None,))[0]
        return None if folder is None else (folder, path.name)

    def _names(self, folder: int) -> Names:
        names = self.now[folder]
        assert isinstance(names, dict)
        return names

    def _change(self, folder: int, gone: Iterable[str], come: Mapping[str, int]) -> None:
        names = self._names(folder)
        self.ops.append(Change(folder, tuple((name, names[name]) for name in gone), tuple(come.items())))
        self.now[folder] = apply(names, self.ops[-1])  # type: ignore[arg-type]

    def _hold(self, node: int, data: bytes) -> None:
        self.now[node] = data
        self.ops.append(Content(node, data))

    def _add(self, place: tuple[int, str], held: Names | bytes) -> None:
        node = len(self.now)
        self.now[node] = held
        self._change(place[0], (), {place[1]: node})

    def _open(self, result: int, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._descriptors.pop(result, None)
        if dir_fd is None and self.node(path) == 0:
            self._descriptors[result] = 0, ""
        elif (place := self._place(path, dir_fd)) is not None:
            if place[1] not in self._names(place[0]):
                self._add(place, b"")
            node = self._names(place[0])[place[1]]
            self._descriptors[result] = node, place[1]
            if flags & os.O_TRUNC and self.now[node]:
                self._hold(node, b"")

    def _write(self, result: int, descriptor: int, data: Any) -> None:
        if descriptor in self._descriptors:
            self._pwrite(result, descriptor, data, os.lseek(descriptor, 0, os.SEEK_CUR) - result)

    def _pwrite(self, result: int, descriptor: int, data: Any, start: int) -> None:
        node = self._descriptors.get(descriptor, (None,))[0]
        if node is not None:
            held = self.now[node]
            assert isinstance(held, bytes)
            written = bytes(memoryview(data)[:result])
            self._hold(node, held[:start].ljust(start, b"\0") + written + held[start + result :])

    def _cut(self, result: None, descriptor: int, size: int) -> None:
        node = self._descriptors.get(descriptor, (None,))[0]
        if node is not None:
            held = self.now[node]
            assert isinstance(held, bytes)
            self._hold(node, held[:size].ljust(size, b"\0"))

    def _fsync(self, result: None, descriptor: int) -> None:
        if descriptor in self._descriptors:
            self.ops.append(Sync(*self._descriptors[descriptor]))

    def _make_folder(self, result: None, path: Any, *options: Any, dir_fd: int | None = None, **more: Any) -> None:
        place = self._place(path, dir_fd)
        if place is not None and place[1] not in self._names(place[0]):
            self._add(place, {})

    def _remove(self, result: None, path: Any, *, dir_fd: int | None = None, missing_ok: bool = False) -> None:
        place = self._place(path, dir_fd)
        if place is not None and place[1] in self._names(place[0]):
            self._change(place[0], [place[1]], {})

    def _rename(self, result: Any, source: Any, goal: Any, **options: Any) -> None:
        old, new = self._place(source, None), self._place(goal, None)
        if old is not None or new is not None:
            assert old is not None and new is not None and old[0] == new[0], "a move between folders is not modelled"
            self._change(old[0], [old[1]], {new[1]: self._names(old[0])[old[1]]})


class Disk:
    """The durable state of every node and what was done since, while a record is played."""

    def __init__(self, record: Recorder, orders: Orders) -> None:
        self._orders = orders
        self._durable: dict[int, Names | bytes] = {
            node: b"" if isinstance(held, bytes) else {} for node, held in record.now.items()
        }
        self._later: dict[int, list[Change | Content]] = {}

    def do(self, op: Op) -> None:
        """Play one call."""
        if isinstance(op, Sync):
            held = self._durable[op.node]
            for later in self._later.pop(op.node, []):
                held = later.data if isinstance(later, Content) else apply(held, later)  # type: ignore[arg-type]
            self._durable[op.node] = held
        elif not isinstance(op, Mark):
            self._later.setdefault(op.node, []).append(op)

    def trees(self, node: int = 0) -> list[Tree]:
        """Return every state that a power cut may leave now."""
        held, later = self._durable[node], self._later.get(node, [])
        if isinstance(held, bytes):
            return list(contents(held, [op.data for op in later if isinstance(op, Content)]))
        found: dict[Tree, None] = {}
        for names in listings(held, [op for op in later if isinstance(op, Change)], self._orders):
            below = [self.trees(names[name]) for name in sorted(names)]
            found |= {tuple(zip(sorted(names), chosen, strict=True)): None for chosen in itertools.product(*below)}
        return list(found)


def apply(names: Names, change: Change) -> Names:
    """Return what a folder holds after a change."""
    left = {name: node for name, node in names.items() if (name, node) not in change.gone}
    return {**left, **dict(change.come)}


def listings(durable: Names, changes: list[Change], orders: Orders) -> Iterator[Names]:
    """Yield what a folder may hold after a power cut."""
    everything = range(len(changes))
    parts: Iterable[Iterable[int]] = [range(n) for n in range(len(changes) + 1)]
    if orders == "subsets" and len(changes) <= MOST_SUBSETS:
        parts = (part for n in range(len(changes) + 1) for part in itertools.combinations(everything, n))
    elif orders == "subsets":
        parts = [*parts, *([n for n in everything if n != left] for left in everything)]
    for part in parts:
        names = durable
        for number in part:
            if not all(names.get(name) == node for name, node in changes[number].gone):
                break
            names = apply(names, changes[number])
        else:
            yield names


def contents(durable: bytes, later: list[bytes]) -> dict[bytes, None]:
    """Return what a file may hold after a power cut, in a fixed order."""
    found = {durable: None}
    for before, after in itertools.pairwise([durable, *later]):
        found |= dict.fromkeys([*torn(before, after), *torn(durable, after)])
    return found


def torn(before: bytes, after: bytes) -> Iterator[bytes]:
    """Yield every mixture of two contents, page by page, of every size that lies between."""
    shorter, longer = sorted((len(before), len(after)))
    borders = range(shorter // PAGE * PAGE + PAGE, longer, PAGE)
    for size in (shorter, *borders, longer):
        pages = []
        for start in range(0, size, PAGE):
            length = min(PAGE, size - start)
            pages.append({data[start : start + length].ljust(length, b"\0"): None for data in (before, after)})
        yield from map(b"".join, itertools.product(*pages))
