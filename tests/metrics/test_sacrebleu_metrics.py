"""BLEU, chrF, TER and the paired tests against the ``sacrebleu`` command itself."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from attnkit.errors import UsageError
from attnkit.metrics.bleu import (
    PAIRED_TESTS,
    BleuTokenizer,
    build_metric,
    corpus_bleu,
    corpus_chrf,
    paired_bootstrap,
    paired_randomization,
    score_corpus,
    score_sentences,
)

REF = [
    "The cat sat on the mat.", "A dog runs through the GRASS!", "Two people, one bicycle: that's all.",
    "Er hat das Haus gesehen.", "It costs $3.50 (or 4,000 yen).", "Nobody knows why it happened.",
]  # fmt: skip
REF2 = [line.replace("the", "this").replace("A dog", "One dog") for line in REF]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rng = random.Random(5)

    def spoil(line: str, odds: float) -> str:
        return " ".join(
            word.lower() if rng.random() < odds else word for word in line.split() if rng.random() > odds / 2
        )

    folder = tmp_path_factory.mktemp("lines")
    texts = {
        "ref": REF * 6, "ref2": REF2 * 6,
        "hyp": [spoil(line, 0.3) for line in REF * 6], "other": [spoil(line, 0.6) for line in REF * 6],
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return {name: folder / name for name in texts}


def sacrebleu(*arguments: str | Path) -> str:
    code = "from sacrebleu.sacrebleu import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout


def attnkit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "attnkit", "score-bleu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("n_refs", [1, 2])
def test_all_metrics_equal_the_command(lines: dict[str, Path], n_refs: int) -> None:
    refs = [lines["ref"], lines["ref2"]][:n_refs]
    theirs = sacrebleu(*refs, "-i", lines["hyp"], "-m", "bleu", "chrf", "ter", "-f", "text", "-w", "2")
    ours = attnkit(lines["hyp"], *refs, "-m", "bleu", "-m", "chrf", "-m", "ter")
    assert [line.strip() for line in theirs.splitlines()] == ours.stdout.splitlines()


@pytest.mark.parametrize(("order", "more"), [(2, ()), (1, ("--lowercase",)), (0, ())])
def test_chrf_with_words_equals_the_command(lines: dict[str, Path], order: int, more: tuple[str, ...]) -> None:
    both = ("-m", "chrf", "--chrf-word-order", str(order))
    lower = ("--chrf-lowercase",) if more else ()
    theirs = sacrebleu(lines["ref"], "-i", lines["hyp"], *both, *lower, "-f", "text", "-w", "2")
    ours = attnkit(lines["hyp"], lines["ref"], *both, *more)
    assert theirs.strip() == ours.stdout.strip() and f"|nw:{order}|" in ours.stdout


@pytest.mark.parametrize(("tokenize", "package"), [("flores200", "sentencepiece"), ("ja-mecab", "sacrebleu[ja]")])
def test_tokenizers_without_their_package_say_which(
    lines: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tokenize: BleuTokenizer, package: str
) -> None:
    for name in ("sentencepiece", "MeCab", "ipadic"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ImportError
    with pytest.raises(UsageError, match=tokenize) as refused:
        build_metric("bleu", tokenize=tokenize)
    assert refused.value.help == f"pip install '{package}'"


def test_flores_tokenizer_equals_the_command(
    lines: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small model in the place of the one that sacreBLEU would download."""
    trainer = pytest.importorskip("sentencepiece")
    (tmp_path / "models").mkdir()
    prefix = tmp_path / "small"
    trainer.SentencePieceTrainer.train(input=str(lines["ref"]), model_prefix=str(prefix), vocab_size=50)
    prefix.with_suffix(".model").rename(tmp_path / "models/sacrebleu_tokenizer_spm.model")
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    theirs = sacrebleu(lines["ref"], "-i", lines["hyp"], "--tokenize", "flores101", "-f", "text", "-w", "2")
    ours = attnkit(lines["hyp"], lines["ref"], "--tokenize", "flores101")
    assert theirs.strip() == ours.stdout.strip() and "|tok:flores101|" in ours.stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize("tokenize", ["13a", "intl", "zh", "char", "none"])
def test_tokenizers_and_lowercase_equal_the_command(lines: dict[str, Path], tokenize: str) -> None:
    theirs = json.loads(sacrebleu(lines["ref"], "-i", lines["hyp"], "--tokenize", tokenize, "-lc", "-w", "9"))
    ours = json.loads(attnkit(lines["hyp"], lines["ref"], "--tokenize", tokenize, "--lowercase", "--json").stdout)
    assert ours[0]["score"] == pytest.approx(theirs["score"], abs=1e-8)
    assert ours[0]["signature"] == f"BLEU|{theirs['signature']}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_sentence_scores_equal_the_command(lines: dict[str, Path], metric: str) -> None:
    theirs = sacrebleu(lines["ref"], "-i", lines["hyp"], "-m", metric, "-sl", "-f", "text", "-w", "2")
    ours = attnkit(lines["hyp"], lines["ref"], "--sentence", "-m", metric).stdout.splitlines()
    values = [line.split(" = ")[1].split()[0] for line in theirs.splitlines()]
    assert ours == values


def test_a_system_beside_itself_is_called_no_different(lines: dict[str, Path]) -> None:
    shown = attnkit(lines["hyp"], lines["ref"], "--against", lines["hyp"], "--samples", "20").stdout
    assert "(no difference)" in shown and "p = " not in shown


@pytest.mark.parametrize("seed", [12345, 6])
@pytest.mark.parametrize(("test", "theirs"), [("bootstrap", "--paired-bs"), ("randomization", "--paired-ar")])
def test_paired_tests_equal_the_command(
    lines: dict[str, Path], monkeypatch: pytest.MonkeyPatch, test: str, theirs: str, seed: int
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(seed))
    asked = ("-m", "bleu", "chrf", theirs, f"{theirs}-n", "200", "-f", "text", "-w", "4", "-q")
    shown = sacrebleu(lines["ref"], "-i", lines["other"], lines["hyp"], *asked)
    options = ("--test", test, "--samples", "200", "--seed", str(seed), "-m", "bleu", "-m", "chrf", "--json")
    found = json.loads(attnkit(lines["hyp"], lines["ref"], "--against", lines["other"], *options).stdout)
    assert [one["name"] for one in found] == ["BLEU", "chrF2"]
    for one in found:
        # Randomization has no intervals in the command, so its signature lacks the number of bootstrap samples.
        signature = one["signature"].removeprefix(f"{one['name']}|")
        assert (signature if test == "bootstrap" else signature.replace("|bs:1000", "")) in shown
        for value in (f"{one['baseline']:.4f}", f"{one['system']:.4f}", f"p = {one['p_value']:.4f}"):
            assert value in shown
        assert one["system_interval"] > 0 and one["baseline_interval"] > 0
        assert test == "randomization" or f"± {one['system_interval']:.4f}" in shown


def test_randomization_exchanges_translations_of_lines(lines: dict[str, Path]) -> None:
    """With the draws of sacreBLEU, but whole corpora scored anew."""
    texts = {name: path.read_text(encoding="utf-8").splitlines() for name, path in lines.items()}
    n = len(texts["hyp"]) // 2  # of two systems that are as good as each other
    first, second = ([*texts[one][:n], *texts[other][n:]] for one, other in (("hyp", "other"), ("other", "hyp")))
    refs, metric = [texts["ref"]], build_metric("bleu")
    found = paired_randomization(metric, first, second, refs, n_samples=60, seed=7)

    def difference(one: Sequence[str], other: Sequence[str]) -> float:
        return abs(metric.corpus_score(one, refs).score - metric.corpus_score(other, refs).score)

    seen, n_larger = difference(first, second), 0
    for kept in np.random.default_rng(7).integers(2, size=(60, len(first)), dtype=bool):
        sides = list(zip(kept, first, second, strict=True))
        mixed = [a if keep else b for keep, a, b in sides], [b if keep else a for keep, a, b in sides]
        n_larger += difference(*mixed) > seen
    assert found.p_value == (n_larger + 1) / 61 and 0 < n_larger < 60


@pytest.mark.parametrize("compare", [paired_bootstrap, paired_randomization])
def test_a_seed_of_zero_is_refused(compare: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="the seed must be at least 1"):
        compare(build_metric("bleu"), REF, REF, [REF], seed=0)


def test_bootstrap_seed_matters_and_environment_is_left_alone(
    lines: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    texts = {name: path.read_text(encoding="utf-8").splitlines() for name, path in lines.items()}

    def compare(seed: int) -> float:
        metric = build_metric("bleu")
        found = paired_bootstrap(metric, texts["other"], texts["hyp"], [texts["ref"]], n_samples=50, seed=seed)
        return found.system_interval

    assert compare(1) == compare(1) != compare(2)
    import os

    assert os.environ["SACREBLEU_SEED"] == "77"


def test_library_functions() -> None:
    assert corpus_bleu(REF, [REF]).score == pytest.approx(100)
    assert corpus_chrf(REF, [REF]).score == pytest.approx(100)
    assert score_corpus(build_metric("ter"), REF, [REF]).score == 0
    assert score_corpus(build_metric("ter"), ["a b c x"], [["a b c d"]]).score == pytest.approx(25)
    assert score_sentences(build_metric("bleu", by_sentence=True), ["a b", "x y"], [["a b", "c d"]]) == [
        pytest.approx(100),
        0,
    ]


@pytest.mark.parametrize(("hyps", "refs"), [([], [[]]), (["a"], []), (["a"], [["a", "b"]])])
def test_library_refuses_what_does_not_line_up(hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> None:
    with pytest.raises(ValueError, match=r"nothing to score|1 hypotheses but 2 lines"):
        score_corpus(build_metric("bleu"), hyps, refs)


def test_hypotheses_may_come_from_standard_input(lines: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "attnkit", "score-bleu", "-", str(lines["ref"]), "--against", str(lines["other"])]
    text = lines["hyp"].read_text(encoding="utf-8")
    done = subprocess.run([*command, "--samples", "20"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("BLEU|nrefs:1|bs:20|seed:12345|")


def test_command_refuses_different_line_counts(lines: dict[str, Path], tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("one line\n", encoding="utf-8")
    done = attnkit(lines["hyp"], short)
    assert done.returncode == 3
    assert f"{lines['hyp']} has 36 lines and {short} has 1" in done.stderr
    assert done.stdout == ""


def test_command_refuses_empty_and_missing_files(lines: dict[str, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    done = attnkit(empty, lines["ref"])
    assert (done.returncode, "the file is empty" in done.stderr) == (3, True)
    done = attnkit(lines["hyp"], tmp_path / "nowhere")
    assert done.returncode in (2, 3)
    assert "nowhere" in done.stderr


def test_command_refuses_flags_that_exclude_each_other(lines: dict[str, Path]) -> None:
    for flags in (
        ["--formula", "notes", "-m", "ter"],
        ["--formula", "notes", "--lowercase"],
        ["--max-order", "2"],
        ["--sentence", "--against", str(lines["other"])],
    ):
        assert attnkit(lines["hyp"], lines["ref"], *flags).returncode == 2


def test_metrics_need_no_torch() -> None:
    code = (
        "import sys, attnkit.metrics.bleu as b, attnkit.cli.score_bleu, attnkit.cli.toy_corpus\n"
        "assert 'sacrebleu' not in sys.modules\n"
        "b.corpus_bleu(['a'], [['a']])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("test", list(PAIRED_TESTS))
def test_equal_scores_are_no_difference(test: str) -> None:
    lines = [f"line {k} has some words" for k in range(20)]
    for hypotheses in (lines, [*lines[:10], *["nothing"] * 10]):
        found = PAIRED_TESTS[test](build_metric("bleu"), hypotheses, list(hypotheses), [lines], n_samples=50)
        assert found.system == found.baseline and found.p_value == 1.0
