"""BERT, GPT and Transformers as Hugging Face's transformers names their tensors, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnkit.models.config import TransformerConfig
from attnkit.models.language_config import BertConfig, GptConfig

Tensors = Mapping[str, Tensor]
Shape = tuple[int, ...]
PREFIXES = {"bert": "bert.", "roberta": "roberta.", "roformer": "roformer.", "gpt2": "transformer."}
"""What precedes the names of a body that has a head."""
POSITIONS = {"bert": "embeddings.position_embeddings.weight", "gpt2": "wpe.weight"}
SEGMENTS = "embeddings.token_type_embeddings.weight"
ROTATION = "encoder.embed_positions.weight"
"""RoFormer's table of sines and cosines, which is not a weight."""
HARMLESS = re.compile(
    r"(.*\.)?position_ids|(.*\.)?h\.\d+\.attn\.(masked_)?bias|(roformer\.)?encoder\.embed_positions\..*"
)
"""Buffers that files hold: the numbers of positions, masks, the sines that turn queries and keys."""
OTHER_HEADS = re.compile(r"(classifier|qa_outputs|score|pooler|(bert|roberta|roformer)\.pooler|cls|lm_head)\..*")
"""What a body can do without."""


@dataclass(frozen=True)
class Link:
    """One of our tensors, and what holds its numbers there."""

    ours: str
    theirs: tuple[str, ...]
    """Of several, ours is one after another along the first axis."""
    turned: bool = False
    """Theirs is transposed, as the weights of GPT-2's maps are."""
    heads: int = 0
    """Of RoFormer's queries, keys and values: so many heads. What is turned together lies side by side in theirs, half
    a head apart in ours."""

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """Return their tensors from ours."""
        parts = tensor.chunk(len(self.theirs)) if len(self.theirs) > 1 else (tensor,)
        laid = [part.t() if self.turned else part for part in parts]
        if self.heads:
            laid[:2] = [_rearranged(part, (self.heads, 2, -1)) for part in laid[:2]]
        return dict(zip(self.theirs, (part.contiguous() for part in laid), strict=True))

    def join(self, found: Tensors) -> Tensor:
        """Return our tensor from theirs."""
        parts = [found[name].t() if self.turned else found[name] for name in self.theirs]
        if self.heads:
            parts[:2] = [_rearranged(part, (self.heads, -1, 2)) for part in parts[:2]]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def shapes(self, shape: Sequence[int]) -> dict[str, Shape]:
        """Return the shapes of their tensors from that of ours."""
        part = (shape[0] // len(self.theirs), *shape[1:])
        return dict.fromkeys(self.theirs, part[::-1] if self.turned else part)


def _rearranged(part: Tensor, shape: Sequence[int]) -> Tensor:
    """Return outputs (H · d, ...) whose heads are seen as tables, each turned over."""
    return part.reshape(*shape, *part.shape[1:]).transpose(1, 2).reshape(part.shape)


def linked(ours: str, *theirs: str, turned: bool = False, heads: int = 0) -> list[Link]:
    """Return the links of what has a weight and a bias: a linear map, a fused one, a norm."""
    return [
        Link(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs), turned and kind == "weight", heads)
        for kind in ("weight", "bias")
    ]


def body_kind(config: BertConfig) -> str:
    """Return which of their architectures an encoder is: BERT, or with rotary positions RoFormer (Su et al. 2021)."""
    return "roformer" if config.positions == "rotary" else "bert"


def bert_body(config: BertConfig, prefix: str | None = None) -> list[Link]:
    """Return the links of embeddings and layers; positions and segments only where they are tables of ours.

    Args:
        config: the model.
        prefix: the text before their names, None for that of a body that has a head.
    """
    prefix = PREFIXES[body_kind(config)] if prefix is None else prefix
    near, heads = f"{prefix}embeddings", config.n_heads if config.positions == "rotary" else 0
    found = [
        Link("embedding.weight", (f"{near}.word_embeddings.weight",)),
        *linked("embedding_norm", f"{near}.LayerNorm"),
    ]
    if config.positions == "learned":
        found.append(Link("places.table.table", (prefix + POSITIONS["bert"],)))
    if config.n_segments > 1:
        found.append(Link("segments.weight", (prefix + SEGMENTS,)))
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}encoder.layer.{i}"
        parts = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        found += linked(f"{ours}.attention.projection", *parts, heads=heads)
        found += linked(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        found += linked(f"{ours}.around_attention.norm", f"{theirs}.attention.output.LayerNorm")
        found += linked(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        found += linked(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        found += linked(f"{ours}.around_feed_forward.norm", f"{theirs}.output.LayerNorm")
    return found


def bert_head(config: BertConfig) -> list[Link]:
    """Return the links of what predicts words."""
    near = "cls.predictions"
    return [
        *linked("predictor.linear", f"{near}.transform.dense"),
        *linked("predictor.norm", f"{near}.transform.LayerNorm"),
        *_output(near, config),
    ]


def roberta_head(config: BertConfig) -> list[Link]:
    """Return the links of what predicts words in RoBERTa."""
    return [
        *linked("predictor.linear", "lm_head.dense"),
        *linked("predictor.norm", "lm_head.layer_norm"),
        *_output("lm_head", config),
    ]


def _output(near: str, config: BertConfig) -> list[Link]:
    """Return the links of the output layer; one that is not the embedding has a bias of its own, the other is idle."""
    return [Link("output.bias", (f"{near}.bias",))] if config.tie_embeddings else linked("output", f"{near}.decoder")


def other_bias(name: str) -> str:
    """Return what else the output's bias may be called.

    >>> other_bias("lm_head.bias"), other_bias("lm_head.decoder.bias")
    ('lm_head.decoder.bias', 'lm_head.bias')
    """
    near = name.removesuffix(".bias")
    return f"{near.removesuffix('.decoder')}.bias" if near.endswith(".decoder") else f"{near}.decoder.bias"


def next_sentence() -> list[Link]:
    """Return the links of what says if a sentence follows another, in BERT; 0 is that it does, on both sides."""
    return [
        *linked("next_sentence.pooler.linear", "bert.pooler.dense"),
        *linked("next_sentence.output", "cls.seq_relationship"),
    ]


def classifier(config: BertConfig) -> list[Link]:
    """Return the links of an encoder that labels rows."""
    return within("encoder", bert_body(config)) + head_of("text-classification", body_kind(config))


def tagger(config: BertConfig) -> list[Link]:
    """Return the links of an encoder that labels tokens."""
    return within("encoder", bert_body(config)) + head_of("token-classification", "bert")


def reader(config: BertConfig) -> list[Link]:
    """Return the links of an encoder that finds answers."""
    return within("encoder", bert_body(config)) + head_of("question-answering", "bert")


def head_of(task: str, kind: str) -> list[Link]:
    """Return the links of a fine-tuned model's head alone; RoBERTa's and RoFormer's classifiers hold their pooler."""
    if task == "question-answering":
        return linked("output", "qa_outputs")
    if task == "token-classification":
        return linked("output", "classifier")
    if kind in ("roberta", "roformer"):
        return linked("pooler.linear", "classifier.dense") + linked("output", "classifier.out_proj")
    return linked("pooler.linear", "bert.pooler.dense") + linked("output", "classifier")


def within(name: str, links: Sequence[Link]) -> list[Link]:
    """Return the links of what is a part of a model of ours."""
    return [replace(link, ours=f"{name}.{link.ours}") for link in links]


def gpt_body(config: GptConfig, prefix: str = "transformer.") -> list[Link]:
    """Return the links of embeddings, layers and the last norm; positions only where they are a table of ours."""
    found = [Link("embedding.weight", (f"{prefix}wte.weight",)), *linked("norm", f"{prefix}ln_f")]
    if config.positions == "learned":
        found.append(Link("places.table.table", (prefix + POSITIONS["gpt2"],)))
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}h.{i}"
        found += linked(f"{ours}.around_attention.norm", f"{theirs}.ln_1")
        found += linked(f"{ours}.attention.projection", f"{theirs}.attn.c_attn", turned=True)
        found += linked(f"{ours}.attention.output", f"{theirs}.attn.c_proj", turned=True)
        found += linked(f"{ours}.around_feed_forward.norm", f"{theirs}.ln_2")
        found += linked(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", turned=True)
        found += linked(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", turned=True)
    return found


def gpt_head(config: GptConfig) -> list[Link]:
    """Return the links of the output layer; there are none where it is the embedding."""
    return [] if config.tie_embeddings else [Link("output.weight", ("lm_head.weight",))]


def to_theirs(links: Sequence[Link], ours: Tensors) -> dict[str, Tensor]:
    """Return their tensors from ours."""
    return {name: tensor for link in links for name, tensor in link.split(ours[link.ours]).items()}


def their_shapes(links: Sequence[Link], ours: Tensors) -> dict[str, Shape]:
    """Return the shapes of their tensors from ours, which need hold no numbers."""
    return {name: shape for link in links for name, shape in link.shapes(ours[link.ours].shape).items()}


def today(name: str) -> str:
    """Return a tensor's name as it is written now; BERT's first files call the parts of a norm gamma and beta.

    >>> today("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


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
