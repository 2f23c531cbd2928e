"""Hypotheses ranked by both directions, against log-probabilities of torch's models and numpy's order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reranked import LINES, WEIGHT, configure, log_prob, pipeline

import attnkit
from attnkit.data.loader import Batching
from attnkit.decoding.hypothesis import Hypothesis, ReverseScore
from attnkit.engine.search_backend import LineSegment
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.reranking import Reranker, _plain_source
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.text.inline_symbols import annotate, mask
from attnkit.text.tags import TranslationDirection


@pytest.fixture(scope="module")
def recurrent(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent") / "run"
    workshop.train(configure(workshop, ("tgt", "src"), kind="rnn", limits__max_steps=40), folder)
    return folder


def expected(
    forward: LoadedRun, reversed_run: LoadedRun, line: str, beam: Sequence[Output], alpha: float, weight: float
) -> list[tuple[float, float, float]]:
    """Return both normalised scores of each hypothesis, and their sum; one that was cut has no end."""
    (source,), (target,) = (forward.src_tokenizer.encode([line]), reversed_run.tgt_tokenizer.encode([line]))
    found = []
    for one in beam:
        (ids,) = one.ids
        own = log_prob(forward, source, ids, ended=one.finished) / (len(ids) + one.finished) ** alpha
        (read,) = reversed_run.src_tokenizer.encode([one.text])
        other = log_prob(reversed_run, read, target) / (len(target) + 1) ** alpha
        found.append((own, other, own + weight * other))
    return found


def described(lines: Sequence[TranslatedLine]) -> list[list[tuple[str, float, float | None]]]:
    return [[(one.text, one.score, one.reverse_score) for one in line.outputs] for line in lines]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("alpha", [1.0, 0.0, 0.6])
def test_hypotheses_are_ordered_by_both_directions(forward: Path, backward: Path, engine: Any, alpha: float) -> None:
    options = {"beam_size": 6, "num_hypotheses": 6, "length_penalty": alpha}
    plain, ranked = pipeline([forward], None, engine=engine), pipeline([forward], backward, engine=engine)
    beams, found = (list(one.stream(LINES, one.configure(options))) for one in (plain, ranked))
    own_run, reversed_run = load_run(forward, device="cpu"), load_run(backward, device="cpu")
    n_moved = n_ended = 0
    for line, beam, own in zip(LINES, beams, found, strict=True):
        if not line:
            assert [one.text for one in own.outputs] == [""] * 6
            assert own.outputs[0].reverse_score is None and own.outputs[0].reverse_log_prob is None
            continue
        assert sorted(one.ids for one in own.outputs) == sorted(one.ids for one in beam.outputs)
        wanted = expected(own_run, reversed_run, line, own.outputs, alpha, WEIGHT)
        n_source = len(reversed_run.tgt_tokenizer.encode([line])[0]) + 1
        for one, (score, reverse, _) in zip(own.outputs, wanted, strict=True):
            assert one.score == pytest.approx(score, abs=1e-4)
            assert one.reverse_score == pytest.approx(reverse, abs=1e-4)
            assert one.reverse_log_prob == pytest.approx(reverse * n_source**alpha, abs=1e-3)
        assert (np.diff([total for _, _, total in wanted]) <= 5e-3).all(), "best first"
        n_moved += [one.ids for one in own.outputs] != [one.ids for one in beam.outputs]
        n_ended += sum(one.finished for one in own.outputs)
    assert n_moved >= 2 and n_ended >= 10, "or little is shown"


def test_a_weight_of_zero_keeps_the_order_of_the_search(trained: Path, backward: Path) -> None:
    options = {"beam_size": 5, "num_hypotheses": 3}
    plain, ranked = pipeline([trained], None), pipeline([trained], backward, 0.0)
    beams, found = (list(one.stream(LINES, one.configure(options))) for one in (plain, ranked))
    assert [[(text, score) for text, score, _ in line] for line in described(found)] == [
        [(text, score) for text, score, _ in line] for line in described(beams)
    ]
    assert found[0].outputs[0].reverse_score is not None and beams[0].outputs[0].reverse_score is None


def test_the_whole_beam_is_ranked_however_few_are_asked_for(forward: Path, backward: Path) -> None:
    ranked = pipeline([forward], backward, 100.0)
    several, one = (
        described(list(ranked.stream(LINES, ranked.configure({"beam_size": 8, "num_hypotheses": n})))) for n in (8, 1)
    )
    assert [line[:1] for line in several] == one
    search = pipeline([forward], None)
    plain = described(list(search.stream(LINES, search.configure({"beam_size": 8}))))
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


def test_passages_are_reranked(forward: Path, backward: Path) -> None:
    lines = ["a b c", "x y", "one, two and three", "4 a"]
    plain = attnkit.Translator.load(forward, device="cpu", threads=1)
    ranked = attnkit.Translator.load(forward, device="cpu", threads=1, rerank_with=backward, rerank_weight=100.0)
    usual, wanted = ([one.text for one in each.translate(lines, beam_size=8)] for each in (plain, ranked))
    assert usual != wanted
    assert [one.text for one in ranked.translate_protected(lines[:3], beam_size=8)] == wanted[:3]
    document = ranked.translate_document("".join(f"<p>{line}</p>" for line in lines[:3]), "html", beam_size=8)
    assert [one.text for one in document.passages] == wanted[:3]


def test_a_reversed_model_without_positions_leaves_the_order(workshop: Any, trained: Path, tmp_path: Path) -> None:
    """Learned positions end: what is longer keeps its place, without a reversed score."""
    short = {"model__positions": "learned", "model__max_length": 30, "data__max_length": 25, "limits__max_steps": 3}
    workshop.train(configure(workshop, ("tgt", "src"), **short), tmp_path / "short")
    ranked, plain = pipeline([trained], tmp_path / "short", 5.0), pipeline([trained], None)
    options = {"beam_size": 4, "num_hypotheses": 4, "max_length": 8}
    lines = ["1 2 3", " ".join("1234567890123456")]  # of 5 and 31 characters
    short_line, long_line = ranked.stream(lines, ranked.configure(options))
    assert all(one.reverse_score is not None for one in short_line.outputs)
    assert all(one.reverse_score is None for one in long_line.outputs)
    (beam,) = plain.stream(lines[1:], plain.configure(options))
    assert [one.ids for one in long_line.outputs] == [one.ids for one in beam.outputs]


def test_the_text_of_a_segment_has_no_symbols_of_its_model(trained: Path) -> None:
    run = load_run(trained, device="cpu")
    masked = mask("See https://a.org at 10:30 today")
    text = annotate(masked.text, [(masked.text.index("today"), len(masked.text), "heute")])
    part = LineSegment(0, 0, [], [], text=text, masked=masked)
    direction = TranslationDirection(run.src_tokenizer, run.tgt_tokenizer)
    assert _plain_source(part, direction) == "See https://a.org at 10:30 today"


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


def test_a_weight_of_zero_is_the_order_of_the_search() -> None:
    """Even for a hypothesis from which the source cannot be translated."""
    hypotheses = [
        Hypothesis([4], -1.0, score, None, True, reverse=ReverseScore(reverse, reverse))
        for score, reverse in ((-0.5, -math.inf), (-1.0, -2.0))
    ]
    unloaded: Any = None
    for weight, first in ((0.0, hypotheses[0]), (0.5, hypotheses[1])):
        assert min(hypotheses, key=Reranker(unloaded, unloaded, weight)._place) is first
