"""Reversed runs by their languages, and what cannot be reranked; the command and its jobs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from reranked import LINES, WEIGHT, log_prob

import attnkit
from attnkit.engine.resolve import resolve
from attnkit.errors import RunError, UsageError
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.reranking import DEFAULT_WEIGHT, open_reranker
from attnkit.text.tags import tag_ids


@pytest.fixture(scope="module")
def both_ways(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two directions."""
    folder = tmp_path_factory.mktemp("both-ways") / "run"
    changes = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "limits__max_steps": 20}
    flags: dict[str, Any] = {
        f"data.{prefix}{side}": [str(workshop.file(f"{part}.{side}"))]
        for prefix, part in (("", "train"), ("valid_", "valid"))
        for side in ("src", "tgt")
    }
    flags |= {"data.directions": ["en:de"], "data.bidirectional": True, "model.kind": "transformer"}
    sets = workshop.settings("transformer", **changes)
    workshop.train(resolve(flags, sets=sets, preset_name="tiny").config, folder)
    return folder


def test_a_run_of_both_directions_reranks_its_own_translations(both_ways: Path) -> None:
    """Sources of the reversed direction have the tag of the source language."""
    translator = attnkit.Translator.load(both_ways, device="cpu", threads=1, rerank_with=both_ways, rerank_weight=2.0)
    run = load_run(both_ways, device="cpu")
    for src, tgt in (("en", "de"), ("de", "en")):
        lines = ["1 2 3 4", "5 6 7", f"<2{tgt}> 8 9"]  # a tag that is written does not belong to the text
        found = translator.translate(lines, tgt_lang=tgt, beam_size=4, num_hypotheses=4)
        for one, line in zip(found, ["1 2 3 4", "5 6 7", "8 9"], strict=True):
            (target,) = run.tgt_tokenizer.encode([line])
            for hypothesis in (one, *one.alternatives):
                (read,) = run.src_tokenizer.encode([hypothesis.text])
                wanted = log_prob(run, [*tag_ids(run.src_tokenizer, f"<2{src}>"), *read], target)
                assert hypothesis.reverse_log_prob == pytest.approx(wanted, abs=1e-4)
            totals = [each.score + 2.0 * (each.reverse_score or 0.0) for each in (one, *one.alternatives)]
            assert totals == sorted(totals, reverse=True)


@pytest.fixture(scope="module")
def named(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs whose files name their languages, by direction."""
    folder = tmp_path_factory.mktemp("named")
    for language, side in (("en", "src"), ("de", "tgt"), ("fr", "tgt")):
        shutil.copy(workshop.file(f"train.{side}"), folder / f"train.{language}")
    runs = {}
    for seed, (src, tgt) in enumerate((("en", "de"), ("de", "en"), ("fr", "en"))):
        flags: dict[str, Any] = {
            f"data.{key}": [str(folder / f"train.{side}")] for key, side in (("src", src), ("tgt", tgt))
        }
        flags["model.kind"] = "transformer"
        sets = workshop.settings("transformer", limits__max_steps=2, data__held_out=8, seed=seed)
        runs[f"{src}:{tgt}"] = folder / f"{src}-{tgt}"
        workshop.train(resolve(flags, sets=sets, preset_name="tiny").config, runs[f"{src}:{tgt}"])
    return runs


def test_a_run_of_another_direction_is_refused(named: dict[str, Path], both_ways: Path, trained: Path) -> None:
    def translate(run: Path, other: Path) -> Any:
        return attnkit.Translator.load(run, device="cpu", threads=1, rerank_with=other).translate(["1 2"])[0]

    assert translate(named["en:de"], named["de:en"]).reverse_score is not None
    assert translate(named["en:de"], both_ways).reverse_score is not None, "its direction is known by the files' names"
    assert translate(named["en:de"], trained).reverse_score is not None, "whose files name no language"
    for run, other, said in (
        ("en:de", "fr:en", "this run translates fr to en; the reverse of en to de is de to en"),
        ("fr:en", "de:en", "this run translates de to en; the reverse of fr to en is en to fr"),
        ("fr:en", "fr:en", "a run cannot rerank its own translations"),
    ):
        with pytest.raises(UsageError, match=said):
            translate(named[run], named[other])
    with pytest.raises(UsageError, match="this run cannot reverse fr to en: unknown target language 'fr'"):
        translate(named["fr:en"], both_ways)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 1}, r"needs a beam; greedy search has a single hypothesis(.|\n)*--beam-size 5"),
        ({"sampling": True}, r"needs a beam; sampling has none(.|\n)*leave out --sampling"),
    ],
)
def test_a_search_without_a_beam_is_refused(
    trained: Path, backward: Path, options: dict[str, Any], message: str
) -> None:
    translator = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=backward)
    with pytest.raises(UsageError) as caught:
        translator.translate(["1 2"], **options)
    assert re.search(message, "\n".join(caught.value.lines()))


def test_runs_that_cannot_rerank_are_refused(trained: Path, backward: Path, both_ways: Path, tmp_path: Path) -> None:
    for weight in (-0.1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="a number from 0 to 1,000,000, not"):
            open_reranker(backward, weight)
    with pytest.raises(RunError, match=r"no such (run|folder)|not a run|is missing|no checkpoint|does not exist"):
        open_reranker(tmp_path / "none")
    with pytest.raises(UsageError, match="a weight requires rerank_with"):
        attnkit.Translator.load(trained, device="cpu", rerank_weight=1.0)
    itself = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=trained)
    with pytest.raises(UsageError, match="a run cannot rerank its own translations"):
        itself.translate(["1"])
    unknown = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=both_ways)
    with pytest.raises(UsageError, match="this run cannot reverse an unknown direction: no target language is chosen"):
        unknown.translate(["1"])


class TestRerankingCommand:
    def test_lines_show_both_scores(self, call: Any, trained: Path, backward: Path, tmp_path: Path) -> None:
        source = tmp_path / "in.txt"
        source.write_text("".join(f"{line}\n" for line in LINES))
        usual = (
            "translate",
            trained,
            "-i",
            source,
            "--rerank-with",
            backward,
            "--rerank-weight",
            WEIGHT,
            "--device",
            "cpu",
        )
        options = ("--beam-size", 5, "--num-hypotheses", 2, "--threads", 1)
        code, text, _ = call(*usual, *options, "--return-scores")
        assert code == 0
        translator = attnkit.Translator.load(
            trained, device="cpu", threads=1, rerank_with=backward, rerank_weight=WEIGHT
        )
        found = translator.translate(LINES, beam_size=5, num_hypotheses=2)
        wanted = [each for one in found for each in (one, *one.alternatives)]
        for line, one in zip(text.split("\n")[:-1], wanted, strict=True):
            score, reverse, own = line.split("\t")
            assert (float(score), own) == (pytest.approx(one.score, abs=1e-6), one.text)
            assert (
                reverse == ""
                if one.reverse_score is None
                else float(reverse) == pytest.approx(one.reverse_score, abs=1e-6)
            )
        code, text, _ = call(*usual, *options, "--json")
        objects = [json.loads(line) for line in text.splitlines()]
        for printed, one in zip(objects, found, strict=True):
            for each, other in zip(printed["translations"], (one, *one.alternatives), strict=True):
                assert (each["reverse_score"], each["reverse_log_prob"]) == (
                    other.reverse_score,
                    other.reverse_log_prob,
                )
            assert printed["confidence"] is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--rerank-weight", "2"], "--rerank-weight requires --rerank-with"),
            (["--rerank-with", "BACKWARD", "--rerank-weight", "-1"], "a number from 0 to 1,000,000, not -1"),
            (["--rerank-with", "BACKWARD", "--return-confidence"], "reranked translations have no confidence"),
            (["--rerank-with", "BACKWARD", "--beam-size", "1"], "greedy search has a single hypothesis"),
            (["--rerank-with", "TRAINED"], "a run cannot rerank its own translations"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, call: Any, trained: Path, backward: Path, tmp_path: Path, options: list[str], message: str
    ) -> None:
        source = tmp_path / "in.txt"
        source.write_text("1 2\n")
        runs = {"BACKWARD": backward, "TRAINED": trained}
        code, text, said = call("translate", trained, "-i", source, *(runs.get(word, word) for word in options))
        assert (code, text) == (2, "") and message in said and len(said.splitlines()) <= 3

    def test_a_job_is_resumed_with_the_same_reversed_run_alone(
        self, call: Any, trained: Path, backward: Path, tmp_path: Path
    ) -> None:
        source, output = tmp_path / "in.txt", tmp_path / "out.txt"
        source.write_text("".join(f"{line}\n" for line in LINES))
        usual = ("translate", trained, "-i", source, "-o", output, "--resume", "--device", "cpu", "--threads", 1)
        assert call(*usual, "--rerank-with", backward)[0] == 0
        expected_text = output.read_text()
        code, _, said = call(*usual, "--rerank-with", backward)
        assert code == 0 and "is finished" in said
        code, _, said = call(*usual, "--rerank-with", backward, "--rerank-weight", DEFAULT_WEIGHT)
        assert code == 0 and "is finished" in said
        code, _, said = call(*usual, "--rerank-with", backward, "--rerank-weight", "0.25")
        assert code == 0 and "is finished" not in said
        translator = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=backward)
        assert expected_text.split("\n")[:-1] == [one.text for one in translator.translate(LINES)]
