"""The tree of a beam search: it changes nothing, holds every choice, and its best end is the answer."""

from __future__ import annotations

import math

import pytest
import torch

from attnkit.decoding import beam
from attnkit.decoding.beam import BeamTrace
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search

EOS = 2
SETTINGS = [
    {"beam_size": 2},
    {"beam_size": 5, "num_hypotheses": 5, "length_penalty": 0.6, "max_ratio": 0.5, "extra": 2},
    {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 0.0, "min_length": 4, "max_length": 6},
    {"beam_size": 3, "num_hypotheses": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.4},
    {"beam_size": 4, "num_hypotheses": 4, "n_words": 5, "max_length": 4},
]


def plain(found):
    return [[(h.ids, h.score, h.log_prob, h.finished) for h in hypotheses] for hypotheses in found]


def words_to(nodes, index):
    """Return the words from the root to a node."""
    words = []
    while index is not None:
        words.append(nodes[index].word)
        index = nodes[index].parent
    return words[::-1]


def grown(make_model, make_sources, pad, options, *, vocab_size=9, coarse=False, prefixes=None):
    """Search with a tree and without; return the model, the sources, the tree and what both have found."""
    config, model, sources = SearchConfig(**options), make_model(3, vocab_size, coarse=coarse), make_sources(2, 12)
    given = None if prefixes is None else pad(prefixes)[0]
    batch, tree = Sources(*pad(sources), given), BeamTrace(len(sources))
    found = search([model], batch, config, tree=tree)
    assert plain(found) == plain(search([model], batch, config))
    return model, sources, tree, found


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize(("vocab_size", "coarse"), [(9, False), (9, True), (200, True)])
def test_the_best_end_is_the_answer(make_model, make_sources, pad, options, vocab_size, coarse):
    model, sources, tree, found = grown(make_model, make_sources, pad, options, vocab_size=vocab_size, coarse=coarse)
    for sentence, (source, hypotheses) in enumerate(zip(sources, found, strict=True)):
        nodes = tree.nodes[sentence]
        scored = {i: node.score for i, node in enumerate(nodes) if node.score is not None}
        best = max(scored.values())
        answer = hypotheses[0].ids + [EOS] * hypotheses[0].finished
        assert answer in [words_to(nodes, i) for i, score in scored.items() if score == best]
        assert words_to(nodes, tree.path(sentence, hypotheses[0])[-1]) == answer
        ends = [node for node in nodes if node.status in ("ended", "cut")]
        assert all((node.status == "ended") == (node.word == EOS) for node in ends)
        assert len(ends) == len(hypotheses) or len(hypotheses) == options.get("num_hypotheses", 1)
        assert sorted(scored.values()) == sorted(h.score for h in hypotheses)
        if "repetition_penalty" not in options:
            check_log_probs(model, source, nodes)


def check_log_probs(model, source, nodes):
    """Each node's log-probability is that of its words, one at a time, by the model alone."""
    for index in range(0, len(nodes), 5):
        words, total, state = words_to(nodes, index), 0.0, model.start(torch.tensor([source]), None, 1, 99)
        for prev, word in zip([1, *words], words, strict=False):
            hidden, state = model.step(torch.tensor([[prev]]), state)
            total += float(model.head(hidden).log_softmax(-1)[0, 0, word])
        assert math.isclose(nodes[index].log_prob, total, abs_tol=1e-4)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_every_step_keeps_the_best(make_model, make_sources, pad, options):
    """K are kept of each step, none of them less likely than one that was pruned; only the kept continue."""
    _, _, tree, _ = grown(make_model, make_sources, pad, options)
    for nodes in tree.nodes:
        assert len({(node.parent, node.word) for node in nodes}) == len(nodes)
        for node in nodes:
            if node.parent is not None:
                parent = nodes[node.parent]
                assert parent.status in ("open", "cut") and parent.step == node.step - 1
                assert node.log_prob <= parent.log_prob + 1e-6
        for step in range(1 + max(node.step for node in nodes)):
            kept = [n.log_prob for n in nodes if n.step == step and n.status in ("open", "cut")]
            pruned = [n.log_prob for n in nodes if n.step == step and n.status == "pruned"]
            assert len(kept) <= options["beam_size"] and len(pruned) <= options["beam_size"]
            assert not pruned or min(kept) >= max(pruned)


def test_forced_words_are_the_trunk(make_model, make_sources, pad):
    prefixes = [[5, 6, 7][: 1 + i % 3] for i in range(12)]
    options = {"beam_size": 3, "max_length": 6}
    _, _, tree, found = grown(make_model, make_sources, pad, options, prefixes=prefixes)
    for sentence, prefix in enumerate(prefixes):
        for step, word in enumerate(prefix):
            kept = [node.word for node in tree.nodes[sentence] if node.step == step and node.status != "pruned"]
            assert kept == [word]
        assert found[sentence][0].ids[: len(prefix)] == prefix


def test_without_a_tree_nothing_is_done_for_it(make_model, make_sources, pad, monkeypatch):
    """The best are looked for once per step, not twice."""
    calls = []
    real = beam.topk_continuations
    monkeypatch.setattr(beam, "topk_continuations", lambda *given: calls.append(given) or real(*given))
    model, batch = make_model(), Sources(*pad(make_sources(1, 3)))
    steps, step = [], model.step
    monkeypatch.setattr(model, "step", lambda *given: steps.append(given) or step(*given))
    search([model], batch, SearchConfig(beam_size=3))
    assert len(calls) == len(steps) > 2


def test_a_search_without_beams_has_no_tree(make_model, make_sources, pad):
    for options in ({"beam_size": 1}, {"sampling": True}):
        with pytest.raises(ValueError, match="recording the tree requires beam search"):
            search([make_model()], Sources(*pad(make_sources(1, 2))), SearchConfig(**options), tree=BeamTrace(2))


def test_a_beam_that_the_length_limit_ends_is_cut(make_model, make_sources, pad):
    """With an end that may not come before the limit, every hypothesis is cut and none ended."""
    options = {"beam_size": 2, "min_length": 3, "max_length": 4, "max_ratio": 0.0, "extra": 4}
    _, _, tree, found = grown(make_model, make_sources, pad, options, vocab_size=200)
    for sentence, hypotheses in enumerate(found):
        finished = sum(hypothesis.finished for hypothesis in hypotheses)
        status = [node.status for node in tree.nodes[sentence] if node.score is not None]
        assert status.count("ended") >= finished and status.count("ended") + status.count("cut") == len(status)
        assert len(hypotheses) == finished or "cut" in status
    assert any(node.status == "cut" for nodes in tree.nodes for node in nodes)
