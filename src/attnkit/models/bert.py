"""BERT: a Transformer encoder that predicts words from both sides (Devlin et al. 2019). Knows no text and no losses.

Letters: B rows, T tokens of a row, N chosen tokens, D model width, V vocabulary, L labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.language_config import BertConfig
from attnkit.models.layers import ACTIVATIONS, EncoderLayer
from attnkit.models.linear import Dropout, Linear, some_outputs, without_dropout
from attnkit.models.packing import AttentionWeights, PackedLayout, PositionEmbedding, SelfAttentionContext

STD = 0.02
"""Standard deviation of initial embeddings (Devlin et al. 2019)."""


class Bert(nn.Module):
    """Ids in, features of every token out; ``predict`` and ``output`` turn those of chosen tokens into words.

    Embeddings are the sum of word, position and segment, normed where norms come after (Devlin et al. 2019, section
    3.2 and their code).
    """

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__()
        width = config.d_model
        self.embedding = nn.Embedding(vocab_size, width)
        # Token, position and segment embeddings are added.
        self.places = PositionEmbedding(config)
        self.segments = nn.Embedding(config.n_segments, width) if config.n_segments > 1 else None
        # Post-norm layers end in a norm, so only the embeddings need one; pre-norm layers need one at the top.
        post = config.norm == "post"
        self.embedding_norm = nn.LayerNorm(width, eps=config.norm_eps) if post else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.sight = SelfAttentionContext(config, causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = nn.Identity() if post else nn.LayerNorm(width, eps=config.norm_eps)
        self.predictor = MlmHead(config)
        self.output = Linear(width, vocab_size)
        self.next_sentence = NextSentenceHead(config) if config.next_sentence else None
        nn.init.normal_(self.embedding.weight, std=STD)
        nn.init.normal_(self.output.weight, std=STD)
        nn.init.zeros_(self.output.bias)
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=STD)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def word_vectors(self) -> list[Tensor]:
        """Return the embeddings, (V, D)."""
        return [self.embedding.weight]

    def embed(self, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> Tensor:
        """Return what the first layer reads (B, T, D); segments (B, T) int64, None where all are the first one."""
        # The output layer may be tied to this matrix, so it is read directly.
        x = self.places(F.embedding(ids, self.embedding.weight), layout.positions)  # (B, T, D)
        if self.segments is not None:
            # The first segment's vector is added even where nobody speaks of segments: it was trained with it.
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        embedded: Tensor = self.dropout(self.embedding_norm(x))
        return embedded

    def hidden(
        self,
        ids: Tensor,
        layout: PackedLayout,
        segments: Tensor | None = None,
        seen: AttentionWeights | None = None,
        layers: int | None = None,
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T).

        Args:
            ids: the tokens.
            layout: what they may see.
            segments: (B, T) int64, None where all are the first one.
            seen: each layer's attention weights (B, H, T, T) are added to it.
            layers: stop after so many layers, 0 gives the embeddings; the last norm is left out then.
        """
        x = self.embed(ids, layout, segments)
        # One mix for all layers: bias and rotation do not depend on the layer.
        mix = self.sight(x, layout, seen)
        stack = list(self.layers)
        for layer in stack[:layers]:
            x = layer(x, mix)
        if layers is not None and layers < len(stack):
            return x
        features: Tensor = self.norm(x)
        return features

    def hidden_at(self, places: Tensor, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> Tensor:
        """Return the features (N, D) at places (N,) of the flattened rows alone.

        Nobody reads the others, so the last layer makes these only: all tokens are its keys, few are its queries.
        """
        x = self.embed(ids, layout, segments)
        mix = self.sight(x, layout)
        for layer in list(self.layers)[:-1]:
            x = layer(x, mix)
        # (N, D): queries at places only, keys and values everywhere.
        features: Tensor = self.norm(self.layers[-1](x, mix, places))
        return features

    def predict(self, hidden: Tensor) -> Tensor:
        """Return what ``output`` turns into logits, (..., D), from features (..., D)."""
        features: Tensor = self.predictor(hidden)
        return features

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D), or only the columns of the given words."""
        features = self.predict(hidden)  # (..., D)
        if ids is not None:
            return some_outputs(self.output, features, ids)
        logits: Tensor = self.output(features)  # (..., V)
        return logits

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> dict[str, Tensor]:
        """Return the weights of every layer, (B, L, H, T, T), under the name encoder. Dropout is off."""
        # One tensor (B, H, T, T) per layer.
        seen: AttentionWeights = []
        with without_dropout(self):
            self.hidden(ids, layout, segments, seen)
        return {"encoder": torch.stack(seen, dim=1)}  # (B, L, H, T, T)


class MlmHead(nn.Module):
    """MLM head below the output layer: a linear map, an activation and a norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., D)."""
        y: Tensor = self.norm(self.activation(self.linear(x)))
        return y


class Pooler(nn.Module):
    """The first token's feature through a linear map and tanh, as in Devlin's code.

    With rotary positions the layers' activation represents tanh, as in RoFormer's (Su et al. 2021).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation] if config.positions == "rotary" else torch.tanh
        nn.init.normal_(self.linear.weight, std=STD)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, D) of features (B, T, D)."""
        pooled: Tensor = self.activation(self.linear(hidden[:, 0]))  # (B, D), from [CLS]
        return pooled


class NextSentenceHead(nn.Module):
    """Next-sentence head: whether the second segment follows the first."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = Pooler(config)
        self.output = Linear(config.d_model, 2)  # logits: follows, does not follow
        nn.init.normal_(self.output.weight, std=STD)
        nn.init.zeros_(self.output.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits (B, 2) of features (B, T, D): follows, does not follow."""
        logits: Tensor = self.output(self.pooler(hidden))  # (B, 2)
        return logits
