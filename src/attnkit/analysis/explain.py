"""Lessons of ``attnkit explain``, and the worked example of ``attnkit attend``.

All numbers are computed by the functions that the models use.
"""

import math
import random

import numpy as np
import torch
from torch import Tensor, nn

from attnkit.errors import UsageError
from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import Gaussian, attend, leave_one_out, pool
from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName, incompatibility
from attnkit.models.attention.distribution import make_distribution, softmax
from attnkit.models.attention.patterns import Pattern, PatternName, Window, make_pattern
from attnkit.models.config import TransformerConfig
from attnkit.models.positions import sinusoids
from attnkit.models.transformer import Transformer
from attnkit.plotting.curves import Curve
from attnkit.plotting.lessons_terminal import Fit, MaskLesson, PoolingLesson, PositionsLesson
from attnkit.plotting.worked_example import ExampleStep, WorkedExample

SENTENCE = ("the", "cat", "sat", "on", "the", "mat")
MOST_WORDS = 20  #: maximum words of an example sentence; wider tables exceed the terminal
LENGTHS = (1024, 4096)  #: sequence lengths for which the pairs of a pattern are counted
N_POSITIONS, N_POINTS = 16, 50  #: default sizes of a sparse pattern and of the kernel regression
_LOWEST_RATE = 1e-9  # learning rate at which gradient descent has converged
WORDS = ("The", "cat", "sat", "on", "the", "mat")
KEYS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0))
"""Keys, which are also the values."""
QUERY = (0.0, 0.0, 1.0)  #: query of the fourth target word, "assis"
OPTIONS = AttentionOptions(d_hidden=3, n_features=4, max_source=len(WORDS), window=2)
"""Minimal sizes, because all parameters are printed."""


def words_of(text: str | None) -> list[str]:
    """Return the words of a sentence; None selects the default sentence."""
    if text is None:
        return list(SENTENCE)
    words = text.split()
    if not 2 <= len(words) <= MOST_WORDS:
        raise UsageError(
            f"a lesson takes 2 to {MOST_WORDS} words, not {len(words)}", where="words", help='such as "a dog runs home"'
        )
    return words


def mask_lesson(
    text: str | None, name: PatternName | None = None, size: int = 3, n_global: int = 1, causal: bool = False
) -> MaskLesson:
    """Return the lesson on the causal mask or, given a name, on a sparse pattern."""
    words = [""] * N_POSITIONS if name and text is None else words_of(text)  # without text: unnamed positions
    n = len(words)
    # A causal window as wide as the sentence is the full causal mask.
    pattern = Window(n, causal=True) if name is None else make_pattern(name, size, causal, n_global)
    mask = pattern.dense_mask(n, n)
    alike = torch.zeros(1, 1, n, 1, dtype=torch.float64)
    _, weights = attend(alike, alike, alike, make_alignment("dot", 1, 1), softmax, torch.tensor(mask))
    return MaskLesson(
        words=words,
        pattern=name,
        size=pattern.size,
        n_global=n_global if name == "global" else 0,
        causal=pattern.causal,
        mask=mask,
        weights=weights[0, 0].tolist(),
        pairs=[(length, count_pairs(pattern, length)) for length in (n, *LENGTHS)] if name else [],
    )


def count_pairs(pattern: Pattern, n: int) -> int:
    """Return the number of query-key pairs that a pattern allows at length n."""
    total = 0
    for tile in pattern.tiles(n, n):
        if tile.sees is None:
            total += len(tile.queries) * len(tile.keys)
        else:
            total += int(np.sum(tile.sees(np.array(tile.queries)[:, None], np.array(tile.keys)[None, :])))
    return total


def positions_lesson(text: str | None, shift: int = 3, seed: int = 1, width: int = 8) -> PositionsLesson:
    """Return the lesson on sinusoidal positions: table, shift matrix, shuffled words."""
    words = words_of(text)
    at = [0, 1, 10, 100, 1000]
    table = sinusoids(0, at[-1] + shift + 1, torch.empty(1, width, dtype=torch.float64))
    angles = [shift * 10000.0 ** (-2 * i / width) for i in range(width // 2)]
    # PE(pos + k) = M PE(pos): M rotates pair i of sine and cosine by b = angles[i], for any a, because
    # sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b - sin a sin b.
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i, angle in enumerate(torch.tensor(angles, dtype=torch.float64)):
        pair = slice(2 * i, 2 * i + 2)
        matrix[pair, pair] = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()]).view(2, 2)
    order = list(range(len(words)))
    shuffler = random.Random(seed)
    while order == sorted(order):
        shuffler.shuffle(order)
    # Largest difference between the encoder outputs of each word in the original and the shuffled sentence.
    moved: dict[str, list[float]] = {}
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = torch.tensor([[vocabulary[word] for word in words]])
    sizes = {"d_model": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 1, "d_ff": 64}
    for name, kind in {"no positions": "none", "sinusoidal": "sinusoidal"}.items():
        config = TransformerConfig.model_validate({**sizes, "positions": kind})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            model = Transformer(config, len(vocabulary), len(vocabulary)).double().eval()
            straight, shuffled = model.encoder(ids, None)[0], model.encoder(ids[:, order], None)[0]
            back = torch.empty_like(shuffled)
            back[order] = shuffled
            moved[name] = (straight - back).abs().amax(-1).tolist()
    return PositionsLesson(
        table=table[:10].tolist(),
        shift=shift,
        angles=angles,
        matrix=matrix.tolist(),
        errors={pos: float((table[pos + shift] - matrix @ table[pos]).abs().max()) for pos in at},
        words=words,
        order=order,
        moved=moved,
        picture=sinusoids(0, 64, torch.empty(1, 64, dtype=torch.float64)).tolist(),
    )


def noisy_points(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return sorted x in [0, 5) and noisy y = 2 sin x + x^0.8 (Zhang 2023, 11.2)."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, generator=generator, dtype=torch.float64) * 5).sort().values
    return x, true_curve(x) + torch.randn(n, generator=generator, dtype=torch.float64) / 2  # standard deviation 0.5


def true_curve(x: Tensor) -> Tensor:
    """Return 2 sin x + x^0.8."""
    return 2 * x.sin() + x**0.8


def learn_width(x: Tensor, y: Tensor) -> Gaussian:
    """Return a kernel whose w minimizes the squared leave-one-out error.

    The method is gradient descent. The learning rate is doubled after a step that improves the error, else halved.
    """
    kernel = Gaussian(learned=True).double()
    (w,) = kernel.parameters()

    def squared_error() -> Tensor:
        return (leave_one_out(x, y, kernel) - y).square().mean()

    rate, error = 1.0, squared_error()
    while rate > _LOWEST_RATE:
        (slope,) = torch.autograd.grad(error, w)
        before = w.detach().clone()
        while rate > _LOWEST_RATE:
            w.data = before - rate * slope
            tried = squared_error()
            if tried < error:
                error, rate = tried, 2 * rate
                break
            w.data, rate = before, rate / 2
    return kernel


def pooling_lesson(seed: int, n_points: int = N_POINTS) -> PoolingLesson:
    """Return kernel regressions of noisy points (w = 1 and learned w) and the mean."""
    x, y = noisy_points(n_points, seed)
    at = torch.linspace(0, 5, 101, dtype=torch.float64)
    truth = true_curve(at)
    curves = [Curve("points", "o", x.tolist(), y.tolist(), True), Curve("true curve", ".", at.tolist(), truth.tolist())]
    mean = float((y.mean() - truth).square().mean())
    fits = [Fit("the mean of all y", None, mean, float(n_points))]
    for name, mark, kernel in (("w = 1", "1", Gaussian().double()), ("w learned", "w", learn_width(x, y))):
        with torch.no_grad():
            found, weights = pool(at, x, y, kernel)
        entropy = -torch.special.xlogy(weights, weights).sum(-1)
        error = float((found - truth).square().mean())
        fits.append(Fit(f"kernel regression, {name}", abs(kernel.w.item()), error, float(entropy.exp().mean())))
        curves.append(Curve(name, mark, at.tolist(), found.tolist()))
    return PoolingLesson(curves, fits)


@torch.no_grad()
def worked_example(alignment: AlignmentName, distribution: DistributionName, seed: int) -> WorkedExample:
    """Return the lecture notes' example: attention over "The cat sat on the mat".

    Computed in float64; ``seed`` initializes parameters. Raises ``UsageError`` if the functions cannot be combined.
    """
    reason = incompatibility(alignment, distribution, OPTIONS)
    if reason is not None:
        raise UsageError(f"{alignment} and {distribution} cannot be combined: {reason}", where="--distribution")
    width = len(QUERY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        align = make_alignment(alignment, width, width, OPTIONS).double()
        distribute = make_distribution(distribution, width, OPTIONS)
    drawn: dict[str, Tensor] = dict(align.state_dict())
    if isinstance(distribute, nn.Module):
        drawn |= distribute.double().state_dict()
    query = torch.tensor(QUERY, dtype=torch.float64)[None, None, None]  # (B, H, T, d), all 1 but d
    keys = torch.tensor(KEYS, dtype=torch.float64)[None, None]
    scores: list[float] = align(query, keys).flatten().tolist()
    context, weights = attend(query, keys, keys, align, distribute)
    steps = []
    if alignment == "scaled_dot":  # the products before scaling
        steps.append(ExampleStep("dot products", "q · k", [score * math.sqrt(width) for score in scores]))
    if distribution == "softmax":  # the exponentials before normalization
        steps.append(ExampleStep("exponentials", "exp(s)", [math.exp(score) for score in scores]))
    return WorkedExample(
        words=WORDS,
        query=QUERY,
        keys=KEYS,
        pair=(alignment, distribution),
        seed=seed if drawn else None,
        parameters={name: tensor.double().tolist() for name, tensor in drawn.items()},
        steps=steps,
        scores=scores,
        weights=weights.flatten().tolist(),
        context=context.flatten().tolist(),
    )
