"""Augmentation: which pairs are made of a corpus, which are dropped, and that a killed job resumes."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from interrupted import check_kills

import attnkit
from attnkit.data.loader import Batching
from attnkit.engine.resolve import resolve
from attnkit.errors import UsageError
from attnkit.tasks.translation.augment import AugmentRequest, augment
from attnkit.tasks.translation.synthetic_config import SyntheticConfig

SHORT: dict[str, Any] = {"max_length": 8}
WORDS: dict[str, Any] = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "evaluation.every_steps": 50}


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs whose tokens are digits, so that whatever they write is text."""
    folder = tmp_path_factory.mktemp("words")
    for seed in (1, 2):
        workshop.train(workshop.configure(limits__max_steps=20, seed=seed, **WORDS), folder / f"{seed}")
    return [folder / "1", folder / "2"]


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


@pytest.fixture
def corpus(workshop: Any, tmp_path: Path) -> tuple[Path, Path]:
    """A corpus with a blank line and a translation that the first run makes."""
    src = [*lines_of(workshop.file("test.src"))[:40], ""]
    tgt = [*lines_of(workshop.file("test.tgt"))[:40], ""]
    paths = tmp_path / "a.src", tmp_path / "a.tgt"
    for path, lines in zip(paths, (src, tgt), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


def request(corpus: tuple[Path, Path], output: Path, **options: Any) -> AugmentRequest:
    given = {"config": SyntheticConfig(tag="<bt>", keep_flagged=True), "search": SHORT, "device": "cpu", "threads": 1}
    return AugmentRequest(*corpus, output, **{**given, **options})


def pairs_of(folder: Path) -> list[tuple[str, str]]:
    return list(zip(lines_of(folder / "pairs.src"), lines_of(folder / "pairs.tgt"), strict=True))


def translations(run: Path, lines: list[str]) -> list[str]:
    found = attnkit.Translator.load(run, device="cpu", threads=1).translate(lines, **SHORT)
    return [one.text for one in found]


def test_both_sides_are_translated_by_every_run(runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path) -> None:
    report = augment(request(corpus, tmp_path / "out", forward=runs, backward=runs[:1], forward_tag="<ft>"))
    src, tgt = map(lines_of, corpus)
    expected: list[tuple[str, str]] = []
    for run in runs:
        expected += [(f"<ft> {s}", one) for s, one in zip(src, translations(run, src), strict=True) if s and one]
    expected += [(f"<bt> {one}", t) for t, one in zip(tgt, translations(runs[0], tgt), strict=True) if t and one]
    counted = Counter(expected)
    originals = {pair for tag in ("<ft> ", "<bt> ") for pair in zip([tag + s for s in src], tgt, strict=True)}
    assert Counter(pairs_of(tmp_path / "out")) <= counted
    assert set(pairs_of(tmp_path / "out")) == set(counted) - originals
    assert report.n_lines == 41 and report.kept + sum(report.dropped.values()) == 3 * 41
    assert report.dropped["blank"] == 3
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [written[f"run {n}"]["is_back"] for n in (1, 2, 3)] == [False, False, True]
    assert [written[f"run {n}"]["tag"] for n in (1, 2, 3)] == ["<ft>", "<ft>", "<bt>"]


def test_pairs_of_the_corpus_and_of_other_runs_are_dropped(
    runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    src = lines_of(corpus[0])
    texts = translations(runs[0], src)
    corpus[1].write_text("".join(f"{text}\n" for text in texts))  # exactly what the run makes
    report = augment(request(corpus, tmp_path / "same", forward=runs[:1] * 2 + runs[1:]))
    n_filled = sum(bool(s and text) for s, text in zip(src, texts, strict=True))
    assert n_filled > 20
    made = list(zip(src, translations(runs[1], src), strict=True))
    n_same = sum(
        bool(s and t) and pair == (s, t) for pair, (s, t) in zip(zip(src, texts, strict=True), made, strict=True)
    )
    assert report.dropped["original"] == 2 * n_filled + n_same
    others = {(s, t) for s, t in made if s and t}
    assert set(pairs_of(tmp_path / "same")) == others - set(zip(src, texts, strict=True))
    corpus[1].write_text("".join("9 9\n" if text else "\n" for text in texts))
    report = augment(request(corpus, tmp_path / "twice", forward=runs[:1] * 2))
    assert report.kept == report.dropped["duplicate"] == n_filled


def test_a_killed_job_resumes_and_is_the_same(
    runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {**SHORT, "sampling": True, "num_hypotheses": 2, "seed": 5}
    both: dict[str, Any] = {"search": search, "forward": runs, "backward": runs}
    augment(request(corpus, tmp_path / "whole", **both))
    again = request(corpus, tmp_path / "out", **both, batching=Batching(window=7))
    check_kills(partial(augment, again), tmp_path / "whole", tmp_path / "out", monkeypatch)


def test_a_finished_augmentation_is_not_done_again(
    runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = augment(request(corpus, tmp_path / "out", forward=runs))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.tasks.translation.engines.EngineSearch._backend", None)  # no weights are loaded
        assert augment(request(corpus, tmp_path / "out", forward=runs)) == report
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    with pytest.raises(UsageError, match=r"is finished, with other input or settings: run 1"):
        augment(request(corpus, tmp_path / "out", forward=runs[1:]))


def test_progress_counts_lines_of_the_corpus(runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path) -> None:
    seen: list[int] = []
    done = request(corpus, tmp_path / "out", forward=runs, backward=runs[:1], batching=Batching(window=10))
    augment(done, progress=seen.append)
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 41
    assert len(set(seen)) > 6


def test_no_run_is_an_error_before_anything_is_written(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run to translate with"):
        augment(request(corpus, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_tag_is_one_word(runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path) -> None:
    for tag in ("a b", "a\nb"):
        with pytest.raises(UsageError, match="white space"):
            augment(request(corpus, tmp_path / "out", forward=runs, forward_tag=tag))
    assert not (tmp_path / "out").exists()


def test_languages_belong_to_the_side_that_is_translated_into(
    workshop: Any, corpus: tuple[Path, Path], runs: list[Path], tmp_path: Path
) -> None:
    flags: dict[str, Any] = {
        f"data.{prefix}{side}": [str(workshop.file(f"{part}.{side}"))]
        for prefix, part in (("", "train"), ("valid_", "valid"))
        for side in ("src", "tgt")
    }
    flags |= {"data.directions": ["up:down"], "data.bidirectional": True, "model.kind": "transformer"}
    settings = workshop.settings("transformer", limits__max_steps=20, **WORDS)
    workshop.train(resolve(flags, sets=settings, preset_name="tiny").config, tmp_path / "both")
    both: dict[str, Any] = {"forward": [tmp_path / "both"], "backward": [tmp_path / "both"]}
    augment(request(corpus, tmp_path / "out", **both, src_lang="up", tgt_lang="down"))
    translator = attnkit.Translator.load(tmp_path / "both", device="cpu", threads=1, tgt_lang="up")
    tgt = lines_of(corpus[1])
    written = {pair[0].removeprefix("<bt> ") for pair in pairs_of(tmp_path / "out") if pair[0].startswith("<bt> ")}
    assert written <= {one.text for one in translator.translate(tgt, **SHORT)} and written
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [report[f"run {n}"]["languages"][0] for n in (1, 2)] == ["down", "up"]
    for options, what, where in (
        ({**both, "tgt_lang": "down"}, "no target language is chosen", "--src-lang"),
        ({**both, "src_lang": "up"}, "no target language is chosen", "--tgt-lang"),
        ({"forward": runs, "src_lang": "up"}, "no run translates into", "--src-lang"),
        ({"backward": runs, "src_lang": "up"}, "has no tag", "--src-lang"),
    ):
        with pytest.raises(UsageError, match=what) as refused:
            augment(request(corpus, tmp_path / "other", **options))
        assert refused.value.where == where
    assert not (tmp_path / "other").exists()


def test_filters_of_back_translation_are_refused(runs: list[Path], corpus: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="filters of back-translation"):
        augment(request(corpus, tmp_path / "out", forward=runs, config=SyntheticConfig(min_round_trip=30.0)))
