"""Initialization of a translation encoder from BERT: settings and weights."""

import json
from collections.abc import Mapping
from typing import Any

import torch

from attnkit.checkpoints.arrays import check_min_parameters
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import load_weights
from attnkit.data.config import DataConfig
from attnkit.decoding.config import SearchConfig
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.config import TransformerConfig
from attnkit.models.electra import Electra, build_pretrained
from attnkit.models.language_config import BertConfig
from attnkit.models.layer_config import ROPE_BASE
from attnkit.models.transformer import Encoder, Transformer
from attnkit.tasks.translation.config import TranslationConfig

_OTHER = "initialize from another BERT"
SAME = ("d_model", "n_heads", "d_ff", "norm", "norm_eps", "positions", "activation", "glu", "bias", "attention_options")
"""Keys with the same name in both configurations. ``alignment`` and ``distribution`` are compared per head instead."""


def config_from_bert(tree: Mapping[str, Any], kind: Any = None) -> dict[str, Any]:
    """Return the settings that a translation run inherits from a BERT run.

    ``tree`` and the result are plain trees. BERT's vocabulary is used for the source only, unless the user sets
    ``joint_vocabulary``. BERT's learned positions limit the lengths of lines and translations.

    Raises:
        UsageError: translation models lack a feature of this BERT, or ``kind`` is not a Transformer.
        RunError: the configuration is not that of a BERT.
    """
    try:
        bert = BertConfig.model_validate_json(json.dumps(tree.get("model")))
    except (ValueError, TypeError) as error:
        raise RunError("this run does not contain a valid BERT model", where="--init-from") from error
    check_bert_supported(bert)
    if kind not in (None, "transformer"):
        raise _no_encoder(kind)
    model = {"kind": "transformer", "tie_embeddings": "target", "max_length": bert.max_length, **encoder_settings(bert)}
    model |= bert.model_dump(mode="json", include={"alignment", "distribution", "attention_options"})
    found: dict[str, Any] = {"model": model, "joint_vocabulary": False}
    if bert.max_positions is not None:
        lines = min(DataConfig.model_fields["max_length"].default, bert.max_positions - 1)
        found["data"] = {"max_length": lines}
        if SearchConfig().limit(lines + 1) > bert.max_positions:
            found["decoding"] = {"max_length": bert.max_positions}
    return found


def encoder_settings(bert: BertConfig) -> dict[str, Any]:
    """Return the settings that make a translation encoder equivalent to this BERT."""
    same = {key: getattr(bert, key) for key in SAME}
    return {
        **same,
        "encoder_layers": bert.n_layers,
        "normalization": bert.normalization,
        "head_width": bert.head_width,
        "embedding_norm": bert.norm == "post",
        "pattern": "none",
        "position_offset": 0,
    }


def check_bert_supported(bert: BertConfig) -> None:
    """Raise ``UsageError`` if translation models lack a feature of this BERT."""
    if bert.d_embedding is not None:
        raise UsageError("translation models do not support narrow embeddings", where="model.d_embedding", help=_OTHER)
    if bert.rope_base != ROPE_BASE:
        raise UsageError("translation models do not support other rope_base", where="model.rope_base", help=_OTHER)
    if bert.local_window is not None:
        raise UsageError("translation models do not support local layers", where="model.local_window", help=_OTHER)
    if bert.embedding_norm or not bert.norm_bias:
        what = "translation models do not support norms without biases, or one of pre-norm embeddings"
        raise UsageError(what, where="model.embedding_norm, model.norm_bias", help=_OTHER)


def check_encoder_fits(source: Checkpoint, config: TranslationConfig) -> None:
    """Check that a BERT checkpoint can initialize the encoder of a translation model.

    Raises:
        UsageError: The architectures differ, or BERT has an unsupported feature.
        RunError: The checkpoint has fewer weights than its configuration requires.
    """
    bert, model, name = read_run_config(source, "mlm").model, config.model, source.path.parent.parent
    check_bert_supported(bert)
    if not isinstance(model, TransformerConfig):
        raise _no_encoder(model.kind)
    different = [key for key, theirs in encoder_settings(bert).items() if getattr(model, key) != theirs]
    if not different and model.heads != bert.heads:
        is_alignment = [a for a, _ in model.heads] != [a for a, _ in bert.heads]
        different = ["alignment" if is_alignment else "distribution"]
    if different:
        key, where = different[0], f"model.{different[0]}"
        theirs = encoder_settings(bert).get(key, getattr(bert, key, None))
        what = f"{where} is {getattr(model, key)}, but the encoder of {name} was trained with {theirs}"
        raise UsageError(what, where=where, help=f"remove {where}: --init-from sets it")
    if bert.positions == "learned" and model.max_length > bert.max_length:
        what = f"model.max_length is {model.max_length}, but the encoder of {name} has {bert.max_length} positions"
        raise UsageError(what, where="model.max_length", help="remove or lower model.max_length")
    check_min_parameters(source, bert.min_parameters(read_tokenizer(source).vocab_size))


def _no_encoder(kind: str) -> UsageError:
    what = f"--init-from BERT requires a transformer, not a model of kind '{str(kind)[:40]}'"
    return UsageError(what, where="model.kind", help="use --model transformer")


def init_encoder(model: torch.nn.Module, source: Checkpoint) -> None:
    """Copy the encoder of a BERT checkpoint into a new Transformer."""
    assert isinstance(model, Transformer)
    stored = read_run_config(source, "mlm")
    pretrained = build_pretrained(stored.model, read_tokenizer(source).vocab_size, stored.generator)
    load_weights(pretrained, source)
    copy_bert_encoder(model.encoder, pretrained.encoder if isinstance(pretrained, Electra) else pretrained)


@torch.no_grad()
def copy_bert_encoder(encoder: Encoder, bert: Bert) -> None:
    """Copy BERT's layers and embeddings; single-segment texts get the same states.

    Token embeddings are divided by the encoder's embedding scale. The embedding of segment A, which BERT adds to every
    token, is added to the learned position table, or to the token embeddings if there is no such table.
    """
    encoder.layers.load_state_dict(bert.layers.state_dict())
    encoder.norm.load_state_dict(bert.norm.state_dict())
    encoder.embedding.norm.load_state_dict(bert.embedding_norm.state_dict())
    words = bert.embedding.weight
    segment = torch.zeros_like(words[0]) if bert.segments is None else bert.segments.weight[0]
    table, learned = encoder.embedding.positions.table, dict(bert.places.named_parameters()).get("table.table")
    if table is not None and learned is not None:
        table.copy_(learned[: len(table)] + segment)
    else:
        words = words + segment
    encoder.embedding.words.weight.copy_(words / encoder.embedding.scale)
