"""What could be exported is known before training, and what cannot be is refused by the key that is in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]


def test_what_can_be_exported_is_said(call: Call, workshop: Any) -> None:
    files = workshop.file("train.src"), workshop.file("train.tgt")
    for system, name in (("huggingface", "transformers"), ("ctranslate2", "CTranslate2")):
        code, out, err = call("check", *files, "--export-to", system)
        assert code == 0 and "160 pairs\nare few to learn from." in out
        assert "can be exported to " in err and name in err


@pytest.mark.parametrize(
    ("system", "setting", "said"),
    [
        ("huggingface", "model.norm=pre", "Marian with pre-norm sublayers"),
        ("huggingface", "model.positions=rotary", "Marian with rotary positions"),
        ("huggingface", "model.kind=rnn", "does not support translation models of kind 'rnn'"),
        ("huggingface", "model.alignment=additive", "attention other than scaled_dot"),
        ("ctranslate2", "model.positions=alibi", "alibi positions"),
    ],
)
def test_the_key_that_is_in_the_way_is_named(
    call: Call, workshop: Any, tmp_path: Path, system: str, setting: str, said: str
) -> None:
    files = workshop.file("train.src"), workshop.file("train.tgt")
    code, _, err = call("check", *files, "--export-to", system, "--set", setting)
    key, _, value = setting.partition("=")
    assert code == 2 and said in err and f"--set {key}" in err and "supported: " in err
    config = tmp_path / "config.yaml"
    first, _, second = key.partition(".")
    config.write_text(f"{first}:\n  {second}: {value}\n")
    code, _, err = call("check", *files, "--export-to", system, "--config", config)
    assert code == 2 and said in err and str(config) in err


@pytest.mark.parametrize(
    ("system", "settings", "said"),
    [
        ("huggingface", ["task=mlm"], None),
        ("huggingface", ["task=clm", "model.positions=learned"], None),
        ("huggingface", ["task=clm", "direction=right-to-left"], "does not support right-to-left GPT-2"),
        ("huggingface", ["task=mlm", "model.glu=true"], "does not support BERT with gated units"),
        ("huggingface", ["task=text-classification", "model.kind=bert", "model.norm=pre"], "BERT with norm 'pre'"),
        ("huggingface", ["task=text-classification", "model.kind=bert"], None),
        ("huggingface", ["task=text-classification"], "does not support classifiers of kind 'han'"),
        ("huggingface", ["task=autoencode"], "runs of task 'autoencode'"),
        ("ctranslate2", ["task=mlm"], None),
        ("ctranslate2", ["task=clm", "model.positions=alibi"], None),
        ("ctranslate2", ["task=mlm", "model.positions=alibi"], "encoders with alibi positions"),
        ("ctranslate2", ["task=mlm", "model.d_embedding=64"], "embeddings of another width"),
        ("ctranslate2", ["task=text-classification"], "does not support classifiers of kind 'han'"),
        ("ctranslate2", ["task=autoencode"], "CTranslate2 does not support runs of task 'autoencode'"),
        ("marian", ["task=mlm"], "Marian does not support runs of task 'mlm'"),
    ],
)
def test_other_tasks_than_translation_are_checked(
    call: Call, workshop: Any, system: str, settings: list[str], said: str | None
) -> None:
    files = workshop.file("train.src"), workshop.file("train.tgt")
    options = [part for text in settings for part in ("--set", text)]
    code, _, err = call("check", *files, "--export-to", system, *options)
    if said is None:
        name = {"huggingface": "Hugging Face's transformers", "ctranslate2": "CTranslate2"}[system]
        assert code == 0 and f"can be exported to {name}" in err
    else:
        assert code == 2 and said in err and "supported: " in err


def test_settings_alone_say_nothing(call: Call, workshop: Any) -> None:
    files = workshop.file("train.src"), workshop.file("train.tgt")
    code, out, err = call("check", *files, "--set", "model.norm=pre")
    assert (code, out) == (2, "") and "require --export-to" in err


def test_quantization_is_for_the_other_system(call: Call, trained: Path, tmp_path: Path) -> None:
    code, out, err = call("export", trained, tmp_path / "hub", "--to", "huggingface", "--quantization", "int8")
    assert (code, out) == (2, "") and "--quantization requires --to ctranslate2" in err
    assert not (tmp_path / "hub").exists()


def test_a_translator_is_exported_and_another_is_not(call: Call, workshop: Any, trained: Path, tmp_path: Path) -> None:
    code, out, _ = call("export", trained, tmp_path / "hub", "--to", "huggingface")
    assert code == 0 and str(tmp_path / "hub") in out
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= {
        path.name for path in (tmp_path / "hub").iterdir()
    }
    code, out, err = call("import", "huggingface", tmp_path / "hub", "-o", tmp_path / "run")
    assert code == 0 and str(tmp_path / "run") in out and not err.startswith("error")
    path = tmp_path / "hub" / "config.json"
    path.write_text(path.read_text().replace('"model_type": "marian"', '"model_type": "bart"'))
    code, out, err = call("import", "huggingface", tmp_path / "hub", "-o", tmp_path / "other")
    assert (code, out) == (4, "") and "unsupported model_type 'bart'" in err
