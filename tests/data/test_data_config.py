"""What the data configuration accepts, as it comes from YAML through JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from attnkit.config.descriptions import describe_fields
from attnkit.data.config import DataConfig

FILES = {"src": ["a.en"], "tgt": ["a.de"]}


def read(**keys: object) -> DataConfig:
    return DataConfig.model_validate_json(json.dumps({**FILES, **keys}))


def test_lists_become_tuples() -> None:
    config = read(src=["a", "b"], tgt=["c", "d"], weights=[1, 0.5], valid_src=["v"], valid_tgt=["w"])
    assert (config.src, config.weights, config.valid_tgt) == (("a", "b"), (1.0, 0.5), ("w",))
    assert hash(config) == hash(config.model_copy())


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"tgt": ["a", "b"]}, "src has 1 files but tgt has 2"),
        ({"src": [], "tgt": []}, "at least 1 item"),
        ({"weights": [1, 1]}, "2 values for 1 pairs"),
        ({"weights": [0]}, "at least one above 0"),
        ({"weights": [-1]}, "between 0 and 1,000"),
        ({"valid_src": ["v"]}, "given together"),
        ({"valid_src": [], "valid_tgt": []}, "at least one"),
        ({"valid_src": ["v"], "valid_tgt": ["v", "w"]}, "same number"),
        ({"max_length": 0}, "greater than or equal to 1"),
        ({"max_ratio": 0.5}, "greater than or equal to 1"),
        ({"held_out": 0}, "greater than or equal to 1"),
        ({"maxlength": 3}, "Extra inputs"),
        ({"held_out": "3"}, "valid integer"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        read(**keys)


def test_every_field_is_described() -> None:
    assert [*describe_fields(DataConfig)] == [*DataConfig.model_fields]


def test_needs_no_torch() -> None:
    code = "import sys, attnkit.data.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
