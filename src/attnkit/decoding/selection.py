"""Exact top-k selection: highest values first, ties by lowest index.

The vocabulary is divided into groups of consecutive words. Only groups with the highest maxima can contain the best
words, so one vectorised maximum per group replaces a selection over the whole row. Ties stay exact, because a group
that loses a tie to an earlier group contains only later words. Letters: B sentences, K beams, V words.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP = 64  #: words per group: near the square root of V = 8,000, and a multiple of vector registers


def topk(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n highest float32 values per row (B, M) and their indices, (B, n).

    Values are descending. ``torch.topk`` does not define the order of ties, so values with ties are selected again by
    integer keys. Rows with fewer than n values are filled up with -inf at index 0.
    """
    missing = n - values.shape[1]
    if missing >= 0:
        index = _keys(values).argsort(dim=-1, descending=True)
        return F.pad(values.gather(1, index), (0, missing), value=-torch.inf), F.pad(index, (0, missing))
    # One more than needed, to detect a tie at the boundary.
    top, index = values.topk(n + 1)
    if bool((top[:, 1:] == top[:, :-1]).any()):
        index = _keys(values).topk(n).indices
        return values.gather(1, index), index
    return top[:, :n], index[:, :n]


def topk_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n best continuations per sentence by score plus log-probability.

    Takes log_probs (B, K, V) and scores (B, K), both float32. Returns the sums (B, n), descending, and beam * V + word.
    """
    n_sentences, _, vocab_size = log_probs.shape
    if vocab_size <= 2 * GROUP:
        return topk((log_probs + scores[..., None]).flatten(1), n)
    peaks = _group_maxima(log_probs)  # (B, K, groups)
    n_groups = peaks.shape[-1]
    n_chosen = min(n, n_groups * scores.shape[1])
    groups = topk((peaks + scores[..., None]).flatten(1), n_chosen)[1]
    # In ascending order again, so that the candidates are in the order of beam * V + word.
    groups = groups.sort(-1).values
    beam = groups // n_groups
    first = (groups - beam * n_groups) * GROUP
    words = first[..., None] + torch.arange(GROUP, device=first.device)  # (B, n, GROUP)
    flat = words + (beam * vocab_size)[..., None]
    if vocab_size % GROUP:
        outside = words >= vocab_size
        flat = flat.masked_fill(outside, 0)
    values = log_probs.view(n_sentences, -1).gather(1, flat.view(n_sentences, -1)).view_as(flat)  # (B, n, GROUP)
    values += scores.gather(1, beam)[..., None]
    if vocab_size % GROUP:
        values = values.masked_fill(outside, -torch.inf)
    top, place = topk(values.view(n_sentences, -1), n)
    return top, flat.view(n_sentences, -1).gather(1, place)


def argmax(logits: Tensor) -> Tensor:
    """Return the argmax of logits (..., V) over V; ties go to the lowest index."""
    if logits.shape[-1] <= 2 * GROUP:
        return logits.argmax(-1)
    group = _group_maxima(logits).argmax(-1, keepdim=True)  # (..., 1)
    words = group * GROUP + torch.arange(GROUP, device=logits.device)
    # A short last group repeats its last word; the first of equal values remains the right one.
    words = words.clamp_(max=logits.shape[-1] - 1)
    return words.gather(-1, logits.gather(-1, words).argmax(-1, keepdim=True)).squeeze(-1)


def _group_maxima(rows: Tensor) -> Tensor:
    """Return the maximum of each group (..., ceil(V / GROUP)) of rows (..., V)."""
    whole = rows.shape[-1] // GROUP * GROUP
    peaks: Tensor = rows[..., :whole].reshape(*rows.shape[:-1], -1, GROUP).amax(-1)
    if whole < rows.shape[-1]:
        # A short last group where GROUP does not divide V.
        peaks = torch.cat([peaks, rows[..., whole:].amax(-1, keepdim=True)], -1)
    return peaks


def _keys(values: Tensor) -> Tensor:
    """Return int64 keys (B, M) that sort float32 values, ties by falling index."""
    bits = (values + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    # The bits of floats sort like their values, in reverse order for negative ones.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) - torch.arange(values.shape[1], device=values.device)  # index in the lower bits
