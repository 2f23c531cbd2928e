"""Hugging Face's MarianMTModel with the weights of an attnkit Transformer. Runs under the peers' interpreter.

Marian knows one kind of model: post-norm, sinusoidal positions, scaled embeddings. It lays sines and cosines out in
halves where attnkit interleaves them, so attnkit's table is put in the place of Marian's; decoding starts from BOS's
own embedding, and attnkit's output bias becomes final_logits_bias, a buffer that Marian does not train.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS = 0, 1, 2
LONGEST = 512
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}


def load_marian(folder: Path, dropout: float) -> MarianMTModel:
    """Return the model of ``model.json`` (attnkit's model configuration) and ``model.safetensors`` in a folder."""
    shape = json.loads((folder / "model.json").read_text())
    wanted = {"kind": "transformer", "norm": "post", "positions": "sinusoidal", "tied": "all"}
    odd = {name: shape[name] for name, value in wanted.items() if shape[name] != value}
    if odd:
        raise SystemExit(f"Marian has no model with {odd}; this comparison needs {wanted}")
    weights = load_file(folder / "model.safetensors")
    config = MarianConfig(
        vocab_size=len(weights["output.bias"]),
        d_model=shape["d_model"],
        encoder_layers=shape["encoder_layers"],
        decoder_layers=shape["decoder_layers"],
        encoder_ffn_dim=shape["d_ff"],
        decoder_ffn_dim=shape["d_ff"],
        encoder_attention_heads=shape["n_heads"],
        decoder_attention_heads=shape["n_heads"],
        activation_function=ACTIVATIONS[shape["activation"]],
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        max_position_embeddings=LONGEST,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    with torch.no_grad():
        fill(model, weights, shape)
    return model


def fill(model: MarianMTModel, weights: dict[str, Tensor], shape: dict[str, Any]) -> None:
    """Copy attnkit's weights into Marian's places."""
    model.model.shared.weight.copy_(weights["encoder.embedding.words.weight"])
    model.final_logits_bias.copy_(weights["output.bias"][None])
    for embedded in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head):
        assert embedded.weight.data_ptr() == model.model.shared.weight.data_ptr(), "the embeddings are not tied"
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.copy_(sinusoids(shape["d_model"]))
    for side in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model.model, side).layers):
            name = f"{side}.layers.{i}"
            copy_parts([layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj],
                       [weights[f"{name}.attention.projection.{kind}"] for kind in ("weight", "bias")])  # fmt: skip
            copy(layer.self_attn.out_proj, f"{name}.attention.output", weights)
            copy(layer.self_attn_layer_norm, f"{name}.around_attention.norm", weights)
            copy(layer.fc1, f"{name}.feed_forward.up", weights)
            copy(layer.fc2, f"{name}.feed_forward.down", weights)
            copy(layer.final_layer_norm, f"{name}.around_feed_forward.norm", weights)
    width = 2 * shape["d_model"]
    for i, layer in enumerate(model.model.decoder.layers):
        rows = slice(i * width, (i + 1) * width)
        copy(layer.encoder_attn.q_proj, f"decoder.layers.{i}.cross.projection", weights)
        copy_parts([layer.encoder_attn.k_proj, layer.encoder_attn.v_proj],
                   [weights[f"decoder.memory.{kind}"][rows] for kind in ("weight", "bias")])  # fmt: skip
        copy(layer.encoder_attn.out_proj, f"decoder.layers.{i}.cross.output", weights)
        copy(layer.encoder_attn_layer_norm, f"decoder.layers.{i}.around_cross.norm", weights)


def copy(module: Any, name: str, weights: dict[str, Tensor]) -> None:
    """Copy weight and bias of one module."""
    module.weight.copy_(weights[f"{name}.weight"])
    module.bias.copy_(weights[f"{name}.bias"])


def copy_parts(modules: list[Any], parts: list[Tensor]) -> None:
    """Copy a fused projection's weight and bias into modules of their own."""
    weights, biases = (part.chunk(len(modules)) for part in parts)
    for module, weight, bias in zip(modules, weights, biases, strict=True):
        module.weight.copy_(weight)
        module.bias.copy_(bias)


def sinusoids(width: int) -> Tensor:
    """Return the table (LONGEST, width) with sine and cosine interleaved."""
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(LONGEST, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


def pad(rows: list[list[int]], filler: int = PAD) -> Tensor:
    """Return rows as one tensor, filled up at the end."""
    length = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (length - len(row))] for row in rows])
