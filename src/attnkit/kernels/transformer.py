"""A Transformer in compiled loops: the encoder and one decoder step.

Scaled dot-product attention with softmax, post- or pre-norm, any kind of positions. All data is at raw addresses, which
the caller has checked (``attnkit.compiled``); ``layout`` describes them.

Letters: M rows of a product, D model width, A heads times head width, A' those of keys and values, L layers, S source
positions, T target positions; widths are padded.
"""

from typing import Any

from attnkit.kernels.jit import no_refcount as function
from attnkit.kernels.layout import COLUMNS, OUTPUT, ZERO
from attnkit.kernels.simd import rows
from attnkit.kernels.simd.packing import KEPT_BYTES
from attnkit.kernels.simd.targets import Precision, Target
from attnkit.kernels.sublayers import NEVER, NOTHING, Sublayers, build_sublayers


def build_model(target: Target, precision: Precision) -> tuple[Any, Any]:
    """Build the encoder and the decoder step of a translation model."""
    shared = build_sublayers(target, precision)
    return _build_encode(shared, precision), _build_step(shared, precision)


def build_steps(target: Target, precision: Precision) -> dict[str, Any]:
    """Build the parts of a translation model: ``encode``, ``decode`` and ``project``.

    decode: (model, n_rows, states, max_source, n_slots, buffers, out), features (M, D) at ``out``.
    """
    shared = build_sublayers(target, precision)
    step, copy = _build_step(shared, precision), rows.copy

    @function
    def decode(model: Any, n_rows: Any, states: Any, max_source: Any, n_slots: Any, buffers: Any, out: Any) -> Any:
        step(model, n_rows, states, max_source, n_slots, buffers)
        copy(buffers.normed, n_rows * model.d_model >> 4, out)

    return {"encode": _build_encode(shared, precision), "decode": decode, "project": build_project(shared)}


def build_encoder(target: Target, precision: Precision) -> dict[str, Any]:
    """Build ``features`` of a bidirectional encoder.

    (model, sentences, first, last, n_layers, chosen, buffers, out): features of the sentences order[first:last], or of
    their ``chosen`` tokens (ascending), at ``out``. The norm at the top follows only after all layers.
    """
    run_layers, copy = _build_layers(build_sublayers(target, precision), precision), rows.copy

    @function
    def features(
        model: Any, sentences: Any, first: Any, last: Any, n_layers: Any, chosen: Any, buffers: Any, out: Any
    ) -> Any:
        _, n_rows = run_layers(model, sentences, first, last, n_layers, chosen, buffers)
        found = buffers.normed if n_layers == model.encoder_layers else buffers.x
        copy(found, n_rows * model.d_model >> 4, out)

    return {"features": features}


def build_text_layers(shared: Sublayers, precision: Precision) -> Any:
    """Build (model, n_rows, states, n_slots, buffers): layers of a GPT.

    Rows may be several tokens of a text, in their order. Returns where the output layer finds features.
    """
    linear, _, enter, project_back, feed_forward, _, _, _, embed, _ = shared
    self_attention = _build_cached_attention(shared, precision)

    @function
    def run_layers(model: Any, n_rows: Any, states: Any, n_slots: Any, buffers: Any) -> Any:
        stride = 4 * (model.d_heads + 2 * model.d_kept)
        for m in range(n_rows):
            embed(model, m, states.word[m], model.tgt_words, states.position[m], model.tgt_positions, buffers)
        x = enter(model, ZERO, n_rows, buffers)
        for layer in range(model.encoder_layers):
            linear(model, 4 * layer, (x, buffers.scales, n_rows), (buffers.wide, stride), NOTHING)
            self_attention(model, layer, n_rows, states, n_slots, buffers)
            x = project_back(model, 4 * layer + 1, 2 * layer + model.pre_norm, n_rows, buffers)
            x = feed_forward(model, 4 * layer + 2, x, 2 * layer + 1 + model.pre_norm, n_rows, buffers)
        return x

    return run_layers


def build_project(shared: Sublayers) -> Any:
    """Build (model, x, n_rows, buffers, out): logits (M, N) of features (M, D) at x."""
    linear, encode_rows = shared.linear, shared.encode_rows

    @function
    def project(model: Any, x: Any, n_rows: Any, buffers: Any, out: Any) -> Any:
        a = encode_rows(x, n_rows, model.d_model, buffers)
        linear(model, OUTPUT, (a, buffers.scales, n_rows), (out, 4 * model.products[OUTPUT, COLUMNS]), NOTHING)

    return project


def _build_layers(shared: Sublayers, precision: Precision) -> Any:
    """Build (model, sentences, first, last, n_layers, chosen, buffers): the encoder.

    The last layer is computed for the ``chosen`` rows, ascending, if there are any. Returns where the next product
    finds the features, and their number.
    """
    linear, _, enter, project_back, feed_forward, attend, rotate, keep, embed, norm_embedding = shared
    copy = rows.copy
    n_bytes = KEPT_BYTES[precision]

    @function
    def self_attention(model: Any, sentences: Any, first: Any, last: Any, layer: Any, buffers: Any) -> Any:
        a, k, m = model.d_heads, model.d_kept, 0
        stride, row_bytes = 4 * (a + 2 * k), 2 * k * n_bytes  # of all parts; of keys and values as kept
        reach, turns = NEVER, model.rotary
        if model.local_reach and layer % model.global_every:
            reach, turns = model.local_reach, model.local_rotary
        for j in range(first, last):
            s = sentences.order[j]
            n = sentences.begins[s + 1] - sentences.begins[s]
            for t in range(n):
                row = buffers.wide + stride * (m + t)  # (A + 2 A',): query, key, value
                if turns:
                    rotate(model, row, turns, t)
                keep(row + 4 * a, k >> 3, buffers.kept + row_bytes * (m + t))
            for t in range(n):
                begin, end = max(ZERO, t - reach), min(n, t + reach + 1)  # what the token attends to
                keys = buffers.kept + row_bytes * (m + begin)
                memory = (keys, keys + k * n_bytes, row_bytes, buffers.identity, end - begin)
                bias = model.src_bias + 4 * (model.bias_centre - t + begin) if model.src_bias else 0
                query, out = buffers.wide + stride * (m + t), buffers.context + 4 * a * (m + t)
                attend(model, query, memory, bias, out, ZERO, buffers)
            m += n

    @function
    def choose_rows(model: Any, chosen: Any, buffers: Any) -> Any:
        d, a = model.d_model, model.d_heads
        for i in range(len(chosen)):
            copy(buffers.context + 4 * a * chosen[i], a >> 4, buffers.context + 4 * a * i)
            copy(buffers.x + 4 * d * chosen[i], d >> 4, buffers.x + 4 * d * i)
        return len(chosen)

    @function
    def run_layers(model: Any, sentences: Any, first: Any, last: Any, n_layers: Any, chosen: Any, buffers: Any) -> Any:
        ids, begins, order = sentences.ids, sentences.begins, sentences.order
        stride, n_rows = 4 * (model.d_heads + 2 * model.d_kept), ZERO
        for j in range(first, last):
            for i in range(begins[order[j]], begins[order[j] + 1]):
                embed(model, n_rows, ids[i], model.src_words, sentences.positions[i], model.src_positions, buffers)
                n_rows += 1
        if model.src_norm:
            norm_embedding(model, model.src_norm, n_rows, buffers)
        x = enter(model, -model.skips_norm, n_rows, buffers)
        for layer in range(n_layers):
            linear(model, 4 * layer, (x, buffers.scales, n_rows), (buffers.wide, stride), NOTHING)
            self_attention(model, sentences, first, last, layer, buffers)
            if layer == n_layers - 1 and len(chosen):
                n_rows = choose_rows(model, chosen, buffers)
            x = project_back(model, 4 * layer + 1, 2 * layer + model.pre_norm, n_rows, buffers)
            x = feed_forward(model, 4 * layer + 2, x, 2 * layer + 1 + model.pre_norm, n_rows, buffers)
        return x, n_rows

    return run_layers


def _build_encode(shared: Sublayers, precision: Precision) -> Any:
    """Build (model, sentences, first, last, slots, memory, max_source, buffers).

    Encode the sentences order[first:last]. Keys and values of all decoder layers go to their slots of the memory, which
    are (2 L, max_source, A) each, keys of a layer before its values.
    """
    run_layers, linear, keep = _build_layers(shared, precision), shared.linear, shared.keep
    n_bytes = KEPT_BYTES[precision]

    @function
    def encode(
        model: Any, sentences: Any, first: Any, last: Any, slots: Any, memory: Any, max_source: Any, buffers: Any
    ) -> Any:
        begins, order, a = sentences.begins, sentences.order, model.d_heads
        x, n_rows = run_layers(model, sentences, first, last, model.encoder_layers, slots[:0], buffers)
        parts = 2 * model.decoder_layers
        linear(model, 4 * model.encoder_layers, (x, buffers.scales, n_rows), (buffers.wide, 4 * parts * a), NOTHING)
        m = 0
        for j in range(first, last):
            base = memory + slots[j - first] * parts * max_source * a * n_bytes
            for t in range(begins[order[j] + 1] - begins[order[j]]):
                for part in range(parts):
                    place = base + (part * max_source + t) * a * n_bytes
                    keep(buffers.wide + 4 * (parts * m + part) * a, a >> 4, place)
                m += 1

    return encode


def _build_cached_attention(shared: Sublayers, precision: Precision) -> Any:
    """Build (model, layer, n_rows, states, n_slots, buffers): causal self-attention.

    Row m writes its keys and values to place ``new_place[m]`` of ``cache[m]``, (2 L, n_slots, A'), and attends to
    ``n_places[m]`` places, oldest first. A row sees what the rows before it have written.
    """
    attend, rotate, keep = shared.attend, shared.rotate, shared.keep
    n_bytes = KEPT_BYTES[precision]

    @function
    def self_attention(model: Any, layer: Any, n_rows: Any, states: Any, n_slots: Any, buffers: Any) -> Any:
        a, k = model.d_heads, model.d_kept
        for m in range(n_rows):
            row, t = buffers.wide + 4 * (a + 2 * k) * m, states.position[m]  # (A + 2 A',): query, key, value
            if model.rotary:
                rotate(model, row, model.rotary, t)
            keys = states.cache[m] + 2 * layer * n_slots * k * n_bytes
            values, place = keys + n_slots * k * n_bytes, states.new_place[m] * k * n_bytes
            keep(row + 4 * a, k >> 4, keys + place)
            keep(row + 4 * (a + k), k >> 4, values + place)
            bias = model.tgt_bias + 4 * (model.bias_centre - t) if model.tgt_bias else 0
            memory = (keys, values, k * n_bytes, states.places[m], states.n_places[m])
            attend(model, row, memory, bias, buffers.context + 4 * a * m, ZERO, buffers)

    return self_attention


def _build_step(shared: Sublayers, precision: Precision) -> Any:
    """Build (model, n_rows, states, max_source, n_slots, buffers): one decoder step.

    Rows may be beams, or several tokens of a sentence in their order. Returns where the output layer finds features.
    """
    linear, _, enter, project_back, feed_forward, attend, _, _, embed, norm_embedding = shared
    self_attention, n_bytes = _build_cached_attention(shared, precision), KEPT_BYTES[precision]

    @function
    def cross_attention(model: Any, layer: Any, n_rows: Any, states: Any, max_source: Any, buffers: Any) -> Any:
        a = model.d_heads
        for m in range(n_rows):
            keys = states.memory[m] + 2 * layer * max_source * a * n_bytes
            memory = (keys, keys + max_source * a * n_bytes, a * n_bytes, buffers.identity, states.n_source[m])
            shown = states.weights[m] if layer == model.decoder_layers - 1 else 0
            attend(model, buffers.wide + 4 * a * m, memory, ZERO, buffers.context + 4 * a * m, shown, buffers)

    @function
    def step(model: Any, n_rows: Any, states: Any, max_source: Any, n_slots: Any, buffers: Any) -> Any:
        a, first = model.d_heads, 4 * model.encoder_layers + 1
        for m in range(n_rows):
            embed(model, m, states.word[m], model.tgt_words, states.position[m], model.tgt_positions, buffers)
        if model.tgt_norm:
            norm_embedding(model, model.tgt_norm, n_rows, buffers)
        norm = 2 * model.encoder_layers + model.pre_norm
        x = enter(model, norm, n_rows, buffers)
        norm += model.pre_norm
        for layer in range(model.decoder_layers):
            i = first + 6 * layer
            linear(model, i, (x, buffers.scales, n_rows), (buffers.wide, 4 * (a + 2 * model.d_kept)), NOTHING)
            self_attention(model, layer, n_rows, states, n_slots, buffers)
            x = project_back(model, i + 1, norm, n_rows, buffers)
            linear(model, i + 2, (x, buffers.scales, n_rows), (buffers.wide, 4 * a), NOTHING)
            cross_attention(model, layer, n_rows, states, max_source, buffers)
            x = project_back(model, i + 3, norm + 1, n_rows, buffers)
            x = feed_forward(model, i + 4, x, norm + 2, n_rows, buffers)
            norm += 3
        return x

    return step
