"""Rows of texts and of pairs: what is cut where, and which tokens are the second text's."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attnkit.data.store import write_store
from attnkit.data.text_classification import join, text_batch, text_rows
from attnkit.errors import RunError
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID


def shortened(text: list[int], text2: list[int], room: int) -> tuple[list[int], list[int]]:
    """Drop tokens from the end of the longer text, one by one, as Devlin et al. do; of two alike from the second."""
    text, text2 = list(text), list(text2)
    while len(text) + len(text2) > room:
        (text if len(text) > len(text2) else text2).pop()
    return text, text2


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("longest", [8, 9, 14])
def test_the_longer_text_of_a_pair_is_cut(longest: int, separators: int) -> None:
    for n, n2 in product(range(13), range(13)):
        text, text2 = list(range(10, 10 + n)), list(range(40, 40 + n2))
        first, second = shortened(text, text2, longest - 2 - separators)
        expected = [BOS_ID, *first, *[EOS_ID] * separators, *second, EOS_ID]
        assert join(text, text2, longest, separators) == (expected, (first, second) != (text, text2))
        alone = text[: longest - 2]
        assert join(text, None, longest, separators) == ([BOS_ID, *alone, EOS_ID], alone != text)


def test_segments_and_padding() -> None:
    rows = [join([7, 8, 9], [5], 20)[0], join([7], None, 20)[0], join([], [], 20)[0], join([6], [5, 5, 5, 5], 20)[0]]
    batch = text_batch(rows)
    assert batch.segments.tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 1],
    ]
    for ids, real, row in zip(batch.ids.tolist(), batch.real.tolist(), rows, strict=True):
        assert ids == row + [PAD_ID] * (8 - len(row)) and real == [True] * len(row) + [False] * (8 - len(row))


def test_segments_behind_two_separators() -> None:
    """Those are of the first one, as transformers has it; single texts have one end all the same."""
    rows = [join([7, 8], [5], 20, 2)[0], join([7], None, 20, 2)[0], join([], [6], 20, 2)[0]]
    assert text_batch(rows, 2).segments.tolist() == [[0, 0, 0, 0, 0, 1, 1], [0] * 7, [0, 0, 0, 1, 1, 0, 0]]


def write_texts(folder: Path, rows: list[tuple[list[int], int]], n_labels: int) -> None:
    folder.mkdir(exist_ok=True)
    write_store(folder / "texts", [[ids for ids, _ in rows]], 60)
    write_store(folder / "labels", [[[label] for _, label in rows]], n_labels)


def test_rows_come_back_with_their_labels(tmp_path: Path) -> None:
    rows = [(join(list(range(5, 5 + n)), None, 50)[0], n % 3) for n in range(9)]
    write_texts(tmp_path, rows, 3)
    found = text_rows(tmp_path)
    chosen = np.array([8, 0, 3])
    batch = found.batch(chosen)
    for ids, real, label, i in zip(batch.ids, batch.real, batch.labels.tolist(), chosen, strict=True):
        assert (ids[real].tolist(), label) == rows[i]
    assert found.lengths[0].tolist() == [len(row) for row, _ in rows] and found.label_counts(4) == [3, 3, 3, 0]
    write_texts(tmp_path / "other", [*rows[:-1], (rows[-1][0], 0)], 3)
    assert text_rows(tmp_path / "other").fingerprint != found.fingerprint


def test_a_row_without_a_label_is_damage(tmp_path: Path) -> None:
    write_texts(tmp_path, [([1, 5, 2], 0), ([1, 6, 2], 1)], 2)
    write_texts(tmp_path / "less", [([1, 5, 2], 0)], 2)
    (tmp_path / "labels").rename(tmp_path / "old")
    (tmp_path / "less" / "labels").rename(tmp_path / "labels")
    with pytest.raises(RunError, match="not exactly one label per text"):
        text_rows(tmp_path)
