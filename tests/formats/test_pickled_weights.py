"""``pytorch_model.bin`` is read without unpickling, in both formats of torch; all other pickles are refused."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnkit.errors import RunError
from attnkit.formats.huggingface import pickled_weights, weights
from attnkit.formats.huggingface.weights import opened

FORMATS = {"archive": True, "sequence of pickles": False}


def state() -> Any:
    """Return a state dict with everything that those of models have."""
    torch.manual_seed(1)
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    found = layer.state_dict()  # with _metadata
    found["half"] = torch.randn(2, 5).half()
    found["bfloat16"] = torch.randn(3).bfloat16()
    found["double"] = torch.randn(1, 2, 3).double()
    found["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    found["transposed"] = torch.randn(3, 2).t()
    found["tied"] = found["0.weight"]
    found["part"] = torch.arange(12.0).reshape(3, 4)[1:]
    found["long"] = torch.arange(3)
    found["number"] = torch.tensor(2.5)
    return found


def save(place: Path, content: Any, archive: bool = True) -> Path:
    path = place / weights.PICKLED
    torch.save(content, path, _use_new_zipfile_serialization=archive)
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_tensors_are_those_of_torch(tmp_path: Path, name: str) -> None:
    expected = state()
    with opened(save(tmp_path, expected, FORMATS[name])) as file:
        assert file.entries.keys() == expected.keys()
        for key, tensor in expected.items():
            assert file.entries[key].shape == tuple(tensor.shape)
            if tensor.is_floating_point():
                found = file.read(key)
                assert torch.equal(found, tensor.detach().float()) and found.is_contiguous(), key
        assert file.entries["long"].dtype == "I64"
        file.check_size(["0.weight", "half"])
        with pytest.raises(RunError, match="share parts of the file"):
            file.check_size(["0.weight"] * 2000)


class Evil:
    def __reduce__(self) -> Any:
        return sys.exit, ("unpickled",)


def pickled(*opcodes: bytes) -> bytes:
    return b"".join((b"\x80\x02", *opcodes, b"."))


def archive(content: bytes, compression: int = zipfile.ZIP_STORED, more: dict[str, bytes] | None = None) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        for name, data in {"m/data.pkl": content, "m/data/0": bytes(16), **(more or {})}.items():
            file.writestr(name, data)
    return made.getvalue()


def tensor(
    shape: bytes = b"K\x02K\x02\x86", strides: bytes = b"K\x02K\x01\x86", offset: bytes = b"K\x00", n: int = 4
) -> bytes:
    """Return opcodes of {"a": a tensor of four numbers}."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK" + bytes([n]) + b"tQ"
    made = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + offset
        + shape
        + strides
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"}X\1\0\0\0a" + made + b"s"


GOOD = archive(pickled(tensor()))
REFUSED: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "an object": (lambda: archive(pickle.dumps(Evil(), 2)), "names sys.exit, which no state dict"),
    "a number of 20 bytes": (archive(pickled(b"\x8a\x14" + b"\1" * 20)), "more than 16 bytes"),
    "another protocol": (lambda: archive(pickle.dumps({}, 4)), "not of protocol 2"),
    "an object of the first protocol": (lambda: archive(pickle.dumps(Evil(), 0)), "opcode 0x|names"),
    "a call of a text": (archive(pickled(b"X\1\0\0\0a)R")), "calls a value"),
    "a class": (archive(pickled(b"(cos\nsystem\no")), "names os.system"),
    "an instance": (archive(pickled(b"(i", b"os\nsystem\n")), "opcode 0x69"),
    "a name by texts": (archive(pickled(b"X\2\0\0\0osX\6\0\0\0system\x93")), "opcode 0x93"),
    "an extension": (archive(pickled(b"\x82\x01")), "opcode 0x82"),
    "attributes of a list": (archive(pickled(b"]}b")), "sets attributes of a value"),
    "a dictionary with arguments": (archive(pickled(b"ccollections\nOrderedDict\n]\x85R")), "unknown arguments"),
    "a text": (archive(pickled(b"X\1\0\0\0a")), "not a state dict"),
    "a nested dictionary": (archive(pickled(b"}X\1\0\0\0a}s")), "not a state dict"),
    "keys that are no texts": (archive(pickled(b"}K\1K\1s")), "keys are not texts"),
    "nothing on the stack": (archive(pickled()), "damaged"),
    "a memo that is empty": (archive(pickled(b"h\7")), "damaged"),
    "no mark": (archive(pickled(b"t")), "damaged"),
    "a reference to a file": (archive(pickled(b"X\3\0\0\0/etQ")), "unknown reference"),
    "a truncated pickle": (archive(b"\x80\x02X\xff\xff\xff\x7fa"), "truncated, or too long"),
    "a tensor behind its storage": (archive(pickled(tensor(offset=b"K\x01"))), "does not fit its storage"),
    "a storage of more than its member": (archive(pickled(tensor(n=200))), "does not fit its storage"),
    "one number as many": (archive(pickled(tensor(strides=b"K\x00K\x00\x86"))), "does not fit its storage"),
    "numbers that overlap": (archive(pickled(tensor(strides=b"K\x01K\x01\x86"))), "does not fit its storage"),
    "numbers twice and gaps": (archive(pickled(tensor(strides=b"K\x03K\x00\x86"))), "does not fit its storage"),
    "a negative stride": (archive(pickled(tensor(strides=b"J\xff\xff\xff\xffK\x01\x86"))), "without a valid shape"),
    "other strides": (archive(pickled(tensor(strides=b"K\x01\x85"))), "without a valid shape"),
    "a missing storage": (archive(pickled(tensor().replace(b"0X\3", b"9X\3"))), "storage of 'a' is missing"),
    "compressed members": (archive(pickled(tensor()), zipfile.ZIP_DEFLATED), "is compressed"),
    "two pickles": (archive(pickled(tensor()), more={"n/data.pkl": b""}), "no data.pkl, or several"),
    "big-endian": (archive(pickled(tensor()), more={"m/byteorder": b"big"}), "not little-endian"),
    "a truncated archive": (GOOD[:-30], "truncated"),
    "no directory": (GOOD[:-22] + GOOD[-22:-6] + struct.pack("<IH", 9, 0), "directory of the archive is damaged"),
    "text": (b"hello", "not a file of torch"),
    "another number first": (pickled(b"K\x01"), "not a file of torch"),
    "nothing": (b"", "not a file of torch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_pickle_is_refused(name: str, tmp_path: Path) -> None:
    content, reason = REFUSED[name]
    path = tmp_path / weights.PICKLED
    path.write_bytes(content() if callable(content) else content)
    with pytest.raises(RunError, match=reason), opened(path):
        pass


def test_the_crafted_tensor_is_good(tmp_path: Path) -> None:
    (tmp_path / weights.PICKLED).write_bytes(GOOD)
    with opened(tmp_path / weights.PICKLED) as file:
        assert not file.read("a").any() and file.entries["a"].shape == (2, 2)


def test_a_sequence_of_pickles_names_its_storages(tmp_path: Path) -> None:
    path = save(tmp_path, collections.OrderedDict(a=torch.ones(3)), archive=False)
    raw = path.read_bytes()
    assert raw.endswith(struct.pack("<q3f", 3, 1, 1, 1))
    for changed, reason in (
        (raw[:-20] + struct.pack("<q3f", 4, 1, 1, 1), "storages are not those that it names"),
        (raw[:-4], "truncated"),
        (raw.replace(b"little_endianq", b"little_endiamq"), "not little-endian"),
    ):
        path.write_bytes(changed)
        with pytest.raises(RunError, match=reason), opened(path):
            pass


def test_no_opcode_of_objects_is_known() -> None:
    objects = {pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.STACK_GLOBAL}
    assert not {opcode[0] for opcode in objects} & pickled_weights._ACTIONS.keys()
    source = Path(pickled_weights.__file__).read_text()
    assert not any(
        word in source for word in ("import pickle", "import_module", "getattr", "eval(", "exec(", "__import__")
    )
