"""Lines of several sentences: which are split, and how their translations are joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.engine.seq2seq import LocalSearch
from attnkit.errors import RunError
from attnkit.tasks.translation.loading import open_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.segmenting import Segmenter, SplitPolicy, join_segments
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.sentences import SourceStatistics

LINE = "0 1 2 3?  4 5 6! 7 8 9"
SENTENCES = ["0 1 2 3?", "4 5 6!", "7 8 9"]


@pytest.fixture
def translator(workshop: Any, trained: Path) -> TranslationPipeline:
    run = workshop.random_run(trained, "transformer")
    return TranslationPipeline([run], LocalSearch([run.model], run.device))


def set_policy(translator: TranslationPipeline, policy: SplitPolicy, statistics: SourceStatistics | None) -> list[str]:
    told: list[str] = []
    translator.segmenter = Segmenter(translator.src_tokenizer, translator.segmenter.max_length, statistics, policy)
    translator.segmenter.tell = told.append
    return told


def test_sentences_are_translated_alone_and_joined_with_their_white_space(translator: TranslationPipeline) -> None:
    set_policy(translator, "sentences", None)
    first, second, third = translator.translate(SENTENCES)
    assert translator.translate([LINE]) == [f"{first}  {second} {third}"]
    set_policy(translator, "lines", None)
    assert translator.translate([LINE]) != [f"{first}  {second} {third}"]


@pytest.mark.parametrize(
    ("sentences", "tokens", "splits"), [(1, 1000, True), (3, 1000, False), (3, 1, True), (2, 1000, True)]
)
def test_auto_splits_what_is_longer_than_the_training_text(
    translator: TranslationPipeline, sentences: int, tokens: int, splits: bool
) -> None:
    told = set_policy(translator, "auto", SourceStatistics(sentences=sentences, tokens=tokens))
    [found] = translator.stream([LINE])
    assert len(found.source_ids) == (3 if splits else 1)
    assert "split" not in found.signs  # no sentence was cut
    list(translator.stream([LINE, "1 2 3", LINE]))
    assert len(told) == splits and all(text.startswith("line 1 has 3 sentences") for text in told)


def test_a_run_without_statistics_keeps_lines_whole(translator: TranslationPipeline) -> None:
    told = set_policy(translator, "auto", None)
    assert [len(found.source_ids) for found in translator.stream([LINE])] == [1] and told == []


def test_scores_are_sums_over_aligned_sentences(translator: TranslationPipeline, workshop: Any, trained: Path) -> None:
    run = workshop.random_run(trained, "transformer")
    segmenter = Segmenter(run.src_tokenizer, 100, None, "sentences")

    def scores(pairs: list[tuple[str, str]], split: bool) -> list[tuple[float, int]]:
        found = score_pairs(run, run.model, run.device, pairs, segmenter=segmenter if split else None)
        return [(score.log_prob, score.n_tokens) for score in found]

    pairs = [("1 2? 3 4!", "4 3! 2 1?"), ("5 6. 7", "no second sentence"), ("8 9", "9 8")]
    parts = scores([("1 2?", "4 3!"), ("3 4!", "2 1?")], split=False)
    whole, split = scores(pairs, split=False), scores(pairs, split=True)
    assert split[0][0] == pytest.approx(sum(score for score, _ in parts), abs=1e-4)
    assert split[0][1] == sum(n for _, n in parts) and split[0] != whole[0]
    assert split[1:] == [(pytest.approx(score, abs=1e-4), n) for score, n in whole[1:]]


@pytest.mark.parametrize(
    ("texts", "befores", "joined"),
    [
        (["Ja.", "Gut."], ["", "\t"], "Ja.\tGut."),
        (["Yes.", "Good."], ["", ""], "Yes. Good."),  # from Chinese
        (["是。", "好。"], ["", " "], "是。好。"),  # to Chinese
        (["A", "B"], ["", None], "A B"),
        (["", "B"], ["", " "], "B"),
        ([], [], ""),
    ],
)
def test_translations_are_joined(texts: list[str], befores: list[str | None], joined: str) -> None:
    assert join_segments(texts, befores) == joined


def test_training_stores_what_the_source_says(trained: Path, workshop: Any) -> None:
    found = open_run(trained).source_statistics
    assert found is not None and found.sentences == 1 and found.tokens > 1


def test_the_command_splits_by_policy_and_says_so_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(f"{LINE}\n1 2 3\n{LINE}\n")
    n_split = []
    for policy in ("auto", "sentences", "lines"):
        command = ["translate", trained, "-i", path, "--split", policy, "--json", "--return-attention"]
        monkeypatch.setattr("sys.argv", ["attnkit", *map(str, command)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        out, err = capsys.readouterr()
        n_split.append([len(json.loads(line)["source_tokens"]) for line in out.splitlines()])
        assert err.count("split into sentences") == (policy == "auto")
    assert n_split == [[3, 1, 3], [3, 1, 3], [1, 1, 1]]


def test_damaged_statistics_are_reported(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(trained)
    monkeypatch.setattr("attnkit.tasks.translation.loading.read_bounded", lambda *_: b'{"sentences": 0}')
    with pytest.raises(RunError, match="statistics"):
        _ = run.source_statistics
