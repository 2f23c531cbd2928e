"""Data layout shared by compiled loops and their callers, without numba.

Named tuples of integers and arrays: compiled code takes them apart. Integers are addresses of float32 unless said
otherwise, 0 where there is nothing. All widths are padded (``attnkit.kernels.simd.targets.PANEL``).

Letters: M rows, N columns and K inputs of a product, V words, D model width, A heads times head width, F inner width,
L layers, R sentences that a thread works on, K beams of each, T steps, P columns of a panel. A' is A of the heads of
keys and values, which are fewer where groups of heads share them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# numba compiles a function again for a literal: numbers that functions take are of this type.
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
WEIGHTS, START, SCALE, BIAS, COLUMNS, INPUTS = range(6)  #: columns of ``Model.products``
NORM_MASK = 16  #: floats before the mask of columns in ``Model.norm_constants``
SCREEN, PEAK_SCREEN, OUTPUT, PEAK_OUTPUT = -4, -3, -2, -1  #: rows of ``Model.products``: the output layer
GAMMA, BETA = range(2)  #: columns of ``Model.norms``
RELU, GELU, SILU, GELU_TANH = range(4)  #: ``Model.activation``


class Model(NamedTuple):
    """A packed model; an address of 0 means that the model has no such part.

    ``products`` are those of the encoder's layers, the memory's keys and values of all decoder layers, those of the
    decoder's layers, the output layer, and the output layer again with the bias of words that may never be chosen at
    the lowest; for screening, both also in narrower formats, before them. ``norms`` are those of the encoder's
    sublayers, its top (pre-norm), the decoder's, its top, and those of the embeddings.
    """

    products: NDArray[np.int64]  #: (n, 6): addresses, columns N and inputs K
    norms: NDArray[np.int64]  #: (n, 2): addresses
    d_model: int  #: D
    n_heads: int
    d_head: int  #: floats of a head, padded
    d_heads: int  #: A
    group: int  #: heads that share keys and values; 1: none do
    d_kept: int  #: A'
    d_inner: int  #: F
    gated: int  #: 1: the first product of a feed-forward sublayer has F columns more, which multiply its activation
    encoder_layers: int
    decoder_layers: int
    pre_norm: int  #: 1 or 0
    skips_norm: int  #: 1: the first product reads the embeddings, which have a norm of their own (pre-norm)
    activation: int
    norm_constants: int  #: ``rows.make_norm``; from ``NORM_MASK`` on 1 for each column, 0 for padding
    src_words: int  #: (V, D), scaled as the model scales its embeddings
    tgt_words: int
    src_positions: int  #: (positions, D)
    tgt_positions: int
    rotary: int  #: (positions, 2, d_head / 2): sines, then cosines; 0: no rotation
    local_rotary: int  #: the same of local layers
    local_reach: int  #: tokens per side that a token of a local layer attends to; 0: no layer is local
    global_every: int  #: with local layers: every n-th from the first on is none
    src_bias: int  #: (heads, distances); the distance 0 is at ``bias_centre``
    tgt_bias: int
    bias_stride: int  #: bytes per head
    bias_centre: int
    src_norm: int  #: row of ``norms`` of the source's embeddings; 0: none
    tgt_norm: int  #: that of the target's embeddings
    peak_norm: float  #: ``PEAK_SCREEN``: the largest length of a column; 0: no screening
    peak_error: float  #: the largest length of what its format leaves out of a column
    sum_norm: float  #: the same of ``SCREEN``
    sum_error: float


class Buffers(NamedTuple):
    """Addresses of working memory for M rows, padded to whole tiles."""

    x: int  #: (M, D): the residual stream
    normed: int  #: (M, D): what a norm gives; x itself where norms come after
    encoded: int  #: (M, max(D, A, F)) inputs of the next product as it reads them
    scales: int  #: (M,)
    y: int  #: (M, D): what a sublayer adds
    wide: int  #: (M, max(A + 2 A', F, 2 L A)), or 2 F with gates: the widest product
    kept: int  #: (M, 2 A'): the encoder's keys and values as attention reads them
    context: int  #: (M, A)
    lists: int  #: groups of inputs of a sparse product (``packing.list_bytes``), for each tile of rows
    weights: int  #: attention weights of one query, (heads, positions rounded up to a multiple of 32)
    identity: int  #: int32: 0, 1, 2, ...


STOP, NEXT = range(2)  #: what threads share: whether to stop, and the next sentence of the order
LOGIT_ROWS = 160  #: rows of logits in memory at once, but for the beams of one more sentence
# Dimensions of the arrays below, where they are not 1; ``compile`` needs them.
DIMENSIONS = {
    **dict.fromkeys(("products", "norms", "score", "lengths", "log_probs", "steps", "finished"), 2),
    **dict.fromkeys(("ended_log_prob", "ended_score"), 2),
    **dict.fromkeys(("words", "parents", "past_scores", "ended"), 3),
    "ancestors": 4,
}


class Sentences(NamedTuple):
    """Encoded sentences, EOS included, or prompts without it, and their limits."""

    ids: NDArray[np.int32]  #: of all sentences
    positions: NDArray[np.int32]  #: of all ids: the row of the position table that is added
    begins: NDArray[np.int64]  #: (n + 1,): where each begins
    order: NDArray[np.int64]  #: the sentences to translate, in this order
    limits: NDArray[np.int64]  #: (n,): most steps of each


class Settings(NamedTuple):
    """Settings of a search, and the sizes of its memory."""

    n_slots: int  #: R
    n_used: int  #: of these, as many as keep all threads busy
    n_beams: int  #: K
    n_results: int  #: translations kept of each sentence
    first_word: int  #: words below this id are never chosen, but for EOS
    n_words: int  #: words from this id on are never chosen
    min_length: int  #: EOS is not chosen before this step
    length_penalty: float
    scores: int  #: greedy: 1 if log-probabilities are asked for
    max_source: int  #: longest source
    max_steps: int  #: largest limit
    max_encoded: int  #: most tokens that are encoded together
    panel: int  #: P
    extra_rows: int  #: rows behind the last one that a product may read or write
    lane_bytes: int  #: bytes of one input of a product
    kept_bytes: int  #: bytes of one number of a key or value


class States(NamedTuple):
    """Rows of a step, (R K,) int64 each; of a GPT as many as are read at once."""

    word: NDArray[np.int64]
    position: NDArray[np.int64]
    new_place: NDArray[np.int64]  #: where the row's keys and values go
    cache: NDArray[np.int64]  #: address of the slot's past keys and values
    memory: NDArray[np.int64]  #: address of the sentence's keys and values
    n_source: NDArray[np.int64]
    n_places: NDArray[np.int64]
    places: NDArray[np.int64]  #: address of the int32 numbers of places that the row attends to
    weights: NDArray[np.int64]  #: where the last layer's attention to the source is added; 0: nowhere


class Slots(NamedTuple):
    """What a search knows of the sentence in each slot, and what it kept of each step."""

    active: NDArray[np.int64]  #: (R,): slots in use, in the order of rows
    free: NDArray[np.int64]  #: (R,): a stack
    sentence: NDArray[np.int64]  #: (R,)
    step: NDArray[np.int64]  #: (R,)
    n_beams: NDArray[np.int64]  #: (R,): 1 at first
    n_ended: NDArray[np.int64]  #: (R,)
    side: NDArray[np.int64]  #: (R,): which half of ``ancestors`` is in use
    score: NDArray[np.float32]  #: (R, K)
    words: NDArray[np.int32]  #: (R, T, K)
    parents: NDArray[np.int32]  #: (R, T, K)
    past_scores: NDArray[np.float32]  #: (R, T, K): log-probability of each beam after each step
    ancestors: NDArray[np.int32]  #: (2, R, K, T rounded up): places of each beam's past
    ended: NDArray[np.int64]  #: (R, 2 K, 4): step, beam, word, whether EOS ended it
    ended_log_prob: NDArray[np.float32]  #: (R, 2 K)
    ended_score: NDArray[np.float64]  #: (R, 2 K)


class Choice(NamedTuple):
    """Working memory of the choice of words. Addresses are of float32."""

    logits: int  #: (LOGIT_ROWS + K, N), those of some panels
    peaks: int  #: (N / P, LOGIT_ROWS + K): the largest logit of each panel
    peaks_stride: int  #: bytes from one panel to the next
    shares: int  #: (N / P, LOGIT_ROWS + K): the sum of exponentials of each panel, relative to its peak
    tops: int  #: (LOGIT_ROWS + K,): each row's largest logit
    totals: int  #: (LOGIT_ROWS + K,): its sum of exponentials, relative to that
    best_panel: int  #: greedy without scores: (R, P)
    best: int  #: (R,): its largest
    panel_number: NDArray[np.int64]  #: (R,)
    group_value: NDArray[np.float32]  #: (K,)
    group_place: NDArray[np.int64]  #: (K,): beam * panels + panel
    value: NDArray[np.float32]  #: (K,)
    flat: NDArray[np.int64]  #: (K,): beam * N + word
    end: NDArray[np.float32]  #: (K,): log-probability of each beam's end
    encoded: int  #: screening: (LOGIT_ROWS + K, D) uint8 or int16
    scales: int  #: (LOGIT_ROWS + K,)
    squares: int  #: (2,): squared lengths of a rounding error and of its row
    bounds: NDArray[np.float64]  #: (LOGIT_ROWS + K,): of the error of a row's logits
    near: int  #: (LOGIT_ROWS + K,): panels with peaks from here on are exact
    gathered: int  #: (LOGIT_ROWS + K, D): inputs of rows that need the same panel
    gathered_rows: NDArray[np.int64]  #: (LOGIT_ROWS + K,): their numbers
    gathered_logits: int  #: (LOGIT_ROWS + K, P)
    gathered_sums: int  #: (2, LOGIT_ROWS + K): shares and peaks


class Work(NamedTuple):
    """Working memory of one thread."""

    memory: int  #: keys and values of sources, (R, 2 L, max_source, A), in the precision of ``kept_bytes``; GPT: none
    cache: int  #: keys and values of steps, (R, 2 L, max_steps K, A); of a GPT (R, 2 L, max_source + max_steps, A')
    states: States
    slots: Slots
    choice: Choice
    buffers: Buffers


class Results(NamedTuple):
    """Translations, sentence by sentence."""

    ids: NDArray[np.int32]  #: of all sentences and ranks
    token_scores: NDArray[np.float32]  #: log-probability of each translation after each of its tokens, EOS included
    begins: NDArray[np.int64]  #: (n,): where the first translation of a sentence begins; ranks are ``limits`` apart
    lengths: NDArray[np.int64]  #: (n, n_results): words without EOS; -1: no such translation
    log_probs: NDArray[np.float64]  #: (n, n_results)
    steps: NDArray[np.int64]  #: (n, n_results): words with EOS
    finished: NDArray[np.int64]  #: (n, n_results): 1 if EOS ended it, 0 if the limit did
