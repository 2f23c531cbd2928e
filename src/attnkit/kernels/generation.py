"""A causal language model in compiled loops: steps, and greedy search.

Letters: M rows of a product, D model width, L layers.
"""

from typing import Any

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import ZERO
from attnkit.kernels.output_layer import build_output_layer
from attnkit.kernels.simd import rows
from attnkit.kernels.simd.packing import KEPT_BYTES
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.kernels.sublayers import build_sublayers
from attnkit.kernels.transformer import build_project, build_text_layers
from attnkit.kernels.translation import build_greedy, build_refill


def build_generator(target: Target, precision: Precision) -> dict[str, Any]:
    """Build ``extend``, ``project`` and ``greedy`` of a causal language model.

    extend: (model, n_rows, states, n_slots, buffers, out), features (M, D) at ``out``. Rows may be several tokens of a
    text, in their order. greedy: as the search of ``translation``, where sentences are prompts.
    """
    shared = build_sublayers(target, precision)
    run_layers, copy, kept_bytes = build_text_layers(shared, precision), rows.copy, KEPT_BYTES[precision]

    @function
    def extend(model: Any, n_rows: Any, states: Any, n_slots: Any, buffers: Any, out: Any) -> Any:
        run_layers(model, n_rows, states, n_slots, buffers)
        copy(buffers.normed, n_rows * model.d_model >> 4, out)

    @function
    def cache_of(model: Any, settings: Any, work: Any, slot: Any) -> Any:
        # The address of a text's keys and values.
        n_places = 2 * model.encoder_layers * (settings.max_source + settings.max_steps)
        return work.cache + slot * n_places * model.d_kept * kept_bytes

    @function
    def fill_row(model: Any, sentences: Any, settings: Any, work: Any, m: Any, slot: Any, beam: Any) -> Any:
        # The last token of a text, which its first step reads, or the newest one.
        states, slots = work.states, work.slots
        s, t = slots.sentence[slot], slots.step[slot]
        last = sentences.begins[s + 1] - 1
        position = last - sentences.begins[s] + t
        states.word[m] = slots.words[slot, t - 1, beam] if t else sentences.ids[last]
        states.position[m], states.new_place[m], states.n_places[m] = position, position, position + 1
        states.cache[m] = cache_of(model, settings, work, slot)

    @function
    def step(model: Any, n_rows: Any, settings: Any, work: Any) -> Any:
        return run_layers(model, n_rows, work.states, settings.max_source + settings.max_steps, work.buffers)

    @function
    def read_prompts(model: Any, sentences: Any, settings: Any, first: Any, last: Any, new: Any, work: Any) -> Any:
        # All tokens but the last one of each prompt.
        states, begins, n_rows = work.states, sentences.begins, ZERO
        for j in range(first, last):
            s = sentences.order[j]
            cache = cache_of(model, settings, work, new[j - first])
            for t in range(begins[s + 1] - begins[s] - 1):
                states.word[n_rows], states.cache[n_rows] = sentences.ids[begins[s] + t], cache
                states.position[n_rows], states.new_place[n_rows], states.n_places[n_rows] = t, t, t + 1
                states.places[n_rows] = work.buffers.identity
                n_rows += 1
        step(model, n_rows, settings, work)

    greedy = build_greedy(build_refill(read_prompts), fill_row, step, build_output_layer(target, precision))
    return {"extend": extend, "project": build_project(shared), "greedy": greedy}
