"""The configuration of a run of word vectors, the defaults of its methods, and the counters that it saves."""

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


class WordTextConfig(WordsConfig, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """The text and which of its words get vectors."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text, plain or compressed (.gz, .xz, .bz2); ``-`` is standard input. A line is a text of its own."""


class SubwordConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Character n-grams, of which words are composed, unseen ones too (fastText)."""

    min_n: int = Field(default=3, ge=1, le=64)
    """Characters of the shortest n-grams."""
    max_n: int = Field(default=6, ge=1, le=64)
    """Characters of the longest."""
    buckets: int = Field(default=2_000_000, ge=1, le=_MAX_BUCKETS)
    """Rows that the n-grams share."""

    @model_validator(mode="after")
    def _in_order(self) -> SubwordConfig:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n={self.min_n} is more than max_n={self.max_n}")
        return self


class GloveConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Settings of GloVe's weighted least squares (Pennington et al. 2014, section 3.1)."""

    x_max: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    """Co-occurrences from which on a pair of words has full weight."""
    exponent: float = Field(default=0.75, ge=0, le=10)
    """Below it a pair weighs (x / x_max) to this power."""
    memory: float = Field(default=0.5, gt=0, le=4096)
    """Gigabytes for counting co-occurrences; what is more goes to disk and is merged."""


class Word2VecConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Everything that decides a run; ``attnkit word2vec train --dry-run`` shows it with the origin of each value."""

    task: Literal["word2vec"] = "word2vec"
    """Task of the run."""
    data: WordTextConfig
    """The text and which of its words get vectors."""
    method: Method = "skip-gram"
    """Predict neighbours from a word (skip-gram), the reverse (cbow), or factorize counts (glove)."""
    context: Context = "mean"
    """Combination of the neighbours' vectors in CBOW."""
    loss: Loss = "negative"
    """Negative sampling, hierarchical softmax (Huffman tree), or full softmax J(θ)."""
    dim: int = Field(default=100, ge=1, le=8192)
    """Numbers of a vector."""
    window: int = Field(default=5, ge=1, le=10_000)
    """Most words between a word and its neighbours, on either side."""
    dynamic_window: bool = True
    """Draw the window of each word from 1 to ``window``, so that near neighbours count more."""
    negative: int = Field(default=5, ge=1, le=1024)
    """Random words for each neighbour."""
    exact: bool = False
    """Skip-gram draws fresh random words for every pair, as gensim does, instead of sharing them in a block."""
    sample: float = Field(default=1e-3, ge=0, le=1, allow_inf_nan=False)
    """Words that make up a larger share of the text than this are randomly dropped; 0 drops none."""
    ns_exponent: float = Field(default=0.75, ge=-10, le=10)
    """Random words are drawn by their count to this power."""
    subwords: SubwordConfig | None = None
    """Compose words of their character n-grams. Null: every word is a vector of its own."""
    glove: GloveConfig = GloveConfig()
    """For method glove alone."""
    epochs: int = Field(default=5, ge=1, le=1_000_000)
    """Passes over the text, or over its co-occurrences (glove)."""
    alpha: float = Field(default=0.025, gt=0, le=10, allow_inf_nan=False)
    """Learning rate at the beginning; chosen by the method unless given."""
    min_alpha: float = Field(default=1e-4, ge=0, le=10, allow_inf_nan=False)
    """Final learning rate of the linear decay (not for glove, whose steps AdaGrad scales)."""
    init_from: str | None = None
    """Initial vectors: a run, or a file of any format; other words are initialized at random."""
    threads: int = Field(default=1, ge=1, le=MAX_THREADS)
    """Threads that train; by default as many as there are processors."""
    deterministic: bool = False
    """Reproducible bytes for one seed and number of threads: threads train copies, joined in a fixed order."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Decides initial vectors and everything that is drawn."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; auto is the CPU, whose compiled loops beat a GPU here."""
    save_every: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    """Minutes after which a checkpoint is due; 0 saves as often as possible."""

    @property
    def model_kind(self) -> str:
        """The method, in the place of a kind of model."""
        return self.method

    @property
    def limits(self) -> LimitsConfig:
        """When training ends."""
        return LimitsConfig(max_epochs=float(self.epochs))

    @property
    def checkpoints(self) -> CheckpointConfig:
        """The newest checkpoint is kept, and one to fall back on."""
        return CheckpointConfig(keep_last=2, keep_best=0)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Word vectors have no development set."""
        return ()

    @property
    def resumable_keys(self) -> tuple[str, ...]:
        """Keys that a resumed run may have changed."""
        return ("save_every",) if self.deterministic else ("save_every", "threads")

    @property
    def needs_torch(self) -> bool:
        """Whether what was chosen has no compiled loop."""
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


class LossSums(BaseModel, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Sums over the chunks since the last record of the log."""

    loss: Finite = 0.0
    terms: Count = 0
    words: Count = 0


class Word2VecCounters(BaseModel, extra="forbid", strict=True, use_attribute_docstrings=True):
    """The state of a run besides its matrices."""

    step: Count = 0
    """Chunks done, of all epochs."""
    n_steps: Count = 0
    """Chunks of all epochs."""
    trained: Count = 0
    """Words trained on, without those that subsampling left out."""
    raw: Count = 0
    """Words of the text."""
    minutes: Finite = Field(default=0.0, ge=0)
    """Wall time of training."""
    loss: Finite | None = None
    """Mean of the last record of the log."""
    finished: Literal["epochs", "stopped"] | None = None
    """Why training ended."""
    pending: LossSums = LossSums()

    @model_validator(mode="after")
    def _steps_fit(self) -> Word2VecCounters:
        if self.step > self.n_steps or (self.finished == "epochs" and self.step < self.n_steps):
            raise ValueError(f"step {self.step} is not between 0 and {self.n_steps}")
        return self


def defaults(given: Mapping[str, Any]) -> list[Layer]:
    """Return the layers below all settings: the number of threads, and the choices of the method.

    With negative sampling the learning rates are those that did best in ``benchmarks/word2vec.py``, on 15 million
    words; the others are word2vec's own.
    """
    method = str(given.get("method", "skip-gram"))
    chosen: dict[str, Any] = {}
    if method == "glove":
        chosen = {"alpha": 0.05, "epochs": 25, "window": 15}
    elif method in ("skip-gram", "cbow"):
        measured = given.get("loss", "negative") == "negative" and given.get("context", "mean") == "mean"
        rates = {"skip-gram": 0.05, "cbow": 0.075} if measured else {"skip-gram": 0.025, "cbow": 0.05}
        chosen = {"alpha": rates[method]}
    return [Layer("the processors", {"threads": usable_cpus()}), Layer(f"method {method}", chosen)]
