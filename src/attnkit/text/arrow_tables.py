"""Columns of Parquet and Arrow files, by the package pyarrow (extra ``data``).

The files of a data set that the library ``datasets`` saved are Arrow files, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.io import safe_read
from attnkit.text.files import OPENERS, no_field, open_file

_BATCH = 1024  # rows converted at once
_MAX_METADATA = 1 << 26  # bytes of a string, and entries of a list, in the metadata of Parquet


def read_column(path: Path, field: str) -> Iterator[str | None]:
    """Yield the values of a column, nested ones by a dotted name; None for null.

    Raises ``DataError`` if the file is damaged or the column is missing or no text, ``UsageError`` without pyarrow.
    """
    with _reading(path) as (pyarrow, compute, parquet):
        for batch in _batches(pyarrow, parquet, path, lambda schema: [_check(pyarrow, schema, field, path)]):
            yield from _nested(compute, batch, field).to_pylist()


def read_table(path: Path) -> Iterator[Sequence[Any]]:
    """Yield the names of the columns of text and numbers, then the values of each row.

    Numbers of a ``ClassLabel`` become names. Raises like ``read_column``.
    """
    names: list[str] = []
    labels: dict[str, list[str]] = {}
    with _reading(path) as (pyarrow, _, parquet):

        def choose(schema: Any) -> list[str]:
            names.extend(column.name for column in schema if _is_cell(pyarrow, column.type))
            labels.update(_class_labels(schema.metadata or {}))
            return names

        is_first = True
        for batch in _batches(pyarrow, parquet, path, choose):
            if is_first:
                yield list(names)
                is_first = False
            columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
            for name, column in zip(names, columns, strict=True):
                if name in labels:
                    column[:] = [_class_name(labels[name], value) for value in column]
            yield from zip(*columns, strict=True)


def _is_cell(pyarrow: Any, kind: Any) -> bool:
    types = pyarrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(is_text or types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind))


def _class_labels(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of the classes of each column that ``datasets`` recorded."""
    found = {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # others' metadata
        for name, feature in safe_read.parse_json(metadata[b"huggingface"])["info"]["features"].items():
            classes = feature.get("names") if isinstance(feature, dict) else None
            if isinstance(classes, list) and all(isinstance(one, str) for one in classes):
                found[name] = classes
    return found


def _class_name(classes: Sequence[str], value: Any) -> Any:
    return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else value


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Yield pyarrow and two of its modules; its errors within become ``DataError``."""
    try:
        import pyarrow
        from pyarrow import compute, parquet
    except ImportError as error:
        what = f"{path.suffix} files need the package pyarrow, which is not installed"
        raise UsageError(what, where=str(path), help='pip install "attnkit[data]"') from error
    if path.suffix.lower() in OPENERS:
        raise DataError("Parquet and Arrow files cannot be compressed as a whole", where=str(path), help="unpack it")
    open_file(path).close()  # with its own errors
    try:
        yield pyarrow, compute, parquet
    except AttnkitError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, MemoryError) as error:
        safe_read.check_system(path, error)
        reason = " ".join(str(error).split())[:120]
        what = f"the file is damaged, truncated or of another format: {reason}"
        raise DataError(what, where=str(path), help="download it again") from error


def _batches(pyarrow: Any, parquet: Any, path: Path, choose: Callable[[Any], list[str]]) -> Iterator[Any]:
    """Yield batches of rows; of Parquet with the columns alone that are chosen."""
    with safe_read.open_regular_file(path, follow=True) as stream:
        if path.suffix.lower() == ".parquet":
            limits = {"thrift_string_size_limit": _MAX_METADATA, "thrift_container_size_limit": _MAX_METADATA}
            file = parquet.ParquetFile(stream, **limits)
            yield from file.iter_batches(batch_size=_BATCH, columns=choose(file.schema_arrow))
            return
        magic = stream.read(6)
        stream.seek(0)
        if magic == b"ARROW1":
            reader = pyarrow.ipc.open_file(stream)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            reader = batches = pyarrow.ipc.open_stream(stream)
        choose(reader.schema)
        for batch in batches:
            batch.validate(full=True)  # Arrow trusts its files: wrong offsets would end the process
            for begin in range(0, batch.num_rows, _BATCH):
                yield batch.slice(begin, _BATCH)


def _check(pyarrow: Any, schema: Any, field: str, path: Path) -> str:
    """Return the column to read; raise ``DataError`` if it is missing or not text."""
    if field in schema.names:
        kind, name = schema.field(field).type, field
    else:
        first, *keys = field.split(".")
        if first not in schema.names:
            raise no_field(field, list(_leaves(pyarrow, schema)), str(path), "column")
        kind, name = schema.field(first).type, field
        for key in keys:
            if not pyarrow.types.is_struct(kind) or kind.get_field_index(key) < 0:
                raise no_field(field, list(_leaves(pyarrow, schema)), str(path), "column")
            kind = kind.field(kind.get_field_index(key)).type
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        inside = f"{field}." if types.is_struct(kind) else ""
        names = [f"{inside}{kind.field(i).name}" for i in range(min(8, kind.num_fields))] if inside else []
        help = f"columns: {', '.join(names)}" if names else None
        raise DataError(f"column '{field}' is {str(kind)[:60]}, not text", where=str(path), help=help)
    return name


def _leaves(pyarrow: Any, schema: Any) -> Iterator[str]:
    """Yield the names of columns, and those of one level of nesting with their dots."""
    for column in schema:
        if pyarrow.types.is_struct(column.type):
            for number in range(column.type.num_fields):
                yield f"{column.name}.{column.type.field(number).name}"
        else:
            yield column.name


def _nested(compute: Any, batch: Any, field: str) -> Any:
    """Return the array of a column of a batch."""
    if field in batch.schema.names:
        return batch.column(batch.schema.get_field_index(field))
    first, *keys = field.split(".")
    array = batch.column(batch.schema.get_field_index(first))
    for key in keys:
        # field() alone ignores that a whole struct may be null.
        array = compute.struct_field(array, [array.type.get_field_index(key)])
    return array
