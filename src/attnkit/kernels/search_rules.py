"""Choice of words in compiled searches, by the rules of ``attnkit.decoding``.

A log-probability is that of the whole vocabulary; PAD, BOS, ids that only pad the vocabulary and, if asked for, UNK are
never chosen; among equals the lower beam * V + word comes first; a sentence is done as soon as it has K finished
translations.

Letters: K beams, V words, N padded words, P columns of a panel.
"""

import math
from typing import Any

import numpy as np

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import COLUMNS, OUTPUT, ZERO
from attnkit.kernels.simd.packing import LOWEST
from attnkit.kernels.simd.rows import publish_number, read_float, write_float
from attnkit.protocols import EOS_ID

LOWEST32 = np.float32(LOWEST)  #: numba takes a Python float as float64, and sums with it, too
STEP, BEAM, WORD, FINISHED = range(4)  #: columns of ``Slots.ended``


@function
def argmax(base: Any, n: Any) -> Any:
    """Return the index of the largest of n floats, the first among equals."""
    best, value = 0, read_float(base)
    for j in range(1, n):
        x = read_float(base + 4 * j)
        if x > value:
            best, value = j, x
    return best


@function
def log_sum(choice: Any, row: Any) -> Any:
    """Return the log of a row's sum of exponentials, relative to its peak."""
    return np.float32(math.log(np.float64(read_float(choice.totals + 4 * row))))


@function
def mask_words(model: Any, settings: Any, row: Any, m: Any, choice: Any) -> Any:
    """Mask EOS and words never chosen in row m of the logits and its peaks."""
    n, panel = model.products[OUTPUT, COLUMNS], settings.panel
    for word in range(settings.first_word):
        write_float(row + 4 * word, LOWEST32)
    for word in range(settings.n_words, n):
        write_float(row + 4 * word, LOWEST32)
    first = settings.n_words // panel
    for number in range(n // panel):
        if number == 0 or number >= first:
            at = row + 4 * panel * number
            peak = read_float(at + 4 * argmax(at, panel))
            write_float(choice.peaks + number * choice.peaks_stride + 4 * m, peak)


@function
def best_word(model: Any, settings: Any, row: Any, m: Any, choice: Any) -> Any:
    """Return the word with the largest logit of row m, and that logit."""
    best, value, panel = 0, np.float32(-np.inf), settings.panel
    for number in range(model.products[OUTPUT, COLUMNS] // panel):
        peak = read_float(choice.peaks + number * choice.peaks_stride + 4 * m)
        if peak > value:
            best, value = number, peak
    return panel * best + argmax(row + 4 * panel * best, panel), value


@function
def best_panels(panels: Any, n_beams: Any, n_chosen: Any, scores: Any, first: Any, choice: Any) -> Any:
    """Find the panels of a range with the best sums of score and log-probability.

    ``group_place``: beam * the end of the range + panel.
    """
    for c in range(n_chosen):
        choice.group_value[c], choice.group_place[c] = LOWEST32, 0
    for k in range(n_beams):
        top, total = read_float(choice.tops + 4 * (first + k)), log_sum(choice, first + k)
        for number in range(panels[0], panels[1]):
            peak = read_float(choice.peaks + number * choice.peaks_stride + 4 * (first + k))
            x = ((peak - top) - total) + scores[k]
            if x > choice.group_value[n_chosen - 1]:
                c = n_chosen - 1
                while c > 0 and choice.group_value[c - 1] < x:
                    choice.group_value[c], choice.group_place[c] = choice.group_value[c - 1], choice.group_place[c - 1]
                    c -= 1
                choice.group_value[c], choice.group_place[c] = x, k * panels[1] + number


@function
def choose_continuations(model: Any, settings: Any, n_beams: Any, scores: Any, first: Any, choice: Any) -> Any:
    """Find the K best sums of beam score and log-probability, without EOS.

    Rows first, first + 1, ... of the logits are those of the beams. Only the panels with the K highest peaks can hold
    the best words.
    """
    n_padded, panel, n_chosen = model.products[OUTPUT, COLUMNS], settings.panel, settings.n_beams
    n_panels = n_padded // panel
    best_panels((ZERO, n_panels), n_beams, n_chosen, scores, first, choice)
    for c in range(n_chosen):
        choice.value[c], choice.flat[c] = LOWEST32, 0
    last = n_chosen - 1
    for g in range(n_chosen):
        if choice.group_value[g] <= LOWEST32:
            break
        k = choice.group_place[g] // n_panels
        base = panel * (choice.group_place[g] - k * n_panels)
        top, total = read_float(choice.tops + 4 * (first + k)), log_sum(choice, first + k)
        row = choice.logits + 4 * (n_padded * (first + k) + base)
        for j in range(panel):
            # Masked words are among the largest if all logits are below that of a masked one.
            if base + j < settings.first_word or base + j >= settings.n_words:
                continue
            x, flat = ((read_float(row + 4 * j) - top) - total) + scores[k], k * n_padded + base + j
            if x <= LOWEST32 or not _precedes(x, flat, choice.value[last], choice.flat[last]):
                continue
            c = last
            while c > 0 and _precedes(x, flat, choice.value[c - 1], choice.flat[c - 1]):
                choice.value[c], choice.flat[c] = choice.value[c - 1], choice.flat[c - 1]
                c -= 1
            choice.value[c], choice.flat[c] = x, flat


@function
def _precedes(x: Any, flat: Any, other: Any, other_flat: Any) -> Any:
    return x > other or (x == other and flat < other_flat)


@function
def _note_end(slots: Any, settings: Any, slot: Any, end: Any, log_prob: Any) -> Any:
    """Record the end of a translation: (step, beam, word, finished)."""
    i = slots.n_ended[slot]
    for column in range(4):
        slots.ended[slot, i, column] = end[column]
    slots.ended_log_prob[slot, i] = log_prob
    slots.ended_score[slot, i] = np.float64(log_prob) / np.float64(end[STEP] + 1) ** settings.length_penalty
    slots.n_ended[slot] = i + 1


@function
def note_ends(settings: Any, slot: Any, last: Any, n_beams: Any, n_padded: Any, slots: Any, choice: Any) -> Any:
    """Note the ends among the best K candidates; at the limit note all K."""
    c, t = 0, slots.step[slot]
    for _ in range(settings.n_beams):
        k = 0
        for other in range(1, n_beams):
            if choice.end[other] > choice.end[k]:
                k = other
        end, value, flat = choice.end[k], LOWEST32, np.int64(0)
        if c < settings.n_beams:
            value, flat = choice.value[c], choice.flat[c]
        if end <= LOWEST32 and value <= LOWEST32:
            break
        if _precedes(end, k * n_padded + EOS_ID, value, flat):
            _note_end(slots, settings, slot, (t, k, EOS_ID, 1), end)
            choice.end[k] = LOWEST32
        else:
            if last:
                _note_end(slots, settings, slot, (t, flat // n_padded, flat % n_padded, 0), value)
            c += 1


@function
def advance(settings: Any, slot: Any, n_padded: Any, slots: Any, choice: Any) -> Any:
    """Extend the beams of a slot by the chosen words."""
    t, side = slots.step[slot], slots.side[slot]
    for c in range(settings.n_beams):
        parent = choice.flat[c] // n_padded
        slots.score[slot, c] = slots.past_scores[slot, t, c] = choice.value[c]
        slots.words[slot, t, c], slots.parents[slot, t, c] = choice.flat[c] - parent * n_padded, parent
        # Keys and values stay where they are: a beam inherits the places of its past.
        for u in range(t + 1):
            slots.ancestors[1 - side, slot, c, u] = slots.ancestors[side, slot, parent, u]
    slots.side[slot], slots.n_beams[slot], slots.step[slot] = 1 - side, settings.n_beams, t + 1


@function
def write_results(settings: Any, slot: Any, sentences: Any, slots: Any, results: Any) -> Any:
    """Write the best translations of a slot; the first to end wins ties."""
    s, length = slots.sentence[slot], -1
    for rank in range(settings.n_results):
        best = -1
        for i in range(slots.n_ended[slot]):
            left = slots.ended[slot, i, FINISHED] >= 0
            if left and (best < 0 or slots.ended_score[slot, i] > slots.ended_score[slot, best]):
                best = i
        if best < 0:
            continue  # its length stays -1
        t, beam, word = slots.ended[slot, best, STEP], slots.ended[slot, best, BEAM], slots.ended[slot, best, WORD]
        begin = results.begins[s] + rank * sentences.limits[s]
        results.token_scores[begin + t] = slots.ended_log_prob[slot, best]
        if word != EOS_ID:
            results.ids[begin + t] = word
        for u in range(t - 1, -1, -1):
            results.ids[begin + u] = slots.words[slot, u, beam]
            results.token_scores[begin + u] = slots.past_scores[slot, u, beam]
            beam = slots.parents[slot, u, beam]
        if rank == 0:
            length = t + (word != EOS_ID)
        else:
            results.lengths[s, rank] = t + (word != EOS_ID)
        results.steps[s, rank] = t + 1
        results.log_probs[s, rank] = slots.ended_log_prob[slot, best]
        results.finished[s, rank] = slots.ended[slot, best, FINISHED]
        slots.ended[slot, best, FINISHED] = -1
    # Last: it says that the results are there.
    publish_number(results.lengths.ctypes.data + 8 * s * settings.n_results, length)
