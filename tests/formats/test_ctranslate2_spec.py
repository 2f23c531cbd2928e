"""Every kind of Transformer that CTranslate2 takes scores words as attnkit's own model does, whatever its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from attnkit.errors import RunError
from attnkit.formats.ctranslate2 import make_spec, unique_names
from attnkit.formats.exportable import CTRANSLATE2_POSITIONS
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.translation import TranslationModel, build_model

SIZES = {"d_model": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 3, "d_ff": 64, "max_length": 200}
KINDS = [
    *({"positions": positions, "norm": norm} for positions in CTRANSLATE2_POSITIONS for norm in ("post", "pre")),
    {"activation": "gelu"},
    {"activation": "silu"},
    {"tie_embeddings": "none"},
    {"tie_embeddings": "target"},
    {"norm_eps": 0.1},
]
BOS, EOS = 1, 2


def make_model(config: TransformerConfig) -> tuple[TranslationModel, tuple[list[str], list[str]]]:
    """Return a model whose parameters are all random, norms and biases too, and two vocabularies."""
    torch.manual_seed(3)
    n_src, n_tgt = 48, 48 if config.tie_embeddings == "all" else 40
    model = build_model(config, n_src, n_tgt)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
    src, tgt = (unique_names([f"w{i}" for i in range(n)]) for n in (n_src, n_tgt))
    return model, (src, tgt)


def log_probs(model: TranslationModel, src: torch.Tensor, tgt: torch.Tensor) -> np.ndarray:
    """Return the log-probabilities of the words of tgt and of the end after them, in one pass."""
    with torch.no_grad():
        hidden = model.hidden(
            torch.cat([src, torch.tensor([EOS])])[None], None, torch.cat([torch.tensor([BOS]), tgt])[None]
        )
        logits = model.head(hidden)[0]
    wanted = torch.cat([tgt, torch.tensor([EOS])])[:, None]
    return logits.log_softmax(-1).gather(1, wanted)[:, 0].numpy()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())))
def test_scores_are_equal(kind: dict[str, Any], tmp_path: Path) -> None:
    config = TransformerConfig.model_validate({**SIZES, **kind})
    model, names = make_model(config)
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    make_spec(config, arrays, names, None).save(str(tmp_path))
    translator = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    for n_src, n_tgt in ((1, 1), (5, 7), (150, 140)):
        src, tgt = torch.randint(4, 48, (n_src,)), torch.randint(4, 40, (n_tgt,))
        scored = translator.score_batch([[names[0][i] for i in src]], [[names[1][i] for i in tgt]])[0]
        np.testing.assert_allclose(scored.log_probs, log_probs(model, src, tgt), atol=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RnnConfig(), "does not support models of kind 'rnn'"),
        (TransformerConfig(positions="alibi"), "alibi positions"),
        (TransformerConfig(alignment="general"), "attention other than scaled_dot with softmax"),
        (TransformerConfig(pattern="window"), "sparse attention patterns"),
        (TransformerConfig(distribution=("softmax",) * 3 + ("hard",)), "attention other than scaled_dot with softmax"),
    ],
)
def test_what_does_not_exist_there_is_refused(config: RnnConfig | TransformerConfig, message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        make_spec(config, {}, ([], []), None)
    assert caught.value.help is not None and "supported: " in caught.value.help


def test_names_of_twins_carry_their_id() -> None:
    shown = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "a", "</s>", "a#9", "a", "b#5"]
    assert unique_names(shown)[4:] == ["a", "b", "a#6", "</s>#7", "a#9", "a#9#9", "b#5"]
