"""Configuration of training data: files, noise, windows, masking. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.data.directions import FilePair, is_direction, reverse, temperature_weights
from attnkit.text.config import InfillingConfig, PhrasesConfig

_MAX_WEIGHT = 1000


class DataConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Parallel text files and the filtering of training pairs."""

    src: tuple[str, ...] = Field(min_length=1)
    """Source text, one sentence per line, aligned line by line with ``tgt``: files, patterns and folders of files, or
    fields of tables, as `a.jsonl:en` or `{path: a.jsonl, field: en}`."""
    tgt: tuple[str, ...] = Field(min_length=1)
    """Target text, one file or field per entry of ``src``."""
    weights: tuple[float, ...] | None = None
    """Passes over each pair of files per epoch; 0.5 uses a random half, redrawn every epoch. Null: one pass."""
    directions: tuple[str, ...] | None = None
    """Languages of each pair of files, such as `en:de`, for one model of several directions: each source then has
    the tag of its target language before it, such as `<2de>` (Johnson et al. 2017). An imported M2M100, NLLB-200 or
    mBART-50 has codes instead, as in `eng_Latn:deu_Latn`. Null: no tags, or the codes of the import."""
    bidirectional: bool = False
    """Train each pair of files in both directions. Without `directions`, the suffixes of the files are the languages:
    `a.en`, `a.de`."""
    temperature: float = Field(default=1.0, ge=1, le=1e6)
    """Temperature T of sampling over directions (Arivazhagan et al. 2019): a direction with share p of all pairs gets
    a share of each epoch proportional to p**(1/T). 1 uses each pair once; above it, small directions are repeated."""
    valid_src: tuple[str, ...] | None = None
    """Source files for validation. Null: pairs are held out from the training files."""
    valid_tgt: tuple[str, ...] | None = None
    """Target files for validation, one per file in ``valid_src``."""
    valid_directions: tuple[str, ...] | None = None
    """Languages of each pair of validation files. Null: those of the training files, if they are all alike."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Number of pairs held out for validation if no validation files are given; at most 5% of all pairs."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Random seed for the selection of held-out pairs, and for nothing else."""
    mix_src: tuple[str, ...] = ()
    """Source files of general text, mixed with the others so that an adapted model does not forget it (rehearsal)."""
    mix_tgt: tuple[str, ...] = ()
    """Target files of general text, one per file in ``mix_src``."""
    mix_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the pairs of an epoch that are general text; a random part of it is drawn every epoch."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Maximum tokens on either side of a training pair; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=20.0, ge=1.0, le=1e9)
    """Maximum length ratio of a training pair, in tokens plus one; pairs beyond it are dropped and counted."""
    max_character_ratio: float | None = Field(default=9.0, gt=1.0, le=1e9)
    """Maximum factor by which the length ratio of a pair, in characters, may differ from the median of its corpus.
    Training pairs beyond it are dropped and counted; `attnkit check` reports them beforehand. Null: no limit."""
    placeholders: bool = False
    """Replace URLs, e-mail addresses, placeholders such as `{name}`, and numbers that both sides of a pair have by
    symbols; `attnkit translate` replaces those of its input and puts them back."""
    annotate_terms: bool = False
    """Show translations after some words of a tenth of the training sources (Dinu et al. 2019); `attnkit translate
    --glossary` then shows those of the glossary, and the model inflects them."""
    denoise: InfillingConfig | None = None
    """Train to restore corrupted lines (BART-style pretraining, `--denoise`): ``src`` and ``tgt`` are the same files,
    and each source is its line without some spans of tokens. Null: translate."""
    accept: bool = False
    """Train even if the check of the files advises against it, as for misaligned files (`--accept-data`)."""

    @property
    def training_pairs(self) -> list[FilePair]:
        """Training files in each direction; reversed ones and general text come last."""
        pairs = self._pairs(self.src, self.tgt, self.directions)
        mixed = enumerate(zip(self.mix_src, self.mix_tgt, strict=True), len(self.src))
        return pairs + [FilePair(src, tgt, "", number) for number, (src, tgt) in mixed]

    @property
    def validation_pairs(self) -> list[FilePair]:
        """Validation files in each direction."""
        return self._pairs(self.valid_src or (), self.valid_tgt or (), self.valid_directions)

    @property
    def known_directions(self) -> tuple[str, ...]:
        """Directions that are validated, each once; none without ``directions``."""
        pairs = self.validation_pairs or self.training_pairs
        return tuple(dict.fromkeys(pair.direction for pair in pairs if pair.direction))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Target languages of the training files, each once; none without ``directions``."""
        return tuple(dict.fromkeys(pair.target_language for pair in self.training_pairs if pair.direction))

    @property
    def source_languages(self) -> tuple[str, ...]:
        """Source languages of all files, each once; none without ``directions``."""
        pairs = [*self.training_pairs, *self.validation_pairs]
        return tuple(dict.fromkeys(pair.source_language for pair in pairs if pair.direction))

    def sampling_weights(self, n_pairs: Sequence[int]) -> list[float] | None:
        """Return the passes per epoch over each of ``training_pairs``; None: one over all.

        ``n_pairs`` are the numbers of pairs of each. General text gets as many passes as give it ``mix_share``.

        >>> DataConfig(src=("a",), tgt=("b",), mix_src=("c",), mix_tgt=("d",)).sampling_weights([400, 1000])
        [1.0, 0.1]
        """
        if self.mix_src:
            own = list(self.weights or [1.0] * len(self.src))
            n_own = sum(weight * n for weight, n in zip(own, n_pairs, strict=False))
            passes = self.mix_share / (1 - self.mix_share) * n_own / max(1, sum(n_pairs[len(own) :]))
            return own + [min(passes, float(_MAX_WEIGHT))] * len(self.mix_src)
        weights = None if self.weights is None else list(self.weights) * (1 + self.bidirectional)
        if self.temperature == 1:
            return weights
        names = [pair.direction for pair in self.training_pairs]
        return temperature_weights(names, n_pairs, weights or [1.0] * len(n_pairs), self.temperature)

    def _pairs(self, src: Sequence[str], tgt: Sequence[str], directions: Sequence[str] | None) -> list[FilePair]:
        named = directions or [""] * len(src)
        # Files given again, the other way round, have the number of the first: both hold out the same lines.
        first: dict[frozenset[str], int] = {}
        pairs = [
            FilePair(*sides, first.setdefault(frozenset(sides[:2]), number))
            for number, sides in enumerate(zip(src, tgt, named, strict=True))
        ]
        if not self.bidirectional:
            return pairs
        return [*pairs, *(FilePair(two.tgt, two.src, reverse(two.direction), two.number) for two in pairs)]

    @model_validator(mode="after")
    def _check_files(self) -> DataConfig:
        if len(self.src) != len(self.tgt):
            raise ValueError(f"src has {len(self.src)} files but tgt has {len(self.tgt)}; expected equal numbers")
        if self.weights is not None and len(self.weights) != len(self.src):
            raise ValueError(f"weights has {len(self.weights)} values for {len(self.src)} pairs of files")
        if self.weights is not None and not (min(self.weights) >= 0 and 0 < max(self.weights) <= _MAX_WEIGHT):
            raise ValueError(f"weights must be between 0 and {_MAX_WEIGHT:,}, with at least one above 0")
        if len(self.mix_src) != len(self.mix_tgt):
            raise ValueError(f"mix_src has {len(self.mix_src)} files but mix_tgt has {len(self.mix_tgt)}")
        if self.mix_src and self.directions is not None:
            raise ValueError("mix_src cannot be combined with directions: use --pair and weights")
        if (self.valid_src is None) != (self.valid_tgt is None):
            missing = "valid_src" if self.valid_src is None else "valid_tgt"
            raise ValueError(f"valid_src and valid_tgt must be given together; {missing} is missing")
        if self.valid_src is not None and self.valid_tgt is not None:
            if not self.valid_src or len(self.valid_src) != len(self.valid_tgt):
                raise ValueError("valid_src and valid_tgt must name the same number of files, at least one")
        return self

    @model_validator(mode="after")
    def _check_directions(self) -> DataConfig:
        if self.bidirectional and self.directions is None:
            raise ValueError("bidirectional needs to know the languages: name the files a.en and a.de, or use --pair")
        if self.directions is None and (self.valid_directions is not None or self.temperature != 1):
            name = "valid_directions" if self.valid_directions is not None else "temperature"
            raise ValueError(f"{name} needs directions (--pair)")
        if self.directions is not None and self.valid_src is not None and self.valid_directions is None:
            raise ValueError("validation files of several directions need valid_directions (--valid-pair)")
        for key, files in (("directions", self.src), ("valid_directions", self.valid_src or ())):
            given = getattr(self, key) or ()
            if given and len(given) != len(files):
                raise ValueError(f"{key} has {len(given)} values for {len(files)} pairs of files")
            for direction in given:
                if not is_direction(direction):
                    raise ValueError(f"{key}: '{direction}' is not of the form en:de")
                if self.bidirectional and reverse(direction) == direction:
                    raise ValueError(f"{key}: '{direction}' has one language, so bidirectional has no other direction")
        unknown = {pair.target_language for pair in self.validation_pairs} - {*self.target_languages, ""}
        if unknown:
            raise ValueError(f"valid_directions: no training files have the target language {min(unknown)}")
        return self


class ExamplesConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Example files and the examples held out for validation."""

    files: tuple[str, ...] = Field(min_length=1)
    """Example files."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Files for validation. Null: examples are held out from ``files``."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Number of examples held out for validation if no validation files are given; at most 5% of all examples."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Random seed for the selection of held-out examples, and for nothing else."""


class RowsConfig(ExamplesConfig, frozen=True):
    """Files with one example per row: lines of text or numeric vectors."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text files with one example per line, or ``.npy`` or ``.csv`` files with one vector per row."""
    max_length: int = Field(default=256, ge=1, le=1 << 20)
    """Maximum tokens per line; longer lines are dropped from training and counted. Ignored for vectors."""


class DocumentsConfig(ExamplesConfig, frozen=True):
    """Labeled documents, one per line: the document, a tab, its label."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files of labeled documents."""
    max_length: int = Field(default=100, ge=1, le=1 << 16)
    """Maximum tokens per sentence; longer sentences are split."""
    max_sentences: int = Field(default=100, ge=1, le=1 << 16)
    """Maximum sentences per document in training and inference; longer documents are truncated and counted."""


class TextConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Documents of raw text, and their division into rows for a language model."""

    files: tuple[str, ...] = Field(min_length=1)
    """Text: files, patterns, folders, or fields of tables as `a.jsonl:en`. Each is a separate corpus, for example one
    language."""
    valid_files: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Files for validation. Null: documents are held out from ``files``."""
    document_format: Literal["auto", "lines", "blocks"] = "auto"
    """Unit of a document: a line, or a block of lines between blank lines; auto: blocks if the file has blank lines."""
    held_out: int = Field(default=1000, ge=1, lt=2**32)
    """Number of documents held out for validation if no validation files are given; at most 5% of each file."""
    held_out_seed: int = Field(default=1, ge=-(2**63), lt=2**63)
    """Random seed for the selection of held-out documents and for masking in validation."""
    valid_rows: int | None = Field(default=2048, ge=1, lt=2**31)
    """Maximum number of validation rows to score, evenly spaced in the validation text. Null: all rows."""
    sequence_length: int = Field(default=128, ge=8, le=1 << 20)
    """Tokens per row. Long documents are split into several rows, short ones share a row; no text is dropped."""
    isolate_documents: bool = True
    """Whether attention between documents in the same row is masked."""
    language_sampling_alpha: float = Field(default=1.0, ge=0, le=1)
    """Exponent alpha of the sampling: a file with share p of all tokens gets a share of each epoch proportional to
    p**alpha (Conneau and Lample 2019, equation 1). 1 uses each document once, 0 samples all files equally."""


class NoiseConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Noise of a denoising auto-encoder (Vincent et al. 2008), resampled every epoch.

    The types of noise are applied in the order of the fields.
    """

    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of dropping each token; at least one token per line is kept. Not available for vectors."""
    mask_prob: float = Field(default=0.0, ge=0, le=1)
    """Probability of replacing each token by ``<unk>``, or each number of a vector by the mean of its column."""
    shuffle_prob: float = Field(default=0.0, ge=0, le=1)
    """Probability of selecting each token; the selected tokens of a line are shuffled. Not available for vectors."""

    @property
    def any(self) -> bool:
        """Whether any noise is enabled."""
        return bool(self.word_dropout or self.mask_prob or self.shuffle_prob)


_LONGEST, _STRIDE, _QUESTION = 384, 128, 64  # from the code of Devlin et al. 2019


@dataclass(frozen=True)
class WindowSizes:
    """Sizes of sliding windows for one model, in tokens."""

    max_length: int
    stride: int  #: maximum distance between the starts of consecutive windows
    max_question_length: int
    max_answer_length: int
    fixed: bool = True
    """Whether all full windows are ``stride`` apart; otherwise the stride may be reduced to keep answers whole."""
    separators: int = 1  #: separators between question and window

    @property
    def n_symbols(self) -> int:
        """Return the number of special tokens per row."""
        return 2 + self.separators


class WindowsConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Sliding windows over contexts longer than a row (code of Devlin et al. 2019)."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Maximum tokens per row: question, window and special tokens (three in BERT). Null: 384, or the pretraining length
    if that is shorter."""
    stride: int | None = Field(default=None, ge=1, le=1 << 20)
    """Context tokens between the starts of consecutive windows. Null: 128, or three quarters of the window size
    beside a question of maximum length if that is less; then reduced for each question until consecutive windows share
    two answers of maximum length, but not below a quarter of the window size."""
    max_question_length: int | None = Field(default=None, ge=1, le=1 << 20)
    """Maximum tokens per question; the rest is truncated. Null: 64, or three eighths of a row if that is less."""
    max_answer_length: int = Field(default=30, ge=1, le=1 << 20)
    """Maximum tokens per predicted answer."""

    def within(self, usual: int, separators: int = 1) -> WindowSizes:
        """Return the window sizes for a model with ``usual`` tokens per row.

        Raises:
            ValueError: The windows would skip tokens.
        """
        length = self.max_length or min(_LONGEST, usual)
        question = self.max_question_length or max(1, min(_QUESTION, 3 * length // 8))
        room = length - 2 - separators - question
        stride = self.stride or max(1, min(_STRIDE, 3 * room // 4))
        if room < stride:
            what = f"max_length={length} leaves {max(0, room)} tokens for the context, given"
            raise ValueError(f"{what} max_question_length={question}; fewer than stride={stride}")
        return WindowSizes(length, stride, question, self.max_answer_length, self.stride is not None, separators)


class TextsConfig(ExamplesConfig, frozen=True):
    """Labeled texts or pairs of texts: tab-separated tables with a header."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Maximum tokens per row, special tokens included; longer texts are truncated and counted. Null: the pretraining
    length, at most 512."""


class TaggedConfig(ExamplesConfig, frozen=True):
    """Tagged sentences, one word per line, tag last; a blank line ends a sentence."""

    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    """Maximum tokens per row, special tokens included. Null: the pretraining length, at most 512."""


class QuestionsConfig(ExamplesConfig, frozen=True):
    """Questions about paragraphs that contain the answers, in the format of SQuAD.

    Paragraphs are held out together with all their questions.
    """

    windows: WindowsConfig = WindowsConfig()
    """Windows over paragraphs that do not fit into a row."""


class WordsConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Preprocessing of text for word vectors."""

    lower: bool = False
    """Lower-case the text."""
    separate_punctuation: bool = True
    """Make punctuation marks at the ends of words, as in `guitar,`, words of their own. False splits at white space
    alone. Not used with ``tokenizer``."""
    min_count: int = Field(default=5, ge=1, lt=2**40)
    """Minimum word frequency; rarer words get no vector and are removed before windows are formed."""
    max_vocab: int | None = Field(default=None, ge=1, le=1 << 28)
    """Maximum number of words, most frequent first. Null: all words with at least ``min_count`` occurrences."""
    tokenizer: str | None = None
    """Vocabulary file of `attnkit vocab`, or run, whose tokens are the words. Null: words are split at white space."""
    phrases: PhrasesConfig = PhrasesConfig()
    """Detection of phrases, which are joined into single words."""

    @model_validator(mode="after")
    def _check_tokens(self) -> WordsConfig:
        if self.tokenizer is not None and self.phrases.passes:
            raise ValueError("phrases and tokenizer cannot be combined: remove one")
        return self


class MaskingConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Masking for masked language models (Devlin et al. 2019, section 3.1)."""

    mask_prob: float = Field(default=0.15, gt=0, lt=1)
    """Share of tokens that are selected for prediction; with ``final_mask_prob``, that at the start of the run."""
    final_mask_prob: float | None = Field(default=None, gt=0, lt=1)
    """Share of tokens that are selected at the end of the run, to which ``mask_prob`` changes linearly (Ankner et al.
    2023), e.g. from 0.3 to 0.15; the limit that is nearest to its end measures the run, as for the learning rate.
    Development text is always masked at this rate. Null: constant."""
    mask_replace_prob: float = Field(default=0.8, ge=0, le=1)
    """Share of the selected tokens that are replaced by [MASK]. With ``objective`` electra, the default is 1 unless
    ``random_replace_prob`` is set."""
    random_replace_prob: float = Field(default=0.1, ge=0, le=1)
    """Share of the selected tokens that are replaced by a random token; the rest stay unchanged. With ``objective``
    electra, the default is 0 unless ``mask_replace_prob`` is set."""
    mask_unit: Literal["tokens", "words", "spans"] = "tokens"
    """Unit of masking: tokens, whole words, or spans of words (Joshi et al. 2020)."""
    span_geometric_p: float = Field(default=0.2, gt=0, le=1)
    """Probability that a span ends after each of its words; span lengths have a geometric distribution."""
    max_span_words: int = Field(default=10, gt=0, le=1 << 16)
    """Maximum words per span."""

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskingConfig:
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-12:
            shares = f"mask_replace_prob ({self.mask_replace_prob:g}) and random_replace_prob"
            raise ValueError(f"{shares} ({self.random_replace_prob:g}) must sum to at most 1")
        return self

    def at(self, progress: float) -> MaskingConfig:
        """Return the masking after a share of the run, with a constant rate.

        The rate is linear in ``progress`` from 0 to 1 (Ankner et al. 2023), and exact at both ends.
        """
        if self.final_mask_prob is None:
            return self
        rate = (1 - progress) * self.mask_prob + progress * self.final_mask_prob
        return self.model_copy(update={"mask_prob": rate, "final_mask_prob": None})

    @property
    def unchanged(self) -> float:
        """Return the share of the selected tokens that stay unchanged."""
        return max(0.0, 1 - self.mask_replace_prob - self.random_replace_prob)
