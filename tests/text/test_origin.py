"""An imported vocabulary keeps its files; a damaged or hostile origin is refused."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from attnkit.errors import RunError
from attnkit.text.config import VocabularyConfig
from attnkit.text.origin import MAX_FILE_BYTES, Origin
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary


def vocabulary() -> Tokenizer:
    return train_vocabulary(["the quick fox"] * 4, VocabularyConfig(kind="char", size=300))


def packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


def test_files_come_back_and_the_fingerprint_is_that_of_the_vocabulary() -> None:
    plain, made = vocabulary(), vocabulary()
    order = [None, *range(1, made.vocab_size)]
    made.origin = Origin.of_files("bert", order, {"vocab.txt": b"a\nb\n", "tokenizer.json": b"{}"})
    again = Tokenizer.from_json(made.to_json())
    assert again.origin is not None and again.origin.order == order and again.origin.model == "bert"
    assert again.origin.files() == {"vocab.txt": b"a\nb\n", "tokenizer.json": b"{}"}
    assert again.origin.n_rows == made.vocab_size
    assert again.to_json() == made.to_json() != plain.to_json()
    assert again.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../vocab.txt": packed(b"a")}},
        {"files": {"model.safetensors": packed(b"a")}},
        {"files": {"vocab.txt": 3}},
        {"files": []},
        {"order": [0]},
        {"order": "ab"},
        {"order": None},
        {"model": ""},
        {"model": "x" * 41},
        {"model": None},
        {"more": 1},
    ],
    ids=str,
)
def test_an_invalid_origin_is_refused(change: dict[str, Any]) -> None:
    made = vocabulary()
    made.origin = Origin.of_files("bert", range(made.vocab_size), {"vocab.txt": b"a"})
    tree = json.loads(made.to_json())
    tree["origin"] |= change
    with pytest.raises(RunError, match="is not a valid attnkit vocabulary"):
        Tokenizer.from_json(json.dumps(tree))


@pytest.mark.parametrize("id", [-1, True, 1 << 40, "1", 1.0])
def test_an_id_that_is_none_is_refused(id: object) -> None:
    made = vocabulary()
    made.origin = Origin.of_files("bert", range(made.vocab_size), {})
    tree = json.loads(made.to_json())
    tree["origin"]["order"][2] = id
    with pytest.raises(RunError, match="is not a valid attnkit vocabulary"):
        Tokenizer.from_json(json.dumps(tree))


@pytest.mark.parametrize("text", ["%%", packed(b"abc")[:-4], base64.b64encode(b"plain").decode()])
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a file of its origin is"):
        Origin("bert", [0], {"vocab.txt": text}).files()


def test_a_file_that_unpacks_to_too_much_is_refused() -> None:
    bomb = packed(bytes(MAX_FILE_BYTES + 1))
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="truncated or too large"):
        Origin("bert", [0], {"vocab.txt": bomb}).files()
