"""Element types of arrays, read from annotations in each form that a version of numpy or Python gives them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType

from attnkit.kernels import layout
from attnkit.kernels.compile import dtype_of, example

ScalarT = TypeVar("ScalarT", bound=np.generic)
Alias = TypeAliasType("Alias", np.ndarray[tuple[Any, ...], np.dtype[ScalarT]], type_params=(ScalarT,))  # numpy 2.5


@pytest.mark.parametrize(
    "hint",
    [
        npt.NDArray[np.int8],
        Alias[np.int8],
        np.ndarray[tuple[int, int], np.dtype[np.int8]],
        np.ndarray[Any, np.dtype[np.int8]],
    ],
)
def test_the_element_type_is_found(hint: Any) -> None:
    assert dtype_of(hint) is np.int8


def test_an_annotation_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        dtype_of(list[int])


class Pair(NamedTuple):
    numbers: Alias[np.float32]
    size: int


def test_examples_have_the_types_of_their_fields() -> None:
    pair = example(Pair)
    assert (pair.numbers.dtype, pair.size) == (np.float32, 0)
    made = example(layout.Sentences)
    assert all(value.size == 1 for value in made if isinstance(value, np.ndarray))
