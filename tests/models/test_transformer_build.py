"""From configurations to models."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from pydantic import TypeAdapter

from attnkit.models.attention.alignment import ALIGNMENTS
from attnkit.models.build import MODELS, build_model
from attnkit.models.config import SIZES, ModelConfig, ModelKind, RnnConfig, TransformerConfig
from attnkit.models.recurrent import STEPS
from attnkit.models.translation import TranslationModel

CLASSES = get_args(get_args(ModelConfig)[0])


def test_every_kind_of_configuration_has_its_model() -> None:
    kinds = {get_args(config.model_fields["kind"].annotation)[0]: config for config in CLASSES}
    assert list(kinds) == list(MODELS) == list(SIZES) == list(get_args(ModelKind))
    for kind, config in kinds.items():
        model: TranslationModel = build_model(config(d_model=8), 9, 9)
        assert type(model) is MODELS[kind]
        assert model.head(model.hidden(torch.ones(2, 3).long(), None, torch.ones(2, 4).long())).shape == (2, 4, 9)


def test_choices_are_the_tables() -> None:
    fields = RnnConfig.model_fields
    assert set(get_args(fields["attention"].annotation)) <= {"none", *ALIGNMENTS}
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
        ({"input_feeding": True}, "input_feeding needs attention and query: current"),
        ({"input_feeding": True, "query": "current", "attention": "none"}, "input_feeding needs attention"),
        ({"start": "layers", "encoder_layers": 2}, "start: bridge fits any number"),
    ],
)
def test_recurrent_parts_that_do_not_fit_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RnnConfig.model_validate(wrong)


@pytest.mark.parametrize("config", CLASSES)
def test_every_field_is_described(config: type[TransformerConfig] | type[RnnConfig]) -> None:
    assert all(field.description for field in config.model_fields.values())
