"""Adapters of encoders in PEFT's format: pretrained further, fine-tuned with a new head, and imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import peft_formula
import safetensors.torch
import torch
import transformers
from hub_encoders import ENCODERS
from hub_runs import TEXT, configure, save_run, vocabulary
from test_encoder_import import NEAR, Imported

from attnkit.analysis.verify import verify_run
from attnkit.conversion.adapters import export_peft, import_peft, merge_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.formats.huggingface.layout import HEADS
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.task import make_model

BERT = ["query", "key", "value", "output.dense", "intermediate.dense"]
TARGETS = {
    "distilbert": ["q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"],
    "modernbert": ["Wqkv", "attn.Wo", "mlp.Wo", "Wi"],
}
CASES = [("bert", 0), ("bert", 1), ("roberta", 0), ("roberta", 1), ("xlm-roberta", 0), ("roformer", 0)]
CASES += [("distilbert", 1), ("electra", 0), ("modernbert", 0), ("modernbert", 1)]
LORA = [word for one in ("kind=lora", "rank=2", "alpha=6") for word in ("--set", f"adapter.{one}")]
STEPS = ["--device", "cpu", "--max-steps", "3", "--quiet", "--set", "optimization.learning_rate=0.03"]
STEPS += ["--set", "optimization.warmup_steps=1"]


def logits(imported: Imported, run: Path) -> torch.Tensor:
    """Return the logits of real tokens."""
    ids, real, segments = imported.batch(3)
    model = load_model(run, "mlm", device="cpu").model
    with torch.no_grad():
        found: torch.Tensor = model.head(model.hidden(ids, PackedLayout.padded(real), segments))[real]
    return found


def others(imported: Imported, model: Any) -> torch.Tensor:
    """Return the logits of a model of transformers, in the order of our ids."""
    ids, real, segments = imported.batch(3)
    with torch.no_grad():
        found: torch.Tensor = model(**imported.given(ids, real, segments)).logits[real][:, imported.order]
    return found


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_an_adapter_of_peft_is_imported_merged_and_exported(kind: str, shape: int, tmp_path: Path) -> None:
    imported = Imported(tmp_path, kind, shape)
    peft_formula.write_adapter(imported.theirs, tmp_path / "peft", TARGETS.get(kind, BERT))
    run = import_peft(tmp_path / "peft", imported.path, tmp_path / "adapted").path
    expected = others(imported, peft_formula.add_adapter(imported.theirs, tmp_path / "peft"))
    torch.testing.assert_close(logits(imported, run), expected, **NEAR)
    assert (expected - others(imported, imported.theirs)).abs().max() > 0.1, "the adapter says something"
    torch.testing.assert_close(logits(imported, merge_run(run, tmp_path / "merged").path), expected, **NEAR)
    export_huggingface(run, tmp_path / "whole")
    whole = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "whole").eval()
    torch.testing.assert_close(others(imported, whole), expected, **NEAR)
    export_peft(run, tmp_path / "again")
    again = others(imported, peft_formula.add_adapter(imported.theirs, tmp_path / "again"))
    torch.testing.assert_close(again, expected, **NEAR)


@pytest.mark.parametrize(
    ("kind", "maps"),
    [("bert", None), ("bert", "[down]"), ("roformer", None), ("modernbert", None), ("modernbert", "[value,gate]")],
)
def test_an_encoder_trained_further_leaves(call: Callable[..., Any], tmp_path: Path, kind: str, maps: str) -> None:
    """Modules of ModernBERT hold several maps; of BERT, two kinds of modules end with ``output.dense``."""
    imported = Imported(tmp_path, kind)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT * 3))
    more = ["--set", "data.sequence_length=24", *([] if maps is None else ["--set", f"adapter.maps={maps}"])]
    words = ["pretrain-mlm", tmp_path / "text", "-o", tmp_path / "adapted", "--init-from", imported.path]
    code, _, err = call(*words, "--preset", "tiny", *STEPS, *LORA, *more)
    assert code == 0, err
    code, _, err = call("export", tmp_path / "adapted", "--to", "peft", tmp_path / "peft")
    assert code == 0, err
    expected = others(imported, peft_formula.add_adapter(imported.theirs, tmp_path / "peft"))
    torch.testing.assert_close(logits(imported, tmp_path / "adapted"), expected, **NEAR)
    assert (expected - others(imported, imported.theirs)).abs().max() > 0.05, "the adapter says something"
    again = import_peft(tmp_path / "peft", imported.path, tmp_path / "again").path
    one, other = (load_model(run, "mlm", device="cpu") for run in (tmp_path / "adapted", again))
    assert one.config.adapter.rank == other.config.adapter.rank == 2
    back = other.model.state_dict()
    assert all(torch.equal(tensor, back[key]) for key, tensor in one.model.state_dict().items())


def table(path: Path, task: str) -> Path:
    """Write examples of a task."""
    words = [line.split() for line in TEXT]
    if task == "text-classification":
        rows = [f"{' '.join(line)}\t{'abc'[number % 3]}" for number, line in enumerate(words * 2)]
        path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    else:
        path.write_text("\n\n".join("\n".join(f"{word} {'NV'[len(word) % 2]}" for word in line) for line in words))
    return path


TUNED = [(kind, "text-classification") for kind in ("bert", "roberta", "distilbert", "electra", "modernbert")]
TUNED += [("roberta", "token-classification"), ("bert", "token-classification"), ("modernbert", "token-classification")]


@pytest.mark.parametrize(("kind", "task"), TUNED)
def test_a_fine_tuned_encoder_leaves_with_its_head(
    call: Callable[..., Any], tmp_path: Path, kind: str, task: str
) -> None:
    imported = Imported(tmp_path, kind)
    words = ["finetune", imported.path, "--task", task, "--train", table(tmp_path / "examples", task)]
    code, _, err = call(*words, "-o", tmp_path / "tuned", *STEPS, *LORA)
    assert code == 0, err
    code, _, err = call("export", tmp_path / "tuned", "--to", "peft", tmp_path / "peft")
    assert code == 0, err
    opened = load_model(tmp_path / "tuned", task, device="cpu")
    n_labels = len(opened.model.output.bias)
    card = (tmp_path / "peft/README.md").read_text()
    assert f'AutoModelFor{HEADS[task]}.from_pretrained("base-hf", num_labels={n_labels})' in card
    base = getattr(transformers, f"AutoModelFor{HEADS[task]}").from_pretrained(tmp_path / "hub", num_labels=n_labels)
    ids, real, segments = imported.batch(3)
    model = peft_formula.add_adapter(base.eval(), tmp_path / "peft")
    kept = real if task == "token-classification" else slice(None)
    with torch.no_grad():
        expected = model(**imported.given(ids, real, segments)).logits[kept]
        torch.testing.assert_close(opened.model(ids, real, segments)[kept], expected, **NEAR)
    assert expected.std() > 0.05, "the model says something"


SAVED = [
    ("bert", "SequenceClassification", ["classifier"]),
    ("bert", "SequenceClassification", ["pooler", "classifier", "score"]),
    ("roberta", "SequenceClassification", ["classifier"]),
    ("distilbert", "SequenceClassification", ["pre_classifier", "classifier"]),
    ("roberta", "TokenClassification", None),
    ("bert", "QuestionAnswering", ["qa_outputs"]),
]


def classifier(place: Path, kind: str, end: str) -> tuple[Any, Path]:
    """Return a fine-tuned model of transformers, and the run that it was imported as."""
    start = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[kind]
    theirs = ENCODERS[kind](place / "hub", kind=getattr(transformers, f"{start}For{end}")).eval()
    return theirs, import_huggingface(place / "hub", place / "base").path


@pytest.mark.parametrize(("kind", "end", "saved"), SAVED)
def test_an_adapter_with_a_head_is_imported(kind: str, end: str, saved: list[str] | None, tmp_path: Path) -> None:
    theirs, base = classifier(tmp_path, kind, end)
    peft_formula.write_adapter(theirs, tmp_path / "peft", TARGETS.get(kind, BERT), modules_to_save=saved)
    run = import_peft(tmp_path / "peft", base, tmp_path / "run").path
    opened = load_model(run, {v: k for k, v in HEADS.items()}[end], device="cpu")
    origin = read_tokenizer(opened.checkpoint).origin
    assert origin is not None
    ids = torch.randint(10, 60, (3, 12))
    real, segments = torch.ones(3, 12, dtype=torch.bool), torch.zeros(3, 12, dtype=torch.long)
    own = segments if opened.config.model.n_segments > 1 else None
    more = () if end != "QuestionAnswering" else (real,)
    model = peft_formula.add_adapter(theirs, tmp_path / "peft")
    with torch.no_grad():
        found = opened.model(ids, real, own, *more)
        theirs_found = model(torch.tensor(origin.order)[ids])
    expected = torch.stack((theirs_found.start_logits, theirs_found.end_logits)) if more else theirs_found.logits
    torch.testing.assert_close(found, expected, **NEAR)
    assert expected.std() > 0.05, "the model says something"
    merged = load_model(merge_run(run, tmp_path / "merged").path, opened.config.task, device="cpu")
    with torch.no_grad():
        assert torch.equal(merged.model(ids, real, own, *more), found)
    assert verify_run(run).n_bad == verify_run(tmp_path / "merged").n_bad == 0


def test_heads_that_do_not_fit_are_refused(call: Callable[..., Any], tmp_path: Path) -> None:
    theirs, base = classifier(tmp_path, "bert", "SequenceClassification")
    peft_formula.write_adapter(theirs, tmp_path / "peft", BERT, modules_to_save=["classifier"])
    path = tmp_path / "peft/adapter_model.safetensors"
    good, name = safetensors.torch.load(path.read_bytes()), "base_model.model.classifier.weight"
    for changed, said in (
        ({**good, name: torch.ones(7, 32)}, "classifier.weight' is [7, 32], not [2, 32]"),
        ({key: tensor for key, tensor in good.items() if key != name}, "classifier.weight' is missing"),
        (
            {**good, "base_model.model.bert.pooler.dense.weight": torch.ones(32, 32)},
            "pooler.dense.weight' is unexpected",
        ),
        ({**good, name: torch.full((2, 32), float("inf"))}, "not finite"),
    ):
        path.write_bytes(safetensors.torch.save(changed))
        code, _, err = call("import", "peft", tmp_path / "peft", "--base", base, "-o", tmp_path / "run")
        told = err[err.index("error:") :]  # behind the progress of transformers
        assert code == 4 and said in told and len(told.splitlines()) <= 3, err
    imported = Imported(tmp_path / "other", "bert")
    with pytest.raises(RunError, match="no head that it could replace") as found:
        import_peft(tmp_path / "peft", imported.path, tmp_path / "run")
    assert "save the base with a head" in str(found.value.help)


def test_adapters_of_other_models_and_without_weights_are_refused(call: Callable[..., Any], tmp_path: Path) -> None:
    one, other = Imported(tmp_path / "one", "bert"), Imported(tmp_path / "other", "distilbert")
    peft_formula.write_adapter(one.theirs, tmp_path / "peft", ["query"])
    code, _, err = call("import", "peft", tmp_path / "peft", "--base", other.path, "-o", tmp_path / "run")
    said = "it has none of the base's maps, but e.g. 'base_model.model.bert.encoder.layer.0.attention.self.query.lora_A"
    assert code == 4 and said in err and "help: supported: the model that it was trained on as --base" in err, err
    (tmp_path / "peft/adapter_model.safetensors").rename(tmp_path / "peft/adapter_model.bin")
    code, _, err = call("import", "peft", tmp_path / "peft", "--base", one.path, "-o", tmp_path / "run")
    assert code == 4 and "no adapter_model.safetensors in" in err and "save_pretrained" in err, err


def test_both_parts_of_an_electra_have_no_peft_format(tmp_path: Path) -> None:
    tokenizer = vocabulary()
    config = configure("mlm", tokenizer, pooler="gelu", activation="gelu", positions="learned")
    config = config.model_copy(update={"objective": "electra"})
    run = save_run(tmp_path / "run", config, make_model(config, tokenizer.vocab_size), tokenizer)
    with pytest.raises(RunError, match="no model with both parts of an ELECTRA"):
        export_peft(run, tmp_path / "peft")
