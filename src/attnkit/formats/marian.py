"""Marian's own format: parameters, configuration and vocabularies.

A model is an ``.npz`` of float32 arrays, and its configuration, YAML with a zero byte, is one of them. Vocabularies are
YAML, a quoted entry and its id per line. Marian, Bergamot and CTranslate2's converters read both.

Letters: D model width, V vocabulary.
"""

import io
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import RunError
from attnkit.formats.exportable import NORM_EPS, check_marian
from attnkit.models.config import ModelConfig, TransformerConfig

Arrays = dict[str, NDArray[np.float32]]
ACTIVATIONS = {"relu": "relu", "silu": "swish"}  #: attnkit's name -> Marian's; its GELU is another function
EOS, UNK = "</s>", "<unk>"  #: names that Marian requires
_FIXED = {
    "type": "transformer", "skip": False, "layer-normalization": False, "right-left": False, "input-types": [],
    "lemma-dim-emb": 0, "output-omit-bias": False, "tied-embeddings-src": False, "ulr": False, "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False, "factors-combine": "sum", "factors-dim-emb": 0,
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "", "transformer-decoder-autoreg": "self-attention",
    "transformer-guided-alignment-layer": "last", "transformer-tied-layers": [], "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0, "transformer-decoder-dim-ffn": 0, "transformer-no-projection": False,
    "transformer-no-bias": False, "transformer-no-affine": False, "transformer-pool": False,
    "transformer-depth-scaling": False, "transformer-train-position-embeddings": False,
    "version": "v1.9.0",
}  # fmt: skip


def check_marian_format(config: ModelConfig) -> TransformerConfig:
    """Return ``config`` if Marian can run it; raise ``RunError`` if not."""
    check_marian(config, "Marian", (NORM_EPS, 1e-6))  # Marian's own is 1e-6
    assert isinstance(config, TransformerConfig)
    names = " or ".join(ACTIVATIONS)
    for applies, key, lacking, taken in (
        (config.decoder_start != "zero", "decoder_start", "a decoder that starts from a word", "decoder_start zero"),
        (config.activation not in ACTIVATIONS, "activation", f"activation {config.activation}", f"activation {names}"),
    ):
        if applies:
            raise RunError(f"Marian does not support {lacking}", where=f"model.{key}", help=f"supported: {taken}")
    return config


def marian_config(config: TransformerConfig, vocab_sizes: tuple[int, int]) -> bytes:
    """Return Marian's configuration of a model, for V of source and target."""
    own = {
        "dim-emb": config.d_model, "dim-vocabs": list(vocab_sizes), "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers, "transformer-heads": config.n_heads, "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": ACTIVATIONS[config.activation],
        "tied-embeddings": config.tie_embeddings == "target", "tied-embeddings-all": config.tie_embeddings == "all",
    }  # fmt: skip
    settings = sorted({**_FIXED, **own}.items())
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings).encode()


def marian_parameters(config: TransformerConfig, theirs: Mapping[str, NDArray[np.float32]]) -> Arrays:
    """Return Marian's parameters, given those of its form in transformers.

    Both have the same order of dimensions.

    Rows of embeddings (V, D) and of the output bias are already those of Marian's vocabularies. Matrices of linear maps
    are transposed, (in, out); vectors are rows (1, n).
    """
    made: Arrays = {"decoder_ff_logit_out_b": theirs["final_logits_bias"].reshape(1, -1)}
    if config.tie_embeddings == "all":
        made["Wemb"] = theirs["model.shared.weight"]
    else:
        made |= {f"{side}_Wemb": theirs[f"model.{side}.embed_tokens.weight"] for side in ("encoder", "decoder")}
    if config.tie_embeddings == "none":
        made["decoder_ff_logit_out_W"] = theirs["lm_head.weight"].T

    def linear(name: str, suffix: str, there: str) -> None:
        made[f"{name}_W{suffix}"], made[f"{name}_b{suffix}"] = (
            theirs[f"{there}.weight"].T,
            _row(theirs[f"{there}.bias"]),
        )

    def norm(name: str, there: str) -> None:
        made[f"{name}_ln_scale"], made[f"{name}_ln_bias"] = (_row(theirs[f"{there}.{part}"]) for part in _NORM)

    for side, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(n_layers):
            name, there = f"{side}_l{i + 1}", f"model.{side}.layers.{i}"
            kinds = {"self": "self_attn"} if side == "encoder" else {"self": "self_attn", "context": "encoder_attn"}
            for own, attention in kinds.items():
                for part in "qkv":
                    linear(f"{name}_{own}", part, f"{there}.{attention}.{part}_proj")
                linear(f"{name}_{own}", "o", f"{there}.{attention}.out_proj")
                norm(f"{name}_{own}_Wo", f"{there}.{attention}_layer_norm")
            linear(f"{name}_ffn", "1", f"{there}.fc1")
            linear(f"{name}_ffn", "2", f"{there}.fc2")
            norm(f"{name}_ffn_ffn", f"{there}.final_layer_norm")
    return made


_NORM = ("weight", "bias")


def _row(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector.reshape(1, -1)


def npz(parameters: Mapping[str, NDArray[np.float32]], config: bytes) -> bytes:
    """Return the ``.npz`` file of a model; the same bytes for the same model."""
    text = np.frombuffer(config + b"\0", np.int8)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.ascontiguousarray(array, np.float32) for name, array in parameters.items()}
    np.savez(buffer, **{**arrays, "special:model.yml": text})
    return buffer.getvalue()


def vocabulary_file(names: Sequence[str]) -> bytes:
    """Return the YAML vocabulary of entries, in the order of their ids."""
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {id}\n" for id, name in enumerate(names)]
    return "".join(lines).encode()


def marian_names(names: Sequence[str]) -> list[str]:
    """Return unique names without white space and control characters.

    Marian separates entries by white space. A backslash at the beginning is replaced too: CTranslate2 would read an
    escape.

    >>> marian_names(["a", "b c", ""])
    ['a', 'b_c#1', '#2']
    """
    taken, found = set(names), []
    for id, name in enumerate(names):
        own = name
        if not name or name[0] == "\\" or any(map(_separates, name)):
            plain = "".join("_" if _separates(letter) else letter for letter in name)
            plain = f"_{plain[1:]}" if plain[:1] == "\\" else plain
            own = f"{plain}#{id}"
            while own in taken:
                own += "#"
            taken.add(own)
        found.append(own)
    return found


def _separates(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) == "Cc"
