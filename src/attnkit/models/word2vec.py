"""Word2vec model (Mikolov et al. 2013): input vectors W and output vectors W'.

Skip-gram predicts each word around a position from the word there, CBOW the word from those around it. In both, rows of
W are pooled into a hidden vector h, and rows u of W' are scored by u·h.

Letters: V words, R rows of W (V, and more with subwords), B positions, C rows read per position, D width of W, H width
of h: D, or C x D if the context is concatenated.
"""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

Context = Literal["mean", "sum", "concat"]  #: how the rows read for one position are pooled


class Word2VecModel(nn.Module):
    """Input vectors W and output vectors W', shared with the caller, not copied."""

    def __init__(self, inputs: Tensor, outputs: Tensor, context: Context = "mean", dim: int | None = None) -> None:
        """Wrap W (R, D) and W' (V, H), or (V - 1, H) for the nodes of a Huffman tree.

        Rows may be padded with zeros, which remain zero; ``dim`` is then D.
        """
        super().__init__()
        # The caller's arrays are not copied: training modifies them.
        self.context = context
        self.dim = inputs.shape[1] if dim is None else dim
        self.inputs = nn.Parameter(inputs)
        self.outputs = nn.Parameter(outputs)

    def hidden(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Return h (B, H) of rows (B, C) of W, without those where mask (B, C) is False.

        Mean and sum are over the unmasked rows; in a concatenation, masked rows are zeros.
        """
        vectors = F.embedding(rows, self.inputs).masked_fill(~mask.unsqueeze(-1), 0.0)  # (B, C, D)
        if self.context == "concat":
            joined = vectors[..., : self.dim].flatten(1)  # (B, C x D), without the zero padding of rows
            return F.pad(joined, (0, self.outputs.shape[1] - joined.shape[1]))
        total = vectors.sum(1)  # (B, D)
        return total / sizes(mask) if self.context == "mean" else total

    def errors(self, upstream: Tensor, mask: Tensor, *, whole: bool = False) -> Tensor:
        """Return the gradients (B, C, D) of the rows read, from the gradient (B, H) of h.

        With ``whole``, mean and sum follow word2vec.c and gensim instead of the true gradient: a mean passes its
        gradient undivided, so that its rows learn as fast as in skip-gram, and a sum divides it.
        """
        if self.context == "concat":
            # In a concatenation, every row has its own part of the gradient.
            own = upstream[:, : mask.shape[1] * self.dim].reshape(*mask.shape, self.dim)  # (B, C, D)
            shares = F.pad(own, (0, self.inputs.shape[1] - self.dim))
        else:
            # The true gradient divides a mean and not a sum; word2vec.c does the reverse.
            divided = (self.context == "mean") != whole
            shared = upstream / sizes(mask) if divided else upstream
            shares = shared.unsqueeze(1).expand(-1, mask.shape[1], -1)
        return shares.masked_fill(~mask.unsqueeze(-1), 0.0)

    def predictors(self, rows: Tensor) -> Tensor:
        """Return the rows u (..., K, H) of W' with the indices ``rows`` (..., K)."""
        return F.embedding(rows, self.outputs)


def scores(hidden: Tensor, predictors: Tensor) -> Tensor:
    """Return u·h (..., B, K) for h (..., B, H) and their shared u (..., K, H)."""
    return hidden @ predictors.transpose(-1, -2)


def sizes(mask: Tensor) -> Tensor:
    """Return the number of rows read per position, (B, 1), at least 1."""
    return mask.sum(1, keepdim=True).clamp(min=1)
