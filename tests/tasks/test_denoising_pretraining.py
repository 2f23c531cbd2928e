"""Pretraining of translators on corrupted lines: data, validation, resuming, what is learned, and how it goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnkit
from attnkit.data.pairs import Pairs
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.data import open_prepared
from attnkit.tasks.translation.task import TASK
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary

LETTERS, NUMBERS = list("abcdefghijkl"), [f"{n}." for n in range(12)]
WORDS = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1}


def counting(words: list[str], n: int, seed: int) -> list[str]:
    """Return lines that count on from any word, so that the words around a gap determine it."""
    drawn, lines = random.Random(seed), []
    for _ in range(n):
        start, length = drawn.randrange(12), drawn.randint(5, 11)
        lines.append(" ".join(words[(start + place) % 12] for place in range(length)))
    return lines


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text in two languages, and 60 pairs of them: line n of both counts alike."""
    folder = tmp_path_factory.mktemp("files")
    for name, n, seed in (("mono", 400, 1), ("pairs", 60, 3), ("valid", 40, 4), ("test", 100, 5)):
        for language, words in (("en", LETTERS), ("de", NUMBERS)):
            write(folder / f"{name}.{language}", counting(words, n, seed))
    return folder


def configure(workshop: Any, files: Path, *names: str, **changes: Any) -> Any:
    """Return the configuration of a run that restores the lines of files."""
    paths = [str(files / name) for name in names or ("mono.en", "mono.de")]
    flags = {"data.src": paths, "data.tgt": paths, "data.denoise": {}}
    settings = {**WORDS, "data.held_out": 40, **changes}
    kind = settings.pop("kind", "transformer")
    return resolve({**flags, "model.kind": kind}, sets=workshop.settings(kind, **settings), preset_name="tiny").config


def prepared(config: Any, folder: Path) -> Any:
    list(TASK.prepare(config, folder, None, None))
    return TASK.load_data(config, folder)


def sources(pairs: Pairs, n: int, epoch: int = 0) -> list[list[int]]:
    return [row[row > 2].tolist() for row in pairs.batch(np.arange(n), 1, epoch).src]


def test_lines_are_restored_after_tags_of_their_languages(workshop: Any, files: Path, tmp_path: Path) -> None:
    config = configure(workshop, files)
    assert config.data.directions == ("en:en", "de:de")
    data = prepared(config, tmp_path / "data")
    vocabulary = data.vocabularies.src
    assert vocabulary is data.vocabularies.tgt
    tags, mask = [vocabulary.token_id(f"<2{name}>") for name in ("en", "de")], vocabulary.token_id("<mask>")
    assert None not in (*tags, mask)
    n_en, n_de = data.pairs.corpora
    assert n_en + n_de > 500 and UNK_ID not in data.pairs.tgt.gather(np.arange(n_en + n_de))[0]
    rows, later = (sources(data.pairs, n_en + n_de, epoch) for epoch in (0, 1))
    assert all(row[0] == tags[number >= n_en] for number, row in enumerate(rows))
    assert all(row.count(tags[0]) + row.count(tags[1]) == 1 for row in rows)
    lost = 1 - sum(id not in (mask, *tags) for row in rows for id in row) / len(
        data.pairs.tgt.gather(np.arange(n_en + n_de))[0]
    )
    assert lost == pytest.approx(0.3, abs=0.02)
    assert sum(a != b for a, b in zip(rows, later, strict=True)) > len(rows) / 2


def test_a_single_language_has_no_tag(workshop: Any, files: Path, tmp_path: Path) -> None:
    config = configure(workshop, files, "mono.en", data__denoise={"mask_prob": 0.5, "span_length": 2.0})
    assert config.data.directions is None
    assert config.data.denoise is not None and config.data.denoise.mask_prob == 0.5
    data = prepared(config, tmp_path / "data")
    assert data.vocabularies.src.token_id("<2en>") is None and data.valid_directions == [""] * len(data.valid)


def test_the_vocabulary_counts_each_line_once(workshop: Any, files: Path, tmp_path: Path) -> None:
    lines = [*counting(LETTERS, 80, 9), "rare once"]
    write(tmp_path / "some.en", lines)
    changes = {"vocabulary.min_frequency": 2, "data.valid_src": [str(files / "valid.en")]}
    changes["data.valid_tgt"] = changes["data.valid_src"]
    data = prepared(configure(workshop, tmp_path, "some.en", **changes), tmp_path / "data")
    settings = VocabularyConfig(kind="word", min_frequency=2, symbols=("<mask>",))
    expected = train_vocabulary(lines, settings.model_copy(update={"size": data.vocabularies.src.config.size}))
    assert data.vocabularies.src.fingerprint == expected.fingerprint


def test_validation_lines_are_corrupted_once(workshop: Any, files: Path, tmp_path: Path) -> None:
    found = [
        prepared(configure(workshop, files, **changes), tmp_path / name)
        for name, changes in (("a", {}), ("b", {"seed": 7}), ("c", {"data.held_out_seed": 7}))
    ]
    assert found[0].valid_src == found[1].valid_src != found[2].valid_src
    data = found[0]
    changed = [src for src, tgt in zip(data.valid_src, data.valid_tgt, strict=True) if src != tgt]
    assert len(changed) > len(data.valid) / 2 and all("<mask>" in src for src in changed)
    assert not any("<mask>" in tgt for tgt in data.valid_tgt)
    vocabulary = data.vocabularies.src
    for row, (src, tgt, name) in enumerate(zip(data.valid_src, data.valid_tgt, data.valid_directions, strict=True)):
        tag = vocabulary.token_id(f"<2{name[:2]}>")
        assert data.valid.src[row].tolist() == [tag, *vocabulary.encode([src])[0]]
        assert data.valid.tgt[row].tolist() == vocabulary.encode([tgt])[0]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
def test_corrupted_text_reads_as_its_line(workshop: Any, tmp_path: Path, kind: str) -> None:
    lines = [f"the {word} fox jumps over naïve {word} dogs" for word in ("quick", "lazy", "brown", "red")] * 20
    write(tmp_path / "a.en", lines)
    data = prepared(
        configure(workshop, tmp_path, "a.en", **{"vocabulary.kind": kind, "vocabulary.size": 600}), tmp_path / "data"
    )
    for src, tgt in zip(data.valid_src, data.valid_tgt, strict=True):
        place = 0
        for part in src.split("<mask>"):  # what is kept, in the order of the line
            place = tgt.index(part.replace("�", ""), place) + len(part)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("transformer", {"model.dropout": 0.3, "optimization.gradient_accumulation_steps": 2}),
        ("transformer", {"vocabulary.kind": "bpe", "vocabulary.size": 330, "regularization": {"bpe_dropout": 0.3}}),
        ("rnn", {"model.dropout": 0.3}),
    ],
)
def test_stopping_a_denoising_run_changes_nothing(
    workshop: Any, files: Path, tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    config = configure(workshop, files, kind=kind, **changes)
    whole = workshop.train(config, tmp_path / "whole")
    pieces = workshop.train(config, tmp_path / "pieces", stops=(1, 4, 3, 3))
    assert whole == pieces and whole.step == 12
    names = [f"checkpoints/step-12/{part}.safetensors" for part in ("model", "optimizer")] + ["metrics.jsonl", "best"]
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes(), name


@pytest.fixture(scope="module")
def restored(workshop: Any, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned to count in both languages."""
    run = tmp_path_factory.mktemp("restored") / "run"
    sizes = {"model.d_model": 48, "model.d_ff": 96, "model.dropout": 0.0, "optimization.batch_tokens": 600}
    steps = {"limits.max_steps": 400, "evaluation": {"every_steps": 400, "n_samples": 2}}
    rate = {"optimization.learning_rate": 0.005, "optimization.warmup_steps": 50}
    workshop.train(configure(workshop, files, **{**sizes, **steps, **rate}), run)
    return run


def test_gaps_are_filled_from_what_is_around_them(restored: Path, files: Path) -> None:
    drawn = random.Random(2)
    for language in ("en", "de"):
        lines = (files / f"test.{language}").read_text().splitlines()
        corrupted = []
        for line in lines:
            words = line.split()
            begin, n = drawn.randint(1, 2), drawn.randint(1, 2)
            corrupted.append(" ".join([*words[:begin], "<mask>", *words[begin + n :]]))
        translator = attnkit.load(restored, device="cpu", threads=1, tgt_lang=language)
        found = translator.translate_texts(corrupted)  # type: ignore[union-attr]
        right = sum(text == line for (text, *_), line in zip(found, lines, strict=True))
        assert right >= 70, "the words around a gap determine what it was; without them nothing is right"


def test_a_restored_model_is_a_better_start_for_pairs(
    workshop: Any, restored: Path, files: Path, tmp_path: Path
) -> None:
    pair = {"src": [str(files / "pairs.en")], "tgt": [str(files / "pairs.de")], "directions": ["en:de"]}
    pair |= {"valid_src": [str(files / "valid.en")], "valid_tgt": [str(files / "valid.de")]}
    flags = {f"data.{key}": value for key, value in pair.items()}
    given = {"optimization.learning_rate": 0.002, "optimization.warmup_steps": 5, "limits.max_steps": 60}
    model = {"model.d_model": 48, "model.d_ff": 96, "model.dropout": 0.0}
    sets = [f"{key}={json.dumps(value)}" for key, value in {**given, **WORDS, "device": "cpu", "threads": 1}.items()]
    changed = {**given, **WORDS, **model, "optimization.batch_tokens": 600}
    plain = resolve(
        {**flags, "model.kind": "transformer"}, sets=workshop.settings(**changed), preset_name="tiny"
    ).config
    config = resolve(flags, sets=sets, fixed=inherited(restored, None)).config
    assert config.preset == "adapt" and config.model == plain.model and config.data.denoise is None
    begun = workshop.train(config, tmp_path / "begun", init_from=restored)
    alone = workshop.train(plain, tmp_path / "alone")
    assert begun.metrics["loss"] < alone.metrics["loss"] - 0.3
    vocabulary = open_prepared(tmp_path / "begun" / "data").vocabularies.src
    assert vocabulary.fingerprint == open_prepared(restored / "data").vocabularies.src.fingerprint


def test_the_card_says_what_was_restored(restored: Path, files: Path) -> None:
    card = (restored / "README.md").read_text()
    assert f"`{files / 'mono.de'}`, 30% masked in spans of 3 tokens (de:de)" in card
    assert "A model that restores masked text, pretrained to become a translation model, (transformer)" in card
    assert not (restored / "confidence.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.bidirectional": True, "data.directions": ["a:b"]}, "cannot be combined with data.bidirectional"),
        (
            {"data.mix_src": ["a"], "data.mix_tgt": ["a"], "data.directions": None},
            "cannot be combined with data.mix_src",
        ),
        ({"data.placeholders": True}, "cannot be combined with data.placeholders"),
        ({"data.tgt": ["b"]}, "needs the same files as data.src and data.tgt"),
        ({"data.valid_src": ["v"], "data.valid_tgt": ["w"]}, "the same files as data.valid_src and data.valid_tgt"),
        (
            {"data.valid_src": ["v.en", "v.fr"], "data.valid_tgt": ["v.en", "v.fr"]},
            "text of one language, but validation files of several",
        ),
        ({"data.src": ["a.en", "b"], "data.tgt": ["a.en", "b"]}, "needs the languages of several files"),
        ({"data.denoise": {"mask_prob": 0}}, "data.denoise.mask_prob"),
    ],
)
def test_what_cannot_be_restored_is_refused(changes: dict[str, Any], message: str) -> None:
    flags: dict[str, Any] = {"data.src": ["a"], "data.tgt": ["a"], "data.denoise": {}}
    with pytest.raises(UsageError) as caught:
        resolve({**flags, **changes}, preset_name="tiny")
    assert message in f"{caught.value.what} {caught.value.where}"


def test_a_given_vocabulary_needs_the_mask(workshop: Any, files: Path, tmp_path: Path) -> None:
    vocabulary = train_vocabulary(LETTERS + NUMBERS, VocabularyConfig(kind="word", min_frequency=1))
    (tmp_path / "v.json").write_text(vocabulary.to_json())
    config = configure(workshop, files, "mono.en", vocabulary_files=[str(tmp_path / "v.json")])
    with pytest.raises(UsageError, match="needs the symbol <mask>") as caught:
        list(TASK.prepare(config, tmp_path / "data", None, None))
    assert caught.value.where == "--denoise (data.denoise)"
