"""Greedy search, beam search and sampling for ``Decodable`` models."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from attnkit.decoding.beam import BeamTrace, beam_search
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Sources, make_batch
from attnkit.decoding.ensemble import Ensemble, apply_shortlist
from attnkit.decoding.hypotheses import SearchHistory
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.decoding.sampling import TokenCallback, build_sampler, decode_step_by_step, pick_best
from attnkit.protocols import Decodable

__all__ = ["Hypothesis", "Sources", "search"]


@torch.inference_mode()
def search(
    models: Sequence[Decodable],
    sources: Sources,
    config: SearchConfig,
    *,
    record: bool = False,
    tree: BeamTrace | None = None,
    on_step: TokenCallback | None = None,
) -> list[list[Hypothesis]]:
    """Return translations of a batch; several models form an ensemble.

    An ensemble averages probabilities. The result for a sentence does not depend on the rest of the batch.

    Args:
        models: in evaluation mode, on the device of the sources, all with the same target vocabulary.
        record: whether to return attention weights.
        tree: records the kept and pruned nodes of a beam search, without changing its result.
        on_step: called with the tokens of each step as they are chosen; not supported by beam search.

    Returns:
        ``num_hypotheses`` per sentence, best first (samples in sampling order); fewer if the constraints allow no
        more, but at least one.

    Raises:
        ValueError: no models, shapes do not match, a prefix contains BOS or EOS, vocabularies differ in size, a model
            lacks required attention weights, or the search does not support ``tree``, ``on_step`` or required terms.
    """
    required = sources.required
    beams = (config.beam_size > 1 or required is not None) and not config.sampling
    if not models:
        raise ValueError("models is empty; expected at least one model")
    if tree is not None and (not beams or sources.allowed is not None):
        raise ValueError("recording the tree requires beam search without a shortlist")
    if on_step is not None and (beams or sources.allowed is not None):
        raise ValueError("tokens can be streamed only by a search without beams and without a shortlist")
    if required is not None and (tree is not None or config.sampling):
        raise ValueError("required terms need beam search, and cannot be combined with recording the tree")
    if not len(sources.ids):
        return []
    shortlist, batch, config = apply_shortlist(sources, make_batch(sources, config), config)
    # The coverage penalty needs attention weights even if they are not returned.
    look = record or config.coverage_penalty > 0
    width = config.num_hypotheses if config.sampling else config.beam_size
    if required is not None:
        from attnkit.decoding.constrained_beam import beam_width, constrained_beam_search

        width = max(beam_width(terms, config.beam_size) for terms in required.terms)
    # Sources (B, S) are encoded once for all beams.
    states = [model.start(sources.ids, sources.mask, width, max(batch.limits), look) for model in models]
    # Greedy search without scores only compares logits, so half-precision logits are not converted.
    normalised = config.scores or config.token_scores or config.sampling or beams or config.repetition_penalty != 1
    ensemble = Ensemble(models, states, normalised=normalised, shortlist=shortlist)
    history = SearchHistory(batch, record=look, token_scores=config.token_scores)
    if required is not None:
        vocab_size = constrained_beam_search(ensemble, batch, config, history)
    elif beams:
        vocab_size = beam_search(ensemble, batch, config, history, tree)
    else:
        pick = build_sampler(config, batch) if config.sampling else pick_best
        vocab_size = decode_step_by_step(ensemble, batch, config, history, pick, on_step)
    found = history.hypotheses(config, vocab_size, record=record)
    if tree is not None:
        tree.finish(found)
    if shortlist is None:
        return found
    # Convert indices in the union of shortlists to vocabulary ids.
    ids: list[int] = shortlist.words.tolist()
    return [[replace(one, ids=[ids[place] for place in one.ids]) for one in own] for own in found]
