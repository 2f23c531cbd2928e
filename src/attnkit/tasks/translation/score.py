"""Log-probabilities of given translations, computed with teacher forcing."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch

from attnkit.data.loader import Batching, make_batches
from attnkit.decoding.stopping import StopFlags
from attnkit.engine.seq2seq import pad_sources
from attnkit.errors import DataError
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, Scorer
from attnkit.tasks.translation.inline_text import InlineText
from attnkit.tasks.translation.loading import OpenedRun
from attnkit.tasks.translation.segmenting import Segmenter
from attnkit.tasks.translation.signs import NO_PROFILE, Sign, SourceSigns
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.text.lines import is_blank
from attnkit.text.sentences import SentenceSplitter
from attnkit.text.tags import TranslationDirection, carry_code
from attnkit.text.tokenizer import Tokenizer

_WINDOW = 4096  # pairs sorted by length together
_ROWS = 512  # rows of logits computed at a time


@dataclass(frozen=True)
class PairScore:
    """Score of a sentence pair."""

    log_prob: float  #: natural log-probability of the target, with one EOS per sentence scored
    n_tokens: int  #: number of target tokens, EOS included, without the language code of an imported model
    ids: list[list[int]] = field(default_factory=list)  #: of each sentence scored, without EOS
    log_probs: list[list[float]] = field(default_factory=list)
    """Of each token of each sentence, and of EOS; 0 of a code."""
    line: TranslatedLine | None = field(default=None, repr=False, compare=False)  #: the pair as a translation

    @property
    def signs(self) -> list[Sign]:
        """Signs of a wrong target, or of an unusual source."""
        return [] if self.line is None else self.line.signs

    def to_dict(self) -> dict[str, Any]:
        """Return the score as JSON has it."""
        plain: dict[str, Any] = {"log_prob": self.log_prob, "n_tokens": self.n_tokens, "ids": self.ids}
        return {**plain, "log_probs": self.log_probs, "signs": self.signs}


@dataclass
class Total:
    """Sum of scores over pairs."""

    log_prob: float = 0.0
    n_tokens: int = 0
    n_pairs: int = 0

    def add(self, score: PairScore) -> None:
        """Add the score of one pair."""
        self.log_prob += score.log_prob
        self.n_tokens += score.n_tokens
        self.n_pairs += 1

    @property
    def perplexity(self) -> float:
        """Return the perplexity per target token."""
        return math.exp(min(700.0, -self.log_prob / max(1, self.n_tokens)))


def score_pairs(
    run: OpenedRun,
    scorer: Scorer,
    device: torch.device,
    pairs: Iterable[tuple[str, str]],
    batching: Batching | None = None,
    names: tuple[str, str] = ("source", "target"),
    segmenter: Segmenter | None = None,
    direction: TranslationDirection | None = None,
    stops: StopFlags | None = None,
) -> Iterator[PairScore]:
    """Yield the score of each pair, in order; raise ``DataError`` for overlong lines.

    Nothing is truncated; an empty target consists of EOS. ``names`` are used for the two sides in error messages. A
    pair whose source the ``segmenter`` splits is scored sentence by sentence, if its target has as many sentences.
    Placeholders replace parts of the source, on both sides, if the run was trained with them. The language code before
    each target of an imported model is given, as in translation: its probability does not count. ``direction``: None
    for a run without choice. ``stops`` ends pairs between batches: sentences that are left count nothing.
    """
    direction = direction or TranslationDirection(run.src_tokenizer, run.tgt_tokenizer)
    src_tokenizer, tgt_tokenizer, tag = direction.src_tokenizer, direction.tgt_tokenizer, direction.tag
    remaining, first = iter(pairs), 1
    inline, profile = InlineText(run.config.data, tgt_tokenizer), run.training_profile or NO_PROFILE
    while window := list(islice(remaining, _WINDOW)):
        aligned = [[pair] for pair in window]
        if segmenter is not None:
            aligned = _split_pairs(window, segmenter, tgt_tokenizer, first)
        masked = [[(inline.mask(src), tgt) for src, tgt in rows] for rows in aligned]
        aligned = [[(one.text, one.mask_other(tgt)) for one, tgt in rows] for rows in masked]
        numbers = [number for number, rows in enumerate(aligned, first) for _ in rows]
        first += len(window)
        src = [[*tag, *ids] for ids in src_tokenizer.encode([pair[0] for rows in aligned for pair in rows])]
        tgt = tgt_tokenizer.encode([pair[1] for rows in aligned for pair in rows])
        for name, side in zip(names, (src, tgt), strict=True):
            check_lengths(run, side, name, numbers)
        found: dict[int, PairScore] = {}
        check = (stops or StopFlags()).check([number - 1 for number in numbers])
        lengths = [max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)]
        for batch in make_batches(lengths, batching or Batching()):
            stopped = check()
            if not (batch := [i for i in batch if not stopped[i]]):
                continue
            own_src, own_tgt = [src[i] for i in batch], [tgt[i] for i in batch]
            found.update(zip(batch, _score(scorer, device, own_src, own_tgt, len(direction.code)), strict=True))
        scores, sources = (found.get(i, PairScore(0.0, 0)) for i in range(len(src))), (ids[len(tag) :] for ids in src)
        signs = SourceSigns([pair[0] for pair in window], profile, src_tokenizer.normalize)
        for i, ((source, target), rows) in enumerate(zip(window, aligned, strict=True)):
            own, source_ids = list(islice(scores, len(rows))), list(islice(sources, len(rows)))
            ids, log_probs = ([part for score in own for part in getattr(score, name)] for name in ("ids", "log_probs"))
            total = sum(score.log_prob for score in own), sum(score.n_tokens for score in own)
            output = Output(target, total[0], total[0], ids, True, None, tgt_tokenizer)
            source_ids = [] if is_blank(source) else source_ids
            line = TranslatedLine(source, source_ids, [output], src_tokenizer, False, partial(signs.of, i), profile)
            yield PairScore(*total, ids, log_probs, line)


def _split_pairs(
    pairs: Sequence[tuple[str, str]], segmenter: Segmenter, tgt_tokenizer: Tokenizer, first: int
) -> list[list[tuple[str, str]]]:
    """Return the sentence pairs of each pair, or the pair if their numbers differ.

    A language code or tag at the start of a line is that of all its sentences.
    """
    splitter = SentenceSplitter()
    split = []
    for (src, tgt), found in zip(pairs, segmenter.sentences([src for src, _ in pairs], first), strict=True):
        targets = splitter.split(tgt.strip())
        aligned = len(found) == len(targets) > 1
        if not aligned:
            split.append([(src, tgt)])
            continue
        sides = (segmenter.tokenizer, src, found), (tgt_tokenizer, tgt, targets)
        carried = (carry_code(side, line, [text for text, _ in sentences]) for side, line, sentences in sides)
        split.append(list(zip(*carried, strict=True)))
    return split


def check_lengths(run: OpenedRun, rows: Iterable[list[int]], name: str, numbers: Iterable[int]) -> None:
    """Raise ``DataError`` for the first line that exceeds the model's positions.

    ``numbers`` are the numbers of the lines, from 1.
    """
    longest = run.config.model.max_positions
    for ids, line in zip(rows, numbers, strict=False):
        if longest is not None and len(ids) >= longest:
            raise DataError(
                f"this line has {len(ids):,} tokens, but the model supports at most {longest - 1:,}",
                where=f"{name}:{line}",
                help="remove the pair, or train a model without a length limit",
            )


@torch.inference_mode()
def _score(
    scorer: Scorer, device: torch.device, src: list[list[int]], tgt: list[list[int]], n_given: int
) -> list[PairScore]:
    """Return the score of each pair, without that of the first ``n_given`` ids."""
    ids, mask = pad_sources(src, device)
    length = max(map(len, tgt)) + 1
    tgt_in = torch.tensor([[BOS_ID, *t, *[PAD_ID] * (length - 1 - len(t))] for t in tgt], device=device)
    wanted = torch.tensor([[*t, EOS_ID, *[PAD_ID] * (length - 1 - len(t))] for t in tgt], device=device)
    real = torch.arange(length, device=device) <= torch.tensor([[len(t)] for t in tgt], device=device)
    hidden = scorer.hidden(ids, mask, tgt_in)[real]
    targets = wanted[real]
    chosen = torch.cat(
        [
            scorer.head(rows).float().log_softmax(-1).gather(1, of[:, None])[:, 0]
            for rows, of in zip(torch.split(hidden, _ROWS), torch.split(targets, _ROWS), strict=True)
        ]
    )
    found = torch.split(chosen.cpu().double(), [len(t) + 1 for t in tgt])
    for part in found:
        part[:n_given] = 0
    return [
        PairScore(float(part.sum()), len(part) - n_given, [t], [part.tolist()])
        for part, t in zip(found, tgt, strict=True)
    ]
