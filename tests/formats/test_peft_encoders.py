"""Adapters of encoders in PEFT's format: pretrained further, fine-tuned with a new head, and imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import peft_formula
import torch
import transformers
from hub_runs import TEXT
from test_encoder_import import NEAR, Imported

from attnkit.conversion.adapters import export_peft, import_peft, merge_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.engine.loading import load_model
from attnkit.models.layers import PackedLayout

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


CLASSES = {"text-classification": "SequenceClassification", "token-classification": "TokenClassification"}
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
    assert f'AutoModelFor{CLASSES[task]}.from_pretrained("base-hf", num_labels={n_labels})' in card
    base = getattr(transformers, f"AutoModelFor{CLASSES[task]}").from_pretrained(tmp_path / "hub", num_labels=n_labels)
    ids, real, segments = imported.batch(3)
    model = peft_formula.add_adapter(base.eval(), tmp_path / "peft")
    kept = real if task == "token-classification" else slice(None)
    with torch.no_grad():
        expected = model(**imported.given(ids, real, segments)).logits[kept]
        torch.testing.assert_close(opened.model(ids, real, segments)[kept], expected, **NEAR)
    assert expected.std() > 0.05, "the model says something"
