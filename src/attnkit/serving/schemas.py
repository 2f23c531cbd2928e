"""Bodies of requests, as schemas: what is accepted, and what OpenAPI shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Texts = str | list[str]
Language = Annotated[str, Field(max_length=32)]
Name = Annotated[str, Field(max_length=200)]
Term = Annotated[str, Field(max_length=200)]


class LibreTranslateBody(BaseModel):
    """LibreTranslate's ``/translate``; fields that it does not have are ignored."""

    q: Texts
    source: Language = "auto"
    target: Language
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0, le=15)


class DetectBody(BaseModel):
    """LibreTranslate's ``/detect``."""

    q: Texts


class DeepLBody(BaseModel):
    """DeepL's ``/v2/translate``; fields that it does not have are ignored."""

    text: list[str] | str
    target_lang: Language
    source_lang: Language | None = None
    tag_handling: Literal["html", "xml"] | None = None
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = "default"
    """``more`` and ``less`` are refused, as DeepL does for languages without; ``prefer_...`` have no effect."""
    glossary_id: str | None = None
    """Refused: the service keeps no glossaries; ``/v1/translate`` takes one with the request."""


class TranslationsBody(BaseModel):
    """vLLM's ``/v1/translations``: one text; fields that it does not have are ignored."""

    model: Name | None = None
    """A name that is not served chooses nothing: such clients always send one."""
    text: str
    target_language: Language
    source_language: Language | None = None
    stream: bool | None = False
    temperature: float | None = Field(default=None, ge=0)
    """Above 0: the translation is sampled; otherwise it is searched."""
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None


class _Own(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    """Name of the model; needed where several fit."""


class TranslateBody(_Own):
    """attnkit's own ``/v1/translate``."""

    text: Texts
    source_lang: Language | None = None
    target_lang: Language | None = None
    prefix: Texts | None = None
    """Beginning of each translation; blank for none. A text with a prefix must be one line."""
    glossary: Annotated[dict[Term, Term | Annotated[list[Term], Field(max_length=20)]], Field(max_length=1000)] = {}
    """Translations of terms, several forms or one; an empty one keeps the term as it is."""
    attention: bool = False
    """Return the attention weights of each sentence: target tokens x source tokens."""
    token_scores: bool = False
    """Return each token with its log-probability."""
    beam_size: int | None = Field(default=None, ge=1)
    num_hypotheses: int | None = Field(default=None, ge=1)
    sampling: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    min_length: int | None = None
    max_length: int | None = Field(default=None, le=1 << 16)
    no_unk: bool | None = None
    suppress: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)] = []
    """Words and phrases that are never produced."""


SEARCH_KEYS = (
    *("beam_size", "num_hypotheses", "sampling", "temperature", "top_k", "top_p", "seed", "length_penalty"),
    *("coverage_penalty", "repetition_penalty", "no_repeat_ngram_size", "min_length", "max_length", "no_unk"),
)


class ScoreBody(_Own):
    """``/v1/score``: translations given sources, or texts under a language model."""

    source: Texts | None = None
    target: Texts | None = None
    text: Texts | None = None


class PredictBody(_Own):
    """``/v1/predict``: texts, pairs of texts, or questions with their contexts."""

    text: Texts | None = None
    pair: Texts | None = None
    question: Texts | None = None
    context: Texts | None = None


class FillMaskBody(_Own):
    """``/v1/fill-mask``: texts with ``[MASK]``."""

    text: Texts
    top: int = Field(default=5, ge=1, le=100)


class GenerateBody(_Own):
    """``/v1/generate``: prompts; ``stream`` sends one text as server-sent events."""

    prompt: Texts
    max_new_tokens: int = Field(default=100, ge=1)
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    n: int = Field(default=1, ge=1, le=16)
    stream: bool = False


class EmbedBody(_Own):
    """``/v1/embed``: one vector per text, word or vector.

    Word vectors read words, an auto-encoder of vectors reads vectors.
    """

    text: Texts | None = None
    vector: list[float] | list[list[float]] | None = None


class SimilarBody(_Own):
    """``/v1/similar``: the words with the nearest vectors."""

    word: Texts
    top: int = Field(default=10, ge=1, le=100)


def listed(texts: Texts) -> list[str]:
    """Return one or several texts as a list."""
    return [texts] if isinstance(texts, str) else texts
