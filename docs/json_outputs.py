"""What commands print with ``--json``: the type of each output, from which schemas and their page follow.

Outputs that are a dataclass of the sources are named as such; what commands add or leave out is said here. A test runs
the commands and holds their output to the schemas: a key too many or too few is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from json_types import (
    Answer,
    AnswerTotals,
    AttentionLine,
    CheckOutput,
    Example,
    LabelPrediction,
    LabelTotals,
    LineTotals,
    Links,
    ModelComparison,
    NotesScore,
    PairScore,
    Plan,
    Prompt,
    Reconstruction,
    Row,
    ScoreTotals,
    SentenceScores,
    TaggedSentence,
    TagTotals,
    TranslatedLine,
    TranslatedPassage,
    VectorTotals,
    VocabularyReport,
    keys_of,
)
from typing_extensions import NotRequired, TypedDict

from attnkit.analysis.compare_summary import SystemScores
from attnkit.analysis.compare_translators import TestComparison
from attnkit.analysis.contextual import WordComparison
from attnkit.analysis.run_report import RunReport
from attnkit.analysis.run_table import RunGroup, RunRow
from attnkit.analysis.verify import CheckResult
from attnkit.conversion.imported_run import ImportResult
from attnkit.engine.events import TrainingFinished
from attnkit.engine.plan import TrainingPlan
from attnkit.metrics.bleu import Comparison, MetricScore
from attnkit.plotting.lessons_terminal import MaskLesson, PoolingLesson, PositionsLesson
from attnkit.quality.clean_output import CleanReport
from attnkit.runtime.licenses import License
from attnkit.tasks.language_modeling.fill_mask import FilledText
from attnkit.tasks.translation.synthetic_output import SyntheticReport
from attnkit.tasks.word2vec.evaluate import PairScores, SectionScores
from attnkit.tasks.word2vec.one_hot import OneHot
from attnkit.tasks.word_alignment.lexicon import AlignmentReport
from attnkit.text.config import PhrasesConfig


class Swept(TypedDict):
    """What became of the runs of a sweep; with --dry-run, their names alone."""

    finished: list[str]
    """Names of runs."""
    ended_early: list[str]
    """Names of configurations."""
    failed: dict[str, int]
    """Name of a run -> exit code."""
    groups: list[RunGroup]
    """Configurations with the scores of their seeds, the best first."""
    tests: list[TestComparison]
    """Each configuration beside the first one, on each test file."""


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
    "translate": Printed((TranslatedLine, TranslatedPassage), "line of input, or passage of a document"),
    "back-translate": Printed((SyntheticReport,)),
    "augment": Printed((SyntheticReport,)),
    "distill": Printed((SyntheticReport,)),
    "align": Printed((Links, AlignmentReport), "pair; the last line has the totals"),
    "attend": Printed((AttentionLine, Example), "line of input"),
    "embed": Printed((Row, Reconstruction, LineTotals, VectorTotals), "row; with --reconstruct, totals come last"),
    "score": Printed((PairScore, ScoreTotals), "pair; the last line has the totals"),
    "score-bleu": Printed((list[MetricScore], list[Comparison], list[NotesScore], list[SentenceScores])),
    "compare": Printed((list[TestComparison], list[SystemScores])),
    "runs": Printed((list[RunRow], list[RunGroup])),
    "report": Printed((RunReport,)),
    "plan": Printed((TrainingPlan,)),
    "sweep": Printed((Swept, list[str])),
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
