"""The Transformer's training pass: against torch.nn, and what must never change a result."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
import torch
from torch import Tensor, nn

from attnkit.models.config import TransformerConfig
from attnkit.models.language_config import UnitName
from attnkit.models.layers import ACTIVATIONS
from attnkit.models.linear import Dropout
from attnkit.models.positions import sinusoids
from attnkit.models.transformer import Transformer

Positions = Literal["sinusoidal", "fairseq", "learned", "rotary", "alibi", "relative", "none"]
Norm = Literal["post", "pre"]
KINDS: tuple[Positions, ...] = get_args(Positions)
NORMS: tuple[Norm, ...] = ("post", "pre")
V = 23


def build(positions: Positions = "sinusoidal", norm: Norm = "post", **options: object) -> Transformer:
    """Return a small float64 model; LayerNorms and biases are shaken so that no parameter is idle."""
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 24, "dropout": 0.0}
    config = TransformerConfig.model_validate({**sizes, "positions": positions, "norm": norm, **options})
    model = Transformer(config, V, V).double()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (3, 7) with padding, their mask, and targets (3, 6)."""
    torch.manual_seed(2)
    src = torch.randint(4, V, (3, 7))
    mask = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    return src.masked_fill(~mask, 0), mask, torch.randint(4, V, (3, 6))


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    ours.projection.weight.data.copy_(theirs.in_proj_weight[: len(ours.projection.weight)])
    ours.projection.bias.data.copy_(theirs.in_proj_bias[: len(ours.projection.bias)])
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    ours.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    names = ["around_attention", "around_cross", "around_feed_forward"]
    for name, norm in zip([n for n in names if hasattr(ours, n)], ["norm1", "norm2", "norm3"], strict=False):
        getattr(ours, name).norm.load_state_dict(getattr(theirs, norm).state_dict())


def copy_transformer(ours: Transformer, theirs: nn.Transformer) -> None:
    width = theirs.d_model
    for mine, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        copy_layer(mine, other)
    for i, (mine, other) in enumerate(zip(ours.decoder.layers, theirs.decoder.layers, strict=True)):
        copy_layer(mine, other)
        copy_attention(mine.cross, other.multihead_attn)
        rows = slice(2 * i * width, 2 * (i + 1) * width)  # keys, then values
        ours.decoder.memory.weight.data[rows] = other.multihead_attn.in_proj_weight[width:]
        ours.decoder.memory.bias.data[rows] = other.multihead_attn.in_proj_bias[width:]
    for mine, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        if isinstance(mine.norm, nn.LayerNorm):
            mine.norm.load_state_dict(other.norm.state_dict())
        else:
            other.norm = None  # torch.nn.Transformer ends with LayerNorms even where each layer already does


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own encoder, with norms first
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", NORMS)
def test_equals_torch_transformer(norm: Norm, activation: str) -> None:
    ours = build(norm=norm, activation=activation)
    theirs = nn.Transformer(16, 2, 2, 2, 24, 0.0, activation, batch_first=True, norm_first=norm == "pre").double()
    for parameter in theirs.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    copy_transformer(ours, theirs)
    src, mask, tgt = batch()
    found = ours.hidden(src, mask, tgt)
    expected = theirs(
        ours.encoder.embedding(src),
        ours.decoder.embedding(tgt),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64),
        src_key_padding_mask=~mask,
        memory_key_padding_mask=~mask,
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad(found.sin().sum(), ours.decoder.layers[0].attention.projection.weight)
    (wanted,) = torch.autograd.grad(expected.sin().sum(), theirs.decoder.layers[0].self_attn.in_proj_weight)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", KINDS)
def test_the_future_never_changes_the_past(positions: Positions, norm: Norm) -> None:
    model, (src, mask, tgt) = build(positions, norm), batch()
    before = model.hidden(src, mask, tgt)
    changed = tgt.clone()
    changed[:, 4] = (changed[:, 4] + 1) % V
    after = model.hidden(src, mask, changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4], after[:, 4])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", KINDS)
def test_padding_and_batch_mates_never_change_a_result(positions: Positions, norm: Norm) -> None:
    model, (src, mask, tgt) = build(positions, norm), batch()
    together = model.hidden(src, mask, tgt)
    for row, length in enumerate((7, 4, 1)):
        alone = model.hidden(src[row : row + 1, :length], None, tgt[row : row + 1, :5])
        torch.testing.assert_close(together[row : row + 1, :5], alone, rtol=0, atol=1e-12)
    other = src.masked_fill(~mask, 9)
    torch.testing.assert_close(model.hidden(other, mask, tgt), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", KINDS)
def test_only_positions_know_the_order_of_words(positions: Positions) -> None:
    """Without positions, shuffling the words shuffles the encoder's outputs and changes nothing else."""
    model, (src, _, tgt) = build(positions), batch()
    src[:] = torch.arange(4, 11)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    plain, shuffled = model.encoder(src, None), model.encoder(src[:, order], None)
    assert torch.allclose(shuffled, plain[:, order], rtol=0, atol=1e-10) == (positions == "none")
    same = torch.allclose(model.hidden(src, None, tgt), model.hidden(src[:, order], None, tgt), rtol=0, atol=1e-10)
    assert same == (positions == "none")


def test_alibi_and_relative_bias_look_both_ways_in_the_encoder_alone() -> None:
    for positions in ("alibi", "relative"):
        model = build(positions)
        assert model.encoder.own.causal is False and model.decoder.own.causal is True
    assert build("relative").encoder.own.bias.both_ways and not build("relative").decoder.own.bias.both_ways


def test_tied_weights_are_one_tensor() -> None:
    def tables(tied: str) -> list[Tensor]:
        model = build(tie_embeddings=tied)
        return [model.encoder.embedding.words.weight, model.decoder.embedding.words.weight, model.output.weight]

    src, tgt, out = tables("all")
    assert src is tgt and tgt is out
    src, tgt, out = tables("target")
    assert src is not tgt and tgt is out
    src, tgt, out = tables("none")
    assert src is not tgt and tgt is not out and src is not out


def test_a_joint_table_needs_a_joint_vocabulary() -> None:
    with pytest.raises(ValueError, match="a joint vocabulary, not two with 10 and 12 entries"):
        Transformer(TransformerConfig(), 10, 12)
    assert Transformer(TransformerConfig(tie_embeddings="target"), 10, 12).output.weight.shape == (12, 256)


def test_head_of_a_shortlist_is_a_part_of_the_whole() -> None:
    model = build()
    hidden, ids = torch.randn(2, 3, 16, dtype=torch.float64), torch.tensor([3, 20, 5])
    assert model.head(hidden).shape == (2, 3, V)
    torch.testing.assert_close(model.head(hidden, ids), model.head(hidden)[..., ids], rtol=0, atol=1e-12)


def test_a_fresh_model_starts_as_said() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(), 500, 500).requires_grad_(False)
    assert float(model.decoder.embedding.words.weight.std()) == pytest.approx(256**-0.5, rel=0.02)
    assert not bool(model.output.bias.any())
    bound = (6 / (4 * 256)) ** 0.5  # Xavier of (3 D, D), which is each block's with gain 1/√2
    for linear in (model.encoder.layers[0].attention.projection, model.decoder.memory):
        assert float(linear.weight.abs().max()) == pytest.approx(bound, rel=0.01)
        assert not bool(linear.bias.any())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_embeddings_are_scaled_by_the_root_of_their_width(positions: Positions) -> None:
    embedding, ids = build(positions).encoder.embedding, torch.tensor([[4, 9, 4]])
    added = torch.zeros(3, 16, dtype=torch.float64)
    if positions == "sinusoidal":
        added = sinusoids(0, 3, like=added)
    elif positions == "learned":
        added = embedding.positions(added, 0, 3)
    expected = embedding.words.weight[ids[0]] * 4.0 + added
    torch.testing.assert_close(embedding(ids)[0], expected, rtol=0, atol=1e-12)


def test_a_long_source_meets_the_end_of_learned_positions() -> None:
    model = build("learned", max_length=5)
    with pytest.raises(ValueError, match="length 7 exceeds the 5 learned positions"):
        model.hidden(*batch())


def test_choices_and_tables_agree() -> None:
    fields = TransformerConfig.model_fields
    assert set(get_args(fields["activation"].annotation)) == set(ACTIVATIONS)
    assert set(get_args(UnitName)) == set(ACTIVATIONS)
    assert get_args(fields["positions"].annotation) == KINDS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_model": 10, "n_heads": 4}, "multiple of n_heads"),
        ({"d_model": 6, "n_heads": 2, "positions": "rotary"}, "even head width"),
        ({"d_model": 5, "n_heads": 1}, "even d_model"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig.model_validate(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_keeps_the_mean_and_repeats_with_the_seed(dtype: torch.dtype) -> None:
    dropout, x = Dropout(0.3), torch.ones(1001, 333, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, dropout(x))
    share = float((first == 0).double().mean())
    assert share == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / x.numel()) ** 0.5)
    assert sorted(first.unique().tolist()) == [0.0, pytest.approx(1 / 0.7, rel=4e-3)]
    first.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, first.detach())
    assert dropout.eval()(x) is x and Dropout(0.0)(x) is x


def test_dropout_is_on_in_training_alone() -> None:
    model, example = build(dropout=0.5, attention_dropout=0.5, activation_dropout=0.5), batch()
    assert not torch.equal(model.hidden(*example), model.hidden(*example))
    model.eval()
    assert torch.equal(model.hidden(*example), model.hidden(*example))
