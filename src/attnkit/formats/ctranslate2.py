"""Conversion of a translator to a CTranslate2 model specification.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) runs encoder-decoder Transformers in C++. Its specification is a
tree of attributes that the library validates and saves. Letters: D model width, V vocabulary, L layers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import UsageError
from attnkit.formats.exportable import check_ctranslate2_translator
from attnkit.formats.huggingface.tokenizer import MARIAN, Roles, files
from attnkit.models.config import ModelConfig, TransformerConfig
from attnkit.models.position_tables import fairseq_sinusoids, sinusoids
from attnkit.protocols import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from attnkit.text.tokenizer import Tokenizer

Arrays = Mapping[str, NDArray[np.float32]]

N_POSITIONS = 2048  #: rows of an exported position table: maximum source or target length, in tokens


def unique_names(shown: Sequence[str]) -> list[str]:
    """Return unique names of entries: a repeated ``a`` with id 9 becomes ``a#9``.

    The first four are the special tokens, which CTranslate2 recognizes by name.

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


def entry_names(tokenizer: Tokenizer) -> list[str]:
    """Return a unique name for each id of a vocabulary; pieces keep their own."""
    if tokenizer.pieces is not None:
        symbols = tokenizer.config.symbols
        return unique_names([*SPECIALS, *symbols, *tokenizer.pieces.names[len(SPECIALS) + len(symbols) :]])
    return unique_names(tokenizer.tokens(range(tokenizer.vocab_size)))


def make_spec(
    config: ModelConfig, arrays: Arrays, names: tuple[Sequence[str], Sequence[str]], quantization: str | None
) -> Any:
    """Build a validated ``TransformerSpec``; its ``save(folder)`` writes the model.

    As in training, decoding starts from ``<s>``, whose vector is zero in Marian, and ``</s>`` is appended to every
    source. Weights are not changed to suppress special tokens: CTranslate2 suppresses fewer of them than attnkit's
    search, which matters only for a model that has not learned to avoid them.

    ``arrays`` are all parameters by state dict name, tied ones under each name. ``names`` are the unique names of the
    source and target entries, in the order of ids. ``quantization`` is a weight type of CTranslate2 (``int8``,
    ``float16``, ...); None means float32. Raises ``RunError`` if CTranslate2 does not support the model, ``UsageError``
    if ctranslate2 is not installed.
    """
    config = check_ctranslate2_translator(config)
    spec = _empty_spec(config)
    _fill_stack(spec.encoder, spec.encoder.embeddings[0], "encoder", config, arrays)
    _fill_stack(spec.decoder, spec.decoder.embeddings, "decoder", config, arrays)
    for i, layer in enumerate(spec.decoder.layer):
        name, attention = f"decoder.layers.{i}", layer.attention
        fill(attention.layer_norm, f"{name}.around_cross.norm", arrays)
        fill(attention.linear[0], f"{name}.cross.projection", arrays)
        # Keys and values of the memory: attnkit projects them with one matrix for all layers.
        inner = config.n_heads * config.d_head
        rows = slice(2 * i * inner, 2 * (i + 1) * inner)
        attention.linear[1].weight = arrays["decoder.memory.weight"][rows]
        if config.bias:
            attention.linear[1].bias = arrays["decoder.memory.bias"][rows]
        fill(attention.linear[2], f"{name}.cross.output", arrays)
    fill(spec.decoder.projection, "output", arrays)
    spec.config.add_source_eos, spec.config.layer_norm_epsilon = True, config.norm_eps
    spec.config.bos_token = SPECIALS[BOS_ID]
    spec.config.decoder_start_token = SPECIALS[EOS_ID if config.decoder_start == "eos" else BOS_ID]
    spec.config.eos_token, spec.config.unk_token = SPECIALS[EOS_ID], SPECIALS[UNK_ID]
    spec.register_source_vocabulary(list(names[0]))
    spec.register_target_vocabulary(list(names[1]))
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


def import_specs() -> Any:
    """Return ``ctranslate2.specs``; raise ``UsageError`` if it is not installed."""
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise UsageError("ctranslate2 is not installed", help='pip install "attnkit[ctranslate2]"') from error
    return specs


def _empty_spec(config: TransformerConfig) -> Any:
    """Return a specification with the model's architecture, without weights."""
    specs = import_specs()
    kinds = specs.common_spec.Activation
    shape: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": {**{"relu": kinds.RELU, "gelu": kinds.GELU, "gelu_tanh": kinds.GELUTanh, "silu": kinds.SWISH}}[
            config.activation
        ],
        "ffn_glu": config.glu,
        "rms_norm": config.normalization == "rms",
        "head_dim": config.head_width,
        "relative_attention_bias": config.positions == "relative",
    }
    if config.positions == "rotary":
        shape |= {"rotary_dim": 0, "rotary_interleave": False}
    normed = [{"layernorm_embedding": on} for on in (config.embedding_norm, config.target_embedding_norm)]
    spec = specs.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.n_heads, **shape, **normed[0]),
        specs.transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.n_heads, **shape, **normed[1]),
    )
    if config.positions == "rotary":  # the encoder would require a position table that it does not use
        del spec.encoder.position_encodings
    return spec


def _fill_stack(stack: Any, embedding: Any, side: str, config: TransformerConfig, arrays: Arrays) -> None:
    """Fill embeddings, positions and the parts common to encoder and decoder layers."""
    embedding.weight = arrays[f"{side}.embedding.words.weight"]
    stack.scale_embeddings = config.scaled_input
    if side == "decoder" and config.scaled_output:
        stack.scale_outputs = np.float32(config.d_model**-0.5)
    if hasattr(stack, "position_encodings"):  # added to the embeddings, (positions, D)
        learned = None
        if config.positions == "learned":
            learned = arrays[f"{side}.embedding.positions.table"][config.position_offset :]
        stack.position_encodings.encodings = position_table(config.positions, config.d_model, learned)
    if config.norm == "pre":
        fill(stack.layer_norm, f"{side}.norm", arrays)
    if config.embedding_norm if side == "encoder" else config.target_embedding_norm:
        fill(stack.layernorm_embedding, f"{side}.embedding.norm", arrays)
    for i, layer in enumerate(stack.layer):
        name = f"{side}.layers.{i}"
        if config.alignment == "dot" or set(config.alignment) == {"dot"}:
            for attention in (layer.self_attention, *([layer.attention] if side == "decoder" else [])):
                attention.queries_scale = np.float32(1)
        fill(layer.self_attention.layer_norm, f"{name}.around_attention.norm", arrays)
        fill(layer.self_attention.linear[0], f"{name}.attention.projection", arrays)
        fill(layer.self_attention.linear[1], f"{name}.attention.output", arrays)
        fill(layer.ffn.layer_norm, f"{name}.around_feed_forward.norm", arrays)
        fill(layer.ffn.linear_0, f"{name}.feed_forward.up", arrays)
        if config.glu:
            fill(layer.ffn.linear_0_noact, f"{name}.feed_forward.gate", arrays)
        fill(layer.ffn.linear_1, f"{name}.feed_forward.down", arrays)
        if config.positions == "relative":
            layer.self_attention.relative_attention_bias = arrays[f"{side}.own.bias.table"]
            layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(config.relative_distance)


def position_table(
    kind: str, d_model: int, learned: NDArray[np.float32] | None, n: int = N_POSITIONS
) -> NDArray[np.float32]:
    """Return the table (positions, D) that is added to embeddings.

    ``n`` is the number of positions, unless they are learned.
    """
    if learned is not None:
        return learned
    if kind == "none":  # without a table, CTranslate2 would add its own sinusoids
        return np.zeros((n, d_model), np.float32)
    if kind == "fairseq":
        return fairseq_sinusoids(n, d_model)
    return sinusoids(n, d_model)


def fill(spec: Any, name: str, arrays: Arrays) -> None:
    """Fill a linear layer or a norm; a norm has gamma and beta in CTranslate2.

    A linear layer may lack a bias, as may a norm, whose beta is then zero. RMSNorm has none there.
    """
    if not hasattr(spec, "gamma"):
        spec.weight = arrays[f"{name}.weight"]
        if (bias := arrays.get(f"{name}.bias")) is not None:
            spec.bias = bias
        return
    spec.gamma = arrays[f"{name}.weight"]
    if hasattr(spec, "beta"):
        spec.beta = arrays.get(f"{name}.bias", np.zeros_like(spec.gamma))


def tokenizer_file(tokenizer: Tokenizer, roles: Roles | None = None, mask: str | None = None) -> bytes:
    """Return a tokenizer as a file of Hugging Face ``tokenizers``.

    Without ``roles``, no special tokens are added to texts: a translator's end symbol is added by CTranslate2. Raises
    ``RunError`` if two entries would have the same name.
    """
    config, tree = tokenizer.config, json.loads(tokenizer.to_json())["tokenizer"]
    made = files(config, tree, roles or MARIAN, mask, None)["tokenizer.json"]
    if config.kind == "word":  # an unknown word and a symbol are decoded with the space before them, as other entries
        for name in ((roles or MARIAN).names[-1], *config.symbols):
            spaced = {"type": "Replace", "pattern": {"Regex": f"^{re.escape(name)}$"}, "content": f" {name}"}
            made["decoder"]["decoders"].insert(0, spaced)
    # As in attnkit, the name of a special token in a text is text, and the unknown token is shown.
    symbols = [token for token in made["added_tokens"] if token["id"] >= len(SPECIALS)]
    template = made["post_processor"] if roles is not None else None
    return json.dumps({**made, "added_tokens": symbols, "post_processor": template}, ensure_ascii=False).encode()


def names_in(raw: bytes) -> list[str]:
    """Return the names of the entries of a tokenizer file, in the order of ids.

    >>> names_in(b'{"model": {"vocab": {"b": 1, "a": 0}}}'), names_in(b'{"model": {"vocab": [["a", 0.0]]}}')
    (['a', 'b'], ['a'])
    """
    vocab: Any = json.loads(raw)["model"]["vocab"]
    return [name for name, _ in vocab] if isinstance(vocab, list) else sorted(vocab, key=vocab.__getitem__)
