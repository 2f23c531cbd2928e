"""Greedy and beam search in compiled loops, with continuous batching.

A thread works on up to R sentences at once. One that ends leaves its slot, and as soon as enough slots are free the
thread takes the next sentences of all threads' queue and encodes them together. Short sentences never wait for long
ones, and results do not depend on the batch.

Letters: R slots, K beams, N padded words, P columns of a panel.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import COLUMNS, LOGIT_ROWS, NEXT, OUTPUT, STOP, ZERO
from attnkit.kernels.output_layer import OutputLoops, build_output_layer
from attnkit.kernels.search_rules import (
    LOWEST32,
    advance,
    argmax,
    best_word,
    choose_continuations,
    log_sum,
    mask_words,
    note_ends,
    write_results,
)  # fmt: skip
from attnkit.kernels.simd.rows import publish_number, read_float, replace_number
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.kernels.transformer import build_model
from attnkit.protocols import BOS_ID, EOS_ID


def build_searches(target: Target, precision: Precision) -> dict[str, Any]:
    """Build searches: (model, sentences, settings, work, results, shared)."""
    encode, step = build_model(target, precision)

    @function
    def encode_sources(model: Any, sentences: Any, settings: Any, first: Any, last: Any, new: Any, work: Any) -> Any:
        encode(model, sentences, first, last, new, work.memory, settings.max_source, work.buffers)

    @function
    def greedy_step(model: Any, n_rows: Any, settings: Any, work: Any) -> Any:
        return step(model, n_rows, work.states, settings.max_source, settings.max_steps, work.buffers)

    refill, output = build_refill(encode_sources), build_output_layer(target, precision)
    return {
        "greedy": build_greedy(refill, fill_row, greedy_step, output),
        "beam": _build_beam(refill, step, output.logits),
    }


def build_refill(encode: Any) -> Any:
    """Build (model, sentences, settings, work, n_free, n_active, shared).

    Encode the next sentences by (model, sentences, settings, first, last, their slots, work). Nothing happens until
    enough slots are free. Returns the new n_free and n_active.
    """

    @function
    def refill(model: Any, sentences: Any, settings: Any, work: Any, n_free: Any, n_active: Any, shared: Any) -> Any:
        slots, n_sentences = work.slots, len(sentences.order)
        while True:
            at = shared[NEXT]
            left = n_sentences - at
            if left <= 0 or n_free < min(max(settings.n_used // 4, 1), left):
                break
            n, n_tokens = 0, 0
            while n < min(n_free, left):
                s = sentences.order[at + n]
                n_tokens += sentences.begins[s + 1] - sentences.begins[s]
                if n and n_tokens > settings.max_encoded:
                    break
                n += 1
            if not replace_number(shared.ctypes.data + 8 * NEXT, at, at + n):
                continue  # another thread has taken them
            for j in range(n):
                n_free -= 1
                slot = slots.free[n_free]
                slots.active[n_active + j] = slot
                slots.sentence[slot], slots.step[slot], slots.n_beams[slot] = sentences.order[at + j], 0, 1
                slots.n_ended[slot], slots.side[slot], slots.score[slot, 0] = 0, 0, np.float32(0.0)
            new = slots.active[n_active : n_active + n]
            encode(model, sentences, settings, at, at + n, new, work)
            n_active += n
        return n_free, n_active

    return refill


@function
def free_all(settings: Any, slots: Any) -> Any:
    """Free all slots in use; return their number."""
    for slot in range(settings.n_used):
        slots.free[slot] = settings.n_used - 1 - slot
    return settings.n_used


@function
def fill_row(model: Any, sentences: Any, settings: Any, work: Any, m: Any, slot: Any, beam: Any) -> Any:
    """Describe a beam as row m of the next step, all but the places it attends to."""
    states, slots = work.states, work.slots
    s, t, k = slots.sentence[slot], slots.step[slot], settings.n_beams
    of_position = 2 * model.decoder_layers * model.d_heads * settings.kept_bytes
    states.word[m] = slots.words[slot, t - 1, beam] if t else BOS_ID
    states.position[m], states.new_place[m], states.n_places[m] = t, t * k + beam, t + 1
    states.cache[m] = work.cache + slot * settings.max_steps * k * of_position
    states.memory[m] = work.memory + slot * settings.max_source * of_position
    states.n_source[m] = sentences.begins[s + 1] - sentences.begins[s]


def build_greedy(refill: Any, fill_row: Any, step: Any, output: OutputLoops) -> Any:
    """Build greedy search; it computes log-probabilities only if they are asked for.

    step: (model, n_rows, settings, work), returns where the output layer finds features.
    """
    output_logits, output_peaks = output.logits, output.peaks

    @function
    def scored_word(model: Any, settings: Any, m: Any, slot: Any, work: Any) -> Any:
        choice, slots, r = work.choice, work.slots, m % LOGIT_ROWS
        row = choice.logits + 4 * model.products[OUTPUT, COLUMNS] * r
        end = read_float(row + 4 * EOS_ID)
        mask_words(model, settings, row, r, choice)
        word, value = best_word(model, settings, row, r, choice)
        # EOS has the lowest id of all that may be chosen, so it wins a tie.
        if slots.step[slot] >= settings.min_length and end >= value:
            word, value = EOS_ID, end
        slots.score[slot, 0] += (value - read_float(choice.tops + 4 * r)) - log_sum(choice, r)
        return word

    @function
    def write_result(settings: Any, slot: Any, t: Any, word: Any, sentences: Any, slots: Any, results: Any) -> Any:
        s, n = slots.sentence[slot], t + (word != EOS_ID)
        for u in range(n):
            results.ids[results.begins[s] + u] = slots.words[slot, u, 0]
        for u in range(t + 1):
            results.token_scores[results.begins[s] + u] = slots.past_scores[slot, u, 0]
        results.steps[s, 0], results.finished[s, 0] = t + 1, word == EOS_ID
        results.log_probs[s, 0] = slots.score[slot, 0]
        publish_number(results.lengths.ctypes.data + 8 * s, n)  # last: it says that the result is there

    @function
    def greedy(model: Any, sentences: Any, settings: Any, work: Any, results: Any, shared: Any) -> Any:
        slots, choice, panel = work.slots, work.choice, settings.panel
        n_free, n_active = free_all(settings, slots), ZERO
        while shared[STOP] == 0:
            n_free, n_active = refill(model, sentences, settings, work, n_free, n_active, shared)
            if n_active == 0:
                break
            for m in range(n_active):
                fill_row(model, sentences, settings, work, m, slots.active[m], ZERO)
                work.states.places[m] = work.buffers.identity
            x = step(model, n_active, settings, work)
            if not settings.scores:
                output_peaks(model, settings, x, n_active, work)
            kept = 0
            for m in range(n_active):
                slot = slots.active[m]
                t = slots.step[slot]
                if settings.scores:
                    if m % LOGIT_ROWS == 0:
                        n = min(LOGIT_ROWS, n_active - m)
                        output_logits(model, settings, x, m, n, (m, m + n), work)
                    word = scored_word(model, settings, m, slot, work)
                else:
                    word = panel * choice.panel_number[m] + argmax(choice.best_panel + 4 * panel * m, panel)
                    word = min(word, settings.n_words - 1)  # logits that are not finite have no largest
                slots.words[slot, t, 0], slots.step[slot] = word, t + 1
                slots.past_scores[slot, t, 0] = slots.score[slot, 0]
                if word != EOS_ID and t + 1 < sentences.limits[slots.sentence[slot]]:
                    slots.active[kept] = slot
                    kept += 1
                    continue
                write_result(settings, slot, t, word, sentences, slots, results)
                slots.free[n_free] = slot
                n_free += 1
            n_active = kept

    return greedy


@function
def fill_rows(model: Any, sentences: Any, settings: Any, work: Any, n_active: Any) -> Any:
    """Describe all beams as rows of the next step; return their number."""
    slots, n_rows, k_beams = work.slots, ZERO, settings.n_beams
    row_bytes = 4 * slots.ancestors.shape[3]
    for i in range(n_active):
        slot = slots.active[i]
        t, side = slots.step[slot], slots.side[slot]
        for k in range(slots.n_beams[slot]):
            fill_row(model, sentences, settings, work, n_rows, slot, k)
            slots.ancestors[side, slot, k, t] = t * k_beams + k
            row = (side * settings.n_slots + slot) * k_beams + k
            work.states.places[n_rows] = slots.ancestors.ctypes.data + row * row_bytes
            n_rows += 1
    return n_rows


@function
def expand(model: Any, sentences: Any, settings: Any, work: Any, slot: Any, first: Any) -> Any:
    """Expand a sentence, its logits at row ``first``; return whether it is done."""
    slots, choice, n_padded = work.slots, work.choice, model.products[OUTPUT, COLUMNS]
    t, n_beams = slots.step[slot], slots.n_beams[slot]
    for k in range(n_beams):
        row, top = choice.logits + 4 * n_padded * (first + k), read_float(choice.tops + 4 * (first + k))
        end = ((read_float(row + 4 * EOS_ID) - top) - log_sum(choice, first + k)) + slots.score[slot, k]
        choice.end[k] = end if t >= settings.min_length else LOWEST32
        mask_words(model, settings, row, first + k, choice)
    choose_continuations(model, settings, n_beams, slots.score[slot], first, choice)
    last = t + 1 >= sentences.limits[slots.sentence[slot]]
    note_ends(settings, slot, last, n_beams, n_padded, slots, choice)
    if last or slots.n_ended[slot] >= settings.n_beams or choice.value[0] <= LOWEST32:
        return True
    advance(settings, slot, n_padded, slots, choice)
    return False


def _build_beam(refill: Any, step: Any, output_logits: Any) -> Any:
    """Build beam search with the rules of ``attnkit.decoding.beam``."""

    @function
    def beam(model: Any, sentences: Any, settings: Any, work: Any, results: Any, shared: Any) -> Any:
        slots = work.slots
        n_free, n_active = free_all(settings, slots), ZERO
        while shared[STOP] == 0:
            n_free, n_active = refill(model, sentences, settings, work, n_free, n_active, shared)
            if n_active == 0:
                break
            n_rows = fill_rows(model, sentences, settings, work, n_active)
            n_slots = settings.max_steps * settings.n_beams
            x = step(model, n_rows, work.states, settings.max_source, n_slots, work.buffers)
            kept, row, block, n_block = 0, ZERO, ZERO, ZERO
            for i in range(n_active):
                slot = slots.active[i]
                if row == block + n_block:  # logits of the next sentences, as many as fit
                    block, n_block, j = row, 0, i
                    while j < n_active and n_block < LOGIT_ROWS:
                        n_block += slots.n_beams[slots.active[j]]
                        j += 1
                    output_logits(model, settings, x, block, n_block, (np.int64(i), np.int64(j)), work)
                n_beams = slots.n_beams[slot]
                done = expand(model, sentences, settings, work, slot, row - block)
                row += n_beams
                if done:
                    write_results(settings, slot, sentences, slots, results)
                    slots.free[n_free] = slot
                    n_free += 1
                else:
                    slots.active[kept] = slot
                    kept += 1
            n_active = kept

    return beam
