"""The one search for every model: greedy, beam or sampling, as the settings say.

Knows target words as ids, and models by what they promise (``SteppedModel``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.decoding.beam import beam_search
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.ensemble import Ensemble, SteppedModel
from attnkit.decoding.greedy import greedy_search
from attnkit.decoding.hypotheses import History, Hypothesis
from attnkit.decoding.rules import make_batch
from attnkit.decoding.sampling import sample

__all__ = ["Hypothesis", "search"]


@torch.inference_mode()
def search(
    models: Sequence[SteppedModel],
    src: Tensor,
    src_mask: Tensor | None,
    config: SearchConfig,
    *,
    prefix: Tensor | None = None,
    keys: Sequence[int] | None = None,
    record: bool = False,
) -> list[list[Hypothesis]]:
    """Search for translations of a batch; several models vote with the mean of their probabilities.

    A result depends on its own sentence alone, never on its place in the batch or on the batch's other sentences.

    Args:
        models: in evaluation mode, on the device of src, all over the same target vocabulary.
        src: ids (B, S), padded at the end.
        src_mask: (B, S), True at real tokens; None if nothing is padded.
        config: the settings.
        prefix: ids (B, P) that the translations begin with, padded at the end. They count in score and length.
        keys: what the samples of each sentence depend on besides the seed, such as its line number; None means its
            place in the batch.
        record: whether to return attention weights.

    Returns:
        Per sentence ``num_hypotheses`` of them, the best first (samples in the order of their number); fewer where the
        rules allow no more, never none.

    Raises:
        ValueError: shapes do not fit, a prefix holds BOS or EOS, the models' vocabularies differ in size, or attention
            is needed and a model has none.
    """
    if not models:
        raise ValueError("a search needs a model")
    if not len(src):
        return []
    batch = make_batch(src, src_mask, config, prefix, keys)
    look = record or config.coverage_penalty > 0
    width = config.num_hypotheses if config.sampling else config.beam_size
    states = [model.start(src, src_mask, width, max(batch.limits), look) for model in models]
    ensemble, history = Ensemble(models, states), History(batch, record=look)
    run = sample if config.sampling else beam_search if config.beam_size > 1 else greedy_search
    vocab_size = run(ensemble, batch, config, history)
    return history.hypotheses(config, vocab_size, record=record)
