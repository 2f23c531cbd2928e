"""Log-probabilities of given pairs, against a naive walk through the model's steps and against the search's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from attnkit.data.loader import Batching
from attnkit.decoding.search import Sources, search
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import PairScore, Total, score_pairs

PAIRS = [
    ("1 2 3", "3 2 1"),
    ("4", ""),
    ("", "5"),
    ("", ""),
    ("6 7 8 9 0 1 2", "9"),
    ("1", "1 2 3 4 5 6 7 8"),
    ("é", "中"),
]


@pytest.fixture(scope="module", params=["transformer", "rnn"])
def run(request: pytest.FixtureRequest, workshop: Any, trained: Path) -> LoadedRun:
    found: LoadedRun = workshop.random_run(trained, request.param, ends=10.5)
    return found


@torch.inference_mode()
def naive(run: LoadedRun, src: list[int], tgt: list[int]) -> float:
    """Return the log-probability of a target, token by token, alone in its batch, in float64 sums."""
    state = run.model.start(torch.tensor([[*src, EOS_ID]]), None, 1, len(tgt) + 1)
    total, previous = 0.0, BOS_ID
    for token in [*tgt, EOS_ID]:
        hidden, state = run.model.step(torch.tensor([[previous]]), state)
        log_probs = torch.log_softmax(run.model.head(hidden)[0, 0].double(), -1)
        total += float(log_probs[token])
        previous = token
        state = state.reorder_beams(torch.tensor([[0]]))
    return total


@pytest.mark.parametrize("size", [1, 3, 64])
def test_scores_equal_a_walk_through_the_steps(run: LoadedRun, size: int) -> None:
    found = list(score_pairs(run, run.model, run.device, iter(PAIRS), Batching(size)))
    src, tgt = (tokenizer.encode([pair[k] for pair in PAIRS]) for k, tokenizer in enumerate((run.src_tokenizer,) * 2))
    assert [score.n_tokens for score in found] == [len(ids) + 1 for ids in tgt]
    expected = [naive(run, s, t) for s, t in zip(src, tgt, strict=True)]
    assert [score.log_prob for score in found] == pytest.approx(expected, abs=1e-4)


def test_scores_equal_those_of_the_search(run: LoadedRun) -> None:
    lines = [" ".join(str(n * k % 10) for k in range(1, 2 + n % 7)) for n in range(1, 60)]
    config = run.config.decoding.model_copy(update={"beam_size": 1, "max_length": 40})
    compared = 0
    for line in lines:
        ids = run.src_tokenizer.encode([line])[0]
        (best,) = search([run.model], Sources(torch.tensor([[*ids, EOS_ID]])), config)[0]
        text = run.tgt_tokenizer.decode([best.ids])[0]
        if best.finished and run.tgt_tokenizer.encode([text])[0] == best.ids:
            (score,) = score_pairs(run, run.model, run.device, [(line, text)])
            assert score.log_prob == pytest.approx(best.log_prob, abs=1e-4)
            assert score.n_tokens == len(best.ids) + 1
            compared += 1
    assert compared >= 3  # else too many strings that the tokenizer would cut otherwise


def test_pairs_have_the_signs_of_translations(trained: Path) -> None:
    loaded = load_run(trained)
    pairs = [
        ("1 2 3 4 5 6", "6 5 4 3 2 1"),
        ("Ein Hund", "1 2"),
        ("1 2 3 4 5 6", ""),
        ("", "1 2"),
        ("1 2 {name}", "2 1"),
    ]
    found = [score.signs for score in score_pairs(loaded, loaded.model, loaded.device, pairs)]
    assert found[0] == found[3] == [] and {"unlike", "unknown"} <= set(found[1])
    assert "empty" in found[2] and "lost" in found[4] and "cut" not in {sign for signs in found for sign in signs}


def test_perplexity_is_exp_of_the_mean_over_tokens() -> None:
    total = Total()
    assert total.perplexity == 1.0
    total.add(PairScore(-2.0, 3))
    total.add(PairScore(-4.0, 1))
    assert (total.n_pairs, total.n_tokens, total.log_prob) == (2, 4, -6.0)
    assert total.perplexity == pytest.approx(math.exp(1.5))


def test_the_development_loss_is_the_mean_over_tokens(workshop: Any, trained: Path) -> None:
    """What training reports of the development set is what ``score`` says of the same files."""
    import json

    name = (trained / "best").read_text().strip()
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    (wanted,) = [r for r in records if r["kind"] == "evaluation" and f"step-{r['step']}" == name]
    lines = (workshop.file(f"valid.{side}").read_text().splitlines() for side in ("src", "tgt"))
    total = Total()
    run = load_run(trained)
    for score in score_pairs(run, run.model, run.device, zip(*lines, strict=True)):
        total.add(score)
    assert wanted["loss"] == pytest.approx(-total.log_prob / total.n_tokens, rel=1e-4)
    assert wanted["perplexity"] == pytest.approx(total.perplexity, rel=1e-3)
