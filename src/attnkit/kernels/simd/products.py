"""Matrix products whose sums and epilogues stay in registers.

Letters: M rows of activations, N columns, K inputs. ``packing`` shows the layout of weights; activations are rows of K
inputs. One load of 16 columns' weights serves all rows of a tile, and one activation all columns.
"""

import math
from typing import Any

from attnkit.kernels.simd import matrix
from attnkit.kernels.simd import vectors as v
from attnkit.kernels.simd.packing import GROUP, INT16_BLOCK, SPARSE_BLOCK, SPARSE_ROWS, block_bytes
from attnkit.kernels.simd.targets import MATRIX_ROWS, NumberFormat, Precision, Target

try:
    from llvmlite import ir
    from numba.core import cgutils
except ImportError:  # nothing here is called then
    pass


def _dot(b: Any, target: Target, number_format: NumberFormat, sums: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """Return sums + a w of some groups; each a and w is a vector of 16 int32."""
    if number_format == "int8" and target.name == "avx2":
        return v.halves(b, _dot_avx2, sums, *(vector for pair in pairs for vector in pair))
    for a, w in pairs:
        sums = _dot_group(b, target, number_format, sums, a, w)
    return sums


def _dot_group(b: Any, target: Target, number_format: NumberFormat, sums: Any, a: Any, w: Any) -> Any:
    """Return sums + a w of one group."""
    floats, ints = v.vector("float"), v.vector("i32")
    if number_format == "float32":
        return v.fma(b, b.bitcast(a, floats), b.bitcast(w, floats), sums)
    if number_format == "bfloat16":
        if target.native_bfloat16:
            return v.dot_pairs(b, sums, a, w)
        # A bfloat16 is the upper half of a float32.
        low = [b.bitcast(b.shl(x, v.constant("i32", 16)), floats) for x in (a, w)]
        high = [b.bitcast(b.and_(x, v.constant("i32", 0xFFFF0000)), floats) for x in (a, w)]
        return v.fma(b, high[0], high[1], v.fma(b, low[0], low[1], sums))
    if number_format == "int16":
        return v.call(b, "llvm.x86.avx512.vpdpwssd.512", ints, sums, a, w)
    if target.has_avx512:
        bytes_ = v.vector("i8", 64)
        return v.call(b, "llvm.x86.avx512.vpdpbusd.512", ints, sums, b.bitcast(a, bytes_), b.bitcast(w, bytes_))
    # Byte by byte of each lane: unsigned of a, signed of w.
    for shift in (0, 8, 16, 24):
        byte = b.and_(b.lshr(a, v.constant("i32", shift)), v.constant("i32", 255))
        weight = b.ashr(b.shl(w, v.constant("i32", 24 - shift)), v.constant("i32", 24))
        sums = b.add(sums, b.mul(byte, weight))
    return sums


def _dot_avx2(b: Any, sums: Any, *operands: Any) -> Any:
    """Return sums of 8 lanes: products of all groups are added in 16 bits, then in 32.

    ``packing`` sees to it that the 16 bits suffice.
    """
    i8, i16, i32 = v.vector("i8", 32), v.vector("i16", 16), v.vector("i32", 8)
    products = [
        v.call(b, "llvm.x86.avx2.pmadd.ub.sw", i16, b.bitcast(a, i8), b.bitcast(w, i8))
        for a, w in zip(operands[::2], operands[1::2], strict=True)
    ]
    total = products[0]
    for product in products[1:]:  # in turn: a tree would need one more register
        total = b.add(total, product)
    return b.add(sums, v.call(b, "llvm.x86.avx2.pmadd.wd", i32, total, ir.Constant(i16, [1] * 16)))


def _tile(b: Any, target: Target, number_format: NumberFormat, n_rows: int, inputs: Any, panel: Any) -> list[list[Any]]:
    """Return the sums of rows times a panel, n_rows x vectors of a tile.

    ``inputs``: address of the first row, bytes between rows; ``panel``: addresses of its weights and starts, groups.
    """
    (a, stride), (w, start, n_groups) = inputs, panel
    tile, kind = target.tile(number_format), v.vector("i32" if number_format.startswith("int") else "float")
    columns, together = range(tile.vectors), range(target.summed_groups if number_format == "int8" else 1)
    starts = [v.load(b, v.offset(b, start, 64 * j), kind) for j in columns]
    rows = [b.add(a, b.mul(stride, v.i64(i))) for i in range(n_rows)]
    sums = [v.accumulators(b, starts) for _ in rows]

    def add_groups(begin: Any, n: Any) -> None:
        """Add the products of n groups."""
        with cgutils.for_range(b, b.udiv(n, v.i64(len(together)))) as loop:
            first = b.add(begin, b.mul(loop.index, v.i64(4 * len(together))))  # 4 bytes per group
            # One load of weights serves all rows of the tile.
            places = [b.add(w, b.mul(b.add(first, v.i64(4 * g)), v.i64(tile.panel))) for g in together]
            weights = [[v.load(b, v.offset(b, place, 64 * j), v.vector("i32")) for place in places] for j in columns]
            for row, own in zip(rows, sums, strict=True):
                at = b.add(row, first)
                groups = [v.splat(b, v.load(b, v.offset(b, at, 4 * g), v.scalar("i32"))) for g in together]
                for total, of_column in zip(own, weights, strict=True):
                    pairs = list(zip(groups, of_column, strict=True))
                    b.store(_dot(b, target, number_format, b.load(total), pairs), total)

    if number_format != "int16":
        add_groups(v.i64(0), n_groups)
        return [[b.load(total) for total in own] for own in sums]
    # Block by block: integers add up in registers, floats beside them.
    totals = [v.accumulators(b, [v.constant("float", 0.0)] * tile.vectors) for _ in rows]
    block = INT16_BLOCK // GROUP["int16"]
    with cgutils.for_range(b, b.udiv(n_groups, v.i64(block))) as blocks:
        add_groups(b.mul(blocks.index, v.i64(4 * block)), v.i64(block))
        for total, own in zip((t for row in totals for t in row), (s for row in sums for s in row), strict=True):
            b.store(b.fadd(b.load(total), b.sitofp(b.load(own), v.vector("float"))), total)
            b.store(v.constant("i32", 0), own)
    return [[b.load(total) for total in own] for own in totals]


def _floats(b: Any, sums: list[list[Any]], row_scale: Any, scale: Any, bias: Any) -> list[list[Any]]:
    """Return sums of integers as floats: times row and column scale, plus bias."""
    columns = range(len(sums[0]))
    scales = [v.load(b, v.offset(b, scale, 64 * j)) for j in columns]
    biases = [v.load(b, v.offset(b, bias, 64 * j)) for j in columns]
    found = []
    for i, own in enumerate(sums):
        factor = v.splat(b, v.load(b, v.offset(b, row_scale, 4 * i), v.scalar("float")))
        floats = [x if x.type == factor.type else b.sitofp(x, factor.type) for x in own]
        parts = zip(floats, scales, biases, strict=True)
        found.append([v.fma(b, b.fmul(x, factor), s, c) for x, s, c in parts])
    return found


def make_product(target: Target, number_format: NumberFormat, n_rows: int, kind: str) -> Any:
    """Build the function of a panel times tiles of ``n_rows`` rows, one below another.

    Its argument is a tuple of addresses and numbers of bytes: (a, stride, weights, start, n_groups, row_scale, scale,
    bias, out, out_stride, top, top_stride, other, other_stride, panel_number, n_tiles); a stride leads from row to row.
    ``kind`` says what it does with the floats of a row:

    - store: write them to ``out``; relu: the larger of them and 0.
    - peak: keep the panel with the row's largest value: the value at ``top``, the floats at ``out``, the number of the
      panel (int64) at ``other``.
    - maxima: write the panel's largest to ``other``.
    - sums: also its sum of exponentials, relative to the largest, to ``top``.
    - panel: also the floats to ``out``.
    """

    @v.intrinsic("int64[16]")
    def product(b: Any, operands: Any) -> None:
        a, stride, w, start, n_groups, row_scale, scale, bias, *outputs = cgutils.unpack_tuple(b, operands, 16)
        *outputs, number, n_tiles = outputs
        with cgutils.for_range(b, n_tiles) as loop:
            m = b.mul(loop.index, v.i64(n_rows))
            inputs, scales = (b.add(a, b.mul(m, stride)), stride), b.add(row_scale, b.mul(m, v.i64(4)))
            rows = _tile(b, target, number_format, n_rows, inputs, (w, start, n_groups))
            if number_format.startswith("int"):
                rows = _floats(b, rows, scales, scale, bias)
            for i, row in enumerate(rows):
                own = b.add(m, v.i64(i))
                places = [b.add(base, b.mul(own, step)) for base, step in zip(outputs[::2], outputs[1::2], strict=True)]
                _write_row(b, number_format, kind, row, places, number)

    return product


def make_matrix_product(number_format: NumberFormat, kind: str) -> Any:
    """Build the function of a panel times rows by AMX's tiles.

    Its arguments are those of ``make_product``, but the last is the number of rows; behind them, only inputs are read.
    """

    @v.intrinsic("int64[16]")
    def product(b: Any, operands: Any) -> None:
        a, stride, w, start, n_groups, row_scale, scale, bias, *outputs = cgutils.unpack_tuple(b, operands, 16)
        *outputs, number, n_rows = outputs
        scratch, sum_kind = matrix.allocate_scratch(b), v.vector("float" if number_format == "bfloat16" else "i32")
        add = b.fadd if number_format == "bfloat16" else b.add
        n_tiles = b.udiv(b.add(n_rows, v.i64(MATRIX_ROWS - 1)), v.i64(MATRIX_ROWS))
        with cgutils.for_range(b, n_tiles) as tiles:
            first = b.mul(tiles.index, v.i64(MATRIX_ROWS))
            matrix.multiply(b, number_format, (b.add(a, b.mul(first, stride)), stride), (w, n_groups), scratch)
            left = b.sub(n_rows, first)
            n = b.select(b.icmp_unsigned("<", left, v.i64(MATRIX_ROWS)), left, v.i64(MATRIX_ROWS))
            with cgutils.for_range(b, n) as rows:
                m, sums = b.add(first, rows.index), b.add(scratch, b.mul(rows.index, v.i64(64 * matrix.N_SUMS)))
                at = [64 * j for j in range(matrix.N_SUMS)]
                starts = [v.load(b, v.offset(b, start, j), sum_kind) for j in at]
                row = [add(v.load(b, v.offset(b, sums, j), sum_kind), x) for j, x in zip(at, starts, strict=True)]
                if number_format != "bfloat16":
                    (row,) = _floats(b, [row], b.add(row_scale, b.mul(m, v.i64(4))), scale, bias)
                places = [b.add(base, b.mul(m, step)) for base, step in zip(outputs[::2], outputs[1::2], strict=True)]
                _write_row(b, number_format, kind, row, places, number)

    return product


def make_sparse_product(target: Target, precision: Precision) -> tuple[Any, Any, Any]:
    """Build a panel times tiles of rows that are mostly zeros.

    Three functions, each of a tuple:

    - Of (a, stride, n_groups, lists, list_stride, n_tiles): for each tile of ``SPARSE_ROWS`` rows list the groups of
      inputs that are not zero in all of them, block by block: their number (int64), and from byte 64 on their indices
      in the block (int32), which take up to 16 more places. Returns the sum of these numbers.
    - Of (a, stride, weights, before, before_stride, lists, list_stride, out, out_stride, row_scale, scale, bias,
      n_tiles), the addresses of inputs and weights those of a block: sums over its listed groups are added to what is
      before and written to ``out``.
    - The same for the last block: the floats of ``make_product`` are written. They are the same: zeros add nothing, and
      the order does not change.
    """
    n_rows, block, list_size = SPARSE_ROWS[precision], SPARSE_BLOCK[precision], block_bytes(precision)

    @v.intrinsic("int64[6]", result="int64")
    def list_groups(b: Any, operands: Any) -> Any:
        a, stride, n_groups, lists, list_stride, n_tiles = cgutils.unpack_tuple(b, operands, 6)
        (total,) = v.accumulators(b, [v.i64(0)])
        with cgutils.for_range(b, n_tiles) as tiles:
            rows = b.add(a, b.mul(b.mul(tiles.index, v.i64(n_rows)), stride))
            found = b.add(lists, b.mul(tiles.index, list_stride))
            with cgutils.for_range(b, b.udiv(n_groups, v.i64(block))) as blocks:
                first = b.add(rows, b.mul(blocks.index, v.i64(4 * block)))
                place = b.add(found, b.mul(blocks.index, v.i64(list_size)))
                n: Any = v.i64(0)
                for at in range(0, block, 16):
                    bits = v.load(b, v.offset(b, first, 4 * at), v.vector("i32"))
                    for i in range(1, n_rows):
                        row = b.add(first, b.mul(stride, v.i64(i)))
                        bits = b.or_(bits, v.load(b, v.offset(b, row, 4 * at), v.vector("i32")))
                    chosen = b.icmp_unsigned("!=", bits, v.constant("i32", 0))
                    to = v.offset(b, b.add(place, b.mul(n, v.i64(4))), 64)
                    n = b.add(n, v.store_chosen(b, target.has_avx512, chosen, v.lanes(at), to))
                v.store(b, n, place)
                b.store(b.add(b.load(total), n), total)
        return b.load(total)

    is_int = precision == "int8"

    def multiply_block(b: Any, operands: Any, is_last: bool) -> None:
        *parts, row_scale, scale, bias, n_tiles = cgutils.unpack_tuple(b, operands, 13)
        a, stride, w, before, before_stride, lists, list_stride, out, out_stride = parts
        tile, kind = target.tile(precision), v.vector("i32" if is_int else "float")
        columns = range(tile.vectors)
        with cgutils.for_range(b, n_tiles) as tiles:
            m = [b.add(b.mul(tiles.index, v.i64(n_rows)), v.i64(i)) for i in range(n_rows)]
            rows = [b.add(a, b.mul(i, stride)) for i in m]
            starts = [b.add(before, b.mul(i, before_stride)) for i in m]
            sums = [
                v.accumulators(b, [v.load(b, v.offset(b, start, 64 * j), kind) for j in columns]) for start in starts
            ]
            found = b.add(lists, b.mul(tiles.index, list_stride))
            with cgutils.for_range(b, v.load(b, found, v.scalar("i64"))) as loop:
                at = v.load(b, b.add(v.offset(b, found, 64), b.mul(loop.index, v.i64(4))), v.scalar("i32"))
                group = b.zext(at, v.scalar("i64"))
                place = b.add(w, b.mul(group, v.i64(4 * tile.panel)))
                weights = [v.load(b, v.offset(b, place, 64 * j), v.vector("i32")) for j in columns]
                for row, own in zip(rows, sums, strict=True):
                    x = v.splat(b, v.load(b, b.add(row, b.mul(group, v.i64(4))), v.scalar("i32")))
                    for total, of_column in zip(own, weights, strict=True):
                        b.store(_dot(b, target, precision, b.load(total), [(x, of_column)]), total)
            for i, own in zip(m, sums, strict=True):
                place, totals = b.add(out, b.mul(i, out_stride)), [b.load(total) for total in own]
                if is_int and is_last:
                    (totals,) = _floats(b, [totals], b.add(row_scale, b.mul(i, v.i64(4))), scale, bias)
                for j, total in enumerate(totals):
                    v.store(b, total, v.offset(b, place, 64 * j))

    @v.intrinsic("int64[13]")
    def multiply(b: Any, operands: Any) -> None:
        multiply_block(b, operands, is_last=False)

    @v.intrinsic("int64[13]")
    def finish(b: Any, operands: Any) -> None:
        multiply_block(b, operands, is_last=True)

    return list_groups, multiply, finish if is_int else multiply


def _write_row(b: Any, number_format: NumberFormat, kind: str, row: list[Any], places: list[Any], number: Any) -> None:
    """Write the floats of a row; ``places`` are its own out, top and other."""
    out, top, other = places
    if kind == "relu":
        row = [v.maximum(b, x, v.constant("float", 0.0)) for x in row]
    if kind in ("store", "relu", "panel"):
        for j, x in enumerate(row):
            v.store(b, x, v.offset(b, out, 64 * j))
    if kind in ("store", "relu"):
        return
    largest = row[0]
    for x in row[1:]:
        largest = v.maximum(b, largest, x)
    largest = v.lane_max(b, largest)
    if kind == "peak":
        _keep_peak(b, row, largest, out, top, (other, number))
        return
    v.store(b, largest, other)
    if kind != "maxima":
        v.store(b, _sum_exponentials(b, row, v.splat(b, largest), is_exact=number_format in ("float32", "int16")), top)


def _keep_peak(b: Any, row: list[Any], largest: Any, place: Any, top: Any, number: tuple[Any, Any]) -> None:
    """Replace a row's best panel if this one has a larger value."""
    with b.if_then(b.fcmp_ordered(">", largest, v.load(b, top, v.scalar("float"))), likely=False):
        v.store(b, largest, top)
        v.store(b, number[1], number[0])
        for j, x in enumerate(row):
            v.store(b, x, v.offset(b, place, 64 * j))


def _sum_exponentials(b: Any, row: list[Any], largest: Any, is_exact: bool) -> Any:
    """Return the sum of the exponentials of a panel's logits less the largest.

    Not ``is_exact``: the exponentials may be as coarse as logits of narrow numbers.
    """
    if is_exact:
        parts = [v.exp(b, b.fsub(x, largest), positive=False) for x in row]
    else:
        log2_e = v.constant("float", 1 / math.log(2))
        shift = b.fneg(b.fmul(largest, log2_e))
        parts = [v.exp2(b, v.fma(b, x, log2_e, shift)) for x in row]
    while len(parts) > 1:
        parts = [b.fadd(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return v.lane_sum(b, parts[0])
