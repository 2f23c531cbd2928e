"""Auto-encoders: the code is all that passes, stepping equals the full pass, padding and batch mates change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.models.autoencoder import SequenceAutoencoder, VectorAutoencoder
from attnkit.models.recurrent_config import MlpAutoencoderConfig, RnnAutoencoderConfig
from attnkit.models.translation import TranslationModel

V = 20
SIZES: dict[str, Any] = {"d_model": 12, "d_hidden": 16, "d_code": 5, "dropout": 0.0}
CONFIGS = {
    "gru": RnnAutoencoderConfig(**SIZES),
    "lstm, two layers": RnnAutoencoderConfig(cell="lstm", encoder_layers=2, decoder_layers=2, **SIZES),
    "rnn, one direction, untied": RnnAutoencoderConfig(cell="rnn", bidirectional=False, tie_embeddings=False, **SIZES),
}


def make(name: str) -> SequenceAutoencoder:
    torch.manual_seed(1)
    model = SequenceAutoencoder(CONFIGS[name], V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def lines(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    src = torch.randint(4, V, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return src.masked_fill(~mask, 0), mask


@pytest.mark.parametrize("name", CONFIGS)
def test_padding_and_batch_mates_change_no_code(name: str) -> None:
    model = make(name)
    src, mask = lines([3, 7, 1, 5])
    codes = model.encode(src, mask)
    assert codes.shape == (4, 5) and codes.abs().max() <= 1
    for i, length in enumerate([3, 7, 1, 5]):
        torch.testing.assert_close(model.encode(src[i : i + 1, :length], None)[0], codes[i], rtol=1e-9, atol=1e-12)
    wider = torch.cat([src, torch.full((4, 6), 9)], 1)
    padded = torch.cat([mask, torch.zeros(4, 6, dtype=torch.bool)], 1)
    torch.testing.assert_close(model.encode(wider, padded), codes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_decoder_sees_the_code_and_nothing_else(name: str) -> None:
    model = make(name)
    src, mask = lines([4, 4, 6])
    tgt = torch.randint(4, V, (3, 5))
    codes = model.encode(src, mask)
    assert torch.equal(model.hidden(src, mask, tgt), model.decode(codes, tgt))
    src = src.requires_grad_(False)
    code = codes.detach().requires_grad_()
    model.decode(code, tgt).sum().backward()
    assert code.grad is not None and (code.grad.abs() > 0).any(0).all(), "every number of it is used"
    # With the same code other sources make no difference: what is given back depends on them through it alone.
    swapped = model.decode(codes[[1, 0, 2]], tgt[[1, 0, 2]])
    torch.testing.assert_close(swapped, model.hidden(src, mask, tgt)[[1, 0, 2]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_stepping_is_the_full_pass(name: str) -> None:
    model = make(name)
    src, mask = lines([3, 6])
    tgt = torch.randint(4, V, (2, 5))
    state = model.start(src, mask, 1, 5)
    steps = []
    for position in range(5):
        features, state = model.step(tgt[:, position : position + 1], state)
        steps.append(features)
    torch.testing.assert_close(torch.cat(steps, 1), model.hidden(src, mask, tgt), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_beams_are_reordered_and_sentences_kept(name: str) -> None:
    model = make(name)
    src, mask = lines([3, 6, 2])
    state = model.start(src, mask, 2, 5)
    _, state = model.step(torch.tensor([[1], [1], [1]]), state)
    state = state.reorder_beams(torch.zeros(3, 2, dtype=torch.int64))
    words = torch.tensor([[4, 5], [6, 7], [8, 9]])
    both, state = model.step(words, state)
    state = state.reorder_beams(torch.tensor([[1, 0], [0, 0], [1, 1]])).select_rows(torch.tensor([2, 0]))
    found, _ = model.step(torch.tensor([[10, 11], [12, 13]]), state)
    # Sentence 2 went on from its beam 1 (9), sentence 0 from beams 1 (5) and 0 (4).
    whole = torch.tensor([[1, 9, 10], [1, 9, 11], [1, 5, 12], [1, 4, 13]])
    expected = model.hidden(src[[2, 2, 0, 0]], mask[[2, 2, 0, 0]], whole)
    torch.testing.assert_close(found.reshape(4, -1), expected[:, -1], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(both[0, 1], model.hidden(src[:1], mask[:1], torch.tensor([[1, 5]]))[0, 1])


def test_there_is_nothing_to_look_at() -> None:
    """What a translation model answers that attends to nothing; a run that learns to write it back has no map."""
    model: TranslationModel = make("gru")  # type: ignore[assignment]
    src, mask = lines([3, 6])
    assert dict(model.attention_weights(src, mask, src)) == {}


def test_the_search_drives_it() -> None:
    model = make("gru")
    src, mask = lines([3, 6])
    found = search([model], Sources(src, mask, None, [0, 1]), SearchConfig(beam_size=3, max_length=6))
    alone = search([model], Sources(src[:1, :3], None, None, [0]), SearchConfig(beam_size=3, max_length=6))
    assert found[0][0].ids == alone[0][0].ids and len(found) == 2


@pytest.mark.parametrize("name", CONFIGS)
def test_least_weights_are_a_lower_bound_near_the_truth(name: str) -> None:
    config = CONFIGS[name]
    n = sum(parameter.numel() for parameter in SequenceAutoencoder(config, V).parameters())
    assert 0.8 * n < config.min_parameters(V) <= n


def vectors() -> VectorAutoencoder:
    torch.manual_seed(1)
    model = VectorAutoencoder(MlpAutoencoderConfig(d_code=3, d_hidden=(7, 5)), 6).double()
    model.centre(torch.arange(6.0, dtype=torch.float64), 2.5)
    return model


def test_vectors_pass_through_the_layers_as_written() -> None:
    model = vectors()
    x = torch.randn(4, 6, dtype=torch.float64)
    tensors = dict(model.named_parameters())

    def through(rows: torch.Tensor, part: str) -> torch.Tensor:
        for index, layer in enumerate((0, 3, 6)):
            rows = rows @ tensors[f"{part}.{layer}.weight"].T + tensors[f"{part}.{layer}.bias"]
            rows = torch.nn.functional.gelu(rows) if index < 2 else rows
        return rows

    code = through((x - torch.arange(6.0)) / 2.5, "encoder")
    torch.testing.assert_close(model.encode(x), code)
    torch.testing.assert_close(model(x), through(code, "decoder") * 2.5 + torch.arange(6.0))
    n = sum(parameter.numel() for parameter in model.parameters())
    assert 0.7 * n < MlpAutoencoderConfig(d_code=3, d_hidden=(7, 5)).min_parameters(6) <= n


def test_the_centre_is_saved_and_not_trained() -> None:
    model = vectors()
    assert {"mean", "scale"} <= model.state_dict().keys()
    assert not {"mean", "scale"} & dict(model.named_parameters()).keys()
