"""Linear maps with oneDNN or with weights per head, and dropout of three kinds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.runtime.devices import HAS_PACKING, MIN_PRODUCT, PRODUCT_DTYPES, linear_product, pad_rows

HALF = (torch.bfloat16, torch.float16)
FEW_ROWS = 8  #: below this number of rows, packing for oneDNN costs more than it gains

_LAYERS = 1  # spawn key of skipped layers: other random numbers of a step are drawn from its seeds without one

Model = TypeVar("Model", bound=nn.Module)


class Linear(nn.Linear):
    """nn.Linear with a faster matrix product; results are equal up to rounding."""

    __call__: Callable[..., Tensor]

    def forward(self, input: Tensor) -> Tensor:
        """Map input (..., in_features) to (..., out_features)."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map x (..., in) by weight (out, in) to (..., out), by oneDNN if it is faster."""
    if torch.compiler.is_compiling():  # the compiler does not support these operations and chooses its own
        return F.linear(x, weight, bias)
    # Leading dimensions are flattened: the product is of a matrix (rows, in).
    rows = x.numel() // weight.shape[1]
    if rows < FEW_ROWS or not HAS_PACKING or x.dtype not in PRODUCT_DTYPES or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    if x.dtype == torch.float32 and rows * weight.numel() < MIN_PRODUCT:
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return linear_product(x, weight, bias)
    return _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]


class _OneDnnLinear(torch.autograd.Function):
    """x Wᵀ + b in one call of oneDNN, which also computes the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.numel() // weight.shape[1]
        to_x, to_weight = ctx.needs_input_grad[:2]
        # Not the padded copy, which would be kept beside x wherever another operation saves x, too; and of a frozen
        # weight, no input. The bias is not saved, since its gradient is a sum.
        ctx.save_for_backward(x if to_weight else None, weight if to_x else None)
        ctx.has_bias = bias is not None
        ctx.shape = x.shape
        y = linear_product(pad_rows(x.reshape(rows, -1)), weight, bias)[:rows]
        # Autograd does not treat this as a view, so an activation may overwrite it.
        return torch.ops.aten._unsafe_view(y, (*x.shape[:-1], weight.shape[0]))  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, gradients[0].shape[-1])  # (rows, out)
        padded = pad_rows(gradient) if any(ctx.needs_input_grad[:2]) else gradient
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _times(padded, weight)[: len(gradient)].view(ctx.shape)  # (rows, out) @ (out, in)
        if ctx.needs_input_grad[1]:
            to_weight = _times(padded.t(), pad_rows(x.reshape(len(gradient), -1)))  # (out, rows) @ (rows, in)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            to_bias = gradient.sum(0)
        return to_x, to_weight, to_bias


def init_xavier(*linears: nn.Linear | None) -> None:
    """Initialise linear maps with Xavier-uniform weights and zero biases."""
    for linear in linears:
        if linear is not None:
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)


# Maps and vectors with weights per head. Letters: B batch, H heads, d width of a vector.
class PerHeadLinear(nn.Module):
    """One linear map per head, from (B, H, ..., d_in) to (B, H, ..., d_out)."""

    __call__: Callable[..., Tensor]

    def __init__(self, n_heads: int, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_out, d_in))
        # One-dimensional like all biases, which weight decay skips.
        self.bias = nn.Parameter(torch.empty(n_heads * d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, H, ..., d_in) to (B, H, ..., d_out)."""
        return map_heads(x, self.weight, self.bias)


def map_heads(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map x (B, H, ..., d_in) by weight (d_out, d_in) or (H, d_out, d_in), plus bias."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    y = torch.einsum("bh...i,hoi->bh...o", x, weight)  # (B, H, ..., d_out)
    return y if bias is None else y + spread_heads(bias, len(weight), y.dim())


def spread_heads(flat: Tensor, n_heads: int, n_dims: int) -> Tensor:
    """Reshape a vector (H * d,) to (H, 1, ..., d) to broadcast over (B, H, ..., d)."""
    return flat.view(n_heads, *[1] * (n_dims - 3), -1)


def build_per_head_linear(
    n_heads: int, d_in: int, d_out: int, bias: bool = True, gain: float = 1.0
) -> Linear | PerHeadLinear:
    """Build a linear map per head, Xavier-uniform times a gain, with zero bias."""
    linear = Linear(d_in, d_out, bias) if n_heads == 1 else PerHeadLinear(n_heads, d_in, d_out, bias)
    # Head by head: the fan-out of all heads together would make the range too narrow.
    for weight in linear.weight.data.view(n_heads, d_out, d_in):
        nn.init.xavier_uniform_(weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def build_head_vector(n_heads: int, width: int) -> nn.Parameter:
    """Build a random vector of variance 1 / width per head, flattened (H * width,)."""
    return nn.Parameter(torch.empty(n_heads * width).normal_(std=width**-0.5))


def weighted_sum(x: Tensor, vector: Tensor, n_heads: int) -> Tensor:
    """Return w·x (B, H, ...) of x (B, H, ..., width) and head vectors (H * width,)."""
    if n_heads == 1:
        return x @ vector
    # As products of (..., N, width) and (width, 1): einsum would copy x, the largest tensor.
    return (x @ vector.view(n_heads, *[1] * (x.dim() - 4), -1, 1)).squeeze(-1)


class PackedLinear(nn.Linear):
    """Linear map for inference, with its weight also in oneDNN's blocked layout."""

    __call__: Callable[..., Tensor]

    def __init__(self, linear: nn.Linear) -> None:
        # On "meta", no memory is allocated: both parameters are replaced by the given ones.
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        weight = linear.weight.detach().contiguous()
        # The layout is tuned for 64 rows, but any number of rows may be multiplied.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
        # In float32, MKL is faster for small products, and for a matrix-vector product, which is memory-bound.
        largest = max(self.in_features, (MIN_PRODUCT - 1) // self.out_features)
        self._max_plain = largest if weight.dtype == torch.float32 else 0
        self._narrowed: tuple[Tensor, PackedLinear] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Map input (..., in_features) to (..., out_features)."""
        if input.numel() <= self._max_plain:
            return F.linear(input, self.weight, self.bias)
        return linear_product(input, self._packed, self.bias)

    def narrowed(self, ids: Tensor) -> PackedLinear:
        """Return the map to the outputs ``ids`` only, cached for the same tensor of ids."""
        if self._narrowed is None or self._narrowed[0] is not ids:
            chosen = nn.Linear(self.in_features, len(ids), self.bias is not None, device="meta")
            chosen.weight = nn.Parameter(self.weight[ids], requires_grad=False)
            if self.bias is not None:
                chosen.bias = nn.Parameter(self.bias[ids], requires_grad=False)
            self._narrowed = ids, PackedLinear(chosen)
        return self._narrowed[1]


def some_outputs(linear: nn.Linear, x: Tensor, ids: Tensor | None) -> Tensor:
    """Return the outputs (..., out_features) for x, or only those of the given ids."""
    if ids is None:
        return linear(x)  # type: ignore[no-any-return]
    if isinstance(linear, PackedLinear):
        return linear.narrowed(ids)(x)
    return F.linear(x, linear.weight[ids], None if linear.bias is None else linear.bias[ids])


def pack(model: Model) -> Model:
    """Return a copy of a model for inference, with packed linear maps.

    The copy has the current weights and no gradients. If packing brings no gain, or the maps are packed already, the
    model itself is returned.
    """
    if any(isinstance(module, PackedLinear) for module in model.modules()):
        return model
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    if not HAS_PACKING or any(w.device.type != "cpu" or w.dtype not in PRODUCT_DTYPES for w in weights):
        return model
    # Tensors created in inference mode could not be used outside it later.
    with torch.inference_mode(False), torch.no_grad():
        packed = copy.deepcopy(model).requires_grad_(False).eval()
        # A list, since the loop replaces modules while iterating.
        for module in list(packed.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, PackedLinear(child))
    return packed


def _times(left: Tensor, right: Tensor) -> Tensor:
    # PyTorch already computes bfloat16 products with oneDNN.
    return linear_product(left, right.t(), None) if left.dtype == torch.float32 else left @ right


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Disable dropout in a module within the context, then restore its mode."""
    was_training = module.training
    # eval() reaches every submodule; dropout is the only one of ours that it changes.
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def drop(x: Tensor, rate: float) -> Tensor:
    """Return x with a share of its elements dropped, the others scaled.

    On a CPU, four elements share one 64-bit random number, 2.5 x faster than the Bernoulli numbers of ``F.dropout``;
    the rate is rounded to a multiple of 1/65536, and the scale fits the rounded rate. Compiled models use F.dropout.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    n = x.numel()
    # None as the upper end means all 64 bits: from -2^63 up to 2^63 - 1.
    draws = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    # At least 1 and at most 65535 of 65536: a tiny rate still drops, a large one still keeps.
    dropped = min(max(round(rate * 65536), 1), 65535)
    kept = torch.empty(x.shape, dtype=x.dtype)  # written as 0.0 or 1.0: a bool tensor would be converted slowly
    # int16 runs from -32768, hence the shift of the threshold.
    torch.ge(draws.view(torch.int16)[:n].view(x.shape), dropped - 32768, out=kept)
    return x * kept.mul_(65536 / (65536 - dropped))


class Dropout(nn.Module):
    """Dropout in training, by ``drop``."""

    __call__: Callable[..., Tensor]

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped, or x itself outside training."""
        return drop(x, self.rate) if self.training and self.rate else x

    def extra_repr(self) -> str:
        """Return the rate, for print(model)."""
        return f"rate={self.rate}"


class WordDropout(Dropout):
    """Dropout of the whole embedding of a token (Sennrich and Zhang 2019).

    Tokens are dropped one by one, where Gal and Ghahramani (2016, section 4.2) drop a word at all its places. The
    vectors that are kept are scaled as in plain dropout.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors x (B, T, D), some of them zero, or x itself outside training."""
        if not self.training or not self.rate:
            return x
        return x * F.dropout(x.new_ones(*x.shape[:-1], 1), self.rate)


class LayerDropout(nn.Module):
    """LayerDrop: choice of the layers of a stack that a training step skips.

    Every layer is left out with the same probability, and what it would read goes to the next one (Fan et al. 2020,
    Reducing Transformer Depth on Demand with Structured Dropout, section 3.2). Nothing is scaled; outside of training
    all layers serve.

    The choice is not drawn in a pass over the model: all micro-batches of a step and all ranks skip the same layers, so
    that a step does not depend on how its batch is split, and shards of weights are gathered by all ranks or by none.
    """

    def __init__(self, rate: float, n_layers: int) -> None:
        """Keep all layers until ``draw`` is called."""
        super().__init__()
        self.rate, self.kept = rate, [True] * n_layers

    def draw(self, generator: np.random.Generator) -> None:
        """Choose the layers of the next step."""
        self.kept = (generator.random(len(self.kept)) >= self.rate).tolist()

    def keeps(self, layer: int) -> bool:
        """Return whether a layer, from 0, is computed: all of them outside training."""
        return not self.training or self.kept[layer]

    def extra_repr(self) -> str:
        """Return the rate, for print(model)."""
        return f"rate={self.rate}"


def layer_draws(model: nn.Module, seed: int) -> Callable[[int], None] | None:
    """Return what chooses the layers that steps skip; None if none are.

    The function takes the number of the step, from 0. Its choice is a function of seed and step alone.
    """
    stacks = [part for part in model.modules() if isinstance(part, LayerDropout) and part.rate]
    if not stacks:
        return None

    def draw(step: int) -> None:
        # One generator for all stacks, in the order of the model, so that they differ.
        generator = np.random.default_rng(np.random.SeedSequence([seed, step], spawn_key=(_LAYERS,)))
        for stack in stacks:
            stack.draw(generator)

    return draw
