"""Decoding without a beam: greedy search and sampling.

The random number of a draw depends only on (seed, key of the line, number of the sample, step), so batch size, other
sentences in the batch and order never change a sample. Letters: B sentences, N samples, V words, T steps.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, SourceBatch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory, active_rows
from attnkit.decoding.selection import argmax, topk
from attnkit.protocols import BOS_ID, EOS_ID

# Chooses words (B, N) from logits (B, N, V), given the step and the batch indices (B,) of the sentences.
Pick = Callable[[Tensor, int, Tensor], Tensor]
# Receives the batch indices (B,) of sentences and the words (B, N) of each step; EOS_ID after the end.
TokenCallback = Callable[[Tensor, Tensor], None]
_FIRST_GUESS = 128  #: words sorted first for top_p; more are sorted if their probability is too small


def decode_step_by_step(
    ensemble: Ensemble,
    batch: SourceBatch,
    config: SearchConfig,
    history: SearchHistory,
    pick: Pick,
    on_step: TokenCallback | None = None,
) -> int:
    """Decode ``num_hypotheses`` per sentence into history; return vocabulary size."""
    rules = Constraints(config, batch)
    limits = torch.tensor(batch.limits, device=batch.device)  # (B,), maximum steps per sentence
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
        # Before masking, so scores are the model's log-probabilities. Greedy search without scores skips the softmax.
        log_probs = ensemble.log_probs(logits) if config.scores or config.token_scores or config.sampling else None
        rules.mask_scores(logits, step)
        words = pick(logits, step, history.alive)
        # An ended hypothesis repeats EOS until all hypotheses of its sentence have ended.
        words = rules.force(words, step).masked_fill_(over, EOS_ID)
        if on_step is not None:
            on_step(history.alive, words)
        if log_probs is None:
            totals.fill_(torch.nan)
        else:
            totals += log_probs.gather(-1, words[..., None])[..., 0].masked_fill_(over, 0)
        flat = numbers * logits.shape[-1] + words  # (B, N): hypothesis · V + token
        ending = (words == EOS_ID) & ~over
        # limits is on the device, last_steps on the host; most steps skip the comparison.
        if step + 1 in last_steps:
            ending |= (limits == step + 1)[:, None] & ~over
        if (stopped := batch.stopped(history.alive)) is not None:
            ending |= stopped[:, None] & ~over
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
        history.append(flat, totals)
        if step == 0 and n_walks > 1:
            # The first step ran one row per sentence, from which all hypotheses start.
            ensemble.reorder_beams(torch.zeros_like(words))
        rules.advance(torch.zeros_like(words) if step == 0 else None, words)
        prev = words
    return logits.shape[-1]


def pick_best(logits: Tensor, step: int, places: Tensor) -> Tensor:
    """Pick the most probable word; ties go to the lowest id, unlike torch.argmax."""
    return argmax(logits)


def build_sampler(config: SearchConfig, batch: SourceBatch) -> Pick:
    """Build the sampling function from temperature, top_k, top_p and seed."""
    noise = torch.from_numpy(uniform(config.seed, batch.keys, config.num_hypotheses, max(batch.limits)))  # (T, B, N)
    # Sampling needs float64, which Apple GPUs do not support, so it runs on the CPU there.
    where = torch.device("cpu") if batch.device.type == "mps" else batch.device
    noise = noise.to(where)

    def pick(logits: Tensor, step: int, places: Tensor) -> Tensor:
        rows = logits.flatten(0, 1).to(where) / config.temperature  # (B * N, V)
        words = draw(rows, noise[step, places.to(where)].view(-1), config.top_k, config.top_p)
        return words.view(logits.shape[:2]).to(logits.device)

    return pick


def uniform(seed: int, keys: Sequence[int], n_samples: int, n_steps: int) -> NDArray[np.float64]:
    """Return uniform random numbers (T, B, N) in [0, 1), multiples of 2**-52.

    Each hashes seed, key, sample and step, in this order, with splitmix64's finaliser (Steele et al. 2014).
    """
    # Negative keys wrap around: numpy would refuse them as unsigned.
    rows = np.array([key & (2**64 - 1) for key in keys], np.uint64)
    state = _mix(_mix(np.array([seed], np.uint64)) ^ rows)  # (B,)
    state = _mix(state[:, None] ^ np.arange(n_samples, dtype=np.uint64))  # (B, N)
    state = _mix(state ^ np.arange(n_steps, dtype=np.uint64)[:, None, None])  # (T, B, N)
    # The top 52 bits: float64 represents them exactly, so rounding cannot give 1.0.
    return (state >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit integers by a bijection (splitmix64)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def draw(logits: Tensor, noise: Tensor, top_k: int, top_p: float) -> Tensor:
    """Draw one word per row of logits (N, V), given noise (N,) in [0, 1).

    ``top_k`` keeps the k most probable words; of these, ``top_p`` keeps the fewest with a share of at least p.
    """
    if not top_k and top_p == 1:
        return _invert(logits.softmax(-1), noise)
    vocab_size = logits.shape[-1]
    if top_k:
        values, words = topk(logits, min(top_k, vocab_size))
        probs = values.softmax(-1, dtype=torch.float64)  # (N, top_k), descending
    else:
        # Normalised over all words, so that the sorted words have their true probabilities.
        norm = logits.double().logsumexp(-1, keepdim=True)  # (N, 1)
        n_sorted = min(_FIRST_GUESS, vocab_size)
        while True:
            values, words = topk(logits, n_sorted)  # (N, n_sorted), descending
            probs = (values - norm).exp()
            if n_sorted == vocab_size or bool((probs.sum(-1) >= top_p).all()):
                break
            n_sorted = min(8 * n_sorted, vocab_size)
    if top_p < 1:
        # A word is kept if the words before it have less than top_p in total; the first always is.
        probs = probs * (probs.cumsum(-1) - probs < top_p)
    return words.gather(-1, _invert(probs, noise)[:, None])[:, 0]


def _invert(probs: Tensor, noise: Tensor) -> Tensor:
    """Sample one index per row of unnormalised ``probs`` (N, M), given noise (N,)."""
    sums = probs.cumsum(-1, dtype=torch.float64)  # (N, M)
    # Noise is at most 1 - 2**-52, so the product is below the total and words of probability 0 are never drawn.
    index = torch.searchsorted(sums, noise[:, None] * sums[:, -1:], right=True)[:, 0]
    return index.clamp_(max=probs.shape[-1] - 1)  # only NaN exceeds the range
