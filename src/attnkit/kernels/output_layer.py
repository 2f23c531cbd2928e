"""The output layer of a search: log-probabilities of words that may be chosen.

A first pass over the vocabulary keeps two numbers of each panel of words, its largest logit and its sum of
exponentials. They give the logarithms of the probabilities, and tell which panels hold the words that a search chooses;
the logits of these few are computed again and kept.

Screening: the first pass may multiply narrower numbers, in a fraction of the time. Then its logits are within a bound
B of the exact ones, and a panel is computed in full wherever B leaves it a chance. Greedy search chooses the same words
as without screening. (Chen et al. 2019, "Learning to screen for fast softmax inference on large vocabulary neural
networks", learn what to compute; here a bound of the rounding tells.) A row of activations is x = x' + e and a column
of weights w = w' + f, with x' and w' as rounded to integers. By Cauchy and Schwarz

    |x w - x' w'| = |e w' + x f| <= |e| |w'| + |x| |f| = B.

In float32 the sums of exponentials must be exact, too: integers of 16 bits, and all panels near the largest logit in
full. What is left has little weight and errors of either sign, so that the logarithm of the sum is off by 4e-6, twice
what float32 loses itself.

Letters: M rows, D model width, K beams, P columns of a panel.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import COLUMNS, LOGIT_ROWS, ONE, OUTPUT, PEAK_OUTPUT, PEAK_SCREEN, SCREEN, ZERO
from attnkit.kernels.search_rules import LOWEST32, best_panels, log_sum
from attnkit.kernels.simd.packing import GROUP
from attnkit.kernels.simd.rows import combine_sums, copy, make_quantize, make_rounding_error, read_float, write_float
from attnkit.kernels.simd.targets import NumberFormat, Precision, Target
from attnkit.kernels.sublayers import build_panels

ROUNDING: dict[Precision, float] = {"float32": 2**-12, "bfloat16": 2**-12 + 1.01 * 2**-8, "int8": 0.0}
"""Rounding of exact products, per length of x and of w: sums of float32, and inputs of bfloat16."""
NEAR = np.float32(3.0)  #: float32: panels whose largest logit is so near to the row's largest are computed in full


class OutputLoops(NamedTuple):
    """Compiled parts of the output layer."""

    peaks: Any  #: (model, settings, x, n_rows, work): each row's best panel, without words that are never chosen
    logits: Any  #: (model, settings, x, first, n_rows, sentences, work): what sentences choose from


def build_output_layer(target: Target, precision: Precision) -> OutputLoops:
    """Build the output layer of a search."""
    return OutputLoops(_build_peaks(target, precision), _build_logits(target, precision))


def _build_encode(target: Target, precision: Precision, number_format: NumberFormat) -> Any:
    """Build (model, norms, x, n_rows, choice): rows as integers, and their bounds.

    ``norms``: the largest lengths of columns of weights, and of their errors.
    """
    quantize, rounding_error = make_quantize(target, number_format), make_rounding_error(target, number_format)
    rounding, n_bytes = ROUNDING[precision], 4 // GROUP[number_format]

    @function
    def encode(model: Any, norms: Any, x: Any, n_rows: Any, choice: Any) -> Any:
        d = model.d_model
        for m in range(n_rows):
            row, encoded, scale = x + 4 * d * m, choice.encoded + n_bytes * d * m, choice.scales + 4 * m
            quantize(row, d >> 4, encoded, scale)
            rounding_error(row, d >> 4, encoded, scale, choice.squares)
            error = math.sqrt(np.float64(read_float(choice.squares)))
            length = math.sqrt(np.float64(read_float(choice.squares + 4)))
            choice.bounds[m] = error * norms[0] + length * norms[1] + rounding * length * (norms[0] + norms[1])

    return encode


def _build_peaks(target: Target, precision: Precision) -> Any:
    peak, lane_bytes = build_panels(target, precision, "peak"), 4 // GROUP[precision]
    narrow = target.peak_format(precision)
    screens = narrow is not None
    encode = _build_encode(target, precision, narrow) if narrow else _unused
    maxima = build_panels(target, narrow, "maxima") if narrow else _unused

    @function
    def exact_peaks(model: Any, settings: Any, panels: Any, x: Any, m: Any, n_rows: Any, work: Any) -> Any:
        # Rows m, m + 1, ... times some panels: the best of these and of those before.
        choice, panel = work.choice, settings.panel
        inputs = (x + model.d_model * lane_bytes * m, work.buffers.scales + 4 * m, n_rows)
        extra = (choice.best + 4 * m, 4, ZERO, choice.panel_number.ctypes.data + 8 * m, 8, ZERO)
        peak(model, PEAK_OUTPUT, panels, inputs, (choice.best_panel + 4 * panel * m, 4 * panel), extra)

    @function
    def screened_peaks(model: Any, settings: Any, n_panels: Any, x: Any, first: Any, n_rows: Any, work: Any) -> Any:
        choice, stride = work.choice, work.choice.peaks_stride
        norms = (model.peak_norm, model.peak_error)
        encode(model, norms, work.buffers.normed + 4 * model.d_model * first, n_rows, choice)
        extra = (ZERO, ZERO, ZERO, choice.peaks, 4, stride)
        inputs = (choice.encoded, choice.scales, n_rows)
        maxima(model, PEAK_SCREEN, (ZERO, n_panels), inputs, (ZERO, ZERO), extra)
        for r in range(n_rows):
            top = read_float(choice.peaks + 4 * r)
            for number in range(1, n_panels):
                top = max(top, read_float(choice.peaks + stride * number + 4 * r))
            low = top - 2 * choice.bounds[r]
            for number in range(n_panels):
                # Numbers that are not finite are in no order: nothing is left out then.
                if not read_float(choice.peaks + stride * number + 4 * r) < low:
                    exact_peaks(model, settings, (number, number + 1), x, first + r, ONE, work)

    @function
    def peaks(model: Any, settings: Any, x: Any, n_rows: Any, work: Any) -> Any:
        choice, n_panels = work.choice, model.products[OUTPUT, COLUMNS] // settings.panel
        for m in range(n_rows + settings.extra_rows):
            write_float(choice.best + 4 * m, np.float32(-np.inf))
            choice.panel_number[m] = 0
        if screens and model.peak_norm > 0.0:
            for first in range(0, n_rows, LOGIT_ROWS):
                n = min(LOGIT_ROWS, n_rows - first)
                screened_peaks(model, settings, n_panels, x, first, n, work)
        else:
            exact_peaks(model, settings, (ZERO, n_panels), x, ZERO, n_rows, work)

    return peaks


def _build_logits(target: Target, precision: Precision) -> Any:
    sums, logits = (build_panels(target, precision, kind) for kind in ("sums", "panel"))
    lane_bytes = 4 // GROUP[precision]
    narrow = target.sum_format(precision)
    screens = narrow is not None
    encode = _build_encode(target, precision, narrow) if narrow else _unused
    coarse_sums = build_panels(target, narrow, "sums") if narrow else _unused
    gathers = screens and precision == "float32"

    @function
    def exact(model: Any, panels: Any, x: Any, m: Any, r: Any, n_rows: Any, work: Any) -> Any:
        # Rows m, m + 1, ... times some panels, kept in rows r, r + 1, ...
        choice, n_padded = work.choice, model.products[OUTPUT, COLUMNS]
        inputs = (x + model.d_model * lane_bytes * m, work.buffers.scales + 4 * m, n_rows)
        out = (choice.logits + 4 * n_padded * r, 4 * n_padded)
        stride = choice.peaks_stride
        logits(model, OUTPUT, panels, inputs, out, (choice.shares + 4 * r, 4, stride, choice.peaks + 4 * r, 4, stride))

    @function
    def first_pass(model: Any, n_panels: Any, x: Any, first: Any, n_rows: Any, work: Any) -> Any:
        choice, d = work.choice, model.d_model
        extra = (choice.shares, 4, choice.peaks_stride, choice.peaks, 4, choice.peaks_stride)
        if screens and model.sum_norm > 0.0:
            encode(model, (model.sum_norm, model.sum_error), work.buffers.normed + 4 * d * first, n_rows, choice)
            inputs = (choice.encoded, choice.scales, n_rows)
            coarse_sums(model, SCREEN, (ZERO, n_panels), inputs, (ZERO, ZERO), extra)
        else:
            inputs = (x + d * lane_bytes * first, work.buffers.scales + 4 * first, n_rows)
            sums(model, OUTPUT, (ZERO, n_panels), inputs, (ZERO, ZERO), extra)

    @function
    def note_near(last: Any, n_rows: Any, choice: Any) -> Any:
        # The least peak that is near the largest, for each row.
        for r in range(n_rows):
            write_float(choice.near + 4 * r, LOWEST32)
        for number in range(last):
            at = choice.peaks + choice.peaks_stride * number
            for r in range(n_rows):
                near = choice.near + 4 * r
                write_float(near, max(read_float(near), read_float(at + 4 * r) - NEAR))

    @function
    def replace_near(model: Any, settings: Any, last: Any, x: Any, first: Any, n_rows: Any, work: Any) -> Any:
        # Panel by panel, so that its weights are read once for all rows that need it.
        choice, d, panel, n_padded = work.choice, model.d_model, settings.panel, model.products[OUTPUT, COLUMNS]
        stride = choice.peaks_stride
        for number in range(ONE, last):
            n, at = ZERO, stride * number
            for r in range(n_rows):
                if read_float(choice.peaks + at + 4 * r) >= read_float(choice.near + 4 * r):
                    copy(x + 4 * d * (first + r), d >> 4, choice.gathered + 4 * d * n)
                    choice.gathered_rows[n] = r
                    n += 1
            if n == 0:
                continue
            inputs, out = (choice.gathered, choice.scales, n), choice.gathered_logits
            extra = (choice.gathered_sums, 4, ZERO, choice.gathered_sums + stride, 4, ZERO)
            logits(model, OUTPUT, (number, number + 1), inputs, (out - 4 * panel * number, 4 * panel), extra)
            for i in range(n):
                r = choice.gathered_rows[i]
                copy(out + 4 * panel * i, panel >> 4, choice.logits + 4 * (n_padded * r + panel * number))
                write_float(choice.shares + at + 4 * r, read_float(choice.gathered_sums + 4 * i))
                write_float(choice.peaks + at + 4 * r, read_float(choice.gathered_sums + stride + 4 * i))

    @function
    def replace(model: Any, number: Any, x: Any, m: Any, r: Any, work: Any) -> Any:
        # Logits of one panel; the sum of all exponentials is corrected for those that they replace.
        choice = work.choice
        at = choice.peaks_stride * number + 4 * r
        share, peak = choice.shares + at, choice.peaks + at
        before = read_float(share) * math.exp(read_float(peak) - read_float(choice.tops + 4 * r))
        exact(model, (number, number + 1), x, m, r, ONE, work)
        now = read_float(share) * math.exp(read_float(peak) - read_float(choice.tops + 4 * r))
        total = read_float(choice.totals + 4 * r) + (now - before)
        # Where one panel is nearly all of the sum, rounding could take more than is left.
        write_float(choice.totals + 4 * r, np.float32(max(total, now, 1e-30)))

    @function
    def refine(model: Any, settings: Any, x: Any, m: Any, r: Any, slot: Any, last: Any, work: Any) -> Any:
        # Panels 1 to ``last`` of a sentence, whose beams are rows m, ... of x: what may be chosen is computed again.
        choice, slots, screened = work.choice, work.slots, screens and model.sum_norm > 0.0
        n_beams, scores = slots.n_beams[slot], slots.score[slot]
        best_panels((ONE, last), n_beams, settings.n_beams, scores, r, choice)
        low = choice.group_value[settings.n_beams - 1]
        for k in range(n_beams):
            top, total = read_float(choice.tops + 4 * (r + k)), log_sum(choice, r + k)
            least = low - np.float32(2 * choice.bounds[r + k]) if screened else low
            for number in range(1, last):
                peak = choice.peaks + choice.peaks_stride * number + 4 * (r + k)
                if ((read_float(peak) - top) - total) + scores[k] < least:
                    write_float(peak, LOWEST32)
                elif screened and gathers and read_float(peak) >= read_float(choice.near + 4 * (r + k)):
                    continue  # exact already
                elif screened:
                    replace(model, number, x, m + k, r + k, work)
                else:
                    exact(model, (number, number + 1), x, m + k, r + k, ONE, work)

    @function
    def chosen_logits(model: Any, settings: Any, x: Any, first: Any, n_rows: Any, sentences: Any, work: Any) -> Any:
        choice, slots, n_panels = work.choice, work.slots, model.products[OUTPUT, COLUMNS] // settings.panel
        first_pass(model, n_panels, x, first, n_rows, work)
        # The panels of EOS and of words that are never chosen: what they hold is masked later.
        last = min(max(ONE, settings.n_words // settings.panel), n_panels)
        for panels in ((ZERO, ONE), (last, n_panels)):
            exact(model, panels, x, first, ZERO, n_rows, work)
        if gathers and model.sum_norm > 0.0:
            note_near(n_panels, n_rows, choice)
            replace_near(model, settings, last, x, first, n_rows, work)
        for r in range(0, n_rows, 16):
            at = 4 * r
            tops, totals = choice.tops + at, choice.totals + at
            combine_sums(choice.peaks + at, choice.shares + at, choice.peaks_stride, n_panels, tops, totals)
        r = ZERO
        for i in range(sentences[0], sentences[1]):
            slot = slots.active[i]
            refine(model, settings, x, first + r, r, slot, last, work)
            r += slots.n_beams[slot]

    return chosen_logits


@function
def _unused(*arguments: Any) -> Any:
    return
