"""BERT: a Transformer encoder that predicts words from both sides (Devlin et al. 2019).

Letters: B rows, T tokens of a row, N chosen tokens, D model width, V vocabulary, L labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.language_config import BertConfig
from attnkit.models.layers import ACTIVATIONS, EncoderLayer, top_norm
from attnkit.models.linear import Dropout, Linear, init_xavier, some_outputs, without_dropout
from attnkit.models.packing import PackedLayout, PositionEmbedding, SelfAttentionContext

STD = 0.02  #: standard deviation of initial embeddings (Devlin et al. 2019).


def build_output(d_model: int, n_outputs: int) -> Linear:
    """Return a linear map drawn as BERT's are, with zero bias."""
    output = Linear(d_model, n_outputs)
    nn.init.normal_(output.weight, std=STD)
    nn.init.zeros_(output.bias)
    return output


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
        self.self_attention = SelfAttentionContext(config, causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = top_norm(config)
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
        x = self.places(F.embedding(ids, self.embedding.weight), 0, ids.shape[1], layout.positions)  # (B, T, D)
        if self.segments is not None:
            # The first segment's vector is added even where nobody speaks of segments: it was trained with it.
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        return self.dropout(self.embedding_norm(x))

    def hidden(
        self,
        ids: Tensor,
        layout: PackedLayout,
        segments: Tensor | None = None,
        seen: list[Tensor] | None = None,
        layers: int | None = None,
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T), which may see what the layout says.

        Args:
            ids: (B, T).
            layout: passages and padding.
            segments: (B, T) int64, None where all are the first one.
            seen: each layer's attention weights (B, H, T, T) are added to it.
            layers: stop after so many layers, 0 gives the embeddings; the last norm is left out then.
        """
        x = self.embed(ids, layout, segments)
        # One mix for all layers: bias and rotation do not depend on the layer.
        mix = self.self_attention(x, layout, seen)
        for layer in list(self.layers)[:layers]:
            x = layer(x, mix)
        features: Tensor = x if layers is not None and layers < len(self.layers) else self.norm(x)
        return features

    def hidden_at(self, positions: Tensor, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> Tensor:
        """Return the features (N, D) at positions (N,) of the flattened rows alone.

        Nobody reads the others, so the last layer makes these only: all tokens are its keys, few are its queries.
        """
        x = self.embed(ids, layout, segments)
        mix = self.self_attention(x, layout)
        for layer in list(self.layers)[:-1]:
            x = layer(x, mix)
        features: Tensor = self.norm(self.layers[-1](x, mix, positions))  # (N, D)
        return features

    def predict(self, hidden: Tensor) -> Tensor:
        """Return what ``output`` turns into logits, (..., D), from features (..., D)."""
        features: Tensor = self.predictor(hidden)
        return features

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of features (..., D), or only the columns of the given words."""
        return some_outputs(self.output, self.predict(hidden), ids)

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> dict[str, Tensor]:
        """Return the weights of every layer, (B, L, H, T, T), under the name encoder. Dropout is off."""
        seen: list[Tensor] = []
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
        init_xavier(self.linear)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., D)."""
        return self.norm(self.activation(self.linear(x)))  # type: ignore[no-any-return]


class Pooler(nn.Module):
    """The first token's feature through a linear map and tanh, as in Devlin's code.

    With rotary positions the layers' activation represents tanh, as in RoFormer's (Su et al. 2021).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = build_output(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation] if config.positions == "rotary" else torch.tanh

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, D) of features (B, T, D)."""
        return self.activation(self.linear(hidden[:, 0]))  # (B, D), from [CLS]


class NextSentenceHead(nn.Module):
    """Next-sentence head: whether the second segment follows the first."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = Pooler(config)
        self.output = build_output(config.d_model, 2)  # logits: follows, does not follow

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits (B, 2) of features (B, T, D): follows, does not follow."""
        return self.output(self.pooler(hidden))  # (B, 2)
