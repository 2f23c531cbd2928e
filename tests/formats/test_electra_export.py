"""Runs of ELECTRA in transformers and CTranslate2: what detects replaced tokens there computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import transformers
from hub_runs import configure, padded, random_rows, save_run, shaken, vocabulary

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.models.electra import Electra
from attnkit.models.layers import PackedLayout

NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
WORDS = vocabulary()
V = WORDS.vocab_size
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "electra": ("ElectraForPreTraining", {"positions": "learned", "pooler": "gelu"}),
    "electra, narrow": ("ElectraForPreTraining", {"positions": "learned", "pooler": "gelu", "d_embedding": 12}),
    "bert": ("BertModel", {"positions": "learned"}),
    "rotary": ("RoFormerModel", {}),
}


def saved(folder: Path, **model: Any) -> tuple[Any, Path]:
    """Return an ELECTRA of random weights, and its run."""
    torch.manual_seed(1)
    config = configure("mlm", WORDS, **model).model_copy(update={"objective": "electra"})
    electra: Any = shaken(Electra(config.model, V, config.electra))
    return electra, save_run(folder, config, electra, WORDS)


@pytest.mark.parametrize("name", BODIES)
def test_transformers_computes_the_same(name: str, tmp_path: Path) -> None:
    architecture, sizes = BODIES[name]
    electra, run = saved(tmp_path / "run", **sizes)
    exported = export_huggingface(run, tmp_path / "hub")
    detects = architecture == "ElectraForPreTraining"
    kind = transformers.AutoModelForPreTraining if detects else transformers.AutoModel
    theirs, told = kind.from_pretrained(exported.path, output_loading_info=True)
    assert type(theirs).__name__ == architecture
    assert not told["mismatched_keys"] and not told["unexpected_keys"]
    assert {key for key in told["missing_keys"] if not key.startswith("pooler.")} == set()
    ids, real = padded(random_rows(V))
    with torch.no_grad():
        hidden = electra.encoder.hidden(ids, PackedLayout.padded(real.bool()))
        found = theirs(input_ids=ids, attention_mask=real)
    expected = electra.detector(hidden) if detects else hidden
    output = found.logits if detects else found.last_hidden_state
    torch.testing.assert_close(output[real.bool()], expected[real.bool()], **NEAR)
    assert expected.std() > 0.1, "the test needs a model that says something"
    (warning,) = exported.warnings
    assert ("generator is not exported" if detects else "is exported: ") in warning
    assert "AutoModel" in (exported.path / "README.md").read_text()


def test_the_encoder_comes_back(tmp_path: Path) -> None:
    """An import has no place for the head, and keeps the encoder."""
    electra, run = saved(tmp_path / "run", **BODIES["electra, narrow"][1])
    folder = export_huggingface(run, tmp_path / "hub").path
    imported = import_huggingface(folder, tmp_path / "back")
    assert any("discriminator_predictions" in warning for warning in imported.warnings)
    body = load_model(tmp_path / "back", "mlm", device="cpu").model
    ids = torch.tensor(random_rows(V)[:1])
    with torch.no_grad():
        expected = electra.encoder.hidden(ids, PackedLayout.unpacked(1))
        torch.testing.assert_close(body.hidden(ids, PackedLayout.unpacked(1)), expected, **NEAR)


def test_ctranslate2_computes_the_features(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    from attnkit.conversion.export_ctranslate2 import export_ctranslate2

    electra, run = saved(tmp_path / "run", positions="learned")
    done = export_ctranslate2(run, tmp_path / "ct2")
    assert any("neither the generator" in warning for warning in done.warnings)
    rows = random_rows(V)[:1]
    encoder = ctranslate2.Encoder(str(tmp_path / "ct2"), device="cpu", inter_threads=1, intra_threads=1)
    found = encoder.forward_batch(rows)
    features = torch.from_numpy(np.array(found.last_hidden_state))
    with torch.no_grad():
        expected = electra.encoder.hidden(torch.tensor(rows), PackedLayout.unpacked(1))
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-4)
