"""Skipped layers: how often, that a shallower model computes the same, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnkit.models.bert import Bert
from attnkit.models.config import TransformerConfig
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, ElectraConfig, GptConfig
from attnkit.models.layers import PackedLayout
from attnkit.models.linear import LayerDropout, layer_draws
from attnkit.models.transformer import Transformer

V = 30
STILL: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.0, "attention_dropout": 0.0}
SRC, TGT = (torch.randint(4, V, (3, n), generator=torch.Generator().manual_seed(n)) for n in (7, 5))
PLACES = torch.tensor([0, 3, 9, 20])


def transformer(n_encoder: int = 4, n_decoder: int = 4, **fields: Any) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(**STILL, encoder_layers=n_encoder, decoder_layers=n_decoder, **fields)
    return Transformer(config, V, V).double()


def bert(n_layers: int = 4, **fields: Any) -> Bert:
    torch.manual_seed(0)
    return Bert(BertConfig(**STILL, n_layers=n_layers, max_length=32, **fields), V).double()


def gpt(n_layers: int = 4, **fields: Any) -> Gpt:
    torch.manual_seed(0)
    return Gpt(GptConfig(**STILL, n_layers=n_layers, max_length=32, **fields), V).double()


def translate(model: Any) -> Tensor:
    found: Tensor = model.hidden(SRC, None, TGT)
    return found


def read(model: Any) -> Tensor:
    found: Tensor = model.hidden(SRC, PackedLayout.unpacked(len(SRC)))
    return found


def read_some(model: Any) -> Tensor:
    found: Tensor = model.hidden(SRC, PackedLayout.unpacked(len(SRC)), positions=PLACES)
    return found


def copy_layers(deep: nn.ModuleList, shallow: nn.ModuleList, kept: list[int]) -> None:
    for layer, number in zip(shallow, kept, strict=True):
        layer.load_state_dict(deep[number].state_dict())


def copy_rest(deep: nn.Module, shallow: nn.Module) -> None:
    own = shallow.state_dict()
    rest = {name: t for name, t in deep.state_dict().items() if ".layers." not in f".{name}" and "memory" not in name}
    shallow.load_state_dict({**own, **rest})


class TestSkippedLayers:
    def test_each_layer_is_skipped_as_often_as_said(self) -> None:
        model = transformer(3, 6, layer_dropout=0.3)
        draw = layer_draws(model, seed=5)
        assert draw is not None
        rows = []
        for step in range(4000):
            draw(step)
            rows.append([*model.encoder.layer_dropout.kept, *model.decoder.layer_dropout.kept])
        skipped = 1 - torch.tensor(rows).double()  # (4000, 9)
        # Deviations: .0072 of a mean of 4,000 draws, .016 of a correlation.
        assert skipped.mean(0).tolist() == pytest.approx([0.3] * 9, abs=0.03)
        assert torch.corrcoef(skipped.T).fill_diagonal_(0).abs().max() < 0.07

    def test_the_choice_depends_on_seed_and_step_alone(self) -> None:
        def chosen(seed: int, step: int, *before: int) -> list[bool]:
            model = bert(40, layer_dropout=0.5)
            draw = layer_draws(model, seed)
            assert draw is not None
            state = torch.get_rng_state()
            for other in (*before, step):
                draw(other)
            assert torch.equal(torch.get_rng_state(), state), "other dropout would change with it"
            return model.layer_dropout.kept

        first = chosen(1, 7)
        assert chosen(1, 7, 3, 4) == first
        assert len({tuple(chosen(seed, step)) for seed in (1, 2) for step in (6, 7)}) == 4

    def test_nothing_is_drawn_without_a_rate(self) -> None:
        for model in (transformer(), bert(), gpt()):
            assert layer_draws(model, 1) is None

    def test_an_electra_skips_layers_of_both_models(self) -> None:
        from attnkit.models.electra import Electra

        config = BertConfig(**STILL, n_layers=30, max_length=32, layer_dropout=0.5)
        model = Electra(config, V, ElectraConfig(generator_size=0.5))
        draw = layer_draws(model, 1)
        assert draw is not None
        draw(0)
        own, generator = model.encoder.layer_dropout.kept, model.generator.layer_dropout.kept
        assert len(own) == len(generator) == 30 and own != generator and {*own} == {*generator} == {True, False}

    @pytest.mark.parametrize("norm", ["post", "pre"])
    @pytest.mark.parametrize("kept", [[0, 2], [3], []], ids=str)
    def test_a_translator_computes_what_the_kept_layers_compute(self, norm: Any, kept: list[int]) -> None:
        deep, n = transformer(norm=norm, layer_dropout=0.5).train(), len(kept)
        # No configuration has zero layers, so a model that keeps none loses its only ones.
        shallow = transformer(max(n, 1), max(n, 1), norm=norm).train()
        copy_rest(deep, shallow)
        rows = deep.decoder.memory.weight.view(4, 2, 16, 16)[kept], deep.decoder.memory.bias.view(4, 2, 16)[kept]
        if not kept:
            shallow.encoder.layers, shallow.decoder.layers = nn.ModuleList(), nn.ModuleList()
            shallow.decoder.project = lambda memory: torch.empty(0, 1)  # type: ignore[method-assign]
        else:
            with torch.no_grad():
                shallow.decoder.memory.weight.copy_(rows[0].reshape(-1, 16))
                shallow.decoder.memory.bias.copy_(rows[1].reshape(-1))
        for side in ("encoder", "decoder"):
            copy_layers(getattr(deep, side).layers, getattr(shallow, side).layers, kept)
            getattr(deep, side).layer_dropout.kept = [i in kept for i in range(4)]
        found, expected = translate(deep), translate(shallow)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        found.square().sum().backward()
        expected.square().sum().backward()
        words = [model.decoder.embedding.words.weight.grad for model in (deep, shallow)]
        torch.testing.assert_close(*words, rtol=0, atol=1e-9)
        for i in range(4):
            gradients = [p.grad for p in deep.decoder.layers[i].parameters()]
            assert all(gradient is not None for gradient in gradients) is (i in kept)
            assert any(gradient is not None for gradient in gradients) is (i in kept)

    @pytest.mark.parametrize(
        ("build", "run"), [(bert, read), (bert, read_some), (gpt, read)], ids=["bert", "bert, some positions", "gpt"]
    )
    @pytest.mark.parametrize("norm", ["post", "pre"])
    @pytest.mark.parametrize("kept", [[0, 2], [1, 3]], ids=str)
    def test_a_language_model_computes_what_the_kept_layers_compute(
        self, build: Callable[..., Any], run: Callable[[Any], Tensor], norm: Any, kept: list[int]
    ) -> None:
        """In the first case the last layer, which computes some positions only, is skipped."""
        deep, shallow = build(norm=norm, layer_dropout=0.5).train(), build(2, norm=norm).train()
        copy_rest(deep, shallow)
        copy_layers(deep.layers, shallow.layers, kept)
        deep.layer_dropout.kept = [i in kept for i in range(4)]
        torch.testing.assert_close(run(deep), run(shallow), rtol=0, atol=1e-12)

    @pytest.mark.parametrize(("build", "run"), [(transformer, translate), (bert, read), (gpt, read)])
    def test_all_layers_serve_outside_of_training(
        self, build: Callable[..., Any], run: Callable[[Any], Tensor]
    ) -> None:
        plain, dropped = build(), build(layer_dropout=0.9)
        assert [*plain.state_dict()] == [*dropped.state_dict()]
        draw = layer_draws(dropped, 1)
        assert draw is not None
        draw(0)
        assert not torch.equal(run(dropped.train()), run(plain.train()))
        assert torch.equal(run(dropped.eval()), run(plain.eval()))

    def test_the_expected_output_of_a_layer_is_the_mean_over_choices(self) -> None:
        """Of one layer, f(x) with probability 1 - p and x with p: the mean over steps tends to their mixture."""
        model = gpt(1, norm="pre", layer_dropout=0.25).train()
        draw = layer_draws(model, 3)
        assert draw is not None
        outputs = []
        for kept in (True, False):
            model.layer_dropout.kept = [kept]
            outputs.append(read(model).detach())
        total = torch.zeros_like(outputs[0])
        for step in range(2000):
            draw(step)
            total += outputs[0] if model.layer_dropout.keeps(0) else outputs[1]
        # The share of a choice has a deviation of .0097.
        difference = (total / 2000 - (0.75 * outputs[0] + 0.25 * outputs[1])).abs().max()
        assert difference <= 0.04 * (outputs[0] - outputs[1]).abs().max()


def test_rates_are_below_one() -> None:
    for build in (TransformerConfig, BertConfig, GptConfig):
        assert build().layer_dropout == 0.0
        with pytest.raises(ValueError, match="layer_dropout"):
            build(layer_dropout=1.0)
    assert repr(LayerDropout(0.25, 2)) == "LayerDropout(rate=0.25)"
