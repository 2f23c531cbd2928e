"""Tensor names and layouts of BERT and GPT-2 in transformers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnkit.formats.huggingface import llama, modernbert
from attnkit.formats.huggingface.config import CLASSES, ROBERTAS
from attnkit.formats.huggingface.encoder_config import is_distilbert, is_electra
from attnkit.models.language_config import BertConfig, GptConfig

Tensors = Mapping[str, Tensor]
Shape = tuple[int, ...]
PREFIXES = {
    "bert": "bert.",
    "roberta": "roberta.",
    "xlm-roberta": "roberta.",
    "roformer": "roformer.",
    "distilbert": "distilbert.",
    "electra": "electra.",
    "modernbert": "model.",
    "gpt2": "transformer.",
    "llama": "model.",
    "mistral": "model.",
}
"""Prefix of the body's tensor names in a model with a head."""
POSITIONS = {"bert": "embeddings.position_embeddings.weight", "gpt2": "wpe.weight"}
SEGMENTS = "embeddings.token_type_embeddings.weight"
ROTATION = "encoder.embed_positions.weight"  #: RoFormer's table of sines and cosines, not a weight
HARMLESS = re.compile(
    r"(.*\.)?(position_ids|rotary_emb\.inv_freq|h\.\d+\.attn\.(masked_)?bias)|(roformer\.)?encoder\.embed_positions\..*"
)
"""Buffers that an import ignores: position ids, attention masks, sinusoids of rotary positions."""
_HEADS = (
    *("classifier", "pre_classifier", "qa_outputs", "score", "pooler", r"(bert|roberta|roformer)\.pooler", "cls"),
    *("lm_head", "discriminator_predictions", "generator_predictions", "generator_lm_head", "sequence_summary"),
    *("vocab_transform", "vocab_layer_norm", "vocab_projector"),
)
OTHER_HEADS = re.compile(rf"({'|'.join(_HEADS)})\..*|head\.(dense|norm)\..*|decoder\.(weight|bias)")
"""Tensors of heads, which an import may leave out."""


@dataclass(frozen=True)
class Link:
    """Correspondence of one attnkit tensor to one or more tensors of transformers."""

    ours: str
    theirs: tuple[str, ...]  #: attnkit concatenates several along the first axis
    transposed: bool = False  #: transformers stores the transpose (GPT-2's Conv1D)
    heads: int = 0  #: heads of RoFormer, which rotates adjacent dimensions; attnkit pairs dimensions half a head apart
    width_axis: int | None = None  #: axis that transformers has in Marian's order, all sines first
    sizes: tuple[int, ...] = ()  #: rows of each of theirs, if they differ
    part: tuple[int, int] = (0, 1)  #: (index, number): ours is one of several equal parts of the rows of theirs

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """Return the transformers tensors made from an attnkit tensor."""
        if self.width_axis is not None:
            tensor = tensor.index_select(self.width_axis, sines_first(tensor.shape[self.width_axis]))
        parts: Sequence[Tensor] = tensor.chunk(len(self.theirs)) if len(self.theirs) > 1 else (tensor,)
        if self.sizes:
            parts = torch.split(tensor, list(self.sizes))
        laid = [part.t() if self.transposed else part for part in parts]
        if self.heads:
            laid[:2] = [_rearranged(part, (self.heads, 2, -1)) for part in laid[:2]]
        return dict(zip(self.theirs, (part.contiguous() for part in laid), strict=True))

    def join(self, theirs: Tensors) -> Tensor:
        """Return the attnkit tensor made from transformers tensors."""
        parts = [theirs[name].t() if self.transposed else theirs[name] for name in self.theirs]
        if self.part[1] > 1:
            return parts[0].chunk(self.part[1])[self.part[0]]
        if self.heads:
            parts[:2] = [_rearranged(part, (self.heads, -1, 2)) for part in parts[:2]]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        if self.width_axis is not None:
            tensor = tensor.index_select(self.width_axis, sines_first(tensor.shape[self.width_axis]).argsort())
        return tensor


def sines_first(width: int) -> Tensor:
    """Return Marian's order, 0, 2, 4, ..., 1, 3, 5, ...; attnkit's alternates."""
    order = torch.arange(width)
    return torch.cat((order[::2], order[1::2]))


def _rearranged(part: Tensor, shape: Sequence[int]) -> Tensor:
    """Return outputs (H · d, ...) with each head viewed as a matrix and transposed."""
    return part.reshape(*shape, *part.shape[1:]).transpose(1, 2).reshape(part.shape)


def linked(
    ours: str,
    *theirs: str,
    transposed: bool = False,
    heads: int = 0,
    width_axes: tuple[int | None, int | None] = (None, None),
) -> list[Link]:
    """Return the links of weight and bias of a linear layer, maybe fused, or a norm."""
    parts = zip(("weight", "bias"), (transposed, False), width_axes, strict=True)
    return [
        Link(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs), turned, heads, axis)
        for kind, turned, axis in parts
    ]


def body_kind(config: BertConfig) -> str:
    """Return the model type; rotary positions make RoFormer (Su et al. 2021)."""
    if modernbert.is_modernbert(config):
        return "modernbert"
    if config.positions == "rotary":
        return "roformer"
    return "distilbert" if is_distilbert(config) else "electra" if is_electra(config) else "bert"


def fits(config: BertConfig, kind: str) -> bool:
    """Return whether a model can be written as one of a model type."""
    if kind == "modernbert" or modernbert.is_modernbert(config):
        return kind == "modernbert" and modernbert.is_modernbert(config)
    if kind in ("distilbert", "electra"):
        return is_distilbert(config) if kind == "distilbert" else is_electra(config)
    positions = ("learned",) if kind in ROBERTAS else ("rotary",) if kind == "roformer" else ("learned", "sinusoidal")
    plain = config.pooler == "auto" and config.d_embedding is None
    return kind in CLASSES and config.positions in positions and plain


def keeps_shared_rows(state: Tensors, order: Sequence[int | None]) -> bool:
    """Return whether entries with the same original id have equal rows.

    GPT-2 has one entry for BOS and EOS, which are two of ours; training may set them apart.
    """
    places: dict[int, int] = {}
    words = [tensor for name, tensor in state.items() if name == "embedding.weight" or name.startswith("output.")]
    for place, id in enumerate(order):
        first = place if id is None else places.setdefault(id, place)
        if first != place and not all(torch.equal(tensor[first], tensor[place]) for tensor in words):
            return False
    return True


def in_order(state: Tensors, order: Sequence[int | None], first: int) -> dict[str, Tensor]:
    """Return the tensors of a model with rows in the order of an imported vocabulary.

    ``order`` has the original id of each of our ids, and ``first`` is the number of unused rows at the start of the
    position table, which are zero.
    """
    ours = torch.tensor([id for id, their in enumerate(order) if their is not None])
    theirs = torch.tensor([their for their in order if their is not None])
    ordered = dict(state)
    pretrained = "predictor.linear.weight" in state or "norm.weight" in state
    for name, tensor in state.items():
        if name.removeprefix("encoder.") == "embedding.weight" or (pretrained and name.startswith("output.")):
            ordered[name] = tensor.new_zeros(int(theirs.max()) + 1, *tensor.shape[1:])
            ordered[name][theirs] = tensor[ours]
        elif name.endswith("places.table.table"):
            ordered[name] = torch.cat((tensor.new_zeros(first, tensor.shape[1]), tensor))
    return ordered


def bert_body(config: BertConfig, prefix: str | None = None) -> list[Link]:
    """Return the links of embeddings and layers; ``PREFIXES`` has the default prefix."""
    kind = body_kind(config)
    prefix = PREFIXES[kind] if prefix is None else prefix
    if kind == "modernbert":
        return modernbert_body(config, prefix)
    layer, parts, maps = _LAYERS.get(kind, _BERT_LAYER)
    near, heads = f"{prefix}embeddings", config.n_heads if config.positions == "rotary" else 0
    links = [Link("embedding.weight", (f"{near}.word_embeddings.weight",))]
    links += linked("embedding_norm", f"{near}.LayerNorm")
    if config.positions == "learned":
        links.append(Link("places.table.table", (prefix + POSITIONS["bert"],)))
    if config.n_segments > 1:
        links.append(Link("segments.weight", (prefix + SEGMENTS,)))
    if config.d_embedding is not None:
        links += linked("embedding_map", f"{prefix}embeddings_project")
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}{layer}.{i}"
        links += linked(f"{ours}.attention.projection", *(f"{theirs}.{part}" for part in parts), heads=heads)
        for name, their in zip(_LAYER_PARTS, maps, strict=True):
            links += linked(f"{ours}.{name}", f"{theirs}.{their}")
    return links


def modernbert_body(config: BertConfig, prefix: str) -> list[Link]:
    """Return the links of embeddings, layers and final norm of a ModernBERT."""
    biased, normed = config.bias, config.norm_bias
    links = [Link("embedding.weight", (f"{prefix}embeddings.tok_embeddings.weight",))]
    links += _linked("embedding_norm", f"{prefix}embeddings.norm", normed)
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}layers.{i}"
        for name, their in modernbert.MAPS.items():
            links += _linked(f"{ours}.{name}", f"{theirs}.{their}", biased)
        names, fused = modernbert.GATED
        for index, name in enumerate(names):
            parts = _linked(f"{ours}.{name}", f"{theirs}.{fused}", biased)
            links += [replace(link, part=(index, len(names))) for link in parts]
        for name, their in modernbert.NORMS.items():
            if i or name != "around_attention.norm":  # the first layer's input is normalized
                links += _linked(f"{ours}.{name}", f"{theirs}.{their}", normed)
    return links + _linked("norm", f"{prefix}final_norm", normed)


def _linked(ours: str, theirs: str, bias: bool) -> list[Link]:
    """Return the links of a linear map or a norm, with or without a bias."""
    return linked(ours, theirs)[: 2 if bias else 1]


def _modernbert_head(config: BertConfig, ours: str) -> list[Link]:
    """Return the links of the masked-LM head without its output layer."""
    biases = {"linear": config.head_bias, "norm": config.norm_bias}
    return [link for part, name in modernbert.HEAD.items() for link in _linked(f"{ours}.{part}", name, biases[part])]


_LAYER_PARTS = (
    *("attention.output", "around_attention.norm", "feed_forward.up", "feed_forward.down"),
    "around_feed_forward.norm",
)
_BERT_LAYER = (
    "encoder.layer",
    tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
)
_LAYERS = {
    "distilbert": (
        "transformer.layer",
        tuple(f"attention.{part}_lin" for part in "qkv"),
        ("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    )
}
"""Kind of encoder -> list of layers, maps of queries, keys and values, and names in the order of ``_LAYER_PARTS``."""
_HEAD_NAMES = {
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
}  #: linear map, norm and output layer of masked-LM heads that share no prefix


def bert_head(config: BertConfig, kind: str) -> list[Link]:
    """Return the links of the masked-LM head; an untied output has its own bias."""
    tied = config.tie_embeddings  # untied: decoder.bias is the output's, the other bias is unused
    if kind == "modernbert":
        last = [Link("output.bias", ("decoder.bias",))] if tied else linked("output", "decoder")
        return [*_modernbert_head(config, "predictor"), *last]
    if kind in _HEAD_NAMES:
        linear, norm, output = _HEAD_NAMES[kind]
        last = [Link("output.bias", (f"{output}.bias",))] if tied else linked("output", output)
        return [*linked("predictor.linear", linear), *linked("predictor.norm", norm), *last]
    near, linear, norm = "cls.predictions", "transform.dense", "transform.LayerNorm"
    if kind in ROBERTAS:
        near, linear, norm = "lm_head", "dense", "layer_norm"
    return [
        *linked("predictor.linear", f"{near}.{linear}"),
        *linked("predictor.norm", f"{near}.{norm}"),
        *([Link("output.bias", (f"{near}.bias",))] if tied else linked("output", f"{near}.decoder")),
    ]


def other_bias(name: str) -> str:
    """Return the other name of the output bias.

    >>> other_bias("lm_head.bias"), other_bias("lm_head.decoder.bias")
    ('lm_head.decoder.bias', 'lm_head.bias')
    """
    near = name.removesuffix(".bias")
    return f"{near.removesuffix('.decoder')}.bias" if near.endswith(".decoder") else f"{near}.decoder.bias"


def next_sentence() -> list[Link]:
    """Return the links of BERT's next-sentence head; class 0 is "follows" in both."""
    return [
        *linked("next_sentence.pooler.linear", "bert.pooler.dense"),
        *linked("next_sentence.output", "cls.seq_relationship"),
    ]


def detection_head() -> list[Link]:
    """Return the links of ELECTRA's head, which detects replaced tokens."""
    near = "discriminator_predictions"
    return linked("detector.linear", f"{near}.dense") + linked("detector.output", f"{near}.dense_prediction")


HEADS = {
    "text-classification": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
}  #: fine-tuning task -> suffix of the architecture name


def head_of(task: str, kind: str, config: BertConfig) -> list[Link]:
    """Return the links of a fine-tuned head, with its pooler if it has one."""
    if kind == "modernbert":
        return _modernbert_head(config, "pooler") + linked("output", "classifier")
    if task == "question-answering":
        return linked("output", "qa_outputs")
    if task == "token-classification":
        return linked("output", "classifier")
    if kind == "distilbert":
        return linked("pooler.linear", "pre_classifier") + linked("output", "classifier")
    if kind in (*ROBERTAS, "roformer", "electra"):  # their classifier contains the pooler
        return linked("pooler.linear", "classifier.dense") + linked("output", "classifier.out_proj")
    return linked("pooler.linear", "bert.pooler.dense") + linked("output", "classifier")


def with_prefix(name: str, links: Sequence[Link]) -> list[Link]:
    """Return the links with ``name.`` before attnkit's tensor names."""
    return [replace(link, ours=f"{name}.{link.ours}") for link in links]


def gpt_body(config: GptConfig, prefix: str = "transformer.") -> list[Link]:
    """Return the links of embeddings, layers, final norm and any learned positions."""
    links = [Link("embedding.weight", (f"{prefix}wte.weight",)), *linked("norm", f"{prefix}ln_f")]
    if config.positions == "learned":
        links.append(Link("places.table.table", (prefix + POSITIONS["gpt2"],)))
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}h.{i}"
        links += linked(f"{ours}.around_attention.norm", f"{theirs}.ln_1")
        links += linked(f"{ours}.attention.projection", f"{theirs}.attn.c_attn", transposed=True)
        links += linked(f"{ours}.attention.output", f"{theirs}.attn.c_proj", transposed=True)
        links += linked(f"{ours}.around_feed_forward.norm", f"{theirs}.ln_2")
        links += linked(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", transposed=True)
        links += linked(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", transposed=True)
    return links


def llama_body(config: GptConfig, prefix: str = "model.") -> list[Link]:
    """Return the links of embeddings, layers and final norm of a Llama."""
    links = [
        Link("embedding.weight", (f"{prefix}embed_tokens.weight",)),
        Link("norm.weight", (f"{prefix}norm.weight",)),
    ]
    inner, kept = config.n_heads * config.d_head, config.n_kept_heads * config.d_head
    kinds = ("weight", "bias") if config.bias else ("weight",)
    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}", f"{prefix}layers.{i}"
        for kind in kinds:
            parts = tuple(f"{theirs}.{name}.{kind}" for name in llama.QUERY_KEY_VALUE)
            links.append(Link(f"{ours}.attention.projection.{kind}", parts, sizes=(inner, kept, kept)))
            links += [Link(f"{ours}.{a}.{kind}", (f"{theirs}.{b}.{kind}",)) for a, b in llama.MAPS.items()]
        links += [Link(f"{ours}.{a}.weight", (f"{theirs}.{b}.weight",)) for a, b in llama.NORMS.items()]
    return links


def gpt_links(config: GptConfig, kind: str, prefix: str | None = None) -> list[Link]:
    """Return the links of the body of a GPT, with the default prefix."""
    return (llama_body if kind in llama.LLAMAS else gpt_body)(config, PREFIXES[kind] if prefix is None else prefix)


def gpt_head(config: GptConfig) -> list[Link]:
    """Return the links of the output layer; empty if it is tied to the embedding."""
    return [] if config.tie_embeddings else [Link("output.weight", ("lm_head.weight",))]


def to_theirs(links: Sequence[Link], ours: Tensors) -> dict[str, Tensor]:
    """Return the transformers tensors made from attnkit's."""
    found: dict[str, list[Tensor]] = {}  # parts of a tensor, in order
    for link in links:
        for name, tensor in link.split(ours[link.ours]).items():
            found.setdefault(name, []).append(tensor)
    return {name: parts[0] if len(parts) == 1 else torch.cat(parts) for name, parts in found.items()}


def their_shapes(links: Sequence[Link], ours: Tensors) -> dict[str, Shape]:
    """Return the shapes of the transformers tensors; ``ours`` may be meta tensors."""
    shapes: dict[str, Shape] = {}
    for link in links:
        n_rows, *rest = ours[link.ours].shape
        for name, size in zip(link.theirs, link.sizes or [n_rows // len(link.theirs)] * len(link.theirs), strict=True):
            size *= link.part[1]
            shapes[name] = (size, *rest)[::-1] if link.transposed else (size, *rest)
    return shapes
