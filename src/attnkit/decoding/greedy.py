"""Search without beams: each hypothesis is one walk, token by token, greedy or sampled."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory, active_rows
from attnkit.decoding.selection import argmax
from attnkit.protocols import BOS_ID, EOS_ID

Pick = Callable[[Tensor, int, Tensor], Tensor]
"""Chooses words (B, N) from logits (B, N, V), given the step and the places (B,) of the sentences in the batch."""
TokenCallback = Callable[[Tensor, Tensor], None]
"""Receives the places (B,) of sentences and each step's words (B, N); EOS_ID after the end."""


def decode_step_by_step(
    ensemble: Ensemble,
    batch: SourceBatch,
    config: SearchConfig,
    history: SearchHistory,
    pick: Pick,
    on_step: TokenCallback | None = None,
) -> int:
    """Take ``num_hypotheses`` walks per sentence into the history; return the vocabulary size."""
    rules = Constraints(config, batch)
    limits = torch.tensor(batch.limits, device=batch.device)  # (B,), most steps of each sentence
    n_sentences, n_walks, last_steps = len(limits), config.num_hypotheses, set(batch.limits)
    numbers = torch.arange(n_walks, device=batch.device)
    over = torch.zeros(n_sentences, n_walks, dtype=torch.bool, device=batch.device)  # (B, N)
    totals = torch.zeros(n_sentences, n_walks, device=batch.device)  # (B, N), log-probabilities
    prev = torch.full((n_sentences, 1), BOS_ID, device=batch.device)  # (B, 1): all hypotheses are equal at first
    for step in range(max(batch.limits)):
        logits = ensemble.logits(prev, rules)  # (B, N, V); N is 1 at the first step
        history.record_attention(ensemble.attention, n_walks)
        if logits.shape[1] < n_walks:
            logits = logits.expand(-1, n_walks, -1).contiguous()
        # Before masking: a score is the model's own log-probability. Greedy search without scores skips the softmax.
        log_probs = ensemble.log_probs(logits) if config.scores or config.sampling else None
        rules.mask_scores(logits, step)
        words = pick(logits, step, history.alive)
        # A hypothesis that has ended repeats EOS until all of its sentence have.
        words = rules.force(words, step).masked_fill_(over, EOS_ID)
        if on_step is not None:
            on_step(history.alive, words)
        if log_probs is None:
            totals.fill_(torch.nan)
        else:
            totals += log_probs.gather(-1, words[..., None])[..., 0].masked_fill_(over, 0)
        flat = numbers * logits.shape[-1] + words  # (B, N): hypothesis · V + token
        ending = (words == EOS_ID) & ~over
        # limits is on the device, last_steps on the host: most steps are spared the comparison.
        if step + 1 in last_steps:
            ending |= (limits == step + 1)[:, None] & ~over
        if bool(ending.any()):
            history.finish(ending, flat, totals, words == EOS_ID)
            over |= ending
            rows = active_rows(over.all(1))
            if rows is not None:
                if not len(rows):
                    break
                for part in (ensemble, rules, history):
                    part.select_rows(rows)
                words, flat, limits, over, totals = words[rows], flat[rows], limits[rows], over[rows], totals[rows]
        history.append(flat)
        if step == 0 and n_walks > 1:
            # The first step ran one row per sentence: every hypothesis starts from it.
            ensemble.reorder_beams(torch.zeros_like(words))
        rules.advance(torch.zeros_like(words) if step == 0 else None, words)
        prev = words
    return logits.shape[-1]


def pick_best(logits: Tensor, step: int, places: Tensor) -> Tensor:
    """Pick the likeliest word; the lowest id among equals, on every device: torch.argmax does not promise it."""
    return argmax(logits)
