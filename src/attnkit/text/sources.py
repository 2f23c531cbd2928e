"""Sources of text: a file, a pattern or folder of shards, or a field of tables.

A source is written as a path, such as ``a.en``, ``'shards/*.en.gz'``, ``shards/en`` or ``corpus.jsonl:en``. A file that
has exactly that name is that file. Whatever it is, a source is read as one stream of lines.
"""

from __future__ import annotations

import glob
import io
import json
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from attnkit.errors import DataError, UsageError
from attnkit.io import safe_read
from attnkit.text.files import BOM, OPENERS, STDIN, LineCounts, is_pattern, only_once, opened_file, suffix_of

if TYPE_CHECKING:
    from attnkit.text.field_values import FieldReader

DATASET = "state.json"  #: file that marks a folder as a data set saved by the library ``datasets``
SPLITS = "dataset_dict.json"  #: file that marks a folder of such folders
_MAX_STATE = 1 << 24  # bytes of these files
_MAX_SHOWN = 5  # names in a message
_BLOCK = 1 << 18  # bytes of text handed on at once
_BOM = BOM.encode()
_TABLES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".tmx")
_NO_TEXT = (".jsonl", ".ndjson", ".parquet", ".arrow", ".tmx")  # of no use as lines of text


@dataclass(frozen=True)
class TextSource:
    """Files that are read one after the other, and the field of each row, if any."""

    path: Path  #: as it was written
    files: tuple[Path, ...]
    field: str | None = None


def find_source(path: Path, *, whole: bool = False) -> TextSource | None:
    """Return the files and the field that a path names; None for a plain file.

    Missing files count as plain: whoever opens them reports it. Raises ``UsageError`` for a pattern without files, a
    folder of files of several kinds, and a table without a field, unless it is read ``whole``.
    """
    if path == STDIN:
        return None
    if _is(path, "dir"):
        return TextSource(path, _shards(path, whole))
    if _is(path, "exists"):
        if suffix_of(path) in _NO_TEXT and not whole:
            raise _no_field(path, path)
        return None
    name, field = split_field(str(path))
    if field is not None:
        return TextSource(path, _tables(Path(name), path), field)
    if not is_pattern(name):
        return None
    files = _matches(name)
    if suffix_of(files[0]) in _NO_TEXT and not whole:
        raise _no_field(path, files[0])
    return TextSource(path, files)


def split_field(name: str) -> tuple[str, str | None]:
    """Divide a source at the colon between tables and their field, if there is one.

    >>> split_field("corpus.jsonl.gz:translation.en"), split_field("a:b")
    (('corpus.jsonl.gz', 'translation.en'), ('a:b', None))
    """
    for match in re.finditer(":", name):
        left, right = name[: match.start()], name[match.end() :]
        if right and left and (suffix_of(Path(left)) in _TABLES or is_pattern(left) or _is(Path(left), "dir")):
            return left, right
    return name, None


def source_name(value: Any) -> Any:
    """Return a source as one name, from ``{path: corpus.jsonl, field: en}``.

    Other values are returned as they are. Raises ``ValueError`` for other keys.

    >>> source_name({"path": "corpus.jsonl", "field": "en"}), source_name("a.en")
    ('corpus.jsonl:en', 'a.en')
    """
    if not isinstance(value, Mapping):
        return value
    if not {"path"} <= value.keys() <= {"path", "field"} or not all(isinstance(v, str | int) for v in value.values()):
        raise ValueError("a source of text is a name, or {path: corpus.jsonl, field: en}")
    return ":".join(str(value[key]) for key in ("path", "field") if key in value)


def source_files(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or those of its source."""
    source = None if _is(path, "file") else find_source(path, whole=True)
    return [path] if source is None else list(source.files)


def source_exists(path: Path) -> bool:
    """Return whether a file or the files of a source are there."""
    with suppress(UsageError, DataError):
        return all(_is(file, "exists") for file in source_files(path))
    return False


def source_stats(path: Path) -> list[Any]:
    """Return what tells whether a source has changed: name, size and time.

    These are the values of a file, or a name and a list of the values of its files. Raises ``OSError``.
    """
    if _is(path, "file") or find_source(path, whole=True) is None:
        return [path.name, path.stat().st_size, path.stat().st_mtime_ns]
    stats = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in source_files(path)]
    return [text_name(path), stats, str(path)]


def source_size(path: Path) -> int:
    """Return the number of bytes of all files of a source; raise ``OSError``."""
    return sum(file.stat().st_size for file in source_files(path))


def text_name(path: Path) -> str:
    """Return a name for a file with the text of a source.

    >>> text_name(Path("a/corpus.jsonl:translation.en")), text_name(Path("a/*.en")), text_name(Path("b/c.de"))
    ('corpus.en', 'a.en', 'c.de')
    """
    if _is(path, "exists"):
        return path.name
    name, field = split_field(str(path))
    base = Path(name)
    if not (field or is_pattern(name)):
        return path.name
    stem = base.name.split(".")[0]
    if is_pattern(stem):
        parents = [part for part in base.parent.parts if not is_pattern(part) and part != base.anchor]
        stem = parents[-1] if parents else "text"
    end = language_of(path)
    return f"{stem}.{end}" if end and not is_pattern(end) else stem


def language_of(path: Path) -> str:
    """Return what may be a language in a name: its suffix, or the end of its field.

    >>> language_of(Path("a.en.gz")), language_of(Path("a.jsonl:translation.de")), language_of(Path("a"))
    ('en', 'de', '')
    """
    name, field = (str(path), None) if _is(path, "exists") else split_field(str(path))
    if field is not None:
        return re.sub(r"[^\w-]", "_", re.split(r"[./]", field)[-1])
    base = Path(name)
    return (Path(base.stem) if base.suffix.lower() in OPENERS else base).suffix[1:]


def read_head(path: Path, n_bytes: int) -> tuple[bytes, float]:
    """Return the first words of a source, decompressed, and their approximate share."""
    if (source := find_source(path)) is not None:
        with open_source(source) as lines:
            raw, size = lines.read(n_bytes), source_size(path)
            if not lines.read(1):
                return raw, 1.0
        return _whole_words(raw), min(1.0, len(raw) / size) if size else 1.0
    with opened_file(path, LineCounts()), path.open("rb") as packed:
        unpack = OPENERS.get(path.suffix.lower())
        stream = packed if unpack is None else cast(BinaryIO, unpack(packed))
        raw, size = stream.read(n_bytes), path.stat().st_size
        position = packed.tell()
        if not stream.read(1):
            return raw, 1.0
    return _whole_words(raw), min(1.0, position / size) if size else 1.0


def _whole_words(raw: bytes) -> bytes:
    return raw[: max(raw.rfind(b"\n"), raw.rfind(b" ")) + 1 or len(raw)]


def open_source(source: TextSource) -> BinaryIO:
    """Open a source as a stream of lines; its first lines are read at once.

    So a missing file or field is reported before anything is done with the text.
    """
    stream = LineStream(source)
    return cast(BinaryIO, io.BufferedReader(stream, _BLOCK))


class LineStream(io.RawIOBase):
    """Stream of the lines of all files of a source, each with its line feed."""

    def __init__(self, source: TextSource) -> None:
        self.n_line_breaks = 0  #: values whose line breaks became spaces
        self._reader: FieldReader | None = None
        if source.field is not None:
            from attnkit.text.field_values import FieldReader  # imported here: most corpora are plain files

            self._reader = FieldReader(source.field)
        self._blocks = self._read(source)
        self._rest = memoryview(next(self._blocks, b""))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer and return the number of bytes; 0 at the end."""
        if not len(self._rest):
            self._rest = memoryview(next(self._blocks, b""))
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        if self._reader is not None:
            self.n_line_breaks = self._reader.n_line_breaks
        return n

    def close(self) -> None:
        """Close the open file."""
        self._blocks.close()
        super().close()

    def _read(self, source: TextSource) -> Generator[bytes, None, None]:
        for file in source.files:
            yield from _text_blocks(file) if self._reader is None else _value_blocks(self._reader.values(file))
        if self._reader is not None:
            self._reader.finish(source.files)


def _text_blocks(file: Path) -> Iterator[bytes]:
    """Yield a text file in blocks; the last line ends in a line feed."""
    last, is_first = b"\n", True
    with opened_file(file, LineCounts()) as stream:
        while block := stream.read(_BLOCK):
            last, text = block[-1:], block.removeprefix(_BOM) if is_first else block
            is_first = False
            if text:
                yield text
    if last != b"\n":
        yield b"\n"


def _value_blocks(values: Iterator[bytes]) -> Iterator[bytes]:
    """Yield values as lines, in blocks."""
    lines: list[bytes] = []
    size = 0
    for value in values:
        lines += value, b"\n"
        size += len(value) + 1
        if size >= _BLOCK:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _is(path: Path, what: str) -> bool:
    """Return whether a path is a folder (``dir``), a ``file`` or exists."""
    with suppress(OSError, ValueError):  # e.g. a name that is too long
        return {"dir": path.is_dir, "file": path.is_file, "exists": path.exists}[what]()
    return False


def _matches(pattern: str) -> tuple[Path, ...]:
    """Return the files of a pattern, sorted by name."""
    # Path.glob takes no absolute patterns.
    files = tuple(sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file()))  # noqa: PTH207
    if not files:
        raise UsageError(f"no file matches {pattern}", help="check the spelling of the path")
    return files


def _shards(folder: Path, whole: bool) -> tuple[Path, ...]:
    """Return the text files of a folder, sorted by name; hidden ones are left out."""
    if (folder / DATASET).is_file() or (folder / SPLITS).is_file():
        if whole:
            return _tables(folder, folder)
        raise _no_field(folder, folder)
    files = tuple(sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] not in "._"))
    kinds = sorted({"" if (end := suffix_of(path))[1:].isdigit() else end for path in files})
    if not files:
        raise UsageError(f"{folder} is a folder without text files", help="name a text file in it")
    if len(kinds) > 1:
        shown = ", ".join(kind or "none" for kind in kinds[:_MAX_SHOWN])
        help = f"name a file, or a pattern in quotation marks: '{folder}/*{kinds[-1]}'"
        raise UsageError(f"{folder} is a folder of files of several kinds (suffixes: {shown})", help=help)
    if kinds[0] in _NO_TEXT and not whole:
        raise _no_field(folder, files[0])
    return files


def _tables(path: Path, source: Path) -> tuple[Path, ...]:
    """Return the tables that are named before the field of a source."""
    if _is(path, "dir"):
        if (path / SPLITS).is_file():
            splits = [part for part in _state(path / SPLITS).get("splits", []) if isinstance(part, str)]
            field = "" if source == path else f":{str(source)[len(str(path)) + 1 :]}"
            help = f"name a split: {path}/{splits[0] if splits else 'train'}{field}"
            raise UsageError(f"{path} has several splits: {', '.join(splits[:_MAX_SHOWN])}", help=help)
        if (path / DATASET).is_file():
            return _dataset_files(path)
        found = [file for file in path.iterdir() if file.is_file() and file.name[0] not in "._"]
        files = tuple(sorted(file for file in found if suffix_of(file) in _TABLES))
        if not files or len({suffix_of(file) for file in files}) > 1:
            what = f"{path} is a folder {'of tables of several kinds' if files else 'without tables'}"
            raise UsageError(what, where=str(source), help=f"tables end in {', '.join(_TABLES)}")
        return files
    if _is(path, "exists") or not is_pattern(str(path)):
        if only_once(path):
            raise UsageError(f"{path} can be read only once", help="write it to a file first")
        return (path,)
    files = _matches(str(path))
    if wrong := [file for file in files if suffix_of(file) not in _TABLES]:
        what = f"{wrong[0]} is not a table, so it has no field"
        raise UsageError(what, where=str(source), help=f"tables end in {', '.join(_TABLES)}")
    return files


def _dataset_files(folder: Path) -> tuple[Path, ...]:
    """Return the Arrow files of a data set, in the order of its state."""
    state = _state(folder / DATASET)
    entries = state.get("_data_files")
    found = entries if isinstance(entries, list) else []
    names = [str(entry.get("filename")) for entry in found if isinstance(entry, dict)]
    if not names or not all(re.fullmatch(r"[\w-][\w.-]*\.arrow", name) for name in names):
        what = "the list of files of this data set is damaged: _data_files"
        raise DataError(what, where=str(folder / DATASET), help="save it again with save_to_disk")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        what = "the rows of this data set are selected by indices, which are not read"
        raise DataError(what, where=str(folder / DATASET), help="call flatten_indices() before save_to_disk")
    files = tuple(folder / name for name in names)
    if wrong := [file for file in files if _is(file, "exists") and not _is(file, "file")]:
        raise DataError("this part of a data set is not a plain file", where=str(wrong[0]))
    return files


def _state(path: Path) -> dict[str, Any]:
    """Read a JSON file of a data set; raise ``DataError`` if it is damaged."""
    try:
        state = safe_read.parse_json(safe_read.read_regular_file(path, _MAX_STATE, follow=True))
    except (OSError, ValueError, json.JSONDecodeError) as error:
        safe_read.check_system(path, error)
        raise DataError(f"this file of a data set is damaged: {error}", where=str(path)) from error
    if not isinstance(state, dict):
        raise DataError("this file of a data set is damaged: it is not a mapping", where=str(path))
    return state


def _no_field(path: Path, file: Path) -> UsageError:
    """Return the error for a table that was given without a field."""
    what = f"{path} is a table of several fields, not text"
    name = f"'{path}:FIELD'" if is_pattern(str(path)) else f"{path}:FIELD"
    kind = "data set" if file == path and suffix_of(file) not in _TABLES else suffix_of(file)
    example = {".tmx": "a language such as en", "data set": "a column such as translation.en"}.get(kind, "such as en")
    return UsageError(what, help=f"name its field, {example}: {name}")
