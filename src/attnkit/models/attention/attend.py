"""Attention as one operator: A(q, K, V) = Σᵢ p(a(kᵢ, q)) vᵢ for any alignment a and any distribution p.

Masks are bool, True = may attend, broadcastable to (B, H, T, S). A row with nothing to attend to gives zeros.
"""

from __future__ import annotations

from torch import Tensor

from attnkit.models.attention.alignment import Alignment, ScaledDot
from attnkit.models.attention.distribution import Distribution, softmax
from attnkit.models.attention.kernel import Scope, scaled_dot


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    align: Alignment,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the context (B, H, T, d_v) and the weights (B, H, T, S), computed as they are written."""
    return attend_prepared(query, align.prepare(keys), values, align, distribute, mask)


def attend_unseen(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    align: Alignment,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> Tensor:
    """Return attend's context where nobody looks at the weights, by the pair's fastest equal form.

    Scaled dot x softmax is attention.kernel's; every other pair is computed as it is written.
    """
    if distribute is softmax and isinstance(align, ScaledDot):
        return scaled_dot(query, keys, values, Scope(mask))
    return attend(query, keys, values, align, distribute, mask)[0]


def attend_prepared(
    query: Tensor,
    prepared: Tensor,
    values: Tensor,
    align: Alignment,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return context and weights for keys that align.prepare has seen: a decoder prepares them once per sentence."""
    weights = distribute(align.score(query, prepared), query, mask)
    return weights @ values, weights
