"""A translated line: hypotheses with scores and tokens, and signs of trouble."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from attnkit.decoding.hypothesis import ReverseScore
from attnkit.metrics.labels import rounded
from attnkit.protocols import EOS_ID
from attnkit.quality.profile import TrainingProfile
from attnkit.tasks.translation.signs import NO_PROFILE, FindSigns, Sign, find_length_signs, find_signs, in_order
from attnkit.text.inline_symbols import PLAIN, MaskedText
from attnkit.text.tags import leading_code
from attnkit.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from attnkit.quality.confidence import ConfidenceCurve
    from attnkit.tasks.translation.terminology import TermUse


@dataclass(frozen=True)
class Output:
    """One hypothesis of a line, joined from the segments of a split line."""

    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty; summed over segments
    log_prob: float  #: natural log-probability, summed over segments
    ids: list[list[int]]  #: token ids of each segment
    finished: bool  #: False if a segment was cut at the maximum length
    attention: list[list[list[float]]] | None
    """Attention weights of each segment (target tokens x source tokens); None unless recorded."""
    tokenizer: Tokenizer = field(repr=False, compare=False)
    log_probs: list[list[float]] | None = None
    """Log-probability of each token of each segment, with that of EOS if it ended the segment.

    None unless asked for by ``token_scores``. Their sum is ``log_prob``.
    """
    reverse: list[ReverseScore | None] = field(default_factory=list)
    """What the reversed run of a reranked search says of each segment, if it could read it."""

    @property
    def reverse_score(self) -> float | None:
        """Reversed log_prob / source length**length_penalty, summed over segments."""
        return _total(None if one is None else one.score for one in self.reverse)

    @property
    def reverse_log_prob(self) -> float | None:
        """Log-probability of the source, given this text, by the reversed run."""
        return _total(None if one is None else one.log_prob for one in self.reverse)

    @property
    def tokens(self) -> list[list[str]]:
        """Tokens of each segment."""
        return [self.tokenizer.tokens(ids) for ids in self.ids]

    @property
    def n_tokens(self) -> int:
        """Number of tokens that count: EOS does, the code of a language does not."""
        n_given = len(self.tokenizer.code_ids)
        return sum(max(1, len(ids) + 1 - n_given) for ids in self.ids)

    @property
    def mean_log_prob(self) -> float:
        """Mean log-probability of these tokens; NaN of a blank line."""
        return self.log_prob / self.n_tokens if self.ids else math.nan

    @property
    def token_scores(self) -> list[list[tuple[str, float]]] | None:
        """Tokens of each segment and their log-probabilities, EOS included."""
        return None if self.log_probs is None else score_tokens(self.tokenizer, self.ids, self.log_probs)


def _total(parts: Iterable[float | None]) -> float | None:
    """Return the sum over segments; None of a blank line, or if a segment has none."""
    known = list(parts)
    found = [part for part in known if part is not None]
    return sum(found) if found and len(found) == len(known) else None


@dataclass(frozen=True)
class TranslatedLine:
    """A source line and its hypotheses, best first."""

    source: str
    source_ids: list[list[int]]  #: token ids of each segment; a blank line has no segments
    outputs: list[Output]
    tokenizer: Tokenizer = field(repr=False, compare=False)
    is_cut: bool = False  #: whether a sentence was longer than the model's maximum, and translated in parts
    find_source_signs: FindSigns = field(default=list, repr=False, compare=False)
    """Returns ``source_signs``."""
    profile: TrainingProfile = field(default=NO_PROFILE, repr=False, compare=False)
    curve: ConfidenceCurve | None = field(default=None, repr=False, compare=False)
    """Confidence by log-probability, if the run has learned it."""
    terms: tuple[TermUse, ...] = ()  #: terms of the glossary in the line, and whether the best hypothesis has them
    masked: MaskedText = field(default=PLAIN, repr=False, compare=False)
    """The line with placeholders."""
    read: list[str] = field(default_factory=list, repr=False, compare=False)
    """Segments as the model reads them: with placeholders, and with annotated terms."""

    @cached_property
    def source_signs(self) -> list[Sign]:
        """What is unusual of the text of the line."""
        return self.find_source_signs()

    @property
    def signs(self) -> list[Sign]:
        """Signs that the best hypothesis went wrong, or that the line is unusual."""
        missed: list[Sign] = [] if all(term.is_used for term in self.terms) else ["term"]
        return in_order([*self.signs_of(self.outputs[0]), *self.source_signs, *missed]) if self.source_ids else []

    @property
    def confidence(self) -> float | None:
        """Probability that the best hypothesis is acceptable; None if unknown."""
        return confidence_of(self.curve, self.outputs[0].mean_log_prob)

    def signs_of(self, output: Output) -> list[Sign]:
        """Return the signs that a hypothesis went wrong; a blank line has none."""
        ids, profile = self.source_ids, self.profile
        if not ids:
            return []
        known = {"finished": output.finished, "is_cut": self.is_cut}
        source = self.source.removeprefix(leading_code(self.tokenizer, self.source))  # which no translation keeps
        own = [part[len(self.tokenizer.code_ids) :] for part in ids]  # behind what is before all sources
        found = find_signs(source, output.text, source_ids=own, profile=profile, **known)
        return in_order([*found, *find_length_signs(ids, output.ids, profile, self.tokenizer.decode)])

    @property
    def source_tokens(self) -> list[list[str]]:
        """Tokens of each segment."""
        return [self.tokenizer.tokens(ids) for ids in self.source_ids]


def confidence_of(curve: ConfidenceCurve | None, score: float) -> float | None:
    """Return the confidence of a mean log-probability; None if unknown."""
    return None if curve is None or math.isnan(score) else rounded(curve.probability(score))


def score_tokens(
    tokenizer: Tokenizer, ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]
) -> list[list[tuple[str, float]]]:
    """Return the tokens of segments with their scores, EOS where it has one."""
    ended = ([*own, EOS_ID][: len(scores)] for own, scores in zip(ids, log_probs, strict=True))
    return [list(zip(tokenizer.tokens(own), scores, strict=True)) for own, scores in zip(ended, log_probs, strict=True)]
