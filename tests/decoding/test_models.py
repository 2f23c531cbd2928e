"""The search over the real models: what stepping finds has the probability that the training pass gives it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.linear import pack
from attnkit.models.translation import build_model

CONFIGS = {
    "transformer": TransformerConfig(d_model=16, n_heads=2, encoder_layers=1, decoder_layers=2, d_ff=32),
    "transformer from zero": TransformerConfig(
        d_model=16, n_heads=2, encoder_layers=1, decoder_layers=2, d_ff=32, decoder_start="zero"
    ),
    "transformer from EOS": TransformerConfig(
        d_model=16, n_heads=2, encoder_layers=1, decoder_layers=2, d_ff=32, decoder_start="eos"
    ),
    "rnn": RnnConfig(kind="rnn", d_model=12, d_hidden=16),
    "rnn without attention": RnnConfig(alignment="none", d_model=12, d_hidden=16),
}
WAYS = {
    "beam": SearchConfig(beam_size=4, num_hypotheses=4, max_length=12),
    "greedy": SearchConfig(beam_size=1, max_length=12, no_repeat_ngram_size=2),
    "samples": SearchConfig(sampling=True, num_hypotheses=3, max_length=12),
}


def make(kind, seed=0):
    torch.manual_seed(seed)
    model = build_model(CONFIGS[kind], 200, 200).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.5
        model.output.bias[2] += 2.5
    return model


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("way", WAYS)
def test_results_are_the_models_own(make_sources, pad, kind, way):
    model, sources, record = make(kind), make_sources(3, 8), CONFIGS[kind].has_attention
    prefixes = [[9, 40, 9, 11][: i % 5] for i in range(8)]
    if way == "beam":
        prefixes = [[7, 8, *row] for row in prefixes]  # all have two: one beam at first, then four
    src, mask = pad(sources)
    together = search([model], Sources(src, mask, pad(prefixes)[0], list(range(8))), WAYS[way], record=record)
    for i, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
        given = torch.tensor([prefix]) if prefix else None
        alone = search([model], Sources(torch.tensor([source]), None, given, [i]), WAYS[way], record=record)[0]
        assert [h.ids for h in together[i]] == [h.ids for h in alone]
        for found, same in zip(together[i], alone, strict=True):
            assert found.score == pytest.approx(same.score, abs=1e-5)
            assert not record or np.allclose(found.attention, same.attention, atol=1e-6)
            assert found.ids[: len(prefix)] == prefix
            tokens = torch.tensor(found.ids + [2] * found.finished)
            tgt_in = torch.cat([torch.tensor([1]), tokens[:-1]])[None]
            with torch.no_grad():
                log_probs = model.head(model.hidden(torch.tensor([source]), None, tgt_in))[0].log_softmax(-1)
            assert found.log_prob == pytest.approx(float(log_probs.gather(1, tokens[:, None]).sum()), abs=1e-4)


def test_different_models_vote(make_sources, pad):
    src, mask = pad(make_sources(4, 12))
    models = [make("transformer"), make("rnn")]
    found = search(models, Sources(src, mask), SearchConfig(beam_size=3, max_length=12))
    tokens = torch.tensor(found[0][0].ids + [2] * found[0][0].finished)
    tgt_in = torch.cat([torch.tensor([1]), tokens[:-1]])[None]
    with torch.no_grad():
        probs = [model.head(model.hidden(src[:1], mask[:1], tgt_in))[0].softmax(-1) for model in models]
    mean = torch.stack(probs).mean(0).gather(1, tokens[:, None]).log().sum()
    assert found[0][0].log_prob == pytest.approx(float(mean), abs=1e-4)


@pytest.mark.sample(2)
@pytest.mark.parametrize("config", [TransformerConfig(d_model=256, encoder_layers=2, decoder_layers=2), RnnConfig()])
@pytest.mark.slow
def test_real_widths_on_two_threads(config: TransformerConfig | RnnConfig, pad: Any) -> None:
    """Large products are cut into tiles and shared among threads by the size of the batch; the text does not change."""
    torch.manual_seed(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = pack(build_model(config, 8000, 8000).eval())
        sources = [torch.randint(4, 8000, (n,)).tolist() for n in range(5, 29, 2)]
        for way in (SearchConfig(beam_size=1, max_length=12), SearchConfig(beam_size=3, max_length=12)):
            whole, seven, alone = (
                [
                    found[0]
                    for first in range(0, len(sources), size)
                    for found in search([model], Sources(*pad(sources[first : first + size])), way)
                ]
                for size in (len(sources), 7, 1)
            )
            assert [each.ids for each in whole] == [each.ids for each in seven] == [each.ids for each in alone]
            for one, other in zip(whole + seven, alone + alone, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_half_precision_is_near(beam_size: int, pad: Any) -> None:
    """One query a sentence and beams are kept in different precisions; what either finds is about as likely."""
    exact = make("transformer").float()
    half = make("transformer").to(torch.bfloat16)
    sources = [[5, 9, 6, 2], [7, 2], [11, 12, 13, 14, 15, 2]]
    for source, (found, *_) in zip(
        sources, search([half], Sources(*pad(sources)), SearchConfig(beam_size=beam_size, max_length=12)), strict=True
    ):
        tokens = torch.tensor(found.ids + [2] * found.finished)
        tgt_in = torch.cat([torch.tensor([1]), tokens[:-1]])[None]
        with torch.no_grad():
            log_probs = exact.head(exact.hidden(torch.tensor([source]), None, tgt_in))[0].log_softmax(-1)
        assert found.log_prob == pytest.approx(float(log_probs.gather(1, tokens[:, None]).sum()), rel=0.05)
