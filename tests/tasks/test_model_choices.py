"""Every choice that the configuration offers builds a model that trains, and every preset and example resolves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from attnkit.config import dump_yaml, load_yaml, parse_yaml, validate
from attnkit.engine.registry import TASKS
from attnkit.engine.resolve import EarlierPreset, resolve
from attnkit.engine.run_config import AUTO, PRESETS, TRANSLATION_AUTO, choose
from attnkit.errors import UsageError
from attnkit.models.config import SIZES, ModelConfig
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.lines import count_lines

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS: dict[tuple[str, Any], dict[str, Any]] = {
    ("distribution", "normalize"): {"model__alignment": "kernel"},
    ("attention_query", "current"): {"model__input_feeding": True},
    ("decoder_init", "last"): {"model__encoder_layers": 2},
    ("decoder_init", "layers"): {"model__encoder_layers": 2, "model__decoder_layers": 2},
    ("target_embedding_norm", True): {"model__positions": "learned", "model__position_offset": 2},
    ("tie_embeddings", "target"): {"joint_vocabulary": False},
    ("tie_embeddings", "none"): {"joint_vocabulary": False},
}
"""What else is set, so that more combinations are tried."""
ELSEWHERE = ("kind", "scale_embeddings")
"""Not tried here: what every test chooses, and what needs a file of vectors (``test_embeddings.py`` has them)."""


def choices() -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for kind, model in zip(SIZES, get_args(get_args(ModelConfig)[0]), strict=True):
        for name, field in model.model_fields.items():
            options = (True, False) if field.annotation is bool else get_args(field.annotation)
            literal = [option for option in options if isinstance(option, str | bool)]
            found += [(kind, name, option) for option in literal if name not in ELSEWHERE and option != field.default]
    return found


def test_the_choices_are_found() -> None:
    names = {name for _, name, _ in choices()}
    assert names == {
        *(
            "norm",
            "normalization",
            "bias",
            "glu",
            "scaled_input",
            "scaled_output",
            "output_bias",
            "embedding_norm",
            "target_embedding_norm",
            "positions",
            "pattern",
            "activation",
            "tie_embeddings",
            "decoder_start",
        ),
        *("cell", "bidirectional", "alignment", "distribution", "attention_query", "input_feeding", "decoder_init"),
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "name", "option"), choices())
def test_every_choice_trains(workshop: Any, tmp_path: Path, kind: str, name: str, option: Any) -> None:
    if name == "input_feeding":
        pytest.skip("goes with query current")
    also = NEEDS.get((name, option), {})
    changes = {
        **also,
        f"model__{name}": option,
        "limits__max_steps": 2,
        "evaluation": {"every_steps": 2, "n_samples": 0},
    }
    config = workshop.configure(kind, **changes, optimization__batch_tokens=200, vocabulary__byte_fallback=False)
    assert getattr(config.model, name) == option
    done = workshop.train(config, tmp_path / "run")
    assert done.step == 2
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert 0 < records[-1]["loss"] < 10


@pytest.mark.sample(2)
@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "noam", "linear", "wsd", "plateau"])
def test_every_schedule_trains(workshop: Any, tmp_path: Path, schedule: str) -> None:
    changes = {"optimization__schedule": schedule, "evaluation": {"every_steps": 1, "n_samples": 0}}
    done = workshop.train(workshop.configure(limits__max_steps=2, **changes), tmp_path / "run")
    assert done.step == 2


FLAGS = {"data.src": ["a.en"], "data.tgt": ["a.de"]}


def test_every_kind_has_a_size_for_every_preset() -> None:
    assert {name for kind in TASKS.values() for name in kind.presets} == set(PRESETS)
    assert [tuple(sizes) for sizes in SIZES.values()] == [(*TASKS["translation"].presets[:-1],)] * len(SIZES)
    assert TASKS["translation"].presets[-1] == TASKS["translation"].init_preset == "adapt"


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", TASKS["translation"].presets[:-1])
def test_every_preset_resolves(name: str, kind: str) -> None:
    resolved = resolve({**FLAGS, "model.kind": kind}, preset_name=name)
    assert resolved.config.model.kind == kind
    assert resolved.origin("model.d_model") == f"preset {name}"
    assert resolved.origin("data.src") == "flag"
    assert resolved.origin("model.tie_embeddings") == "default"
    read_back = validate(TranslationConfig, parse_yaml(dump_yaml(resolved.config), "a test"))
    assert read_back == resolved.config


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_resolves(path: Path) -> None:
    task = load_yaml(path).get("task", "translation")
    flags = FLAGS if task == "translation" else {"data.files": ["a"], "data.valid_files": ["b"]}
    resolved = resolve(flags, file=path, preset_name="small")
    assert resolved.config.task == task
    assert any(origin == str(path) for origin in resolved.origins.values())


def test_presets_follow_the_size_of_the_corpus(workshop: Any) -> None:
    sizes = [choose(int(most) - 1, TRANSLATION_AUTO) for most, _ in TRANSLATION_AUTO[:-1]]
    assert sizes == ["low-resource", "tiny", "small", "base"]
    assert choose(int(AUTO[-2][0])) == "big"
    flags = {"data.src": [str(workshop.file("train.src"))], "data.tgt": [str(workshop.file("train.tgt"))]}
    resolved = resolve(flags)
    assert (resolved.config.preset, resolved.origin("preset")) == ("low-resource", "number of lines")


def test_a_resumed_run_stays_as_long_as_it_was(tmp_path: Path) -> None:
    """Though its few examples have become more, or are gone."""
    table = tmp_path / "table.tsv"
    table.write_text("text\tlabel\n" + "a film\tgood\n" * 499)
    flags = {"task": "text-classification", "data.files": [str(table)], "data.valid_files": ["b"], "model.kind": "bert"}
    first = resolve(flags, preset_name="tiny").config
    assert (first.limits.max_epochs, first.evaluation.every_epochs) == (20, 2)
    earlier = EarlierPreset("tiny", first.limits.max_epochs, first.evaluation.every_epochs)
    for text in ("text\tlabel\n" + "a film\tgood\n" * 9999, None):
        table.unlink()
        if text is not None:
            table.write_text(text)
        again = resolve(flags, earlier=earlier).config
        assert (again.limits, again.evaluation) == (first.limits, first.evaluation)
        assert resolve({**flags, "limits.max_epochs": 3}, earlier=earlier).config.limits.max_epochs == 3


def test_auto_is_the_preset_of_the_run_that_goes_on() -> None:
    """The files that FLAGS names do not exist, so counting their lines would fail."""
    resolved = resolve(FLAGS, earlier=EarlierPreset("base"))
    assert (resolved.config.preset, resolved.origin("preset")) == ("base", "the run")
    assert resolved.config == resolve(FLAGS, preset_name="base").config
    assert resolve(FLAGS, preset_name="small", earlier=EarlierPreset("base")).config.preset == "small"


def test_a_preset_can_be_named_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("preset: small\n")
    resolved = resolve(FLAGS, file=path, earlier=EarlierPreset("big"))
    assert (resolved.config.model.d_model, resolved.origin("preset")) == (256, str(path))
    assert resolve(FLAGS, file=path, sets=["preset=auto"], earlier=EarlierPreset("big")).config.preset == "big"
    assert resolve(FLAGS, file=path, sets=["preset=base"]).config.preset == "base"
    assert resolve(FLAGS, file=path, sets=["preset=base"], preset_name="tiny").config.preset == "tiny"
    for wrong in ("huge", "[small]", "{a: b}"):
        with pytest.raises(UsageError, match="unknown preset") as caught:
            resolve(FLAGS, sets=[f"preset={wrong}"])
        assert caught.value.help == "choose one of auto, low-resource, tiny, small, base, big, adapt"


@pytest.mark.parametrize(("content", "n"), [(b"a\nb\n", 2), (b"a\nb", 2), (b"\n", 1), (b"a\r\nb\x0c\n", 2)])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, content: bytes, n: int) -> None:
    (tmp_path / "text").write_bytes(content)
    assert count_lines(tmp_path / "text") == n


def test_higher_layers_win(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("seed: 4\nmodel: {d_ff: 96, dropout: 0.5}\nlimits: {max_steps: 7}\n")
    resolved = resolve({**FLAGS, "seed": 6}, sets=["seed=5", "model.d_ff=80"], file=path, preset_name="tiny")
    config = resolved.config
    assert config.model.kind == "transformer"
    assert (config.seed, config.model.d_ff, config.model.dropout, config.model.d_model) == (6, 80, 0.5, 128)
    origins = [resolved.origin(f"{key}") for key in ("seed", "model.d_ff", "model.dropout", "model.d_model")]
    assert origins == ["flag", "--set model.d_ff", str(path), "preset tiny"]
    # A length in steps replaces the preset's in epochs; evaluation stays the preset's.
    assert (config.limits.max_steps, config.limits.max_epochs) == (7, None)
    assert config.evaluation.every_epochs is not None


def test_two_vocabularies_are_not_tied_three_ways() -> None:
    assert resolve({**FLAGS, "joint_vocabulary": False}, preset_name="tiny").config.model.tie_embeddings == "target"
    with pytest.raises(UsageError, match=r"model\.tie_embeddings=all needs joint_vocabulary=true"):
        resolve(FLAGS, sets=["joint_vocabulary=false", "model.tie_embeddings=all"], preset_name="tiny")


def test_files_must_pair_up() -> None:
    with pytest.raises(UsageError, match="src has 1 files but tgt has 2"):
        resolve({"data.src": ["a"], "data.tgt": ["b", "c"]}, preset_name="tiny")
    with pytest.raises(UsageError, match=r"data\.src is given, but data\.tgt is not"):
        resolve({"data.src": ["a"]}, preset_name="tiny")


@pytest.mark.parametrize(
    ("decoding", "needed", "what"),
    [
        ({"max_ratio": 0.5}, 257, "lines of data.max_length=256 tokens"),
        ({"max_ratio": 1.0, "extra": 4}, 261, "translations of lines of data.max_length=256 tokens"),
        ({"max_length": 2000}, 2000, "decoding.max_length=2000"),
        ({"max_length": 20}, 257, "lines of data.max_length=256 tokens"),
        ({"min_length": 1500}, 1501, "decoding.min_length=1500"),
    ],
)
def test_learned_positions_reach_as_far_as_training_and_search(
    workshop: Any, decoding: dict[str, Any], needed: int, what: str
) -> None:
    def configure(max_length: int) -> TranslationConfig:
        config: TranslationConfig = workshop.configure(
            model__positions="learned", model__max_length=max_length, decoding=decoding
        )
        return config

    with pytest.raises(UsageError, match=rf"learned positions need model\.max_length of {needed} for {what};"):
        configure(needed - 1)
    assert configure(needed).model.max_positions == needed


def test_lines_are_split_where_positions_end(workshop: Any) -> None:
    config = workshop.configure(model__positions="learned", model__max_length=300)
    assert config.max_source == 256
    shorter = config.model.model_copy(update={"max_length": 100})
    assert config.model_copy(update={"model": shorter}).max_source == 99
    assert workshop.configure("rnn", data__max_length=9).max_source == 9
