"""Attention as one operator: A(q, K, V) = Σᵢ p(a(kᵢ, q)) vᵢ for any alignment a and any distribution p.

Masks are bool, True = may attend, broadcastable to (B, H, T, S). A row with nothing to attend to gives zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from attnkit.models.attention.base import Alignment, AlignmentModule
from attnkit.models.attention.distribution import Distribution, normalize, softmax
from attnkit.models.attention.dot_product import Kernel, ScaledDot
from attnkit.models.attention.linear_attention import linear_attention
from attnkit.models.attention.scaled_dot_product import AttentionScope, scaled_dot


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


def attend_prepared(
    query: Tensor,
    prepared: Tensor,
    values: Tensor,
    align: Alignment,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return context and weights for keys that align.prepare has seen: a decoder prepares them once per sentence."""
    weights = AttentionFunction(align, distribute).weights(query, prepared, AttentionScope(mask))  # (B, H, T, S)
    return weights @ values, weights


def attend_context(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    align: Alignment,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> Tensor:
    """Return attend's context where nobody looks at the weights, by the pair's fastest equal form."""
    return AttentionFunction(align, distribute).context(query, keys, values, AttentionScope(mask))


class AttentionFunction(NamedTuple):
    """An alignment with a distribution function."""

    align: Alignment
    distribute: Distribution

    def weights(self, query: Tensor, prepared: Tensor, scope: AttentionScope) -> Tensor:
        """Return the weights (B, H, T, S) within a scope, the scores having been shifted by its bias."""
        if self.distribute is normalize and scope.bias is None and isinstance(self.align, AlignmentModule):
            # Sums of tiny scores underflow: numerators relative to the largest give the same weights.
            allowed = scope.allowed(query.shape[-2], prepared.shape[-2], query.device)
            return normalize(self.align.relative(query, prepared, allowed), query, allowed).to(query.dtype)
        scores = self.align.score(query, prepared)  # (B, H, T, S)
        if scope.bias is not None:
            scores = scores + scope.bias
        weights = self.distribute(scores, query, scope.allowed(query.shape[-2], scores.shape[-1], query.device))
        return weights.to(query.dtype)  # a float32 bias has widened the scores

    def context(
        self, query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0
    ) -> Tensor:
        """Return the context (B, H, T, d_v) by the fastest equal form.

        Scaled dot x softmax is attention.kernel's; kernel x normalize takes linear time where the mask is the same for
        all queries; every other pair is computed as it is written.
        """
        if self.distribute is softmax and isinstance(self.align, ScaledDot):
            return scaled_dot(query, keys, values, scope, dropout)
        # Associativity: φ(q)ᵀ(Σ φ(k) vᵀ) needs no T × S weights (Katharopoulos et al. 2020, eq. 5).
        if self.distribute is normalize and isinstance(self.align, Kernel) and not dropout and _is_linear(scope):
            return linear_attention(query, keys, values, self.align.feature_map, scope.mask, scope.causal)
        weights = self.weights(query, self.align.prepare(keys), scope)
        return F.dropout(weights, dropout) @ values if dropout else weights @ values


def _is_linear(scope: AttentionScope) -> bool:
    """Return whether all queries see the same keys, but for causality, and no bias is added to scores."""
    return scope.bias is None and (scope.mask is None or scope.mask.dim() < 2 or scope.mask.shape[-2] == 1)
