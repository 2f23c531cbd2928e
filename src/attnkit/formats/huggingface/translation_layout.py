"""Tensor names and layouts of translation models in transformers."""

import re
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from attnkit.formats.huggingface.layout import Link, Tensors, linked, to_theirs
from attnkit.formats.huggingface.t5 import is_t5
from attnkit.models.config import TransformerConfig
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

BIAS = "final_logits_bias"  #: bias of the output layer, (1, V)
WORDS = ("encoder.embedding.words.weight", "decoder.embedding.words.weight", "output.weight", "output.bias")
"""Our tensors with a row per word: of the source, then three of the target."""
BUFFERS = re.compile(r"model\.(encoder|decoder)\.embed_positions\.weights?")
"""Tables of sinusoids, which old files contain."""
UNREAD = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def marian_links(config: TransformerConfig) -> list[Link]:
    """Return the links of Marian; the Transformer must pass ``check_marian``."""
    # In Marian's order: columns of layers that read the residual stream, rows of norms and of layers that add to it.
    reading, adding = partial(linked, width_axes=(1, None)), partial(linked, width_axes=(0, 0))
    return [Link("output.bias", (BIAS,)), *_links(config, reading, adding, 1)]


def m2m_links(config: TransformerConfig) -> list[Link]:
    """Return the links of M2M100 and NLLB-200, which lack a bias of the output layer."""
    links = _links(config, linked, linked, None)
    return links + [
        link for side in ("encoder", "decoder") for link in linked(f"{side}.norm", f"model.{side}.layer_norm")
    ]


def mbart_links(config: TransformerConfig) -> list[Link]:
    """Return the links of mBART-50: learned positions and norms of embeddings."""
    links = [Link("output.bias", (BIAS,)), *m2m_links(config)]
    for side in ("encoder", "decoder"):
        links.append(Link(f"{side}.embedding.positions.table", (f"model.{side}.embed_positions.weight",)))
        links += linked(f"{side}.embedding.norm", f"model.{side}.layernorm_embedding")
    return links


def t5_links(config: TransformerConfig) -> list[Link]:
    """Return the links of T5 and mT5, which have no biases."""

    def link(ours: str, *theirs: str) -> Link:
        return Link(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs))

    links = [link("decoder.embedding.words", "shared")]
    if config.tie_embeddings != "all":
        links.append(link("output", "lm_head"))
    for side, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        links += [Link(f"{side}.own.bias.table", (table,)), link(f"{side}.norm", f"{side}.final_layer_norm")]
        for i in range(n_layers):
            near, there, last = f"{side}.layers.{i}", f"{side}.block.{i}.layer", 1 + (side == "decoder")
            own, inner = f"{there}.0.SelfAttention", f"{there}.{last}.DenseReluDense"
            links += [
                link(f"{near}.attention.projection", *(f"{own}.{part}" for part in "qkv")),
                link(f"{near}.attention.output", f"{own}.o"),
                link(f"{near}.around_attention.norm", f"{there}.0.layer_norm"),
                link(f"{near}.feed_forward.up", f"{inner}.wi_0" if config.glu else f"{inner}.wi"),
                *([link(f"{near}.feed_forward.gate", f"{inner}.wi_1")] if config.glu else []),
                link(f"{near}.feed_forward.down", f"{inner}.wo"),
                link(f"{near}.around_feed_forward.norm", f"{there}.{last}.layer_norm"),
            ]
            if side == "decoder":
                links += [
                    link(f"{near}.cross.projection", f"{there}.1.EncDecAttention.q"),
                    link(f"{near}.cross.output", f"{there}.1.EncDecAttention.o"),
                    link(f"{near}.around_cross.norm", f"{there}.1.layer_norm"),
                ]
    attentions = [f"decoder.block.{i}.layer.1.EncDecAttention" for i in range(config.decoder_layers)]
    return [*links, link("decoder.memory", *(f"{name}.{part}" for name in attentions for part in "kv"))]


LINKS = {"marian": marian_links, "m2m_100": m2m_links, "mbart": mbart_links, "t5": t5_links, "mt5": t5_links}
"""Model type -> function that returns its links."""


def _links(
    config: TransformerConfig,
    reading: Callable[..., list[Link]],
    adding: Callable[..., list[Link]],
    width_axis: int | None,
) -> list[Link]:
    """Return the links of embeddings and layers; two functions make those of layers."""
    links: list[Link] = []
    words = {"model.encoder.embed_tokens": "encoder", "model.decoder.embed_tokens": "decoder"}
    if config.tie_embeddings == "all":
        words = {"model.shared": "decoder"}
    links += [
        Link(f"{side}.embedding.words.weight", (f"{name}.weight",), width_axis=width_axis)
        for name, side in words.items()
    ]
    if config.tie_embeddings == "none":
        links.append(Link("output.weight", ("lm_head.weight",), width_axis=width_axis))
    for side, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(n_layers):
            near, there = f"{side}.layers.{i}", f"model.{side}.layers.{i}"
            links += reading(f"{near}.attention.projection", *(f"{there}.self_attn.{part}_proj" for part in "qkv"))
            links += adding(f"{near}.attention.output", f"{there}.self_attn.out_proj")
            links += adding(f"{near}.around_attention.norm", f"{there}.self_attn_layer_norm")
            if side == "decoder":
                links += reading(f"{near}.cross.projection", f"{there}.encoder_attn.q_proj")
                links += adding(f"{near}.cross.output", f"{there}.encoder_attn.out_proj")
                links += adding(f"{near}.around_cross.norm", f"{there}.encoder_attn_layer_norm")
            links += reading(f"{near}.feed_forward.up", f"{there}.fc1")
            links += adding(f"{near}.feed_forward.down", f"{there}.fc2")
            links += adding(f"{near}.around_feed_forward.norm", f"{there}.final_layer_norm")
    attentions = [f"model.decoder.layers.{i}.encoder_attn" for i in range(config.decoder_layers)]
    # attnkit projects keys and values of the memory with one matrix for all layers.
    return links + reading("decoder.memory", *(f"{name}.{part}_proj" for name in attentions for part in "kv"))


def to_marian(config: TransformerConfig, ours: Tensors) -> dict[str, Tensor]:
    """Return Marian's tensors; the Transformer must pass ``check_marian``."""
    tensors = to_theirs(marian_links(config), ours)
    return {**tensors, BIAS: tensors[BIAS][None]}


def redundant_names(config: TransformerConfig) -> set[str]:
    """Return names of copies of tensors, which a file may contain or not."""
    if is_t5(config):  # the first files have a table of cross-attention, which nothing reads
        names = {f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")} | {UNREAD}
        return names | ({"lm_head.weight"} if config.tie_embeddings == "all" else set())
    sides = {f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    names = {"none": set[str](), "target": {"lm_head.weight"}, "all": {"lm_head.weight", *sides}}[config.tie_embeddings]
    return names if config.tie_embeddings == "all" else names | {"model.shared.weight"}


def to_our_order(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Return rows (V, ...) in the order of our ids, each with its id in transformers."""
    return tensor[torch.tensor(order)]


def to_their_order(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Return rows in the order of transformers.

    If BOS of ours is only a copy of padding, as for Marian, their row of padding is zero and has no bias. If padding is
    only a copy of the unknown word, as for T5, it has no row.
    """
    first = EOS_ID if order[PAD_ID] == order[BOS_ID] else BOS_ID if order[PAD_ID] == order[UNK_ID] else 0
    theirs = tensor.new_zeros(max(order) + 1, *tensor.shape[1:])
    theirs[torch.tensor(order[first:])] = tensor[first:]
    return theirs
