"""BERT and GPT over packed rows: each passage gets what it gets alone, and stepping equals the full pass."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.models.attention.config import AlignmentName, DistributionName, incompatibility
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, GptConfig, PositionName
from attnkit.models.layers import PackedLayout

V = 50
POSITIONS = get_args(PositionName)
SMALL: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 64}


def bert(**fields: Any) -> Bert:
    torch.manual_seed(1)
    model = Bert(BertConfig(**{**SMALL, "dropout": 0.0, "attention_dropout": 0.0, **fields}), V).double().eval()
    spread(model)
    return model


def gpt(**fields: Any) -> Gpt:
    torch.manual_seed(1)
    model = Gpt(GptConfig(**{**SMALL, "dropout": 0.0, "attention_dropout": 0.0, **fields}), V).double().eval()
    spread(model)
    return model


def spread(model: nn.Module) -> None:
    """Make all weights large enough that whatever is seen can be told."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.3, generator=generator))


def ids(*shape: int) -> Tensor:
    return torch.randint(4, V, shape, generator=torch.Generator().manual_seed(sum(shape)))


PASSAGES = torch.tensor([[0] * 12, [0] * 5 + [1] * 7, [0] * 3 + [1] * 2 + [2] * 4 + [3] * 3])
"""A whole row, one of two passages, one of three with padding, which is a passage of its own."""


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("make", [bert, gpt])
@pytest.mark.parametrize("functions", [{}, {"alignment": ("scaled_dot", "additive", "general", "similarity")}])
def test_each_passage_of_a_packed_row_is_what_it_is_alone(make: Any, positions: str, functions: dict[str, Any]) -> None:
    model, rows = make(positions=positions, **functions), ids(3, 12)
    packed = model.hidden(rows, PackedLayout.packed(1, PASSAGES))
    for row, numbers, found in zip(rows, PASSAGES, packed, strict=True):
        for number in numbers.unique():
            here = numbers == number
            alone = model.hidden(row[here][None], PackedLayout.unpacked(1))[0]
            torch.testing.assert_close(found[here], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fields", [{"norm": "post"}, {"norm": "pre", "glu": True, "positions": "rotary"}])
def test_features_at_places_are_those_of_the_whole_rows_and_so_are_their_gradients(fields: dict[str, Any]) -> None:
    model, rows, layout = bert(**fields), ids(3, 12), PackedLayout.packed(1, PASSAGES)
    places = torch.tensor([0, 7, 11, 12, 20, 35])
    wanted = torch.randn(len(places), SMALL["d_model"], dtype=torch.float64)
    found = []
    for make in (
        lambda: model.hidden(rows, layout, positions=places),
        lambda: model.hidden(rows, layout).flatten(0, 1)[places],
    ):
        model.zero_grad()
        features = make()
        (features * wanted).sum().backward()
        found.append([features.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1])
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


def test_the_last_layer_computes_the_asked_places_alone() -> None:
    model, n_rows = bert(), list[int]()
    for layer in model.layers:
        layer.feed_forward.register_forward_pre_hook(lambda _, x: n_rows.append(x[0].numel() // SMALL["d_model"]))
    model.hidden(ids(3, 12), PackedLayout.packed(1, PASSAGES), positions=torch.tensor([3, 30]))
    assert n_rows == [36, 2]


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("make", [bert, gpt])
def test_in_bfloat16_a_passage_is_what_it_is_alone_and_bit_for_bit_what_it_is_beside_others(
    make: Any, positions: str
) -> None:
    """There masks are added to scores; float32, with whole rows parted from mixed ones, is what it is near to."""
    model, rows, others = make(positions=positions), ids(3, 12), ids(3, 12).flip(1)
    narrow, layout = make(positions=positions).bfloat16(), PackedLayout.packed(1, PASSAGES)
    found, plain = narrow.hidden(rows, layout), model.float().hidden(rows, layout)
    assert not found.isnan().any()
    assert float((found.float() - plain).norm() / plain.norm()) < 0.03
    first = PASSAGES == 0
    changed = narrow.hidden(torch.where(first, rows, others), layout)
    assert torch.equal(changed[first], found[first])
    assert not torch.equal(changed[~first], found[~first])


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, gpt])
def test_no_pair_of_functions_sees_a_neighbour(make: Any) -> None:
    """But for alignments that score places of a row, which such rows are refused with."""
    rows, other = ids(3, 12), ids(3, 12).roll(1, 1)
    for align, distribute in PAIRS:
        if align in ("location", "feature"):
            continue
        model = make(alignment=align, distribution=distribute, n_layers=1)
        packed = model.hidden(rows, PackedLayout.packed(1, PASSAGES))
        changed = torch.where(PASSAGES == 1, other, rows)
        again = model.hidden(changed, PackedLayout.packed(1, PASSAGES))
        assert torch.equal(again[PASSAGES != 1], packed[PASSAGES != 1]), (align, distribute)
        for number in range(4):
            here = PASSAGES[2] == number
            alone = model.hidden(rows[2][here][None], PackedLayout.unpacked(1))[0]
            torch.testing.assert_close(packed[2][here], alone, rtol=1e-9, atol=1e-9, msg=f"{align} {distribute}")


@pytest.mark.parametrize("make", [bert, gpt])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_passage_does_not_see_its_neighbours_bit_for_bit(make: Any, dtype: torch.dtype) -> None:
    model = make().to(dtype)
    rows, layout = ids(3, 12), PackedLayout.packed(1, PASSAGES)
    before = model.head(model.hidden(rows, layout))
    changed = rows.clone()
    changed[1, 5:] = (changed[1, 5:] + 7) % V
    after = model.head(model.hidden(changed, layout))
    assert torch.equal(before[1, :5], after[1, :5]) and torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1, 5:], after[1, 5:])


def test_rows_of_one_passage_have_no_mask() -> None:
    assert PackedLayout.packed(2, torch.zeros(2, 9, dtype=torch.int64)) == PackedLayout.unpacked(2)
    assert PackedLayout.padded(torch.ones(2, 9, dtype=torch.bool)).mask is None
    layout = PackedLayout.packed(1, PASSAGES)
    assert layout.mask is not None and layout.mask.shape == (2, 1, 12, 12)
    assert layout.positions is not None and layout.positions[2].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("make", [bert, gpt])
def test_padding_behind_a_row_changes_nothing(make: Any) -> None:
    model, rows = make(), ids(2, 9)
    real = torch.arange(9) < torch.tensor([[9], [6]])
    padded = model.hidden(rows, PackedLayout.padded(real))
    torch.testing.assert_close(
        padded[1, :6], model.hidden(rows[1:, :6], PackedLayout.unpacked(1))[0], rtol=1e-9, atol=1e-9
    )


def test_bert_sees_both_sides_and_gpt_one() -> None:
    rows = ids(1, 8)
    changed = rows.clone()
    changed[0, 5] = (rows[0, 5] + 1) % V
    layout = PackedLayout.unpacked(1)
    moved = [(model.hidden(rows, layout) != model.hidden(changed, layout)).any(-1)[0] for model in (bert(), gpt())]
    assert moved[0].all()
    assert moved[1].tolist() == [False] * 5 + [True] * 3


def test_bert_is_torchs_encoder() -> None:
    """Post-norm with GELU and learned positions: nn.TransformerEncoder with the same weights gives the same."""
    model = bert()
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", 1e-5, batch_first=True, dtype=torch.float64), 2
    ).eval()
    for ours, layer in zip(model.layers, theirs.layers, strict=True):
        pairs = {
            "self_attn.in_proj_weight": "attention.projection.weight",
            "self_attn.in_proj_bias": "attention.projection.bias",
            "self_attn.out_proj.weight": "attention.output.weight",
            "self_attn.out_proj.bias": "attention.output.bias",
            "linear1.weight": "feed_forward.up.weight",
            "linear1.bias": "feed_forward.up.bias",
            "linear2.weight": "feed_forward.down.weight",
            "linear2.bias": "feed_forward.down.bias",
            "norm1.weight": "around_attention.norm.weight",
            "norm1.bias": "around_attention.norm.bias",
            "norm2.weight": "around_feed_forward.norm.weight",
            "norm2.bias": "around_feed_forward.norm.bias",
        }
        state = ours.state_dict()
        layer.load_state_dict({name: state[other] for name, other in pairs.items()})
    rows = ids(3, 12)
    words = model.embedding.weight[rows] + model.places["table"].table[:12] + model.segments.weight[0]
    x = nn.functional.layer_norm(words, (32,), model.embedding_norm.weight, model.embedding_norm.bias, 1e-5)
    mixed = (PASSAGES[:, :, None] != PASSAGES[:, None, :]).repeat_interleave(4, 0)
    found = model.hidden(rows, PackedLayout.unpacked(3))
    torch.testing.assert_close(found, theirs(x), rtol=1e-9, atol=1e-9)
    places = PackedLayout.packed(0, PASSAGES).positions
    words = model.embedding.weight[rows] + model.places["table"].table[places] + model.segments.weight[0]
    x = nn.functional.layer_norm(words, (32,), model.embedding_norm.weight, model.embedding_norm.bias, 1e-5)
    found = model.hidden(rows, PackedLayout.packed(0, PASSAGES))
    torch.testing.assert_close(found, theirs(x, mask=mixed), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "gelu_tanh"])
def test_gated_units_multiply(activation: str) -> None:
    layer = bert(glu=True, activation=activation).layers[0].feed_forward
    x = torch.randn(2, 3, 32, dtype=torch.float64)
    act = {
        "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / 2**0.5)),
        "silu": lambda z: z / (1 + torch.exp(-z)),
        "relu": lambda z: z * (z > 0),
        "gelu_tanh": lambda z: 0.5 * z * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3))),
    }[activation]
    up, gate, down = (lambda z, m=m: z @ m.weight.T + m.bias for m in (layer.up, layer.gate, layer.down))
    torch.testing.assert_close(layer(x), down(act(up(x)) * gate(x)))


def test_segments_and_layers_can_be_chosen() -> None:
    model, rows = bert(), ids(1, 6)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]])
    layout = PackedLayout.unpacked(1)
    assert torch.equal(model.hidden(rows, layout), model.hidden(rows, layout, torch.zeros_like(segments)))
    assert not torch.equal(model.hidden(rows, layout), model.hidden(rows, layout, segments))
    assert torch.equal(model.hidden(rows, layout, layers=0), model.embed(rows, layout))
    assert torch.equal(model.hidden(rows, layout, layers=2), model.hidden(rows, layout))
    weights = model.attention_weights(rows, layout)["encoder"]
    assert weights.shape == (1, 2, 4, 6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 4, 6, dtype=torch.float64))


PAIRS = [
    (align, distribute)
    for align in get_args(AlignmentName)
    for distribute in get_args(DistributionName)
    if incompatibility(align, distribute, GptConfig().attention_options) is None
]


@pytest.mark.parametrize(
    "fields",
    [
        *({"positions": name} for name in POSITIONS),
        {"norm": "post", "glu": True},
        *({"alignment": align, "distribution": distribute} for align, distribute in PAIRS[:: len(PAIRS) // 8]),
        {"alignment": ("scaled_dot", "additive", "location", "kernel"), "positions": "rotary"},
    ],
    ids=str,
)
@pytest.mark.parametrize("prompt", [1, 4])
def test_stepping_equals_the_full_pass(fields: dict[str, Any], prompt: int) -> None:
    model, rows = gpt(**fields), ids(2, 10)
    full = model.hidden(rows, PackedLayout.unpacked(2))
    with torch.inference_mode():
        state = model.start(rows[:, :prompt], None, 1, 10 - prompt)
        for at in range(prompt - 1, 10):
            features, state = model.step(rows[:, at : at + 1], state)
            torch.testing.assert_close(features[:, 0], full[:, at], rtol=1e-6, atol=1e-6)


def test_beams_go_on_from_their_own_past() -> None:
    model = gpt()
    prompt, first, second = ids(1, 3), torch.tensor([[7, 9]]), torch.tensor([[11, 13]])
    with torch.inference_mode():
        state = model.start(prompt, None, 2, 5)
        _, state = model.step(prompt[:, -1:], state)
        _, state = model.step(first, state.reorder_beams(torch.zeros(1, 2, dtype=torch.int64)))
        features, state = model.step(second, state.reorder_beams(torch.tensor([[1, 1]])))
        for beam in range(2):
            text = torch.cat((prompt[0], first[0, 1:], second[0, beam : beam + 1]))[None]
            torch.testing.assert_close(
                features[:, beam], model.hidden(text, PackedLayout.unpacked(1))[:, -1], rtol=1e-9, atol=1e-9
            )


def test_the_search_goes_on_from_a_prompt() -> None:
    model = gpt().float()
    prompt = ids(2, 4)
    found = search([model], Sources(prompt), SearchConfig(beam_size=1, max_length=6))
    for row, hypotheses in zip(prompt, found, strict=True):
        text = row.tolist()
        for word in hypotheses[0].ids:
            logits = model.head(model.hidden(torch.tensor([text]), PackedLayout.unpacked(1))[:, -1])
            logits[:, [0, 2]] = -torch.inf  # neither padding nor a beginning is ever chosen
            assert int(logits.argmax()) == word
            text.append(word)


def test_prompts_of_different_lengths_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="the same length"):
        gpt().start(ids(2, 3), torch.tensor([[True, True, True], [True, True, False]]), 1, 4)
