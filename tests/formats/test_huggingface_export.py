"""What is exported computes the same in transformers, which loads it by its own means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import safetensors.torch
import transformers
from hub_runs import SIZES, configure, padded, random_rows, save_run, shaken, vocabulary
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.errors import RunError, UsageError
from attnkit.formats.exportable import check_marian
from attnkit.formats.huggingface import layout
from attnkit.formats.huggingface.config import bert_json, marian_json
from attnkit.formats.huggingface.translation_layout import to_marian
from attnkit.models.bert import Bert, SequenceClassifier, SpanPredictor, TokenTagger
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import PackedLayout
from attnkit.models.transformer import Transformer

NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
BERTS: dict[str, dict[str, Any]] = {
    "as published": {"positions": "learned"},
    "next sentence": {"positions": "learned", "next_sentence": True},
    "untied": {"positions": "learned", "tie_embeddings": False},
    "sinusoidal": {"positions": "sinusoidal"},
    "one segment": {"positions": "learned", "n_segments": 1},
    "relu, another eps": {"positions": "learned", "activation": "relu", "norm_eps": 1e-3},
    "rotary": {},
    "rotary, gelu by tanh": {"activation": "gelu_tanh"},
    "rotary, silu": {"activation": "silu"},
    "rotary, one segment": {"n_segments": 1},
    "rotary, next sentence, untied": {"next_sentence": True, "tie_embeddings": False},
}
GPTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_embeddings": False},
    "sinusoidal, gelu": {"positions": "sinusoidal", "activation": "gelu"},
}
WORDS = vocabulary()
V = WORDS.vocab_size


@pytest.mark.parametrize("name", BERTS)
def test_bert_predicts_the_same_words(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = configure("mlm", WORDS, **BERTS[name])
    model: Any = shaken(Bert(config.model, V))
    exported = export_huggingface(save_run(tmp_path / "run", config, model, WORDS), tmp_path / "hub")
    rotary = config.model.positions == "rotary"
    assert any("next-sentence head" in said for said in exported.warnings) is (rotary and config.model.next_sentence)
    theirs, told = AutoModelForMaskedLM.from_pretrained(exported.path, output_loading_info=True)
    assert not told["missing_keys"] and not told["mismatched_keys"]
    assert type(theirs).__name__ == ("RoFormerForMaskedLM" if rotary else "BertForMaskedLM")
    ids, real = padded(random_rows(V))
    pair = torch.arange(ids.shape[1]).ge(4).long().expand_as(ids) if config.model.n_segments > 1 else None
    with torch.no_grad():
        hidden = model.hidden(ids, PackedLayout.padded(real.bool()), pair)
        found = theirs(input_ids=ids, attention_mask=real, token_type_ids=pair).logits
    torch.testing.assert_close(found[real.bool()], model.head(hidden)[real.bool()], **NEAR)
    assert found.std() > 0.3, "the test needs a model that says something"


def test_the_next_sentence_is_judged_the_same(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = configure("mlm", WORDS, next_sentence=True, positions="learned")
    model: Any = shaken(Bert(config.model, V))
    folder = export_huggingface(save_run(tmp_path / "run", config, model, WORDS), tmp_path / "hub").path
    theirs = AutoModelForPreTraining.from_pretrained(folder)
    ids = torch.tensor(random_rows(V)[:1])
    with torch.no_grad():
        judged = model.next_sentence(model.hidden(ids, PackedLayout.unpacked(1)))
        torch.testing.assert_close(theirs(input_ids=ids).seq_relationship_logits, judged, **NEAR)
        body = AutoModel.from_pretrained(folder)(input_ids=ids)
        torch.testing.assert_close(
            body.pooler_output, model.next_sentence.pooler(model.hidden(ids, PackedLayout.unpacked(1))[:, 0]), **NEAR
        )


HEADS: dict[str, tuple[Any, Any, Any]] = {
    "BertForSequenceClassification": (SequenceClassifier, "text-classification", AutoModelForSequenceClassification),
    "BertForTokenClassification": (TokenTagger, "token-classification", AutoModelForTokenClassification),
    "BertForQuestionAnswering": (SpanPredictor, "question-answering", AutoModelForQuestionAnswering),
}


@pytest.mark.parametrize("body", ["bert", "roformer"])
@pytest.mark.parametrize("name", HEADS)
def test_heads_say_the_same(name: str, body: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    kind, task, auto = HEADS[name]
    positions: Any = "learned" if body == "bert" else "rotary"
    config, labels = BertConfig(**SIZES, positions=positions), [] if kind is SpanPredictor else ["O", "B-x", "I-x"]
    model: Any = shaken(kind(config, V, *([3] if labels else [])))
    links = layout.with_prefix("encoder", layout.bert_body(config)) + layout.head_of(
        task, layout.body_kind(config), config
    )
    tensors = layout.to_theirs(links, model.state_dict())
    (tmp_path / "model.safetensors").write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))
    (tmp_path / "config.json").write_text(json.dumps(bert_json(config, body, V, name, labels)))
    theirs, told = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert {*told["missing_keys"]} <= {"roformer.encoder.embed_positions.weight"} and not told["unexpected_keys"]
    ids, real = padded(random_rows(V))
    segments = torch.zeros_like(ids)
    with torch.no_grad():
        found = theirs(input_ids=ids, attention_mask=real)
        if kind is SpanPredictor:
            begins, ends = model(ids, real.bool(), segments, real.bool())
            torch.testing.assert_close(found.start_logits[real.bool()], begins[real.bool()], **NEAR)
            torch.testing.assert_close(found.end_logits[real.bool()], ends[real.bool()], **NEAR)
            return
        mine = model(ids, real.bool(), segments)
    kept = real.bool() if kind is TokenTagger else slice(None)
    torch.testing.assert_close(found.logits[kept], mine[kept], **NEAR)
    assert theirs.config.id2label == dict(enumerate(labels))


@pytest.mark.parametrize("name", GPTS)
def test_gpt_predicts_the_same_words(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    config = configure("clm", WORDS, **GPTS[name])
    model: Any = shaken(Gpt(config.model, V))
    folder = export_huggingface(save_run(tmp_path / "run", config, model, WORDS), tmp_path / "hub").path
    theirs, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    ids = torch.tensor(random_rows(V)[:1])
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(input_ids=ids).logits, model.head(model.hidden(ids, PackedLayout.unpacked(1))), **NEAR
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("the fox").input_ids == [1, *WORDS.encode(["the fox"])[0]]
    assert "token_type_ids" not in tokenizer("the fox")
    assert theirs.generation_config.suppress_tokens == [0, 1, 3]


TRANSLATORS = {"tied": "all", "target": "target", "none": "none"}


@pytest.mark.parametrize("tied", TRANSLATORS.values(), ids=TRANSLATORS)
def test_marian_scores_the_same_words(tied: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    shape = {"d_model": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 3, "d_ff": 64}
    config = TransformerConfig(**shape, tie_embeddings=tied, activation="silu")
    sizes = (48, 48 if tied == "all" else 40)
    model: Any = shaken(Transformer(config, *sizes))
    tensors = to_marian(config, model.state_dict())
    (tmp_path / "model.safetensors").write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))
    (tmp_path / "config.json").write_text(json.dumps(marian_json(config, sizes, 64)))
    src, real = padded(random_rows(40))
    tgt = torch.tensor(random_rows(40)[:1]).expand(3, -1)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    theirs.save_pretrained(tmp_path / "again")  # which leaves the position table out
    with torch.no_grad():
        mine = model.head(model.hidden(src, real.bool(), tgt))
        for folder in (tmp_path, tmp_path / "again"):
            reader = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            found = reader(input_ids=src, attention_mask=real, decoder_input_ids=tgt).logits
            torch.testing.assert_close(found, mine, **NEAR)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("mlm", {"norm": "pre"}, "model.norm", "BERT with norm 'pre'"),
    ("clm", {"positions": "rotary"}, "model.positions", "GPT-2 with rotary positions"),
    ("mlm", {"positions": "alibi"}, "model.positions", "alibi positions"),
    ("mlm", {"glu": True}, "model.glu", "gated units"),
    ("mlm", {"alignment": "additive"}, "model.alignment, model.distribution", "attention other than scaled_dot"),
    ("mlm", {"local_window": 8}, "model.local_window", "BERT with local layers"),
    ("mlm", {"norm_bias": False}, "model.norm_bias", "BERT with norms without biases"),
    ("mlm", {"norm": "pre", "embedding_norm": True}, "model.embedding_norm", "embeddings of a pre-norm model"),
    ("mlm", {"head_bias": False}, "model.head_bias", "BERT with a masked-LM head without biases"),
    ("mlm", {"pooler": "mlm_head"}, "model.pooler", "BERT with pooler mlm_head"),
    ("mlm", {"pooling": "mean"}, "model.pooling", "BERT with pooling mean"),
    ("clm", {"norm": "post"}, "model.norm", "GPT-2 with norm 'post'"),
    ("clm", {"direction": "right-to-left"}, "direction", "right-to-left GPT-2"),
]


@pytest.mark.parametrize(("task", "change", "key", "said"), REFUSED)
def test_what_has_no_counterpart_is_refused(
    task: str, change: dict[str, Any], key: str, said: str, tmp_path: Path
) -> None:
    config = configure(task, WORDS, **change)
    model: Any = Bert(config.model, V) if task == "mlm" else Gpt(config.model, V)  # type: ignore[arg-type]
    save_run(tmp_path / "run", config, model, WORDS)
    with pytest.raises(RunError, match=said) as caught:
        export_huggingface(tmp_path / "run", tmp_path / "hub")
    assert caught.value.where == f"{tmp_path / 'run'}: {key}" and "supported: " in str(caught.value.help)
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (RnnConfig(), "model.kind"),
        (TransformerConfig(norm="pre"), "model.norm"),
        (TransformerConfig(positions="rotary"), "model.positions"),
        (TransformerConfig(alignment="dot"), "model.alignment, model.distribution"),
        (TransformerConfig(pattern="window"), "model.pattern"),
    ],
)
def test_a_translator_that_marian_is_not_is_refused(config: Any, key: str) -> None:
    with pytest.raises(RunError) as caught:
        check_marian(config)
    assert caught.value.where == key


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/mine").touch()
    with pytest.raises(UsageError, match="the output folder is not empty"):
        export_huggingface(tmp_path / "run", tmp_path / "hub")


def test_this_is_the_version_that_the_figures_are_of() -> None:
    assert int(transformers.__version__.split(".")[0]) >= 5
