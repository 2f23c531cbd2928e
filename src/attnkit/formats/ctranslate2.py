"""A Transformer's named arrays as CTranslate2 lays them out. Knows no run folder and no tokenizer: names and arrays.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) runs encoder-decoder Transformers in C++. Its specification is a
tree of attributes that it checks and writes itself. Letters: D model width, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnkit.errors import RunError, UsageError
from attnkit.models.config import ModelConfig, TransformerConfig
from attnkit.models.positions import sinusoids
from attnkit.protocols import BOS_ID, EOS_ID, SPECIALS, UNK_ID

Arrays = Mapping[str, NDArray[np.float32]]

N_POSITIONS = 2048
"""Rows of a written position table: the longest source or target, in tokens."""
NORM_EPS = 1e-5
POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "none")


@dataclass(frozen=True)
class Names:
    """The entries' names in the order of their ids, unlike each other; the same object twice if they are joint."""

    src: Sequence[str]
    tgt: Sequence[str]


def unique_names(shown: Sequence[str]) -> list[str]:
    """Return names for entries by how they are shown, all different: ``a`` a second time, with id 9, is ``a#9``.

    The first four are the special entries, which CTranslate2 knows by their names.

    >>> unique_names(["<pad>", "<s>", "</s>", "<unk>", "a", "b", "a", "</s>"])
    ['<pad>', '<s>', '</s>', '<unk>', 'a', 'b', 'a#6', '</s>#7']
    """
    names = list(SPECIALS)
    plain = set(shown) | set(SPECIALS)
    taken = set(names)
    for id, name in enumerate(shown[len(SPECIALS) :], len(SPECIALS)):
        unique = name
        while not unique or unique in taken or (unique != name and unique in plain):
            unique = f"{unique or name}#{id}"
        taken.add(unique)
        names.append(unique)
    return names


def make_spec(config: ModelConfig, arrays: Arrays, names: Names, quantization: str | None) -> Any:
    """Return a checked ``TransformerSpec``, ready for its ``save(folder)``.

    Decoding starts from the embedding of ``<s>``, and ``</s>`` is put after every source, as in training. Numbers stay
    what they are: CTranslate2 itself forbids fewer of the special entries than attnkit's search, which matters only to
    a model that has not learnt to leave them out.

    Args:
        config: What the model was built from.
        arrays: All parameters by their names in the model's state dict, tied ones under each of their names.
        names: Of the vocabulary entries.
        quantization: How weights are stored, as CTranslate2 names it (``int8``, ``float16``, ...); None is float32.

    Raises:
        RunError: CTranslate2 has no such model.
        UsageError: ctranslate2 is not installed.
    """
    config = require_known(config)
    specs = _import_specs()
    spec = _empty_spec(specs, config)
    _fill_stack(spec.encoder, spec.encoder.embeddings[0], "encoder", config, arrays)
    _fill_stack(spec.decoder, spec.decoder.embeddings, "decoder", config, arrays)
    for i, layer in enumerate(spec.decoder.layer):
        _fill_cross(layer.attention, i, config, arrays)
    _fill_linear(spec.decoder.projection, "output", arrays)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token = SPECIALS[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = SPECIALS[EOS_ID], SPECIALS[UNK_ID]
    spec.register_source_vocabulary(list(names.src))
    spec.register_target_vocabulary(list(names.tgt))
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


def require_known(config: ModelConfig) -> TransformerConfig:
    """Return a configuration that CTranslate2 has a model for. Raises ``RunError`` naming the key in the way."""
    if not isinstance(config, TransformerConfig):
        raise RunError(
            f"CTranslate2 has no models of attnkit's kind '{config.kind}'",
            where="model.kind",
            help="it takes runs of --model transformer",
        )
    if not config.plain_attention:
        raise RunError(
            "CTranslate2 has no attention but scaled dot products with softmax",
            where="model.alignment, model.distribution",
            help="it takes alignment scaled_dot with distribution softmax, in every head",
        )
    if config.pattern != "none":
        raise RunError(
            "CTranslate2 has no sparse patterns of attention", where="model.pattern", help="it takes pattern none"
        )
    if config.embedding_norm or config.norm_eps != NORM_EPS:
        key = "embedding_norm" if config.embedding_norm else "norm_eps"
        help = f"it takes embedding_norm false and norm_eps {NORM_EPS}"
        raise RunError(f"CTranslate2 has no such {key}: not what BERT's encoder has", where=f"model.{key}", help=help)
    if config.positions not in POSITIONS:
        raise RunError(
            f"CTranslate2 has no encoder with {config.positions} positions",
            where="model.positions",
            help=f"it takes {', '.join(POSITIONS)}",
        )
    return config


def _import_specs() -> Any:
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise UsageError("this needs ctranslate2", help='pip install "attnkit[ctranslate2]"') from error
    return ctranslate2.specs


def _empty_spec(specs: Any, config: TransformerConfig) -> Any:
    """Return a specification of the right shape without weights."""
    kinds = specs.common_spec.Activation
    activations = {"relu": kinds.RELU, "gelu": kinds.GELU, "silu": kinds.SWISH}
    halves = {"rotary_dim": 0, "rotary_interleave": False} if config.positions == "rotary" else {}
    shape: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": activations[config.activation],
        "relative_attention_bias": config.positions == "relative",
        **halves,
    }
    spec = specs.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.n_heads, **shape),
        specs.transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.n_heads, **shape),
    )
    if config.positions == "rotary":  # the encoder's would ask for a table that is not used
        del spec.encoder.position_encodings
    return spec


def _fill_stack(stack: Any, embedding: Any, side: str, config: TransformerConfig, arrays: Arrays) -> None:
    """Fill embeddings, positions and all that encoder and decoder layers have in common."""
    embedding.weight = arrays[f"{side}.embedding.words.weight"]
    if hasattr(stack, "position_encodings"):
        stack.position_encodings.encodings = _position_table(side, config, arrays)
    if config.norm == "pre":
        _fill_norm(stack.layer_norm, f"{side}.norm", arrays)
    for i, layer in enumerate(stack.layer):
        name = f"{side}.layers.{i}"
        _fill_norm(layer.self_attention.layer_norm, f"{name}.around_attention.norm", arrays)
        _fill_linear(layer.self_attention.linear[0], f"{name}.attention.projection", arrays)
        _fill_linear(layer.self_attention.linear[1], f"{name}.attention.output", arrays)
        _fill_norm(layer.ffn.layer_norm, f"{name}.around_feed_forward.norm", arrays)
        _fill_linear(layer.ffn.linear_0, f"{name}.feed_forward.up", arrays)
        _fill_linear(layer.ffn.linear_1, f"{name}.feed_forward.down", arrays)
        if config.positions == "relative":
            layer.self_attention.relative_attention_bias = arrays[f"{side}.own.bias.table"]
            layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(128)


def _fill_cross(attention: Any, i: int, config: TransformerConfig, arrays: Arrays) -> None:
    """Fill the attention of decoder layer i to the memory, whose keys and values all layers project in one product."""
    name = f"decoder.layers.{i}"
    _fill_norm(attention.layer_norm, f"{name}.around_cross.norm", arrays)
    _fill_linear(attention.linear[0], f"{name}.cross.projection", arrays)
    rows = slice(2 * i * config.d_model, 2 * (i + 1) * config.d_model)
    attention.linear[1].weight = arrays["decoder.memory.weight"][rows]
    attention.linear[1].bias = arrays["decoder.memory.bias"][rows]
    _fill_linear(attention.linear[2], f"{name}.cross.output", arrays)


def _fill_linear(spec: Any, name: str, arrays: Arrays) -> None:
    spec.weight, spec.bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def _fill_norm(spec: Any, name: str, arrays: Arrays) -> None:
    spec.gamma, spec.beta = arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def _position_table(side: str, config: TransformerConfig, arrays: Arrays) -> NDArray[np.float32]:
    """Return what is added to the embeddings, (positions, D)."""
    if config.positions == "learned":
        return arrays[f"{side}.embedding.positions.table"]
    if config.positions == "none":  # without a table CTranslate2 would add sinusoids of its own
        return np.zeros((N_POSITIONS, config.d_model), np.float32)
    return sinusoids(0, N_POSITIONS, like=torch.empty(0, config.d_model)).numpy()
