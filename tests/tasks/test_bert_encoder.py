"""BERT's encoder in a translation model: the same numbers, and whatever does not fit refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

from attnkit.engine.loading import load_model
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import StoppedError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.config import TransformerConfig
from attnkit.models.language_config import BertConfig, PositionName
from attnkit.models.layers import PackedLayout
from attnkit.models.transformer import Transformer
from attnkit.tasks.translation.bert_encoder import config_from_bert, copy_bert_encoder
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TASK

V = 40
SMALL: dict[str, Any] = {"d_model": 24, "n_heads": 4, "n_layers": 2, "d_ff": 32, "max_length": 32}
QUIET = {"dropout": 0.0, "attention_dropout": 0.0}


def spread(model: nn.Module) -> None:
    """Make all weights large enough that whatever is computed with them can be told."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.3, generator=generator))


@pytest.mark.parametrize("positions", get_args(PositionName))
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"glu": True, "bias": False, "activation": "gelu_tanh"},
        {"n_segments": 1, "activation": "relu", "norm_eps": 1e-3, "alignment": ["dot", "general"] * 2},
    ],
)
def test_the_encoder_computes_what_bert_computes(positions: str, norm: str, more: dict[str, Any]) -> None:
    given = {**SMALL, **QUIET, **more, "positions": positions, "norm": norm}
    bert_config = BertConfig.model_validate(given, strict=False)
    bert = Bert(bert_config, V).double().eval()
    spread(bert)
    adopted = config_from_bert({"model": bert_config.model_dump(mode="json")})["model"]
    config = TransformerConfig.model_validate({**adopted, **QUIET, "decoder_layers": 1}, strict=False)
    model = Transformer(config, V, 30).double().eval()
    copy_bert_encoder(model.encoder, bert)
    ids = torch.randint(0, V, (3, 11), generator=torch.Generator().manual_seed(1))
    real = torch.arange(11) < torch.tensor([11, 7, 1])[:, None]
    with torch.no_grad():
        expected, found = bert.hidden(ids, PackedLayout.padded(real)), model.encoder(ids, real)
        alone = model.encoder(ids, None)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alone, bert.hidden(ids, PackedLayout.unpacked(3)), rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def bert(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of digits, with positions for 24 tokens."""
    run = tmp_path_factory.mktemp("bert") / "run"
    path = workshop.named("train.src")
    given: dict[str, Any] = {
        "optimization__learning_rate": 0.3,
        "limits__max_steps": 2,
        "data__document_format": "lines",
    }
    given["model__positions"] = "learned"
    config = workshop.configure_task("masked tokens", **given)
    config = config.model_copy(update={"data": config.data.model_copy(update={"files": tuple(path)})})
    workshop.train(config, run)
    return run


def configure(workshop: Any, bert: Path, *sets: str, run: Path | None = None, kind: str = "transformer") -> Any:
    """Return the configuration of a tiny run that starts with BERT's encoder."""
    flags = {
        "data.src": workshop.named("train.src"),
        "data.tgt": workshop.named("train.tgt"),
        "data.valid_src": workshop.named("valid.src"),
        "data.valid_tgt": workshop.named("valid.tgt"),
        "model.kind": kind,
    }
    own = ["limits.max_steps=1", "model.decoder_layers=1", "vocabulary.kind=char", "optimization.learning_rate=1e-30"]
    own += ["device=cpu", "threads=1", "precision=float32", "optimization.batch_tokens=300"]
    return resolve(flags, sets=[*own, *sets], preset_name="tiny", fixed=inherited(bert, run)).config


@pytest.mark.parametrize("joint", ["false", "true"])
def test_a_run_begins_with_the_encoder_and_its_vocabulary(
    workshop: Any, bert: Path, tmp_path: Path, joint: str
) -> None:
    config = configure(workshop, bert, f"joint_vocabulary={joint}")
    assert (config.model.encoder_layers, config.model.max_length, config.data.max_length) == (1, 24, 23)
    planned = TASK.dry_run(config, bert)
    workshop.train(config, tmp_path / "run", init_from=bert)
    run, giver = load_run(tmp_path / "run", device="cpu"), load_model(bert, "mlm", device="cpu")
    vocabulary = (bert / "tokenizer.json").read_text()
    assert run.src_tokenizer.to_json() == vocabulary
    assert (run.tgt_tokenizer.to_json() == vocabulary) == (joint == "true")
    assert planned.n_parameters == sum(parameter.numel() for parameter in run.model.parameters())
    ids = torch.tensor(run.src_tokenizer.encode(["1 2 3 4 5", "9 8 7 6 5"]))
    with torch.no_grad():
        found: Any = run.model
        expected = giver.model.hidden(ids, PackedLayout.unpacked(2))
        assert abs(found.encoder(ids, None) - expected).max() < 1e-6 * abs(expected).max()


def test_the_word_is_said_by_which_a_model_does_not_fit(workshop: Any, bert: Path, tmp_path: Path) -> None:
    for change, said in (
        ("model.d_ff=64", "model.d_ff is 64, but the encoder of .* was trained with 32"),
        ("model.encoder_layers=2", "model.encoder_layers is 2, .* trained with 1"),
        ("model.norm=pre", "model.norm is pre, .* trained with post"),
        ("model.embedding_norm=false", "model.embedding_norm is False, .* trained with True"),
        ("model.norm_eps=1e-6", "model.norm_eps is 1e-06"),
        ("model.positions=rotary", "model.positions is rotary, .* trained with learned"),
        ("model.activation=relu", "model.activation is relu, .* trained with gelu"),
        ("model.alignment=dot", "model.alignment is dot, .* trained with scaled_dot"),
        ("model.pattern=window", "model.pattern is window"),
        ("model.max_length=25", "model.max_length is 25, but the encoder of .* has 24 positions"),
    ):
        config = configure(workshop, bert, change)
        key = change.partition("=")[0]
        for attempt in (lambda c=config: list(train(TrainRequest(c, tmp_path / "run", init_from=bert))),
                        lambda c=config: TASK.dry_run(c, bert)):  # fmt: skip
            with pytest.raises(UsageError, match=said) as caught:
                attempt()
            assert caught.value.where == key and caught.value.exit_code == 2
        assert not (tmp_path / "run/data").exists()
    with pytest.raises(UsageError, match="requires a transformer, not a model of kind 'rnn'"):
        configure(workshop, bert, kind="rnn")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"local_window": 8}, "not support local layers"),
        ({"norm_bias": False}, "not support norms without biases"),
        ({"norm": "pre", "embedding_norm": True}, "one of pre-norm embeddings"),
    ],
)
def test_a_bert_that_no_translator_can_be_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        config_from_bert({"model": BertConfig(**{**SMALL, **change}).model_dump(mode="json")})


def test_a_run_goes_on_without_the_bert(workshop: Any, bert: Path, tmp_path: Path) -> None:
    given, run = tmp_path / "given", tmp_path / "run"
    shutil.copytree(bert, given)
    sets = ["limits.max_steps=4", "optimization.learning_rate=0.01"]
    config = configure(workshop, given, *sets)
    workshop.train(config, tmp_path / "whole", init_from=given)
    calls = iter(range(1, 100))
    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, run, init_from=given, stop=lambda: next(calls) == 2)))
    again = configure(workshop, given, *sets, run=run)
    assert again == config
    shutil.rmtree(given)
    shutil.rmtree(run / "data")
    assert configure(workshop, given, *sets, run=run) == config
    list(train(TrainRequest(config, run, init_from=given)))
    one, other = ((path / "checkpoints/step-4/model.safetensors").read_bytes() for path in (run, tmp_path / "whole"))
    assert one == other
