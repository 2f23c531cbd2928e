"""Initial weights of a run whose vocabulary extends that of another run."""

import torch

from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.checkpoints.weights import read_tensors, tensors_of
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.vocabularies import Vocabularies, read_vocabularies
from attnkit.models.layer_config import ties_sides
from attnkit.models.translation import TranslationModel, build_model
from attnkit.text.extension import row_origins, shared_row_origins

_SOURCE = ("encoder.embedding.words.weight", "src_embedding.weight")
_TARGET = ("decoder.embedding.words.weight", "tgt_embedding.weight", "output.weight", "output.bias")


@torch.no_grad()
def init_extended(model: TranslationModel, source: Checkpoint, vocabularies: Vocabularies) -> None:
    """Copy the weights of a run into a model with more entries.

    The row of a new entry, in embeddings and output layer, is the mean of the rows of its pieces in the old vocabulary.
    In a matrix that both sides share, they are those of the side that knows the entry.
    """
    old, config = read_vocabularies(source), read_run_config(source, "translation")
    with torch.device("meta"), SkipWeightInit():
        smaller = build_model(config.model, old.src.vocab_size, old.tgt.vocab_size)
    weights = read_tensors(source, MODEL, tensors_of(smaller))
    if ties_sides(config.model.tie_embeddings):
        origins = dict.fromkeys((*_SOURCE, *_TARGET), shared_row_origins(old, vocabularies))
    else:
        origins = {
            **dict.fromkeys(_SOURCE, row_origins(old.src, vocabularies.src)),
            **dict.fromkeys(_TARGET, row_origins(old.tgt, vocabularies.tgt)),
        }
    for name, tensor in tensors_of(model).items():
        if name in origins:
            # Most rows are those of one entry, and an imported model has 256,000 of them.
            tensor.copy_(weights[name][[ids[0] for ids in origins[name]]])  # (V, D), or (V,) of the bias
            for row, ids in enumerate(origins[name]):
                if len(ids) > 1:
                    tensor[row] = weights[name][ids].mean(0)
        else:
            tensor.copy_(weights[name])
