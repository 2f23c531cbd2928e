"""Imported encoders and text generators of real widths and heads compute as in transformers.

Encoders and GPT-2 have the layers of the published base models, a Llama 2 of 16 and a Mistral 1 of 32, since each layer
of these takes 0.25 and 0.9 GB. Vocabularies are those of small models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import test_encoder_import as encoders
import test_generators_learn_and_search as generators
import torch

from attnkit.models.layers import PackedLayout

pytestmark = pytest.mark.slow

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {**BASE, "max_position_embeddings": 512},
    "roberta": {**BASE, "max_position_embeddings": 514},
    "xlm-roberta": {**BASE, "max_position_embeddings": 514},
    "roformer": {**BASE, "max_position_embeddings": 1536},
    "distilbert": {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "max_position_embeddings": 512},
    "electra": {**BASE, "embedding_size": 768, "max_position_embeddings": 512},
    "modernbert": {**BASE, "num_hidden_layers": 22, "intermediate_size": 1152, "local_attention": 128},
}
ENCODERS["modernbert"]["max_position_embeddings"] = 8192
LLAMA_3_2: dict[str, Any] = {"hidden_size": 2048, "num_attention_heads": 32, "head_dim": 64, "intermediate_size": 8192}
MISTRAL: dict[str, Any] = {"hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336}
KEYS = {"num_key_value_heads": 8, "max_position_embeddings": 32768}
GENERATORS: dict[str, dict[str, Any]] = {
    "gpt2, tied": {"n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12},
    "llama, wide heads, as Llama 3.2": {**LLAMA_3_2, **KEYS, "num_hidden_layers": 2},
    "mistral, version 0.3": {**MISTRAL, **KEYS, "num_hidden_layers": 1},
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders(kind: str, tmp_path: Path) -> None:
    imported = encoders.Imported(tmp_path, kind, 0, **ENCODERS[kind])
    ids, real, segments = imported.batch(1, width=200)
    model = imported.run.model
    with torch.no_grad():
        ours = model.head(model.hidden(ids, PackedLayout.padded(real), segments))[real]
        theirs = imported.theirs(**imported.given(ids, real, segments)).logits[real]
    torch.testing.assert_close(ours, theirs[:, imported.order], rtol=0, atol=1e-4)
    assert theirs.std() > 0.3, "the weights say nothing"


@pytest.mark.parametrize("name", GENERATORS)
def test_generators(name: str, tmp_path: Path) -> None:
    imported = generators.Imported(tmp_path, name, **GENERATORS[name])
    model, known = imported.opened.model, imported.known.nonzero().flatten()
    ours = known[torch.randint(4, len(known), (2, 200), generator=torch.Generator().manual_seed(1))]
    order = torch.tensor(imported.order)
    with torch.no_grad():
        found = model.head(model.hidden(ours, PackedLayout.unpacked(2)))[..., known]
        theirs = imported.theirs(order[ours]).logits[..., order[known]]
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-4)
    assert theirs.std() > 0.3, "the weights say nothing"
