"""Tree of a beam search: every partial translation that was kept, and its outcome.

Filled in only where somebody hands one to the search, which chooses the same words with it and without. Kept on the
host, a node a word: it is made to be looked at. Letters: B sentences, K beams, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from attnkit.decoding.hypotheses import Hypothesis
from attnkit.decoding.selection import topk_continuations
from attnkit.protocols import EOS_ID

NodeStatus = Literal["open", "pruned", "ended", "cut"]
"""Kept among the best K; looked at and dropped at once; ended by EOS_ID; ended by the greatest length."""


@dataclass
class Node:
    """A word that follows on another. The way from the root to a node is a partial translation."""

    step: int
    """Its place in the translation, from 0."""
    parent: int | None
    """The node before it, None at the beginning."""
    word: int
    log_prob: float
    """Natural logarithm of the probability of all words up to this one."""
    status: NodeStatus
    score: float | None = None
    """Of a finished translation, as its ``Hypothesis`` has it; None where nothing ended or it was not asked for."""


class BeamTrace:
    """What ``beam_search`` tells while it works; afterwards ``nodes`` holds a list for each sentence."""

    def __init__(self, n_sentences: int) -> None:
        self.nodes: list[list[Node]] = [[] for _ in range(n_sentences)]
        self._before: list[list[int | None]] = [[None] for _ in range(n_sentences)]
        self._now: list[list[int | None]] = [[None] for _ in range(n_sentences)]

    def expand(self, sentences: Tensor, log_probs: Tensor, scores: Tensor, n_beams: int) -> None:
        """Take in one step of sentences (B,): the best ``n_beams`` continuations go on, as many again are pruned.

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
                path = self.path(sentence, hypothesis)
                if path:
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
    """Return the node of a word that follows on another; no word follows twice on one."""
    return next(i for i, node in enumerate(nodes) if node.parent == parent and node.word == word)
