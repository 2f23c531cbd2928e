"""Transformers of every alignment and distribution function: what must hold whichever the heads have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from walks import STEPS, K, V, Walk, sources

from attnkit.models.attention.alignment import Additive
from attnkit.models.attention.config import ALIGNMENT_NAMES, DISTRIBUTION_NAMES
from attnkit.models.config import TransformerConfig
from attnkit.models.kv_cache import DecodingState, GenericDecodingState
from attnkit.models.transformer import Transformer

OPTIONS = {"d_hidden": 5, "n_features": 8, "max_source": 16, "window": 2}
MIXED: dict[str, Any] = {
    "alignment": ["additive", "scaled_dot", "location", "scaled_dot"],
    "distribution": ["local", "softmax", "entmax15", "hard"],
}
OTHER_POSITIONS = ("alibi", "relative", "rotary", "none")
SPARED = ("softmax", "normalize")
FUNCTIONS: dict[str, dict[str, Any]] = {
    **{name: {"alignment": name} for name in ALIGNMENT_NAMES if name != "scaled_dot"},
    **{f"scaled_dot {name}": {"distribution": name} for name in DISTRIBUTION_NAMES if name not in SPARED},
    "kernel normalize": {"alignment": "kernel", "distribution": "normalize"},
    "elu normalize": {"alignment": "kernel", "distribution": "normalize", "attention_options": {"feature_map": "elu"}},
    "mixed": MIXED,
    **{f"mixed {positions}": {**MIXED, "positions": positions} for positions in OTHER_POSITIONS},
    "mixed pre": {**MIXED, "norm": "pre"},
    "kernel normalize rotary": {"alignment": "kernel", "distribution": "normalize", "positions": "rotary"},
}

IDLE = {"feature": ["cross.projection"], "deep": ["align.bias"]}
"""What never learns: queries that no score depends on, and a number that is added to all scores of a softmax."""


def build(**fields: Any) -> Transformer:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 2, "d_ff": 24, "dropout": 0.0}
    options = {"attention_options": {**OPTIONS, **fields.pop("attention_options", {})}}
    listed = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    model = Transformer(TransformerConfig.model_validate({**sizes, **listed, **options}), V, V).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (4, 6) with padding, their mask, and targets (4, 5)."""
    src, mask = sources()
    return src, mask, torch.randint(4, V, (4, 5))


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.inference_mode()
def test_stepping_equals_the_full_pass(name: str) -> None:
    """Over reordered beams and dropped sentences."""
    walk = Walk(build(**FUNCTIONS[name]))
    assert isinstance(walk.state, DecodingState if name == "dot" else GenericDecodingState)
    for t in range(STEPS):
        walk.step()
        if t % 3 == 0 or t == STEPS - 1:
            torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=1e-10)
        if t >= 1:
            walk.reorder_beams(K if t != 6 else 2)
        if t == 4:
            walk.select_rows(torch.tensor([2, 0]))


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_the_future_padding_and_batch_mates_change_nothing(name: str) -> None:
    """The past bit for bit, the others up to rounding."""
    model, (src, mask, tgt) = build(**FUNCTIONS[name]), batch()
    together = model.hidden(src, mask, tgt)
    changed = tgt.clone()
    changed[:, 3] = (changed[:, 3] + 1) % V
    after = model.hidden(src, mask, changed)
    assert torch.equal(together[:, :3], after[:, :3])
    assert not torch.allclose(together[:, 3], after[:, 3])
    torch.testing.assert_close(model.hidden(src.masked_fill(~mask, 9), mask, tgt), together, rtol=0, atol=1e-12)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = model.hidden(src[row : row + 1, :length], None, tgt[row : row + 1, :4])
        torch.testing.assert_close(together[row : row + 1, :4], alone, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_weight_learns(name: str) -> None:
    """A step of training moves the loss down, and gives every parameter a finite gradient that is not zero."""
    model, (src, mask, tgt) = build(**FUNCTIONS[name]), batch()
    model.train()

    def loss() -> Tensor:
        logits = model.head(model.hidden(src, mask, tgt))
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tgt[:, 1:].flatten())

    before = loss()
    before.backward()
    for key, parameter in model.named_parameters():
        if any(part in key for part in IDLE.get(name, ())):
            continue
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), key
        assert float(parameter.grad.abs().max()) > 0, key
        parameter.data -= 0.02 * parameter.grad
    if "hard" not in str(FUNCTIONS[name]):  # whose gradient is not that of the loss
        with torch.no_grad():
            assert float(loss()) < float(before)


@pytest.mark.parametrize("n_beams", [1, K])
@torch.inference_mode()
def test_the_memory_is_prepared_once_per_sentence(n_beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the keys that go through an alignment's own product: the memory's once a layer, then a step's alone."""
    model, shapes = build(alignment="additive"), []
    real = Additive.prepare

    def spy(self: Additive, keys: Tensor, at: int | None = None) -> Tensor:
        shapes.append(keys.shape[2])
        return real(self, keys, at)

    monkeypatch.setattr(Additive, "prepare", spy)
    src, mask = sources()
    state = model.start(src, mask, n_beams, STEPS)
    assert shapes == [6, 6, 6]  # one layer of the encoder, the memory for two of the decoder
    del shapes[:]
    for beams in (1, n_beams, n_beams):
        state = state.reorder_beams(torch.zeros(4, beams, dtype=torch.int64))
        _, state = model.step(torch.full((4, beams), 5), state)
    assert shapes == [1, 1, n_beams, n_beams, n_beams, n_beams]


@pytest.mark.parametrize("fields", [{}, {"positions": "rotary"}, {"positions": "relative"}, MIXED])
@torch.no_grad()
def test_look_gives_the_weights_of_the_full_pass(fields: dict[str, Any]) -> None:
    """Weights times values, through the layer's output, is what the full pass gives that layer's attention."""
    model, (src, mask, tgt) = build(**fields), batch()
    caught: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    projected: list[Tensor] = []
    attentions = [("encoder", layer.attention) for layer in model.encoder.layers]
    attentions += [("decoder", layer.attention) for layer in model.decoder.layers]
    attentions += [("cross", layer.cross) for layer in model.decoder.layers]
    values: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    for kind, attention in attentions:
        attention.output.register_forward_pre_hook(lambda _m, given, kind=kind: caught[kind].append(given[0]))
        if kind != "cross":
            attention.projection.register_forward_hook(
                lambda _m, _i, out, kind=kind: values[kind].append(out[..., 32:].unflatten(-1, (4, 4)).transpose(1, 2))
            )
    model.decoder.memory.register_forward_hook(lambda _m, _i, out: projected.append(out))
    model.hidden(src, mask, tgt)
    values["cross"] = [
        projected[0][..., (2 * i + 1) * 16 : (2 * i + 2) * 16].unflatten(-1, (4, 4)).transpose(1, 2) for i in range(2)
    ]
    contexts = {kind: list(found) for kind, found in caught.items()}
    held = {kind: list(found) for kind, found in values.items()}
    seen = model.attention_weights(src, mask, tgt)
    assert {name: tuple(weights.shape) for name, weights in seen.items()} == {
        "encoder": (4, 1, 4, 6, 6),
        "decoder": (4, 2, 4, 5, 5),
        "cross": (4, 2, 4, 5, 6),
    }
    for name, weights in seen.items():
        for layer in range(weights.shape[1]):
            context = (weights[:, layer] @ held[name][layer]).transpose(1, 2).flatten(2)
            torch.testing.assert_close(context, contexts[name][layer], rtol=0, atol=1e-12)
    assert bool((seen["decoder"].triu(1) == 0).all())
    for name in ("encoder", "cross"):
        assert bool((seen[name].permute(0, 4, 1, 2, 3)[~mask] == 0).all())


def test_look_leaves_dropout_as_it_was() -> None:
    model, example = build(dropout=0.5, attention_dropout=0.5), batch()
    first = model.train().attention_weights(*example)
    assert model.training and all(module.training for module in model.modules())
    second = model.attention_weights(*example)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(weights.requires_grad for weights in first.values())


@torch.inference_mode()
def test_recorded_attention_is_the_last_layers_mean() -> None:
    model = build(**MIXED)
    walk = Walk(model, record=True)
    for _ in range(3):
        walk.step()
        walk.reorder_beams(K)
    walk.step()
    seen = [
        model.attention_weights(walk.src, walk.mask, walk.words[:, k])["cross"][:, -1, :, -1].mean(1) for k in range(K)
    ]
    assert walk.state.attention is not None
    torch.testing.assert_close(walk.state.attention, torch.stack(seen, dim=1), rtol=0, atol=1e-12)
    assert walk.state.select_rows(torch.tensor([1])).attention.shape == (1, K, 6)


def test_dropout_of_weights_acts_in_training_alone() -> None:
    for fields in (MIXED, {"alignment": "kernel", "distribution": "normalize"}):
        model, example = build(**fields, attention_dropout=0.5), batch()
        assert torch.equal(model.hidden(*example), model.hidden(*example))
        model.train()
        assert not torch.equal(model.hidden(*example), model.hidden(*example))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_other_precisions_decode(dtype: torch.dtype) -> None:
    fields = {**MIXED, "distribution": ["local", "softmax", "entmax15", "softmax"], "positions": "relative"}
    walk = Walk(build(**fields).to(dtype))
    for _ in range(6):
        walk.step()
        walk.reorder_beams(K)
    walk.step()
    assert walk.hidden.dtype == dtype
    torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=1e-5 if dtype == torch.float32 else 0.3)
