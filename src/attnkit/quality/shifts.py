"""Shifts between the sides of a corpus, from the lengths and marks of lines alone.

A shift d at source line i says that target line i + d belongs to it. Every line has a log likelihood ratio for every
shift; the most probable course of shifts through the file is a Viterbi path over windows of lines. Only where numbers
agree better than by chance does a shift earn more than the state "unknown", whose evidence is 0.

Letters: N lines, W windows, D shifts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnkit.quality.lines import QUESTION, Floats, Ints, Side

WINDOW = 16  #: lines per window
MAX_SHIFT = 64  #: largest shift that is tried everywhere
CHANGE = 12.0  #: evidence in nats that a change of shift costs
_ROUNDS = 3  # of estimating correlations and shifts in turn
_AROUND = 256  # lines before and after a line that its lengths and marks are compared with
_SHARED_LINES = 4  # lines of a window whose words are compared
_SHARED_PAIRS = 1_000_000  # pairs of lines whose words are compared in all


@dataclass(frozen=True)
class Course:
    """Shifts of windows of lines."""

    shifts: Ints  #: (W,) shift of each window, 0 where it is unknown
    evidence: Floats  #: (W,) evidence of its shift in nats, 0 where no shift is better than chance


def find_course(src: Side, tgt: Side, max_shift: int = MAX_SHIFT) -> Course:
    """Return the most probable course of shifts by lengths, marks and words."""
    marks = [side.marks(np.arange(len(side))).astype(np.float64) for side in (src, tgt)]
    measures = [_standardized(src.lengths, tgt.lengths)]
    measures += [_standardized(marks[0][:, column], marks[1][:, column]) for column in (0, 1)]
    measures.append(_standardized(*((side[:, 2] == QUESTION).astype(np.float64) for side in marks)))
    shifts = np.arange(-max_shift, max_shift + 1)
    hits, compared = shared_words(src, tgt, shifts)
    by_chance = float(hits.sum() / max(1.0, compared.sum()))
    correlations = [0.5] + [0.3] * (len(measures) - 1)
    share = max(0.3, min(0.9, 3 * by_chance))  # of right pairs that share a word
    n_windows = -(-len(src) // WINDOW)
    states, gains = np.zeros(n_windows, np.int64), np.zeros(n_windows)
    for _ in range(_ROUNDS):
        emissions = np.zeros((n_windows, len(shifts) + 1))  # the last state is "unknown"
        for (x, y), correlation in zip(measures, correlations, strict=True):
            if abs(correlation) > 0.05:
                for column, shift in enumerate(shifts.tolist()):
                    emissions[:, column] += _windows(_evidence(x, _moved(y, shift, len(x)), correlation))
        emissions[:, :-1] += _shared_evidence(hits, compared, share, by_chance)
        states = viterbi(emissions, CHANGE)
        gains = emissions[np.arange(n_windows), states]
        lines = np.repeat(states, WINDOW)[: len(src)]
        partner = np.arange(len(src)) + np.append(shifts, 0)[lines]
        used = np.flatnonzero((lines < len(shifts)) & (partner >= 0) & (partner < len(tgt)))
        if len(used) < 4 * WINDOW:
            break
        correlations = [_correlation(x[used], y[partner[used]]) for x, y in measures]
        rows = np.flatnonzero(states < len(shifts))
        share = float(hits[rows, states[rows]].sum() / max(1.0, compared[rows, states[rows]].sum()))
    return Course(np.append(shifts, 0)[states], np.maximum(gains, 0) * (states < len(shifts)))


def shared_words(src: Side, tgt: Side, shifts: Ints) -> tuple[Floats, Floats]:
    """Return numbers (W, D) of pairs that share a rare word, and of those compared.

    A few lines per window are compared.
    """
    n_windows = -(-len(src) // WINDOW)
    hits, compared = np.zeros((n_windows, len(shifts))), np.zeros((n_windows, len(shifts)))
    stride = max(1, n_windows * _SHARED_LINES * len(shifts) // _SHARED_PAIRS)  # of windows
    begins = np.arange(0, n_windows, stride) * WINDOW
    lines = (begins[:, None] + np.arange(_SHARED_LINES)).reshape(-1)
    lines = lines[lines < len(src)]
    near = np.unique((lines[:, None] + shifts).reshape(-1))
    near = near[(near >= 0) & (near < len(tgt))]
    rows, others = src.ids(lines), tgt.ids(near)
    # Words in more than a tenth of the lines tell nothing, nor do words that the other side does not have.
    counts = [np.bincount(side.reshape(-1), minlength=len(src.words)) for side in (rows, others)]
    rare = src.words.is_telling & (counts[0] < 0.1 * len(lines)) & (counts[1] < 0.1 * len(near)) & (counts[1] > 0)
    rare[0] = False
    sets = [set(row[rare[row]].tolist()) for row in others]
    place = {line: number for number, line in enumerate(near.tolist())}
    for line, row in zip(lines.tolist(), rows, strict=True):
        left = set(row[rare[row]].tolist())
        if not left:
            continue
        for column, shift in enumerate(shifts.tolist()):
            other = place.get(line + shift)
            if other is not None:
                compared[line // WINDOW, column] += 1
                hits[line // WINDOW, column] += not left.isdisjoint(sets[other])
    return hits, compared


def _shared_evidence(hits: Floats, compared: Floats, share: float, by_chance: float) -> Floats:
    """Return the evidence (W, D) of the numbers of pairs that share a word."""
    p, q = (float(np.clip(value, 0.001, 0.999)) for value in (share, by_chance))
    if p < 1.5 * q:  # hardly more than by chance
        return np.zeros_like(hits)
    evidence: Floats = hits * np.log(p / q) + (compared - hits) * np.log((1 - p) / (1 - q))
    return evidence


def viterbi(emissions: Floats, change: float) -> Ints:
    """Return the best path (W,) of states by emissions (W, D); changes cost equally."""
    n_steps, n_states = emissions.shape
    came_from = np.empty((n_steps, n_states), np.int32)
    score = np.zeros(n_states)
    stay = np.arange(n_states)
    for step in range(n_steps):
        best = int(score.argmax())
        switched = score[best] - change
        came_from[step] = np.where(score >= switched, stay, best)
        score = np.maximum(score, switched) + emissions[step]
    path = np.empty(n_steps, np.int64)
    state = int(score.argmax()) if n_steps else 0
    for step in range(n_steps - 1, -1, -1):
        path[step] = state
        state = int(came_from[step, state])
    return path


def _standardized(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return both sides with local mean 0 and local variance 1."""
    return _locally_standardized(x), _locally_standardized(y)


def _locally_standardized(values: Floats) -> Floats:
    # Locally, since a stretch of other text would otherwise move the mean of all lines.
    n = len(values)
    begins, ends = np.maximum(np.arange(n) - _AROUND, 0), np.minimum(np.arange(n) + _AROUND + 1, n)
    sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, values**2))
    mean = (sums[ends] - sums[begins]) / (ends - begins)
    variance = np.maximum((squares[ends] - squares[begins]) / (ends - begins) - mean**2, 1e-9)
    standardized: Floats = np.clip((values - mean) / np.sqrt(variance), -4, 4)
    return standardized


def _moved(y: Floats, shift: int, n: int) -> Floats:
    """Return y[i + shift] for i < n, NaN outside."""
    moved = np.full(n, np.nan)
    begin, end = max(0, -shift), min(n, len(y) - shift)
    if begin < end:
        moved[begin:end] = y[begin + shift : end + shift]
    return moved


def _evidence(x: Floats, y: Floats, correlation: float) -> Floats:
    """Return the log ratio of two normal densities, correlated and independent.

    It is 0 for NaN.
    """
    r = float(np.clip(correlation, -0.97, 0.97))
    rest = 1 - r * r
    ratio = (r * x * y - 0.5 * r * r * (x * x + y * y)) / rest - 0.5 * np.log(rest)
    ratio[np.isnan(ratio)] = 0.0
    # Called a thousand times: np.nan_to_num and np.clip take twice as long.
    clipped: Floats = np.minimum(np.maximum(ratio, -4.0), 4.0)
    return clipped


def _windows(values: Floats) -> Floats:
    """Return sums over windows of lines."""
    sums: Floats = np.add.reduceat(values, np.arange(0, len(values), WINDOW)) if len(values) else values
    return sums


def _correlation(x: Floats, y: Floats) -> float:
    if x.std() < 1e-6 or y.std() < 1e-6:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
