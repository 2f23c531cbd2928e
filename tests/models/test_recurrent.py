"""Recurrent layers and encoders equal torch.nn's, whatever the padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnkit.models.autoencoder import SequenceAutoencoder
from attnkit.models.config import RnnConfig
from attnkit.models.recurrent import (
    CELLS,
    RecurrentEncoder,
    make_layer,
    reverse,
    run_layer,
    run_packed_lstm,
    unroll,
    weights_of,
    zero_state,
)
from attnkit.models.recurrent_config import RnnAutoencoderConfig
from attnkit.models.rnn import RnnTranslator

LENGTHS = [5, 1, 7, 3]


def ragged_batch(d_input: int) -> tuple[Tensor, Tensor]:
    """Return inputs (4, 7, d_input) in float64, wild values where there is padding, and their mask."""
    torch.manual_seed(0)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    inputs = torch.randn(len(LENGTHS), max(LENGTHS), d_input, dtype=torch.float64)
    return torch.where(mask[:, :, None], inputs, 37.0), mask


def torch_encoder(encoder: RecurrentEncoder, cell: str, d_input: int, d_hidden: int) -> nn.RNNBase:
    """Return torch.nn's own encoder of all layers and directions, holding the same weights."""
    n_layers, bidirectional = len(encoder.forwards), len(encoder.backwards) > 0
    width = d_hidden // 2 if bidirectional else d_hidden
    reference = CELLS[cell](d_input, width, n_layers, batch_first=True, bidirectional=bidirectional).double()
    for index in range(n_layers):
        for suffix, layers in (("", encoder.forwards), ("_reverse", encoder.backwards)):
            if len(layers):
                copies = (reference.get_parameter(f"{name}_l{index}{suffix}") for name in PARAMETERS)
                for copy, weight in zip(copies, weights_of(layers[index]), strict=True):
                    copy.data.copy_(weight.data)
    return reference


PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@pytest.mark.parametrize("cell", CELLS)
def test_unrolled_layer_equals_torch(cell: str) -> None:
    """The step of each cell is torch.nn's, in values and in gradients."""
    inputs, _ = ragged_batch(6)
    layer = make_layer(cell, 6, 8).double()
    nn.init.normal_(weights_of(layer).hidden_bias)  # zero would hide where a GRU's reset gate acts
    start = tuple(torch.randn(4, 8, dtype=torch.float64) for _ in zero_state(layer, inputs))
    lifted = tuple(part.unsqueeze(0) for part in start)
    expected, final = layer(inputs, lifted if cell == "lstm" else lifted[0])
    outputs, states = unroll(layer, inputs, start)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    for part, reference in zip(states, final if cell == "lstm" else (final,), strict=True):
        torch.testing.assert_close(part[:, -1], reference[0], rtol=0, atol=1e-12)
    parameters = list(layer.parameters())
    ours = torch.autograd.grad(outputs.square().sum(), parameters)
    theirs = torch.autograd.grad(expected.square().sum(), parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_encoder_equals_torch_on_each_sentence_alone(cell: str, bidirectional: bool, n_layers: int) -> None:
    """A ragged batch gives what torch.nn gives each of its rows alone, without padding."""
    inputs, mask = ragged_batch(6)
    encoder = RecurrentEncoder(cell, 6, 8, n_layers, bidirectional=bidirectional, dropout=0.0).double()
    reference = torch_encoder(encoder, cell, 6, 8)
    outputs, finals = encoder(inputs, mask)
    assert outputs.shape == (4, 7, 8)
    for row, length in enumerate(LENGTHS):
        expected, end = reference(inputs[row : row + 1, :length])
        torch.testing.assert_close(outputs[row, :length], expected[0], rtol=0, atol=1e-12)
        for part, ends in enumerate(end if cell == "lstm" else (end,)):
            per_layer = ends[:, 0].reshape(n_layers, -1)  # torch.nn lists layers, and both directions of each
            for index in range(n_layers):
                torch.testing.assert_close(finals[index][part][row], per_layer[index], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_no_mask_means_no_padding(cell: str) -> None:
    """Without a mask every row is whole: the faster way gives the same."""
    inputs, mask = ragged_batch(6)
    encoder = RecurrentEncoder(cell, 6, 8, 2, bidirectional=True, dropout=0.0).double()
    outputs, finals = encoder(inputs, None)
    with_mask, finals_with_mask = encoder(inputs, torch.ones_like(mask))
    torch.testing.assert_close((outputs, finals), (with_mask, finals_with_mask), rtol=0, atol=1e-12)


def test_packed_lstm_equals_unrolled_lstm() -> None:
    """The way a ragged LSTM takes on a GPU gives what its way on the CPU gives."""
    inputs, mask = ragged_batch(6)
    layer = make_layer("lstm", 6, 8).double()
    lengths, start = mask.sum(1), zero_state(layer, inputs)
    outputs, final = run_layer(layer, inputs, start, lengths)
    packed_outputs, packed_final = run_packed_lstm(layer, inputs, start, lengths)
    torch.testing.assert_close(final, packed_final, rtol=0, atol=1e-12)
    torch.testing.assert_close(outputs[mask], packed_outputs[mask], rtol=0, atol=1e-12)


def test_reverse_is_its_own_inverse_and_leaves_padding() -> None:
    """Worked by hand: [a b c . .] becomes [c b a . .]."""
    rows = torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])[:, :, None]
    lengths = torch.tensor([3, 5])
    assert reverse(rows, lengths).squeeze(2).tolist() == [[3, 2, 1, 0, 0], [8, 7, 6, 5, 4]]
    assert torch.equal(reverse(reverse(rows, lengths), lengths), rows)


@pytest.mark.parametrize("cell", CELLS)
def test_bfloat16_views_of_one_buffer_train_right(cell: str) -> None:
    """Parameters that are views of one flat bfloat16 buffer give float32's outputs and gradients, to its precision."""
    torch.manual_seed(1)
    encoder = RecurrentEncoder(cell, 16, 32, 1, bidirectional=True, dropout=0.0)
    parameters = list(encoder.parameters())
    flat = torch.cat([parameter.data.flatten() for parameter in parameters]).bfloat16()
    exact = RecurrentEncoder(cell, 16, 32, 1, bidirectional=True, dropout=0.0)
    at = 0
    for parameter, twin in zip(parameters, exact.parameters(), strict=True):
        view = flat[at : at + parameter.numel()].view_as(parameter)
        parameter.data, twin.data = view, view.float()
        at += parameter.numel()
    inputs, mask = ragged_batch(16)
    inputs = torch.where(mask[:, :, None], inputs, 0.0).bfloat16()
    weighting = torch.randn(4, 7, 32) * mask[:, :, None]
    outputs, _ = encoder(inputs, mask)
    expected, _ = exact(inputs.float(), mask)
    assert (outputs.float() - expected).norm() < 0.01 * expected.norm()
    ours = torch.autograd.grad((outputs.float() * weighting).sum(), parameters)
    theirs = torch.autograd.grad((expected * weighting).sum(), list(exact.parameters()))
    for gradient, reference in zip(ours, theirs, strict=True):
        assert (gradient.float() - reference).norm() < 0.03 * reference.norm()


def first_states(model: nn.Module, run: Callable[[], object]) -> list[Tensor]:
    """Return every first state that torch.nn's layers within a model are given."""
    given: list[Tensor] = []

    def listen(layer: nn.Module, args: tuple[Any, ...]) -> None:
        given.extend([args[1]] if isinstance(args[1], Tensor) else args[1])

    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.register_forward_pre_hook(listen)
    run()
    return given


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("alignment", ["none", "additive"])
@pytest.mark.parametrize("start", ["bridge", "layers", "last", "zeros"])
def test_first_states_are_whole_in_memory(cell: str, alignment: str, start: str) -> None:
    """As cuDNN asks for: it refuses a view into the tensor that all layers' states were made as."""
    fields: dict[str, Any] = {"cell": cell, "alignment": alignment, "decoder_init": start, "encoder_layers": 2}
    config = RnnConfig(**fields, attention_query="current", d_model=6, d_hidden=8, decoder_layers=2)
    model, ids = RnnTranslator(config, 13, 13), torch.randint(4, 13, (3, 5))
    states = first_states(model, lambda: model.hidden(ids, None, ids))
    assert len(states) == (2 if cell == "lstm" else 1) * 6  # two layers in two directions, and the decoder's two
    assert all(state.is_contiguous() for state in states)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_first_states_made_of_a_code_are_whole_in_memory(cell: str, layers: int) -> None:
    sizes = {"d_model": 6, "d_hidden": 8, "d_code": 5}
    config = RnnAutoencoderConfig(**sizes, cell=cell, encoder_layers=layers, decoder_layers=layers)  # type: ignore[arg-type]
    model, ids = SequenceAutoencoder(config, 13), torch.randint(4, 13, (3, 5))
    states = first_states(model, lambda: model.hidden(ids, None, ids))
    assert len(states) == (2 if cell == "lstm" else 1) * 3 * layers
    assert all(state.is_contiguous() for state in states)


def test_a_packed_lstms_first_state_is_whole_in_memory() -> None:
    inputs, mask = ragged_batch(6)
    layer = make_layer("lstm", 6, 8).double()
    halves = torch.randn(4, 16, dtype=torch.float64).split(8, dim=-1)
    states = first_states(layer, lambda: run_packed_lstm(layer, inputs, halves, mask.sum(1)))
    assert len(states) == 2 and all(state.is_contiguous() for state in states)


def test_odd_width_cannot_be_halved() -> None:
    """Two directions share d_hidden equally."""
    with pytest.raises(ValueError, match="even d_hidden, not 7"):
        RecurrentEncoder("gru", 4, 7, 1, bidirectional=True, dropout=0.0)
