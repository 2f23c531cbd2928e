"""ELECTRA: an encoder detects what a generator replaced (Clark et al. 2020).

Letters: B rows, T tokens of a row, N selected tokens, D model width, E width of the embeddings, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.bert import Bert, build_output, encoder_without_mlm_head
from attnkit.models.language_config import BertConfig, ElectraConfig
from attnkit.models.layers import ACTIVATIONS
from attnkit.models.linear import some_outputs

_MAX_LOGITS_ON_CPU = 1 << 20  #: logits at a time, but at least those of one token; on a CPU, these fit in the caches
_MAX_LOGITS_ELSEWHERE = 1 << 26  # accelerators need fewer and larger operations


class DetectionHead(nn.Module):
    """Linear map, activation, and a logit per token: was it replaced?"""

    __call__: Callable[..., Tensor]

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.linear = build_output(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.output = build_output(config.d_model, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits (...) of features (..., D)."""
        return self.output(self.activation(self.linear(hidden)))[..., 0]


class Electra(nn.Module):
    """Encoder with a head that detects replaced tokens, and the generator of these.

    The generator is a narrower BERT with its masked language model head. The two share the embeddings of words,
    positions and segments, and their norm, as in the original code.
    """

    def __init__(self, config: BertConfig, vocab_size: int, options: ElectraConfig) -> None:
        super().__init__()
        self.encoder = encoder_without_mlm_head(config, vocab_size)
        self.detector = DetectionHead(config)
        self.generator = generator = Bert(config.generator_architecture(options.generator_size), vocab_size)
        for name in ("embedding", "places", "segments", "embedding_norm"):
            setattr(generator, name, getattr(self.encoder, name))
        if config.tie_embeddings:
            generator.output.weight = self.encoder.embedding.weight

    @torch.no_grad()
    def replace(self, ids: Tensor, features: Tensor, chosen: Tensor, draws: Tensor) -> Tensor:
        """Return ids (B, T) with tokens from the generator's distribution at ``chosen``.

        No gradient passes through it (section 2).

        Args:
            ids: (B, T) tokens.
            features: (N, E) inputs of the generator's output layer at ``chosen``.
            chosen: (N,) positions in the flattened rows.
            draws: (N,) random numbers in [0, 1), which determine the tokens.
        """
        replaced = ids.clone()
        most = _MAX_LOGITS_ON_CPU if ids.device.type == "cpu" else _MAX_LOGITS_ELSEWHERE
        size = max(1, most // self.generator.output.out_features)
        parts = zip(torch.split(features, size), torch.split(draws, size), strict=True)
        tokens = [sample(some_outputs(self.generator.output, rows, None), own) for rows, own in parts]
        replaced.view(-1)[chosen] = torch.cat(tokens)
        return replaced


def sample(logits: Tensor, draws: Tensor) -> Tensor:
    """Return tokens (N,) drawn from softmax distributions, by inversion.

    The token of a row is the first whose cumulative probability exceeds the row's number. It is found among sums of
    some √V tokens and then in one of these blocks, 8 times as fast on a CPU as by cumulative sums over V.

    Args:
        logits: (N, V).
        draws: (N,) numbers in [0, 1).
    """
    n, size = logits.shape
    width = math.isqrt(size - 1) + 1  # tokens of a block
    n_blocks = -(-size // width)
    probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    blocks = F.pad(probs, (0, n_blocks * width - size)).view(n, n_blocks, width)
    wide = torch.float32 if logits.device.type == "mps" else torch.float64  # Apple GPUs have no float64
    block, share = _invert(blocks.sum(-1).to(wide), draws.to(wide))
    inside = blocks[torch.arange(n, device=block.device), block]  # (N, width)
    return block * width + _invert(inside.to(wide), share)[0]


def _invert(weights: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return where cumulative weights pass a share of their sum, and how far into it.

    Args:
        weights: (N, M), not negative.
        shares: (N,) in [0, 1].

    Returns:
        (N,) int64 index of a positive weight, and (N,) the share of that weight which is passed.
    """
    sums = weights.cumsum(-1)
    wanted = shares[:, None] * sums[:, -1:]  # (N, 1)
    # Rounding never leads beyond the last positive weight.
    index = torch.minimum((sums <= wanted).sum(-1), (sums < sums[:, -1:]).sum(-1))
    own = weights.gather(1, index[:, None])[:, 0]
    behind = own - (sums.gather(1, index[:, None])[:, 0] - wanted[:, 0])
    return index, (behind / own).clamp(0, 1)


def build_pretrained(config: BertConfig, vocab_size: int, electra: ElectraConfig | None) -> Bert | Electra:
    """Build the model of a pretraining run, which is an ELECTRA with ``electra``."""
    return Bert(config, vocab_size) if electra is None else Electra(config, vocab_size, electra)
