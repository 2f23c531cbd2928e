"""A Transformer's tensors as Hugging Face's MarianMTModel lays them out. Knows names and shapes, no files.

Marian has the sines of a position in the first half of its vector and the cosines in the second, where ours alternate.
So the D axis of all that the layers read and add to is put in Marian's order: the numbers are the same ones, and a
folder that somebody else writes again loses nothing (Marian computes its position table and never saves it).

Letters: D model width, V vocabulary, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.formats.huggingface.layout import Tensors
from attnkit.models.config import TransformerConfig

_LINEARS = {
    "attention.output": "self_attn.out_proj",
    "cross.output": "encoder_attn.out_proj",
    "feed_forward.down": "fc2",
}
"""Maps that add to what the layers pass on. Ours -> theirs."""
_NORMS = {
    "around_attention.norm": "self_attn_layer_norm",
    "around_cross.norm": "encoder_attn_layer_norm",
    "around_feed_forward.norm": "final_layer_norm",
}


def to_marian(config: TransformerConfig, ours: Tensors) -> dict[str, Tensor]:
    """Return Marian's tensors from those of a Transformer that ``refuse_translation`` lets pass.

    Args:
        config: What the model was built from.
        ours: All parameters by their names in the model's state dict, tied ones under each of their names.
    """
    order = marian_order(config.d_model)
    found = _words(config, ours, order)
    for side, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(n_layers):
            found |= _layer(f"{side}.layers.{i}", f"model.{side}.layers.{i}", ours, order)
    for i in range(config.decoder_layers):
        found |= _memory(i, config.d_model, ours, order)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def marian_order(width: int) -> Tensor:
    """Return which of our D numbers stands at each place of Marian's: first all sines, then all cosines.

    >>> marian_order(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def _words(config: TransformerConfig, ours: Tensors, order: Tensor) -> dict[str, Tensor]:
    source, target = (ours[f"{side}.embedding.words.weight"][:, order] for side in ("encoder", "decoder"))
    found = {"final_logits_bias": ours["output.bias"][None]}
    if config.tie_embeddings == "all":
        return {**found, "model.shared.weight": source}
    own = {} if config.tie_embeddings == "target" else {"lm_head.weight": ours["output.weight"][:, order]}
    return {**found, **own, "model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}


def _layer(name: str, theirs: str, ours: Tensors, order: Tensor) -> dict[str, Tensor]:
    """Return the tensors of a layer but the keys and values of its memory."""
    found = _reading(ours, f"{name}.attention.projection", [f"{theirs}.self_attn.{part}_proj" for part in "qkv"], order)
    found |= _reading(ours, f"{name}.feed_forward.up", [f"{theirs}.fc1"], order)
    if f"{name}.cross.projection.weight" in ours:
        found |= _reading(ours, f"{name}.cross.projection", [f"{theirs}.encoder_attn.q_proj"], order)
    for part, other in _LINEARS.items():
        if f"{name}.{part}.weight" in ours:
            found |= {f"{theirs}.{other}.{kind}": ours[f"{name}.{part}.{kind}"][order] for kind in ("weight", "bias")}
    for part, other in _NORMS.items():
        if f"{name}.{part}.weight" in ours:
            found |= {f"{theirs}.{other}.{kind}": ours[f"{name}.{part}.{kind}"][order] for kind in ("weight", "bias")}
    return found


def _reading(ours: Tensors, name: str, theirs: Sequence[str], order: Tensor) -> dict[str, Tensor]:
    """Return maps of what the layers pass on, which ours are one after another."""
    weights = ours[f"{name}.weight"][:, order].chunk(len(theirs))
    biases = ours[f"{name}.bias"].chunk(len(theirs))
    found = {f"{other}.weight": weight for other, weight in zip(theirs, weights, strict=True)}
    return {**found, **{f"{other}.bias": bias for other, bias in zip(theirs, biases, strict=True)}}


def _memory(i: int, width: int, ours: Tensors, order: Tensor) -> dict[str, Tensor]:
    """Return the keys' and values' maps of decoder layer i; ours has those of all layers in one."""
    rows = slice(2 * i * width, 2 * (i + 1) * width)
    part = {f"memory.{kind}": ours[f"decoder.memory.{kind}"][rows] for kind in ("weight", "bias")}
    return _reading(part, "memory", [f"model.decoder.layers.{i}.encoder_attn.{part}_proj" for part in "kv"], order)
