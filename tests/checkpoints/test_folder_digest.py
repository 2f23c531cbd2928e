"""What a folder without a manifest must look like: every change in any of its files is seen."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from attnkit.io.safe_read import Contents, describe_folder, find_mismatches, with_checksum

FILES = {"index.json": 90, "train/src/ids.bin": 9000, "train/src/offsets.bin": 800, "valid.src.txt": 300}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = random.Random(0)
    for name, size in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source.randbytes(size))
    return tmp_path


def test_every_change_is_seen_and_named(folder: Path) -> None:
    contents = describe_folder(folder)
    assert {name: entry.size for name, entry in contents.items()} == FILES
    assert list(find_mismatches(folder, contents)) == []
    for number in range(200):
        source, name = random.Random(number), list(FILES)[number % len(FILES)]
        path = folder / name
        good = path.read_bytes()
        data = bytearray(good)
        kind = number // len(FILES) % 4
        if kind == 0:
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        elif kind == 1:
            del data[source.randrange(len(data)) :]
        elif kind == 2:
            data += b"\0"
        path.unlink()
        if kind < 3:
            path.write_bytes(data)
        (said,) = find_mismatches(folder, contents)
        assert said.startswith(f"{name} ")
        path.unlink(missing_ok=True)
        path.write_bytes(good)


def test_links_and_pipes_are_no_files(folder: Path) -> None:
    contents = describe_folder(folder)
    path = folder / "valid.src.txt"
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert [said.split(":")[0] for said in find_mismatches(folder, contents)] == ["valid.src.txt cannot be read"]
    path.unlink()
    os.mkfifo(path)
    assert list(find_mismatches(folder, contents)) == ["valid.src.txt cannot be read: not a regular file"]


def test_a_linked_folder_is_told_and_nothing_behind_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = describe_folder(folder)
    monkeypatch.setattr("attnkit.io.safe_read.open_regular_file", None)
    for name in ("train/src", "train"):
        (folder / name).rename(folder / "elsewhere")
        (folder / name).symlink_to(folder / "elsewhere")
        assert list(find_mismatches(folder, contents)) == [f"{name} is a symbolic link"]
        (folder / name).unlink()
        (folder / "elsewhere").rename(folder / name)
    (folder / "link").symlink_to(folder)
    assert list(find_mismatches(folder / "link", contents)) == ["link is a symbolic link"]


def test_every_bit_of_a_signed_index_counts() -> None:
    raw = with_checksum({"counts": {"train": 3}, "files": {"a": "b"}, "origin": None})
    assert with_checksum(json.loads(raw)) == raw
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            try:
                found = json.loads(changed)
            except ValueError:
                continue
            assert not isinstance(found, dict) or with_checksum(found) != bytes(changed), (place, bit)


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/passwd", ".hidden", "a//b", "", "a/b/c/d/e", "a\n"])
def test_paths_that_lead_elsewhere_are_refused(name: str) -> None:
    entry = {"size": 1, "sha256": "0" * 64}
    adapter: TypeAdapter[Contents] = TypeAdapter(Contents)
    assert adapter.validate_python({"a/b.c": entry})["a/b.c"].size == 1
    with pytest.raises(ValidationError):
        adapter.validate_python({name: entry})
