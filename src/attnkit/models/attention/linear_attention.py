"""Kernel attention in linear time: φ(q)·Σ φ(k) v over φ(q)·Σ φ(k), the sums taken once for all queries.

That is kernel x normalize by associativity (Katharopoulos 2020, eq. 5 and 9; Choromanski 2021, eq. 4). The plain form,
which builds the scores, is attention.attend's. Letters: B batch, H heads, T queries, S keys, d head width, m features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.models.attention.feature_maps import FeatureMap

CHUNK = 128
"""Positions whose scores the causal form builds at once; it takes T / CHUNK steps."""


def linear_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    feature_map: FeatureMap,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return the context (B, H, T, d_v) of weights φ(q)·φ(k) / Σ φ(q)·φ(k) in time and memory O(T + S).

    The mask is bool, True = may attend, broadcastable to (B, H, 1, S): one for all queries. ``causal`` lets query i see
    keys 0..i, of which there must be as many as queries. A row with nothing to attend to gives zeros.

    Raises:
        ValueError: The mask differs between queries, or there are not as many keys as queries though causal.
    """
    n_queries, n_keys = query.shape[-2], keys.shape[-2]
    if mask is not None and mask.dim() > 1 and mask.shape[-2] != 1:
        raise ValueError("linear attention needs one mask for all queries: it never builds scores of its own")
    if causal and n_queries != n_keys:
        raise ValueError(f"causal linear attention needs as many keys as queries, not {n_keys} and {n_queries}")
    sums = LinearAttentionState(feature_map)
    if not causal:
        sums.add(keys, values, mask)
        return sums.read(query)
    # Split, not sliced: the gradient of each slice would be as long as the whole.
    queries, keyed, valued = (torch.split(tensor, CHUNK, dim=-2) for tensor in (query, keys, values))
    masks: Sequence[Tensor | None] = [None] * len(queries)
    if mask is not None:
        masks = torch.split(mask.expand(*mask.shape[:-1], n_keys), CHUNK, dim=-1)
    chunks = zip(queries, keyed, valued, masks, strict=True)
    return torch.cat([sums.step(q, k, v, allowed) for q, k, v, allowed in chunks], dim=-2)


class LinearAttentionState:
    """What all keys so far come to: Σ φ(k) v and Σ φ(k), which is all that a decoder must remember of them.

    The sums are kept over e^top, the scale of the largest key so far: what a key adds never depends on later keys, on
    batch mates or on masked keys. Once used they are tensors of (B, H, m, d_v + 1) and (B, H, 1, 1).
    """

    def __init__(self, feature_map: FeatureMap) -> None:
        self.feature_map = feature_map
        self.sums: Tensor | None = None
        self.top: Tensor | None = None

    def add(self, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in keys (B, H, S, d) and values (B, H, S, d_v); mask (B, H, 1, S) as in ``linear_attention``."""
        features, scale = self._keys(keys, mask)
        self._add(features, scale, _with_ones(values, features.dtype))

    def read(self, query: Tensor) -> Tensor:
        """Return the context (B, H, T, d_v) of queries (B, H, T, d) over all keys so far."""
        assert self.sums is not None
        # (B, H, T, m)
        features, _ = self.feature_map.scaled(query)  # a query's scale cancels
        return _divided(features @ self.sums).to(query.dtype)

    def step(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Take in as many keys as queries and return the context (B, H, T, d_v): query i sees them up to its own.

        One position is a step of a decoder; more make a chunk, whose scores (T, T) are built.
        """
        features, _ = self.feature_map.scaled(query)
        key_features, scale = self._keys(keys, mask)
        ones = _with_ones(values, features.dtype)
        tops = scale.cummax(-2).values  # (B, H, T, 1)
        if self.top is not None:
            tops = torch.maximum(tops, self.top)
        finite = _finite(tops)
        future = torch.ones(scale.shape[-2], scale.shape[-2], dtype=torch.bool, device=scale.device).triu(1)
        shrunk = (scale.transpose(-1, -2) - finite).masked_fill_(future, -math.inf).exp_()  # (B, H, T, T)
        totals = (features @ key_features.transpose(-1, -2) * shrunk) @ ones  # (B, H, T, d_v + 1)
        if self.sums is not None and self.top is not None:
            # Earlier chunks come in through their sums alone, brought to the new scale.
            totals = totals + features @ self.sums * (self.top - finite).exp()
        self._add(key_features, scale, ones)
        return _divided(totals).to(query.dtype)

    def reorder_beams(self, rows: Tensor) -> LinearAttentionState:
        """Let row b go on from the sums of row rows[b]: beams that follow others, or sentences that remain."""
        if self.sums is not None and self.top is not None:
            self.sums, self.top = self.sums.index_select(0, rows), self.top.index_select(0, rows)
        return self

    def _keys(self, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the keys' features and scales, -inf where the mask hides a key."""
        features, scale = self.feature_map.scaled(keys)
        if mask is not None:
            scale = scale.masked_fill(~mask.transpose(-1, -2) if mask.dim() > 1 else ~mask[:, None], -math.inf)
        return features, scale

    def _add(self, features: Tensor, scale: Tensor, ones: Tensor) -> None:
        top = scale.amax(-2, keepdim=True) if scale.shape[-2] else scale.new_full((1, 1), -math.inf)
        if self.top is not None:
            top = torch.maximum(top, self.top)
        finite = _finite(top)
        added = (features * (scale - finite).exp()).transpose(-1, -2) @ ones  # (B, H, m, d_v + 1)
        if self.sums is not None and self.top is not None:
            added = added + self.sums * (self.top - finite).exp()
        self.sums, self.top = added, top


def _with_ones(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the values and a column of ones, whose sum is what the others are divided by."""
    return torch.cat((values, values.new_ones((*values.shape[:-1], 1))), dim=-1).to(dtype)


def _divided(totals: Tensor) -> Tensor:
    # The last column is the sum of weights; a row that sees nothing has 0 there and stays 0.
    above, below = totals[..., :-1], totals[..., -1:]
    return above / below.masked_fill(below == 0, 1.0)


def _finite(top: Tensor) -> Tensor:
    """Return the scale of sums, 0 where there is no key yet: -inf less -inf would not be a number."""
    return top.masked_fill(top == -math.inf, 0.0)
