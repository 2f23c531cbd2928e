"""A pretraining step of BERT on a GPU: its time, the share of the GPU's peak that it reaches, and where the time goes.

    PYTHONPATH=src python benchmarks/gpu_step.py
    PYTHONPATH=src python benchmarks/gpu_step.py --profile --lengths 128 --attention packed

Passages are drawn (lengths of paragraphs of Wikipedia: log-normal, mean 97 tokens) and packed into rows; documents are
isolated. No data is read, and nothing is written but the table: what is measured is forward and backward pass, loss,
clipping and AdamW, of bfloat16 weights with a float32 copy. --attention varlen is PyTorch's kernel for passages of many
lengths, packed is attnkit's own. --kernels times the two alone.

The share of the peak counts the operations that the model needs, as mlm_gpu.py does.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnkit.data.language_modeling import LanguageModelBatch
from attnkit.engine.parallel import transformer_layers
from attnkit.models import layers
from attnkit.models.attention.attend import Passages
from attnkit.models.bert import Bert
from attnkit.models.language_config import BertConfig
from attnkit.tasks.language_modeling.evaluate import language_loss
from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_optimizer import FlatParameterStore

PEAK = 989.4e12
HIDDEN = 0.15
MEAN, DEVIATION = 97.0, 0.7
"""Of the length of a passage in tokens, and of its logarithm."""


def pack(n_rows: int, length: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the passage number of each token (rows, length): passages in a row until it is full, the last one cut."""
    rows = np.zeros((n_rows, length), np.int64)
    for row in rows:
        at = number = 0
        while at < length:
            n = int(np.clip(rng.lognormal(np.log(MEAN) - DEVIATION**2 / 2, DEVIATION), 8, length))
            row[at : at + n] = number
            at, number = at + n, number + 1
    whole = (rows == 0).all(1)
    return np.concatenate((rows[whole], rows[~whole]))


def make_batch(n_rows: int, length: int, words: int) -> tuple[LanguageModelBatch, float]:
    """Return a batch, and how many tokens a token sees on average."""
    rng = np.random.default_rng(1)
    passages = pack(n_rows, length, rng)
    begins = np.ones(passages.shape, bool)
    begins[:, 1:] = passages[:, 1:] != passages[:, :-1]
    bounds = np.append(np.flatnonzero(begins), begins.size).astype(np.int32)
    chosen = np.sort(rng.choice(passages.size, int(HIDDEN * passages.size), replace=False))
    ids, targets = rng.integers(5, words, passages.shape), rng.integers(5, words, len(chosen))
    n_whole = int((passages.max(1) == 0).sum())
    tensors = [torch.from_numpy(part) for part in (ids, passages, chosen, targets, bounds)]
    batch = LanguageModelBatch(
        tensors[0], n_whole, tensors[1], tensors[2], tensors[3], np.arange(n_rows), bounds=tensors[4]
    )
    sizes = np.diff(bounds).astype(float)
    return batch, float((sizes**2).sum() / sizes.sum())


def timed(call: Callable[[], Any], n: int, warm: int = 3) -> float:
    """Return the median time of a call in milliseconds."""
    for _ in range(warm):
        call()
    found = []
    for _ in range(n):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def kernels(length: int, n_tokens: int) -> None:
    """Print the times of attention alone, forward and backward, of a layer of 12 heads of 64."""
    from torch.nn.attention.varlen import varlen_attn

    from attnkit.models.attention import packed_kernel as own

    batch, _ = make_batch(n_tokens // length, length, 32_000)
    assert batch.bounds is not None
    bounds = batch.bounds.cuda()
    passages = Passages.bounded(bounds, n_tokens // length, length)
    qkv = torch.randn(n_tokens, 3 * 768, device="cuda", dtype=torch.bfloat16)
    change = torch.randn(n_tokens, 768, device="cuda", dtype=torch.bfloat16)
    parts = [part.contiguous().requires_grad_() for part in qkv.view(n_tokens, 3, 12, 64).unbind(1)]

    def varlen() -> Tensor:
        found: Tensor = varlen_attn(*parts, bounds, bounds, length, length)
        return found

    out = varlen()
    ahead = timed(varlen, 20)
    both = timed(lambda: varlen().backward(change.view(n_tokens, 12, 64)), 20)
    print(f"varlen {length}: forward {ahead:.3f} ms, backward {both - ahead:.3f} ms", flush=True)
    shared = passages.starts, passages.ends, 12, False
    for table in (None, torch.randn(512, 64, device="cuda")):
        for tiles in (own.Tiles(128, 64, 4, 2), own.Tiles(128, 64, 4, 3), own.Tiles(128, 64, 8, 2),
                      own.Tiles(128, 128, 8, 2), own.Tiles(64, 64, 4, 3), own.Tiles(128, 128, 4, 1)):  # fmt: skip
            try:
                mine = timed(lambda tiles=tiles, table=table: own.forward(qkv, table, *shared, tiles), 20)
            except Exception as error:
                print("forward", tiles, str(error)[:80])
                continue
            print(f"own {length} forward rotary={table is not None} {tuple(tiles)}: {mine:.3f} ms", flush=True)
        out, norms = own.forward(qkv, table, *shared)
        if table is None:
            reference = varlen().reshape(n_tokens, 768)
            print("difference", float((out - reference).norm() / reference.norm()))
        for within in ([True] if passages.within else []) + [False]:
            if within:
                choices = [(own.Tiles(128, 128, warps, 1),) * 3 for warps in (4, 8)]
            else:
                sizes = ((64, 128, 8, 2), (64, 128, 4, 2), (64, 64, 4, 2), (64, 64, 4, 3), (32, 128, 4, 2))
                choices = [(own.WITHIN, own.Tiles(a, b, w, s), own.Tiles(b, a, w, s)) for a, b, w, s in sizes]
            for choice in choices:
                try:
                    mine = timed(lambda c=choice, t=table, o=out, n=norms, w=within: own.backward(
                        change, qkv, t, o, n, *shared, w, c), 20)  # fmt: skip
                except Exception as error:
                    print("backward", choice, str(error)[:80])
                    continue
                print(f"own {length} backward rotary={table is not None} within={within} "
                      f"{[tuple(c) for c in choice[1:2]]}: {mine:.3f} ms", flush=True)  # fmt: skip


def step(length: int, options: argparse.Namespace, attention: str) -> None:
    """Print the time of a step, and its share of the peak."""
    torch.manual_seed(1)
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    sizes: dict[str, Any] = {"d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072, "max_length": 512}
    config = BertConfig(**sizes, dropout=0.0, attention_dropout=0.0, positions=options.positions)
    model = Bert(config, 32_000).cuda()
    store = FlatParameterStore(model, OptimizationConfig(), "bfloat16")
    if options.gelu:
        import gpu_gelu  # registers operators

        gpu_gelu.use(model)
    if options.compile:
        for layer in transformer_layers(model):
            layer.compile(dynamic=True)
    supported = layers.supports_packed
    layers.supports_packed = (lambda *_: False) if attention == "varlen" else supported
    loss = language_loss(model, torch.device("cuda"), 0.0)
    batch, sees = make_batch(options.tokens // length, length, 32_000)
    batch = batch.to("cuda")

    def one() -> None:
        total = loss(batch)["nll"].total / len(batch.targets)
        total.backward()
        store.accumulate_grads()
        norm = float(store.grad_norm())
        store.update(1e-4, norm)
        store.zero_grad()

    took = timed(one, options.steps, 5) / 1000
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    needed = 6.0 * (weights + HIDDEN * (768**2 + 768 * 32_000)) + 12.0 * 12 * 768 * sees
    print(f"{attention} {length} {options.positions} compiled={options.compile}: {1000 * took:.1f} ms, "
          f"{options.tokens / took / 1000:.0f} thousand tokens/s, "
          f"{needed * options.tokens / took / PEAK:.1%} of the peak, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)  # fmt: skip
    if options.profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(3):
                one()
            torch.cuda.synchronize()
        rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)[: options.profile]
        busy = sum(row.self_device_time_total for row in profile.key_averages()) / 3000
        print(f"the device is busy for {busy:.1f} ms of a step")
        for row in rows:
            print(f"{row.self_device_time_total / 3000:8.2f} ms {row.count // 3:5d} x {row.key[:100]}", flush=True)
    layers.supports_packed = supported


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--attention", nargs="+", default=["varlen", "packed"], choices=("varlen", "packed"))
    parser.add_argument("--positions", default="learned")
    parser.add_argument("--tokens", type=int, default=65_536, help="of a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--profile", type=int, nargs="?", const=40, default=0, help="rows of the table of kernels")
    parser.add_argument("--gelu", action="store_true", help="with the candidate of gpu_gelu.py")
    parser.add_argument("--kernels", action="store_true", help="time attention alone")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for length in options.lengths:
        if options.kernels:
            kernels(length, options.tokens)
            continue
        for attention in options.attention:
            step(length, options, attention)


if __name__ == "__main__":
    main()
