"""Text encoded by several processes: the ids of one, in order, whatever happens to the processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from attnkit.errors import DataError
from attnkit.text import encoding
from attnkit.text.config import VocabularyConfig
from attnkit.text.encoding import BatchEncoder, EncodedLines
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

LINES = ["", "A dog runs.", "  two  spaces ", "日本 naïve\u00a0x", "a\tb", "\U0001f600" * 3, "<s> a </s>", "x" * 3000]
TEXT = [f"{line} {n}" if n % 3 else line for n in range(40) for line in LINES]
BATCHES = [(n, (TEXT[n : n + 7], TEXT[n + 1 : n + 4])) for n in range(0, 300, 7)]


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    """A subword vocabulary and one of characters."""
    return [train_vocabulary(iter(TEXT), VocabularyConfig(kind=kind, size=600)) for kind in ("bpe", "char")]


def rows(encoded: EncodedLines) -> list[list[int]]:
    ends = np.cumsum(encoded.lengths)
    return [ids.tolist() for ids in np.split(encoded.ids, ends[:-1])]


@pytest.mark.parametrize("at_once", [0, 5000])
def test_processes_give_the_ids_of_the_tokenizers(
    tokenizers: list[Tokenizer], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "AT_ONCE", at_once)
    expected = [
        (n, [side.encode(lines) for side, lines in zip(tokenizers, sides, strict=True)]) for n, sides in BATCHES
    ]
    with BatchEncoder(tokenizers, n_processes=2) as encoder:
        for _ in range(2):  # the processes are used again
            found = [(n, [*map(rows, encoded)]) for n, encoded in encoder.encode(BATCHES)]
            assert found == expected
        processes = [worker.process for worker in encoder._workers]
    assert len(processes) == 2 and all(process.returncode == -signal.SIGKILL for process in processes)


def test_what_a_killed_process_leaves_is_encoded_here(
    tokenizers: list[Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "AT_ONCE", 0)

    def batches(encoder: BatchEncoder) -> Iterator[tuple[int, tuple[list[str], list[str]]]]:
        for number, batch in enumerate(BATCHES):
            if number in (5, 9):
                os.kill(encoder._workers[number == 9].process.pid, signal.SIGKILL)
            yield batch

    with BatchEncoder(tokenizers, n_processes=2) as encoder:
        found = [[*map(rows, encoded)] for _, encoded in encoder.encode(batches(encoder))]
    assert found == [
        [side.encode(lines) for side, lines in zip(tokenizers, sides, strict=True)] for _, sides in BATCHES
    ]


def test_few_characters_and_one_processor_start_no_process(tokenizers: list[Tokenizer]) -> None:
    for n_processes, repeats in ((8, 1), (1, 40)):
        many = [(n, [line * repeats for line in sides]) for n, sides in BATCHES]
        with BatchEncoder(tokenizers, n_processes=n_processes) as encoder:
            assert len(list(encoder.encode(many))) == len(BATCHES) and not encoder._workers


def test_errors_end_the_processes(tokenizers: list[Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that cannot be encoded is an error as in one process; so is what happens while reading."""
    monkeypatch.setattr(encoding, "AT_ONCE", 0)
    encoder = BatchEncoder(tokenizers, n_processes=2)
    with pytest.raises(DataError, match="lone surrogate"), encoder:
        list(encoder.encode([*BATCHES, (0, (["a\ud800"], ["b"]))]))
    assert all(worker.process.returncode is not None for worker in encoder._workers)

    def broken() -> Iterator[tuple[int, tuple[list[str], list[str]]]]:
        yield from BATCHES
        raise KeyboardInterrupt

    encoder = BatchEncoder(tokenizers, n_processes=2)
    with pytest.raises(KeyboardInterrupt), encoder:
        list(encoder.encode(broken()))
    assert all(worker.process.returncode is not None for worker in encoder._workers)


def test_lines_are_selected_as_in_a_loop() -> None:
    lengths = [3, 0, 2, 0, 1]
    some = [list(range(4, 4 + n)) for n in lengths]
    kept = np.array([True, False, False, True, True])
    assert rows(EncodedLines.of(some).select(kept)) == [[4, 5, 6], [], [4]]
    assert rows(EncodedLines.of(some)) == some
