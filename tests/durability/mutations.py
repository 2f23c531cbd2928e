"""Seeded damage to bytes, to trees of JSON and to run folders, and manifests that vouch for what they should not."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from attnkit.checkpoints import checkpoint as manifest

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3.5, 1 << 31, 1 << 63, 10**40, 1e308, float("nan"), float("-inf")),
    *("", "..", "../x", "/etc/passwd", "\0", "\ud800", "nan", "a" * 3000, [], {}, [[]], [0, 1], {"a": {}}, ["a", 0.5]),
)
PARTS = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"NaN", b"-1", b"1e999", b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"../"),
    *(b"\\ud800", b"!!python/object/apply:os.system ['true']", b"&a [*a]", b"\n", b"\r", b"\t", b"\xe2\x80\xa8", b'"'),
    *(b": ", b"- ", b"}", b"]", b",", b"null", b"1" * 20, b"<unk>", b"\xef\xbb\xbf", b"a" * 9_000),
)


def mutate_bytes(raw: bytes, source: random.Random) -> bytes:
    """Return bytes with one to three changes: flipped bits, parts inserted, removed, doubled, moved or overwritten."""
    data = bytearray(raw)
    for _ in range(source.randint(1, 3)):
        at, end = sorted(source.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + source.choice((1, 4, 30, 1000)))
        kind = source.randrange(6)
        if kind == 0 and data:
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        elif kind == 1:
            data[at:at] = source.choice(PARTS)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end]
        elif kind == 4:
            data[at:end] = source.choice(PARTS)
        else:
            data[at:end] = source.randbytes(end - at)
    return bytes(data)


def mutate_tree(tree: Any, source: random.Random) -> Any:
    """Return a tree of JSON with one to three values changed, removed, renamed or put elsewhere."""
    tree = {"": copy.deepcopy(tree)}
    for _ in range(source.randint(1, 3)):
        inside, key = source.choice(places(tree, source))
        kind = source.randrange(5)
        value = inside[key]
        if kind == 0 and isinstance(inside, dict) and key:
            inside[source.choice(("a", key + "x", "../x", "", key.upper()))] = inside.pop(key)
        elif kind == 1 and key != "":
            del inside[key]
        elif kind == 2 and isinstance(value, int | float) and value == value and abs(value) < 1e300:
            inside[key] = source.choice((value + 1, -value, value * 2, value + 0.5, str(value), [value]))
        elif kind == 3:
            other, name = source.choice(places(tree, source))
            inside[key] = copy.deepcopy(other[name])
        else:
            inside[key] = copy.deepcopy(source.choice(VALUES))
    return tree[""]


def places(tree: Any, source: random.Random) -> list[tuple[Any, Any]]:
    """Return where values occur in a tree, few of them inside what is long."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        inside = waiting.pop()
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        for key in keys if len(keys) < 40 else source.sample(keys, 12):
            found.append((inside, key))
            if isinstance(inside[key], dict | list):
                waiting.append(inside[key])
    return found


def mutate_json(raw: bytes, source: random.Random) -> bytes:
    """Return changed JSON, in two cases of three still well-formed."""
    if source.random() < 0.33:
        return mutate_bytes(raw, source)
    return json.dumps(mutate_tree(json.loads(raw), source)).encode()


def mutate_safetensors(raw: bytes, source: random.Random) -> bytes:
    """Return a file of tensors whose header is changed, or the length of the header, or what follows."""
    n_header = int.from_bytes(raw[:8], "little")
    header, rest = raw[8 : 8 + n_header], raw[8 + n_header :]
    kind = source.randrange(6)
    if kind == 0:
        wrong = source.choice((0, 1, n_header - 1, n_header + 8, len(raw), 1 << 40, (1 << 64) - 1))
        return wrong.to_bytes(8, "little") + raw[8:]
    if kind == 1:
        rest = mutate_bytes(rest, source)
    else:
        header = mutate_json(header.rstrip(), source)
        if source.random() < 0.5:  # of the same size, so that no length gives it away
            header = header[:n_header].ljust(n_header)
    return len(header).to_bytes(8, "little") + header + rest


def resign(checkpoint: Path) -> None:
    """Write a manifest that vouches for what lies in a checkpoint's folder now."""
    step = int(checkpoint.name.partition("-")[2] or 0)  # the old manifest may be damaged
    contents = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.name != manifest.FILE_NAME}
    (checkpoint / manifest.FILE_NAME).write_bytes(manifest.describe(step, contents).render())


def vouch(checkpoint: Path, file: str, size: int) -> None:
    """Let the manifest say that a file has a size, whatever its content is."""
    tree = json.loads((checkpoint / manifest.FILE_NAME).read_bytes())
    del tree["sha256"]
    tree["files"][file]["size"] = size
    (checkpoint / manifest.FILE_NAME).write_bytes(manifest.Manifest.model_validate(tree).render())


def mutate_folder(run: Path, source: random.Random, outside: Path) -> None:
    """Change one to three things in a run folder: content, kind or name of a file, and perhaps the manifest with it."""
    for _ in range(source.randint(1, 3)):
        path = source.choice(sorted(run.rglob("*")))
        kind = source.randrange(8)
        if kind < 3 and path.is_file() and not path.is_symlink():
            path.write_bytes(mutate_bytes(path.read_bytes(), source))
            if "checkpoints" in path.parts and path.name != manifest.FILE_NAME and source.random() < 0.8:
                if not any(other.is_symlink() or not other.is_file() for other in path.parent.iterdir()):
                    if (path.parent / manifest.FILE_NAME).exists():
                        resign(path.parent)
            continue
        goal = path.with_name(source.choice((*(other.name for other in path.parent.iterdir()), "other")))
        _remove(path) if kind < 7 else None
        if kind == 3:
            path.symlink_to(source.choice((outside, outside / "text", Path("/dev/zero"), Path("nowhere"), path)))
        elif kind == 4:
            os.mkfifo(path)
        elif kind == 5:
            path.mkdir()
        elif kind == 7 and goal != path:
            _remove(goal)
            path.rename(goal)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
