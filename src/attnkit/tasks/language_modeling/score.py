"""Log-probabilities of texts under a trained BERT or GPT.

BERT gives pseudo-log-likelihoods: each token is masked in turn (Salazar et al. 2020, equation 2). GPT reads a text
once, in its direction, and gives the log-probability of each token after those read before. Letters: B rows, N masks or
tokens, T tokens of a row, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.decoding.stopping import StopCheck, StopFlags
from attnkit.engine.loading import LoadedModel
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.io.plain_data import PlainResult
from attnkit.models.bert import Bert
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.language_modeling.electra import masked_language_model
from attnkit.tasks.language_modeling.fill_mask import check_length, find_mask_token

_BATCH_TOKENS = 2048
_MAX_LOGITS = 1 << 24  #: maximum number of logits in memory, but at least those of one token


@dataclass(frozen=True)
class TextScore(PlainResult):
    """Log-probability of a text, without an end symbol; 0 for a text without tokens."""

    log_prob: float  #: in nats, summed over tokens; a pseudo-log-likelihood for BERT
    tokens: list[str]
    token_log_probs: list[float]  #: one per token, in reading order of the text


def score_texts(opened: LoadedModel, lines: Sequence[str], stops: StopFlags | None = None) -> list[TextScore]:
    """Return the score of each line; each depends only on its own line.

    ``stops`` ends lines between batches: tokens that are left have zeros.

    Raises:
        DataError: a line has more tokens than the model has positions, or the vocabulary of a BERT has no mask.
    """
    opened = masked_language_model(opened)
    tokenizer = read_tokenizer(opened.checkpoint)
    rows = tokenizer.encode(lines)
    n_ends = 2 if isinstance(opened.model, Bert) else 1
    for number, row in enumerate(rows, 1):
        check_length(len(row) + n_ends, opened.config.model.max_text_length, f"line {number}")
    check = (stops or StopFlags()).check(range(len(rows)))
    if isinstance(opened.model, Bert):
        found = _score_by_masks(opened, rows, find_mask_token(tokenizer), check)
    else:
        found = _score_in_order(opened, rows, check)
    return [
        TextScore(math.fsum(values), tokenizer.tokens(row), values) for row, values in zip(rows, found, strict=True)
    ]


def _score_by_masks(opened: LoadedModel, rows: Sequence[list[int]], mask: int, check: StopCheck) -> list[list[float]]:
    places = [(number, place) for number, row in enumerate(rows) for place in range(len(row))]
    scores = [[0.0] * len(row) for row in rows]
    for members in _equal_lengths([len(rows[number]) for number, _ in places]):
        stopped = check()
        batch = [(n, place) for n, place in map(places.__getitem__, members) if not stopped[n]]
        if not batch:
            continue
        inputs = [[BOS_ID, *rows[n][:place], mask, *rows[n][place + 1 :], EOS_ID] for n, place in batch]
        ids = torch.tensor(inputs, device=opened.device)  # (B, T)
        at = torch.tensor([i * ids.shape[1] + place + 1 for i, (_, place) in enumerate(batch)], device=opened.device)
        with torch.inference_mode():
            hidden = opened.model.hidden(ids, PackedLayout.unpacked(len(batch)), positions=at)  # (B, D)
            values = _log_probs(opened, hidden, [rows[n][place] for n, place in batch])
        for (number, place), value in zip(batch, values, strict=True):
            scores[number][place] = value
    return scores


def _score_in_order(opened: LoadedModel, rows: Sequence[list[int]], check: StopCheck) -> list[list[float]]:
    step = -1 if opened.config.direction == "right-to-left" else 1
    scores = [[0.0] * len(row) for row in rows]
    full = [number for number, row in enumerate(rows) if row]
    for members in _equal_lengths([len(rows[number]) for number in full]):
        stopped = check()
        batch = [number for number in map(full.__getitem__, members) if not stopped[number]]
        if not batch:
            continue
        read = [[BOS_ID, *rows[number][::step]] for number in batch]
        ids = torch.tensor([row[:-1] for row in read], device=opened.device)  # (B, T)
        with torch.inference_mode():
            hidden = opened.model.hidden(ids, PackedLayout.unpacked(len(batch)))  # (B, T, D)
            values = _log_probs(opened, hidden.flatten(0, 1), [id for row in read for id in row[1:]])
        for i, number in enumerate(batch):
            own = values[i * ids.shape[1] : (i + 1) * ids.shape[1]]
            scores[number] = own[::step]
    return scores


def _equal_lengths(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of indices of equal length: padding would change the rounding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for _, group in groupby(order, key=lengths.__getitem__):
        members = list(group)
        for batch in make_batches([lengths[i] + 2 for i in members], Batching(_BATCH_TOKENS, "tokens")):
            yield [members[i] for i in batch]


def _log_probs(opened: LoadedModel, hidden: Tensor, ids: Sequence[int]) -> list[float]:
    """Return the log-probabilities of ids (N) from hidden states (N, D)."""
    size = max(1, _MAX_LOGITS // opened.model.output.out_features)
    values: list[float] = []
    targets = torch.tensor(ids, device=opened.device)
    for rows, wanted in zip(torch.split(hidden, size), torch.split(targets, size), strict=True):
        logits = opened.model.head(rows).double()  # (n, V)
        values += (logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(1)).tolist()
    return values
