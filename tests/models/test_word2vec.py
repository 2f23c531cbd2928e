"""Word vectors in torch against sums written out pair by pair, against autograd, and on texts that must be learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from attnkit.data.store import write_store
from attnkit.data.words import Encoded
from attnkit.kernels.sampling import huffman
from attnkit.kernels.word2vec_backend import PieceStats, Text, Weights
from attnkit.models.word2vec import Word2VecModel
from attnkit.tasks.word2vec import torch_loop
from attnkit.tasks.word2vec.config import Word2VecConfig, WordTextConfig
from attnkit.tasks.word2vec.matrices import INPUTS, OUTPUTS, draw, empty, shapes
from attnkit.tasks.word2vec.torch_loop import Batch, Lookups, Steps, TorchLoops
from attnkit.text.word_vocabulary import WordVocabulary

Doubles = NDArray[np.float64]
LINES = [[0, 3, 1, 2, 0, 4], [2, 2, 5], [6, 1, 0, 3]]
V, D, M = 7, 3, 2


def configuration(**chosen: object) -> Word2VecConfig:
    return Word2VecConfig(data=WordTextConfig(files=("-",)), **{"dim": D, "window": M, "loss": "full"} | chosen)


def text_batch() -> Batch:
    """Return every place of LINES, with the whole window."""
    centres, context, mask = [], [], []
    for line in LINES:
        for t, word in enumerate(line):
            around = [t + j for j in range(-M, M + 1) if j]
            centres.append(word)
            mask.append([0 <= place < len(line) for place in around])
            context.append([line[place] if 0 <= place < len(line) else V - 1 for place in around])
    return Batch(torch.tensor(centres), torch.tensor(context), torch.tensor(mask))


def matrices(n_outputs: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(8)
    shapes_of = ((V, D), (n_outputs, width))
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes_of)  # type: ignore


def no_lookups() -> Lookups:
    nothing = torch.empty(0, dtype=torch.int64)
    return Lookups(nothing, nothing, nothing, nothing, nothing)


def tree(counts: list[int]) -> Lookups:
    paths, nothing = huffman(np.array(counts)), torch.empty(0, dtype=torch.int64)
    return Lookups(nothing, nothing, *(torch.from_numpy(p.astype(np.int64)) for p in paths))


def j_of_the_notes(v: Doubles, u: Doubles) -> tuple[float, Doubles, Doubles]:
    """Return J(θ) = -1/T Σ_t Σ_j log P(w_{t+j} | w_t) and its gradients, by the formulas of a softmax's derivative."""
    total, dv, du, n_places = 0.0, np.zeros_like(v), np.zeros_like(u), 0
    for line in LINES:
        for t, c in enumerate(line):
            n_places += 1
            for j in range(-M, M + 1):
                if j == 0 or not 0 <= t + j < len(line):
                    continue
                o = line[t + j]
                p = np.exp(u @ v[c]) / np.exp(u @ v[c]).sum()
                total -= np.log(p[o])
                dv[c] += -u[o] + p @ u
                du += np.outer(p, v[c])
                du[o] -= v[c]
    return total / n_places, dv / n_places, du / n_places


def test_full_softmax_is_j_of_the_notes() -> None:
    inputs, outputs = matrices(V, D)
    loss, d_inputs, d_outputs = j_of_the_notes(inputs.numpy(), outputs.numpy())
    model = Word2VecModel(inputs.clone(), outputs.clone())
    batch = text_batch()
    steps = Steps(configuration(), model, no_lookups(), 1)
    n_places = len(batch.centres)
    steps.step(batch, 1 / n_places)
    np.testing.assert_allclose(float(steps.loss) / n_places, loss, rtol=1e-12)
    np.testing.assert_allclose((inputs - model.inputs.detach()).numpy(), d_inputs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((outputs - model.outputs.detach()).numpy(), d_outputs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "context"), [("skip-gram", "mean"), ("cbow", "mean"), ("cbow", "sum"), ("cbow", "concat")]
)
def test_full_softmax_equals_autograd(method: str, context: str) -> None:
    inputs, outputs = matrices(V, D * (2 * M if context == "concat" else 1))
    batch = text_batch()
    model = Word2VecModel(inputs.clone(), outputs.clone(), context)  # type: ignore[arg-type]
    cbow = method == "cbow"
    words, places = batch.predicted(cbow)
    loss = F.cross_entropy((model.hidden(*batch.read(cbow)) @ model.outputs.T)[places], words, reduction="sum")
    expected = torch.autograd.grad(loss, (model.inputs, model.outputs))
    steps = Steps(configuration(method=method, context=context), model, no_lookups(), 1)
    steps.step(batch, 1.0)
    torch.testing.assert_close(steps.loss, loss.detach())
    torch.testing.assert_close(inputs - model.inputs.detach(), expected[0])
    torch.testing.assert_close(outputs - model.outputs.detach(), expected[1])


def test_concatenated_context_keeps_its_places() -> None:
    inputs, outputs = matrices(V, 2 * M * D)
    model = Word2VecModel(inputs, outputs, "concat")
    found = model.hidden(torch.tensor([[4, 2, 1, 6]]), torch.tensor([[False, True, True, False]]))
    torch.testing.assert_close(found[0], torch.cat([torch.zeros(D), inputs[2], inputs[1], torch.zeros(D)]).double())


def tree_log_probs(model: Word2VecModel, hidden: Tensor, lookups: Lookups) -> Tensor:
    """Return log P (B, V) of every word by hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013)."""
    scores = hidden @ model.outputs[lookups.nodes.long()].T  # (B, steps)
    # log σ(x) to the left, log σ(-x) = log(1 - σ(x)) to the right.
    steps = F.logsigmoid(torch.where(lookups.codes == 0, scores, -scores))
    words = torch.repeat_interleave(torch.arange(len(lookups.path_starts) - 1), lookups.path_starts.diff())
    # The log-probability of a word is the sum over the steps of its path.
    return steps.new_zeros(len(hidden), len(lookups.path_starts) - 1).index_add(1, words, steps)


def test_hierarchical_probabilities_are_the_trees() -> None:
    counts = [9, 7, 4, 4, 2, 1, 1]
    inputs, outputs = matrices(V - 1, D)
    model, lookups = Word2VecModel(inputs, outputs), tree(counts)
    batch = text_batch()
    with torch.no_grad():
        hidden = model.hidden(*batch.read(False))
        found = tree_log_probs(model, hidden, lookups)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(len(hidden), dtype=torch.float64))
    paths = huffman(np.array(counts))
    for row, word in ((0, 0), (3, 5), (11, 2)):  # a product over the way from the root, written out
        chance = 1.0
        for step in range(paths.starts[word], paths.starts[word + 1]):
            score = float(outputs[paths.nodes[step]] @ hidden[row])
            chance *= 1 / (1 + np.exp(-score if paths.codes[step] == 0 else score))
        np.testing.assert_allclose(found[row, word].exp(), chance)
    words, places = batch.predicted(False)
    steps = Steps(configuration(loss="hierarchical"), model, lookups, 1)
    said = steps.predict(hidden, batch)
    torch.testing.assert_close(said.total, -found[places, words].sum())
    assert said.terms == sum(paths.starts[w + 1] - paths.starts[w] for w in words.tolist())


@pytest.mark.parametrize("context", ["mean", "sum"])
def test_cbow_is_gensims(context: str) -> None:
    """Fresh negatives, those that are the word itself left out; a mean's error goes whole to each word."""
    inputs, outputs = matrices(V, D)
    batch, config = text_batch(), configuration(method="cbow", context=context, loss="negative", negative=4)
    nothing = torch.empty(0, dtype=torch.int64)
    lookups = Lookups(torch.full((V,), 1 << 31), torch.arange(V).flip(0), nothing, nothing, nothing)
    drawn = Steps(config, Word2VecModel(inputs.clone(), outputs.clone()), lookups, 5)._negatives(len(batch.centres), 4)
    model = Word2VecModel(inputs.clone(), outputs.clone(), context)  # type: ignore[arg-type]
    steps = Steps(config, model, lookups, 5)
    steps.step(batch, 0.1)
    w, u = inputs.numpy(), outputs.numpy()
    new_w, new_u, loss, terms = w.copy(), u.copy(), 0.0, 0
    for i, word in enumerate(batch.centres.tolist()):
        around = batch.context[i][batch.mask[i]].tolist()
        x = w[around].mean(0) if context == "mean" else w[around].sum(0)
        error = np.zeros(D)
        for o, label in ((word, 1), *((n, 0) for n in drawn[i].tolist() if n != word)):
            chance = 1 / (1 + np.exp(-u[o] @ x))
            loss -= np.log(chance if label else 1 - chance)
            terms += 1
            error += 0.1 * (label - chance) * u[o]
            new_u[o] += 0.1 * (label - chance) * x
        for c in around:
            new_w[c] += error if context == "mean" else error / len(around)
    np.testing.assert_allclose(model.inputs.detach(), new_w, rtol=1e-9)
    np.testing.assert_allclose(model.outputs.detach(), new_u, rtol=1e-9)
    np.testing.assert_allclose(float(steps.loss), loss)
    assert steps.terms == terms


def test_shared_negatives_count_as_many_as_fresh_ones() -> None:
    """With one word that can be drawn it does not matter who draws it how often: the sum of both ways is the same."""
    inputs, outputs = matrices(V, D)
    nothing = torch.empty(0, dtype=torch.int64)
    lookups = Lookups(torch.zeros(V, dtype=torch.int64), torch.full((V,), V - 1), nothing, nothing, nothing)
    only = text_batch()
    kept = only.centres != V - 1
    batch = Batch(only.centres[kept], only.context[kept], only.mask[kept] & (only.context[kept] != V - 1))
    found = []
    for exact in (False, True):
        model = Word2VecModel(inputs.clone(), outputs.clone())
        steps = Steps(configuration(loss="negative", exact=exact), model, lookups, 5)
        steps.step(batch, 1e-3)
        found.append((float(steps.loss), steps.terms, model.inputs.detach()))
    np.testing.assert_allclose(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    torch.testing.assert_close(found[0][2], found[1][2], rtol=1e-6, atol=0)


def train(lines: list[list[int]], folder: Path, epochs: int, **chosen: object) -> tuple[list[PieceStats], Weights]:
    """Train a text of words as it is, each epoch one piece after the other."""
    config = configuration(sample=0.0, **chosen)
    counts = np.bincount(np.concatenate(lines))
    store = write_store(folder, [lines], len(counts))
    encoded = Encoded(WordVocabulary([str(n) for n in range(len(counts))], counts), store, int(counts.sum()))
    loops, found = TorchLoops(config, encoded), shapes(config, len(counts))
    matrices_of = empty(found)
    draw(matrices_of[INPUTS], found[INPUTS].width, [1, 0x77327665], found[INPUTS].width)
    weights = Weights(matrices_of[INPUTS], matrices_of[OUTPUTS])
    text, n, tallies = Text(store.ids, store.offsets), int(counts.sum()), []
    for epoch in range(epochs):
        for span in ((0, n // 3), (n // 3, n)):
            tallies.append(loops.piece(weights, text, span, epoch, (config.alpha, config.alpha)))
    return tallies, weights


def mean_loss(tallies: list[PieceStats]) -> float:
    return sum(tally.loss for tally in tallies) / sum(tally.terms for tally in tallies)


def test_concatenated_context_learns_what_a_mean_cannot(tmp_path: Path) -> None:
    """Between 0 and 1 stands 2, between 1 and 0 stands 3: the same words around either."""
    lines = [[0, 2, 1], [1, 3, 0]] * 40
    options = {"method": "cbow", "window": 1, "dynamic_window": False, "alpha": 0.3, "dim": 20}
    last = {}
    for context in ("mean", "concat"):
        tallies, weights = train(lines, tmp_path / context, 12, context=context, **options)
        last[context] = mean_loss(tallies[-2:])
        assert not weights.inputs[:, 20:].any()
    # At either end of a line it cannot be told from one neighbour which word it is; in the middle it can.
    assert last["mean"] > np.log(2) * 0.3
    assert last["concat"] < 0.1 * last["mean"] or last["concat"] < 0.05


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(chosen, id="-".join(map(str, chosen.values())), marks=[pytest.mark.slow] if slow else [])
        for slow, chosen in (
            (False, {"loss": "negative"}),
            (True, {"loss": "negative", "exact": True}),
            (False, {"loss": "hierarchical"}),
            (True, {"loss": "full"}),
            (False, {"loss": "negative", "method": "cbow"}),
            (True, {"loss": "hierarchical", "method": "cbow", "context": "sum"}),
            (True, {"loss": "negative", "method": "cbow", "context": "concat"}),
        )
    ],
)
def test_words_that_stand_together_come_together(
    chosen: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_loop, "FEW", 0)  # or so few words would share no negatives
    draw_from = np.random.default_rng(2)
    lines = [(draw_from.integers(0, 10, 8) + 10 * (n % 3)).tolist() for n in range(150)]
    tallies, weights = train(lines, tmp_path / "store", 5, dim=16, alpha=0.1, **chosen)
    assert mean_loss(tallies[-2:]) < 0.85 * mean_loss(tallies[:1])
    unit = weights.inputs / np.linalg.norm(weights.inputs, axis=1, keepdims=True)
    cosines = (unit @ unit.T).reshape(3, 10, 3, 10).mean((1, 3))
    if chosen.get("context") != "concat":  # there a vector says in which places it stands as well
        assert cosines.diagonal().min() > cosines[~np.eye(3, dtype=bool)].max() + 0.3


def test_full_softmax_stays_within_bounds_where_there_are_many_words(tmp_path: Path) -> None:
    """Words that come in pairs: what is worked on together must be little enough not to overshoot."""
    draw_from = np.random.default_rng(4)
    pairs = np.minimum(draw_from.zipf(1.4, 4000) - 1, 599)
    lines = [*np.stack([2 * pairs, 2 * pairs + 1], 1).reshape(-1, 16).tolist(), list(range(1200))]
    tallies, weights = train(lines, tmp_path / "store", 2, dim=16, alpha=0.1)
    assert mean_loss(tallies[-2:]) < 0.93 * mean_loss(tallies[:1])
    assert np.isfinite(weights.outputs).all() and np.abs(weights.outputs).max() < 20


def test_the_same_again_is_the_same(tmp_path: Path) -> None:
    lines = [np.random.default_rng(n).integers(0, 9, 8).tolist() for n in range(30)]
    (tallies, weights), (again, same) = (train(lines, tmp_path / name, 2, loss="negative") for name in "ab")
    assert again == tallies
    np.testing.assert_array_equal(same.inputs, weights.inputs)
