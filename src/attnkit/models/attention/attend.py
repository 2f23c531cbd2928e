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
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the context (B, H, T, d_v), and the weights (B, H, T, S) where they are asked for.

    Scaled dot x softmax without weights is attention.kernel's; every other pair is computed as it is written.
    """
    if not need_weights and distribute is softmax and isinstance(align, ScaledDot):
        return scaled_dot(query, keys, values, Scope(mask)), None
    context, weights = attend_prepared(query, align.prepare(keys), values, align, distribute, mask)
    return context, weights if need_weights else None


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
