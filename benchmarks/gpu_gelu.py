"""A candidate: GELU(x + bias) in one kernel each way, which sums up the gradient of the bias on its way.

    PYTHONPATH=src python benchmarks/gpu_gelu.py
    PYTHONPATH=src python benchmarks/gpu_step.py --gelu

The first line compares it with autograd and ends with an error if they differ; it needs a GPU, or TRITON_INTERPRET=1.
The second measures a step with it. It is no part of attnkit, since its speed was never measured: on an H200, PyTorch's
compiler takes 8.0 ms of a step of 80 for GELU and 1.2 for the sums.

Letters: N rows, F inner width.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

ROWS, COLUMNS = 32, 256  #: a program's tile


@triton.jit
def _tile(n_rows, n_columns, rows: tl.constexpr, columns: tl.constexpr):
    """Return the columns of a program's tile, where its numbers are, and which of them exist."""
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    where = row.to(tl.int64)[:, None] * n_columns + column[None, :]
    return column, where, (row < n_rows)[:, None] & (column < n_columns)[None, :]


@triton.jit
def _forward(x, bias, y, n_rows, n_columns, rows: tl.constexpr, columns: tl.constexpr):
    """Write z Φ(z) of z = x + bias, for the standard normal distribution Φ."""
    column, where, real = _tile(n_rows, n_columns, rows, columns)
    z = tl.load(x + where, mask=real, other=0.0).to(tl.float32)
    z += tl.load(bias + column, mask=column < n_columns, other=0.0).to(tl.float32)[None, :]
    tl.store(y + where, (0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))).to(y.dtype.element_ty), mask=real)


@triton.jit
def _backward(x, bias, dy, dx, sums, n_rows, n_columns, rows: tl.constexpr, columns: tl.constexpr):
    """Write dy (Φ(z) + z φ(z)), and its sums over the rows of the tile, (row tiles, columns)."""
    column, where, real = _tile(n_rows, n_columns, rows, columns)
    z = tl.load(x + where, mask=real, other=0.0).to(tl.float32)
    z += tl.load(bias + column, mask=column < n_columns, other=0.0).to(tl.float32)[None, :]
    density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
    slope = 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    grad = tl.load(dy + where, mask=real, other=0.0).to(tl.float32) * slope
    tl.store(dx + where, grad.to(dx.dtype.element_ty), mask=real)
    tl.store(sums + tl.program_id(1) * n_columns + column, tl.sum(grad, 0), mask=column < n_columns)


def _grid(x: Tensor) -> tuple[int, int]:
    return triton.cdiv(x.shape[1], COLUMNS), triton.cdiv(x.shape[0], ROWS)


def gelu_forward(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(x + bias) of x (N, F) and bias (F,)."""
    y = torch.empty_like(x)
    _forward[_grid(x)](x, bias, y, *x.shape, ROWS, COLUMNS, num_warps=4)
    return y


def gelu_backward(change: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (N, F) and of bias (F,), given that of the result (N, F)."""
    dx, grid = torch.empty_like(x), _grid(x)
    sums = torch.empty(grid[1], x.shape[1], dtype=torch.float32, device=x.device)
    _backward[grid](x, bias, change, dx, sums, *x.shape, ROWS, COLUMNS, num_warps=4)
    return dx, sums.sum(0).to(bias.dtype)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(x + bias) of x (..., F) and bias (F,)."""
    y: Tensor = _bias_gelu(x.reshape(-1, x.shape[-1]), bias)
    return y.view(x.shape)


@torch.library.custom_op("attnkit::bias_gelu", mutates_args=())
def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(x + bias) of x (N, F)."""
    return F.gelu(x + bias)


@_bias_gelu.register_kernel("cuda")
def _bias_gelu_cuda(x: Tensor, bias: Tensor) -> Tensor:
    return gelu_forward(x.contiguous(), bias)


@_bias_gelu.register_fake
def _bias_gelu_shape(x: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("attnkit::bias_gelu_backward", mutates_args=())
def _gradients(change: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (N, F) and bias (F,)."""
    z = x + bias
    density = torch.exp(-0.5 * z.square()) * 0.3989422804014327  # of the standard normal distribution
    dx = change * (0.5 * (1 + torch.erf(z * 0.5**0.5)) + z * density)
    return dx, dx.sum(0)


@_gradients.register_kernel("cuda")
def _gradients_cuda(change: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return gelu_backward(change.contiguous(), x.contiguous(), bias)


@_gradients.register_fake
def _gradients_shapes(change: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _chain(ctx: Any, change: Tensor) -> tuple[Tensor, Tensor]:
    return _gradients(change, *ctx.saved_tensors)


_bias_gelu.register_autograd(_chain, setup_context=_keep)


def feed_forward(self: Any, x: Tensor) -> Tensor:
    """Do what a feed-forward sublayer with GELU does, with the bias in the kernel."""
    down: Tensor = self.down(self.dropout(bias_gelu(F.linear(x, self.up.weight), self.up.bias)))
    return down


def use(model: nn.Module) -> None:
    """Make the feed-forward sublayers of a model take the kernel."""
    for layer in model.modules():
        if hasattr(layer, "feed_forward"):
            layer.feed_forward.forward = types.MethodType(feed_forward, layer.feed_forward)


def main() -> None:
    """Compare it with autograd."""
    cuda = torch.cuda.is_available()
    options: dict[str, Any] = {"device": "cuda" if cuda else "cpu", "dtype": torch.bfloat16 if cuda else torch.float32}
    x, bias, change = (torch.randn(*shape, **options) for shape in ((77, 300), (300,), (77, 300)))
    exact, bias_exact = (part.double().requires_grad_() for part in (x, bias))
    y = F.gelu(exact + bias_exact)
    y.backward(change.double())
    found = (gelu_forward(x, bias), *gelu_backward(change, x, bias))
    for own, wanted in zip(found, (y.detach(), exact.grad, bias_exact.grad), strict=True):
        assert wanted is not None
        distance = float((own.double() - wanted).norm() / wanted.norm())
        print(f"{distance:.1e}")
        if not distance < (8e-3 if cuda else 1e-5):
            raise SystemExit("the kernel is far from its definition")


if __name__ == "__main__":
    main()
