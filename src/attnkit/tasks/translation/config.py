"""Configuration of a translation run. Torch-free: help and validation stay fast."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.data.config import DataConfig
from attnkit.data.directions import bleu_of
from attnkit.decoding.config import SearchConfig
from attnkit.engine.run_config import RunConfig
from attnkit.models.config import ModelConfig
from attnkit.models.layer_config import ties_sides
from attnkit.models.limits import check_length
from attnkit.models.lora import LoraConfig, check_adapter
from attnkit.models.parts import PartName
from attnkit.text.config import MAX_ENTRIES, check_symbols
from attnkit.text.sources import language_of

MIN_CONFIDENCE_LINES = 200  #: validation lines below which no confidence is learned


class AdaptationConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Frozen parts and layer-wise learning rates of a run with ``--init-from``."""

    freeze: tuple[PartName, ...] = ()
    """Parts of the model to freeze: embeddings, encoder, decoder, output. Tied matrices belong to the embeddings."""
    layerwise_lr_decay: float = Field(default=1.0, gt=0, le=1)
    """Learning rate of each layer relative to the layer above it (Howard and Ruder 2018, section 3.2), in encoder and
    decoder alike; the top layers are trained at ``learning_rate``, the embeddings most slowly."""


class ExtensionConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Additions to the vocabulary of ``--init-from``."""

    symbols: tuple[str, ...] = ()
    """Symbols to add, e.g. tags: each is always a single token, also in the vocabulary of an imported translator."""
    files: tuple[str, ...] = ()
    """Text files for whose frequent words or subwords entries are added, e.g. of a new language."""
    entries: int = Field(default=1000, ge=1, le=MAX_ENTRIES)
    """Maximum number of entries added for ``files``."""

    @model_validator(mode="after")
    def _check(self) -> ExtensionConfig:
        if not self.symbols and not self.files:
            raise ValueError("name symbols or files to add")
        check_symbols(self.symbols)
        return self


class RegularizationConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Regularization of training besides dropout and label smoothing."""

    r_drop: float = Field(default=0.0, ge=0, le=1000)
    """Weight alpha of R-Drop (Liang et al. 2021, equation 4): each batch passes twice, with different dropout, and the
    divergence of both predictions is added to the loss. A step takes twice as long. 0: off."""
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability with which a merge is left out when training text is segmented, anew in every epoch (BPE-dropout,
    Provilkov et al. 2020); vocabularies of kind bpe only. 0: off."""
    unigram_alpha: float | None = Field(default=None, ge=0, le=10)
    """Exponent of the probabilities with which segmentations of training text are drawn, anew in every epoch (subword
    regularization, Kudo 2018, equation 9); vocabularies of kind unigram only. Null: off."""

    @property
    def sampled_kind(self) -> Literal["bpe", "unigram"] | None:
        """Kind of vocabulary that is sampled anew in every epoch; None: none."""
        return "unigram" if self.unigram_alpha is not None else "bpe" if self.bpe_dropout else None

    @model_validator(mode="after")
    def _check(self) -> RegularizationConfig:
        if self.bpe_dropout and self.unigram_alpha is not None:
            raise ValueError("bpe_dropout and unigram_alpha cannot be combined: they need different vocabularies")
        return self


class TranslationConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration of a translation run, as ``attnkit train --dry-run`` prints it."""

    task: Literal["translation"] = "translation"
    """Task of the run."""
    data: DataConfig
    """Training and validation files, and which pairs are dropped."""
    joint_vocabulary: bool = True
    """Whether source and target share one vocabulary; required by ``model.tie_embeddings=all``."""
    vocabulary_files: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=2)
    """Vocabulary files from ``attnkit vocab``: one joint file, or source and target. Null: train new vocabularies."""
    model: ModelConfig
    """Architecture of the model."""
    adapter: LoraConfig | None = None
    """Adapters to train instead of the weights of ``--init-from``, e.g. ``adapter.kind=lora``. Null: train the
    weights."""
    finetuning: AdaptationConfig = AdaptationConfig()
    """Frozen parts and layer-wise learning rates of a run with ``--init-from``."""
    extension: ExtensionConfig | None = None
    """Additions to the vocabulary of ``--init-from``. Null: none."""
    regularization: RegularizationConfig = RegularizationConfig()
    """R-Drop, BPE-dropout and unigram sampling."""
    decoding: SearchConfig = SearchConfig()
    """Search settings: the defaults of ``attnkit translate``, and with a beam size of 1 those of validation."""
    confidence: bool = True
    """Learn how probable it is that a translation is acceptable, from the validation lines (at least 200) after
    training."""

    @property
    def inline_symbols(self) -> tuple[str, ...]:
        """Return the symbols that ``data`` needs in vocabularies, placeholders first."""
        if not (self.data.placeholders or self.data.annotate_terms):
            return ()
        from attnkit.text.inline_symbols import inline_symbols  # imported here: most runs have none

        return inline_symbols(placeholders=self.data.placeholders, annotate_terms=self.data.annotate_terms)

    @property
    def language_options(self) -> tuple[str, ...]:
        """Return the options of ``translate`` for the first direction, if it has a name."""
        pair = self.data.training_pairs[0]
        if not pair.direction:
            return ()
        # An imported model of many languages reads a code of each, others a tag of the target language.
        source = ("--src-lang", pair.source_language) if self.vocabulary.language_codes else ()
        return (*source, "--tgt-lang", pair.target_language)

    @property
    def learns_confidence(self) -> bool:
        """Return whether the run learns the confidence of its translations."""
        return self.confidence and self.data.denoise is None

    @property
    def lora(self) -> LoraConfig | None:
        """Return the settings of adapters, if any."""
        return self.adapter

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the evaluation metrics; several directions have BLEU each."""
        directions = self.data.known_directions
        own = [bleu_of(direction) for direction in directions] if len(directions) > 1 else []
        return ("loss", "perplexity", "bleu", "chrf", *own)

    @property
    def n_passes(self) -> int:
        """Return the number of passes over a batch in a step."""
        return 2 if self.regularization.r_drop else 1

    @property
    def resumable_keys(self) -> tuple[str, ...]:
        """Return the keys that may change when a run is resumed."""
        return (*super().resumable_keys, "confidence")

    @property
    def max_source(self) -> int:
        """Maximum source tokens, without EOS, of a line that is translated unsplit."""
        longest = self.model.max_positions
        return self.data.max_length if longest is None else min(self.data.max_length, longest - 1)

    @model_validator(mode="after")
    def _can_denoise(self) -> TranslationConfig:
        data = self.data
        if data.denoise is None:
            return self
        for prefix in ("", "valid_"):
            if getattr(data, f"{prefix}src") != getattr(data, f"{prefix}tgt"):
                raise ValueError(f"data.denoise needs the same files as data.{prefix}src and data.{prefix}tgt")
        for key in ("bidirectional", "mix_src", "placeholders", "annotate_terms"):
            if getattr(data, key):
                raise ValueError(f"data.denoise cannot be combined with data.{key}")
        if data.directions is None and len({language_of(Path(name)) for name in data.src}) > 1:
            raise ValueError("data.denoise needs the languages of several files: name them a.en and b.de")
        if data.directions is None and len({language_of(Path(name)) for name in data.valid_src or ()}) > 1:
            raise ValueError("data.denoise has text of one language, but validation files of several")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> TranslationConfig:
        joint = self.vocabulary_files is None or len(self.vocabulary_files) == 1
        if self.vocabulary_files is not None and joint != self.joint_vocabulary:
            raise ValueError("vocabulary_files must name one file for a joint vocabulary and two for separate ones")
        lines = f"lines of data.max_length={self.data.max_length} tokens"
        search, n_source = self.decoding, self.data.max_length + 1
        target = f"decoding.max_length={search.max_length}" if search.max_length else f"translations of {lines}"
        needs = {
            lines: n_source,
            target: search.limit(n_source),
            f"decoding.min_length={search.min_length}": search.min_length + 1,
        }
        check_length(self.model, needs)
        for key in ("placeholders", "annotate_terms"):
            if getattr(self.data, key) and self.vocabulary.kind == "word":
                raise ValueError(f"data.{key} needs subwords or characters, not vocabulary.kind=word")
        if self.extension is not None and self.extension.files and not self.joint_vocabulary:
            raise ValueError("extension.files needs a joint vocabulary")
        rates = ("dropout", "attention_dropout", "activation_dropout", "word_dropout")
        drops = any(getattr(self.model, rate, 0) for rate in rates) or (self.adapter and self.adapter.dropout)
        if self.regularization.r_drop and not drops:
            raise ValueError("regularization.r_drop needs dropout: without it, both passes are the same")
        kind = self.regularization.sampled_kind
        if kind is not None and self.vocabulary_files is None and self.vocabulary.kind != kind:
            key = {"bpe": "bpe_dropout", "unigram": "unigram_alpha"}[kind]
            raise ValueError(f"regularization.{key} needs vocabulary.kind={kind}, not {self.vocabulary.kind}")
        if self.fsdp and self.finetuning.freeze:
            raise ValueError("finetuning.freeze cannot be combined with fsdp")
        if self.adapter is not None:
            if self.extension is not None:
                raise ValueError("adapters do not train the rows of new entries: use extension without adapter")
            if self.finetuning.freeze:
                raise ValueError("adapters freeze all weights: use adapter.maps instead of finetuning.freeze")
        check_adapter(self.adapter, self.model.kind, self.fsdp)
        if ties_sides(self.model.tie_embeddings) and not self.joint_vocabulary:
            raise ValueError(
                f"model.tie_embeddings={self.model.tie_embeddings} needs joint_vocabulary=true; "
                "use model.tie_embeddings=target with two vocabularies"
            )
        return self
