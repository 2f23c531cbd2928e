"""YAML as people expect it, layers with their origins, and messages that name the nearest key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from attnkit.config import Layer, dump_yaml, flatten, load_yaml, merge, parse_assignment, parse_yaml, validate
from attnkit.errors import UsageError


class Cat(BaseModel, frozen=True, extra="forbid", strict=True):
    kind: Literal["cat"]
    lives: int = Field(default=9, ge=1)


class Dog(BaseModel, frozen=True, extra="forbid", strict=True):
    kind: Literal["dog"]
    bark_volume: float = 0.5


class Garden(BaseModel, frozen=True, extra="forbid", strict=True):
    trees: int = 0


class House(BaseModel, frozen=True, extra="forbid", strict=True):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    name: str = "home"
    colour: Literal["red", "green"] = "red"
    rooms: tuple[int, ...] = ()
    garden: Garden = Garden()


def test_yaml_reads_numbers_and_words_as_people_write_them() -> None:
    text = "rate: 1e-4\nhalf: .5\nwhole: 3\nanswer: no\ncountry: on\nday: 2024-01-02\nyes_really: true\nexp: 2E3\n"
    text += "none: none"
    assert parse_yaml(text, "x") == {
        "rate": 1e-4,
        "half": 0.5,
        "whole": 3,
        "answer": "no",
        "country": "on",
        "day": "2024-01-02",
        "yes_really": True,
        "exp": 2000.0,
        "none": "none",
    }


def test_a_repeated_key_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(UsageError, match="duplicate key 'a'") as caught:
        load_yaml(path)
    assert caught.value.where == f"{path}:3"


def test_python_objects_are_no_yaml() -> None:
    with pytest.raises(UsageError, match="not valid YAML"):
        parse_yaml("a: !!python/object/apply:os.system ['true']", "x")


def test_a_list_is_no_key() -> None:
    with pytest.raises(UsageError, match="not valid YAML: found unhashable key"):
        parse_yaml("{[a]: b}", "x")


def test_later_layers_win_and_origins_are_kept() -> None:
    tree, origins = merge(
        [
            Layer("preset", {"pet": {"kind": "cat", "lives": 3}, "name": "a"}),
            Layer("file", {"name": "b"}),
            Layer("--set", parse_assignment("pet.lives=7")),
        ]
    )
    assert tree == {"pet": {"kind": "cat", "lives": 7}, "name": "b"}
    assert origins == {"pet.kind": "preset", "pet.lives": "--set", "name": "file"}


@pytest.mark.parametrize(
    ("tree", "what", "help"),
    [
        ({"pet": {"kind": "cat", "lifes": 3}}, "unknown key 'pet.lifes'", "did you mean 'pet.lives'"),
        ({"pet": {"kind": "cat"}, "nam": "x"}, "unknown key 'nam'", "did you mean 'name'"),
        ({"pet": {"kind": "cow"}}, 'pet.kind cannot be "cow"', "'cat'"),
        ({"pet": {"kind": "cat"}, "colour": "gren"}, 'colour cannot be "gren"', "did you mean 'green'"),
        ({"pet": {"kind": "cat", "lives": "many"}}, 'pet.lives: invalid value "many"', None),
        ({"pet": {"kind": "cat", "lives": 0}}, "pet.lives: invalid value 0", None),
        ({"name": "x"}, "pet", None),
        ({"pet": {"kind": "cat"}, "garden": 5}, "garden: invalid value 5", None),
        ({"pet": {"kind": "cat"}, "garden": {"kind": "x"}}, "unknown key 'garden.kind'", None),
    ],
)
def test_messages_name_path_value_and_nearest_key(tree: dict[str, object], what: str, help: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        validate(House, tree)
    assert what in caught.value.what
    assert help is None or help in (caught.value.help or "")


def test_a_value_in_the_place_of_a_section_takes_its_origins_away() -> None:
    below = Layer("preset", {"pet": {"kind": "cat", "lives": 3}})
    tree, origins = merge([below, Layer("--set pet", {"pet": 5})])
    assert (tree, origins) == ({"pet": 5}, {"pet": "--set pet"})
    with pytest.raises(UsageError) as caught:
        validate(House, tree, origins)
    assert caught.value.where == "pet (--set pet)"
    assert merge([Layer("a", {"pet": 5}), below])[1] == {"pet.kind": "preset", "pet.lives": "preset"}


def test_a_message_names_the_origin() -> None:
    tree, origins = merge([Layer("my.yaml", {"pet": {"kind": "cat", "lives": "x"}})])
    with pytest.raises(UsageError) as caught:
        validate(House, tree, origins)
    assert caught.value.where == "pet.lives (my.yaml)"


def test_dump_reads_back_equal() -> None:
    house = validate(House, {"pet": {"kind": "dog", "bark_volume": 1e-7}, "name": "no", "rooms": [1, 2]})
    assert validate(House, parse_yaml(dump_yaml(house), "x")) == house


def test_flatten_gives_dotted_leaves() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


@pytest.mark.parametrize("text", ["model.d_model", "=3", "a..b=1", ""])
def test_a_bad_assignment_says_how(text: str) -> None:
    with pytest.raises(UsageError, match="expects KEY=VALUE"):
        parse_assignment(text)
