"""Sublayers of a Transformer in compiled loops, which encoder and decoder share.

All data is at raw addresses, which the caller has checked (``attnkit.compiled``); ``layout`` describes them. The
results of a row depend on that row alone: its sums have one order, and in int8 it has a scale of its own.

Letters: M rows of a product, D model width, A heads times head width, F inner width; widths are padded.
"""

from typing import Any, NamedTuple

import numpy as np

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import (
    BETA,
    BIAS,
    COLUMNS,
    GAMMA,
    GELU,
    INPUTS,
    ONE,
    RELU,
    SCALE,
    SILU,
    START,
    WEIGHTS,
    ZERO,
)
from attnkit.kernels.search_rules import LOWEST32
from attnkit.kernels.simd import attention, rows
from attnkit.kernels.simd.packing import GROUP, KEPT_BYTES, SPARSE_BLOCK, SPARSE_ROWS, block_bytes
from attnkit.kernels.simd.products import make_matrix_product, make_product, make_sparse_product
from attnkit.kernels.simd.targets import HEAD_VECTORS, NumberFormat, Precision, Target

MAX_DENSITY: dict[Precision, float] = {"float32": 0.7, "bfloat16": 0.7, "int8": 0.7}
"""Share of groups beyond which a dense product is faster."""
NEVER = 2**62
FEW_ROWS = {"bfloat16": 0, "int8": 3}
"""Rows that AMX's tiles do not gain from. In bfloat16 sums would have another order, and depend on the other rows."""
ZERO32 = np.float32(0.0)
NOTHING = (ZERO,) * 6  #: ``extra`` of products that only write floats


class Sublayers(NamedTuple):
    """Compiled parts of a stack of layers."""

    linear: Any
    encode_rows: Any
    enter: Any
    project_back: Any
    feed_forward: Any
    attend: Any
    rotate: Any
    keep: Any
    embed: Any
    norm_embedding: Any


def build_linear(target: Target, precision: Precision, kind: str) -> Any:
    """Build (model, i, inputs, out, extra): product i, all of its panels."""
    multiply_panels, panel = build_panels(target, precision, kind), target.tile(precision).panel

    @function
    def linear(model: Any, i: Any, inputs: Any, out: Any, extra: Any) -> Any:
        multiply_panels(model, i, (ZERO, model.products[i, COLUMNS] // panel), inputs, out, extra)

    return linear


def build_panels(target: Target, number_format: NumberFormat, kind: str) -> Any:
    """Build (model, i, panels, inputs, out, extra): panels of product i.

    ``panels``: the first, and the one behind the last. ``inputs``: address of encoded rows, address of their scales,
    number of rows. ``out``: address, bytes per row. ``extra``: address, bytes per row and bytes per panel of
    ``make_product``'s ``top``, and of its ``other``.
    """
    tile, lane_bytes = target.tile(number_format), 4 // GROUP[number_format]
    tall, panel = tile.rows, tile.panel
    middle = (tall + 1) // 2
    tall_tiles, middle_tile, row = (make_product(target, number_format, n, kind) for n in (tall, middle, 1))
    few = FEW_ROWS[number_format] if target.multiplies_tiles(number_format) else NEVER
    of_tiles = make_matrix_product(number_format, kind) if few < NEVER else tall_tiles
    out_step = 0 if kind in ("peak", "maxima", "sums") else 4 * panel  # bytes from one panel to the next

    # A function of its own: inlined into each product, tiles would multiply the code.
    @function
    def multiply(n_rows: Any, inputs: Any, weights: Any, outputs: Any, number: Any) -> Any:
        (a, stride, scales), (w, start, n, scale, bias) = inputs, weights
        out, out_stride, top, top_stride, other, other_stride = outputs
        if n_rows > few:
            of_tiles((a, stride, w, start, n, scales, scale, bias, *outputs, number, n_rows))
            return
        n_tall = n_rows // tall
        if n_rows - n_tall * tall > middle:  # the rows behind the last one are padding of the buffers
            n_tall += 1
        tall_tiles((a, stride, w, start, n, scales, scale, bias, *outputs, number, n_tall))
        m = n_tall * tall
        if m < n_rows:
            x, own, to = a + m * stride, scales + 4 * m, out + m * out_stride
            best, also = top + m * top_stride, other + m * other_stride
            places = (to, out_stride, best, top_stride, also, other_stride)
            operands = (x, stride, w, start, n, own, scale, bias, *places, number, ONE)
            if n_rows - m > 1:
                middle_tile(operands)
            else:
                row(operands)

    @function
    def multiply_panels(model: Any, i: Any, panels: Any, inputs: Any, out: Any, extra: Any) -> Any:
        (first, last), (a, scales, n_rows), (place, out_stride) = panels, inputs, out
        top, top_stride, top_step, other, other_stride, other_step = extra
        table = model.products
        stride = table[i, INPUTS] * lane_bytes
        n = stride >> 2
        # A panel of weights stays in the nearest cache while all rows pass.
        for number in range(first, last):
            at = 4 * panel * number
            weights = (table[i, WEIGHTS] + at * n, table[i, START] + at, n, table[i, SCALE] + at, table[i, BIAS] + at)
            best, also = top + top_step * number, other + other_step * number
            places = (place + out_step * number, out_stride, best, top_stride, also, other_stride)
            multiply(n_rows, (a, stride, scales), weights, places, number)

    return multiply_panels


def build_sparse_linear(target: Target, precision: Precision, dense: Any) -> Any:
    """Build (model, i, inputs, out, buffers): product i of rows with many zeros.

    A ReLU leaves such rows. The result is that of ``dense``, which is used where too few are zeros.
    """
    panel, lane_bytes = target.tile(precision).panel, 4 // GROUP[precision]
    block, list_size = SPARSE_BLOCK[precision], block_bytes(precision)
    list_groups, multiply, finish = make_sparse_product(target, precision)
    tile_rows, most = SPARSE_ROWS[precision], MAX_DENSITY[precision]

    @function
    def sparse(model: Any, i: Any, inputs: Any, out: Any, buffers: Any) -> Any:
        (a, scales, n_rows), (place, out_stride) = inputs, out
        table = model.products
        stride = table[i, INPUTS] * lane_bytes
        n, n_tiles = stride >> 2, (n_rows + tile_rows - 1) // tile_rows
        n_blocks = n // block
        list_stride = n_blocks * list_size
        # In int8 a block may be wider than the padding of the inputs.
        if (
            n_blocks * block < n
            or list_groups((a, stride, n, buffers.lists, list_stride, n_tiles)) > most * n * n_tiles
        ):
            dense(model, i, inputs, out, NOTHING)
            return
        for number in range(table[i, COLUMNS] // panel):
            at = 4 * panel * number
            to, before, before_stride = place + at, table[i, START] + at, ZERO
            # A block of weights stays in the nearest cache while all rows pass.
            for j in range(n_blocks):
                first = 4 * block * j
                weights = table[i, WEIGHTS] + at * n + panel * first
                given = (a + first, stride, weights, before, before_stride, buffers.lists + list_size * j, list_stride)
                factors = (scales, table[i, SCALE] + at, table[i, BIAS] + at)
                if j + 1 < n_blocks:
                    multiply((*given, to, out_stride, *factors, n_tiles))
                else:
                    finish((*given, to, out_stride, *factors, n_tiles))
                before, before_stride = to, out_stride

    return sparse


def build_sublayers(target: Target, precision: Precision) -> Sublayers:
    """Build the parts that encoder and decoder share."""
    float32, lane_bytes = precision == "float32", 4 // GROUP[precision]
    store, store_relu = (build_linear(target, precision, kind) for kind in ("store", "relu"))
    store_back = _build_store_back(target, precision, store)
    encode_rows = _build_encode_rows(target, precision)
    norm_rows, norm_embedding = _build_norms(target, precision)
    activate, gate = _build_activate(target, precision), rows.make_gate(target, precision)

    @function
    def enter(model: Any, first_norm: Any, n_rows: Any, buffers: Any) -> Any:
        # Where the first product of a stack finds the embedded rows; below 0: it reads them without a norm.
        if model.pre_norm and first_norm >= 0:
            return norm_rows(model, first_norm, n_rows, False, buffers)
        return encode_rows(buffers.x, n_rows, model.d_model, buffers)

    @function
    def project_back(model: Any, i: Any, norm: Any, n_rows: Any, buffers: Any) -> Any:
        # The output product of an attention, the residual sum and a norm.
        a = encode_rows(buffers.context, n_rows, model.d_heads, buffers)
        store(model, i, (a, buffers.scales, n_rows), (buffers.y, 4 * model.d_model), NOTHING)
        return norm_rows(model, norm, n_rows, True, buffers)

    @function
    def feed_forward(model: Any, i: Any, a: Any, norm: Any, n_rows: Any, buffers: Any) -> Any:
        # Products i and i + 1, the residual sum and a norm.
        f, inputs = model.d_inner, (a, buffers.scales, n_rows)
        stride, relu = 4 * (f + model.gated * f), model.activation == RELU and not model.gated
        if relu:
            store_relu(model, i, inputs, (buffers.wide, stride), NOTHING)
        else:
            store(model, i, inputs, (buffers.wide, stride), NOTHING)
        for m in range(n_rows):
            x, out, scale = buffers.wide + stride * m, buffers.encoded + f * lane_bytes * m, buffers.scales + 4 * m
            activate(model, x, f >> 4, out, scale)
            if model.gated:
                lowest = ZERO32 if model.activation == RELU else LOWEST32
                # Rows move up to where the next product finds them, never past one that is still to be read.
                gate(x, x + 4 * f, f >> 4, lowest, buffers.wide + 4 * f * m, out, scale)
        a = buffers.wide if float32 else buffers.encoded
        inputs = (a, buffers.scales, n_rows)
        if relu:
            store_back(model, i + 1, inputs, (buffers.y, 4 * model.d_model), buffers)
        else:
            store(model, i + 1, inputs, (buffers.y, 4 * model.d_model), NOTHING)
        return norm_rows(model, norm, n_rows, True, buffers)

    keep = rows.copy if float32 else rows.make_keep(target)
    attend, rotate, embed = _build_attend(target, precision), _build_rotate(), _build_embed()
    return Sublayers(store, encode_rows, enter, project_back, feed_forward, attend, rotate, keep, embed, norm_embedding)


def _build_activate(target: Target, precision: Precision) -> Any:
    """Build (model, x, width, q, scale): an activation; products apply ReLU."""
    relu, gelu, silu, gelu_tanh = (
        rows.make_activate(target, precision, kind) for kind in ("relu", "gelu", "silu", "gelu_tanh")
    )

    @function
    def activate(model: Any, x: Any, width: Any, q: Any, scale: Any) -> Any:
        if model.activation == RELU:
            relu(x, width, q, scale)
        elif model.activation == GELU:
            gelu(x, width, q, scale)
        elif model.activation == SILU:
            silu(x, width, q, scale)
        else:
            gelu_tanh(x, width, q, scale)

    return activate


def _build_store_back(target: Target, precision: Precision, store: Any) -> Any:
    """Build the second product after a ReLU: (model, i, inputs, out, buffers)."""
    few = FEW_ROWS[precision] if target.multiplies_tiles(precision) else NEVER
    if not few or (precision == "int8" and not target.fast_int8):

        @function
        def dense(model: Any, i: Any, inputs: Any, out: Any, buffers: Any) -> Any:
            # Tiles take all groups together; bytes without instructions are slow anyway.
            store(model, i, inputs, out, NOTHING)

        return dense
    sparse = build_sparse_linear(target, precision, store)
    if few == NEVER:
        return sparse

    @function
    def store_back(model: Any, i: Any, inputs: Any, out: Any, buffers: Any) -> Any:
        # Few rows wait for their weights: those of zeros are not read.
        if inputs[2] <= few:
            sparse(model, i, inputs, out, buffers)
        else:
            store(model, i, inputs, out, NOTHING)

    return store_back


def _build_encode_rows(target: Target, precision: Precision) -> Any:
    """Build (x, n_rows, width, buffers): where the next product finds rows of floats."""
    float32, lane_bytes = precision == "float32", 4 // GROUP[precision]
    quantize = rows.make_quantize(target, precision)

    @function
    def encode_rows(x: Any, n_rows: Any, width: Any, buffers: Any) -> Any:
        if float32:
            return x
        for m in range(n_rows):
            quantize(x + 4 * width * m, width >> 4, buffers.encoded + width * lane_bytes * m, buffers.scales + 4 * m)
        return buffers.encoded

    return encode_rows


def _build_norms(target: Target, precision: Precision) -> tuple[Any, Any]:
    """Build the norm of sublayers and that of embeddings."""
    float32, lane_bytes = precision == "float32", 4 // GROUP[precision]
    norm_alone, add_norm = (rows.make_norm(target, precision, adds) for adds in (False, True))

    @function
    def norm_rows(model: Any, i: Any, n_rows: Any, adds: Any, buffers: Any) -> Any:
        d, width, constants = model.d_model, model.d_model >> 4, model.norm_constants
        gamma, beta = model.norms[i, GAMMA], model.norms[i, BETA]
        for m in range(n_rows):
            x, out = buffers.x + 4 * d * m, buffers.normed + 4 * d * m
            encoded, scale = buffers.encoded + d * lane_bytes * m, buffers.scales + 4 * m
            if adds:
                add_norm(buffers.y + 4 * d * m, x, width, constants, gamma, beta, out, encoded, scale)
            else:
                norm_alone(0, x, width, constants, gamma, beta, out, encoded, scale)
        return buffers.normed if float32 else buffers.encoded

    @function
    def norm_embedding(model: Any, i: Any, n_rows: Any, buffers: Any) -> Any:
        d = model.d_model
        gamma, beta, constants = model.norms[i, GAMMA], model.norms[i, BETA], model.norm_constants
        for m in range(n_rows):
            x = buffers.x + 4 * d * m
            norm_alone(0, x, d >> 4, constants, gamma, beta, x, buffers.encoded, buffers.scales)

    return norm_rows, norm_embedding


def _build_embed() -> Any:
    """Build (model, m, word, words, position, positions, buffers): fill row m of x."""
    add_rows, copy = rows.add_rows, rows.copy

    @function
    def embed(model: Any, m: Any, word: Any, words: Any, position: Any, positions: Any, buffers: Any) -> Any:
        d = model.d_model
        if positions:
            add_rows(words + 4 * d * word, positions + 4 * d * position, d >> 4, buffers.x + 4 * d * m)
        else:
            copy(words + 4 * d * word, d >> 4, buffers.x + 4 * d * m)

    return embed


def _build_rotate() -> Any:
    """Build (model, row, turns, position): rotary positions (Su et al. 2021)."""
    rotate_heads = rows.rotate

    @function
    def rotate(model: Any, row: Any, turns: Any, position: Any) -> Any:
        # Padding between queries and keys is a number of whole heads, of zeros.
        n_heads = (model.d_heads + model.d_kept) // model.d_head
        rotate_heads(row, n_heads, model.d_head >> 4, turns + 4 * model.d_head * position)

    return rotate


def _build_attend(target: Target, precision: Precision) -> Any:
    """Build (model, query, memory, bias, out, shown, buffers): attention of a query.

    ``memory``: addresses of keys and values, bytes per position, address of the int32 positions, their number. The
    context (A,) goes to ``out``; the mean of all heads' weights is added at ``shown``, unless that is 0.
    """
    width_1, width_2, width_4, width_8 = (_build_heads(target, precision, n) for n in HEAD_VECTORS)

    @function
    def attend(model: Any, query: Any, memory: Any, bias: Any, out: Any, shown: Any, buffers: Any) -> Any:
        d, weights = model.d_head, buffers.weights
        if d == 64:
            width_4(model, query, memory, bias, weights, out, shown)
        elif d == 32:
            width_2(model, query, memory, bias, weights, out, shown)
        elif d == 16:
            width_1(model, query, memory, bias, weights, out, shown)
        else:
            width_8(model, query, memory, bias, weights, out, shown)

    return attend


def _build_heads(target: Target, precision: Precision, n_vectors: int) -> Any:
    """Build (model, query, memory, bias, weights, out, shown) for one width of heads."""
    half = precision != "float32"
    pairs = half and target.native_bfloat16 and n_vectors > 1
    scores = attention.make_scores(n_vectors, half, pairs)
    mix = attention.make_mix_pairs(n_vectors) if pairs else attention.make_mix(n_vectors, half)
    softmax, add_bias, add_scaled = attention.softmax, attention.add_bias, attention.add_scaled
    d, kept_bytes = 16 * n_vectors, 16 * n_vectors * KEPT_BYTES[precision]

    @function
    def heads(model: Any, query: Any, memory: Any, bias: Any, weights: Any, out: Any, shown: Any) -> Any:
        keys, values, stride, places, n = memory
        row_bytes = 4 * (n + 31 & -32)
        # Part by part, not head by head: a processor overlaps what does not wait for each other.
        for first in range(0, model.n_heads, model.group):
            for h in range(first, first + model.group):
                w = weights + row_bytes * h
                scores(query + 4 * d * h, keys, stride, places, n, w)
                if bias:
                    add_bias(w, bias + model.bias_stride * h, n)
            keys += kept_bytes
        for h in range(model.n_heads):
            softmax(weights + row_bytes * h, n)
        if shown:
            share = np.float32(1.0) / np.float32(model.n_heads)
            for h in range(model.n_heads):
                add_scaled(shown, weights + row_bytes * h, n, share)
        for first in range(0, model.n_heads, model.group):
            for h in range(first, first + model.group):
                mix(weights + row_bytes * h, values, stride, places, n, out + 4 * d * h)
            values += kept_bytes

    return heads
