"""Torch training of word vectors, where no compiled loop is available."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from attnkit.data.words import Encoded
from attnkit.kernels.sampling import key_of, windows_in_numpy
from attnkit.kernels.word2vec_backend import PieceStats, Text, Weights
from attnkit.models.word2vec import Word2VecModel, scores
from attnkit.runtime.devices import choose_device, set_threads
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import FEW, lookup_tables
from attnkit.training.losses import linear_cross_entropy

BLOCK = 16  #: skip-gram positions that share negatives
SHARED = 32  #: negatives shared by a block
_TOUCHES = 64.0  #: updates per row and batch above which each is scaled down, since all start from the same weights


class Lookups(NamedTuple):
    """Tensors of ``kernels.word2vec_backend.LookupTables`` on a device."""

    prob: Tensor  #: (V,), like ``alias``; empty without negative sampling
    alias: Tensor
    path_starts: Tensor  #: (V + 1,); empty, like ``nodes`` and ``codes``, without a Huffman tree
    nodes: Tensor
    codes: Tensor


class Batch(NamedTuple):
    """Batch of centre words, each with at least one context word."""

    centres: Tensor  #: (B,) centre words
    context: Tensor  #: (B, 2 window) context words from left to right; arbitrary where ``mask`` is False
    mask: Tensor  #: (B, 2 window)

    def read(self, cbow: bool) -> tuple[Tensor, Tensor]:
        """Return the rows (B, C) of W that each position reads, and their mask (B, C)."""
        if cbow:
            return self.context, self.mask
        rows = self.centres.unsqueeze(1)
        return rows, torch.ones_like(rows, dtype=torch.bool)

    def predicted(self, cbow: bool) -> tuple[Tensor, Tensor]:
        """Return the predicted words (n,) and the batch positions (n,) that predict them."""
        if cbow:
            return self.centres, torch.arange(len(self.centres), device=self.centres.device)
        return self.context[self.mask], self.mask.nonzero()[:, 0]


class Prediction(NamedTuple):
    """Loss of a batch and the rows of W' that it depends on."""

    total: Tensor  #: differentiable sum of -log σ, or of -log P
    terms: int
    # Rows, their values as graph leaves, and the words scored against each; empty if W' itself is the leaf.
    parts: tuple[tuple[Tensor, Tensor, float], ...] = ()


class Steps:
    """Gradient descent on a pair of matrices W and W', in place."""

    def __init__(self, config: Word2VecConfig, model: Word2VecModel, lookups: Lookups, seed: int) -> None:
        """Prepare to train the matrices of ``model``; ``seed`` determines the negatives."""
        self._config, self._model, self._lookups = config, model, lookups
        device = model.inputs.device
        self._draw = torch.Generator(device).manual_seed(seed)
        self._touched = torch.zeros(max(len(model.inputs), len(model.outputs)), device=device, dtype=model.inputs.dtype)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.terms = 0

    def step(self, batch: Batch, alpha: float) -> None:
        """Take a gradient step on the summed loss of a batch; ``alpha`` is the rate."""
        cbow = self._config.method == "cbow"
        rows, mask = batch.read(cbow)
        with torch.no_grad():
            hidden = self._model.hidden(rows, mask)
        hidden.requires_grad_()
        found = self.predict(hidden, batch)
        found.total.backward()  # type: ignore[no-untyped-call]
        self.loss += found.total.detach()
        self.terms += found.terms
        assert hidden.grad is not None
        with torch.no_grad():
            # Loss full uses the true gradient of J; the other losses follow word2vec.c.
            errors = self._model.errors(hidden.grad, mask, whole=self._config.loss != "full")
            if self._model.outputs.grad is not None:
                self._model.outputs.sub_(self._model.outputs.grad, alpha=alpha)
                self._model.outputs.grad = None
            for chosen, values, touches in found.parts:
                assert values.grad is not None
                self._descend(self._model.outputs, chosen, values.grad, (alpha, touches))
            self._descend(self._model.inputs, rows[mask], errors[mask], (alpha, 1.0))

    def predict(self, hidden: Tensor, batch: Batch) -> Prediction:
        """Return the loss of predicting the words of a batch from hidden (B, H)."""
        config, lookups = self._config, self._lookups
        words, places = batch.predicted(config.method == "cbow")  # (n,), (n,)
        if config.loss == "full":
            total, _ = linear_cross_entropy(hidden[places], self._model.outputs, None, words)
            return Prediction(total, len(words))
        if config.loss == "hierarchical":
            # Scores each position against the inner nodes above its predicted words, all paths concatenated.
            n_nodes = lookups.path_starts.diff()[words]
            ends = n_nodes.cumsum(0)
            within = torch.arange(int(ends[-1]), device=ends.device) - (ends - n_nodes).repeat_interleave(n_nodes)
            steps = lookups.path_starts[words].repeat_interleave(n_nodes) + within
            nodes, values = self._chosen(lookups.nodes[steps])
            found = (hidden[places.repeat_interleave(n_nodes)] * values).sum(-1)  # (steps,)
            signs = 2.0 * lookups.codes[steps] - 1.0
            return Prediction(F.softplus(signs * found).sum(), len(steps), ((nodes, values, 1.0),))
        if config.method == "cbow" or config.exact:
            # Every word has its own negatives; a negative equal to the word is ignored.
            drawn = self._negatives(len(words), config.negative)
            others = drawn != words.unsqueeze(1)
            rows, values = self._chosen(torch.cat([words.unsqueeze(1), drawn], 1))  # (n, 1 + K)
            found = scores(hidden[places].unsqueeze(1), values).squeeze(1)
            total = F.softplus(-found[:, 0]).sum() + (F.softplus(found[:, 1:]) * others).sum()
            return Prediction(total, len(words) + int(others.sum()), ((rows, values, 1.0),))
        # Skip-gram: the positions of a block share their negatives.
        n_blocks = -(-len(hidden) // BLOCK)
        rows, values = self._chosen(words)
        near = (hidden[places] * values).sum(-1)
        drawn, far_values = self._chosen(self._negatives(n_blocks, SHARED))
        padding = n_blocks * BLOCK - len(hidden)
        blocks = F.pad(hidden, (0, 0, 0, padding)).view(n_blocks, BLOCK, -1)  # (blocks, 16, H)
        share = F.pad(batch.mask.sum(1) * (config.negative / SHARED), (0, padding)).view(n_blocks, BLOCK, 1)
        far = scores(blocks, far_values)  # (blocks, 16, 32)
        total = F.softplus(-near).sum() + (F.softplus(far) * share).sum()
        parts = ((rows, values, 1.0), (drawn, far_values, float(BLOCK)))
        return Prediction(total, len(words) * (1 + config.negative), parts)

    def _chosen(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows of W' and their values as separate leaves of the graph."""
        with torch.no_grad():
            values = self._model.predictors(rows)
        return rows, values.requires_grad_()

    def _negatives(self, n: int, each: int) -> Tensor:
        """Draw negatives (n, each) from the alias table (Walker 1977)."""
        device, (prob, alias) = self._draw.device, (self._lookups.prob, self._lookups.alias)
        words = torch.randint(len(prob), (n, each), generator=self._draw, device=device)
        chance = torch.randint(1 << 32, (n, each), generator=self._draw, device=device)
        return torch.where(chance < prob[words], words, alias[words])

    def _descend(self, matrix: Tensor, rows: Tensor, gradients: Tensor, how: tuple[float, float]) -> None:
        """Update rows by their gradients; ``how`` is (learning rate, touches per row)."""
        alpha, touches = how
        rows, gradients = rows.flatten(), gradients.reshape(-1, matrix.shape[1])
        self._touched.index_add_(0, rows, torch.full_like(rows, touches, dtype=self._touched.dtype))
        scale = alpha * (_TOUCHES / self._touched[rows]).clamp(max=1.0)
        self._touched[rows] = 0.0
        # Gradients of transposed tensors are not contiguous and would be added element by element.
        matrix.index_add_(0, rows, (gradients * -scale.unsqueeze(1)).contiguous())


_MAX_PLACES = {"cpu": 256, "cuda": 4096}  #: positions per batch, by device
# Words per batch that are scored against the whole vocabulary: each updates every row, and larger batches from the
# same weights overshoot until the loss is NaN.
_MAX_FULL = 64


class TorchLoops:
    """Torch counterpart of ``kernels.word2vec_backend.CompiledBackend``."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded) -> None:
        """Build the lookup tables; raise ``UsageError`` if the device is unavailable."""
        few = len(encoded.words) < FEW and config.method == "skip-gram" and config.loss == "negative"
        self._config = config.model_copy(update={"exact": True}) if few else config
        self._device = choose_device("cpu" if config.device == "auto" else config.device)
        self.where = f"torch, {self._device.type}"
        if self._device.type == "cpu":
            set_threads(config.threads)  # the thread count affects the last bits of the results
            self.where += f", {config.threads} thread{'s'[: config.threads != 1]}"
        found = lookup_tables(config, encoded)
        self._keep = found.keep
        numbers = (found.prob, found.alias, found.path_starts, found.nodes, found.codes)
        self._lookups = Lookups(*(self._tensor(array.astype(np.int64)) for array in numbers))
        self._on_device: tuple[Weights, Tensor, Tensor] | None = None
        # With a small vocabulary, a large batch would contain every word many times.
        self._size = min(max(len(encoded.words) // 8, BLOCK), _MAX_PLACES[self._device.type])
        if config.loss == "full":
            usual = 1 if config.method == "cbow" else config.window + 1 if config.dynamic_window else 2 * config.window
            self._size = min(self._size, max(1, _MAX_FULL // usual))

    def piece(
        self, weights: Weights, text: Text, span: tuple[int, int], key: int, alphas: tuple[float, float]
    ) -> PieceStats:
        """Train on the centre words at the text positions [span[0], span[1]).

        The learning rate decays once per batch; on CUDA, ``settle`` copies the weights back. With loss full the terms
        are -log P(o|c), one per pair (CBOW: per position); the notes' J(θ), a mean over positions, is loss / words if
        there is neither subsampling nor a dynamic window.
        """
        window, dynamic = self._config.window, self._config.dynamic_window
        words, at, left, right, first, last = windows_in_numpy(
            (text.ids, text.starts), (*span, key), (window, dynamic), self._keep
        )
        steps = Steps(self._config, self._model(weights), self._lookups, key_of(key, span[0]) >> 1)
        ids, n_left, n_right = (self._tensor(part.astype(np.int64)) for part in (words, left, right))
        ahead = torch.arange(1, window + 1, device=self._device)
        offsets = torch.cat([-ahead.flip(0), ahead])  # (2 window,)
        places = first + np.flatnonzero((left + right)[first:last])
        for begin in range(0, len(places), self._size):
            batch_places = places[begin : begin + self._size]
            here = self._tensor(batch_places)  # (B,)
            mask = torch.cat([ahead.flip(0) <= n_left[here, None], ahead <= n_right[here, None]], 1)  # (B, 2 window)
            context = ids[(here.unsqueeze(1) + offsets).clamp(0, len(ids) - 1)]
            done = (int(at[batch_places[0]]) - span[0]) / (span[1] - span[0])
            steps.step(Batch(ids[here], context, mask), alphas[0] + (alphas[1] - alphas[0]) * done)
        return PieceStats(float(steps.loss), steps.terms, last - first)

    def settle(self) -> None:
        """Copy the weights from the device back to the host matrices."""
        if self._on_device is not None:
            weights, inputs, outputs = self._on_device
            torch.from_numpy(weights.inputs).copy_(inputs)
            torch.from_numpy(weights.outputs).copy_(outputs)
            self._on_device = None

    def _model(self, weights: Weights) -> Word2VecModel:
        """Return a model that uses the matrices; on the CPU, it shares their memory."""
        inputs, outputs = torch.from_numpy(weights.inputs), torch.from_numpy(weights.outputs)
        if self._device.type != "cpu":
            if self._on_device is None:
                self._on_device = weights, inputs.to(self._device), outputs.to(self._device)
            inputs, outputs = self._on_device[1:]
        return Word2VecModel(inputs, outputs, self._config.context, self._config.dim)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
