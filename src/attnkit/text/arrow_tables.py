"""Columns of Parquet and Arrow files, by the package pyarrow (extra ``data``).

The files of a data set that the library ``datasets`` saved are Arrow files, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    try:
        import pyarrow
        from pyarrow import compute, parquet
    except ImportError as error:
        what = f"{path.suffix} files need the package pyarrow, which is not installed"
        raise UsageError(what, where=str(path), help='pip install "attnkit[data]"') from error
    if path.suffix.lower() in OPENERS:
        raise DataError("Parquet and Arrow files cannot be compressed as a whole", where=str(path), help="unpack it")
    open_file(path).close()  # with its own errors
    n_rows = 0
    with _damage(pyarrow, path):
        for batch in _batches(pyarrow, parquet, path, field):
            values = _nested(compute, batch, field)
            for value in values.to_pylist():
                n_rows += 1
                yield value


def _batches(pyarrow: Any, parquet: Any, path: Path, field: str) -> Iterator[Any]:
    """Yield batches of rows, of Parquet with the column alone."""
    with safe_read.open_regular_file(path, follow=True) as stream:
        if path.suffix.lower() == ".parquet":
            limits = {"thrift_string_size_limit": _MAX_METADATA, "thrift_container_size_limit": _MAX_METADATA}
            file = parquet.ParquetFile(stream, **limits)
            name = _check(pyarrow, file.schema_arrow, field, path)
            yield from file.iter_batches(batch_size=_BATCH, columns=[name])
            return
        magic = stream.read(6)
        stream.seek(0)
        if magic == b"ARROW1":
            reader = pyarrow.ipc.open_file(stream)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            reader = batches = pyarrow.ipc.open_stream(stream)
        _check(pyarrow, reader.schema, field, path)
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


@contextmanager
def _damage(pyarrow: Any, path: Path) -> Iterator[None]:
    """Convert the errors of pyarrow to ``DataError``."""
    try:
        yield
    except AttnkitError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, MemoryError) as error:
        safe_read.check_system(path, error)
        reason = " ".join(str(error).split())[:120]
        what = f"the file is damaged, truncated or of another format: {reason}"
        raise DataError(what, where=str(path), help="download it again") from error
