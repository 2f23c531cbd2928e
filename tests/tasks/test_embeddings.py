"""Models that start with word vectors: rows equal the vectors, once and never again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.pretrained_embeddings import find_words
from attnkit.engine.resolve import init_layer
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import DataError, UsageError
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

STILL = {"optimization__learning_rate": 1e-30, "limits__max_steps": 1}
"""A step that changes no number."""
DIGITS = "0123456789"


def vectors_of(words: Any, seed: int = 1, width: int = 16) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed)
    return {word: drawn.normal(size=width).astype(np.float32) for word in words}


def write(path: Path, vectors: Mapping[str, np.ndarray]) -> Path:
    lines = [f"{word} {' '.join(map(repr, row.tolist()))}" for word, row in vectors.items()]
    width = len(next(iter(vectors.values())))
    path.write_text("\n".join([f"{len(vectors)} {width}", *lines]) + "\n", encoding="utf-8")
    return path


def weights(run: Path, step: int = 1) -> dict[str, np.ndarray]:
    return dict(load_file(run / f"checkpoints/step-{step}/model.safetensors"))


def tokenizer(run: Path) -> Tokenizer:
    return Tokenizer.from_json((run / "tokenizer.json").read_bytes())


def said(config: Any, run: Path, what: str = "initialized from") -> list[StatusEvent | WarningEvent]:
    events = list(train(TrainRequest(config, run)))
    return [event for event in events if isinstance(event, StatusEvent | WarningEvent) and what in event.text]


def configured(workshop: Any, kind: str, **changes: Any) -> Any:
    if kind in ("transformer", "rnn"):
        return workshop.configure(kind, **STILL, **changes)
    return workshop.configure_task(kind, **STILL, **changes)


MATRICES = {
    "transformer": ["encoder.embedding.words.weight", "decoder.embedding.words.weight"],
    "rnn": ["src_embedding.weight", "tgt_embedding.weight"],
    "lines": ["embedding.weight"],
    "documents": ["embedding.weight"],
    "masked tokens": ["embedding.weight", "output.weight"],
    "next words": ["embedding.weight", "output.weight"],
}
WORDS = {"lines": DIGITS[:7], "transformer": DIGITS[:7], "rnn": DIGITS[:7]}
"""The corpora of digits; the others have words."""


@pytest.mark.parametrize("kind", MATRICES)
def test_rows_equal_the_vectors_and_others_stay_as_they_were_drawn(workshop: Any, tmp_path: Path, kind: str) -> None:
    words = WORDS.get(kind, ["the", "film", "people", "home", "nowhere"])
    given = vectors_of(words)
    path = str(write(tmp_path / "vectors.txt", given))
    told = said(configured(workshop, kind, model__embeddings=path), tmp_path / "run")
    list(train(TrainRequest(configured(workshop, kind), tmp_path / "plain")))
    found, plain = weights(tmp_path / "run"), weights(tmp_path / "plain")
    names = [name for name in MATRICES[kind] if name in found]
    assert names
    known = tokenizer(tmp_path / "run")
    expected = plain[names[0]].copy()
    ids = {word: known.encode([word])[0] for word in set(words) - {"nowhere"}}
    whole = {word: pieces[0] for word, pieces in ids.items() if len(pieces) == 1}
    for word, id in whole.items():
        expected[id] = given[word]
    assert (expected != plain[names[0]]).any()
    for name in names:  # of one matrix there may be one name
        assert np.array_equal(found[name], expected)
    (line,) = told
    assert line.text.startswith(f"model.embeddings: {len(whole)} of ") and f"initialized from {path}" in line.text


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
@pytest.mark.parametrize("tied", ["target", "none"])
def test_each_side_has_its_own(workshop: Any, tmp_path: Path, kind: str, tied: str) -> None:
    ours, theirs = vectors_of(DIGITS, 1), vectors_of(DIGITS, 2)
    names = {
        "model__embeddings": str(write(tmp_path / "ours.txt", ours)),
        "model__target_embeddings": str(write(tmp_path / "theirs.txt", theirs)),
    }
    config = configured(workshop, kind, joint_vocabulary=False, model__tie_embeddings=tied, **names)
    told = said(config, tmp_path / "run")
    assert [line.text.split(":")[0] for line in told] == ["model.embeddings", "model.target_embeddings"]
    found, (src, tgt) = weights(tmp_path / "run"), MATRICES[kind]
    other = Tokenizer.from_json((tmp_path / "run/tokenizer.target.json").read_bytes())
    for name, known, given in ((src, tokenizer(tmp_path / "run"), ours), (tgt, other, theirs)):
        matrix = found[name] if name in found else found["output.weight"]
        for word, row in given.items():
            assert np.array_equal(matrix[known.encode([word])[0][0]], row)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", MATRICES)
def test_vectors_are_scaled_to_the_spread_of_what_is_drawn(workshop: Any, tmp_path: Path, kind: str) -> None:
    words = WORDS.get(kind, ["the", "film", "people", "home"])
    given = vectors_of(words)
    path = str(write(tmp_path / "vectors.txt", given))
    config = configured(workshop, kind, model__embeddings=path, model__scale_embeddings=True)
    assert said(config, tmp_path / "run", "standard deviation") == []
    list(train(TrainRequest(configured(workshop, kind), tmp_path / "plain")))
    name = next(name for name in MATRICES[kind] if name in weights(tmp_path / "run"))
    found, plain, known = (
        weights(tmp_path / "run")[name],
        weights(tmp_path / "plain")[name],
        tokenizer(tmp_path / "run"),
    )
    ids = {known.encode([word])[0][0]: word for word in words if len(known.encode([word])[0]) == 1}
    rows = np.stack([given[word] for word in ids.values()])
    # torch's deviation divides by n - 1
    assert found[list(ids)] == pytest.approx(rows * (plain.std(ddof=1) / rows.std()), rel=1e-5)
    assert found[list(ids)].std() == pytest.approx(plain.std(), rel=1e-3)


def test_a_spread_of_another_order_is_told(workshop: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of(DIGITS))
    (line,) = said(workshop.configure(**STILL, model__embeddings=str(path)), tmp_path / "run", "standard deviation")
    assert line.text.startswith("model.embeddings: standard deviation 0.") and "scale_embeddings=true" in line.text
    near = write(tmp_path / "near.txt", {word: row / 5 for word, row in vectors_of(DIGITS).items()})
    config = workshop.configure(**STILL, model__embeddings=str(near))
    assert config.model.d_model == 16 and said(config, tmp_path / "near", "standard deviation") == []


def test_what_is_not_there_cannot_be_scaled(workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs word vectors"):
        list(train(TrainRequest(workshop.configure(model__scale_embeddings=True), tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_one_matrix_takes_one_file(workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="target_embeddings need tie_embeddings target or none"):
        workshop.configure(model__target_embeddings="v.txt")


def test_a_run_that_goes_on_reads_no_vectors(workshop: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of(DIGITS))
    config = workshop.configure(limits__max_steps=6, model__embeddings=str(path))
    workshop.train(config, tmp_path / "whole")
    from attnkit.errors import StoppedError

    calls = iter(range(1, 100))
    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, tmp_path / "run", stop=lambda: next(calls) == 3)))
    path.unlink()
    assert said(config, tmp_path / "run") == []
    assert (tmp_path / "run/checkpoints/step-6/model.safetensors").read_bytes() == (
        tmp_path / "whole/checkpoints/step-6/model.safetensors"
    ).read_bytes()
    other = workshop.configure(limits__max_steps=6, model__embeddings="elsewhere.txt")
    with pytest.raises(UsageError, match=r"model\.embeddings: .*vectors\.txt -> elsewhere\.txt"):
        list(train(TrainRequest(other, tmp_path / "run")))


@pytest.mark.parametrize("kind", MATRICES)
def test_another_width_is_refused_before_anything_is_made(workshop: Any, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of(DIGITS, width=12))
    config = configured(workshop, kind, model__embeddings=str(path))
    with pytest.raises(UsageError, match=r"have width 12, the embeddings 16") as caught:
        list(train(TrainRequest(config, tmp_path / "run")))
    assert (caught.value.where, caught.value.exit_code) == ("model.embeddings", 2)
    assert caught.value.help == "add --set model.d_model=12, or give vectors of the model's width"
    assert not (tmp_path / "run").exists()


def test_vectors_of_nothing_that_occurs_are_refused(workshop: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of(["ten", "twenty"]))
    with pytest.raises(UsageError, match=r"none of the .* words of the vocabulary has a vector"):
        list(train(TrainRequest(workshop.configure(model__embeddings=str(path)), tmp_path / "run")))


def test_vectors_that_are_not_finite_are_refused(workshop: Any, tmp_path: Path) -> None:
    given = vectors_of(DIGITS)
    given["3"][4] = np.inf
    path = write(tmp_path / "vectors.txt", given)
    with pytest.raises(DataError, match=r"infinite, NaN or too large|no finite"):
        list(train(TrainRequest(workshop.configure(model__embeddings=str(path)), tmp_path / "run")))


def test_few_words_are_worth_a_warning(workshop: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of("12"))
    config = workshop.configure(**STILL, model__embeddings=str(path), vocabulary__byte_fallback=False)
    (line,) = said(config, tmp_path / "run")
    assert isinstance(line, WarningEvent) and line.text.startswith("model.embeddings: 2 of 10 words (20.0 %)")


def test_another_runs_weights_have_taken_them_in(workshop: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.txt", vectors_of(DIGITS))
    config = workshop.configure(**STILL, model__embeddings=str(path))
    workshop.train(config, tmp_path / "first")
    layer = init_layer(tmp_path / "first")
    assert layer.tree["model"]["d_model"] == 16 and "embeddings" not in layer.tree["model"]
    with pytest.raises(UsageError, match="cannot be combined"):
        list(train(TrainRequest(config, tmp_path / "run", init_from=tmp_path / "first")))
    path.unlink()
    list(train(TrainRequest(workshop.configure(**STILL), tmp_path / "run", init_from=tmp_path / "first")))
    assert np.array_equal(*(weights(tmp_path / name)[MATRICES["transformer"][0]] for name in ("first", "run")))


TEXT = ["The dog ran. The dogs ran again and again.", "A dog barked, then barked again."] * 4


def vocabulary(kind: str, size: int) -> Tokenizer:
    return train_vocabulary(TEXT, VocabularyConfig.model_validate({"kind": kind, "size": size}))


def test_parts_of_words_are_no_words() -> None:
    """By hand: ``ing`` within a word is not the word ``ing``; a full stop is one; ``The`` is found lower-cased."""
    known = vocabulary("bpe", 330)
    pieces = {known.tokens([id])[0]: id for id in range(4, known.vocab_size)}
    assert {"▁dog", "▁The", ".", "ed"} <= pieces.keys()
    found = find_words(known, {"dog", "the", ".", "ed", "d", "again"})
    words = {known.tokens([id])[0]: word for id, word in found.words.items()}
    assert words["▁dog"] == "dog" and words["▁The"] == "the" and words["."] == "."
    assert "ed" not in words and "d" not in words
    assert found.n_lowered == 1 and found.n_words + found.n_parts == len([p for p in pieces if p != "▁"]) - sum(
        not known.bytes_of(id).strip() for piece, id in pieces.items() if piece != "▁"
    )


def test_vectors_of_pieces_are_looked_up_as_they_are_shown() -> None:
    known = vocabulary("bpe", 330)
    found = find_words(known, {"▁dog", "ed", "dog"})
    assert {known.tokens([id])[0] for id in found.words} == {"▁dog", "ed"}
    assert set(found.words.values()) == {"▁dog", "ed"}


def test_unseen_words_get_what_their_n_grams_give() -> None:
    known = vocabulary("word", 100)
    found = find_words(known, {"dog"}, lambda word: object() if word.startswith("bark") else None)
    assert set(found.words.values()) == {"dog"} | {
        word for word in ("barked", "barked,") if known.encode([word])[0][0] > 3
    }
    assert found.n_composed == len(found.words) - 1 >= 1
