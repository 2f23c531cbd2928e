"""Configuration of word2vec runs, defaults of the methods, and saved counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.config import Layer
from attnkit.data.config import WordsConfig
from attnkit.runtime.signals import usable_cpus
from attnkit.training.config import CheckpointConfig, LimitsConfig

Method = Literal["skip-gram", "cbow", "glove"]
Context = Literal["mean", "sum", "concat"]
Loss = Literal["negative", "hierarchical", "full"]
MAX_THREADS = 1024
_MAX_BUCKETS = 1 << 27
_LARGE_TEXT = 100_000_000  # words from which x_max is that of the paper: docs/log/2026-11-30-glove.md


class WordTextConfig(WordsConfig, frozen=True, extra="forbid", strict=True):
    """Training text and the selection of words that get vectors."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text, plain or compressed (.gz, .xz, .bz2, .zst); ``-``: standard input. Windows do not cross line boundaries."""


class SubwordConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Character n-grams that compose word vectors, also of unseen words (fastText)."""

    min_n: int = Field(default=3, ge=1, le=64)
    """Minimum length of n-grams in characters."""
    max_n: int = Field(default=6, ge=1, le=64)
    """Maximum length of n-grams in characters."""
    buckets: int = Field(default=2_000_000, ge=1, le=_MAX_BUCKETS)
    """Number of hash buckets: rows that the n-grams share."""

    @model_validator(mode="after")
    def _in_order(self) -> SubwordConfig:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n={self.min_n} is more than max_n={self.max_n}")
        return self


class GloveConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Weighting of GloVe's least-squares loss (Pennington et al. 2014, section 3.1)."""

    x_max: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Co-occurrence count from which a pair of words has weight 1. Null: 10 for fewer than 100 million words, else 100,
    the value of the paper for billions of words."""
    exponent: float = Field(default=0.75, ge=0, le=10)
    """Exponent of the weight (x / x_max)**exponent of pairs with a count x below ``x_max``."""
    memory: float = Field(default=0.5, gt=0, le=4096)
    """Memory for counting co-occurrences, in gigabytes; excess counts are written to disk and merged."""

    def cutoff(self, n_words: int) -> float:
        """Return x_max for a text of n words."""
        return self.x_max or (10.0 if n_words < _LARGE_TEXT else 100.0)


class Word2VecConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Configuration of a word2vec run, as ``word2vec train --dry-run`` prints it."""

    task: Literal["word2vec"] = "word2vec"
    """Task of the run."""
    data: WordTextConfig
    """Training text and the selection of words that get vectors."""
    method: Method = "skip-gram"
    """Predict context words from a word (skip-gram), the reverse (cbow), or factorize co-occurrence counts (glove)."""
    context: Context = "mean"
    """How CBOW combines the vectors of the context words."""
    loss: Loss = "negative"
    """Negative sampling, hierarchical softmax (Huffman tree), or full softmax J(θ)."""
    dim: int = Field(default=100, ge=1, le=8192)
    """Dimension of the vectors."""
    window: int = Field(default=5, ge=1, le=10_000)
    """Maximum number of context words on either side of a word."""
    dynamic_window: bool = True
    """Draw the window of each word from 1 to ``window``, which gives nearby words more weight."""
    negative: int = Field(default=5, ge=1, le=1024)
    """Negative samples per predicted word."""
    exact: bool = False
    """Draw fresh negatives for every skip-gram pair, as gensim does, instead of sharing them within a block."""
    sample: float = Field(default=1e-3, ge=0, le=1, allow_inf_nan=False)
    """Subsampling threshold: words with a larger share of the text are randomly dropped; 0 disables subsampling."""
    ns_exponent: float = Field(default=0.75, ge=-10, le=10)
    """Negatives are drawn in proportion to the word count to this power."""
    subwords: SubwordConfig | None = None
    """Compose word vectors from character n-grams. Null: every word has an independent vector."""
    glove: GloveConfig = GloveConfig()
    """Settings of method glove."""
    epochs: int = Field(default=5, ge=1, le=1_000_000)
    """Passes over the text, or over its co-occurrences (glove)."""
    alpha: float = Field(default=0.025, gt=0, le=10, allow_inf_nan=False)
    """Initial learning rate; the default depends on the method."""
    min_alpha: float = Field(default=1e-4, ge=0, le=10, allow_inf_nan=False)
    """Final learning rate of the linear decay (not for glove, which uses AdaGrad)."""
    init_from: str | None = None
    """Initial vectors: a run, or a vector file of any format; words not in it are initialized at random."""
    threads: int = Field(default=1, ge=1, le=MAX_THREADS)
    """Number of training threads; by default one per processor."""
    deterministic: bool = False
    """Reproducible bytes for a given seed and thread count: threads train copies, which are merged in a fixed order."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Random seed of the initial vectors and of all sampling."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Training device; auto is the CPU, whose compiled loops are faster than a GPU here."""
    save_every: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    """Minutes between checkpoints; 0 saves as often as possible."""

    @property
    def model_kind(self) -> str:
        """Return the method, which serves as the kind of model."""
        return self.method

    @property
    def limits(self) -> LimitsConfig:
        """Return the training limits, here the number of epochs."""
        return LimitsConfig(max_epochs=float(self.epochs))

    @property
    def checkpoints(self) -> CheckpointConfig:
        """Return the checkpoint policy: keep the newest checkpoint and one fallback."""
        return CheckpointConfig(keep_last=2, keep_best=0)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return no metrics, since word vectors have no development set."""
        return ()

    @property
    def resumable_keys(self) -> tuple[str, ...]:
        """Return the keys that may differ when a run is resumed."""
        return ("save_every",) if self.deterministic else ("save_every", "threads")

    @property
    def needs_torch(self) -> bool:
        """Return whether no compiled loop supports this configuration."""
        return self.device == "cuda" or self.loss == "full" or self.context == "concat"

    @model_validator(mode="after")
    def _choices_fit(self) -> Word2VecConfig:
        cuda, cbow, glove = self.device == "cuda", self.method == "cbow", self.method == "glove"
        exact_fits = self.method == "skip-gram" and self.loss == "negative"
        for refused, why in (
            (self.context != "mean" and not cbow, "context requires method=cbow: add it, or leave context out"),
            (self.loss != "negative" and glove, "loss cannot be set with method=glove: leave it out"),
            (
                self.exact and not exact_fits,
                "exact requires method=skip-gram with loss=negative: add them, or leave exact out",
            ),
            (
                self.subwords is not None and (glove or self.needs_torch),
                "subwords requires skip-gram, or CBOW with context mean or sum, and loss negative or hierarchical,"
                " on the CPU: leave subwords out otherwise",
            ),
            (cuda and glove, "device=cuda cannot be combined with method=glove: leave it out"),
            (self.deterministic and cuda, "deterministic and device=cuda cannot be combined: leave one of them out"),
            (
                not glove and self.min_alpha > self.alpha,
                f"min_alpha={self.min_alpha:g} is more than alpha={self.alpha:g}",
            ),
            (self.data.files.count("-") > 1, "data.files: standard input can be read only once"),
        ):
            if refused:
                raise ValueError(why)
        return self


Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class LossSums(BaseModel, extra="forbid", strict=True):
    """Sums over the chunks since the last log record."""

    loss: Finite = 0.0
    terms: Count = 0
    words: Count = 0


class Word2VecCounters(BaseModel, extra="forbid", strict=True):
    """Training state of a run other than its matrices."""

    step: Count = 0
    """Number of chunks trained, over all epochs."""
    n_steps: Count = 0
    """Total number of chunks, over all epochs."""
    trained: Count = 0
    """Words trained on, not counting words dropped by subsampling."""
    raw: Count = 0
    """Number of words in the text."""
    minutes: Finite = Field(default=0.0, ge=0)
    """Wall-clock training time."""
    loss: Finite | None = None
    """Mean loss of the last log record."""
    finished: Literal["epochs", "stopped"] | None = None
    """Reason why training ended; None while it runs."""
    pending: LossSums = LossSums()

    @model_validator(mode="after")
    def _steps_fit(self) -> Word2VecCounters:
        if self.step > self.n_steps or (self.finished == "epochs" and self.step < self.n_steps):
            raise ValueError(f"step {self.step} is not between 0 and {self.n_steps}")
        return self


def defaults(given: Mapping[str, Any]) -> list[Layer]:
    """Return the layers of default values: thread count and method defaults.

    With negative sampling and mean context, the learning rates are those that performed best on 15 million words
    (``benchmarks/word2vec.py``); the others are word2vec's own.
    """
    method = str(given.get("method", "skip-gram"))
    chosen: dict[str, Any] = {}
    if method == "glove":
        chosen = {"alpha": 0.05, "epochs": 25, "window": 15}
    elif method in ("skip-gram", "cbow"):
        measured = given.get("loss", "negative") == "negative" and given.get("context", "mean") == "mean"
        rates = {"skip-gram": 0.05, "cbow": 0.075} if measured else {"skip-gram": 0.025, "cbow": 0.05}
        chosen = {"alpha": rates[method]}
    return [Layer("number of processors", {"threads": usable_cpus()}), Layer(f"method {method}", chosen)]
