"""Answers as schemas for OpenAPI.

Handlers return plain data; tests hold it to these.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Number = float | None  #: null where a number is not finite
Weights = list[list[Number]]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _CamelAnswer(BaseModel):
    """An answer whose fields are in camel case, as LibreTranslate has them."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, alias_generator=to_camel)


class ErrorAnswer(_Answer):
    """An error, as LibreTranslate (``error``) and DeepL (``message``) have it."""

    error: str
    message: str


class LibreTranslateAnswer(_CamelAnswer):
    """A list for each field if ``q`` was a list."""

    translated_text: str | list[str]
    alternatives: list[str] | list[list[str]] = []
    """Only if they were asked for."""


class DeepLTextAnswer(_Answer):
    """A translation as DeepL has it."""

    detected_source_language: str
    """That of the translator: languages are not detected."""
    text: str


class DeepLAnswer(_Answer):
    """One translation per text."""

    translations: list[DeepLTextAnswer]


class UsageAnswer(_Answer):
    """Numbers of tokens."""

    prompt_tokens: int
    """Of the source."""
    completion_tokens: int
    """Of the translation."""
    total_tokens: int


class TranslationsAnswer(_Answer):
    """A translated text as vLLM has it; as a stream, the text comes in one chunk."""

    id: str
    object: Literal["translation"]
    created: int
    """Seconds since 1970."""
    model: str
    translated_text: str
    source_language: str | None
    """As in the request."""
    target_language: str
    usage: UsageAnswer


class TermAnswer(_Answer):
    """A term of the glossary in a line."""

    source: str
    targets: list[str]
    is_used: bool


class AlternativeAnswer(_Answer):
    """A translation of a line among several."""

    text: str
    score: Number
    log_prob: Number
    tokens: list[str]
    token_scores: list[tuple[str, Number]] | None = None


class LineAnswer(_Answer):
    """The translation of a line."""

    source: str
    text: str
    score: Number
    """Log-probability / length**length_penalty, plus any coverage penalty."""
    log_prob: Number
    """Natural log-probability."""
    tokens: list[str]
    source_tokens: list[str]
    signs: list[str]
    """Signs that the translation went wrong, or that the line is unlike the training text."""
    terms: list[TermAnswer]
    alternatives: list[AlternativeAnswer]
    token_scores: list[tuple[str, Number]] | None = None
    """Tokens and their log-probabilities, if asked for."""
    confidence: Number = None
    """Probability that the translation is acceptable, if the run can tell."""
    attention: list[Weights] | None = None
    """Of each sentence: target tokens x source tokens, if asked for."""


class TextAnswer(_Answer):
    """The translation of a text, and of its lines."""

    text: str
    alternatives: list[str]
    lines: list[LineAnswer]


class TranslateAnswer(_Answer):
    """One translation per text."""

    model: str
    translations: list[TextAnswer]


class PairScoreAnswer(_Answer):
    """Score of a target given its source."""

    log_prob: Number
    n_tokens: int
    ids: list[list[int]]
    log_probs: list[list[Number]]
    signs: list[str]


class TextScoreAnswer(_Answer):
    """Score of a text under a language model."""

    log_prob: Number
    tokens: list[str]
    token_log_probs: list[Number]


class ScoreAnswer(_Answer):
    """One score per pair or text."""

    model: str
    scores: list[PairScoreAnswer] | list[TextScoreAnswer]


class LabelAnswer(_Answer):
    """The label of a text; the last three fields are those of document classifiers."""

    label: str
    probability: Number
    probabilities: dict[str, Number]
    sentences: list[list[str]] | None = None
    word_weights: Weights | None = None
    sentence_weights: list[Number] | None = None


class EntityAnswer(_Answer):
    """Words that the tags name."""

    type: str
    begin: int
    end: int
    text: str


class TagsAnswer(_Answer):
    """Words, their tags, and the entities that these name."""

    words: list[str]
    tags: list[str]
    probabilities: list[Number]
    entities: list[EntityAnswer]


class SpanAnswer(_Answer):
    """The answer to a question; an empty text: the context has none."""

    text: str
    probability: Number
    begin: int | None
    """Offset of its first character in the context."""
    end: int | None
    """Offset after its last character."""
    best: str
    """Text of the best span, even if ``text`` is empty."""
    no_answer_margin: Number


class PredictAnswer(_Answer):
    """One prediction per text or question."""

    model: str
    predictions: list[LabelAnswer] | list[TagsAnswer] | list[SpanAnswer]


class GuessAnswer(_Answer):
    """A token for a mask."""

    piece: str
    probability: Number
    text: str


class FilledAnswer(_Answer):
    """A text with the predictions for its masks."""

    text: str
    filled: str
    masks: list[list[GuessAnswer]]


class FillMaskAnswer(_Answer):
    """One result per text."""

    model: str
    results: list[FilledAnswer]


class GeneratedAnswer(_Answer):
    """A prompt with its continuation."""

    text: str
    made: str
    pieces: list[str]
    log_prob: Number
    end: Literal["end", "length"]


class GenerateAnswer(_Answer):
    """Texts, those of one prompt after each other."""

    model: str
    texts: list[GeneratedAnswer]


class EmbedAnswer(_Answer):
    """One vector per text."""

    model: str
    embeddings: list[list[Number]]


class NeighbourAnswer(_Answer):
    """A word near another."""

    word: str
    similarity: Number
    """Cosine of the two vectors."""


class SimilarAnswer(_Answer):
    """The nearest words of each word, nearest first."""

    model: str
    results: list[list[NeighbourAnswer]]


class HealthAnswer(_Answer):
    """Whether the process runs, and which runs have failed."""

    status: Literal["ok"]
    failed: list[str]
    """Runs that could not be loaded."""
    outdated: list[str]
    """Runs that keep an older checkpoint, as the newer one could not be loaded."""


class ReadyAnswer(_Answer):
    """Which models take requests, and which runs have failed."""

    status: Literal["ready"]
    models: list[str]
    failed: list[str]
    outdated: list[str]


class LanguageAnswer(_Answer):
    """A language as LibreTranslate has it."""

    code: str
    name: str
    targets: list[str]


class ServedAnswer(_Answer):
    """A model with its task and size."""

    name: str
    source_lang: str | None = None
    target_lang: str | None = None
    task: str
    model: str
    checkpoint: str
    scores: dict[str, Number]
    n_parameters: int
    vocab_size: int
    device: str
    precision: str
    engine: str


class ModelsAnswer(_Answer):
    """All models that are served."""

    models: list[ServedAnswer]


class ReloadAnswer(_Answer):
    """A message for each run."""

    models: list[str]


class NamedLanguageAnswer(_Answer):
    """A language and its name."""

    code: str
    name: str


class LanguagePairAnswer(_Answer):
    """Languages that a page shows first."""

    source: NamedLanguageAnswer
    target: NamedLanguageAnswer


class SettingsAnswer(_CamelAnswer):
    """What LibreTranslate's own page asks for."""

    api_keys: bool
    char_limit: int
    frontend_timeout: int
    key_required: bool
    language: LanguagePairAnswer
    files_translation: bool
    suggestions: bool
    supported_files_format: list[str]
