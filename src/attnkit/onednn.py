"""oneDNN's matrix product, which models and losses share: PyTorch's other matrix library on x86 CPUs.

In float32 ``F.linear`` and ``torch.mm`` mean MKL, which uses less than half of a processor not made by Intel.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor

HAS_PRODUCT = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
HAS_PACKING = HAS_PRODUCT and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (..., k) times weight (m, k) transposed, plus bias (m,); the weight may be packed."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y
