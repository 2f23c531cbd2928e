"""Steps in compiled loops: every search equals that of torch, nothing depends on the batch, memory is not left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_compiled_search import (
    BASE,
    SLOW,
    TOLERANCES,
    draw,
    make_model,
    pack_model,
    run_guarded,
    sentences,
    tame_model,
)

from attnkit.compiled import rows as rows_of_loops
from attnkit.compiled.translator import CompiledTranslator
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.engine.seq2seq import pad_prefixes, pad_sources
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd.targets import Precision
from attnkit.models.config import TransformerConfig
from attnkit.models.transformer import Transformer
from attnkit.tasks.translation.translator import load_translator

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
CPU = torch.device("cpu")


def compile_steps(model: Transformer, config: TransformerConfig, **options: Any) -> CompiledTranslator:
    n_threads = options.pop("n_threads", 1)
    packed = pack_model(model, config, model.output.out_features, **options)
    return CompiledTranslator(packed, n_threads=n_threads)


def draw_search(chance: random.Random, vocab_size: int) -> SearchConfig:
    """Return settings that only searches step by step have."""
    beam_size = chance.choice([1, 2, 4])
    settings: dict[str, Any] = {
        "beam_size": beam_size,
        "max_length": chance.choice([4, 12, 30]),
        "repetition_penalty": chance.choice([1.0, 1.3]),
        "no_repeat_ngram_size": chance.choice([0, 2]),
        "coverage_penalty": chance.choice([0.0, 0.3]),
        "min_length": chance.choice([0, 2]),
    }
    if chance.random() < 0.4:
        settings |= {"sampling": True, "beam_size": 1, "coverage_penalty": 0.0, "seed": 3}
        settings |= {"num_hypotheses": chance.choice([1, 3]), "top_k": chance.choice([0, 5])}
    return SearchConfig(**settings)


def draw_sources(chance: random.Random, rows: list[list[int]], vocab_size: int) -> Sources:
    """Return sentences, some with prefixes, some with shortlists."""
    prefix = allowed = None
    if chance.random() < 0.4:
        prefix = pad_prefixes([[chance.randint(3, 20) for _ in range(chance.randint(0, 3))] for _ in rows], CPU)
    if chance.random() < 0.4:
        n = min(vocab_size - 3, 12)
        allowed = [np.array(sorted(chance.sample(range(3, vocab_size), n)), np.int32) for _ in rows]
    return Sources(*pad_sources(rows, CPU), prefix, None, allowed)


def assert_near(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], exact: Any, what: Any) -> None:
    """Compare where rounding decides nothing: where float32 and float64 of torch agree."""
    for one, other, truth in zip(found, expected, exact, strict=True):
        if [h.ids for h in other] != [h.ids for h in truth]:
            continue
        assert [h.ids for h in one] == [h.ids for h in other], what
        for left, right, best in zip(one, other, truth, strict=True):
            assert left.log_prob == pytest.approx(right.log_prob, abs=1e-3, rel=1e-4), what
            assert left.attention is not None and right.attention is not None and best.attention is not None
            # Some drawn models magnify rounding: torch's own attention in float32 is then as far from float64's.
            rounding = np.abs(right.attention - best.attention).max(initial=0)
            assert np.allclose(left.attention, best.attention, atol=1e-4 + 2 * rounding), what


@pytest.mark.sample(8)
@pytest.mark.parametrize("block", range(40))
def test_drawn_searches_equal_those_of_torch(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    for number in range(5):
        monkeypatch.setattr(rows_of_loops, "FIRST_STEPS", (3, 64)[number % 2])  # the cache grows, or does not
        chance = random.Random(block * 5 + number)
        config, vocab_size, _, _, rows = draw(chance)
        models = [make_model(config, vocab_size, number + i) for i in range(chance.choice([1, 1, 2]))]
        steps = [compile_steps(model, config, n_threads=chance.choice([1, 2])) for model in models]
        settings, sources = draw_search(chance, vocab_size), draw_sources(chance, rows, vocab_size)
        exact = [model.double() for model in make_copies(models)]
        results = [search(each, sources, settings, record=True) for each in (steps, models, exact)]
        assert_near(*results, (block, number, config, settings))


def make_copies(models: list[Transformer]) -> list[Transformer]:
    import copy

    return [copy.deepcopy(model) for model in models]


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(40))
def test_forced_targets_equal_those_of_torch(seed: int) -> None:
    chance = random.Random(seed)
    config, vocab_size, _, _, rows = draw(chance)
    model = make_model(config, vocab_size, seed)
    steps = compile_steps(model, config, n_threads=2)
    lengths = [chance.choice([1, 2, 9, 40]) for _ in rows]
    tgt = torch.zeros(len(rows), max(lengths), dtype=torch.int64)
    for row, n in zip(tgt, lengths, strict=True):
        row[:n] = torch.tensor([chance.randint(1, vocab_size - 1) for _ in range(n)])
    src, mask = pad_sources(rows, CPU)
    words = torch.tensor(sorted(chance.sample(range(vocab_size), min(vocab_size, chance.choice([1, 20, 63])))))
    with torch.inference_mode():
        expected = model.double().hidden(src, mask, tgt)
        found = steps.hidden(src, mask, tgt)
        real = torch.arange(tgt.shape[1]) < torch.tensor(lengths)[:, None]
        assert torch.allclose(found[real].double(), expected[real], atol=2e-3)
        assert torch.equal(found[~real], torch.zeros_like(found[~real]))
        for ids in (None, words):  # of the same features, so that sums alone differ
            logits, exact = steps.head(found, ids).double(), model.head(found.double(), ids)
            assert torch.allclose(logits, exact, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "precision", ["float32", pytest.param("bfloat16", marks=SLOW), pytest.param("int8", marks=SLOW)]
)
def test_a_whole_search_and_its_steps_choose_the_same(trained: Path, precision: Precision) -> None:
    """``no_repeat_ngram_size`` of more than any line has changes nothing but the way."""
    lines = ["1 2 3", "", "4 5 6 7 8 9 1 2", "3 3"]
    for beam_size in (1, 3):
        options: dict[str, Any] = {"beam_size": beam_size, "num_hypotheses": beam_size, "scores": True}
        translator = load_translator([trained], device="cpu", engine="compiled", precision=precision)
        whole = list(translator.stream(lines, translator.configure(options)))
        steps = list(translator.stream(lines, translator.configure({**options, "no_repeat_ngram_size": 99})))
        for one, other in zip(whole, steps, strict=True):
            assert [output.ids for output in one.outputs] == [output.ids for output in other.outputs]
            scores = [[output.score for output in each.outputs] for each in (one, other)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize(
    "precision", ["float32", pytest.param("bfloat16", marks=SLOW), pytest.param("int8", marks=SLOW)]
)
def test_no_step_depends_on_the_batch(precision: Precision) -> None:
    config = TransformerConfig(**BASE)
    steps = compile_steps(make_model(config, 130, 5), config, precision=precision)
    rows = sentences(20)
    settings = SearchConfig(beam_size=3, num_hypotheses=3, repetition_penalty=1.2)
    expected = search([steps], Sources(*pad_sources(rows, CPU)), settings)
    assert len({tuple(h.ids) for one in expected for h in one}) > 10
    alone = [search([steps], Sources(*pad_sources([row], CPU)), settings)[0] for row in rows]
    steps._workers.n_threads = 3
    assert alone == expected == search([steps], Sources(*pad_sources(rows, CPU)), settings)


@pytest.mark.parametrize("precision", [pytest.param("bfloat16", marks=SLOW), pytest.param("int8", marks=SLOW)])
def test_coarser_precisions_are_near(precision: Precision) -> None:
    config = TransformerConfig(**{**BASE, "d_model": 64, "d_ff": 160})
    model, rows = tame_model(config), sentences(20)
    src, mask = pad_sources(rows, CPU)
    tgt = torch.randint(3, 130, (20, 9), generator=torch.Generator().manual_seed(0))
    steps = compile_steps(model, config, precision=precision)
    with torch.inference_mode():
        found = steps.head(steps.hidden(src, mask, tgt)).log_softmax(-1)
        expected = model.head(model.hidden(src, mask, tgt)).log_softmax(-1)
    error = (found - expected).abs().mean()
    assert 1e-4 < error < TOLERANCES[precision], error  # a coarser precision must be seen, or it was not used


def test_ids_and_limits_are_checked_before_a_call() -> None:
    config = TransformerConfig(**BASE, positions="learned", max_length=16)
    steps = compile_steps(make_model(config, 30, 1), config)
    good = torch.tensor([[4, 5, 2]])
    state = steps.start(good, None, 1, 2)
    for word in (-1, 30):
        with pytest.raises(ValueError, match="ids must be between 0 and 29"):
            steps.start(torch.tensor([[4, word, 2]]), None, 1, 5)
        with pytest.raises(ValueError, match="ids must be between 0 and 29"):
            steps.step(torch.tensor([[word]]), state)
        with pytest.raises(ValueError, match="ids must be between 0 and 29"):
            steps.hidden(good, None, torch.tensor([[1, word]]))
        with pytest.raises(ValueError, match="ids must be between 0 and 29"):
            steps.head(torch.zeros(1, 32), torch.tensor([3, word]))
    with pytest.raises(ValueError, match="the model has 16 positions, not 17"):
        steps.start(good, None, 1, 17)
    with pytest.raises(ValueError, match="1 or more tokens"):
        steps.start(good, torch.tensor([[False, False, False]]), 1, 5)
    for _ in range(2):
        _, state = steps.step(torch.tensor([[1]]), state)
    with pytest.raises(ValueError, match="room for 2 steps"):
        steps.step(torch.tensor([[1]]), state)


@pytest.mark.parametrize(
    "precision", ["float32", pytest.param("bfloat16", marks=SLOW), pytest.param("int8", marks=SLOW)]
)
def test_no_buffer_of_steps_is_left(precision: str) -> None:
    setup = """
from attnkit.compiled import rows, translator
from attnkit.decoding.search import search
from test_compiled_search import draw, make_model
from test_compiled_steps import compile_steps, draw_search, draw_sources
make, part = rows.make_sentences, rows.part_of
translator.make_sentences = lambda *given: guard(make(*given))
translator.part_of = lambda *given: guard(part(*given))
rows.FIRST_STEPS = 5  # the cache grows
"""
    body = f"""
config, vocab_size, _, _, lines = draw(chance)
steps = compile_steps(make_model(config, vocab_size, seed), config, precision={precision!r})
search([steps], draw_sources(chance, lines, vocab_size), draw_search(chance, vocab_size), record=True)
one = torch.full((2, 1), 2)  # a blank line and a blank target: fewer keys than are read together
steps.hidden(one, None, torch.ones_like(one))
"""
    run_guarded(setup, body, 7000, 12)


def test_threads_of_the_caller_do_not_disturb_each_other(trained: Path) -> None:
    translator = load_translator([trained], device="cpu", engine="compiled")
    lines = [" ".join(str(i * k % 10) for k in range(1, 9)) for i in range(40)]
    options: dict[str, Any] = {"sampling": True, "num_hypotheses": 2}
    expected = [translator.translate(lines[i:], **options) for i in range(6)]
    n_before = torch.get_num_threads()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda i: translator.translate(lines[i:], **options), range(6))) == expected
    assert torch.get_num_threads() == n_before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_translates(trained: Path) -> None:
    """Its threads are its own: those of the parent do not exist there."""
    code = (
        "import os, signal, sys, attnkit\n"
        f"translator = attnkit.load({str(trained)!r}, device='cpu', threads=2)\n"
        "expected = translator.translate(['1 2 3', '4 5'] * 9)\n"
        "if not (child := os.fork()):\n"
        "    signal.alarm(60)\n"
        "    os._exit(translator.translate(['1 2 3', '4 5'] * 9) != expected)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
