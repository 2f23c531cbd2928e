"""Reader of ``pytorch_model.bin``: an interpreter of the opcodes of state dicts.

It builds tuples, lists, dictionaries, numbers and texts, and descriptions of tensors. It imports nothing, calls nothing
and makes no object of a class that the file names: the few names that state dicts contain are known by their text, and
any other name or opcode is refused. Both formats of torch are read: archives (since torch 1.6), whose members must not
be compressed, and the sequences of pickles before them, as most of OPUS-MT has. Torch-free.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from attnkit.io.safe_read import ITEM_BYTES, TensorEntry

MAX_PICKLE_BYTES = 1 << 25  #: limit on a pickle; ten thousand tensors take about 2 MB
MAX_VALUES = 1 << 22  #: limit on the values of a pickle
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_DTYPES = {"Float": "F32", "Half": "F16", "BFloat16": "BF16", "Double": "F64", "Long": "I64", "Int": "I32"}
_DTYPES |= {"Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL"}
DTYPES = {f"{name}Storage": dtype for name, dtype in _DTYPES.items()}
"""Name of a type of storage in torch -> dtype, by names of safetensors."""
Name = tuple[str, str]
_DICT: Name = ("collections", "OrderedDict")
_TENSOR: Name = ("torch._utils", "_rebuild_tensor_v2")
_PARAMETER: Name = ("torch._utils", "_rebuild_parameter")


class _Global(NamedTuple):
    """A name in a pickle; it stays a name."""

    module: str
    name: str


_KNOWN = {_DICT, _TENSOR, _PARAMETER, *(("torch", name) for name in DTYPES)}


@dataclass(frozen=True)
class _Storage:
    dtype: str
    key: str
    n_items: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int  #: in items
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Mark on the stack."""


_MARK = _Mark()


class PickledTensors(NamedTuple):
    """Places of tensors in a file, and strides in items of transposed ones."""

    entries: dict[str, TensorEntry]
    strides: dict[str, tuple[int, ...]]


def read_pickled(stream: BinaryIO) -> PickledTensors:
    """Return the tensors of a state dict; raise ``ValueError`` if it is anything else."""
    size = os.fstat(stream.fileno()).st_size
    if stream.read(4) == b"PK\x03\x04":
        found, places = _read_archive(stream, size)
    else:
        stream.seek(0)
        found, places = _read_sequence(stream, size)
    if not isinstance(found, dict) or not all(isinstance(tensor, _Tensor) for tensor in found.values()):
        raise ValueError("it is not a state dict, a mapping of names to tensors")
    entries: dict[str, TensorEntry] = {}
    strides: dict[str, tuple[int, ...]] = {}
    for name, tensor in found.items():
        entries[name] = _entry(name, tensor, places)
        plain = tuple(math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape)))
        if any(n > 1 and own != usual for n, own, usual in zip(tensor.shape, tensor.strides, plain, strict=True)):
            strides[name] = tensor.strides
    return PickledTensors(entries, strides)


def _entry(name: str, tensor: _Tensor, places: dict[str, tuple[int, int]]) -> TensorEntry:
    """Return a tensor's place; raise ``ValueError`` if outside of its storage."""
    storage, shape = tensor.storage, tensor.shape
    if storage.key not in places:
        raise ValueError(f"the storage of '{name[:80]}' is missing")
    begin, n_bytes = places[storage.key]
    item = ITEM_BYTES[storage.dtype]
    # Each axis steps over all items of the smaller ones: nothing overlaps, and nothing is left out.
    n_items, dense = math.prod(shape), True
    covered = 1
    for step, n in sorted((step, n) for n, step in zip(shape, tensor.strides, strict=True) if n > 1):
        dense, covered = dense and step == covered, covered * n
    fits = n_bytes >= item * storage.n_items and tensor.offset + n_items <= storage.n_items
    if not fits or (n_items and not dense):
        raise ValueError(f"'{name[:80]}' does not fit its storage")
    begin += item * tensor.offset
    return TensorEntry(storage.dtype, shape, begin, begin + item * n_items)


# --- both formats


def _read_archive(stream: BinaryIO, size: int) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Return the pickle of an archive, and place and size of each storage."""
    members = _members(stream, size)
    (prefix, *more) = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")] or [""]
    if not prefix or more:
        raise ValueError("it has no data.pkl, or several")
    order = members.get(f"{prefix}byteorder")
    if order is not None and _bytes_at(stream, *order, 16) != b"little":
        raise ValueError("its numbers are not little-endian")
    begin, n_bytes = members[f"{prefix}data.pkl"]
    found, _ = _Interpreter(_bytes_at(stream, begin, n_bytes, MAX_PICKLE_BYTES), 0).run()
    at = f"{prefix}data/"
    return found, {name.removeprefix(at): place for name, place in members.items() if name.startswith(at)}


def _members(stream: BinaryIO, size: int) -> dict[str, tuple[int, int]]:
    """Return begin and size of each member in the directory of a zip archive."""
    n_tail = min(size, 22 + (1 << 16))
    tail = _bytes_at(stream, size - n_tail, n_tail, n_tail)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        raise ValueError("the archive is truncated")
    n_members, n_directory, begin = struct.unpack_from("<10xHII", tail, at)
    if n_members == 0xFFFF or begin == 0xFFFFFFFF:
        raise ValueError("archives of more than 65,534 members or 4 GB are not supported")
    directory = _bytes_at(stream, begin, n_directory, 1 << 26)
    found: dict[str, tuple[int, int]] = {}
    place = 0
    for _ in range(n_members):
        if directory[place : place + 4] != b"PK\x01\x02" or place + 46 > len(directory):
            raise ValueError("the directory of the archive is damaged")
        method, packed, n_bytes, n_name, n_extra, n_comment, local = struct.unpack_from(
            "<10xH8xIIHHH8xI", directory, place
        )
        name = directory[place + 46 : place + 46 + n_name].decode()
        place += 46 + n_name + n_extra + n_comment
        if method or packed != n_bytes or name in found:
            raise ValueError("a member of the archive is compressed, or there twice")
        header = _bytes_at(stream, local, 30, 30)
        if header[:4] != b"PK\x03\x04":
            raise ValueError("the directory of the archive is damaged")
        data = local + 30 + sum(struct.unpack_from("<HH", header, 26))
        if data + n_bytes > size:
            raise ValueError("the archive is truncated")
        found[name] = data, n_bytes
    return found


def _bytes_at(stream: BinaryIO, begin: int, n_bytes: int, most: int) -> bytes:
    if n_bytes > most:
        raise ValueError(f"a part of it has {n_bytes:,} bytes, more than the maximum of {most:,}")
    stream.seek(begin)
    found = stream.read(n_bytes)
    if len(found) != n_bytes:
        raise ValueError("it is truncated")
    return found


def _read_sequence(stream: BinaryIO, size: int) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Return the state dict and the storages of a file before torch 1.6."""
    stream.seek(0)
    raw = stream.read(min(size, MAX_PICKLE_BYTES))
    if raw[:1] != b"\x80":
        raise ValueError("this is not a file of torch")
    at, values = 0, list[Any]()
    # Magic number, version, properties of the machine, the state dict, and the keys of its storages.
    for _ in range(5):
        value, at = _Interpreter(raw, at).run()
        values.append(value)
        if values[0] != _LEGACY_MAGIC:
            raise ValueError("this is not a file of torch")
    _, _, machine, found, keys = values
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise ValueError("it does not name its storages")
    storages = {tensor.storage.key: tensor.storage for tensor in _tensors(found)}
    places: dict[str, tuple[int, int]] = {}
    for key in keys:  # each storage is its number of items, in eight bytes, and the items
        n_items = int.from_bytes(_bytes_at(stream, at, 8, 8), "little")
        if key not in storages or storages[key].n_items != n_items:
            raise ValueError("its storages are not those that it names")
        n_bytes = n_items * ITEM_BYTES[storages[key].dtype]
        at += 8
        if at + n_bytes > size:
            raise ValueError("it is truncated")
        places[key] = at, n_bytes
        at += n_bytes
    return found, places


def _tensors(found: Any) -> list[_Tensor]:
    return [value for value in found.values() if isinstance(value, _Tensor)] if isinstance(found, dict) else []


# --- the interpreter


@dataclass
class _Interpreter:
    """Interpreter of one pickle of protocol 2, as torch writes them."""

    raw: bytes
    at: int
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> tuple[Any, int]:
        """Return the value and the place after it; raise ``ValueError`` if it is refused."""
        n_values = 0
        while True:
            opcode = self._take(1)[0]
            if opcode == 0x2E:  # STOP
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise ValueError("its pickle is damaged")
                return self.stack[0], self.at
            action = _ACTIONS.get(opcode)
            if action is None:
                raise ValueError(f"its pickle has the opcode {opcode:#04x}, which no state dict of tensors needs")
            action(self)
            n_values += 1
            if n_values > MAX_VALUES:
                raise ValueError(f"its pickle has more than {MAX_VALUES:,} values")

    def _take(self, n_bytes: int) -> bytes:
        found = self.raw[self.at : self.at + n_bytes]
        if len(found) != n_bytes:
            raise ValueError("its pickle is truncated, or too long")
        self.at += n_bytes
        return found

    def _number(self, n_bytes: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(n_bytes), "little", signed=signed)

    def pop(self) -> Any:
        """Return and remove the value on top."""
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("its pickle is damaged")
        return self.stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise ValueError("its pickle is damaged")

    def protocol(self) -> None:
        if self._number(1) != 2:
            raise ValueError("its pickle is not of protocol 2")

    def integer(self, n_bytes: int, signed: bool = False) -> None:
        self.stack.append(self._number(n_bytes, signed))

    def long(self) -> None:
        n_bytes = self._number(1)
        if n_bytes > 16:
            raise ValueError("its pickle has a number of more than 16 bytes")
        self.stack.append(self._number(n_bytes, signed=True))

    def text(self) -> None:
        self.stack.append(self._take(self._number(4)).decode())

    def put(self, n_bytes: int) -> None:
        place, value = self._number(n_bytes), self.pop()
        self.memo[place] = value
        self.stack.append(value)

    def get(self, n_bytes: int) -> None:
        place = self._number(n_bytes)
        if place not in self.memo:
            raise ValueError("its pickle is damaged")
        self.stack.append(self.memo[place])

    def tuple_of(self, n: int | None) -> None:
        values = self._pop_to_mark() if n is None else [self.pop() for _ in range(n)][::-1]
        self.stack.append(tuple(values))

    def name(self) -> None:
        """Push a name, if state dicts have it; nothing is looked up."""
        parts = []
        for _ in range(2):
            end = self.raw.find(b"\n", self.at, self.at + 200)
            if end < 0:
                raise ValueError("its pickle is damaged")
            parts.append(self.raw[self.at : end].decode())
            self.at = end + 1
        if (parts[0], parts[1]) not in _KNOWN:
            raise ValueError(f"its pickle names {'.'.join(parts)[:80]}, which no state dict of tensors needs")
        self.stack.append(_Global(*parts))

    def storage(self) -> None:
        """Push a storage, named by (storage, type, key, device, number of items)."""
        parts = self.pop()
        if not isinstance(parts, tuple) or len(parts) not in (5, 6) or parts[0] != "storage":
            raise ValueError("its pickle has an unknown reference")
        kind, key, n_items = parts[1], parts[2], parts[4]
        if not isinstance(kind, _Global) or kind.name not in DTYPES or not isinstance(key, str):
            raise ValueError("its pickle has an unknown reference")
        if not _is_count(n_items) or parts[5:] not in ((), (None,)):
            raise ValueError("its pickle has an unknown reference")
        self.stack.append(_Storage(DTYPES[kind.name], key, n_items))

    def reduce(self) -> None:
        """Push what a known name makes of its arguments: a dictionary or a tensor."""
        given, name = self.pop(), self.pop()
        if not isinstance(given, tuple) or not isinstance(name, _Global):
            raise ValueError("its pickle calls a value")
        if name == _DICT and given == ():
            self.stack.append({})
        elif name == _PARAMETER and len(given) == 3 and isinstance(given[0], _Tensor):
            self.stack.append(given[0])
        elif name == _TENSOR and len(given) in (6, 7) and isinstance(given[0], _Storage):
            storage, offset, shape, strides = given[:4]
            sized = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= 8
            if not sized or not all(map(_is_count, (offset, *shape, *strides))):
                raise ValueError("its pickle has a tensor without a valid shape")
            self.stack.append(_Tensor(storage, offset, shape, strides))
        else:
            raise ValueError(f"its pickle has unknown arguments of {name.module}.{name.name}")

    def build(self) -> None:
        """Drop attributes: versions of modules, which dictionaries of torch have."""
        self.pop()
        if not isinstance(self.stack[-1] if self.stack else None, dict):
            raise ValueError("its pickle sets attributes of a value other than a dictionary")

    def set_items(self, single: bool = False) -> None:
        values = [self.pop(), self.pop()][::-1] if single else self._pop_to_mark()
        target = self.stack[-1] if self.stack else None
        if not isinstance(target, dict) or len(values) % 2 or not all(isinstance(key, str) for key in values[::2]):
            raise ValueError("its pickle has a mapping whose keys are not texts")
        target.update(zip(values[::2], values[1::2], strict=True))

    def append(self, single: bool = False) -> None:
        values = [self.pop()] if single else self._pop_to_mark()
        target = self.stack[-1] if self.stack else None
        if not isinstance(target, list):
            raise ValueError("its pickle is damaged")
        target += values


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


def _push(value: Callable[[], Any]) -> Callable[[_Interpreter], None]:
    return lambda self: self.stack.append(value())


_ACTIONS: dict[int, Callable[[_Interpreter], None]] = {
    0x80: _Interpreter.protocol,
    ord("("): _push(lambda: _MARK),
    ord("N"): _push(lambda: None),
    0x88: _push(lambda: True),
    0x89: _push(lambda: False),
    ord("}"): _push(dict),
    ord("]"): _push(list),
    ord(")"): _push(tuple),
    ord("K"): lambda self: self.integer(1),
    ord("M"): lambda self: self.integer(2),
    ord("J"): lambda self: self.integer(4, signed=True),
    0x8A: _Interpreter.long,
    ord("X"): _Interpreter.text,
    ord("q"): lambda self: self.put(1),
    ord("r"): lambda self: self.put(4),
    ord("h"): lambda self: self.get(1),
    ord("j"): lambda self: self.get(4),
    ord("t"): lambda self: self.tuple_of(None),
    0x85: lambda self: self.tuple_of(1),
    0x86: lambda self: self.tuple_of(2),
    0x87: lambda self: self.tuple_of(3),
    ord("c"): _Interpreter.name,
    ord("Q"): _Interpreter.storage,
    ord("R"): _Interpreter.reduce,
    ord("b"): _Interpreter.build,
    ord("s"): lambda self: self.set_items(single=True),
    ord("u"): _Interpreter.set_items,
    ord("a"): lambda self: self.append(single=True),
    ord("e"): _Interpreter.append,
}
"""What each opcode does; those of other pickles are refused."""
