"""Hypotheses ranked by both directions, against log-probabilities of torch's models and numpy's order."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnkit
from attnkit.data.loader import Batching
from attnkit.engine.resolve import resolve
from attnkit.engine.search_backend import LineSegment
from attnkit.errors import RunError, UsageError
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.reranking import _plain_source, open_reranker
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.text.inline_symbols import annotate, mask
from attnkit.text.tags import TranslationDirection, tag_ids

LINES = ["1 2 3 4 5", "", "9 8", "7 7 1 0 2 6", "4", "3 1 4 1 5 9 2", "2 7 1 8"]
WEIGHT = 0.7


def configure(workshop: Any, sides: tuple[str, str], **changes: Any) -> Any:
    """Return the configuration of a run that reads the first side."""
    flags: dict[str, Any] = {
        f"data.{prefix}{key}": [str(workshop.file(f"{part}.{side}"))]
        for prefix, part in (("", "train"), ("valid_", "valid"))
        for key, side in zip(("src", "tgt"), sides, strict=True)
    }
    flags["model.kind"] = changes.pop("kind", "transformer")
    return resolve(flags, sets=workshop.settings(flags["model.kind"], **changes), preset_name="tiny").config


@pytest.fixture(scope="module")
def backward(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the opposite direction with another vocabulary, whose log-probabilities differ from one another."""
    folder = tmp_path_factory.mktemp("backward") / "run"
    config = configure(workshop, ("tgt", "src"), vocabulary__kind="bpe", vocabulary__size=300, limits__max_steps=40)
    workshop.train(config, folder)
    return folder


@pytest.fixture(scope="module")
def recurrent(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent") / "run"
    workshop.train(configure(workshop, ("tgt", "src"), kind="rnn", limits__max_steps=40), folder)
    return folder


def pipeline(
    runs: Sequence[Path], reversed_run: Path | None, weight: float = WEIGHT, engine: Any = "auto"
) -> TranslationPipeline:
    found = load_translator(runs, device="cpu", engine=engine, threads=1)
    if reversed_run is not None:
        found.reranker = open_reranker(reversed_run, weight, "cpu", "float32", engine, 1)
    return found


@torch.inference_mode()
def log_prob(run: LoadedRun, src: list[int], tgt: list[int]) -> float:
    """Return the log-probability of a target alone in its batch, with its end; the softmax is numpy's, in float64."""
    hidden = run.model.hidden(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))
    logits = run.model.head(hidden)[0].numpy().astype(np.float64)  # (T, V)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(log_probs[np.arange(len(tgt) + 1), [*tgt, EOS_ID]].sum())


def expected(
    forward: LoadedRun, reversed_run: LoadedRun, line: str, beam: Sequence[Output], alpha: float, weight: float
) -> dict[str, tuple[float, float, float]]:
    """Return text -> both normalised scores and their sum, for the hypotheses of a search that ended."""
    (source,), (target,) = (forward.src_tokenizer.encode([line]), reversed_run.tgt_tokenizer.encode([line]))
    found = {}
    for one in beam:
        (ids,) = one.ids
        own = log_prob(forward, source, ids) / (len(ids) + 1) ** alpha
        (read,) = reversed_run.src_tokenizer.encode([one.text])
        other = log_prob(reversed_run, read, target) / (len(target) + 1) ** alpha
        found[one.text] = own, other, own + weight * other
    return found


def described(lines: Sequence[TranslatedLine]) -> list[list[tuple[str, float, float | None]]]:
    return [[(one.text, one.score, one.reverse_score) for one in line.outputs] for line in lines]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("alpha", [1.0, 0.0, 0.6])
def test_hypotheses_are_ordered_by_both_directions(trained: Path, backward: Path, engine: Any, alpha: float) -> None:
    options = {"beam_size": 6, "num_hypotheses": 6, "length_penalty": alpha, "max_length": 30}
    plain, ranked = pipeline([trained], None, engine=engine), pipeline([trained], backward, engine=engine)
    beams, found = (list(one.stream(LINES, one.configure(options))) for one in (plain, ranked))
    forward, reversed_run = load_run(trained, device="cpu"), load_run(backward, device="cpu")
    n_moved = 0
    for line, beam, own in zip(LINES, beams, found, strict=True):
        if not line:
            assert [one.text for one in own.outputs] == [""] * 6
            assert own.outputs[0].reverse_score is None and own.outputs[0].reverse_log_prob is None
            continue
        assert sorted(one.text for one in own.outputs) == sorted(one.text for one in beam.outputs)
        ended = [one for one in own.outputs if one.finished]
        wanted = expected(forward, reversed_run, line, ended, alpha, WEIGHT)
        for one in ended:
            assert one.score == pytest.approx(wanted[one.text][0], abs=1e-4)
            assert one.reverse_score == pytest.approx(wanted[one.text][1], abs=1e-4)
            n_source = len(reversed_run.tgt_tokenizer.encode([line])[0]) + 1
            assert one.reverse_log_prob == pytest.approx(wanted[one.text][1] * n_source**alpha, abs=1e-3)
        totals = np.array([wanted[one.text][2] for one in ended])
        assert (np.diff(totals) <= 2e-4).all(), "best first"
        n_moved += [one.text for one in own.outputs] != [one.text for one in beam.outputs]
    assert n_moved >= 3, "or nothing is shown"


def test_some_lines_end(trained: Path, backward: Path) -> None:
    """What the test before this one compares: hypotheses that end by themselves."""
    ranked = pipeline([trained], backward)
    found = ranked.stream(LINES, ranked.configure({"beam_size": 6, "num_hypotheses": 6, "max_length": 30}))
    assert sum(one.finished for line in found if line.source for one in line.outputs) >= 10


def test_a_weight_of_zero_keeps_the_order_of_the_search(trained: Path, backward: Path) -> None:
    options = {"beam_size": 5, "num_hypotheses": 3}
    plain, ranked = pipeline([trained], None), pipeline([trained], backward, 0.0)
    beams, found = (list(one.stream(LINES, one.configure(options))) for one in (plain, ranked))
    assert [[(text, score) for text, score, _ in line] for line in described(found)] == [
        [(text, score) for text, score, _ in line] for line in described(beams)
    ]
    assert found[0].outputs[0].reverse_score is not None and beams[0].outputs[0].reverse_score is None


def test_the_whole_beam_is_ranked_however_few_are_asked_for(trained: Path, backward: Path) -> None:
    ranked = pipeline([trained], backward, 5.0)
    several, one = (
        described(list(ranked.stream(LINES, ranked.configure({"beam_size": 8, "num_hypotheses": n})))) for n in (8, 1)
    )
    assert [line[:1] for line in several] == one
    plain = described(list((search := pipeline([trained], None)).stream(LINES, search.configure({"beam_size": 8}))))
    assert sum(own[0][0] != other[0][0] for own, other in zip(one, plain, strict=True)) >= 3


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_batches_and_order_change_nothing(trained: Path, backward: Path, engine: Any) -> None:
    ranked = pipeline([trained], backward, engine=engine)
    config = ranked.configure({"beam_size": 5, "num_hypotheses": 2})
    whole = described(list(ranked.stream(LINES, config)))
    single = described(list(ranked.stream(LINES, config, Batching(1))))
    turned = described(list(ranked.stream(LINES[::-1], config, Batching(3))))[::-1]
    for other in (single, turned):
        assert [[text for text, _, _ in line] for line in other] == [[text for text, _, _ in line] for line in whole]
        for own, line in zip(other, whole, strict=True):
            for (_, *scores), (_, *wanted) in zip(own, line, strict=True):
                if wanted[1] is None:
                    assert scores[1] is None
                else:  # to the bit in compiled loops
                    assert scores == (wanted if engine == "compiled" else pytest.approx(wanted, abs=1e-5))


def test_any_model_can_be_the_reversed_one(trained: Path, recurrent: Path) -> None:
    """Compiled loops search, torch scores."""
    ranked = pipeline([trained], recurrent)
    (line,) = ranked.stream(["1 2 3 4"], ranked.configure({"beam_size": 4, "num_hypotheses": 4}))
    reversed_run = load_run(recurrent, device="cpu")
    (target,) = reversed_run.tgt_tokenizer.encode(["1 2 3 4"])
    for one in line.outputs:
        (read,) = reversed_run.src_tokenizer.encode([one.text])
        assert one.reverse_log_prob == pytest.approx(log_prob(reversed_run, read, target), abs=1e-4)


def test_an_ensemble_is_reranked(workshop: Any, trained: Path, backward: Path, tmp_path: Path) -> None:
    workshop.train(workshop.configure("transformer", seed=2), tmp_path / "second")
    runs = [trained, tmp_path / "second"]
    options = {"beam_size": 5, "num_hypotheses": 5}
    plain, ranked = pipeline(runs, None), pipeline(runs, backward, 3.0)
    beams, found = (list(one.stream(LINES, one.configure(options))) for one in (plain, ranked))
    assert described(found) != described(beams)
    for beam, line in zip(beams, found, strict=True):
        scores = {one.text: one.score for one in beam.outputs}
        totals = [one.score + 3.0 * (one.reverse_score or 0.0) for one in line.outputs]
        assert totals == sorted(totals, reverse=True)
        assert {one.text: one.score for one in line.outputs} == pytest.approx(scores, abs=1e-5)


def test_sentences_of_a_line_are_ranked_one_by_one(trained: Path, backward: Path) -> None:
    ranked = pipeline([trained], backward)
    ranked.segmenter.policy = "sentences"
    config = ranked.configure({"beam_size": 5})
    sentences = ["1 2 3!", "4 5 6 7!"]
    (whole,), parts = ranked.stream([" ".join(sentences)], config), list(ranked.stream(sentences, config))
    assert len(whole.source_ids) == 2
    (joined,), own = whole.outputs, [part.outputs[0] for part in parts]
    assert joined.ids == [ids for one in own for ids in one.ids]
    assert joined.score == pytest.approx(sum(one.score for one in own), abs=1e-6)
    for name in ("reverse_score", "reverse_log_prob"):
        assert getattr(joined, name) == pytest.approx(sum(getattr(one, name) for one in own), abs=1e-6)


def test_terms_of_a_glossary_stay(trained: Path, backward: Path) -> None:
    from attnkit.tasks.translation.terminology import Terminology
    from attnkit.text.glossary import Glossary

    ranked = pipeline([trained], backward, 4.0)
    ranked.terminology = Terminology(Glossary({"1": "8 8 8", "4": "6 6"}), ranked.tgt_tokenizer, ranked.longest)
    for line in ranked.stream(LINES, ranked.configure({"beam_size": 4, "num_hypotheses": 2})):
        assert all(term.is_used for term in line.terms)
        for output in line.outputs:
            assert ("8 8 8" in output.text) is ("1" in line.source.split()) or "8 8 8" in output.text


def test_a_reversed_model_without_positions_leaves_the_order(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """Learned positions end: what is longer keeps its place, without a reversed score."""
    short = {"model__positions": "learned", "model__max_length": 14, "data__max_length": 13, "limits__max_steps": 3}
    workshop.train(configure(workshop, ("tgt", "src"), **short), tmp_path / "short")
    ranked, plain = pipeline([trained], tmp_path / "short", 5.0), pipeline([trained], None)
    options = {"beam_size": 4, "num_hypotheses": 4, "max_length": 8}
    lines = ["1 2 3", "1 2 3 4 5 6 7 8 9 0 1 2"]  # of 5 and 23 characters
    short_line, long_line = ranked.stream(lines, ranked.configure(options))
    assert all(one.reverse_score is not None for one in short_line.outputs)
    assert all(one.reverse_score is None for one in long_line.outputs)
    (beam,) = plain.stream(lines[1:], plain.configure(options))
    assert [one.ids for one in long_line.outputs] == [one.ids for one in beam.outputs]


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


def test_the_text_of_a_segment_has_no_symbols_of_its_model(trained: Path) -> None:
    run = load_run(trained, device="cpu")
    masked = mask("See https://a.org at 10:30 today")
    text = annotate(masked.text, [(masked.text.index("today"), len(masked.text), "heute")])
    part = LineSegment(0, 0, [], [], text=text, masked=masked)
    direction = TranslationDirection(run.src_tokenizer, run.tgt_tokenizer)
    assert _plain_source(part, direction) == "See https://a.org at 10:30 today"


@pytest.fixture(scope="module")
def named(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs whose files name their languages, by direction."""
    folder = tmp_path_factory.mktemp("named")
    for language, side in (("en", "src"), ("de", "tgt"), ("fr", "tgt")):
        shutil.copy(workshop.file(f"train.{side}"), folder / f"train.{language}")
    runs = {}
    for src, tgt in (("en", "de"), ("de", "en"), ("fr", "en")):
        flags: dict[str, Any] = {
            f"data.{key}": [str(folder / f"train.{side}")] for key, side in (("src", src), ("tgt", tgt))
        }
        flags["model.kind"] = "transformer"
        sets = workshop.settings("transformer", limits__max_steps=2, data__held_out=8)
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
    with pytest.raises(UsageError, match="no direction of this run reverses fr to en: unknown target language 'fr'"):
        translate(named["fr:en"], both_ways)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 1}, r"needs the hypotheses of a beam; greedy search has one hypothesis(.|\n)*--beam-size 5"),
        ({"sampling": True}, r"needs the hypotheses of a beam; sampling has none(.|\n)*leave out --sampling"),
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
    with pytest.raises(
        UsageError, match="no direction of this run reverses an unknown language to an unknown language"
    ):
        unknown.translate(["1"])


def test_replicas_rerank_alike(trained: Path, backward: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=backward, rerank_weight=WEIGHT)
    first, second = (one.translate(LINES, beam_size=5) for one in (translator, translator.replicate()))
    assert first == second and first[0].reverse_score is not None
    assert translator.translate_texts(LINES, beam_size=5) == [[one.text] for one in first]
    plain = first[0].to_dict()
    assert plain["reverse_score"] == first[0].reverse_score
    without = attnkit.Translator.load(trained, device="cpu", threads=1).translate(LINES[:1], num_hypotheses=2)[0]
    assert not [
        key for one in (without.to_dict(), *without.to_dict()["alternatives"]) for key in one if "reverse" in key
    ]


def test_progress_grows_to_the_number_of_lines(trained: Path, backward: Path) -> None:
    ranked = pipeline([trained], backward)
    told: list[int] = []
    ranked.progress = told.append
    list(ranked.stream(LINES * 30, ranked.configure({"beam_size": 3}), Batching(16)))
    assert told == sorted(told) and told[-1] == len(LINES) * 30 and len(set(told)) > 5


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
            (["--rerank-with", "BACKWARD", "--beam-size", "1"], "greedy search has one hypothesis"),
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
        assert call(*usual, "--rerank-with", backward, "--rerank-weight", "0.25")[0] == 0
        translator = attnkit.Translator.load(trained, device="cpu", threads=1, rerank_with=backward)
        assert expected_text.split("\n")[:-1] == [one.text for one in translator.translate(LINES)]
