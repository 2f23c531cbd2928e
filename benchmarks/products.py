"""Speed of one product of the compiled loops alone, in thousand million multiplications per second (GMAC/s).

    PYTHONPATH=src:benchmarks python benchmarks/products.py [--target avx2]

Rows x inputs times inputs x columns on one thread, for each precision; processor time, the best of 12. Beside the limit
of a processor it tells whether a product is worth any more work. Figures go to benchmarks/results/products.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from peers import machine

from attnkit.kernels.jit import no_refcount
from attnkit.kernels.simd import packing
from attnkit.kernels.simd.matrix import begin_tiles, end_tiles
from attnkit.kernels.simd.targets import TARGETS, Precision, Target, choose_target
from attnkit.kernels.sublayers import NOTHING, build_linear

RESULT = Path(__file__).parent / "results" / "products.json"
SHAPES = (  # rows, columns, inputs
    (48, 1024, 256), (48, 256, 1024), (48, 8000, 256), (80, 8000, 256), (48, 2048, 512), (48, 512, 2048),
)  # fmt: skip


class Products(NamedTuple):
    """The part of ``Model`` that a product reads."""

    products: np.ndarray


def build(target: Target, precision: Precision) -> Any:
    """Compile a function that repeats a product."""
    linear, has_tiles = build_linear(target, precision, "store"), target.has_matrix_tiles

    @no_refcount
    def repeat(model: Any, a: Any, scales: Any, n_rows: Any, out: Any, out_stride: Any, n: Any) -> None:
        if has_tiles:
            begin_tiles()
        for _ in range(n):
            linear(model, 0, (a, scales, n_rows), (out, out_stride), NOTHING)
        if has_tiles:
            end_tiles()

    return repeat


def measure(repeat: Any, target: Target, precision: Precision, shape: tuple[int, int, int]) -> float:
    """Return the GMAC/s of one shape."""
    m, n, k = shape
    chance = np.random.default_rng(0)
    packed = packing.pack(chance.normal(size=(n, k)).astype(np.float32), np.zeros(n, np.float32), target, precision)
    n_padded = len(packed.bias)
    table = np.array([[*(part.ctypes.data for part in packed), n_padded, k]], np.int64)
    # Tiles read and write whole.
    one: Any = {"float32": np.float32(1), "bfloat16": np.uint16(0x3F80), "int8": np.uint8(129)}[precision]
    rows = packing.aligned(np.full((m + target.extra_rows, k), one))
    scales = packing.aligned(np.ones(m + target.extra_rows, np.float32))
    out = packing.aligned(np.zeros((m + target.extra_rows, n_padded), np.float32))
    given = (Products(table), rows.ctypes.data, scales.ctypes.data, m, out.ctypes.data, 4 * n_padded)
    count = max(1, 2_000_000_000 // (m * n * k))
    repeat(*given, 1)
    times = []
    for _ in range(12):
        began = time.thread_time()
        repeat(*given, count)
        times.append((time.thread_time() - began) / count)
    return round(m * n * k / min(times) / 1e9, 1)


def main() -> None:
    """Measure all precisions, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=[*TARGETS], help="instruction set; default: the best of this processor")
    target = choose_target(parser.parse_args().target)
    found: dict[str, dict[str, float]] = {}
    for precision in get_args(Precision):
        repeat = build(target, precision)
        for shape in SHAPES:
            name = " x ".join(map(str, shape))
            found.setdefault(precision, {})[name] = measure(repeat, target, precision, shape)
            print(f"{target.name} {precision:9} {name:16} {found[precision][name]:6} GMAC/s", flush=True)
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results[target.name] = {"machine": machine(), "GMAC/s": found}
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
