"""Scores of tokens: equal in both engines, equal to those of ``score``, and with the sum of the line."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.engine.seq2seq import LocalSearch
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.translated_line import score_tokens
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator

LINES = ["1 2 3 4", "", "5 6 7? 8 9! 1 2", "3", "4 4 4 1 9 0 2"]


def run_command(monkeypatch: pytest.MonkeyPatch, *command: Any) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", *map(str, command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0.6},
        {"beam_size": 3, "max_length": 3},
        {"sampling": True, "num_hypotheses": 2, "seed": 5},
        {"beam_size": 3, "repetition_penalty": 1.3},
    ],
)
def test_both_engines_give_the_same_scores(trained: Path, options: dict[str, Any]) -> None:
    found: list[list[Any]] = []
    for engine in ("compiled", "torch"):
        translator = load_translator([trained], device="cpu", engine=engine)
        translator.segmenter.policy = "sentences"
        config = translator.configure({**options, "token_scores": True})
        found.append(list(translator.stream(LINES, config)))
    n_tokens = 0
    for one, other in zip(*found, strict=True):
        for left, right in zip(one.outputs, other.outputs, strict=True):
            for output in (left, right):
                values = [score for segment in output.token_scores for _, score in segment]
                assert sum(values) == pytest.approx(output.log_prob, abs=1e-4)
                sums = [
                    sum(score for _, score in own) / len(own) ** config.length_penalty for own in output.token_scores
                ]
                assert sum(sums) == pytest.approx(output.score, abs=1e-4)
                tokens = [[token for token, _ in own if token != "</s>"] for own in output.token_scores]
                assert tokens == output.tokens
            assert left.ids == right.ids
            for ours, theirs in zip(left.log_probs, right.log_probs, strict=True):
                assert ours == pytest.approx(theirs, abs=1e-4)
                n_tokens += len(ours)
    assert n_tokens > 10


def test_the_scores_of_a_translation_are_those_of_the_pair(trained: Path, workshop: Any) -> None:
    run = workshop.random_run(trained, "transformer", ends=10.5)
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    config = translator.configure({"token_scores": True, "max_length": 40})
    compared = 0
    for line in translator.stream(
        [" ".join(str(n * k % 10) for k in range(1, 2 + n % 7)) for n in range(1, 40)], config
    ):
        best = line.outputs[0]
        if best.finished and run.tgt_tokenizer.encode([best.text]) == best.ids:
            (score,) = score_pairs(run, run.model, run.device, [(line.source, best.text)])
            assert score.ids == best.ids
            assert best.log_probs is not None
            assert score.log_probs[0] == pytest.approx(best.log_probs[0], abs=1e-4)
            assert sum(score.log_probs[0]) == pytest.approx(score.log_prob, abs=1e-6)
            compared += 1
    assert compared >= 3
    assert score_tokens(run.tgt_tokenizer, [[]], [[-1.0]]) == [[("</s>", -1.0)]]


def test_without_being_asked_nothing_is_returned(trained: Path) -> None:
    (line,) = load_translator([trained], device="cpu").stream(["1 2"])
    assert line.outputs[0].log_probs is None and line.outputs[0].token_scores is None


def test_the_commands_print_them(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("1 2 3\n\n4 5\n")
    common = ("-i", tmp_path / "in", "--device", "cpu", "--max-length", 4)
    assert run_command(monkeypatch, "translate", trained, *common, "--json", "--return-token-scores") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["translations"][0]["token_scores"]) for line in lines] == [1, 0, 1]
    for line in lines:
        (best,) = line["translations"]
        assert sum(score for own in best["token_scores"] for _, score in own) == pytest.approx(best["log_prob"])
    (tmp_path / "out").write_text("3 2 1\n\n5 4\n")
    files = (tmp_path / "in", tmp_path / "out", "--device", "cpu")
    assert run_command(monkeypatch, "score", trained, *files, "--json", "--return-token-scores") == 0
    *scores, total = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for score in scores:
        (own,) = score["token_scores"]
        assert own[-1][0] == "</s>" and len(own) == score["tokens"]
        assert sum(value for _, value in own) == pytest.approx(score["log_prob"])
    assert sum(score["log_prob"] for score in scores) == pytest.approx(total["log_prob"])
    for command in (("translate", trained, *common), ("score", trained, *files)):
        assert run_command(monkeypatch, *command, "--return-token-scores") == 2
        assert "--return-token-scores requires --json" in capsys.readouterr().err
    assert run_command(monkeypatch, "score", trained, *files, "--json", "--summary", "--return-token-scores") == 2


def test_suppressed_words_are_not_produced(trained: Path, workshop: Any) -> None:
    run = workshop.random_run(trained, "transformer")
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    lines = [" ".join(str(n * k % 10) for k in range(1, 8)) for n in range(1, 20)]
    plain = translator.translate(lines)
    words = Counter(word for line in plain for word in re.findall(r"\w+", line)).most_common(5)
    assert len(words) == 5
    translator.suppress([f" {word} " for word, _ in words])
    for options in ({}, {"beam_size": 1}, {"sampling": True}, {"no_repeat_ngram_size": 2}):
        found = {word for line in translator.translate(lines, **options) for word in re.findall(r"\w+", line)}
        assert found and not found & {word for word, _ in words}
    translator.suppress([""])
    assert translator.suppressed is None and translator.translate(lines) == plain


def test_the_command_reads_words_to_suppress(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("1 2 3 4\n5 6 7\n")
    common = ("translate", trained, "-i", tmp_path / "in", "--device", "cpu", "--max-length", 8)
    assert run_command(monkeypatch, *common) == 0
    plain = capsys.readouterr().out
    given: list[list[str]] = []
    suppress = TranslationPipeline.suppress

    def record(self: TranslationPipeline, phrases: Any) -> None:
        given.append(list(phrases))
        suppress(self, given[-1])

    monkeypatch.setattr(TranslationPipeline, "suppress", record)
    for content in ("der Hund\n\nKatze\n", "\n"):
        (tmp_path / "words").write_text(content)
        assert run_command(monkeypatch, *common, "--suppress", tmp_path / "words") == 0
        out, err = capsys.readouterr()
        assert out == plain and ("has no words: nothing is suppressed" in err) == (content == "\n")
    assert given == [["der Hund", "", "Katze"], [""]]
    assert run_command(monkeypatch, *common, "--suppress", tmp_path / "none") == 2
    assert "no such file" in capsys.readouterr().err
    assert run_command(monkeypatch, *common, "--no-unk") == 0


def test_no_unknown_token_comes_if_it_is_excluded(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest bias on <unk>, in both engines; a shortlist makes no difference."""
    import numpy as np

    from attnkit.protocols import UNK_ID
    from attnkit.tasks.translation import loading

    read = loading.read_arrays

    def biased(*arguments: Any) -> Any:
        weights = dict(read(*arguments))
        bias = weights["output.bias"] = np.array(weights["output.bias"])
        bias[UNK_ID] += 50.0
        return weights

    monkeypatch.setattr(loading, "read_arrays", biased)
    translator = load_translator([trained], device="cpu", engine="compiled")
    for options in ({"beam_size": 1}, {"beam_size": 1, "scores": False}, {"beam_size": 4}, {"sampling": True}):
        config = translator.configure({**options, "max_length": 6})
        assert all(UNK_ID in line.outputs[0].ids[0] for line in translator.stream(["1 2 3", "4"], config))
        config = config.model_copy(update={"no_unk": True})
        assert all(UNK_ID not in line.outputs[0].ids[0] for line in translator.stream(["1 2 3", "4"], config))
