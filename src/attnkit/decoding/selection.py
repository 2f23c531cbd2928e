"""The best few of many numbers, exactly: higher value first, lower index first among equals.

A vocabulary is cut into groups of consecutive words. Only the groups with the highest peaks can hold the best words, so
one vectorised maximum per group replaces a selection over the whole row. Ties stay exact because a group that loses one
to an earlier group has only later words. Letters: B sentences, K beams, V words.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP = 64  #: words per group: near the square root of V for V = 8,000, and whole vector registers


def topk(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n highest of each row of float32 values (B, M), descending, and their indices, both (B, n).

    ``torch.topk`` promises no order among equals, so where there are any the choice is made again over integer keys.
    Rows with fewer than n values are filled up with -inf at index 0.
    """
    missing = n - values.shape[1]
    if missing >= 0:
        index = _keys(values).argsort(dim=-1, descending=True)
        return F.pad(values.gather(1, index), (0, missing), value=-torch.inf), F.pad(index, (0, missing))
    # One more than needed: a tie may lie across the border.
    top, index = values.topk(n + 1)
    if bool((top[:, 1:] == top[:, :-1]).any()):
        index = _keys(values).topk(n).indices
        return values.gather(1, index), index
    return top[:, :n], index[:, :n]


def topk_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n best sums of a beam's score and a word's log-probability per sentence.

    Takes log_probs (B, K, V) and scores (B, K), both float32. Returns the sums (B, n), descending, and beam * V + word.
    """
    n_sentences, _, vocab_size = log_probs.shape
    if vocab_size <= 2 * GROUP:
        return topk((log_probs + scores[..., None]).flatten(1), n)
    peaks = _group_maxima(log_probs)  # (B, K, groups)
    n_groups = peaks.shape[-1]
    n_chosen = min(n, n_groups * scores.shape[1])
    groups = topk((peaks + scores[..., None]).flatten(1), n_chosen)[1]
    # In ascending order again, so that a lower place among the candidates is a lower beam * V + word.
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
    """Return the index of the highest of each row of logits (..., V), the lowest index among equals."""
    if logits.shape[-1] <= 2 * GROUP:
        return logits.argmax(-1)
    group = _group_maxima(logits).argmax(-1, keepdim=True)  # (..., 1)
    words = group * GROUP + torch.arange(GROUP, device=logits.device)
    # A short last group repeats its last word, which then never is the first of the equals.
    words = words.clamp_(max=logits.shape[-1] - 1)
    return words.gather(-1, logits.gather(-1, words).argmax(-1, keepdim=True)).squeeze(-1)


def _group_maxima(rows: Tensor) -> Tensor:
    """Return the highest value of each group (..., ceil(V / GROUP)) of rows (..., V)."""
    whole = rows.shape[-1] // GROUP * GROUP
    peaks: Tensor = rows[..., :whole].reshape(*rows.shape[:-1], -1, GROUP).amax(-1)
    if whole < rows.shape[-1]:
        # A short last group where GROUP does not divide V.
        peaks = torch.cat([peaks, rows[..., whole:].amax(-1, keepdim=True)], -1)
    return peaks


def _keys(values: Tensor) -> Tensor:
    """Return distinct int64 keys (B, M) that order float32 values, and equal ones by falling index."""
    bits = (values + 0.0).view(torch.int32)  # + 0.0 makes one of both zeros
    # Floats order as their bits do, negative ones backwards.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) - torch.arange(values.shape[1], device=values.device)  # index in the lower bits
