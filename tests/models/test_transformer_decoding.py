"""Stepwise decoding of the Transformer: it equals the full pass, however beams are reordered and sentences dropped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from walks import STEPS, K, V, Walk, sources

from attnkit.models.config import TransformerConfig
from attnkit.models.transformer import Transformer

KINDS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")


def build(positions: str, norm: str = "post") -> Transformer:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "d_ff": 24}
    # Norms of embeddings and rows before the first position where mBART has them.
    mbart = {"embedding_norm": True, "target_embedding_norm": True, "position_offset": 2}
    options = mbart if (positions, norm) == ("learned", "pre") else {}
    config = TransformerConfig.model_validate({**sizes, "positions": positions, "norm": norm, **options})
    model = Transformer(config, V, V).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", KINDS)
@torch.inference_mode()
def test_stepping_equals_the_full_pass(positions: str, norm: str) -> None:
    walk = Walk(build(positions, norm))
    for t in range(STEPS):
        walk.step()
        torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=1e-11)
        if t >= 1:  # two words of one beam first, as under a forced prefix
            walk.reorder_beams(K if t != 6 else 2)
        if t == 4:
            walk.select_rows(torch.tensor([2, 0]))
    assert walk.hidden.shape == (2, K, 16)


@torch.inference_mode()
def test_greedy_steps_need_no_reorder() -> None:
    model = build("rotary")
    src, mask = sources()
    words = torch.randint(4, V, (4, STEPS))
    state = model.start(src, mask, 1, STEPS)
    found = []
    for t in range(STEPS):
        hidden, state = model.step(words[:, t : t + 1], state)
        state = state.reorder_beams(torch.zeros(4, 1, dtype=torch.int64)) if t % 2 else state
        found.append(hidden)
    torch.testing.assert_close(torch.cat(found, dim=1), model.hidden(src, mask, words), rtol=0, atol=1e-11)


@pytest.mark.parametrize("positions", KINDS)
@torch.inference_mode()
def test_keeping_sentences_equals_running_them_alone(positions: str) -> None:
    model = build(positions)
    src, mask = sources()
    words, parents = torch.randint(4, V, (STEPS, 4, K)), torch.randint(0, K, (STEPS, 4, K))

    def run(rows: Tensor, drop_at: int | None, left: Tensor) -> Tensor:
        state = model.start(src[rows], mask[rows], K, STEPS, record=True)
        for t in range(STEPS):
            prev = words[t, rows] if t else words[t, rows, :1]
            hidden, state = model.step(prev, state)
            state = state.reorder_beams(parents[t, rows] if t else parents[t, rows] * 0)
            if t == drop_at:
                state, rows = state.select_rows(left), rows[left]
                assert state.attention is not None and len(state.attention) == len(left)
        return hidden

    together = run(torch.arange(4), 4, torch.tensor([3, 1]))
    for row, sentence in enumerate((3, 1)):
        alone = run(torch.tensor([sentence]), None, torch.empty(0))
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_recorded_attention_is_the_last_layers_mean() -> None:
    model = build("sinusoidal")
    walk = Walk(model, record=True)
    for _ in range(3):
        walk.step()
        walk.reorder_beams(K)
    walk.step()
    seen: dict[str, Tensor] = {}
    cross = model.decoder.layers[-1].cross
    cross.projection.register_forward_hook(lambda _m, _i, out: seen.update(query=out))
    expected = []
    for k in range(K):
        model.hidden(walk.src, walk.mask, walk.words[:, k])
        query = seen["query"][:, -1].view(4, 2, 8)
        keys = model.decoder.memory(model.encoder(walk.src, walk.mask))[..., 2 * 16 : 3 * 16].view(4, -1, 2, 8)
        scores = torch.einsum("bhd,bshd->bhs", query, keys) / 8**0.5
        expected.append(scores.masked_fill(~walk.mask[:, None], -torch.inf).softmax(-1).mean(1))
    assert walk.state.attention is not None
    torch.testing.assert_close(walk.state.attention, torch.stack(expected, dim=1), rtol=0, atol=1e-12)
    assert Walk(model).state.attention is None


@torch.inference_mode()
def test_the_memory_is_projected_once_per_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the rows that go through the memory's projection: once per sentence, never per beam or step."""
    model, rows = build("sinusoidal"), []
    model.decoder.memory.register_forward_hook(lambda _m, given, _o: rows.append(tuple(given[0].shape[:2])))
    walk = Walk(model)
    for _ in range(5):
        walk.step()
        walk.reorder_beams(K)
    assert rows == [(4, 6)]
    assert walk.state.memory[0].shape == (4, 4, 2, 6, 8)  # (2 L, B, H, S, d): no beams


@torch.inference_mode()
def test_slots_stay_put_when_beams_are_reordered() -> None:
    walk = Walk(build("none"))
    walk.step()
    before = walk.state.slots[0]
    walk.reorder_beams(K)
    assert walk.state.slots[0] is before


@torch.inference_mode()
def test_a_wrong_number_of_beams_is_refused() -> None:
    model = build("none")
    state = model.start(*sources(), n_beams=K, max_length=STEPS)
    with pytest.raises(ValueError, match="the state has 1 beams, not 3"):
        model.step(torch.ones(4, K, dtype=torch.int64), state)


@torch.inference_mode()
def test_a_source_of_padding_alone_gives_no_nan() -> None:
    model = build("sinusoidal")
    src, mask = sources()
    mask[1] = False
    state = model.start(src, mask, 1, 3)
    hidden, _ = model.step(torch.ones(4, 1, dtype=torch.int64), state)
    assert bool(hidden.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_other_precisions_decode(dtype: torch.dtype) -> None:
    model = build("relative").to(dtype)
    walk = Walk(model)
    for _ in range(6):
        walk.step()
        walk.reorder_beams(K)
    walk.step()
    assert walk.hidden.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.15
    torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=tolerance)


def test_a_model_in_training_mode_keeps_its_modules_clean() -> None:
    """Decoding leaves nothing behind on the modules: state lives in the state."""
    model = build("alibi")
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.inference_mode():
        Walk(model).step()
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    assert all(isinstance(module, nn.Module) for module in model.modules())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_beams", [1, K])
def test_the_memory_is_laid_out_once_for_the_products_of_all_steps(precision: torch.dtype, n_beams: int) -> None:
    model = build("sinusoidal").to(precision)
    src, mask = sources()
    with torch.inference_mode():
        assert model.start(src, mask, n_beams, STEPS).memory[0].is_contiguous()
