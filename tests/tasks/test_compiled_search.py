"""Compiled searches equal those of torch, depend on nothing but their sentence, and stay inside their memory."""

from __future__ import annotations

import copy
import ctypes
import mmap
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled import packed_layers, workers
from attnkit.compiled import search as compiled
from attnkit.compiled.packed_transformer import PackedTransformer
from attnkit.compiled.search import CompiledSearch, reason_against_model, reason_against_search
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Hypothesis, Sources, search
from attnkit.engine.seq2seq import pad_sources
from attnkit.errors import UsageError
from attnkit.kernels import native
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd import packing, targets
from attnkit.kernels.simd.targets import TARGETS, Precision, Target, TargetName, choose_target
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.parameter_shapes import transformer_shapes
from attnkit.models.position_tables import alibi_bias, relative_bias, rotations, sinusoids
from attnkit.models.positions import AlibiBias, RelativeBias
from attnkit.models.positions import rotations as torch_rotations
from attnkit.models.positions import sinusoids as torch_sinusoids
from attnkit.models.transformer import Transformer
from attnkit.tasks.translation import engines
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.loading import open_run
from attnkit.tasks.translation.translator import load_translator

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
POSITIONS = ("sinusoidal", "fairseq", "learned", "rotary", "alibi", "relative", "none")
BASE: dict[str, Any] = {"d_model": 32, "n_heads": 2, "d_ff": 48, "encoder_layers": 2, "decoder_layers": 2}
DRAWS = 10  #: models of one case


def make_model(config: TransformerConfig, vocab_size: int, seed: int) -> Transformer:
    """Return a model of random weights, large enough that translations differ."""
    torch.manual_seed(seed)
    model = Transformer(config, vocab_size, vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def weights_of(model: torch.nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in tensors_of(model).items()}


def pack_model(
    model: Transformer,
    config: TransformerConfig,
    n_words: int,
    precision: Precision = "float32",
    target: Target | None = None,
) -> PackedTransformer:
    return PackedTransformer(config, weights_of(model), n_words, precision, target)


def compile_model(model: Transformer, config: TransformerConfig, n_words: int, **options: Any) -> CompiledSearch:
    n_threads = options.pop("n_threads", 1)
    return CompiledSearch(pack_model(model, config, n_words, **options), n_threads=n_threads)


def reference(model: Transformer, sources: list[list[int]], config: SearchConfig) -> list[list[Hypothesis]]:
    return search([model], Sources(*pad_sources(sources, torch.device("cpu"))), config)


def limits(sources: list[list[int]], config: SearchConfig) -> list[int]:
    return [max(config.limit(len(ids) + 1), config.min_length + 1) for ids in sources]


def assert_equal(model: Transformer, sources: list[list[int]], config: SearchConfig, found: Any, what: Any) -> None:
    """Compare with torch wherever rounding decides nothing: where its float32 and float64 find the same."""
    expected, exact = reference(model, sources, config), reference(copy.deepcopy(model).double(), sources, config)
    for one, other, truth in zip(found, expected, exact, strict=True):
        if [h.ids for h in other] != [h.ids for h in truth]:
            continue
        for left, own, right in zip(one, other, truth, strict=True):
            # Float32 sums of many terms, against float64: torch's own float32 is as far, and up to ten times as far.
            close = {"abs": 1e-4 + 5e-4 * len(right.ids), "nan_ok": True}
            if left.ids == own.ids and abs(own.log_prob - right.log_prob) > close["abs"]:
                right = own  # what decides is torch's float32 where it is as far
            assert left.score == pytest.approx(right.score, **close), what
            if left.ids != right.ids:  # of two hypotheses with nearly equal scores either may be first
                assert config.beam_size > 1, (what, left, right)
                continue
            assert left.log_prob == pytest.approx(right.log_prob, **close), what
            assert left.finished == right.finished, what
            if config.token_scores:
                assert left.token_scores == pytest.approx(right.token_scores, **close), what
                assert sum(left.token_scores) == pytest.approx(left.log_prob, abs=1e-9), what


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_hidden_units_are_ordered_by_how_often_they_are_zero(norm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is that of the model's own activity, gives fewer groups, and changes no bit of int8 scores."""
    config = TransformerConfig(**{**BASE, "d_ff": 128, "encoder_layers": 1, "decoder_layers": 1}, norm=norm)
    model = make_model(config, 40, 3)
    layer = model.encoder.layers[0]
    with torch.no_grad():  # some units hardly ever act, others always do
        layer.feed_forward.up.bias += 4 * torch.randn(128)
    orders: list[Any] = []
    argsort = np.argsort

    def ordered(values: Any, *arguments: Any, **keywords: Any) -> Any:
        orders.append(argsort(values, *arguments, **keywords))
        return orders[-1]

    sources = [[int(k) for k in row] for row in np.random.default_rng(1).integers(4, 40, (30, 9))]
    search_config = SearchConfig(beam_size=3)
    with monkeypatch.context() as patch:
        patch.setattr(packed_layers.np, "argsort", ordered)
        packed = pack_model(model, config, 40, "int8")
    plain_order = lambda self, weight, bias, norm: np.arange(float(len(weight)))  # noqa: E731 - as it was
    monkeypatch.setattr(packed_layers.PackedLayers, "_expected", plain_order)
    plain = pack_model(model, config, 40, "int8")
    active: list[torch.Tensor] = []
    layer.feed_forward.up.register_forward_hook(lambda module, inputs, output: active.append(output.detach() > 0))
    reference(model, sources, search_config)
    rows = active[0].reshape(-1, 128)

    def share(order: Any) -> float:
        return float(rows[:, order.tolist()].reshape(len(rows), -1, 4).any(-1).float().mean())

    rates = rows.float().mean(0).numpy()
    assert np.corrcoef(np.arange(128), rates[orders[0]])[0, 1] > 0.85
    assert share(orders[0]) < 0.85 * share(np.arange(128))
    if choose_target().summed_groups > 1:  # where products share 16 bits, neighbours decide on the scale
        return
    found = [
        CompiledSearch(one, n_threads=1).search(sources, limits(sources, search_config), search_config)
        for one in (packed, plain)
    ]
    assert found[0] == found[1]


def draw_t5(chance: random.Random, norm: str) -> dict[str, Any]:
    """Return options that T5 has, for one of three models; any of them may be left out.

    After norms, scores without a scale are so large that rounding decides much.
    """
    options = {
        "alignment": "dot" if norm == "pre" else "scaled_dot",
        "normalization": "rms",
        "bias": False,
        "glu": True,
        "activation": "gelu_tanh",
        "head_width": chance.choice([6, 16, 24]),
        "relative_buckets": 12,
        "relative_distance": chance.choice([20, 300]),
        "tie_embeddings": "inputs",
        "scaled_input": False,
        "scaled_output": True,
        "output_bias": False,
    }
    return {key: value for key, value in options.items() if chance.random() < 0.6} if chance.random() < 0.33 else {}


def draw(chance: random.Random) -> tuple[TransformerConfig, int, int, SearchConfig, list[list[int]]]:
    """Return a configuration, vocabulary size, words that may be chosen, search settings and sentences."""
    n_heads = chance.choice([2, 3, 4])
    d_model = n_heads * chance.choice([6, 8, 16, 20, 32, 34, 64])
    settings = {
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": chance.choice([8, 50, 64, 130]),
        "encoder_layers": chance.randint(1, 3),
        "decoder_layers": chance.randint(1, 3),
        "norm": chance.choice(["pre", "post"]),
        "norm_eps": chance.choice([1e-5, 1e-12]),
        "positions": chance.choice(POSITIONS),
        "max_length": 256,
        "activation": chance.choice(["relu", "gelu", "silu"]),
        "tie_embeddings": chance.choice(["none", "target", "all"]),
        "embedding_norm": chance.random() < 0.3,
    }
    vocab_size = chance.choice([24, 63, 64, 65, 130, 300])
    beam_size = chance.choice([1, 1, 2, 3, 5, 8, 16])
    more = random.Random(d_model * vocab_size + beam_size)
    mbart = random.Random(f"{vocab_size} {d_model}")
    settings |= {"target_embedding_norm": mbart.random() < 0.3, "position_offset": mbart.choice([0, 0, 2])}
    settings["decoder_start"] = random.Random(f"{d_model} {vocab_size}").choice(["bos", "zero", "eos"])
    settings |= draw_t5(random.Random(f"{d_model} {vocab_size} {beam_size}"), str(settings["norm"]))
    search = {
        "beam_size": beam_size,
        "num_hypotheses": chance.randint(1, beam_size),
        "length_penalty": chance.choice([0.0, 0.6, 1.0, 2.0]),
        "min_length": chance.choice([0, 0, 3]),
        "max_length": chance.choice([None, 1 + 3, 12, 40]),
        "scores": beam_size > 1 or chance.random() < 0.5,
        "no_unk": more.random() < 0.3,
        "token_scores": more.random() < 0.5,
        "n_words": n_words if (n_words := vocab_size - chance.choice([0, 0, 1, 5])) < vocab_size else None,
    }
    lengths = [chance.choice([0, 1, 2, 5, 9, 17, chance.randint(1, 60)]) for _ in range(chance.randint(1, 7))]
    sources = [[chance.randint(3, vocab_size - 1) for _ in range(n)] for n in lengths]
    return TransformerConfig(**settings), vocab_size, n_words, SearchConfig(**search), sources


@pytest.mark.sample(67)
@pytest.mark.parametrize("block", range(200))
def test_drawn_models_and_searches_equal_those_of_torch(block: int) -> None:
    torch.set_num_threads(1)
    for number in range(DRAWS):
        chance = random.Random(block * DRAWS + number)
        config, vocab_size, n_words, settings, sources = draw(chance)
        model = make_model(config, vocab_size, number)
        engine = compile_model(model, config, n_words, n_threads=chance.choice([1, 2]))
        found = engine.search(sources, limits(sources, settings), settings)
        assert_equal(model, sources, settings, found, (block, number, config, settings))


def is_usable(name: TargetName) -> bool:
    """Return whether this processor, and the system, allow a target."""
    try:
        return choose_target(name).name == name
    except ValueError:
        return False


HOST_TARGETS = [name for name in TARGETS if is_usable(name)]
SLOW = pytest.mark.slow
# Each has loops of its own to compile; encoders run in int8 by default.
PRECISIONS = ["float32", *(pytest.param(name, marks=SLOW) for name in ("bfloat16", "int8"))]
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.02, "int8": 0.05}
"""Log-probability per token, of the tame model below. Rounding of weights and activations makes most of it."""


def tame_model(config: TransformerConfig) -> Transformer:
    """Return a model of the usual random weights, whose outputs change little with its inputs."""
    torch.manual_seed(7)
    model = Transformer(config, 130, 130).eval()
    with torch.no_grad():
        model.output.bias.add_(torch.randn_like(model.output.bias))
    return model


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "name", [HOST_TARGETS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in HOST_TARGETS[1:])]
)
@pytest.mark.parametrize("activation", ["relu", pytest.param("gelu", marks=pytest.mark.slow)])
def test_every_instruction_set_and_precision_is_near_torch(name: Any, precision: Any, activation: Any) -> None:
    config = TransformerConfig(**{**BASE, "d_model": 64, "d_ff": 160, "activation": activation})
    model, rows = tame_model(config), sentences(20)
    engine = compile_model(model, config, 130, precision=precision, target=choose_target(name))
    for settings in (SearchConfig(beam_size=1), SearchConfig(beam_size=4, num_hypotheses=4)):
        found, expected = engine.search(rows, limits(rows, settings), settings), reference(model, rows, settings)
        best = [(one[0], other[0]) for one, other in zip(found, expected, strict=True)]
        # Where two words are nearly equal, rounding chooses: half of the texts must be those of torch, and these near.
        errors = [abs(one.score - other.score) for one, other in best if one.ids == other.ids]
        assert len(errors) >= 0.5 * len(rows), (name, len(errors))
        assert max(errors) <= TOLERANCES[precision], (name, max(errors))
        if precision != "float32":  # a coarser precision must be seen, or it was not used
            assert max(errors) > TOLERANCES["float32"]


def search_by(name: Any, model: Transformer, config: TransformerConfig, rows: Any, settings: SearchConfig) -> Any:
    """Return what a target finds in int8."""
    engine = compile_model(model, config, 130, precision="int8", target=choose_target(name))
    return engine.search(rows, limits(rows, settings), settings)


def test_tiles_need_the_processor_and_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    features = {feature for target in TARGETS.values() for feature in target.needs}
    monkeypatch.setattr(targets, "host_features", lambda: frozenset(features))
    monkeypatch.setattr(targets, "may_use_tiles", lambda: True)
    assert choose_target().name == "amx" and choose_target().native_bfloat16
    monkeypatch.setattr(targets, "may_use_tiles", lambda: False)
    assert choose_target().name == "avx512"
    with pytest.raises(ValueError, match="the system does not allow AMX"):
        choose_target("amx")
    monkeypatch.setattr(targets, "may_use_tiles", lambda: True)
    monkeypatch.setattr(targets, "host_features", lambda: frozenset(features - {"amx-int8"}))
    assert choose_target().name == "avx512"
    with pytest.raises(ValueError, match="this processor lacks amx-int8"):
        choose_target("amx")


@pytest.mark.skipif("amx" not in HOST_TARGETS, reason="this processor has no AMX")
@pytest.mark.parametrize("beam_size", [1, 4])
def test_tiles_of_bytes_find_what_vectors_do(beam_size: int) -> None:
    """Integers add up exactly, in any order."""
    config = TransformerConfig(**BASE)
    model, rows, settings = tame_model(config), sentences(20), SearchConfig(beam_size=beam_size)
    assert search_by("amx", model, config, rows, settings) == search_by("avx512", model, config, rows, settings)


@pytest.mark.slow
@pytest.mark.skipif("avx512" not in HOST_TARGETS, reason="this processor has one target with 8-bit activations")
def test_int8_sums_are_equal_on_targets_with_8_bits() -> None:
    """Sums of bytes are exact; what is left is the rounding of norms and softmax."""
    config = TransformerConfig(**BASE)
    model, rows, settings = tame_model(config), sentences(20), SearchConfig(beam_size=1)
    first, second = (search_by(name, model, config, rows, settings) for name in ("avx512", "portable"))
    equal = [one[0].ids == other[0].ids for one, other in zip(first, second, strict=True)]
    assert sum(equal) >= 18
    for one, other in zip(first, second, strict=True):
        assert one[0].ids != other[0].ids or one[0].score == pytest.approx(other[0].score, abs=0.01)


def sentences(n: int, seed: int = 0) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randint(4, 129) for _ in range(chance.choice([1, 3, 8, 15, 40]))] for _ in range(n)]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_nothing_depends_on_the_batch(monkeypatch: pytest.MonkeyPatch, precision: Precision, beam_size: int) -> None:
    config = TransformerConfig(**BASE)
    engine = compile_model(make_model(config, 130, 5), config, 130, precision=precision)
    rows, settings = sentences(60), SearchConfig(beam_size=beam_size, num_hypotheses=beam_size)
    expected = engine.search(rows, limits(rows, settings), settings)
    assert len({tuple(h.ids) for one in expected for h in one}) > 10
    backwards = engine.search(rows[::-1], limits(rows[::-1], settings), settings)[::-1]
    alone = [engine.search([row], limits([row], settings), settings)[0] for row in rows]
    engine.n_threads = 3
    threads = engine.search(rows, limits(rows, settings), settings)
    monkeypatch.setattr(compiled, "GREEDY_SLOTS", dict.fromkeys(compiled.GREEDY_SLOTS, 5))
    monkeypatch.setattr(compiled, "BEAM_ROWS", dict.fromkeys(compiled.BEAM_ROWS, 20))
    monkeypatch.setattr(compiled, "TILE_SLOTS", 5)
    monkeypatch.setattr(compiled, "TILE_BEAM_ROWS", 20)
    monkeypatch.setattr(compiled, "ENCODED_TOKENS", 16)
    few = compile_model(make_model(config, 130, 5), config, 130, precision=precision)
    few_slots = few.search(rows, limits(rows, settings), settings)
    for found in (backwards, alone, threads, few_slots):
        assert found == expected  # all numbers, to the last bit


class Guarded:
    """Memory that ends at a page that cannot be read: one byte too far ends the process."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.maps: list[mmap.mmap] = []

    def allocate(self, n: int) -> Any:
        page = mmap.PAGESIZE
        size = -(-max(n, 1) // page) * page
        memory = mmap.mmap(-1, size + page)
        self.maps.append(memory)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert self.libc.mprotect(ctypes.c_void_p(start + size), page, 0) == 0  # PROT_NONE
        return np.frombuffer(memory, np.uint8, n, size - n)

    def copy(self, array: Any) -> Any:
        out = self.allocate(array.nbytes).view(array.dtype).reshape(array.shape)
        out[...] = array
        return out


GUARDED = """
import random, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/tasks"]
import torch
from attnkit.kernels.simd import packing
from test_compiled_search import Guarded
guarded = Guarded()
packing.allocate = guarded.allocate  # weights, tables and working memory
guard = lambda arrays: type(arrays)(*map(guarded.copy, arrays))
{setup}
for seed in range({first}, {first} + {n}):
    chance = random.Random(seed)
{body}
print("inside")
"""


def run_guarded(setup: str, body: str, first: int, n: int) -> None:
    """Run ``setup``, then ``body`` for n seeds, in a process that a byte too far would end."""
    tests = str(Path(__file__).parents[1])
    code = GUARDED.format(tests=tests, setup=setup, body=textwrap.indent(body, "    "), first=first, n=n)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "inside\n", (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_buffer_is_left(precision: str) -> None:
    setup = """
from attnkit.compiled import packed_layers, search
packed_layers.MIN_SCREENED = 0
# Small, so that the last row of each buffer is used.
search.GREEDY_SLOTS, search.BEAM_ROWS = (dict.fromkeys(search.BEAM_ROWS, n) for n in (2, 6))
search.TILE_SLOTS, search.TILE_BEAM_ROWS, search.ENCODED_TOKENS = 2, 6, 16
from test_compiled_search import compile_model, draw, limits, make_model
results, sources = search._results, search.CompiledSearch._sources
search._results = lambda *sizes: guard(results(*sizes))
search.CompiledSearch._sources = lambda *given: guard(sources(*given))
"""
    body = f"""
config, vocab_size, n_words, settings, rows = draw(chance)
engine = compile_model(make_model(config, vocab_size, seed), config, n_words, precision={precision!r})
engine.search(rows, limits(rows, settings), settings)
"""
    run_guarded(setup, body, 5000, 20)


class Screening(NamedTuple):
    """Searches for one model with and without screening, and its sentences."""

    with_it: CompiledSearch
    without: CompiledSearch
    rows: list[list[int]]


def screen(monkeypatch: pytest.MonkeyPatch, precision: Precision, target: Any = None) -> Screening:
    """Return searches of a model of random weights with more panels of words than beams."""
    torch.manual_seed(3)
    config = TransformerConfig(**{**BASE, "d_model": 96, "d_ff": 160, "tie_embeddings": "none"})
    model = Transformer(config, 130, 1100).eval()
    with torch.no_grad():
        model.output.weight.mul_(4)  # else all words are nearly equal, and all panels are computed
    found = []
    for least in (0, 10**6):
        monkeypatch.setattr(packed_layers, "MIN_SCREENED", least)
        found.append(compile_model(model, config, 1090, precision=precision, target=target))
    screened, plain = (engine.packed.model(1).model.peak_norm for engine in found)
    assert screened > 0 and plain == 0
    return Screening(*found, sentences(40))


@pytest.mark.parametrize("name", [HOST_TARGETS[0], *(pytest.param(n, marks=SLOW) for n in HOST_TARGETS[1:])])
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=SLOW)])
def test_screening_changes_no_word_of_greedy_search(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, name: Any
) -> None:
    if choose_target(name).peak_format(precision) is None:
        pytest.skip("a target without screening")
    with_it, without, rows = screen(monkeypatch, precision, choose_target(name))
    settings = SearchConfig(beam_size=1, scores=False)
    found = [
        [one[0].ids for one in engine.search(rows, limits(rows, settings), settings)] for engine in (with_it, without)
    ]
    assert found[0] == found[1] and len({tuple(ids) for ids in found[0]}) > 20


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=SLOW)])
def test_screening_moves_scores_less_than_rounding_does(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, beam_size: int
) -> None:
    screening = [name for name in HOST_TARGETS if choose_target(name).sum_format(precision) is not None]
    if not screening:
        pytest.skip("a processor without screening of sums")
    with_it, without, rows = screen(monkeypatch, precision, choose_target(screening[0]))
    settings = SearchConfig(beam_size=beam_size, num_hypotheses=beam_size)
    found = [[one[0] for one in engine.search(rows, limits(rows, settings), settings)] for engine in (with_it, without)]
    same = [(one, other) for one, other in zip(*found, strict=True) if one.ids == other.ids]
    assert len(same) >= (1 if precision == "float32" else 0.9) * len(rows)
    errors = [abs(one.score - other.score) for one, other in same]
    assert 0 < max(errors) <= TOLERANCES[precision] / 2  # above zero: screening was used
    alone = [with_it.search([row], limits([row], settings), settings)[0][0] for row in rows]
    assert alone == found[0]  # to the last bit


def test_guarded_memory_ends_a_process_that_leaves_it() -> None:
    tests = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r})\nimport ctypes\nfrom tasks.test_compiled_search import Guarded\n"
    code += "g = Guarded(); a = g.allocate(100); ctypes.string_at(a.ctypes.data + 100, 1)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode < 0


@pytest.mark.parametrize(
    ("sources", "steps", "message"),
    [
        ([[5, 130]], [9], "ids must be between 0 and 129"),
        ([[-1]], [9], "ids must be between"),
        ([[5]], [0], "between 1 and"),
        ([[5]], [compiled.MAX_TOKENS + 1], "between 1 and"),
        ([[5] * compiled.MAX_TOKENS], [9], "between 1 and"),
        ([[5]], [9, 9], "2 limits for 1 sentences"),
    ],
)
def test_what_would_leave_memory_is_refused(sources: Any, steps: Any, message: str) -> None:
    config = TransformerConfig(**BASE)
    engine = compile_model(make_model(config, 130, 1), config, 130)
    with pytest.raises(ValueError, match=message):
        engine.search(sources, steps, SearchConfig(beam_size=1))
    with pytest.raises(ValueError, match="compiled loops do not support sampling"):
        engine.search([[5]], [9], SearchConfig(sampling=True))


def test_an_interrupt_stops_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TransformerConfig(**BASE)
    engine = compile_model(make_model(config, 130, 1), config, 130, n_threads=2)
    stopped: list[int] = []

    def interrupted(jobs: Any, timeout: float | None = None) -> Any:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait(jobs)

    def call(name: str, *arguments: Any) -> None:
        control = arguments[-1]
        while not control[0]:
            pass
        stopped.append(1)

    monkeypatch.setattr(workers, "wait", interrupted)
    monkeypatch.setattr(engine, "library", type("Endless", (), {"call": staticmethod(call)}))
    with pytest.raises(KeyboardInterrupt):
        engine.search(sentences(4), [9] * 4, SearchConfig(beam_size=1))
    assert stopped == [1, 1]


# --- tables and names that are computed without torch


def test_position_tables_equal_those_of_torch() -> None:
    assert np.array_equal(sinusoids(700, 34), torch_sinusoids(0, 700, torch.zeros(1, 34)).numpy())
    table = torch_rotations(300, 16).numpy()
    assert np.array_equal(rotations(300, 16).reshape(300, 16), table)
    distance = np.arange(-400, 400)
    expected = AlibiBias(6)(torch.from_numpy(distance)[None])[:, 0].numpy()
    assert np.array_equal(alibi_bias(6, distance), expected)
    for both_ways in (True, False):
        for sizes in ((32, 128), (12, 300)):
            bias = RelativeBias(3, both_ways, *sizes)
            expected = bias(torch.from_numpy(distance)[None])[:, 0].detach().numpy()
            found = relative_bias(bias.table.detach().numpy(), distance, both_ways, sizes[1])
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_shapes_are_those_of_the_model(positions: Any) -> None:
    for norm in ("pre", "post"):
        for tied, sizes in (("none", (20, 22)), ("target", (20, 22)), ("inputs", (20, 20)), ("all", (20, 20))):
            options: Any = {"norm": norm, "tie_embeddings": tied, "embedding_norm": norm == "pre", "max_length": 32}
            options |= {"target_embedding_norm": tied == "none", "position_offset": 2 * (tied == "all")}
            if norm == "pre":
                options |= {"bias": False, "glu": True, "normalization": "rms", "head_width": 6, "relative_buckets": 8}
            config = TransformerConfig(**BASE, positions=positions, **options)
            with torch.device("meta"):
                model = Transformer(config, *sizes)
            assert transformer_shapes(config, *sizes) == {k: tuple(v.shape) for k, v in tensors_of(model).items()}


class Products(NamedTuple):
    """The part of ``Model`` that a product reads."""

    products: np.ndarray


def test_tables_live_as_long_as_the_model_that_reads_them() -> None:
    """Another search of the same weights may ask for more positions meanwhile."""
    packed = pack_model(make_model(TransformerConfig(**BASE), 130, 1), TransformerConfig(**BASE), 130)
    short = packed.model(20)
    before = [table.copy() for table in short.tables]
    assert packed.model(500).n_positions >= 500
    assert {short.model.src_positions, short.model.tgt_positions} == {table.ctypes.data for table in short.tables}
    assert all(np.array_equal(*pair) for pair in zip(short.tables, before, strict=True))
    assert packed.model(20).n_positions >= 500  # the longest is kept


def unpacked(packed: packing.PackedWeights) -> np.ndarray:
    """Return the integers of packed weights as (N, K)."""
    panels, n_groups, p, g = packed.weights.shape
    return packed.weights.transpose(0, 2, 1, 3).reshape(panels * p, n_groups * g).astype(np.int64)


@pytest.mark.parametrize("name", list(TARGETS))
def test_packed_int8_weights_are_within_half_a_step(name: TargetName) -> None:
    chance = np.random.default_rng(1)
    weight, bias = chance.normal(size=(70, 90)).astype(np.float32), chance.normal(size=70).astype(np.float32)
    target = TARGETS[name]
    packed = packing.pack(weight, bias, target, "int8")
    back = unpacked(packed)[:70, :90] * packed.scale[:70, None]
    assert (np.abs(back - weight) <= packed.scale[:70, None] * 0.5001).all()
    # They are as large as they may be: up to 127, or as sums of 16 bits allow.
    integers, g = unpacked(packed)[:70], target.summed_groups
    largest = np.abs(integers).max(1)
    if g == 1:
        assert (largest == 127).all()
    else:
        sums = [np.maximum(x, 0).reshape(70, -1, g, 2, 2).sum((2, 4)).max((1, 2)) for x in (integers, -integers)]
        most = np.maximum(*sums)
        assert (most <= 258).all() and ((most > 258 - 3 * g) | (largest == 127)).all()
        assert (largest > 90).mean() > 0.5  # weights of both signs lose little
    assert np.array_equal(packed.start, -target.zero_point(False) * unpacked(packed).sum(1))


@pytest.mark.parametrize("name", HOST_TARGETS)
def test_products_of_bytes_are_exact_at_their_extremes(name: TargetName) -> None:
    from attnkit.kernels.jit import no_refcount
    from attnkit.kernels.simd.matrix import begin_tiles, end_tiles
    from attnkit.kernels.sublayers import NOTHING, build_linear

    target, k = choose_target(name), 256
    linear, has_tiles = build_linear(target, "int8", "store"), target.has_matrix_tiles

    @no_refcount
    def multiply(model: Any, a: Any, scales: Any, n_rows: Any, out: Any) -> None:
        if has_tiles:
            begin_tiles()
        linear(model, 0, (a, scales, n_rows), (out, 4 * 64), NOTHING)
        if has_tiles:
            end_tiles()

    chance = np.random.default_rng(2)
    # Columns of one value, of one sign, of both; few large ones, also next to each other.
    weight = chance.choice([-1.0, 1.0], (64, k)) * (chance.random((64, k)) < chance.random((64, 1)))
    weight[:4], weight[4:8], weight[8, :16], weight[9] = 1, -1, 1000, np.where(np.arange(k) % 16 < 2, 1, 0)
    bias = chance.normal(size=64).astype(np.float32)
    packed = packing.pack(weight.astype(np.float32), bias, target, "int8")
    # The largest sums of 16 bits there can be: 258 in eight numbers, of either sign.
    extreme = packed.weights.reshape(64 // packed.weights.shape[2], -1, 4, packed.weights.shape[2], 4)
    extreme[0, :, :, :2] = 32
    extreme[0, :, 0, :2, ::2] = 34
    extreme[0, :, :, 1] *= -1
    packed.start[:2] = -target.zero_point(False) * unpacked(packed).sum(1)[:2]
    table = np.array([[*(part.ctypes.data for part in packed), 64, k]], np.int64)
    most, zero = (1 << target.activation_bits) - 1, target.zero_point(False)
    for n_rows in (1, 2, 3, 4, 5, 6, 7, 13, 16, 17, 40):
        n_padded = n_rows + target.extra_rows
        rows = packing.aligned(chance.choice([0, zero, most], (n_padded, k)).astype(np.uint8))
        rows[0] = most
        scales = packing.aligned(chance.random(n_padded).astype(np.float32))
        out = packing.aligned(np.zeros((n_padded, 64), np.float32))
        multiply(Products(table), *(x.ctypes.data for x in (rows, scales)), n_rows, out.ctypes.data)
        sums = (rows[:n_rows].astype(np.int64) - zero) @ unpacked(packed).T
        expected = sums * scales[:n_rows, None].astype(float) * packed.scale + bias
        np.testing.assert_allclose(out[:n_rows], expected, rtol=1e-5, atol=1e-5)


# --- object code in the cache


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """Let new files be writable by everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_to_all")
def test_damaged_or_foreign_cache_files_are_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made: list[Any] = []
    symbols = b'{"greedy": "f"}\nobject code'

    def compile_(loops: str, target: Target, precision: Precision, key: str) -> bytes:
        made.append((loops, target.name, precision))
        return symbols

    monkeypatch.setattr(native, "_compile", compile_)
    monkeypatch.setattr(native, "Library", lambda code, functions: (code, functions))
    target, notes = TARGETS["portable"], []
    for _ in range(2):
        found: Any = native.load_loops("search", target, "int8", notes.append)
        assert found == (b"object code", {"greedy": "f"})
    assert len(made) == len(notes) == 1
    (path,) = tmp_path.glob("*.o")
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:70], b"0" + whole, whole.replace(b"object", b"abject")):
        path.write_bytes(damaged)
        assert native.load_loops("search", target, "int8") == found
        assert path.read_bytes() == whole
    assert len(made) == 6
    native.load_loops("search", target, "float32")
    assert len(made) == 7  # a file of its own
    native.load_loops("steps", target, "int8")
    assert len(made) == 8
    for mode, n in ((0o666, 9), (0o644, 9)):  # what others may write is not run, and replaced
        path.chmod(mode)
        native.load_loops("search", target, "int8")
        assert len(made) == n
    old, young, other = (tmp_path / f"{name}.o" for name in ("search-portable-int8-1", "search-portable-int8-2", "x-1"))
    for file, days in ((old, 31), (young, 29), (other, 31)):
        file.write_bytes(b"")
        os.utime(file, (time.time() - 86400 * days,) * 2)
    path.unlink()
    native.load_loops("search", target, "int8")
    assert [file.exists() for file in (path, old, young, other)] == [True, False, True, True]
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nowhere")  # cannot be written to
    assert native.load_loops("search", target, "int8") == found


# --- the choice of the engine


def test_reasons_against_compiled_loops() -> None:
    assert reason_against_model(TransformerConfig(**BASE)) is None
    assert reason_against_model(TransformerConfig(**BASE, alignment="dot")) is None
    assert "rnn" in str(reason_against_model(RnnConfig()))
    for options, word in (
        ({"alignment": "additive"}, "scaled_dot"),
        ({"alignment": ("dot", "scaled_dot")}, "scaled_dot"),
        ({"distribution": "sparsemax"}, "softmax"),
        ({"pattern": "window"}, "sparse"),
        ({"d_model": 258, "n_heads": 2}, "wider"),
    ):
        assert word in str(reason_against_model(TransformerConfig(**{**BASE, **options})))
    assert reason_against_search(SearchConfig()) is None
    for options in ({"sampling": True}, {"coverage_penalty": 0.1}, {"repetition_penalty": 1.1}, {"beam_size": 65}):
        assert reason_against_search(SearchConfig(**options)) is not None  # type: ignore[arg-type]


def test_the_engine_falls_back_with_one_note(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    by_torch = load_translator([trained], device="cpu", engine="torch", notify=notes.append)
    plain = by_torch.translate(["1 2 3", "4 5"])
    assert notes == []  # it was asked for
    with pytest.raises(UsageError, match="int8 needs compiled loops, which are excluded by --engine torch"):
        load_translator([trained], device="cpu", precision="int8", engine="torch")
    with pytest.raises(UsageError, match="unknown precision 'int4'"):
        EngineSearch([open_run(trained)], "cpu", "int4")  # type: ignore[arg-type]
    monkeypatch.setattr(engines, "reason_against_model", lambda config: "such a model")
    translator = load_translator([trained], device="cpu", notify=notes.append)
    assert translator.translate(["1 2 3", "4 5"]) == plain
    translator.translate(["1 2 3"], sampling=True)
    assert notes == ["compiled loops do not support such a model; using torch, which is slower"]
    with pytest.raises(UsageError, match="compiled loops do not support such a model"):
        load_translator([trained], device="cpu", engine="compiled")
    with pytest.raises(UsageError, match="int8 needs compiled loops, which do not support such a model"):
        load_translator([trained], device="cpu", precision="int8")


@pytest.fixture
def warm(trained: Path) -> Iterator[Path]:
    """Return a run whose loops are compiled already."""
    load_translator([trained], device="cpu")
    yield trained


def test_translating_imports_neither_torch_nor_numba(warm: Path) -> None:
    code = (
        "import sys; from attnkit.cli.main import main\n"
        f"sys.argv = ['attnkit', 'translate', {str(warm)!r}]\n"
        "try: main()\nexcept SystemExit as ended: assert not ended.code, ended\n"
        "assert not {'torch', 'numba'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], input="1 2 3\n\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 2
