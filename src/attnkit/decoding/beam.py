"""Beam search, as Hugging Face's with ``early_stopping=True`` and CTranslate2's.

At each step the 2K best continuations of a sentence's K beams are looked at. Those that end the sentence and are among
the best K become hypotheses with score log-prob / length**alpha; the best K that go on are the next beams. A sentence
is done with K hypotheses. At its greatest length the best K continuations become hypotheses whether they end or not,
and compete by score, so every sentence has K unless the rules allow fewer. Letters: B sentences, K beams, V words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnkit.decoding.beam_trace import BeamTrace
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory, active_rows
from attnkit.decoding.selection import topk_continuations
from attnkit.protocols import BOS_ID, EOS_ID


def beam_search(
    ensemble: Ensemble, batch: SourceBatch, config: SearchConfig, history: SearchHistory, tree: BeamTrace | None = None
) -> int:
    """Run beam search into the history and the optional tree; return the vocabulary size."""
    rules = Constraints(config, batch)
    limits, last_steps = torch.tensor(batch.limits, device=batch.device), set(batch.limits)
    prev = torch.full((len(limits), 1), BOS_ID, device=batch.device)  # (B, 1): all beams are equal at first
    scores = torch.zeros(len(limits), 1, device=batch.device)  # (B, 1), later (B, K)
    n_ended = torch.zeros(len(limits), dtype=torch.long, device=batch.device)  # (B,)
    for step in range(max(batch.limits)):
        log_probs = ensemble.log_probs(ensemble.logits(prev, rules))  # (B, K, V)
        history.record_attention(ensemble.attention)
        rules.mask_logits(log_probs, step)
        vocab_size = log_probs.shape[-1]
        end_scores = log_probs[..., EOS_ID] + scores  # (B, K)
        # At most K of the 2K best end, so the best K that go on are found without the ends.
        log_probs[..., EOS_ID] = -torch.inf
        # One beam is enough as long as every sentence's next word is forced.
        widen = step >= batch.shortest_prefix
        n_beams = config.beam_size if widen else 1
        if tree is not None:
            going = n_ended < config.beam_size
            tree.expand(history.alive[going], log_probs[going], scores[going], n_beams)
        scores, flat = topk_continuations(log_probs, scores, n_beams)  # both (B, K); flat is beam · V + token
        # Most steps end nothing: one comparison spares them the ranking.
        if step + 1 in last_steps or bool((end_scores >= scores[:, -1:]).any()):
            last = limits == step + 1
            totals, endings, ends = _ranked(end_scores, scores, flat, vocab_size)
            chosen = (ends | last[:, None]) & (totals > -torch.inf) & (n_ended < config.beam_size)[:, None]
            history.finish(chosen, endings, totals, ends)
            if tree is not None:
                tree.finish_rows(history.alive, chosen, endings, totals, vocab_size)
            # Where no beam goes on there is nothing left to wait for.
            n_ended += chosen.sum(1) + config.beam_size * (last | (scores[:, 0] == -torch.inf))
            # Finished sentences leave the batch, rounded so that shapes seldom change.
            rows = active_rows(n_ended >= config.beam_size)
            if rows is not None:
                if not len(rows):
                    break
                for part in (ensemble, rules, history):
                    part.select_rows(rows)
                scores, flat, limits, n_ended = scores[rows], flat[rows], limits[rows], n_ended[rows]
        history.append(flat)
        parents = flat // vocab_size  # (B, K)
        # flat mod V, without a second division.
        prev = flat - parents * vocab_size
        if widen:
            ensemble.reorder_beams(parents)
        rules.advance(parents, prev)
    return vocab_size


def _ranked(end_scores: Tensor, scores: Tensor, flat: Tensor, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best K of ends (B, K) and continuations (B, K): their scores, beam * V + word, and which are ends.

    They are in the order of their scores; the lower beam * V + word comes first among equals.
    """
    # One row of candidates: the ends of all beams, then the continuations.
    n_ends = end_scores.shape[1]
    ends = torch.arange(n_ends, device=flat.device) * vocab_size + EOS_ID
    both, flats = torch.cat([end_scores, scores], 1), torch.cat([ends.expand(len(flat), -1), flat], 1)  # (B, 2 K) each
    # Sorted by index first: the stable sort by score then keeps ties in that order.
    order = flats.argsort(-1)
    order = order.gather(1, both.gather(1, order).sort(dim=-1, descending=True, stable=True).indices)
    order = order[:, : scores.shape[1]]
    return both.gather(1, order), flats.gather(1, order), order < n_ends
