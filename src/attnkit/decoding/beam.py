"""Beam search, as Hugging Face's with ``early_stopping=True`` and CTranslate2's, and a record of its tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import Hypothesis, SearchHistory, active_rows
from attnkit.decoding.selection import topk_continuations
from attnkit.protocols import BOS_ID, EOS_ID

# Still in the beam; pruned; finished by EOS; truncated at the maximum length.
NodeStatus = Literal["open", "pruned", "ended", "cut"]


@dataclass
class Node:
    """Node of the beam-search tree: one token. The path from the root is a partial translation."""

    step: int  #: time step, from 0
    parent: int | None  #: parent node; None at the first step
    word: int
    log_prob: float  #: natural logarithm of the probability of all words up to this one
    status: NodeStatus
    score: float | None = None  #: score of the ``Hypothesis`` that ends here, if any was returned


class BeamTrace:
    """Records the beam-search tree; ``nodes`` holds one list of nodes per sentence."""

    def __init__(self, n_sentences: int) -> None:
        self.nodes: list[list[Node]] = [[] for _ in range(n_sentences)]
        self._before: list[list[int | None]] = [[None] for _ in range(n_sentences)]
        self._now: list[list[int | None]] = [[None] for _ in range(n_sentences)]

    def expand(self, sentences: Tensor, log_probs: Tensor, scores: Tensor, n_beams: int) -> None:
        """Take in one step of sentences (B,): the best ``n_beams`` continuations survive, as many again are pruned.

        ``log_probs`` (B, K, V) and ``scores`` (B, K) are those from which the search chooses, ends left out.
        """
        totals, flat = topk_continuations(log_probs, scores, 2 * n_beams)  # (B, 2 K) each
        vocab_size = log_probs.shape[-1]
        for sentence, values, places in zip(sentences.tolist(), totals.tolist(), flat.tolist(), strict=True):
            nodes = self.nodes[sentence]
            # Ends of this step belong to the beams before it: finish_rows reads them.
            before = self._before[sentence] = self._now[sentence]
            now = self._now[sentence] = []
            for rank, (log_prob, place) in enumerate(zip(values, places, strict=True)):
                beam, word = divmod(place, vocab_size)
                # Where the rules leave too few words, what fills up the rest has no probability.
                there = log_prob > -float("inf")
                if rank < n_beams:
                    now.append(len(nodes) if there else None)
                if there:
                    parent = before[beam]
                    step = 0 if parent is None else nodes[parent].step + 1
                    nodes.append(Node(step, parent, word, log_prob, "open" if rank < n_beams else "pruned"))

    def finish_rows(self, sentences: Tensor, chosen: Tensor, flat: Tensor, totals: Tensor, vocab_size: int) -> None:
        """Take in the translations that end at the step just grown: where ``chosen`` (B, K), beam * V + word."""
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
        """Give the ends of hypotheses their scores."""
        for sentence, hypotheses in enumerate(found):
            for hypothesis in hypotheses:
                if path := self.path(sentence, hypothesis):
                    self.nodes[sentence][path[-1]].score = hypothesis.score

    def path(self, sentence: int, hypothesis: Hypothesis) -> list[int]:
        """Return the nodes of a hypothesis from its first word to its end, its EOS_ID included."""
        nodes, parent = self.nodes[sentence], None
        path: list[int] = []
        for word in hypothesis.ids + [EOS_ID] * hypothesis.finished:
            parent = _child(nodes, parent, word)
            path.append(parent)
        return path


def _child(nodes: Sequence[Node], parent: int | None, word: int) -> int:
    """Return the child node of ``parent`` with this word; children have distinct words."""
    return next(i for i, node in enumerate(nodes) if node.parent == parent and node.word == word)


def beam_search(
    ensemble: Ensemble, batch: SourceBatch, config: SearchConfig, history: SearchHistory, tree: BeamTrace | None = None
) -> int:
    """Run beam search, recording into ``history`` and ``tree``; return the vocabulary size."""
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
        # At most K of the 2K best end, so the best K that continue are found without the ends.
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
            # Where no beam continues there is nothing left to wait for.
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
