"""Dry-run estimates of a training run: parameters, memory, tokens and time."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from attnkit.engine.parallel import muon_matrices
from attnkit.engine.run_config import RunConfig
from attnkit.engine.saved_weights import add_adapters
from attnkit.engine.task import AnyTask, CorpusSize, RunEstimate
from attnkit.protocols import SPECIALS
from attnkit.runtime.devices import choose_device, choose_precision
from attnkit.text.encoding import EncodedLines
from attnkit.training.muon import orthogonalize_operations

SAMPLE = 20_000  #: lines per file that are encoded to estimate the number of tokens
ELEMENTWISE = 16  #: operations per float that a step keeps for its backward pass, measured on narrow models
_INITIALIZERS = (torch.Tensor.normal_, torch.Tensor.uniform_)


class SkipWeightInit(TorchFunctionMode):
    """Torch function mode that skips the random initialization of weights.

    On the meta device, initialization has no effect but imports torch's compiler, which takes a second.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Initializers return their tensor, which stays unchanged here.
        if func in _INITIALIZERS or getattr(func, "__module__", "") == "torch.nn.init":
            return (kwargs or {}).get("tensor", *args[:1])
        return func(*args, **(kwargs or {}))


def estimate(
    config: RunConfig,
    n_examples: int,
    tokens: float,
    build: Callable[[], Any],
    n_classes: int,
    unit: str = "pairs",
    freeze: Callable[[Any], None] | None = None,
) -> RunEstimate:
    """Estimate a run with ``tokens`` per epoch and ``n_classes`` model outputs.

    ``freeze`` says which weights of the model, with its adapters if it has any, are not trained.
    """
    # On the meta device, parameters are counted but never allocated.
    with torch.device("meta"), SkipWeightInit():
        model = build()
        # Tied weights count once.
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        if config.lora is not None:
            add_adapters(model, config.lora)
    if freeze is not None:
        freeze(model)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    n_trained = sum(size for size, is_trained in sizes if is_trained)
    n_frozen = sum(size for size, is_trained in sizes if not is_trained)
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    optimization, itemsize = config.optimization, precision.itemsize
    # Batches of whole sentences fill about 93 % of batch_tokens.
    per_step = 0.93 * optimization.batch_tokens
    working = itemsize if itemsize < 4 else 0  # a copy of the float32 weights and gradients
    average = 4 if optimization.ema_decay else 0
    matrices = muon_matrices(model, config)
    columns = {name: parameter.shape[-1] for name, parameter in model.named_parameters() if name in matrices}
    maps = [(rows, columns[name]) for name, sizes in matrices.items() for rows in sizes]
    n_moments = 2 * n_trained - sum(rows * own for rows, own in maps)  # Muon has momentum alone
    # Activations live for one micro-batch. Batches differ in shape, so freed blocks are only partly reused.
    micro_tokens = optimization.batch_tokens / optimization.gradient_accumulation_steps
    memory = {
        "weights": n_trained * (4 + working) + n_frozen * (4 + itemsize),
        "gradients": n_trained * (4 + working),
        "optimizer": n_moments * 4 + n_trained * average,
        "activations": 1.5 * config.n_passes * micro_tokens * config.activation_floats_per_token * itemsize,
        "logits": min(micro_tokens * n_classes * 4, 64e6),  # cross-entropy is computed in chunks over a reused buffer
        "checkpoint": n_moments * 4 + n_trained * (4 + average),  # serialized in memory: weights and moments once more
        "process": 420e6,  # with torch but without a model, after an evaluation
    }
    limits = config.limits
    ends = [
        None if limits.max_steps is None else limits.max_steps * per_step,
        None if limits.max_epochs is None else limits.max_epochs * tokens,
        limits.max_tokens,
    ]
    # A step takes up to 6 floating-point operations per parameter and token (Kaplan et al. 2020, section 2.1), and here
    # about half as many: a token passes through one side of a translation model, and few positions of a masked language
    # model reach the output layer. Between the products, each float that is kept for the backward pass is read and
    # written by many small operations; in narrow models these take longer. The estimate is accurate within a factor of
    # three.
    products = 3 * n_parameters / product_rate(device, precision)
    between = ELEMENTWISE * config.activation_floats_per_token / elementwise_rate(device, precision)
    per_token = config.n_passes * (products + between)
    # Muon's products are of matrices alone, so they take the same time in a step of any size.
    per_token += sum(orthogonalize_operations(*own) for own in maps) / product_rate(device, precision) / per_step
    bounds = [per_token * end for end in ends if end is not None]
    return RunEstimate(
        n_examples=n_examples,
        n_parameters=n_parameters,
        tokens_per_epoch=round(tokens),
        steps_per_epoch=max(1, round(tokens / per_step)),
        memory=round(sum(memory.values())),
        memory_parts={name: round(size) for name, size in memory.items()},
        device=device.type,
        precision=str(precision).removeprefix("torch."),
        unit=unit,
        seconds=min([*bounds, *([] if limits.max_minutes is None else [60 * limits.max_minutes])]),
    )


def estimate_run(task: AnyTask, config: RunConfig, corpus: CorpusSize, unit: str = "pairs") -> RunEstimate:
    """Estimate a run of a task on a corpus of this size."""
    sizes, freeze = corpus.vocab_sizes, partial(task.freeze, config)
    build = partial(task.sized_model, config, sizes)
    found = estimate(config, corpus.n_examples, corpus.tokens, build, sizes[-1], unit, freeze)
    return replace(found, note=corpus.note)


def random_rows(lengths: NDArray[np.int32], vocab_size: int) -> EncodedLines:
    """Return rows of these lengths with random ids that are not special."""
    ids = np.random.default_rng(0).integers(len(SPECIALS), vocab_size, int(lengths.sum()), np.int32)
    return EncodedLines(ids, lengths)


@cache
def product_rate(device: torch.device, precision: torch.dtype) -> float:
    """Measure the floating-point operations per second of a matrix product."""
    size = 512 if device.type == "cpu" else 4096
    a = torch.ones(size, size, dtype=precision, device=device)
    return 2 * size**3 * _calls_per_second(lambda: a @ a)


@cache
def elementwise_rate(device: torch.device, precision: torch.dtype) -> float:
    """Measure the elements per second of a product element by element."""
    size = 1 << (20 if device.type == "cpu" else 26)
    a = torch.ones(size, dtype=precision, device=device)
    return size * _calls_per_second(lambda: a * a)


def _calls_per_second(call: Callable[[], torch.Tensor]) -> float:
    """Repeat a call for 50 ms."""
    n, start, elapsed = 0, 0.0, 0.0
    # The first call is not counted, because it loads the library.
    while elapsed < 0.05:
        call().flatten()[0].item()  # waits for the device
        start = start or time.perf_counter()
        elapsed, n = time.perf_counter() - start, n + 1
    return max(1, n - 1) / elapsed
