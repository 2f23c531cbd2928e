"""BERT's encoder in compiled loops: equal to torch's, independent of the batch, inside its memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from test_compiled_search import HOST_TARGETS, SLOW, run_guarded, weights_of

from attnkit.compiled.encoder import CompiledEncoder
from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.engine.compiled_language_models import reason_against_language_model, set_precision
from attnkit.engine.loading import LoadedModel
from attnkit.errors import UsageError
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd.targets import Precision, Target, choose_target
from attnkit.models.bert import Bert, SequenceClassifier
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import PackedLayout

pytestmark = pytest.mark.skipif(not is_available(), reason="numba is not installed")
WORDS = 50
Drawn = tuple[Bert, BertConfig, torch.Tensor, torch.Tensor, "torch.Tensor | None"]


def make_bert(config: BertConfig, seed: int) -> Bert:
    torch.manual_seed(seed)
    model = Bert(config, WORDS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def compile_bert(
    model: Bert, config: BertConfig, precision: Precision = "float32", n_threads: int = 1, target: Target | None = None
) -> CompiledEncoder:
    return CompiledEncoder(PackedLanguageModel(config, weights_of(model), precision, target), n_threads=n_threads)


def draw_encoder(chance: random.Random) -> Drawn:
    """Return a model, its configuration, ids (B, T), which of them are real, and segments or None."""
    n_heads, norm = chance.choice([1, 2, 3]), chance.choice(["pre", "post"])
    config = BertConfig(
        d_model=n_heads * chance.choice([8, 16, 20, 34, 64]),
        n_heads=n_heads,
        n_layers=chance.randint(1, 3),
        d_ff=chance.choice([8, 50, 130]),
        norm=norm,
        embedding_norm=norm == "pre" and chance.random() < 0.5,
        local_window=chance.choice([None, None, 2, 3, 8, 30]),
        global_every=chance.choice([1, 2, 3]),
        local_rope_base=chance.choice([10000.0, 50.0]),
        positions=chance.choice(["learned", "sinusoidal", "rotary", "alibi"]),
        activation=chance.choice(["relu", "gelu", "gelu_tanh", "silu"]),
        max_length=64,
        n_segments=chance.choice([1, 2, 3]),
        glu=chance.random() < 0.3,
        bias=chance.random() < 0.7,
        norm_bias=chance.random() < 0.7,
        rope_base=chance.choice([10000.0, 500.0]),
    )
    n_rows, length = chance.randint(1, 6), chance.choice([1, 2, 15, 16, 17, 33, 64])
    lengths = torch.tensor([length, *(chance.randint(1, length) for _ in range(n_rows - 1))])
    random_ids = torch.Generator().manual_seed(chance.randint(0, 1 << 30))
    ids = torch.randint(0, WORDS, (n_rows, length), generator=random_ids)
    segments = torch.randint(0, config.n_segments, ids.shape, generator=random_ids) if chance.random() < 0.5 else None
    return make_bert(config, 1), config, ids, torch.arange(length) < lengths[:, None], segments


def draw_positions(chance: random.Random, real: torch.Tensor) -> torch.Tensor:
    """Return indices into the flattened rows of a few tokens, in any order."""
    places = real.flatten().nonzero().flatten().tolist()
    return torch.tensor(chance.sample(places, chance.randint(1, len(places))))


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(300))
def test_drawn_encoders_equal_those_of_torch(seed: int) -> None:
    chance = random.Random(seed)
    model, config, ids, real, segments = draw_encoder(chance)
    encoder = compile_bert(model, config, n_threads=chance.choice([1, 2]))
    layers = chance.choice([None, None, 0, 1, config.n_layers])
    positions = draw_positions(chance, real)
    with torch.inference_mode():
        exact = model.double().hidden(ids, PackedLayout.padded(real), segments, layers=layers)
        found = encoder.hidden(ids, real, segments, layers=layers)
        chosen = encoder.hidden(ids, real, segments, positions, layers)
    assert torch.allclose(found[real].double(), exact[real], atol=1e-4)
    assert torch.equal(found[~real], torch.zeros_like(found[~real]))
    assert torch.equal(chosen, found.flatten(0, 1)[positions])


BERT = BertConfig(d_model=64, n_heads=2, n_layers=3, d_ff=160)
MODERN = BertConfig(
    d_model=66,
    n_heads=3,
    n_layers=4,
    d_ff=72,
    norm="pre",
    embedding_norm=True,
    positions="rotary",
    rope_base=160000.0,
    local_window=8,
    glu=True,
    bias=False,
    norm_bias=False,
    head_bias=False,
    n_segments=1,
)
KINDS = pytest.mark.parametrize("config", [BERT, MODERN], ids=["BERT", "ModernBERT"])


@KINDS
@pytest.mark.parametrize("precision", ["float32", *(pytest.param(p, marks=SLOW) for p in ("bfloat16", "int8"))])
def test_no_text_depends_on_the_batch(precision: Precision, config: BertConfig) -> None:
    encoder = compile_bert(make_bert(config, 2), config, precision)
    lengths = [1, 40, 7, 16, 33, 2] * 4
    torch.manual_seed(0)
    rows = [torch.randint(0, WORDS, (n,)) for n in lengths]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    expected = encoder.hidden(ids, real)
    assert len({row[0, 0].item() for row in expected}) > 5
    for row, own in zip(rows, expected, strict=True):
        assert torch.equal(encoder.hidden(row[None])[0], own[: len(row)])
    encoder._workers.n_threads = 3
    assert torch.equal(encoder.hidden(ids.flip(0), real.flip(0)).flip(0), expected)


@KINDS
@pytest.mark.parametrize("precision", [pytest.param("bfloat16", marks=SLOW), "int8"])
@pytest.mark.parametrize("name", [HOST_TARGETS[0], *(pytest.param(n, marks=SLOW) for n in HOST_TARGETS[1:])])
def test_a_coarser_precision_is_near(name: Any, precision: Precision, config: BertConfig) -> None:
    torch.manual_seed(3)
    model = Bert(config, WORDS).eval()
    encoder = compile_bert(model, config, precision, target=choose_target(name))
    ids = torch.randint(0, WORDS, (20, 30))
    with torch.inference_mode():
        expected, found = model.hidden(ids, PackedLayout.unpacked(20)), encoder.hidden(ids)
    similar = torch.nn.functional.cosine_similarity(found, expected, dim=-1)
    assert similar.min() > (0.995 if name == "avx2" else 0.999)  # whose activations have 7 bits
    assert (found - expected).abs().mean() > 1e-4  # a coarser precision must be seen, or it was not used


def test_ids_segments_and_positions_are_checked_before_a_call() -> None:
    config = BertConfig(d_model=16, n_heads=2, n_layers=1, d_ff=16, max_length=8, n_segments=2)
    encoder = compile_bert(make_bert(config, 2), config)
    good = torch.tensor([[4, 5, 6], [7, 8, 0]])
    real = torch.tensor([[True] * 3, [True, True, False]])
    for wrong in (-1, WORDS):
        with pytest.raises(ValueError, match="ids must be between 0 and 49"):
            encoder.hidden(torch.tensor([[4, wrong]]))
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="segments must be between 0 and 1"):
            encoder.hidden(good, real, torch.full_like(good, wrong))
    for wrong in (-1, 5, 6):  # 5 is padding
        with pytest.raises(ValueError, match="positions must be those of tokens"):
            encoder.hidden(good, real, None, torch.tensor([0, wrong]))
    with pytest.raises(ValueError, match="positions must differ"):
        encoder.hidden(good, real, None, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="the model has 8 positions, not 9"):
        encoder.hidden(torch.full((1, 9), 4))
    with pytest.raises(ValueError, match="1 or more tokens"):
        encoder.hidden(good, torch.zeros_like(real))


def loaded(model: torch.nn.Module, config: Any) -> LoadedModel:
    settings = type("Config", (), {"model": config})
    return LoadedModel(Path("run"), None, settings, model.eval(), torch.device("cpu"))  # type: ignore[arg-type]


def test_a_loaded_model_takes_a_precision() -> None:
    """The encoder alone changes, and only where it can."""
    config, notes = BertConfig(d_model=32, n_heads=2, n_layers=2, d_ff=48, dropout=0.0), []
    torch.manual_seed(4)
    opened = loaded(SequenceClassifier(config, WORDS, 3), config)
    ids, real = torch.randint(0, WORDS, (6, 9)), torch.ones(6, 9, dtype=torch.bool)
    with torch.inference_mode():
        plain = opened.model(ids, real)
        set_precision(opened, "float32", notes.append)
        assert torch.equal(opened.model(ids, real), plain) and "hidden" not in vars(opened.model.encoder)
        set_precision(opened, "int8", notes.append)
        coarse = opened.model(ids, real)
    assert not torch.equal(coarse, plain) and torch.allclose(coarse, plain, atol=0.05)
    seen: list[torch.Tensor] = []
    opened.model.encoder.hidden(ids, PackedLayout.unpacked(6), seen=seen)  # attention weights are torch's
    assert len(seen) == 2
    for options, reason in (
        ({"alignment": "additive"}, "attention other than scaled_dot"),
        ({"d_model": 258}, "heads wider than 128"),
        ({"d_embedding": 16}, "embeddings of another width"),
    ):
        other = config.model_copy(update=options)
        assert reason in str(reason_against_language_model(other))
        model = loaded(Bert(other, WORDS), other)
        notes.clear()
        set_precision(model, "int8", notes.append)
        assert len(notes) == 1 and reason in notes[0] and notes[0].endswith("using torch in float32 instead of int8")
        assert "hidden" not in vars(model.model), "torch computes it, not loops without this option"
    kind = type("Config", (), {"kind": "han"})
    with pytest.raises(UsageError, match="do not support a model of kind han"):
        set_precision(loaded(torch.nn.Linear(2, 2), kind), "bfloat16", notes.append)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.slow
def test_no_buffer_of_an_encoder_is_left(precision: str) -> None:
    setup = """
from attnkit.compiled import encoder
from test_compiled_encoder import compile_bert, draw_encoder, draw_positions
make = encoder.make_sentences
encoder.make_sentences = lambda *given: guard(make(*given))
class Torch:  # whose results are guarded, too
    empty = staticmethod(lambda n, d: torch.from_numpy(guarded.allocate(4 * n * d).view("f4").reshape(n, d)))
    def __getattr__(self, name):
        return getattr(torch, name)
encoder.torch = Torch()
"""
    body = f"""
model, config, ids, real, segments = draw_encoder(chance)
compiled = compile_bert(model, config, {precision!r})
compiled.hidden(ids, real, segments)
compiled.hidden(ids, real, segments, draw_positions(chance, real))
"""
    run_guarded(setup, body, 9000, 20)
