"""BERT, a bidirectional Transformer encoder (Devlin et al. 2019), and task heads.

Letters: B rows, T tokens of a row, N selected tokens, D model width, V vocabulary, L labels.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.multihead import Mix, take
from attnkit.models.attention.patterns import Window
from attnkit.models.language_config import BertConfig, LanguageConfig
from attnkit.models.layers import ACTIVATIONS, EncoderLayer, PackedLayout, SelfAttentionContext, top_norm
from attnkit.models.linear import Dropout, LayerDropout, Linear, init_xavier, some_outputs, without_dropout
from attnkit.models.positions import PositionEmbedding

# On 1 CPU core, 4 rows of 256 tokens take 67 ms tile by tile, against 29 ms with a mask; 1 row of 4096 432 ms, against
# 2040 ms (12 heads of width 64, window 128, float32). At 512 tokens, both take as long.
TILES_FROM = 512  #: length of rows from which local layers are computed tile by tile
STD = 0.02  #: standard deviation of initial weights (Devlin et al. 2019)


def build_output(d_model: int, n_outputs: int) -> Linear:
    """Build a linear layer with BERT's initial weights and zero bias."""
    output = Linear(d_model, n_outputs)
    nn.init.normal_(output.weight, std=STD)
    nn.init.zeros_(output.bias)
    return output


def build_positions(config: LanguageConfig, width: int | None = None) -> nn.ModuleDict:
    """Build the position embedding, initialised as in BERT and GPT-2."""
    positions = PositionEmbedding(config.positions, config.max_length, width or config.d_model)
    if positions.table is not None:
        nn.init.normal_(positions.table, std=STD)
    return nn.ModuleDict({"table": positions})  # the name in checkpoints


class Bert(nn.Module):
    """BERT encoder from token ids to features, with its pretraining heads.

    ``predictor`` and ``output`` are the masked language model head. Embeddings are the sum of word, position and
    segment vectors, normalized in post-norm models (Devlin et al. 2019, section 3.2 and their code).
    """

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__()
        width = config.embedding_width  # E
        self.embedding = nn.Embedding(vocab_size, width)
        # Token, position and segment embeddings are added.
        self.places = build_positions(config, width)
        self.segments = nn.Embedding(config.n_segments, width) if config.n_segments > 1 else None
        # Post-norm layers end in a norm, so only the embeddings need one; pre-norm layers need one at the top.
        normed = config.norm == "post" or config.embedding_norm
        norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias) if normed else nn.Identity()
        self.embedding_norm = norm
        self.dropout = Dropout(config.dropout)
        # E to D, as in ELECTRA (Clark et al. 2020), whose small models have narrow embeddings.
        self.embedding_map = build_output(width, config.d_model) if config.d_embedding is not None else None
        self.self_attention = SelfAttentionContext(config, causal=False)
        # Local layers attend within a window, with rotary positions of their own base (Warner et al. 2024, 2.1.2).
        self.local_attention: SelfAttentionContext | None = None
        if config.local_window is not None:
            window = Window(config.local_window // 2)
            self.local_attention = SelfAttentionContext(config, False, window, config.local_rope_base)
            self.local_attention.tiles_from = TILES_FROM
        self.is_local = [config.is_local(i) for i in range(config.n_layers)]
        self.layers = nn.ModuleList(
            EncoderLayer(config, normed=config.embedding_norm and i == 0) for i in range(config.n_layers)
        )
        self.layer_dropout = LayerDropout(config.layer_dropout, config.n_layers)
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

    def embed(self, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> Tensor:
        """Return the embeddings (B, T, D); segments (B, T) int64, None if all are 0."""
        # The output layer may be tied to this matrix, so it is read directly.
        words = F.embedding(ids, self.embedding.weight)
        x: Tensor = self.places["table"](words, 0, ids.shape[1], layout.positions)  # (B, T, D)
        if self.segments is not None:
            # Without segments the first segment's vector is added, as in training.
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        x = self.dropout(self.embedding_norm(x))
        return x if self.embedding_map is None else self.embedding_map(x)  # (B, T, E) to (B, T, D)

    def hidden(
        self,
        ids: Tensor,
        layout: PackedLayout,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        seen: list[Tensor] | None = None,
        layers: int | None = None,
    ) -> Tensor:
        """Return the features (B, T, D) of ids (B, T), masked according to the layout.

        Args:
            ids: (B, T).
            layout: passages and padding.
            segments: (B, T) int64; None if all tokens are in segment 0.
            positions: (N,) indices into the flattened rows; only their features (N, D) are returned.
            seen: list to which each layer's attention weights (B, H, T, T) are appended.
            layers: number of layers to run, 0 for the embeddings; the final norm is applied only after all layers.
        """
        x = self.embed(ids, layout, segments)
        # One mix for all global layers, and one for all local ones: bias and rotation do not depend on the layer.
        mixes: dict[bool, Mix] = {False: self.self_attention(x, layout, seen)}
        if self.local_attention is not None:
            mixes[True] = self.local_attention(x, layout, seen)
        stack = list(self.layers)[:layers]
        for i, (layer, local) in enumerate(zip(stack, self.is_local, strict=False)):
            # In the last layer all tokens are keys, but only the requested positions are queries.
            chosen = positions if layer is stack[-1] else None
            if self.layer_dropout.keeps(i):
                x = layer(x, mixes[local], chosen)
            elif chosen is not None:
                x = take(x, chosen)
        features: Tensor = x if len(stack) < len(self.layers) else self.norm(x)
        return features

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or only those of the given ids."""
        return some_outputs(self.output, self.predictor(hidden), ids)

    @torch.no_grad()
    def attention_weights(self, ids: Tensor, layout: PackedLayout, segments: Tensor | None = None) -> dict[str, Tensor]:
        """Return {"encoder": weights (B, L, H, T, T)} of all layers, without dropout."""
        seen: list[Tensor] = []
        with without_dropout(self):
            self.hidden(ids, layout, segments, seen=seen)
        return {"encoder": torch.stack(seen, dim=1)}  # (B, L, H, T, T)


class MlmHead(nn.Module):
    """MLM head below the output layer: a linear map, an activation and LayerNorm."""

    __call__: Callable[..., Tensor]

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = Linear(config.d_model, config.embedding_width, bias=config.head_bias)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.norm_eps, bias=config.norm_bias)
        init_xavier(self.linear)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (..., D) to (..., E), the width of the embeddings, usually D."""
        return self.norm(self.activation(self.linear(x)))  # type: ignore[no-any-return]


class Pooler(nn.Module):
    """A linear map of the first token's feature, and tanh, as in the original code.

    With rotary positions, the activation of the layers replaces tanh, as in RoFormer (Su et al. 2021). Configured are
    others: ReLU as in DistilBERT (Sanh et al. 2019, their code), GELU as in ELECTRA (Clark et al. 2020, their code).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = build_output(config.d_model, config.d_model)
        kind = config.pooler_activation
        self.activation = torch.tanh if kind == "tanh" else ACTIVATIONS[kind]

    def forward(self, hidden: Tensor) -> Tensor:
        """Map features (..., D) to (..., D)."""
        return self.activation(self.linear(hidden))


class NextSentenceHead(nn.Module):
    """Next-sentence head: predicts whether the second segment follows the first."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = Pooler(config)
        self.output = build_output(config.d_model, 2)  # logits: follows, does not follow

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits (B, 2) of features (B, T, D): follows, does not follow."""
        return self.output(self.pooler(hidden[:, 0]))  # (B, 2), from [CLS]


# Task heads (section 4): a linear map of the first token's pooled feature, or of the features of all tokens.
def encoder_without_mlm_head(config: BertConfig, vocab_size: int) -> Bert:
    """Build an encoder without the pretraining heads (MLM and next sentence)."""
    # Tied, so that no V x D output matrix is allocated and initialised only to be deleted.
    encoder = Bert(config.model_copy(update={"next_sentence": False, "tie_embeddings": True}), vocab_size)
    del encoder.predictor, encoder.output
    return encoder


class EncoderWithHead(nn.Module):
    """Encoder with dropout and a linear map to L outputs, with or without a pooler."""

    pooled = False

    def __init__(self, config: BertConfig, vocab_size: int, n_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder_without_mlm_head(config, vocab_size)
        self.mean = config.pooling == "mean"
        if config.pooler == "mlm_head":
            # ModernBERT has the masked-LM head, without its output layer, below every kind of output.
            self.pooler: nn.Module | None = MlmHead(config)
        else:
            # Trained from scratch if pretraining had no next-sentence task.
            self.pooler = Pooler(config) if self.pooled else None
        self.dropout = Dropout(config.dropout)
        self.output = build_output(config.d_model, n_outputs)

    def outputs(self, ids: Tensor, real: Tensor, segments: Tensor | None) -> Tensor:
        """Return the outputs (B, T, L) of all tokens."""
        hidden = self.encoder.hidden(ids, PackedLayout.padded(real), segments)  # (B, T, D)
        return self.output(self.dropout(hidden if self.pooler is None else self.pooler(hidden)))


class SequenceClassifier(EncoderWithHead):
    """Classifier of rows, each a single text or a pair of texts."""

    pooled = True

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return logits (B, L) of ids (B, T); ``real`` (B, T) is False at padding."""
        layout = PackedLayout.padded(real)
        if self.mean:
            features = self.encoder.hidden(ids, layout, segments)  # (B, T, D)
            part = real.to(features.dtype)[:, :, None]  # (B, T, 1)
            hidden = (features * part).sum(1) / part.sum(1)  # (B, D)
        else:
            firsts = torch.arange(len(ids), device=ids.device) * ids.shape[1]  # (B,), flattened positions of [CLS]
            # (B, D): the last layer computes only [CLS]
            hidden = self.encoder.hidden(ids, layout, segments, firsts)
        assert self.pooler is not None
        return self.output(self.dropout(self.pooler(hidden)))  # (B, D) to (B, L)


class TokenTagger(EncoderWithHead):
    """Classifier of individual tokens."""

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return logits (B, T, L) of ids (B, T); ``real`` (B, T) is False at padding."""
        return self.outputs(ids, real, segments)


class SpanPredictor(EncoderWithHead):
    """Extractive question answering: start and end logits per token."""

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size, 2)

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None, allowed: Tensor) -> Tensor:
        """Return start and end logits (2, B, T), -inf where answers are not allowed.

        Args:
            ids: (B, T) question and context.
            real: (B, T) bool, False at padding.
            segments: (B, T) int64, 0 for the question, 1 for the context.
            allowed: (B, T) bool, True at context tokens, and at the first token if it means no answer.
        """
        logits = self.outputs(ids, real, segments).movedim(-1, 0)  # (B, T, 2) to (2, B, T)
        return logits.masked_fill(~allowed, -math.inf)


def layers_of(encoder: Bert) -> list[list[nn.Parameter]]:
    """Return the parameters bottom up: embeddings, each layer, final norm if any.

    Pretraining heads are not included.
    """
    embeddings: list[nn.Module] = [encoder.embedding, encoder.places, encoder.embedding_norm]
    embeddings += [part for part in (encoder.segments, encoder.embedding_map) if part is not None]
    # Bottom up, the order used by layer-wise learning rates and freezing.
    groups = [embeddings, *([layer] for layer in encoder.layers)]
    parameters = [[parameter for module in group for parameter in module.parameters()] for group in groups]
    top = list(encoder.norm.parameters())
    return [*parameters, top] if top else parameters


def freeze(encoder: Bert, n_layers: int) -> None:
    """Freeze the embeddings and the lowest n_layers layers; 0 freezes nothing.

    Raises:
        ValueError: ``n_layers`` is negative or exceeds the number of layers.
    """
    if not 0 <= n_layers <= len(encoder.layers):
        raise ValueError(f"cannot freeze {n_layers} layers: the encoder has {len(encoder.layers)}")
    # The embeddings are the first group, hence + 1.
    for group in layers_of(encoder)[: n_layers + 1 if n_layers else 0]:
        for parameter in group:
            parameter.requires_grad_(False)


def best_span(starts: Tensor, ends: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return start, inclusive end and score of the best span of each row, (B,) each.

    Args:
        starts: (B, T) start logits, -inf where no span may start.
        ends: (B, T) end logits.
        longest: maximum number of tokens in a span.
    """
    length = starts.shape[1]
    scores = starts[:, :, None] + ends[:, None, :]  # (B, T, T): start i, end j
    # The end is not before the start (triu), and less than `longest` after it (tril).
    inside = torch.ones(length, length, dtype=torch.bool, device=starts.device).triu().tril(longest - 1)
    best, index = scores.masked_fill(~inside, -math.inf).flatten(1).max(1)
    # A flat index of (T, T) is start * T + end.
    return index // length, index % length, best
