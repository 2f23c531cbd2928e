"""Linear maps through oneDNN, PyTorch's second matrix library on x86 CPUs.

F.linear in float32 goes to MKL, which uses less than half of a processor that Intel has not made. One thread of an AMD
EPYC (Zen 5), 2,240 rows: 100 GF/s against oneDNN's 220. With weights laid out beforehand (packed) oneDNN is also quick
for few rows: 4 rows and 8,000 words take 111 us, not 382. bfloat16 goes to oneDNN anyway; here its bias is added inside
the product (5-15 %), and packing gains 10-100 %.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.onednn import HAS_PACKING, linear_product

DTYPES = (torch.float32, torch.bfloat16)
FEW_ROWS = 8
"""Below this many rows laying the weights out for oneDNN costs more than it gains."""

Model = TypeVar("Model", bound=nn.Module)


class Linear(nn.Linear):
    """nn.Linear with the faster product where there is one: same parameters, same result up to rounding."""

    def forward(self, input: Tensor) -> Tensor:
        """Return input (..., in_features) mapped to (..., out_features)."""
        if torch.compiler.is_compiling():  # it does not take these operations, and has a choice of its own
            return F.linear(input, self.weight, self.bias)
        rows = input.numel() // self.in_features
        if rows < FEW_ROWS or not HAS_PACKING or input.dtype not in DTYPES or input.device.type != "cpu":
            return F.linear(input, self.weight, self.bias)
        if not torch.is_grad_enabled():
            return linear_product(input, self.weight, self.bias)
        y: Tensor = _OneDnnLinear.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return y


class _OneDnnLinear(torch.autograd.Function):
    """x Wᵀ + b in one call of oneDNN; its gradients in oneDNN too, where PyTorch would not go there by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = linear_product(x.reshape(-1, x.shape[-1]), weight, bias)
        # Not a view to autograd's eye: an activation may then overwrite it.
        shaped: Tensor = torch.ops.aten._unsafe_view(y, (*x.shape[:-1], weight.shape[0]))
        return shaped

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, weight.shape[0])  # (rows, out)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _times(gradient, weight).view(x.shape)  # (rows, out) @ (out, in)
        if ctx.needs_input_grad[1]:
            to_weight = _times(gradient.t(), x.reshape(-1, x.shape[-1]))  # (out, rows) @ (rows, in)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            to_bias = gradient.sum(0)
        return to_x, to_weight, to_bias


class PackedLinear(nn.Linear):
    """A linear map for inference whose weight is also kept in the blocked layout that oneDNN multiplies fastest."""

    def __init__(self, linear: nn.Linear) -> None:
        # On "meta" no memory is taken: both parameters are replaced by the given ones.
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        weight = linear.weight.detach().contiguous()
        # The 64 is the number of rows that the layout is tuned for; any number of rows may be multiplied.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
        self._one_row_is_plain = weight.dtype == torch.float32
        self._narrowed: tuple[Tensor, PackedLinear] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Return input (..., in_features) mapped to (..., out_features)."""
        # A single float32 row is a matrix-vector product: memory-bound, and quicker in MKL.
        if self._one_row_is_plain and input.numel() == self.in_features:
            return F.linear(input, self.weight, self.bias)
        return linear_product(input, self._packed, self.bias)

    def narrowed(self, ids: Tensor) -> PackedLinear:
        """Return the map onto some outputs alone; it is kept while the same tensor asks, as in a search."""
        if self._narrowed is None or self._narrowed[0] is not ids:
            chosen = nn.Linear(self.in_features, len(ids), self.bias is not None, device="meta")
            chosen.weight = nn.Parameter(self.weight[ids], requires_grad=False)
            if self.bias is not None:
                chosen.bias = nn.Parameter(self.bias[ids], requires_grad=False)
            self._narrowed = ids, PackedLinear(chosen)
        return self._narrowed[1]


def some_outputs(linear: nn.Linear, x: Tensor, ids: Tensor) -> Tensor:
    """Return the chosen outputs (..., len(ids)) of a linear map of x (..., in_features)."""
    if isinstance(linear, PackedLinear):
        return torch.as_tensor(linear.narrowed(ids)(x))
    return F.linear(x, linear.weight[ids], None if linear.bias is None else linear.bias[ids])


def pack(model: Model) -> Model:
    """Return a copy of a model, for inference alone, whose linear maps are packed; the model itself where none gains.

    The copy takes the weights as they are now: it does not follow later training, and has no gradients.
    """
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    if not HAS_PACKING or any(w.device.type != "cpu" or w.dtype not in DTYPES for w in weights):
        return model
    # Tensors made in inference mode could not be used outside of it later.
    with torch.inference_mode(False), torch.no_grad():
        packed = copy.deepcopy(model).requires_grad_(False).eval()
        # A list: the loop replaces children of what it walks.
        for module in list(packed.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, PackedLinear(child))
    return packed


def _times(left: Tensor, right: Tensor) -> Tensor:
    # bfloat16 products go to oneDNN by themselves.
    return linear_product(left, right.t(), None) if left.dtype == torch.float32 else left @ right
