"""GPT in compiled loops: equal to torch's, independent of the batch, inside its memory."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_compiled_search import HOST_TARGETS, SLOW, run_guarded, weights_of

from attnkit.compiled import generator, packed_layers
from attnkit.compiled import search as compiled_search
from attnkit.compiled.generator import CompiledGenerator
from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.engine import compiled_language_models
from attnkit.engine.compiled_language_models import compile_generator
from attnkit.engine.loading import LoadedModel
from attnkit.errors import SystemFailure, UsageError
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd.targets import Precision, Target, choose_target
from attnkit.models.gpt import Gpt, SlidingWindowLM
from attnkit.models.language_config import GptConfig
from attnkit.models.position_tables import RopeScaling

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
WORDS = 50
SMALL = GptConfig(d_model=32, n_heads=2, n_layers=2, d_ff=48, max_length=64)
LLAMA = GptConfig(
    d_model=96,
    n_heads=6,
    n_layers=2,
    d_ff=136,
    max_length=64,
    positions="rotary",
    activation="silu",
    glu=True,
    bias=False,
    normalization="rms",
    n_key_value_heads=2,
    head_width=24,
    rope_base=500.0,
    tie_embeddings=False,
)


def make_gpt(config: GptConfig, seed: int) -> Gpt:
    torch.manual_seed(seed)
    model = Gpt(config, WORDS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def compile_gpt(
    model: Gpt,
    config: GptConfig,
    window: int,
    precision: Precision = "float32",
    n_threads: int = 1,
    target: Target | None = None,
) -> CompiledGenerator:
    packed = PackedLanguageModel(config, weights_of(model), precision, target)
    return CompiledGenerator(packed, window, n_threads=n_threads)


def draw_options(chance: random.Random, n_heads: int, d_head: int) -> dict[str, Any]:
    """Return what a Llama has and GPT-2 lacks, each of it or not."""
    scaling = {"kind": chance.choice(["linear", "llama3"]), "factor": 4.0, "original_length": 16}
    return {
        "glu": chance.random() < 0.5,
        "bias": chance.random() < 0.5,
        "normalization": chance.choice(["layer", "rms"]),
        "n_key_value_heads": chance.choice([None, *(n for n in range(1, n_heads) if n_heads % n == 0)]),
        "head_width": chance.choice([None, None, 8, 22, 48, 72]),
        "rope_base": chance.choice([10000.0, 500.0]),
        "rope_scaling": RopeScaling(**scaling) if chance.random() < 0.3 else None,  # type: ignore[arg-type]
        "norm_eps": chance.choice([1e-5, 1e-2]),
    }


def draw_gpt(chance: random.Random) -> tuple[Gpt, GptConfig, int, list[torch.Tensor], SearchConfig]:
    """Return a model, its configuration, the window, prompts and search settings."""
    n_heads, d_head = chance.choice([1, 2, 3, 4, 6]), chance.choice([8, 16, 20, 34, 64])
    options = draw_options(chance, n_heads, d_head) if chance.random() < 0.7 else {}
    scaled = options.get("rope_scaling") is not None
    config = GptConfig(
        d_model=n_heads * d_head,
        n_heads=n_heads,
        n_layers=chance.randint(1, 3),
        d_ff=chance.choice([8, 50, 130]),
        norm=chance.choice(["pre", "post"]),
        positions="rotary" if scaled else chance.choice(["learned", "sinusoidal", "rotary", "alibi"]),
        activation=chance.choice(["relu", "gelu", "gelu_tanh", "silu"]),
        tie_embeddings=chance.random() < 0.5,
        max_length=64,
        **options,
    )
    model = make_gpt(config, chance.randint(0, 1 << 30))
    prompts = [torch.randint(0, WORDS, (chance.randint(1, 30),)) for _ in range(chance.randint(1, 6))]
    settings = SearchConfig(beam_size=1, max_length=20, sampling=chance.random() < 0.5, seed=3)
    return model, config, chance.choice([2, 5, 16, 64]), prompts, settings


def padded(prompts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    return ids, torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in prompts])


def generate(model: Any, prompts: list[torch.Tensor], settings: SearchConfig) -> list[Hypothesis]:
    return [one[0] for one in search([model], Sources(*padded(prompts)), settings)]


def first_logits(model: SlidingWindowLM, prompts: list[torch.Tensor]) -> torch.Tensor:
    """Return the logits of the first word after each prompt, by torch, as float64."""
    with torch.inference_mode():
        states = [model.start(row[None], None, 1, 1) for row in prompts]
        steps = [model.step(torch.zeros(1, 1, dtype=torch.int64), state) for state in states]
        return torch.stack([model.head(hidden)[0, 0].double() for hidden, _ in steps])


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(300))
def test_drawn_models_generate_what_torch_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the window, too; wherever float32 and float64 of torch agree."""
    chance = random.Random(seed)
    model, config, window, prompts, settings = draw_gpt(chance)
    compiled = compile_gpt(model, config, window, n_threads=chance.choice([1, 2]))
    monkeypatch.setattr(generator, "FIRST_STEPS", (3, 64)[seed % 2])  # the cache grows, or does not
    found = generate(compiled, prompts, settings)
    plain = SlidingWindowLM(model, window)
    by_torch = [search([plain], Sources(row[None], keys=[i]), settings)[0][0] for i, row in enumerate(prompts)]
    ids, real = padded(prompts)
    logits = compiled.head(compiled.step(ids[:, :1], compiled.start(ids, real, 1, 1))[0])[:, 0].double()
    float_logits = first_logits(plain, prompts)
    exact = SlidingWindowLM(model.double(), window)
    exact_logits = first_logits(exact, prompts)
    rounding = float((float_logits - exact_logits).abs().max())
    assert float((logits - exact_logits).abs().max()) < max(1e-4, 2 * rounding)
    for i, (one, other) in enumerate(zip(found, by_torch, strict=True)):
        if search([exact], Sources(prompts[i][None], keys=[i]), settings)[0][0].ids == other.ids:
            assert one.ids == other.ids and one.log_prob == pytest.approx(other.log_prob, abs=1e-3)


PRECISIONS = ["float32", pytest.param("bfloat16", marks=SLOW), pytest.param("int8", marks=SLOW)]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_whole_search_finds_what_its_steps_do(precision: Precision) -> None:
    """Words to the last one; log-probabilities, too, but for the order of their sums."""
    chance, n_texts = random.Random(5), 0
    for seed in range(12):
        model, config, _, prompts, _ = draw_gpt(chance)
        packed = PackedLanguageModel(config, weights_of(model), precision, n_words=WORDS - 3)
        compiled = CompiledGenerator(packed, 64, n_threads=1 + seed % 3)
        if seed == 0:  # more texts than a thread has slots
            prompts = [torch.randint(0, WORDS, (chance.randint(1, 30),)) for _ in range(130)]
        options = {"max_length": 20, "min_length": chance.choice([0, 0, 5]), "n_words": WORDS - 3}
        settings = SearchConfig(beam_size=1, scores=seed % 2 == 0, **options)  # type: ignore[arg-type]
        found = compiled.search([row.tolist() for row in prompts], [20] * len(prompts), settings)
        expected = generate(compiled, prompts, settings)
        assert [(one.ids, one.finished) for one in found] == [(one.ids, one.finished) for one in expected]
        if settings.scores:
            for one, other in zip(found, expected, strict=True):
                assert one.score == pytest.approx(other.score, abs=0.01 if precision == "bfloat16" else 2e-5)
        else:
            assert all(math.isnan(one.log_prob) for one in found)
        n_texts += len({tuple(one.ids) for one in found})
    assert n_texts > 100  # few are alike


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_screening_changes_no_word_of_a_whole_search(
    precision: Precision, scores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(4)
    model = Gpt(SMALL, 1100).eval()  # several panels of words
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    found = []
    for least in (0, 10**6):
        monkeypatch.setattr(packed_layers, "MIN_SCREENED", least)
        compiled = compile_gpt(model, SMALL, 64, precision)
        norms = compiled.packed.model(1).model
        screens = compiled.packed.target.peak_format(precision) is not None and not least
        assert (norms.peak_norm > 0) == screens
        prompts = [torch.randint(0, 1100, (1 + i % 20,), generator=torch.Generator().manual_seed(i)) for i in range(40)]
        settings = SearchConfig(beam_size=1, max_length=30, scores=scores)
        found.append(compiled.search([row.tolist() for row in prompts], [30] * 40, settings))
    screened, plain = found
    assert [one.ids for one in screened] == [one.ids for one in plain]
    assert len({tuple(one.ids) for one in plain}) > 20
    if scores:
        errors = [abs(one.score - other.score) for one, other in zip(screened, plain, strict=True)]
        assert max(errors) < (0.01 if precision == "bfloat16" else 2e-5)


def test_a_whole_search_is_for_texts_within_the_window() -> None:
    compiled = compile_gpt(make_gpt(SMALL, 1), SMALL, 32)
    settings = SearchConfig(beam_size=1)
    assert compiled.can_search_whole(20, 13, settings)  # the last word is not read
    assert not compiled.can_search_whole(20, 14, settings)
    assert len(compiled.search([[4] * 20], [13], settings)) == 1
    for option in ({"sampling": True}, {"repetition_penalty": 1.2}, {"no_repeat_ngram_size": 2}, {"beam_size": 2}):
        assert not compiled.can_search_whole(2, 2, SearchConfig(**{"beam_size": 1, **option}))  # type: ignore[arg-type]
    for prompts, limits, message in (
        ([[4, WORDS]], [3], "ids must be between 0 and 49"),
        ([[4, -1]], [3], "ids must be between 0 and 49"),
        ([[]], [3], "between 1 and 64 tokens"),
        ([[4] * 20, [4]], [3, 33], "fit into the window"),
        ([[4]], [0], "between 1 and 64 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            compiled.search(prompts, limits, settings)
    with pytest.raises(ValueError, match="a whole search is greedy"):
        compiled.search([[4]], [3], SearchConfig(beam_size=2))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("config", [SMALL, LLAMA], ids=["GPT-2", "Llama"])
def test_no_text_depends_on_the_batch(config: GptConfig, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_gpt(config, 2)
    compiled = compile_gpt(model, config, 32, precision)
    prompts = [torch.randint(3, WORDS, (n,)) for n in (1, 40, 7, 16, 31, 2) * 3]
    settings = SearchConfig(beam_size=1, max_length=30)
    expected = generate(compiled, prompts, settings)
    assert len({tuple(one.ids) for one in expected}) > 5
    assert [generate(compiled, [row], settings)[0] for row in prompts] == expected
    monkeypatch.setattr(compiled_search, "GREEDY_SLOTS", dict.fromkeys(compiled_search.GREEDY_SLOTS, 5))
    monkeypatch.setattr(compiled_search, "TILE_SLOTS", 5)
    monkeypatch.setattr(compiled_search, "ENCODED_TOKENS", 16)
    wide = compile_gpt(model, config, 64, precision)  # whole searches
    rows = [row[:30].tolist() for row in prompts]
    limits = [5 + i % 20 for i in range(len(rows))]
    whole = wide.search(rows, limits, settings)
    for i in (2, 0, 1, 5, 4, 3, 7):  # working memory is made anew or kept
        assert wide.search([rows[i]], [limits[i]], settings)[0] == whole[i]
    assert wide.search(rows, limits, settings) == whole
    threads = compile_gpt(model, config, 32, precision, n_threads=3)
    assert generate(threads, prompts[::-1], settings)[::-1] == expected
    threads = compile_gpt(model, config, 64, precision, n_threads=3)
    assert threads.search(rows[::-1], limits[::-1], settings)[::-1] == whole


TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.05}  #: of log-probabilities of a model of small weights


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [HOST_TARGETS[0], *(pytest.param(n, marks=SLOW) for n in HOST_TARGETS[1:])])
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_every_instruction_set_and_precision_is_near_torch(kind: str, name: Any, precision: Precision) -> None:
    config = SMALL if kind == "GPT-2" else LLAMA
    torch.manual_seed(3)
    model = Gpt(config, WORDS).eval()
    compiled = compile_gpt(model, config, 64, precision, target=choose_target(name))
    ids = torch.randint(0, WORDS, (20, 30))
    with torch.inference_mode():
        expected = model.head(model.step(ids[:, :1], model.start(ids, None, 1, 5))[0]).log_softmax(-1)
        found = compiled.head(compiled.step(ids[:, :1], compiled.start(ids, None, 1, 5))[0]).log_softmax(-1)
    error = (found - expected).abs().max()
    assert error < TOLERANCES[precision], error
    assert precision == "float32" or error > 1e-5, error  # a coarser precision must be seen, or it was not used


def test_ids_and_limits_are_checked_before_a_call() -> None:
    compiled = compile_gpt(make_gpt(SMALL, 1), SMALL, 64)
    good = torch.tensor([[4, 5]])
    for wrong in (-1, WORDS):
        with pytest.raises(ValueError, match="ids must be between 0 and 49"):
            compiled.step(good[:, :1], compiled.start(torch.tensor([[4, wrong]]), None, 1, 2))
        state = compiled.step(good[:, :1], compiled.start(good, None, 1, 2))[1]
        with pytest.raises(ValueError, match="ids must be between 0 and 49"):
            compiled.step(torch.tensor([[wrong]]), state)
    with pytest.raises(ValueError, match="1 or more tokens"):
        compiled.start(good, torch.zeros(1, 2, dtype=torch.bool), 1, 2)
    with pytest.raises(ValueError, match="one beam per text"):
        compiled.start(good, None, 2, 2)
    for window in (1, 65):
        with pytest.raises(ValueError, match="window must be at least 2"):
            compile_gpt(make_gpt(SMALL, 1), SMALL, window)
    state = compiled.start(good, None, 1, 1)
    for _ in range(2):  # the prompt, one token more
        _, state = compiled.step(good[:, :1], state)
    with pytest.raises(ValueError, match="room for 3 tokens"):
        compiled.step(good[:, :1], state)


def test_a_loaded_model_falls_back_with_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(config: GptConfig, device: str = "cpu") -> LoadedModel:
        settings: Any = SimpleNamespace(model=config)
        nothing: Any = None
        return LoadedModel(Path("run"), nothing, settings, make_gpt(SMALL, 1), torch.device(device))

    notes: list[str] = []
    assert compile_generator(loaded(SMALL), 8, "torch", "float32", notes.append) is None
    assert compile_generator(loaded(SMALL, "meta"), 8, "auto", "float32", notes.append) is None  # as on a GPU
    assert compile_generator(loaded(SMALL), 8, "auto", "float32", notes.append) is not None
    assert [note for note in notes if "compiling" not in note] == []
    additive = SMALL.model_copy(update={"alignment": "additive"})
    what = "attention other than scaled_dot with softmax"
    assert compile_generator(loaded(additive), 8, "auto", "float32", notes.append) is None
    assert notes[-1] == f"compiled loops do not support {what}; using torch, which is slower"
    for engine, precision, where in (("compiled", "float32", "--engine"), ("auto", "bfloat16", "--precision")):
        with pytest.raises(UsageError, match=what) as caught:
            compile_generator(loaded(additive), 8, engine, precision, notes.append)  # type: ignore[arg-type]
        assert caught.value.where == where

    def no_compiler(*arguments: object, **options: object) -> None:
        raise SystemFailure("no memory for the compiler")

    monkeypatch.setattr(compiled_language_models, "CompiledGenerator", no_compiler)
    assert compile_generator(loaded(SMALL), 8, "auto", "float32", notes.append) is None
    assert notes[-1] == "no memory for the compiler; using torch, which is slower"
    with pytest.raises(SystemFailure, match="no memory"):
        compile_generator(loaded(SMALL), 8, "auto", "int8", notes.append)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.slow
def test_no_buffer_of_a_generator_is_left(precision: str) -> None:
    setup = """
from attnkit.compiled import generator, packed_layers, search
packed_layers.MIN_SCREENED = 0
results, sources = search._results, search.CompiledSearch._sources
search._results = lambda *sizes: guard(results(*sizes))
search.CompiledSearch._sources = lambda *given: guard(sources(*given))
from test_compiled_generator import compile_gpt, draw_gpt, generate
part = generator.part_of
generator.part_of = lambda *given: guard(part(*given))
generator.FIRST_STEPS = 5  # the cache grows
# Small, so that the last row of each buffer is used.
search.GREEDY_SLOTS, search.TILE_SLOTS = dict.fromkeys(search.GREEDY_SLOTS, 2), 2
search.ENCODED_TOKENS = generator.ENCODED_TOKENS = 16
"""
    body = f"""
model, config, window, prompts, settings = draw_gpt(chance)
compiled = compile_gpt(model, config, window, {precision!r})
generate(compiled, prompts, settings)
settings = settings.model_copy(update={{"sampling": False, "scores": seed % 2 == 0}})
whole = compile_gpt(model, config, 64, {precision!r})
whole.search([row.tolist() for row in prompts], [chance.randint(1, 20) for _ in prompts], settings)
"""
    run_guarded(setup, body, 9000, 15)
