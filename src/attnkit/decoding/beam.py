"""Beam search as in CTranslate2 or Hugging Face with ``early_stopping=True``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory, active_rows
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.decoding.selection import topk_continuations
from attnkit.protocols import BOS_ID, EOS_ID

# In the beam; pruned; finished by EOS; truncated at the maximum length.
NodeStatus = Literal["open", "pruned", "ended", "cut"]


@dataclass
class Node:
    """Node of the beam-search tree: one token that extends a hypothesis."""

    step: int  #: time step, from 0
    parent: int | None  #: parent node; None at the first step
    word: int
    log_prob: float  #: natural logarithm of the probability of the path from the root
    status: NodeStatus
    score: float | None = None  #: score of the returned ``Hypothesis`` that ends here, if any


class BeamTrace:
    """Recorded beam-search trees; ``nodes`` holds one list of nodes per sentence."""

    def __init__(self, n_sentences: int) -> None:
        self.nodes: list[list[Node]] = [[] for _ in range(n_sentences)]
        self._before: list[list[int | None]] = [[None] for _ in range(n_sentences)]
        self._now: list[list[int | None]] = [[None] for _ in range(n_sentences)]

    def expand(self, sentences: Tensor, log_probs: Tensor, scores: Tensor, n_beams: int) -> None:
        """Add a step: ``n_beams`` open nodes per sentence and as many pruned nodes.

        ``sentences`` (B,) are indices; ``log_probs`` (B, K, V), without EOS, plus ``scores`` (B, K) rank the nodes.
        """
        totals, flat = topk_continuations(log_probs, scores, 2 * n_beams)  # (B, 2 K) each
        vocab_size = log_probs.shape[-1]
        for sentence, values, places in zip(sentences.tolist(), totals.tolist(), flat.tolist(), strict=True):
            nodes = self.nodes[sentence]
            # Hypotheses that end at this step extend the previous beams, which finish_rows reads.
            before = self._before[sentence] = self._now[sentence]
            now = self._now[sentence] = []
            for rank, (log_prob, place) in enumerate(zip(values, places, strict=True)):
                beam, word = divmod(place, vocab_size)
                # If the constraints allow too few words, the remaining candidates have probability 0.
                there = log_prob > -float("inf")
                if rank < n_beams:
                    now.append(len(nodes) if there else None)
                if there:
                    parent = before[beam]
                    step = 0 if parent is None else nodes[parent].step + 1
                    nodes.append(Node(step, parent, word, log_prob, "open" if rank < n_beams else "pruned"))

    def finish_rows(self, sentences: Tensor, chosen: Tensor, flat: Tensor, totals: Tensor, vocab_size: int) -> None:
        """Add hypotheses that end at this step: ``flat``, ``totals`` (B, K) at ``chosen``."""
        rows, _ = at = chosen.nonzero(as_tuple=True)
        ended = zip(sentences[rows].tolist(), flat[at].tolist(), totals[at].tolist(), strict=True)
        for sentence, place, log_prob in ended:
            beam, word = divmod(place, vocab_size)
            nodes, parent = self.nodes[sentence], self._before[sentence][beam]
            if word == EOS_ID:
                step = 0 if parent is None else nodes[parent].step + 1
                nodes.append(Node(step, parent, word, log_prob, "ended"))
            else:
                nodes[_child(nodes, parent, word)].status = "cut"

    def finish(self, found: Sequence[Sequence[Hypothesis]]) -> None:
        """Set the scores of the nodes at which the returned hypotheses end."""
        for sentence, hypotheses in enumerate(found):
            for hypothesis in hypotheses:
                if path := self.path(sentence, hypothesis):
                    self.nodes[sentence][path[-1]].score = hypothesis.score

    def path(self, sentence: int, hypothesis: Hypothesis) -> list[int]:
        """Return the node indices of a hypothesis, including EOS if it is finished."""
        nodes, parent = self.nodes[sentence], None
        path: list[int] = []
        for word in hypothesis.ids + [EOS_ID] * hypothesis.finished:
            parent = _child(nodes, parent, word)
            path.append(parent)
        return path


def _child(nodes: Sequence[Node], parent: int | None, word: int) -> int:
    """Return the index of the only child of ``parent`` with this word."""
    return next(i for i, node in enumerate(nodes) if node.parent == parent and node.word == word)


def beam_search(
    ensemble: Ensemble, batch: SourceBatch, config: SearchConfig, history: SearchHistory, tree: BeamTrace | None = None
) -> int:
    """Run beam search into ``history`` and ``tree``; return the vocabulary size."""
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
        # At most K of the 2K best candidates are ends, so the best K continuations suffice.
        log_probs[..., EOS_ID] = -torch.inf
        # One beam is enough while the next word of every sentence is forced.
        widen = step >= batch.shortest_prefix
        n_beams = config.beam_size if widen else 1
        if tree is not None:
            going = n_ended < config.beam_size
            tree.expand(history.alive[going], log_probs[going], scores[going], n_beams)
        scores, flat = topk_continuations(log_probs, scores, n_beams)  # both (B, K); flat is beam · V + token
        stopped = batch.stopped(history.alive)
        if stopped is not None:  # this step is their last
            limits = limits.masked_fill(stopped, step + 1)
        # Most steps end no hypothesis, and one comparison avoids the ranking.
        if step + 1 in last_steps or stopped is not None or bool((end_scores >= scores[:, -1:]).any()):
            last = limits == step + 1
            totals, endings, ends = _ranked(end_scores, scores, flat, vocab_size)
            chosen = (ends | last[:, None]) & (totals > -torch.inf) & (n_ended < config.beam_size)[:, None]
            history.finish(chosen, endings, totals, ends)
            if tree is not None:
                tree.finish_rows(history.alive, chosen, endings, totals, vocab_size)
            # A sentence is done at its limit, or if no beam can continue.
            n_ended += chosen.sum(1) + config.beam_size * (last | (scores[:, 0] == -torch.inf))
            # Drop finished sentences; the batch size is rounded so that shapes rarely change.
            rows = active_rows(n_ended >= config.beam_size)
            if rows is not None:
                if not len(rows):
                    break
                for part in (ensemble, rules, history):
                    part.select_rows(rows)
                scores, flat, limits, n_ended = scores[rows], flat[rows], limits[rows], n_ended[rows]
        history.append(flat, scores)
        parents = flat // vocab_size  # (B, K)
        # flat mod V, without a second division.
        prev = flat - parents * vocab_size
        if widen:
            ensemble.reorder_beams(parents)
        rules.advance(parents, prev)
    return vocab_size


def _ranked(end_scores: Tensor, scores: Tensor, flat: Tensor, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Merge ends and continuations, both (B, K), and return the best K candidates.

    Returns scores, beam * V + word and whether each is an end, by falling score; ties are ordered by beam * V + word.
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
