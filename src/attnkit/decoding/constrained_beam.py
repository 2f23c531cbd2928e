"""Beam search with required terms: lexically constrained decoding.

Dynamic beam allocation (Post & Vilar 2018): hypotheses are in banks by the number of tokens of terms that they have,
and the beam is shared among the banks, so that the unlikely beginning of a term is not lost to likelier texts without
it. A hypothesis may end only with all terms. Letters: B sentences, K beams, V words, M continuations of a beam.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory, active_rows
from attnkit.decoding.required_terms import Progress, RequiredTerm, TermTrie
from attnkit.decoding.selection import argmax, topk
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

MAX_BANKS = 16  #: banks for which the beam is widened


class Continuation(NamedTuple):
    """A candidate: a word that continues a beam, or its end."""

    total: float  #: log-probability of the text
    flat: int  #: beam * V + word
    text: Progress
    is_end: bool = False


def beam_width(terms: Sequence[RequiredTerm], beam_size: int) -> int:
    """Return the number of beams of a sentence: room for all banks, up to a limit."""
    return max(beam_size, min(sum(term.n_tokens for term in terms) + 1, MAX_BANKS))


def share_beam(sizes: Mapping[int, int], width: int) -> dict[int, int]:
    """Return how many of the candidates of each bank stay, by their numbers.

    The banks take turns, from that with the most tokens of terms on.
    """
    shares = dict.fromkeys(sorted(sizes, reverse=True), 0)
    while width and any(shares[bank] < sizes[bank] for bank in shares):
        for bank in shares:
            if width and shares[bank] < sizes[bank]:
                shares[bank] += 1
                width -= 1
    return shares


class ConstrainedSentence:
    """Terms of a sentence, its beams, and how many hypotheses may still end."""

    def __init__(self, terms: Sequence[RequiredTerm], beam_size: int) -> None:
        self.trie = TermTrie(terms)
        self.width = beam_width(terms, beam_size)
        self.beams = [Progress()]
        self.n_wanted = beam_size
        self._has_ended = False

    def choose(
        self, candidates: Sequence[Continuation], is_last: bool
    ) -> tuple[list[Continuation], list[Continuation]]:
        """Return the next beams, and the hypotheses that end now.

        ``is_last`` is True at the maximum length, where those with the most terms are cut.
        """
        banks: dict[int, list[Continuation]] = defaultdict(list)
        for candidate in sorted(candidates, key=lambda one: (-one.total, one.flat)):
            banks[self.trie.n_done(candidate.text)].append(candidate)
        n_all = self.trie.n_tokens
        complete = banks.get(n_all, [])
        if is_last:
            chosen = complete if complete or self._has_ended or not banks else banks[max(banks)]
            return [], self._end(chosen)
        shares = share_beam({bank: len(found) for bank, found in banks.items()}, self.width)
        # As in beam search, an end counts if it is among the best of as many as the bank keeps.
        ended = self._end([one for one in complete[: max(1, shares.get(n_all, 0))] if one.is_end])
        goes_on = {bank: [one for one in found if not one.is_end] for bank, found in banks.items()}
        kept = [one for bank, n_kept in shares.items() for one in goes_on[bank][:n_kept]]
        return ([] if self.n_wanted == 0 else kept), ended

    def _end(self, candidates: Sequence[Continuation]) -> list[Continuation]:
        ended = list(candidates[: self.n_wanted])
        self.n_wanted -= len(ended)
        self._has_ended = self._has_ended or bool(ended)
        return ended


def constrained_beam_search(
    ensemble: Ensemble, batch: SourceBatch, config: SearchConfig, history: SearchHistory
) -> int:
    """Run the search for ``batch.required`` into ``history``; return vocabulary size."""
    assert batch.required is not None
    rules = Constraints(config, batch)
    device = batch.device
    rows = [ConstrainedSentence(terms, config.beam_size) for terms in batch.required.terms]
    limits = list(batch.limits)
    prev = torch.full((len(rows), 1), BOS_ID, device=device)  # (B, 1): one beam at first
    scores = torch.zeros(len(rows), 1, device=device)  # (B, 1), later (B, K)
    for step in range(max(limits)):
        log_probs = ensemble.log_probs(ensemble.logits(prev, rules))  # (B, K, V)
        history.record_attention(ensemble.attention)
        vocab_size = log_probs.shape[-1]
        rules.mask_logits(log_probs, step)
        found = _candidates(log_probs, scores, rows, batch.required.joins, config.beam_size, step)
        width = max(row.width for row in rows)
        if (stopped := batch.stopped(history.alive)) is not None:  # this step is their last
            limits = [step + 1 if ends else n for n, ends in zip(limits, stopped.tolist(), strict=True)]
        chosen = [row.choose(own, limit == step + 1) for row, own, limit in zip(rows, found, limits, strict=True)]
        flat, totals = _as_tensors([kept for kept, _ in chosen], width, device)
        ends, end_totals = _as_tensors([ended for _, ended in chosen], width, device)
        if bool((end_totals > -torch.inf).any()):
            history.finish(end_totals > -torch.inf, ends, end_totals, ends % vocab_size == EOS_ID)
        for row, (kept, _) in zip(rows, chosen, strict=True):
            row.beams = [one.text for one in kept]
        done = torch.tensor([not row.beams for row in rows], device=device)
        alive = active_rows(done)
        if alive is not None:
            if not len(alive):
                break
            for part in (ensemble, rules, history):
                part.select_rows(alive)
            rows, limits = [rows[i] for i in alive.tolist()], [limits[i] for i in alive.tolist()]
            flat, totals = flat[alive], totals[alive]
        history.append(flat, totals)
        scores, parents = totals, flat // vocab_size
        prev = flat % vocab_size
        ensemble.reorder_beams(parents)
        rules.advance(parents, prev)
    return vocab_size


def _word_ends(log_probs: Tensor, rows: Sequence[ConstrainedSentence], joins: Tensor) -> dict[tuple[int, int], int]:
    """Return the likeliest word (B, K, V) that leaves the last term of a beam whole."""
    places = [(b, k) for b, row in enumerate(rows) for k, text in enumerate(row.beams) if row.trie.must_end_word(text)]
    if not places:
        return {}
    flat = [b * log_probs.shape[1] + k for b, k in places]
    found = log_probs.flatten(0, 1)[flat].masked_fill(joins, -torch.inf)
    return dict(zip(places, argmax(found).tolist(), strict=True))


def _candidates(
    log_probs: Tensor, scores: Tensor, rows: Sequence[ConstrainedSentence], joins: Tensor, n_best: int, step: int
) -> list[list[Continuation]]:
    """Return each sentence's candidates: the best words, those of terms, and ends."""
    n_beams, vocab_size = log_probs.shape[1:]
    at_begin = step == 0
    end_totals = (log_probs[..., EOS_ID] + scores).tolist()  # (B, K)
    log_probs[..., EOS_ID] = -torch.inf
    best = topk(log_probs.flatten(0, 1), n_best)[1].view(len(rows), n_beams, -1)  # (B, K, M)
    ends = _word_ends(log_probs, rows, joins)
    wanted = [
        [
            [*row.trie.following(text, at_begin=at_begin), *([ends[b, k]] if (b, k) in ends else [])]
            for k, text in enumerate(row.beams)
        ]
        for b, row in enumerate(rows)
    ]
    n_wanted = max((len(own) for row in wanted for own in row), default=0)
    padded = [
        [own + [PAD_ID] * (n_wanted - len(own)) for own in row] + [[PAD_ID] * n_wanted] * (n_beams - len(row))
        for row in wanted
    ]
    words = torch.cat([best, torch.tensor(padded, dtype=torch.long, device=best.device)], -1)
    totals = (log_probs.gather(-1, words) + scores[..., None]).tolist()  # (B, K, M)
    is_joined = joins[words].tolist()
    found: list[list[Continuation]] = []
    for b, (row, row_words) in enumerate(zip(rows, words.tolist(), strict=True)):
        own: dict[int, Continuation] = {}
        for k, text in enumerate(row.beams):
            for word, total, joined in zip(row_words[k], totals[b][k], is_joined[b][k], strict=True):
                flat = k * vocab_size + word
                if total > -float("inf") and flat not in own:
                    after = row.trie.after(text, word, at_begin=at_begin, joins=joined)
                    own[flat] = Continuation(total, flat, after)
            if end_totals[b][k] > -float("inf") and row.trie.has_all(text):
                own[k * vocab_size + EOS_ID] = Continuation(
                    end_totals[b][k], k * vocab_size + EOS_ID, text, is_end=True
                )
        found.append(list(own.values()))
    return found


def _as_tensors(rows: Sequence[Sequence[Continuation]], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ``flat`` and ``total`` (B, K) of candidates, filled up with -inf."""
    flat = [[one.flat for one in row] + [0] * (width - len(row)) for row in rows]
    totals = [[one.total for one in row] + [-float("inf")] * (width - len(row)) for row in rows]
    return torch.tensor(flat, device=device), torch.tensor(totals, device=device)
