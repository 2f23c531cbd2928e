"""Word2vec model (Mikolov et al. 2013): input vectors W and output vectors W'.

Skip-gram reads one word and predicts each word around it; CBOW reads the words around a place and predicts the one
there. Either way rows of W become one hidden vector h, and rows u of W' are scored by u·h.

Letters: V words, R rows of W (V, and more with subwords), B places, C rows that are read for one, D width of a row of
W, H width of h: D, or C x D where context is concatenated.
"""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

Context = Literal["mean", "sum", "concat"]  #: how the rows read for one position are pooled


class Word2VecModel(nn.Module):
    """W and W'; the matrices are shared with the caller, not copied."""

    def __init__(self, inputs: Tensor, outputs: Tensor, context: Context = "mean", dim: int | None = None) -> None:
        """Take W (R, D) and W' (V, H); of a Huffman tree W' has a row for each of its V - 1 inner nodes.

        Either may have rows that are filled up with zeros; then ``dim`` is D. They stay zero.
        """
        super().__init__()
        # The caller's arrays are not copied: training writes into them.
        self.context = context
        self.dim = inputs.shape[1] if dim is None else dim
        self.inputs = nn.Parameter(inputs)
        self.outputs = nn.Parameter(outputs)

    def hidden(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Return h (B, H) of rows (B, C) of W; those where mask (B, C) is False are not part of it.

        Mean and sum are over the rows that are there; concatenated, a row that is missing is a stretch of zeros.
        """
        vectors = F.embedding(rows, self.inputs).masked_fill(~mask.unsqueeze(-1), 0.0)  # (B, C, D)
        if self.context == "concat":
            joined = vectors[..., : self.dim].flatten(1)  # (B, C x D), without the zeros that fill up rows
            return F.pad(joined, (0, self.outputs.shape[1] - joined.shape[1]))
        total = vectors.sum(1)  # (B, D)
        return total / sizes(mask) if self.context == "mean" else total

    def errors(self, upstream: Tensor, mask: Tensor, *, whole: bool = False) -> Tensor:
        """Return what upstream (B, H), the gradient of h, is for each row that was read, (B, C, D).

        With ``whole`` it is what word2vec.c and gensim take instead where a mean or a sum is read: a mean passes its
        gradient on undivided, so that its rows learn as quickly as skip-gram's, and a sum divides it.
        """
        if self.context == "concat":
            # Concatenated, every row has its own part of the gradient.
            own = upstream[:, : mask.shape[1] * self.dim].reshape(*mask.shape, self.dim)  # (B, C, D)
            shares = F.pad(own, (0, self.inputs.shape[1] - self.dim))
        else:
            # The true gradient divides a mean and not a sum; word2vec.c does the reverse.
            divided = (self.context == "mean") != whole
            shared = upstream / sizes(mask) if divided else upstream
            shares = shared.unsqueeze(1).expand(-1, mask.shape[1], -1)
        return shares.masked_fill(~mask.unsqueeze(-1), 0.0)

    def predictors(self, rows: Tensor) -> Tensor:
        """Return the rows u (..., K, H) of W' that are named by (..., K)."""
        return F.embedding(rows, self.outputs)


def scores(hidden: Tensor, predictors: Tensor) -> Tensor:
    """Return u·h (..., B, K) for h (..., B, H) and the u (..., K, H) that these B share."""
    return hidden @ predictors.transpose(-1, -2)


def sizes(mask: Tensor) -> Tensor:
    """Return how many rows each place reads, (B, 1), at least 1."""
    return mask.sum(1, keepdim=True).clamp(min=1)
