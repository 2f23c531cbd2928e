"""History and results of a search.

Steps are stored unchanged, and results are traced back once at the end, so nothing is reordered at each step.

Letters: B sentences of the batch, K beams, V words, S source length, N ended translations.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import SourceBatch
from attnkit.decoding.hypothesis import NOTHING, Hypothesis, differences
from attnkit.protocols import EOS_ID

ENOUGH_ALIVE = 0.8  #: share of unfinished sentences below which finished ones are dropped; dropping copies states
ROUND = 8  #: the number of kept rows is a multiple of this, or 1, 2 or 4, so that kernels are reused


class _Endings(NamedTuple):
    """Ended hypotheses as arrays (N,) on the host."""

    sentences: NDArray[np.int64]
    steps: NDArray[np.int64]  #: step of the last token: the length including EOS_ID, minus 1
    beams: NDArray[np.int64]  #: index of the parent beam
    words: NDArray[np.int64]  #: the last token
    log_probs: NDArray[np.float64]
    finished: NDArray[np.bool_]


class SearchHistory:
    """Choices of every step and the hypotheses that have ended."""

    def __init__(self, batch: SourceBatch, *, record: bool, token_scores: bool = False) -> None:
        self.batch, self.record, self._keeps_scores = batch, record, token_scores
        self.alive = torch.arange(len(batch.limits), device=batch.device)
        self._places = self.alive
        self._steps: list[tuple[Tensor, Tensor]] = []
        self._scores: list[Tensor] = []  # as ``_steps``: log-probabilities (B, K) of the text so far
        self._attention: list[tuple[Tensor, Tensor]] = []
        # Step; sentences, old beam * V + last word, log-probabilities, and whether EOS_ID ended them.
        self._ended: list[tuple[int, list[Tensor]]] = []

    def record_attention(self, attention: Tensor | None, n_beams: int | None = None) -> None:
        """Store a step's attention (B, K, S), or (B, 1, S) shared by ``n_beams``.

        Does nothing unless attention is recorded. Raises ``ValueError`` if the model returns no attention weights.
        """
        if self.record:
            if attention is None:
                raise ValueError("attention weights were requested, but this model has none")
            shape = (-1, n_beams or -1, -1)
            # Cloned, as the model may reuse its memory; expanded, so that all hypotheses share one row.
            self._attention.append((attention.clone().expand(shape), self._places))

    def finish(self, chosen: Tensor, flat: Tensor, log_probs: Tensor, finished: Tensor) -> None:
        """Record hypotheses that end at this step, all (B, K); flat is beam * V + word."""
        rows, _ = at = chosen.nonzero(as_tuple=True)
        self._ended.append((len(self._steps), [self.alive[rows], flat[at], log_probs[at], finished[at]]))

    def append(self, flat: Tensor, log_probs: Tensor) -> None:
        """Record the continuations (B, K) of a step as old beam * V + word."""
        self._steps.append((flat, self._places))
        if self._keeps_scores:
            self._scores.append(log_probs.clone())  # sampling adds to its sums in place

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the sentences of the given rows (n,)."""
        self.alive = self.alive[rows]
        # A new tensor, as earlier steps keep the mapping with which they were recorded.
        self._places = torch.zeros_like(self._places)
        self._places[self.alive] = torch.arange(len(rows), device=rows.device)

    def hypotheses(self, config: SearchConfig, vocab_size: int, *, record: bool) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first; samples in sampling order.

        At least one is returned; fewer than ``num_hypotheses`` only if the constraints allow no more.
        """
        # The endings of all steps, copied to the host.
        none = torch.empty(0, dtype=torch.long)
        empty = (none, none, none.double(), none.bool())
        sentences, flat, log_probs, finished = (  # (N,) each; flat is beam * V + word
            torch.cat([start, *(own[i].cpu() for _, own in self._ended)]).numpy() for i, start in enumerate(empty)
        )
        counts = [len(own[0]) for _, own in self._ended]
        steps = np.repeat(np.array([step for step, _ in self._ended], np.int64), counts)
        found = _Endings(sentences, steps, flat // vocab_size, flat % vocab_size, log_probs, finished)
        # Wu et al. 2016 without their constant 5; steps + 1 counts EOS.
        scores = found.log_probs / (found.steps + 1.0) ** config.length_penalty
        if config.coverage_penalty:
            scores += config.coverage_penalty * self._coverage(found, vocab_size)
        # By sentence, then best score or sample number; stable, so earlier endings come first among ties.
        order = np.lexsort((found.beams if config.sampling else -scores, found.sentences))
        sentences = found.sentences[order]
        # The rank within the sentence; searchsorted finds where the sentence starts.
        order = order[np.arange(len(order)) - np.searchsorted(sentences, sentences) < config.num_hypotheses]
        columns: list[NDArray[Any]] = [column[order] for column in found]
        found, scores = _Endings(*columns), scores[order]
        words, beams = self._trace(found, vocab_size)
        weights = self._gather(found, beams).numpy() if record else None
        sums = self._sums(found, beams) if self._keeps_scores else None
        results: list[list[Hypothesis]] = [[] for _ in self.batch.limits]
        for i, sentence in enumerate(found.sentences.tolist()):
            n_words = int(found.steps[i]) + int(found.words[i] != EOS_ID)
            ids, numbers = words[i, :n_words].tolist(), (float(scores[i]), float(found.log_probs[i]))
            own = None if weights is None else weights[i, :n_words, : self.batch.lengths[sentence]].copy()
            tokens = None if sums is None else differences(sums[i, : int(found.steps[i]) + 1])
            results[sentence].append(Hypothesis(ids, *numbers, own, bool(found.finished[i]), tokens))
        # Only non-finite model outputs leave a sentence without a hypothesis.
        return [own or [NOTHING] for own in results]

    def _trace(self, found: _Endings, vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Trace N endings back; return words and beams, (N, steps), 0 after the end."""
        n_steps = int(found.steps.max(initial=-1)) + 1
        words = np.zeros((len(found.steps), n_steps), np.int64)
        beams = np.zeros_like(words)
        at = found.beams.copy()
        for step in reversed(range(n_steps)):
            ends = found.steps == step
            # The last word is not among the steps, as an ended hypothesis may have left the beam.
            words[ends, step] = found.words[ends]
            goes_on = (found.steps > step).nonzero()[0]
            if len(goes_on):
                flat, places = (part.cpu().numpy() for part in self._steps[step])
                # flat is beam * V + word; places maps a sentence to its row, which changes as others finish.
                came = flat[places[found.sentences[goes_on]], at[goes_on]]  # (n,)
                words[goes_on, step] = came % vocab_size
                at[goes_on] = came // vocab_size
            beams[:, step] = at
        return words, beams

    def _gather(self, found: _Endings, beams: NDArray[np.int64]) -> Tensor:
        """Return attention (N, steps, S) along the given beams, 0 after the end."""
        weights = torch.zeros(*beams.shape, self._attention[0][0].shape[-1])  # (N, steps, S)
        for step, (seen, places) in enumerate(self._attention[: beams.shape[1]]):
            there = torch.from_numpy((found.steps >= step).nonzero()[0])
            rows = places.cpu()[torch.from_numpy(found.sentences)[there]]
            weights[there, step] = seen.cpu()[rows, torch.from_numpy(beams[:, step])[there]]
        return weights

    def _sums(self, found: _Endings, beams: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log-probabilities (N, steps) of the text up to each token of N endings."""
        sums = np.zeros(beams.shape)
        for step, (scores, (_, places)) in enumerate(zip(self._scores, self._steps, strict=True)):
            there = (found.steps > step).nonzero()[0]
            if len(there):  # the beam of a step is the parent of the next one
                rows = places.cpu().numpy()[found.sentences[there]]
                sums[there, step] = scores.cpu().numpy()[rows, beams[there, step + 1]]
        sums[np.arange(len(sums)), found.steps] = found.log_probs
        return sums

    def _coverage(self, found: _Endings, vocab_size: int) -> NDArray[np.float64]:
        """Return sums of log(min(coverage, 1)): Wu et al. 2016, eq. 14, without beta."""
        # (N, S), clamped from below so that an unattended word costs a finite penalty.
        got = self._gather(found, self._trace(found, vocab_size)[1]).double().sum(1).clamp_(1e-9, 1.0)
        lengths = torch.tensor(self.batch.lengths)[torch.from_numpy(found.sentences)]
        padded = torch.arange(got.shape[1]) >= lengths[:, None]
        return np.asarray(got.log_().masked_fill_(padded, 0.0).sum(1).numpy())


def active_rows(done: Tensor) -> Tensor | None:
    """Return the rows (n,) to keep, or None while too few of ``done`` (B,) are True."""
    n_alive = len(done) - int(done.sum())
    unit = min(ROUND, 1 << (n_alive - 1).bit_length()) if n_alive else 1
    n_kept = -(-n_alive // unit) * unit
    if n_alive >= ENOUGH_ALIVE * len(done) or n_kept >= len(done):
        return None
    # Unfinished rows come first and finished ones fill up the rounded number; the order is kept.
    return done.to(torch.uint8).argsort(stable=True)[:n_kept].sort().values
