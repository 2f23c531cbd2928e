"""From configurations to models."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import BaseModel, TypeAdapter

from attnkit.config.descriptions import describe_fields
from attnkit.data.pairs import make_batch
from attnkit.engine.seq2seq import seq2seq_loss
from attnkit.models.attention.config import ALIGNMENT_NAMES, AttentionOptions
from attnkit.models.config import SIZES, ModelConfig, RnnConfig, TransformerConfig
from attnkit.models.limits import check_length
from attnkit.models.recurrent import STEPS
from attnkit.models.translation import MODELS, TranslationModel, build_model

CLASSES = get_args(get_args(ModelConfig)[0])


def test_every_kind_of_configuration_has_its_model() -> None:
    kinds = {get_args(config.model_fields["kind"].annotation)[0]: config for config in CLASSES}
    assert list(kinds) == list(MODELS) == list(SIZES)
    for kind, config in kinds.items():
        model: TranslationModel = build_model(config(d_model=8), 9, 9)
        assert f"{type(model).__module__}:{type(model).__name__}" == f"attnkit.models.{MODELS[kind]}"
        assert model.head(model.hidden(torch.ones(2, 3).long(), None, torch.ones(2, 4).long())).shape == (2, 4, 9)


def test_choices_are_the_tables() -> None:
    fields = RnnConfig.model_fields
    assert get_args(fields["alignment"].annotation) == ("none", *ALIGNMENT_NAMES)
    assert set(get_args(fields["cell"].annotation)) == set(STEPS)


def test_kind_chooses_the_configuration() -> None:
    adapter: TypeAdapter[TransformerConfig | RnnConfig] = TypeAdapter(ModelConfig)
    assert adapter.validate_json('{"kind": "rnn", "cell": "lstm"}') == RnnConfig(cell="lstm")
    assert adapter.validate_json('{"kind": "transformer"}') == TransformerConfig()
    with pytest.raises(ValueError, match="does not match any of the expected tags"):
        adapter.validate_json('{"kind": "cnn"}')


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input_feeding": True}, "input_feeding needs an alignment and attention_query: current"),
        (
            {"input_feeding": True, "attention_query": "current", "alignment": "none"},
            "input_feeding needs an alignment",
        ),
        ({"decoder_init": "layers", "encoder_layers": 2}, "decoder_init=bridge allows any number"),
        (
            {"alignment": "none", "decoder_init": "zeros", "feed_context": False},
            "leave the decoder without source information",
        ),
        ({"alignment": "none", "distribution": "local"}, "distribution local needs an alignment"),
        ({"alignment": "dot", "distribution": "normalize"}, "dot cannot be combined with distribution normalize"),
    ],
)
def test_recurrent_parts_that_do_not_fit_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RnnConfig.model_validate(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alignment": ["dot", "dot"]}, "alignment names 2 functions, but n_heads is 4: give one name for all heads"),
        ({"distribution": ["softmax"] * 5}, "distribution names 5 functions, but n_heads is 4"),
        (
            {"alignment": ["kernel", "kernel", "kernel", "deep"], "distribution": "normalize"},
            "alignment deep cannot be combined with distribution normalize",
        ),
        (
            {"alignment": "kernel", "distribution": "normalize", "positions": "alibi"},
            "positions alibi add negative numbers",
        ),
        (
            {"alignment": "kernel", "distribution": ["softmax"] * 3 + ["normalize"], "positions": "relative"},
            "positions relative add negative numbers",
        ),
    ],
)
def test_functions_that_do_not_fit_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig.model_validate_json(json.dumps(wrong))


def test_location_limits_the_length_of_a_sentence() -> None:
    options = AttentionOptions(max_source=40)
    assert RnnConfig(alignment="location", attention_options=options).max_positions == 40
    assert RnnConfig(attention_options=options).max_positions is None
    heads = ("dot", "dot", "location", "dot")
    assert TransformerConfig(alignment=heads, attention_options=options).max_positions == 40
    both = TransformerConfig(alignment=heads, attention_options=options, positions="learned", max_length=30)
    wider = both.model_copy(update={"max_length": 50})
    assert (both.max_positions, wider.max_positions) == (30, 40)
    check_length(wider, {"rows": 40})
    with pytest.raises(ValueError, match=r"^learned positions need model\.max_length of 41 for rows; raise the limit"):
        check_length(both, {"words": 31, "rows": 41})
    with pytest.raises(ValueError, match=r"^location attention needs .*\.max_source of 41 for rows"):
        check_length(wider, {"rows": 41})


@pytest.mark.parametrize("config", [*CLASSES, AttentionOptions])
def test_every_field_is_described(config: type[BaseModel]) -> None:
    assert [*describe_fields(config)] == [*config.model_fields]


@pytest.mark.parametrize("tied", ["none", "target", "all"])
def test_a_zero_start_stays_zero(tied: Any) -> None:
    """Marian decodes from a zero vector: neither the search nor training, smoothed labels included, may move it."""
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 32}
    model = build_model(TransformerConfig(**sizes, tie_embeddings=tied, decoder_start="zero"), 30, 30)
    rows = [(np.array([5, 6, 7]), np.array([3])), (np.array([8, 9]), np.array([2]))]
    loss = seq2seq_loss(model, torch.device("cpu"), 0.1)(make_batch(*rows))["nll"].total
    assert 2.0 < float(loss.detach()) / 3 < 8.0, "words without a logit count"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    loss.backward()
    optimizer.step()
    decoder = dict(model.named_parameters())[
        "decoder.embedding.words.weight" if tied != "all" else "encoder.embedding.words.weight"
    ]
    assert not decoder[:2].any() and decoder[2:].abs().max() > 0.05
    log_probs = model.head(model.hidden(torch.tensor([[5, 2]]), None, torch.tensor([[1, 8]]))).log_softmax(-1)
    assert (log_probs[..., :2] < -1e8).all() and torch.isfinite(log_probs[..., 2:]).all()


def test_a_start_from_eos_is_the_vector_of_eos() -> None:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 32}
    models = [build_model(TransformerConfig(**sizes, decoder_start=start), 30, 30).eval() for start in ("eos", "bos")]
    models[1].load_state_dict(models[0].state_dict())
    src = torch.tensor([[5, 2]])
    ours, plain = (
        model.hidden(src, None, torch.tensor([[first, 8]])) for model, first in zip(models, (1, 2), strict=True)
    )
    assert torch.equal(ours, plain) and not torch.equal(ours, models[1].hidden(src, None, torch.tensor([[1, 8]])))
