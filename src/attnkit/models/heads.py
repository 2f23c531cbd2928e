"""Task heads on a pretrained encoder: sequence and token classification, answer spans.

Devlin et al. 2019, section 4: one linear map each, on the first token's pooled feature or on every token's.

Letters: B rows, T tokens of a row, D model width, V vocabulary, L labels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attnkit.models.bert import Bert, Pooler, build_output
from attnkit.models.language_config import BertConfig
from attnkit.models.linear import Dropout
from attnkit.models.packing import PackedLayout


def encoder_without_mlm_head(config: BertConfig, vocab_size: int) -> Bert:
    """Return an encoder without what only pretraining uses: the predictors of words and of next sentences."""
    # Tied, so that no output matrix of V * D is allocated and drawn only to be deleted.
    encoder = Bert(config.model_copy(update={"next_sentence": False, "tie_embeddings": True}), vocab_size)
    del encoder.predictor, encoder.output
    return encoder


class EncoderWithHead(nn.Module):
    """An encoder, dropout and a linear map onto L outputs, with a pooler below it where the first token decides."""

    pooled = False

    def __init__(self, config: BertConfig, vocab_size: int, n_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder_without_mlm_head(config, vocab_size)
        if self.pooled:
            # Trained anew where pretraining had no next-sentence task.
            self.pooler = Pooler(config)
        self.dropout = Dropout(config.dropout)
        self.output = build_output(config.d_model, n_outputs)

    def word_vectors(self) -> list[Tensor]:
        """Return the embeddings, (V, D)."""
        return self.encoder.word_vectors()

    def outputs(self, ids: Tensor, real: Tensor, segments: Tensor | None) -> Tensor:
        """Return the outputs (B, T, L) of every token."""
        return self.output(self.dropout(self.encoder.hidden(ids, PackedLayout.padded(real), segments)))


class SequenceClassifier(EncoderWithHead):
    """A label for each row, of one text or a pair of them."""

    pooled = True

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return logits (B, L) of ids (B, T), of which real (B, T) are not padding."""
        firsts = torch.arange(len(ids), device=ids.device) * ids.shape[1]  # (B,), flattened positions of [CLS]
        # (B, D): the last layer computes [CLS] alone
        hidden = self.encoder.hidden_at(firsts, ids, PackedLayout.padded(real), segments)
        return self.output(self.dropout(self.pooler(hidden[:, None])))  # (B, 1, D) to (B, L)


class TokenClassifier(EncoderWithHead):
    """A label for each token."""

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return logits (B, T, L) of ids (B, T), of which real (B, T) are not padding."""
        return self.outputs(ids, real, segments)


class SpanPredictor(EncoderWithHead):
    """Extractive question answering: start and end logits of each token."""

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size, 2)

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None, allowed: Tensor) -> Tensor:
        """Return logits (2, B, T) of beginning and end, -inf where an answer cannot lie.

        Args:
            ids: (B, T) question and context.
            real: (B, T) bool, True but at padding.
            segments: (B, T) int64, 0 for the question, 1 for the context.
            allowed: (B, T) bool, True at tokens of the context and where the first token means no answer.
        """
        logits = self.outputs(ids, real, segments).movedim(-1, 0)  # (B, T, 2) to (2, B, T)
        return logits.masked_fill(~allowed, -math.inf)


def layers_of(encoder: Bert) -> list[list[nn.Parameter]]:
    """Return the parameters of an encoder from the bottom up: embeddings, each layer, the norm at the top if any.

    What only pretraining uses is left out.
    """
    embeddings: list[nn.Module] = [encoder.embedding, encoder.places, encoder.embedding_norm]
    if encoder.segments is not None:
        embeddings.append(encoder.segments)
    # From the bottom up, as layer-wise learning rates and freezing count them.
    groups = [embeddings, *([layer] for layer in encoder.layers)]
    parameters = [[parameter for module in group for parameter in module.parameters()] for group in groups]
    top = list(encoder.norm.parameters())
    return [*parameters, top] if top else parameters


def freeze(encoder: Bert, n_layers: int) -> None:
    """Keep the embeddings and the lowest n_layers layers as they are; 0 freezes nothing.

    Raises:
        ValueError: there are not so many layers.
    """
    if not 0 <= n_layers <= len(encoder.layers):
        raise ValueError(f"the encoder has {len(encoder.layers)} layers, of which {n_layers} cannot be frozen")
    # The embeddings are the first group, hence + 1.
    for group in layers_of(encoder)[: n_layers + 1 if n_layers else 0]:
        for parameter in group:
            parameter.requires_grad_(False)


def best_span(starts: Tensor, ends: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the likeliest span of each row: its beginning (B,), its end (B,) inclusive, and its score (B,).

    Args:
        starts: (B, T) logits of beginnings, -inf where none may be.
        ends: (B, T) logits of ends.
        longest: most tokens of a span.
    """
    length = starts.shape[1]
    scores = starts[:, :, None] + ends[:, None, :]  # (B, T, T): start i, end j
    # Ends not before their start (triu), and less than `longest` after it (tril).
    inside = torch.ones(length, length, dtype=torch.bool, device=starts.device).triu().tril(longest - 1)
    best, place = scores.masked_fill(~inside, -math.inf).flatten(1).max(1)
    # A flat index of (T, T) is start * T + end.
    return place // length, place % length, best
