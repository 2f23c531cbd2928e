"""Compare the Triton kernels with float64 definitions: on a GPU in bfloat16, else by Triton's interpreter in float32.

    TRITON_INTERPRET=1 python gpu_kernels_check.py

Ends with an error if one is further from the definition than its number type explains.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.models.attention import packed_kernel
from attnkit.models.positions import rotations
from attnkit.training.cross_entropy_kernel import cross_entropy_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
BOUND = 8e-3 if DEVICE.type == "cuda" else 1e-5
SIZES = [5, 100, 23, 128, 60, 61, 7, 17]
"""Of passages: none of them crosses a multiple of 128."""


def far(found: Tensor, exact: Tensor) -> float:
    """Return the relative distance of two tensors."""
    return float((found.double() - exact).norm() / exact.norm())


def check(name: str, found: Tensor, exact: Tensor) -> None:
    """Stop if two tensors differ."""
    distance = far(found, exact)
    print(f"{name}: {distance:.1e}", flush=True)
    if not distance < BOUND:
        raise SystemExit(f"{name} is {distance:.1e} from its definition")


def attention(sizes: list[int], n_heads: int, d: int, causal: bool, rotary: bool, within: bool) -> None:
    """Check context and gradients of passages of some sizes."""
    lengths = torch.tensor(sizes)
    ends = lengths.cumsum(0)
    starts, ends = (each.repeat_interleave(lengths).int().to(DEVICE) for each in (ends - lengths, ends))
    n = len(starts)
    x, change = (torch.randn(n, k * n_heads * d, dtype=DTYPE, device=DEVICE) for k in (3, 1))
    table = rotations(max(sizes), d).to(DEVICE) if rotary else None
    exact = x.double().requires_grad_()
    query, keys, values = exact.view(n, 3, n_heads, d).permute(1, 2, 0, 3)
    at = torch.arange(n, device=DEVICE)
    if table is not None:
        # The pairs (x_i, x_(i+d/2)) as complex numbers, each turned by its angle.
        sine, cosine = table.double()[at - starts].chunk(2, -1)
        turn = torch.complex(cosine, sine)
        query, keys = (
            torch.view_as_real(torch.complex(*part.chunk(2, -1)) * turn).transpose(-1, -2).flatten(-2)
            for part in (query, keys)
        )
    seen = (at >= starts[:, None]) & (at < ends[:, None]) & ((at <= at[:, None]) if causal else True)
    context = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen).transpose(0, 1).reshape(n, -1)
    context.backward(change.double())
    out, norms = packed_kernel.forward(x, table, starts, ends, n_heads, causal)
    grad = packed_kernel.backward(change, x, table, out, norms, starts, ends, n_heads, causal, within)
    name = f"attention of {len(sizes)} passages, d {d}{', causal' * causal}{', rotary' * rotary}{', within' * within}"
    check(name, out, context.detach())
    assert exact.grad is not None
    check(f"{name}, gradient", grad, exact.grad)


def main() -> None:
    """Check all kernels."""
    torch.manual_seed(1)
    for causal in (False, True):
        for rotary in (False, True):
            for within in (False, True):
                attention(SIZES, 2, 64, causal, rotary, within)
        attention([300, 3, 1, 200], 1, 32, causal, causal, False)
        attention([37], 1, 128, causal, not causal, True)
    logits = 4 * torch.randn(5, 9001, dtype=DTYPE, device=DEVICE)
    targets = torch.randint(9001, (5,), device=DEVICE)
    wide = logits.double()
    norms, chosen = cross_entropy_rows(logits, targets, 0.1, gradient=True)
    check("log Σ exp", norms, wide.logsumexp(1))
    check("logits of the targets", chosen, wide.gather(1, targets[:, None]).squeeze(1))
    check("gradient of the logits", logits, wide.softmax(1) - 0.9 * F.one_hot(targets, 9001))


if __name__ == "__main__":
    main()
