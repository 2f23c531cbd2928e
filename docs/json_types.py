"""Types of what commands print with ``--json`` about text and models, for ``json_outputs``.

What commands add to a dataclass of the sources, or leave out, is said here.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from typing_extensions import NotRequired, TypedDict

from attnkit.engine.task import RunEstimate
from attnkit.metrics.answers import AnswerScores
from attnkit.metrics.labels import ClassScores
from attnkit.plotting.attention_maps import BeamNode
from attnkit.plotting.worked_example import ExampleStep
from attnkit.protocols import Entity
from attnkit.quality.findings import CheckReport, Finding
from attnkit.tasks.language_modeling.compare import PositionPrediction
from attnkit.tasks.language_modeling.generate import GeneratedText
from attnkit.tasks.translation.signs import Sign
from attnkit.tasks.translation.terminology import TermUse
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary_statistics import Statistics


def keys_of(source: Any, name: str, *without: str, **added: Any) -> Any:
    """Return a type with the fields of another: some left out, some added or of another type."""
    hints = {key: hint for key, hint in get_type_hints(source).items() if key not in without}
    made: Any = TypedDict(name, {**hints, **added})  # type: ignore[operator]
    made.__doc__ = source.__doc__
    SOURCES[name] = source
    return made


SOURCES: dict[str, Any] = {}
"""Name of a type made by ``keys_of`` -> the class of the sources that describes its fields."""


class Origin(TypedDict):
    """A configuration key."""

    value: Any
    origin: str  #: where the value comes from: default, preset, file, --set or flag


class Plan(TypedDict):
    """What ``--dry-run`` prints."""

    preset: str | None
    configuration: dict[str, Origin]  #: dotted key -> value and origin
    plan: RunEstimate | None


class Vocabulary(TypedDict):
    """A vocabulary, followed by what it makes of the text."""

    path: str
    vocab_size: int  #: entries
    n_unused: int  #: entries that no token has
    fingerprint: str  #: hash of the vocabulary
    config: VocabularyConfig
    coverage: float  #: share of characters that are not encoded as bytes or <unk>
    tokens_per_word: float
    unknown_rate: float  #: share of unknown tokens


VocabularyReport = keys_of(Statistics, "VocabularyReport", **get_type_hints(Vocabulary))
SOURCES["VocabularyReport"] = (Statistics, Vocabulary)


class InWords(TypedDict):
    """What ``check`` says for people."""

    text: str  #: the finding in words that fit its count
    remedy: str | None  #: command that mends the most serious finding
    trainable: bool  #: whether training is possible: no finding is fatal


CheckFinding = keys_of(Finding, "CheckFinding")
CheckOutput = keys_of(CheckReport, "CheckOutput", findings=list[CheckFinding], trainable=bool, remedy=str | None)
SOURCES |= {"CheckFinding": (Finding, InWords), "CheckOutput": (CheckReport, InWords)}


class TokenScores(TypedDict):
    """What ``--return-token-scores`` adds: for each sentence, tokens with their log-probabilities."""

    token_scores: NotRequired[list[list[tuple[str, float]]]]


class Hypothesis(TokenScores):
    """A translation."""

    text: str
    score: float  #: log_prob / length**length_penalty, plus any coverage penalty
    log_prob: float  #: natural log-probability
    reverse_score: NotRequired[float | None]
    """With --rerank-with: reverse_log_prob / source length**length_penalty; null if the reversed run cannot read it."""
    reverse_log_prob: NotRequired[float | None]  #: log-probability of the source given the text, by the reversed run
    tokens: NotRequired[list[list[str]]]  #: with --return-attention: tokens of each sentence
    attention: NotRequired[list[list[list[float]]] | None]  #: with --return-attention: rows are target tokens


class TranslatedLine(TypedDict):
    """A line of input with its translations."""

    source: str
    signs: list[Sign]  #: what may be wrong with the best translation
    confidence: float | None  #: probability that the best translation is acceptable; null if the run cannot tell
    translations: list[Hypothesis]  #: best first
    terms: NotRequired[list[Term]]  #: with --glossary
    source_tokens: NotRequired[list[list[str]]]  #: with --return-attention: tokens of each sentence


class TranslatedSentence(TypedDict):
    """A sentence of a passage, without its tags."""

    source: str
    text: str
    score: float  #: of the translation without the parts that were put back
    log_prob: float  #: likewise
    confidence: float | None  #: likewise
    signs: list[Sign]  #: what may be wrong with the translation
    restored: list[str]  #: protected parts that the model lost, and that were put back


class TranslatedPassage(TypedDict):
    """A passage of a document or, with ``--protect``, a line."""

    file: str | None  #: null: standard input
    line: int  #: that the passage begins in, from 1
    passage: NotRequired[int]  #: of a document: number of the passage, from 1
    source: str  #: with its tags
    signs: list[Sign]  #: those of its sentences
    confidence: float | None  #: probability that the translation is acceptable; null if the run cannot tell
    translations: list[Hypothesis]  #: one, with its tags
    sentences: list[TranslatedSentence]
    terms: NotRequired[list[Term]]  #: with --glossary


Term = keys_of(TermUse, "Term")
NamedEntity = keys_of(Entity, "NamedEntity", text=str)


class PairScore(TokenScores):
    """The score of a pair of lines."""

    log_prob: float  #: natural log-probability of the target given the source
    tokens: int  #: target tokens, EOS included
    signs: list[Sign]  #: what may be wrong with the target as a translation, or is unusual of the source


class ScoreTotals(TypedDict):
    """The last line: totals."""

    pairs: int
    tokens: int
    log_prob: float
    perplexity: float


class Links(TypedDict):
    """A pair of lines."""

    alignment: list[tuple[int, int]]  #: zero-based indices of source and target words


class Prompt(TypedDict):
    """A prompt with its texts."""

    prompt: str
    texts: list[GeneratedText]


Predictions = keys_of(PositionPrediction, "Predictions", right=int, perplexity=float)


class ModelComparison(TypedDict):
    """A sentence as BERT and GPT see it."""

    text: str
    bert: Predictions
    gpt: Predictions


class LabelPrediction(TypedDict):
    """The label of a text; a document classifier adds tokens and weights."""

    label: str
    probability: float
    expected: NotRequired[str | None]  #: with --gold
    all: NotRequired[dict[str, float]]  #: with --all: label -> probability, the most probable first
    sentences: NotRequired[list[list[str]]]  #: tokens of each sentence
    word_weights: NotRequired[list[list[float]]]  #: attention to each token of a sentence
    sentence_weights: NotRequired[list[float]]  #: attention to each sentence


class Matrix(TypedDict):
    """A confusion matrix."""

    labels: list[str]
    counts: list[list[int]]  #: rows are gold labels, columns predicted ones


LabelScores = keys_of(ClassScores, "LabelScores", "right", precision=float, recall=float, f1=float)
EntityScores = keys_of(ClassScores, "EntityScores", precision=float, recall=float, f1=float)


class LabelTotals(TypedDict):
    """Scores in percent, with ``--gold``."""

    examples: int
    accuracy: NotRequired[float]
    macro_f1: NotRequired[float]
    classes: NotRequired[dict[str, LabelScores]]
    confusion: NotRequired[Matrix]


class TaggedSentence(TypedDict):
    """A sentence with its tags."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]  #: of each tag
    entities: list[NamedEntity]
    all: NotRequired[list[dict[str, float]]]  #: with --all: tag -> probability, for each word
    expected: NotRequired[list[str]]  #: with --gold


class TagTotals(TypedDict):
    """Scores in percent, with ``--gold``; those of entities only where tags name entities."""

    sentences: int
    words: int
    accuracy: NotRequired[float]
    macro_f1: NotRequired[float]
    right: NotRequired[int]
    found: NotRequired[int]
    expected: NotRequired[int]
    precision: NotRequired[float]
    recall: NotRequired[float]
    f1: NotRequired[float]
    types: NotRequired[dict[str, EntityScores]]
    confusion: NotRequired[Matrix]


class Answer(TypedDict):
    """The answer to a question."""

    id: NotRequired[str]  #: that of the input, if it has one
    answer: str  #: empty: no answer
    probability: float
    begin: int | None  #: first character in the context
    end: int | None  #: one after the last character
    expected: NotRequired[list[str]]  #: with --gold


QuestionScores = keys_of(AnswerScores, "QuestionScores", "n_questions", questions=int)


class AnswerTotals(TypedDict):
    """Scores in percent, with ``--gold``."""

    questions: int
    exact: NotRequired[float]
    f1: NotRequired[float]
    answered: NotRequired[QuestionScores]  #: questions with an answer
    unanswered: NotRequired[QuestionScores]
    best_threshold: NotRequired[float]  #: value of --no-answer-threshold with the best F1
    best: NotRequired[QuestionScores]  #: scores at that threshold


class Row(TypedDict):
    """A row of numbers: that of a text, of a vector of the input, or of an entry of the vocabulary."""

    text: NotRequired[str]
    piece: NotRequired[str]  #: with --what static
    numbers: list[float]


class Reconstruction(TypedDict):
    """A text, encoded and decoded again."""

    text: NotRequired[str]
    reconstruction: str


class LineTotals(TypedDict):
    """The last line, with ``--reconstruct``."""

    lines: int
    blank: int
    exact: float  #: percentage of lines that are not blank


class VectorTotals(TypedDict):
    """The last line, with ``--reconstruct``, of an auto-encoder of vectors."""

    vectors: int
    error: float  #: mean squared error
    mean_error: float  #: that of the training mean
    explained: float  #: share of the variance


class Map(TypedDict):
    """All weights of one kind of attention."""

    kind: str
    note: str
    unit: str
    layers: int
    first_layer: int
    heads: int
    head_names: list[str]
    queries: list[str]
    keys: list[str]
    entropy_bits: Any  #: by layer and head
    weights: list[list[list[list[float]]]]  #: layer, head, query, key


class AttentionLine(TypedDict):
    """A line with all attention weights."""

    run: str
    checkpoint: NotRequired[str]
    model: str
    attention: list[Map]
    source: str
    target: str
    tree: list[BeamNode]  #: hypotheses of the search, with --beam-size
    score: NotRequired[float]
    log_prob: NotRequired[float]
    beam_size: NotRequired[int]
    probability: NotRequired[float]  #: of a classifier's label
    next_token: NotRequired[str]  #: the most probable ones after the text, of GPT
    token_before: NotRequired[str]  #: likewise, of a GPT that reads from right to left
    compared: NotRequired[str]  #: with --compare
    distribution: NotRequired[str]  #: with --compare


class Example(TypedDict):
    """A worked example: ``attend`` without a run."""

    example: str
    alignment: str
    distribution: str
    seed: int | None
    words: list[str]
    query: list[float]
    keys: list[list[float]]
    values: list[list[float]]
    parameters: dict[str, Any]  #: name -> values, nested like the parameter
    steps: list[ExampleStep]
    scores: list[float]
    weights: list[float]
    context: list[float]


class NotesScore(TypedDict):
    """The score of a corpus, with ``--formula notes``."""

    name: str
    score: float
    max_order: int
    n_lines: int


class SentenceScores(TypedDict):
    """The scores of a line, with ``--sentence``: those of the metrics that were asked for."""

    bleu: NotRequired[float]
    chrf: NotRequired[float]
    ter: NotRequired[float]
    notes_bleu: NotRequired[float]  #: with --formula notes
