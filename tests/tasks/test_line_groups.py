"""Groups of lines of a comparison: each line once, scores as sacreBLEU's own on the same lines."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from attnkit.analysis.compare_translators import TestComparison, check_runs, compare_translators
from attnkit.analysis.line_groups import LineGroup, TestLines, count_words, group_lines, most_changed
from attnkit.cli.compare import as_text
from attnkit.errors import UsageError

LINES = TestLines(
    source=["A dog runs .", "We met Anna in 2019 .", " ".join(["word"] * 11), "one two three", " ".join(["w"] * 40)],
    reference=["Ein Hund rennt .", "Wir trafen Anna 2019 .", "Wort Wort Wort", "eins zwei drei", "w w w w"],
    baseline=["Ein Hund rennt .", "Wir trafen sie .", "Wort Wort", "eins zwei", "w w w"],
    system=["Ein Hund schläft .", "Wir trafen Anna 2019 .", "Wort Wort Wort", "eins zwei", "w w w w"],
)
WORDS = Counter({"ein": 7, "hund": 3, "rennt": 3, "wir": 500, "trafen": 500, "anna": 0, "wort": 200, "w": 5})


def groups(found: list[LineGroup], name: str) -> dict[str, int]:
    return {one.group: one.n_lines for one in found if one.property == name}


def test_each_line_is_in_the_group_that_its_property_says() -> None:
    found = group_lines(LINES, WORDS, [0, 3])
    assert groups(found, "words of the source") == {"1 to 10": 3, "11 to 20": 1, "31 or more": 1}
    assert groups(found, "numbers in the source") == {"no": 4, "yes": 1}
    assert groups(found, "names in the source") == {"no": 4, "yes": 1}, "the first word of a line is no name"
    assert groups(found, "words that source and reference share") == {"no": 4, "yes": 1}, "single letters do not count"
    rare = "times the rarest word was in training"
    assert groups(found, rare) == {"0": 2, "1 to 5": 2, "101 or more": 1}
    assert groups(found, "source nearly in the training text") == {"no": 3, "yes": 2}
    names = {one.property for one in group_lines(LINES, None, None)}
    assert names == {one.property for one in found} - {rare, "source nearly in the training text"}


def test_groups_sum_up_to_the_whole_and_have_the_scores_of_their_lines() -> None:
    rng = random.Random(1)
    words = ["the", "a", "dog", "Cat", "7", "runs", "sleeps", "near", "far", "red"]
    texts = [[" ".join(rng.choices(words, k=rng.randint(1, 35))) for _ in range(60)] for _ in range(4)]
    lines = TestLines(*texts)
    found = group_lines(lines, count_words(texts[1][:30]), range(0, 60, 7))
    for name in {one.property for one in found}:
        assert sum(groups(found, name).values()) == 60
    short = [k for k in range(60) if len(texts[0][k].split()) <= 10]
    one = next(one for one in found if one.group == "1 to 10")
    refs = [[texts[1][k] for k in short]]
    for side, bleu, chrf in ((2, one.baseline_bleu, one.baseline_chrf), (3, one.system_bleu, one.system_chrf)):
        hyps = [texts[side][k] for k in short]
        assert bleu == pytest.approx(sacrebleu.corpus_bleu(hyps, refs).score)
        assert chrf == pytest.approx(sacrebleu.corpus_chrf(hyps, refs).score)


def test_the_lines_that_differ_most() -> None:
    found = most_changed(LINES, 3)
    gains = {k + 1: sacrebleu.sentence_chrf(LINES.system[k], [LINES.reference[k]]).score
             - sacrebleu.sentence_chrf(LINES.baseline[k], [LINES.reference[k]]).score for k in range(5)}  # fmt: skip
    largest = sorted(gains, key=lambda k: -abs(gains[k]))[:3]
    assert [one.line for one in found] == sorted(largest, key=lambda k: -gains[k])
    assert all(one.system_chrf - one.baseline_chrf == pytest.approx(gains[one.line]) for one in found)
    assert found[0].source == LINES.source[found[0].line - 1]
    assert len(most_changed(LINES, 50)) == 4, "a line that did not change is left out"


def test_a_comparison_shows_groups_and_lines(workshop: Any, trained: Path, tmp_path: Path) -> None:
    workshop.train(workshop.configure(limits__max_steps=2, seed=5), tmp_path / "run")
    tests = [(workshop.file("test.src"), workshop.file("test.tgt"))]
    (one,) = compare_translators([trained, tmp_path / "run"], tests, groups=True, n_lines=2)
    assert one.groups is not None and one.changed is not None and len(one.changed) == 2
    for name in {group.property for group in one.groups}:
        assert sum(groups(one.groups, name).values()) == one.n_lines
    whole = groups(one.groups, "source nearly in the training text")
    assert one.seen is not None and whole.get("yes", 0) == one.seen.source
    text = as_text(one)
    assert "words of the source" in text and f"line {one.changed[0].line}:" in text
    (plain,) = compare_translators([trained, tmp_path / "run"], tests)
    assert (plain.groups, plain.changed) == (None, None)
    assert as_text(plain) == text[: text.index("\n\n")]


def test_each_run_is_compared_with_the_first(workshop: Any, trained: Path, tmp_path: Path) -> None:
    for seed in (5, 6):
        workshop.train(workshop.configure(limits__max_steps=2, seed=seed), tmp_path / f"run{seed}")
    tests = [(workshop.file("test.src"), workshop.file("test.tgt"))]
    others = [tmp_path / "run5", tmp_path / "run6"]
    found = list(compare_translators([trained, *others], tests))
    assert [(one.baseline, one.system) for one in found] == [(str(trained), str(other)) for other in others]
    assert found == [one for other in others for one in compare_translators([trained, other], tests)]
    with pytest.raises(UsageError, match="two runs are compared"):
        check_runs([trained])


def test_tables_fit_80_columns() -> None:
    found = group_lines(LINES, WORDS, [0])
    text = as_text(TestComparison("a", "b", "test.en", "test.de", 5, None, [], found, []))
    assert max(map(len, text.splitlines())) <= 80
