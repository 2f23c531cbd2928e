"""Recurrent building blocks: cells, layers, an encoder and decoder states.

A state is a tuple of tensors: (h,) for ``gru`` and ``rnn``, (h, c) for ``lstm``. Parameters live in ``torch.nn``
modules, so that weights can be copied to and from them.

Letters: B batch, S source length, T any length, K beams, D width of embeddings, C width of a code, d width of a state,
G number of gates (gru 3, lstm 4, rnn 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from attnkit.models.linear import Dropout

CellState = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, CellState], CellState]

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}


def step_gru(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:
    """Return the next state of a GRU (Cho et al. 2014, in the variant of cuDNN)."""
    # Gate order of torch.nn: reset, update, new. The reset gate acts after the recurrent product.
    reset_in, update_in, new_in = inputs.chunk(3, dim=-1)
    reset_hidden, update_hidden, new_hidden = hidden.chunk(3, dim=-1)
    reset = torch.sigmoid(reset_in + reset_hidden)
    update = torch.sigmoid(update_in + update_hidden)
    new = torch.tanh(torch.addcmul(new_in, reset, new_hidden))
    # (1 - z) n + z h with one product fewer.
    return (new + update * (state[0] - new),)


def step_lstm(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:
    """Return the next state of an LSTM (Hochreiter and Schmidhuber 1997)."""
    # Gate order of torch.nn: input, forget, cell, output.
    write, forget, new, output = (inputs + hidden).chunk(4, dim=-1)
    cell = torch.addcmul(torch.sigmoid(forget) * state[1], torch.sigmoid(write), torch.tanh(new))
    return torch.sigmoid(output) * torch.tanh(cell), cell


def step_rnn(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:
    """Return the next state of a plain RNN with tanh (Elman 1990)."""
    return (torch.tanh(inputs + hidden),)


# Each takes W_ih x + b_ih (..., G*d), W_hh h + b_hh (..., G*d) and the state, whose tensors are (..., d).
STEPS: dict[str, Step] = {"gru": step_gru, "lstm": step_lstm, "rnn": step_rnn}


class LayerWeights(NamedTuple):
    """The four parameters of a recurrent layer."""

    input: Tensor  #: gates are x @ input.T + input_bias and h @ hidden.T + hidden_bias
    hidden: Tensor
    input_bias: Tensor
    hidden_bias: Tensor


def weights_of(layer: nn.Module) -> LayerWeights:
    """Return the current parameters of a torch.nn layer, which may be moved or cast."""
    adapted = _adapted_weights(layer)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return LayerWeights(*(adapted[name] if name in adapted else layer.get_parameter(name) for name in names))


def _adapted_weights(layer: nn.Module) -> Mapping[str, Tensor]:
    """Return the weights of a layer that have adapters, with their adapters added."""
    known = layer.__dict__.get("adapted_weights")
    if known is not None or "lora" not in layer._modules:
        return known or {}
    return {name: layer.get_parameter(name) + factors.delta() for name, factors in layer.lora.items()}  # type: ignore[operator,union-attr]


@contextmanager
def adapters_added(model: nn.Module) -> Iterator[None]:
    """Add the adapters of recurrent layers once for all steps inside the context."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase) and "lora" in layer._modules]
    try:
        for layer in layers:
            layer.__dict__["adapted_weights"] = _adapted_weights(layer)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("adapted_weights", None)


def _run(layer: nn.RNNBase, inputs: object, state: object) -> tuple[Any, Any]:
    """Call a torch.nn layer, with its adapters added to its weights."""
    if adapted := _adapted_weights(layer):
        return functional_call(layer, dict(adapted), (inputs, state))  # type: ignore[no-any-return]
    return layer(inputs, state)  # type: ignore[no-any-return]


def make_layer(cell: str, d_input: int, d_hidden: int) -> nn.RNNBase:
    """Build a unidirectional, batch-first recurrent layer.

    Input weights are Xavier-uniform and recurrent weights orthogonal, gate by gate. Biases are zero except for an
    LSTM's forget gate, which starts open with bias 1 (Jozefowicz et al. 2015).
    """
    # A torch.nn module, for its cuDNN and CPU kernels.
    layer = CELLS[cell](d_input, d_hidden, batch_first=True)
    weights = weights_of(layer)
    with torch.no_grad():
        # Gate by gate: the fan-out of all gates at once would make Xavier's range too narrow.
        for gate in torch.split(weights.input, d_hidden):
            nn.init.xavier_uniform_(gate)
        for gate in torch.split(weights.hidden, d_hidden):
            nn.init.orthogonal_(gate)
        weights.input_bias.zero_()
        weights.hidden_bias.zero_()
        if cell == "lstm":
            weights.input_bias[d_hidden : 2 * d_hidden] = 1.0
    return layer


def zero_state(layer: nn.RNNBase, inputs: Tensor) -> CellState:
    """Return a state of zeros, tensors (B, d), for inputs (B, T, ...)."""
    zeros = inputs.new_zeros(inputs.shape[0], layer.hidden_size)
    return (zeros, zeros) if isinstance(layer, nn.LSTM) else (zeros,)


def unroll(layer: nn.RNNBase, inputs: Tensor, state: CellState) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a layer step by step; return all outputs h and all states, (B, T, d) each."""
    # The modes of torch.nn are GRU, LSTM and RNN_TANH.
    step = STEPS[layer.mode.lower().removesuffix("_tanh")]
    weights = weights_of(layer)
    states = []
    # One product for the inputs of all steps: (B, T, G * d); only the recurrent product is sequential.
    for gates in F.linear(inputs, weights.input, weights.input_bias).unbind(1):
        state = step(gates, F.linear(state[0], weights.hidden, weights.hidden_bias), state)
        states.append(state)
    stacked = tuple(torch.stack(parts, dim=1) for parts in zip(*states, strict=True))
    return stacked[0], stacked


def run_layer(
    layer: nn.RNNBase, inputs: Tensor, state: CellState, lengths: Tensor | None = None
) -> tuple[Tensor, CellState]:
    """Run a layer over (B, T, d_input); return outputs (B, T, d) and the final state.

    Rows are padded on the right; ``lengths`` (B,) int64 counts real steps, None if all are real. The final state is
    that after each row's last real step. Outputs at padding are undefined.
    """
    if not isinstance(layer, nn.LSTM):
        # The final state is read from the outputs: torch.nn returns that of the padding.
        outputs, _ = _run(layer, inputs, _whole(state[0]))
        return outputs, (take_last(outputs, lengths),)
    # On the CPU, ragged rows are unrolled: torch.nn returns c at the last step only, and packed rows train more slowly.
    # Rows in bfloat16 are unrolled too: to train them, torch 2.13 needs 1.2 to 1.6 times as long as the loop.
    if inputs.device.type == "cpu" and (lengths is not None or inputs.dtype == torch.bfloat16):
        outputs, states = unroll(layer, inputs, state)
        return outputs, tuple(take_last(part, lengths) for part in states)
    if lengths is not None:
        return run_packed_lstm(layer, inputs, state, lengths)
    outputs, (h, c) = _run(layer, inputs, (_whole(state[0]), _whole(state[1])))
    return outputs, (h[0], c[0])


def run_packed_lstm(layer: nn.LSTM, inputs: Tensor, state: CellState, lengths: Tensor) -> tuple[Tensor, CellState]:
    """Run torch.nn's LSTM on packed rows, for c at the end of every row; used on GPUs."""
    # pack_padded_sequence accepts lengths on the CPU only, so this waits for the GPU.
    packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
    packed_outputs, (h, c) = _run(layer, packed, (_whole(state[0]), _whole(state[1])))
    outputs, _ = nn.utils.rnn.pad_packed_sequence(packed_outputs, batch_first=True, total_length=inputs.shape[1])
    return outputs, (h[0], c[0])


def _whole(part: Tensor) -> Tensor:
    """Return a state tensor (B, d) as contiguous (1, B, d), as cuDNN requires it."""
    return part.unsqueeze(0).contiguous()


def take_last(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the last real step (B, d) of each row of (B, T, d)."""
    if lengths is None:
        return sequence[:, -1]
    return sequence.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, sequence.shape[2])).squeeze(1)


def reverse(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse the real steps of each row of (B, T, d); padding stays on the right."""
    if lengths is None:
        return sequence.flip(1)
    # Real steps are mirrored, padding maps to itself.
    at = torch.arange(sequence.shape[1], device=sequence.device).expand(sequence.shape[:2])  # (B, T)
    ends = lengths[:, None]  # (B, 1)
    order = torch.where(at < ends, ends - 1 - at, at)
    return sequence.gather(1, order[:, :, None].expand_as(sequence))


def run_layers(layers: nn.ModuleList, inputs: Tensor, states: Sequence[CellState], dropout: Dropout) -> Tensor:
    """Run a stack over (B, T, d_input) from given states; return the top h (B, T, d)."""
    for index, (layer, state) in enumerate(zip(layers, states, strict=True)):
        assert isinstance(layer, nn.RNNBase)
        # Dropout between layers; the inputs already have theirs.
        inputs, _ = run_layer(layer, dropout(inputs) if index else inputs, state)
    return inputs


def step_layers(
    layers: nn.ModuleList, step_cell: Step, gates: Tensor, states: Sequence[CellState], dropout: Dropout
) -> tuple[CellState, ...]:
    """Run a stack for one step; ``gates`` (B, K, G*d) is the first input product."""
    new: list[CellState] = []
    for layer, state in zip(layers, states, strict=True):
        weights = weights_of(layer)
        if new:
            gates = F.linear(dropout(new[-1][0]), weights.input, weights.input_bias)
        new.append(step_cell(gates, F.linear(state[0], weights.hidden, weights.hidden_bias), state))
    return tuple(new)


def map_states(states: Sequence[CellState], function: Callable[[Tensor], Tensor]) -> tuple[CellState, ...]:
    """Apply a function to each tensor of the states."""
    return tuple(tuple(function(part) for part in state) for state in states)


def reorder(part: Tensor, parents: Tensor) -> Tensor:
    """Select the beams ``parents`` (B, K') of part (B, K, width)."""
    return part.gather(1, parents.unsqueeze(-1).expand(-1, -1, part.shape[-1]))


@dataclass(frozen=True)
class EncodedSource:
    """Encoder output for the decoder, computed once per sentence."""

    values: Tensor  #: (B, 1, S, d): encoder outputs, with one head
    keys: Tensor  #: keys prepared by the alignment
    mask: Tensor | None  #: (B, 1, 1, S) bool, False at padding
    summary: Tensor  #: (B, 1, d): final h of the last encoder layer

    def select_rows(self, sentences: Tensor) -> EncodedSource:
        """Return the encoded source of the given sentences."""
        mask = None if self.mask is None else self.mask[sentences]
        return EncodedSource(self.values[sentences], self.keys[sentences], mask, self.summary[sentences])


@dataclass(frozen=True)
class RecurrentState:
    """Decoding state: the source, per sentence, and the recurrent state, per beam."""

    source: EncodedSource | None  #: None if the decoder sees only a code
    layers: tuple[CellState, ...]  #: one state per layer, tensors (B, K, d)
    fed: Tensor | None
    """(B, K, D or C): extra input of each step: the previous features (input feeding), or the code."""
    record: bool = False
    attention: Tensor | None = None
    """(B, K, S): weights of the last step, if recorded and if the model has attention."""

    def reorder_beams(self, parents: Tensor) -> RecurrentState:
        """Continue beam k of sentence b from its old beam parents[b, k] (B, K)."""
        return self._change(lambda part: reorder(part, parents))

    def select_rows(self, sentences: Tensor) -> RecurrentState:
        """Keep only the given rows of the batch, (n,) int64, in the given order."""
        source = None if self.source is None else self.source.select_rows(sentences)
        return replace(self._change(lambda part: part[sentences]), source=source)

    def _change(self, function: Callable[[Tensor], Tensor]) -> RecurrentState:
        fed, attention = (None if part is None else function(part) for part in (self.fed, self.attention))
        return replace(self, layers=map_states(self.layers, function), fed=fed, attention=attention)


class RecurrentEncoder(nn.Module):
    """Recurrent encoder in one or both directions.

    If bidirectional, each direction has d_hidden / 2 units, so outputs and final states always have width d_hidden. The
    backward direction runs forward over rows whose real words are reversed by a gather. On the CPU, this trains faster
    than packed sequences by 5 to 15 % (a forward pass alone is a little slower).
    """

    def __init__(
        self, cell: str, d_input: int, d_hidden: int, n_layers: int, *, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        if bidirectional and d_hidden % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_hidden, not {d_hidden}")
        # Both directions together are d_hidden wide.
        d_direction = d_hidden // 2 if bidirectional else d_hidden
        widths = [d_input] + [d_hidden] * (n_layers - 1)
        self.forwards = nn.ModuleList(make_layer(cell, width, d_direction) for width in widths)
        self.backwards = nn.ModuleList(make_layer(cell, width, d_direction) for width in widths if bidirectional)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, mask: Tensor | None) -> tuple[Tensor, list[CellState]]:
        """Return outputs (B, S, d_hidden) and each layer's final state, (B, d_hidden).

        ``inputs`` are (B, S, d_input). ``mask`` (B, S) bool is False at padding, which is on the right; None without
        padding. Final states are those after the last real word and, for the backward direction, after the first.
        """
        # At least 1, because an empty row would have no final state.
        lengths = None if mask is None else mask.sum(dim=1).clamp(min=1)
        finals: list[CellState] = []
        for index, ahead in enumerate(self.forwards):
            assert isinstance(ahead, nn.RNNBase)
            inputs = self.dropout(inputs) if index else inputs
            outputs, final = run_layer(ahead, inputs, zero_state(ahead, inputs), lengths)
            if self.backwards:
                back = self.backwards[index]
                assert isinstance(back, nn.RNNBase)
                # After reversing, padding is still on the right, so both directions skip it alike.
                reversed_outputs, first = run_layer(back, reverse(inputs, lengths), zero_state(back, inputs), lengths)
                outputs = torch.cat([outputs, reverse(reversed_outputs, lengths)], dim=-1)  # (B, S, d)
                final = tuple(torch.cat(parts, dim=-1) for parts in zip(final, first, strict=True))
            finals.append(final)
            inputs = outputs
        return inputs, finals
