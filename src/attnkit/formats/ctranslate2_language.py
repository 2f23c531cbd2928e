"""Conversion of BERT and GPT to CTranslate2 model specifications.

CTranslate2 runs an encoder up to its features and its pooler, and a generator with its output layer. Letters: D model
width, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnkit.formats.ctranslate2 import N_POSITIONS, Arrays, fill, import_specs, position_table
from attnkit.models.language_config import BertConfig, GptConfig, LanguageConfig
from attnkit.models.position_tables import RopeScaling
from attnkit.protocols import BOS_ID, EOS_ID, UNK_ID

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
"""Activation of attnkit -> member of ``Activation`` of CTranslate2."""
_LINEAR_MAPS = {"linear_0": "up", "linear_1": "down", "linear_0_noact": "gate"}
"""Linear map of a feed-forward sublayer in CTranslate2 -> name in attnkit; ``linear_0`` has the activation."""


def make_encoder_spec(
    config: BertConfig, arrays: Arrays, names: Sequence[str], pooler: str | None, quantization: str | None
) -> Any:
    """Build a validated ``TransformerEncoderModelSpec``.

    Args:
        config: a model that passed ``check_ctranslate2``.
        arrays: parameters of the encoder by state dict name, and those of the pooler.
        names: unique names of the entries, in the order of ids.
        pooler: name of the linear map of the pooler, applied to the first token's feature; None: no pooler.
        quantization: weight type of CTranslate2; None means float32.

    Raises:
        UsageError: ctranslate2 is not installed.
    """
    specs = import_specs()
    kinds = specs.common_spec.Activation
    segments = config.n_segments > 1
    stack = specs.transformer_spec.TransformerEncoderSpec(
        config.n_layers,
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=_activation(kinds, config.activation),
        num_source_embeddings=2 if segments else 1,
        embeddings_merge=specs.common_spec.EmbeddingsMerge.ADD,
        layernorm_embedding=config.norm == "post",
        ffn_glu=config.glu,
        **_rotary(config),
    )
    if config.positions == "rotary":  # CTranslate2 would require a position table that it does not use
        del stack.position_encodings
    kind = _activation(kinds, config.pooler_activation)
    spec = specs.transformer_spec.TransformerEncoderModelSpec(stack, pooler is not None, kind)
    stack.embeddings[0].weight = arrays["embedding.weight"]
    if segments:
        stack.embeddings[1].weight = arrays["segments.weight"]
    if config.norm == "post":
        fill(stack.layernorm_embedding, "embedding_norm", arrays)
    _fill_stack(stack, config, arrays)
    if pooler is not None:
        fill(spec.pooler_dense, pooler, arrays)
    return _finished(spec, config, names, quantization)


def make_generator_spec(config: GptConfig, arrays: Arrays, names: Sequence[str], quantization: str | None) -> Any:
    """Build a validated ``TransformerDecoderModelSpec``; arguments as for encoders."""
    specs = import_specs()
    grouped = config.n_kept_heads != config.n_heads
    stack = specs.transformer_spec.TransformerDecoderSpec(
        config.n_layers,
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=_activation(specs.common_spec.Activation, config.activation),
        with_encoder_attention=False,
        ffn_glu=config.glu,
        rms_norm=config.normalization == "rms",
        alibi=config.positions == "alibi",
        num_heads_kv=config.n_kept_heads if grouped else None,
        head_dim=config.head_width,
        **_rotary(config),
        **_scaling(specs, config.rope_scaling),
    )
    spec = specs.transformer_spec.TransformerDecoderModelSpec(stack)
    stack.embeddings.weight = arrays["embedding.weight"]
    _fill_stack(stack, config, arrays)
    if (scaling := config.rope_scaling) is not None and scaling.kind == "llama3":
        for layer in stack.layer:
            attention = layer.self_attention
            attention.rotary_low_freq_factor = np.float32(scaling.low_freq_factor)
            attention.rotary_high_freq_factor = np.float32(scaling.high_freq_factor)
            # CTranslate2 reads it, but its specification has no place for it, and allows no new names.
            vars(attention)["rotary_scaling_factor"] = np.float32(scaling.factor)
    fill(stack.projection, "output", arrays)
    return _finished(spec, config, names, quantization)


def n_positions(config: LanguageConfig) -> int | None:
    """Return the number of rows of the position table; None if there is none."""
    if config.positions == "learned":
        return config.max_length
    return max(N_POSITIONS, config.max_length) if config.positions == "sinusoidal" else None


def _activation(kinds: Any, name: str) -> Any:
    return kinds[_ACTIVATIONS[name]]


def _rotary(config: LanguageConfig) -> dict[str, Any]:
    """Return the arguments of rotary positions, in pairs half a head apart."""
    if config.positions != "rotary":
        return {}
    return {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rope_base}


def _scaling(specs: Any, scaling: RopeScaling | None) -> dict[str, Any]:
    """Return the arguments of scaled rotary positions."""
    if scaling is None:
        return {}
    kinds = specs.attention_spec.RotaryScalingType
    if scaling.kind == "linear":
        return {"rotary_scaling_type": kinds.Linear, "rotary_scaling_factor": scaling.factor}
    return {"rotary_scaling_type": kinds.Llama3, "original_max_position_embeddings": scaling.original_length}


def _fill_stack(stack: Any, config: LanguageConfig, arrays: Arrays) -> None:
    """Fill positions, layers and the final norm."""
    stack.scale_embeddings = False
    if hasattr(stack, "position_encodings"):  # added to the embeddings, (positions, D)
        learned = arrays["places.table.table"] if config.positions == "learned" else None
        n = n_positions(config) or N_POSITIONS
        stack.position_encodings.encodings = position_table(config.positions, config.d_model, learned, n)
    if config.norm == "pre":
        fill(stack.layer_norm, "norm", arrays)
    for i, layer in enumerate(stack.layer):
        name, attention, inner = f"layers.{i}", layer.self_attention, layer.ffn
        fill(attention.layer_norm, f"{name}.around_attention.norm", arrays)
        fill(attention.linear[0], f"{name}.attention.projection", arrays)
        fill(attention.linear[1], f"{name}.attention.output", arrays)
        fill(inner.layer_norm, f"{name}.around_feed_forward.norm", arrays)
        for theirs, ours in _LINEAR_MAPS.items():
            if hasattr(inner, theirs):
                fill(getattr(inner, theirs), f"{name}.feed_forward.{ours}", arrays)


def _finished(spec: Any, config: LanguageConfig, names: Sequence[str], quantization: str | None) -> Any:
    """Set vocabulary and configuration, then check and quantize."""
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (names[id] for id in (BOS_ID, EOS_ID, UNK_ID))
    spec.register_vocabulary(list(names))
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec
