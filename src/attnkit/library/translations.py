"""Results of translators: lines, their alternatives, and documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from attnkit.io.plain_data import PlainResult
from attnkit.library.attention import TranslationAttention, translation_attention
from attnkit.tasks.translation.documents import PassageTranslation
from attnkit.tasks.translation.signs import Sign, in_order
from attnkit.tasks.translation.terminology import TermUse
from attnkit.tasks.translation.translated_line import TranslatedLine


@dataclass(frozen=True)
class Hypothesized(PlainResult):
    """One translation of a line among several."""

    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty; summed over sentences
    log_prob: float  #: natural log-probability, summed over sentences
    tokens: list[str]
    token_scores: list[tuple[str, float]] | None
    """Tokens and their log-probabilities, with the end symbol of each sentence; None unless asked for."""
    reverse_score: float | None
    """Of a reranked translation: reverse_log_prob / source length**length_penalty, summed over sentences."""
    reverse_log_prob: float | None  #: log-probability of the source given the translation, by the reversed run


@dataclass(frozen=True)
class Translation:
    """The best translation of a line, and its alternatives."""

    source: str
    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty; summed over sentences
    log_prob: float  #: natural log-probability, summed over sentences
    tokens: list[str]
    token_scores: list[tuple[str, float]] | None
    """Tokens and their log-probabilities, with the end symbol of each sentence; None unless asked for."""
    reverse_score: float | None
    """Of a reranked translation: reverse_log_prob / source length**length_penalty, summed over sentences."""
    reverse_log_prob: float | None  #: log-probability of the source given the translation, by the reversed run
    source_tokens: list[str]
    signs: list[Sign]  #: signs that the translation went wrong, or that the line is unlike the training text
    confidence: float | None
    """Probability that the translation is acceptable (sentence chrF of at least 60); None if the run cannot tell."""
    terms: list[TermUse]  #: terms of the glossary in the line, and whether the translation has them
    alternatives: list[Hypothesized]  #: the other ``num_hypotheses - 1`` translations, best first
    attention: TranslationAttention | None = None
    """Of each sentence: weights (target tokens, source tokens and the end symbol); None unless recorded."""

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the translation as plain data, without what was not asked for."""
        without = replace(self, attention=None)  # asdict would copy all weights
        plain = {name: value for name, value in asdict(without).items() if value is not None}
        for one in plain["alternatives"] if self.reverse_score is None else ():
            del one["reverse_score"], one["reverse_log_prob"]
        if self.attention is not None:
            plain["attention"] = self.attention.weights
        return {**plain, "terms": [term._asdict() for term in self.terms]}


@dataclass(frozen=True)
class DocumentTranslation(PlainResult):
    """A translated document, and what happened to its passages."""

    text: str
    passages: list[PassageTranslation]
    """Paragraphs, headings, cells and the like, each with its sentences, scores and signs."""
    notes: list[str]  #: what a reader should know, e.g. tags without a partner

    def __str__(self) -> str:
        return self.text

    @property
    def signs(self) -> list[Sign]:
        """Signs of all passages, each once."""
        return in_order(sign for passage in self.passages for sign in passage.signs)


def texts_of(line: TranslatedLine) -> list[str]:
    """Return the texts of a line's translations, best first."""
    return [one.text for one in line.outputs]


def _attention(line: TranslatedLine, source_tokens: list[list[str]]) -> TranslationAttention:
    weights = line.outputs[0].attention or []
    return translation_attention(weights, line.outputs[0].tokens[: len(weights)], source_tokens[: len(weights)])


def as_translation(line: TranslatedLine, attention: bool) -> Translation:
    """Return a translated line as the library shows it."""
    source_tokens = line.source_tokens  # decoded at each access
    best, *others = (
        Hypothesized(
            text=one.text,
            score=one.score,
            log_prob=one.log_prob,
            tokens=[token for part in one.tokens for token in part],
            token_scores=None if one.token_scores is None else [pair for part in one.token_scores for pair in part],
            reverse_score=one.reverse_score,
            reverse_log_prob=one.reverse_log_prob,
        )
        for one in line.outputs
    )
    return Translation(
        source=line.source,
        **vars(best),
        source_tokens=[token for part in source_tokens for token in part],
        signs=line.signs,
        confidence=line.confidence,
        terms=list(line.terms),
        alternatives=others,
        attention=_attention(line, source_tokens) if attention else None,
    )
