"""BERT's encoder as that of a translation model: what fits, and its weights in their new places."""

from __future__ import annotations

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import check_min_parameters
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.engine.weights import load_weights
from attnkit.models.bert import Bert
from attnkit.models.transformer import Encoder, Transformer
from attnkit.tasks.language_modeling.config import MlmConfig
from attnkit.tasks.translation.bert_encoder_config import refuse_other
from attnkit.tasks.translation.config import TranslationConfig


def refuse_misfit(source: Checkpoint, config: TranslationConfig) -> bool:
    """Return whether a checkpoint is of BERT.

    Raises:
        UsageError: it is, and its encoder is not of the architecture that is asked for.
        RunError: it is, and its weights are too few.
    """
    stored = read_run_config(source)
    if not isinstance(stored, MlmConfig):
        return False
    refuse_other(stored.model, config.model, str(source.path.parent.parent))
    check_min_parameters(source, stored.model.min_parameters(read_tokenizer(source).vocab_size))
    return True


def take(config: TranslationConfig, model: torch.nn.Module, source: Checkpoint) -> None:
    """Give a fresh model a BERT's encoder, or all weights of a run of its own kind (``Task.take``)."""
    stored = read_run_config(source)
    if not isinstance(stored, MlmConfig):
        load_weights(model, source)
        return
    assert isinstance(model, Transformer)
    bert = Bert(stored.model, read_tokenizer(source).vocab_size)
    load_weights(bert, source)
    copy_bert_encoder(model.encoder, bert)


@torch.no_grad()
def copy_bert_encoder(encoder: Encoder, bert: Bert) -> None:
    """Make an encoder compute what a BERT of its architecture computes where all segments are the first.

    Word vectors are divided by what the encoder multiplies them by; the first segment's vector, which BERT adds
    everywhere, goes into the positions, or into the words where these are no table.
    """
    encoder.layers.load_state_dict(bert.layers.state_dict())
    encoder.norm.load_state_dict(bert.norm.state_dict())
    encoder.embedding.norm.load_state_dict(bert.embedding_norm.state_dict())
    words = bert.embedding.weight
    segment = torch.zeros_like(words[0]) if bert.segments is None else bert.segments.weight[0]
    if encoder.embedding.positions is not None and bert.places.table is not None:
        table = encoder.embedding.positions.table
        table.copy_(bert.places.table.table[: len(table)] + segment)
    else:
        words = words + segment
    encoder.embedding.words.weight.copy_(words / encoder.embedding.scale)
