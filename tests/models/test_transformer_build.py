"""From configurations to models."""

from __future__ import annotations

import json
from typing import get_args

import pytest
import torch
from pydantic import BaseModel, TypeAdapter

from attnkit.config.descriptions import describe_fields
from attnkit.models.attention.config import ALIGNMENT_NAMES, AttentionOptions
from attnkit.models.config import SIZES, ModelConfig, RnnConfig, TransformerConfig, check_length
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
