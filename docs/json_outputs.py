"""What commands print with ``--json``: the type of each output, from which schemas and their page follow.

Outputs that are a dataclass of the sources are named as such; what commands add or leave out is said here. A test runs
the commands and holds their output to the schemas: a key too many or too few is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from typing_extensions import NotRequired, TypedDict

from attnkit.analysis.contextual import WordComparison
from attnkit.analysis.verify import CheckResult
from attnkit.conversion.import_huggingface import ImportResult
from attnkit.engine.events import TrainingFinished
from attnkit.engine.task import RunEstimate
from attnkit.metrics.answers import AnswerScores
from attnkit.metrics.bleu import Comparison, MetricScore
from attnkit.metrics.labels import ClassScores
from attnkit.plotting.attention_maps import BeamNode
from attnkit.plotting.lessons_terminal import MaskLesson, PoolingLesson, PositionsLesson
from attnkit.plotting.worked_example import ExampleStep
from attnkit.protocols import Entity
from attnkit.quality.clean_output import CleanReport
from attnkit.quality.findings import CheckReport, Finding
from attnkit.runtime.licenses import License
from attnkit.tasks.language_modeling.compare import PositionPrediction
from attnkit.tasks.language_modeling.fill_mask import FilledText
from attnkit.tasks.language_modeling.generate import GeneratedText
from attnkit.tasks.translation.signs import Sign
from attnkit.tasks.translation.terminology import TermUse
from attnkit.tasks.word2vec.evaluate import PairScores, SectionScores
from attnkit.tasks.word2vec.one_hot import OneHot
from attnkit.tasks.word_alignment.lexicon import AlignmentReport
from attnkit.text.config import PhrasesConfig, VocabularyConfig
from attnkit.text.vocabulary import Statistics


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
    tokens: NotRequired[list[list[str]]]  #: with --return-attention: tokens of each sentence
    attention: NotRequired[list[list[list[float]]] | None]  #: with --return-attention: rows are target tokens


class TranslatedLine(TypedDict):
    """A line of input with its translations."""

    source: str
    signs: list[Sign]  #: what may be wrong with the best translation
    translations: list[Hypothesis]  #: best first
    terms: NotRequired[list[Term]]  #: with --glossary
    source_tokens: NotRequired[list[list[str]]]  #: with --return-attention: tokens of each sentence


Term = keys_of(TermUse, "Term")
NamedEntity = keys_of(Entity, "NamedEntity", text=str)


class PairScore(TokenScores):
    """The score of a pair of lines."""

    log_prob: float  #: natural log-probability of the target given the source
    tokens: int  #: target tokens, EOS included


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


class Averaged(TypedDict):
    """The checkpoints of the average."""

    averaged: list[str]
    path: str


class Verified(TypedDict):
    """A run."""

    run: str
    good: bool
    newest: str | None  #: newest good checkpoint
    in_use: str | None  #: process that holds the lock
    things: list[CheckResult]


class Exported(TypedDict):
    """What was written."""

    path: str
    checkpoint: str
    bytes: int


ImportOutput = keys_of(ImportResult, "ImportOutput", path=str)


class Neighbour(TypedDict):
    """A word."""

    word: str
    score: float  #: cosine similarity, or what --method computes


class Neighbours(TypedDict):
    """The answer to a question."""

    query: str
    neighbours: list[Neighbour]


class NoAnswer(TypedDict):
    """A question of standard input that has no answer."""

    query: str
    error: str


class OddOne(TypedDict):
    """The word that does not fit."""

    odd: str
    cosines: dict[str, float]  #: with the mean vector, highest first


class Distance(TypedDict):
    """Two words."""

    words: tuple[str, str]
    cosine: float
    distance: float  #: 1 - cosine
    euclidean: float


SimilarityScores = keys_of(PairScores, "SimilarityScores", file=str, kind=Literal["pairs"])
Section = keys_of(SectionScores, "Section", accuracy=float | None)


class AnalogyScores(TypedDict):
    """A file of analogies."""

    file: str
    kind: Literal["analogies"]
    accuracy: float | None  #: share of right answers; None without known questions
    right: int
    known: int  #: scored questions: all four words have a vector
    composed: int  #: scored questions with a word composed from n-grams
    unknown: int  #: skipped questions
    groups: list[Section]  #: semantic and syntactic
    sections: NotRequired[list[Section]]  #: with --sections


class Member(TypedDict):
    """A word and its cluster."""

    word: str
    # ``class`` is a keyword of Python.


Clustered = keys_of(Member, "Clustered", **{"class": int})


class ClusterWords(TypedDict):
    """A cluster, with ``--summary``."""

    size: int
    words: list[str]  #: the most central


Cluster = keys_of(ClusterWords, "Cluster", **{"class": int})


class Phrases(TypedDict):
    """What was found and joined."""

    words_read: int
    words_written: int
    phrases: list[int]  #: by pass
    config: PhrasesConfig
    lower: bool


class Converted(TypedDict):
    """The file that was written."""

    path: str
    format: str
    words: int
    dim: int


@dataclass(frozen=True)
class Printed:
    """What a command prints: one value, or one per line of text."""

    types: tuple[Any, ...]  #: of the value, or of a line, any of them
    per: str = ""  #: "" for one value, else what each line is for


TRAINED = Printed((TrainingFinished, Plan))
OUTPUTS: dict[str, Printed] = {
    "check": Printed((CheckOutput,)),
    "clean": Printed((CleanReport,)),
    "vocab": Printed((VocabularyReport,)),
    "train": TRAINED,
    "pretrain-mlm": TRAINED,
    "pretrain-clm": TRAINED,
    "finetune": TRAINED,
    "predict": Printed(
        (LabelPrediction, LabelTotals, TaggedSentence, TagTotals, Answer, AnswerTotals),
        "prediction; with --gold, the last line has the scores",
    ),
    "fill-mask": Printed((FilledText,), "text"),
    "generate": Printed((Prompt,), "prompt"),
    "compare-lm": Printed((ModelComparison,)),
    "translate": Printed((TranslatedLine,), "line of input"),
    "align": Printed((Links, AlignmentReport), "pair; the last line has the totals"),
    "attend": Printed((AttentionLine, Example), "line of input"),
    "embed": Printed((Row, Reconstruction, LineTotals, VectorTotals), "row; with --reconstruct, totals come last"),
    "score": Printed((PairScore, ScoreTotals), "pair; the last line has the totals"),
    "score-bleu": Printed((list[MetricScore], list[Comparison], list[NotesScore], list[SentenceScores])),
    "average": Printed((Averaged,)),
    "verify": Printed((Verified,), "run"),
    "export": Printed((Exported,)),
    "import": Printed((ImportOutput,)),
    "explain": Printed((MaskLesson, PositionsLesson, PoolingLesson)),
    "licenses": Printed((list[License],)),
    "toy-corpus": Printed((dict[str, int],)),
    "word2vec train": TRAINED,
    "word2vec similar": Printed((Neighbours, NoAnswer), "word"),
    "word2vec analogy": Printed((Neighbours, NoAnswer), "question"),
    "word2vec odd-one": Printed((OddOne,)),
    "word2vec distance": Printed((Distance,)),
    "word2vec evaluate": Printed((SimilarityScores, AnalogyScores), "file"),
    "word2vec cluster": Printed((Clustered, Cluster), "word, or per cluster"),
    "word2vec phrases": Printed((Phrases,)),
    "word2vec convert": Printed((Converted,)),
    "word2vec one-hot": Printed((OneHot,)),
    "word2vec compare-context": Printed((WordComparison,)),
}
