"""What pretraining reads: documents, held out or not, one file or several, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language import configure, prepare, write

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.protocols import EOS_ID, UNK_ID
from attnkit.tasks.language_modeling.data import CorpusEncoder, load_text
from attnkit.tasks.language_modeling.task import TASK
from attnkit.text.config import VocabularyConfig
from attnkit.text.encoding import EncodedLines
from attnkit.text.vocabulary import train_vocabulary


def texts(store: Any, tokenizer: Any) -> list[str]:
    found: list[str] = tokenizer.decode([store[i].tolist() for i in range(len(store))])
    return found


def test_documents_are_held_out_and_their_repeats_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "text", *(f"document number {n} of them" for n in range(100)), *["document number 7 of them"] * 50
    )
    config = configure("mlm", [path], "vocabulary.min_frequency=1")
    prepare(config, tmp_path / "run")
    prepared = load_text(config, tmp_path / "run/data")
    train_texts, valid_texts = (texts(rows.store, prepared.tokenizer) for rows in (prepared.train, prepared.valid))
    assert len(valid_texts) == 7 and not set(train_texts) & set(valid_texts)
    assert set(train_texts) | set(valid_texts) == {f"document number {n} of them" for n in range(100)}
    counts = prepared.counts
    assert counts["train"] == len(train_texts) and counts["valid"] == counts["held_out"] == 7
    assert counts["train"] + counts["held_out"] + counts["repeats_of_held_out"] == 150


def test_a_mask_in_the_text_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "text", *["he wrote [MASK] and [MASK], then slept"] * 3, *["nothing else"] * 30)
    config = configure("mlm", [path])
    prepare(config, tmp_path / "run")
    prepared = load_text(config, tmp_path / "run/data")
    found = {"he wrote and, then slept", "he wrote  and , then slept", "nothing else"}
    assert set(texts(prepared.train.store, prepared.tokenizer)) <= found
    assert prepared.counts["mask_symbols"] in (4, 6)
    clm = configure("clm", [path])
    prepare(clm, tmp_path / "clm")
    opened_clm = load_text(clm, tmp_path / "clm/data")
    assert "he wrote [MASK] and [MASK], then slept" in texts(opened_clm.train.store, opened_clm.tokenizer)


@pytest.mark.parametrize("task", ["mlm", "left-to-right", "right-to-left"])
def test_documents_are_finished_as_in_a_loop(tmp_path: Path, task: str) -> None:
    """Masks leave masked text, rows of GPT end in EOS and may be turned round; rows may be or become empty."""
    path = write(tmp_path / "text", "a b c")
    config = configure("mlm", [path]) if task == "mlm" else configure("clm", [path], direction=task)
    settings = VocabularyConfig(kind="char", symbols=("[MASK]",), size=300)
    tokenizer = train_vocabulary(iter(["a b c d"]), settings)
    mask = tokenizer.token_id("[MASK]")
    assert mask is not None
    rows = [[7, mask, 8], [], [mask, mask], [9, UNK_ID], [mask, 10], [11, 12, 13, mask]]
    encoder = CorpusEncoder(tokenizer, config)
    found = encoder.finish(EncodedLines.of(rows))
    expected = [[id for id in row if id != mask] for row in rows] if task == "mlm" else rows
    assert (encoder.n_masks, encoder.n_unknown) == (5 if task == "mlm" else 0, 1)
    assert encoder.n_tokens == sum(map(len, expected))
    if task != "mlm":
        expected = [[*(row if task == "left-to-right" else reversed(row)), EOS_ID] for row in expected]
    ends = np.cumsum(found.lengths)
    assert [part.tolist() for part in np.split(found.ids, ends[:-1])] == expected


@pytest.mark.parametrize("direction", ["left-to-right", "right-to-left"])
def test_directions_hold_the_same_text(tmp_path: Path, direction: str) -> None:
    path = write(tmp_path / "text", *(f"{n} sheep and {n * n} more" for n in range(40)))
    config = configure("clm", [path], direction=direction)
    prepare(config, tmp_path / "run")
    prepared = load_text(config, tmp_path / "run/data")
    step = 1 if direction == "left-to-right" else -1
    store = prepared.train.store
    rows = [store[i].tolist() for i in range(len(store))]
    assert all(row[-1] == 2 and 2 not in row[:-1] for row in rows)
    found = set(prepared.tokenizer.decode([row[:-1][::step] for row in rows]))
    assert found <= {f"{n} sheep and {n * n} more" for n in range(40)} and len(found) == 38


def test_words_without_a_name_are_never_predicted(tmp_path: Path) -> None:
    lines = [f"the old man met stranger{n} and the sea" for n in range(60)]
    sets = ["vocabulary.kind=word", "vocabulary.min_frequency=5", "masking.mask_prob=0.6"]
    config = configure("mlm", [write(tmp_path / "text", *lines)], *sets)
    assert any("unknown to the vocabulary" in getattr(event, "text", "") for event in prepare(config, tmp_path / "run"))
    rows: Any = load_text(config, tmp_path / "run/data").train
    for epoch in range(5):
        batch = rows.batch(np.arange(len(rows)), 1, epoch)
        assert 3 not in batch.targets.tolist() and 3 in batch.ids
        assert rows.counts(np.arange(len(rows)), 1, epoch) == {"nll": len(batch.targets)}


@pytest.mark.parametrize("task", ["mlm", "clm"])
def test_labels_in_the_text_are_warned_of(task: str, tmp_path: Path) -> None:
    table = write(
        tmp_path / "table", *(f"the sheep number {n} came home\t{'good' if n % 3 else 'bad'}" for n in range(60))
    )
    text = write(tmp_path / "text", *(f"the sheep number {n} came home" for n in range(60)))
    config = configure(task, [text, table], **{"data.valid_files": [str(text)]})
    warnings = [event.text for event in prepare(config, tmp_path / "run") if isinstance(event, WarningEvent)]
    assert [warning for warning in warnings if "looks like a table" in warning] == [
        f"{table} looks like a table: the labels of its last column ('good', 'bad') are read as text; "
        f"give a file with the text alone, e.g. cut -f1 {table} > text.txt"
    ]
    planned = TASK.dry_run(config)
    assert planned.note.startswith(f"warning: {table} looks like a table: ") and "\n" not in planned.note
    assert TASK.dry_run(configure(task, [text])).note == ""


def test_several_files_share_an_epoch_as_they_should(tmp_path: Path) -> None:
    large = write(tmp_path / "large", *(f"the sheep {n} came home" for n in range(400)))
    small = write(tmp_path / "small", *(f"das Schaf {n} kam heim" for n in range(40)))
    config = configure(
        "mlm", [large, small], "data.language_sampling_alpha=0.5", "limits.max_steps=2", "evaluation.n_samples=0"
    )
    events = list(train(TrainRequest(config, tmp_path / "run")))
    shown = [event.text for event in events if isinstance(event, StatusEvent) and "of an epoch" in event.text]
    assert len(shown) == 2
    prepared = load_text(config, tmp_path / "run/data")
    rows: Any = prepared.train
    tokens = [int(rows.store.lengths[:380].sum()), int(rows.store.lengths[380:].sum())]
    share = tokens[0] ** 0.5 / (tokens[0] ** 0.5 + tokens[1] ** 0.5)
    numbers = rows.mixture.draw(1, 0).astype(np.int64)
    found = np.bincount(rows.mixture.corpus(numbers), rows.sizes[rows.mixture.rows(numbers)])
    assert found[0] / found.sum() == pytest.approx(share, abs=0.02)
    assert f"{share:.1%} of an epoch" in shown[0]
    assert events[-1].metrics.keys() == set(config.metrics) and {"accuracy_1", "accuracy_2"} < set(config.metrics)
    again = [
        rows.batch(numbers[rows.mixture.rows(numbers) == row], 1, 0)
        for row in range(len(rows.sizes) - 3, len(rows.sizes))
    ]
    assert any(len({tuple(ids) for ids in batch.ids.tolist()}) > 1 for batch in again), "each coming is hidden anew"


def test_pairs_of_several_files_share_an_epoch_too(tmp_path: Path) -> None:
    """By the tokens of the pieces that pairs are made of."""
    large = write(tmp_path / "large", *(f"the sheep {n} came home {'and ate ' * (n % 7)}" for n in range(400)))
    small = write(tmp_path / "small", *(f"das Schaf {n} kam heim" for n in range(60)))
    config = configure("mlm", [large, small], "data.language_sampling_alpha=0.3", "model.next_sentence=true")
    prepare(config, tmp_path / "run")
    rows: Any = load_text(config, tmp_path / "run/data").train
    n_large = int((rows.mixture.corpus(np.arange(len(rows))) == 0).sum())
    tokens = [int(rows.pieces.lengths[:n_large].sum()), int(rows.pieces.lengths[n_large:].sum())]
    wanted = tokens[0] ** 0.3 / (tokens[0] ** 0.3 + tokens[1] ** 0.3)
    found = np.zeros(2)
    for epoch in range(5):
        numbers = rows.mixture.draw(1, epoch).astype(np.int64)
        found += np.bincount(rows.mixture.corpus(numbers), rows.pieces.lengths[rows.mixture.rows(numbers)])
    assert tokens[0] > 5 * tokens[1] and found[0] / found.sum() == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(
    ("sets", "lines", "error", "words"),
    [
        (["vocabulary.symbols=[]"], 50, UsageError, "needs \\[MASK\\]"),
        (["data.sequence_length=32", "model.positions=learned"], 50, UsageError, "max_length"),
        (["data.document_format=blocks"], 50, DataError, "too few for training and validation"),
        ([], 1, DataError, "too few for training and validation"),
        (["model.kind=gpt"], 50, UsageError, "model.kind"),
        (["model.next_sentence=true", "model.n_segments=1"], 50, UsageError, "n_segments"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, sets: list[str], lines: int, error: Any, words: str) -> None:
    path = write(tmp_path / "text", *(f"line {n}" for n in range(lines)))
    with pytest.raises(AttnkitError, match=words) as caught:
        prepare(configure("mlm", [path], *sets), tmp_path / "run")
    assert isinstance(caught.value, error)


@pytest.mark.parametrize(
    ("sets", "useless"),
    [([], "[MASK]"), (["data.language_sampling_alpha=0.0"], "[MASK]"), (["model.next_sentence=true"], "word")],
)
@pytest.mark.parametrize("where", ["train", "valid"])
def test_a_file_of_nothing_to_learn_from_is_refused(tmp_path: Path, sets: list[str], useless: str, where: str) -> None:
    full = write(tmp_path / "full", *(f"line number {n % 7} of them" for n in range(50)))
    empty = write(tmp_path / "empty", *[useless] * 30)
    files = [full, empty] if where == "train" else [full]
    valid = [str(full), str(empty)] if where == "valid" else [str(full)]
    config = configure("mlm", files, "vocabulary.kind=word", *sets, **{"data.valid_files": valid})
    with pytest.raises(DataError, match="no document in this file is long enough") as caught:
        prepare(config, tmp_path / "run")
    assert caught.value.where == str(empty) and not (tmp_path / "run/data").exists()


def test_a_few_held_out_words_are_scored_nevertheless(tmp_path: Path) -> None:
    """Of two or three words in a row no one may be hidden; that would make a loss of 0, the best of all."""
    for number in range(4):
        lines = [f"{letter} again" for letter in "abcdefghij"]
        path = write(tmp_path / f"text{number}", *lines, *["and so on"] * number)
        config = configure("mlm", [path], "vocabulary.kind=word", "limits.max_steps=1", f"data.held_out_seed={number}")
        done = list(train(TrainRequest(config, tmp_path / f"run{number}")))[-1]
        assert done.metrics["loss"] > 1 and done.metrics["perplexity"] > 2


@pytest.mark.parametrize("task", ["mlm", "clm"])
def test_alignments_that_score_places_of_a_row_want_rows_of_their_own(tmp_path: Path, task: str) -> None:
    path = write(tmp_path / "text", *(f"line {n}" for n in range(50)))
    for name in ("location", "feature"):
        with pytest.raises(UsageError, match=f"alignment {name} depends on row positions"):
            configure(task, [path], f"model.alignment={name}")
        configure(task, [path], f"model.alignment={name}", "data.isolate_documents=false")
    configure(task, [path], "model.alignment=feature", "model.attention_options.second_feature=square")


def test_a_vocabulary_without_a_mask_is_refused(tmp_path: Path) -> None:
    from attnkit.text.config import VocabularyConfig
    from attnkit.text.vocabulary import train_vocabulary

    path = write(tmp_path / "text", *(f"line {n}" for n in range(50)))
    vocabulary = train_vocabulary([path], VocabularyConfig(size=300))
    (tmp_path / "vocab.json").write_text(vocabulary.to_json())
    flags = {"vocabulary_files": [str(tmp_path / "vocab.json")]}
    with pytest.raises(UsageError, match="has no \\[MASK\\]"):
        prepare(configure("mlm", [path], **flags), tmp_path / "run")
    prepare(configure("clm", [path], **flags), tmp_path / "clm")


def test_documents_that_may_see_each_other_share_a_passage(tmp_path: Path) -> None:
    path = write(tmp_path / "text", *(f"line {n}" for n in range(200)))
    rows = {}
    for isolated in ("true", "false"):
        config = configure("mlm", [path], f"data.isolate_documents={isolated}")
        prepare(config, tmp_path / isolated)
        rows[isolated] = load_text(config, tmp_path / isolated / "data").train
    apart, together = (rows[name].batch(np.arange(len(rows[name])), 1, 0) for name in ("true", "false"))
    assert apart.passages is not None and sorted(apart.ids.tolist()) == sorted(together.ids.tolist())
    kept = together.ids != 0
    assert together.passages is None or (together.passages.bool() == ~kept).all()
    assert together.n_unmixed == int(kept.all(1).sum()) > apart.n_unmixed
