"""Options that T5 has: unscaled scores, RMSNorm, no biases, head widths, and where √d is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from walks import STEPS, K, V, Walk, sources

from attnkit.models.attention.attend import AttentionScope, scaled_dot
from attnkit.models.config import TransformerConfig
from attnkit.models.kv_cache import DecodingState
from attnkit.models.transformer import MASKED, Transformer
from attnkit.protocols import BOS_ID, PAD_ID

SMALL: dict[str, Any] = {"d_model": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "d_ff": 24}
T5: dict[str, Any] = {
    "norm": "pre",
    "normalization": "rms",
    "norm_eps": 1e-6,
    "positions": "relative",
    "alignment": "dot",
    "bias": False,
    "scaled_input": False,
    "scaled_output": True,
    "output_bias": False,
}
GATED = {"glu": True, "activation": "gelu_tanh", "scaled_output": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "t5": T5,
    "t5 v1.1": {**T5, **GATED, "tie_embeddings": "inputs"},
    "mt5": {**T5, **GATED, "tie_embeddings": "none", "head_width": 12, "relative_buckets": 8, "relative_distance": 20},
    "dot alone": {"alignment": "dot"},
    "rms and narrow heads, post-norm": {"normalization": "rms", "head_width": 4, "embedding_norm": True},
}


def build(name: str, **more: Any) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig.model_validate({**SMALL, "dropout": 0.0, **OPTIONS[name], **more})
    model = Transformer(config, V, V).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
@torch.inference_mode()
def test_steps_of_beams_equal_the_full_pass(name: str, record: bool) -> None:
    walk = Walk(build(name), record)
    assert isinstance(walk.state, DecodingState), "the cache with fewer operations"
    for t in range(STEPS):
        walk.step()
        torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=1e-11)
        if t >= 1:
            walk.reorder_beams(K if t != 6 else 2)


@pytest.mark.parametrize("name", OPTIONS)
@torch.no_grad()
def test_recorded_weights_give_the_features_of_the_fused_kernel(name: str) -> None:
    """The weights of the definition, times values, are the context of the kernel."""
    model, (src, mask) = build(name), sources()
    tgt = torch.randint(4, V, (4, 7))
    own: list[Tensor] = []
    memory = model.encoder(src, mask, own)
    torch.testing.assert_close(memory[mask], model.encoder(src, mask)[mask], rtol=1e-9, atol=1e-9)
    seen: tuple[list[Tensor], list[Tensor]] = ([], [])
    features = model.decoder(tgt, memory, mask, seen)
    torch.testing.assert_close(features, model.hidden(src, mask, tgt), rtol=1e-9, atol=1e-9)
    assert len(own) == 1 and [len(part) for part in seen] == [2, 2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_scale_of_one_leaves_scores_as_they_are(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    query, keys, values = (torch.randn(2, 3, 5, 8, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(3, 5, 5, dtype=torch.float64)
    expected = (query @ keys.mT + bias).softmax(-1) @ values
    given = [part.to(dtype) for part in (query, keys, values)]
    found = scaled_dot(*given, AttentionScope(bias=bias.to(dtype)), scale=1.0)
    limit = 1e-12 if dtype == torch.float64 else 0.1
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=limit)
    usual = scaled_dot(*given, AttentionScope(bias=bias.to(dtype)))
    assert float((usual.double() - expected).abs().max()) > 3 * limit, "the scale makes no difference"


@torch.no_grad()
def test_embeddings_and_outputs_are_scaled_as_configured() -> None:
    model, plain = build("t5"), build("t5", scaled_output=False)
    plain.load_state_dict(model.state_dict())
    src, mask = sources()
    tgt = torch.randint(4, V, (4, 7))
    features = plain.hidden(src, mask, tgt)
    torch.testing.assert_close(model.hidden(src, mask, tgt), features / 4, rtol=1e-12, atol=0)  # √16
    words = model.encoder.embedding.words.weight
    assert torch.equal(model.encoder.embedding(src), words[src])
    usual = build("t5", scaled_input=True)
    torch.testing.assert_close(
        usual.encoder.embedding(src), 4 * usual.encoder.embedding.words.weight[src], rtol=1e-12, atol=0
    )
    fresh = Transformer(TransformerConfig(**{**SMALL, "d_model": 64, **T5}), 400, 400)
    assert float(fresh.encoder.embedding.words.weight.std()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("tied", ["inputs", "all", "none", "target"])
def test_matrices_are_shared_as_configured(tied: str) -> None:
    model = build("t5", tie_embeddings=tied)
    source, target = (side.embedding.words.weight for side in (model.encoder, model.decoder))
    assert (source is target) == (tied in ("inputs", "all"))
    assert (model.output.weight is target) == (tied in ("target", "all"))
    if tied in ("inputs", "all"):
        with pytest.raises(ValueError, match=f"tie_embeddings={tied} requires a joint vocabulary"):
            Transformer(TransformerConfig.model_validate({**SMALL, **T5, "tie_embeddings": tied}), V, V + 1)
        with pytest.raises(ValueError, match="target_embeddings need tie_embeddings target or none"):
            TransformerConfig.model_validate({**SMALL, "tie_embeddings": tied, "target_embeddings": "x"})


@pytest.mark.parametrize("change", [{}, {"scaled_output": False}, {"tie_embeddings": "inputs"}])
def test_a_fresh_model_is_nearly_undecided(change: dict[str, Any]) -> None:
    """Logits of random weights have a variance of about 1, wherever the output layer comes from."""
    torch.manual_seed(1)
    shape = {**T5, "d_model": 256, "n_heads": 4, "tie_embeddings": "all", "scaled_output": True, **change}
    model = Transformer(TransformerConfig.model_validate(shape), 300, 300).eval()
    ids = torch.randint(4, 300, (2, 9))
    with torch.no_grad():
        logits = model.head(model.hidden(ids, None, ids))[..., 4:]
    assert float(logits.std()) < 2


def test_without_an_output_bias_padding_has_no_logit_and_nothing_trains_it() -> None:
    model = Transformer(TransformerConfig(**SMALL, **T5), V, V)
    assert model.first_target == BOS_ID and not model.output.bias.requires_grad
    assert model.output.bias.tolist() == [MASKED, *[0.0] * (V - 1)]
    assert float(model.head(torch.randn(1, 16)).softmax(-1)[0, PAD_ID].detach()) == 0.0
    assert Transformer(TransformerConfig(**SMALL), V, V).output.bias.requires_grad


def test_the_outputs_of_both_stacks_are_dropped_out() -> None:
    options: dict[str, Any] = {"stack_dropout": 0.5, "dropout": 0.0, "attention_dropout": 0.0}
    model = Transformer(TransformerConfig(**{**SMALL, **T5, "d_model": 64, **options}), V, V).train()
    src, mask = sources()
    memory = model.encoder(src, mask)
    features = model.decoder(src, memory.detach(), mask)
    for found in (memory, features):
        assert 0.4 < float((found == 0).float().mean()) < 0.6
    model.eval()
    assert not bool((model.hidden(src, mask, src) == 0).any())


def test_distances_need_more_room_than_the_exact_buckets() -> None:
    with pytest.raises(ValueError, match=r"relative_distance \(16\) must be above half of relative_buckets \(32\)"):
        TransformerConfig(relative_distance=16)
    assert TransformerConfig(relative_distance=17).relative_distance == 17


@pytest.mark.parametrize("name", ["t5", "t5 v1.1", "mt5"])
def test_it_learns_to_turn_words_around(name: str) -> None:
    """From nothing; a model without positions or without a decoder could not."""
    torch.manual_seed(4)
    sizes = {"d_model": 32, "n_heads": 2, "d_ff": 64, "dropout": 0.0}
    model = Transformer(TransformerConfig(**{**SMALL, **OPTIONS[name], **sizes}), V, V)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=4e-3)
    words = torch.randint(4, V, (700, 32, 4))
    for batch in words:
        src, tgt = batch, batch.flip(1)
        given = torch.cat((torch.full_like(tgt[:, :1], BOS_ID), tgt[:, :-1]), 1)
        loss = F.cross_entropy(model.head(model.hidden(src, None, given)).flatten(0, 1), tgt.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.4, "four words in any order give 1.4 or less"
