"""Configurations, presets and detection of language models. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.data.config import MaskingConfig, TextConfig
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.names import Direction
from attnkit.engine.run_config import RunConfig
from attnkit.models.language_config import LANGUAGE_SIZES, BertConfig, ElectraConfig, GptConfig, LanguageConfig
from attnkit.models.limits import check_length
from attnkit.models.lora import LoraConfig, check_adapter
from attnkit.models.parts import LanguagePartName

LANGUAGE_TASKS = ("mlm", "clm", "text-classification", "token-classification", "question-answering")
"""Tasks whose runs may contain BERT or GPT."""
MASK = "[MASK]"  #: the mask token, a symbol of the vocabulary
SCALES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocabulary": {"size": 4000},
        "data": {"sequence_length": 128},
        "optimization": {"learning_rate": 2e-3, "warmup_steps": 200, "batch_tokens": 4096},
        "limits": {"max_epochs": 20.0},
        "evaluation": {"every_epochs": 2.0},
    },
    "mini": {
        "vocabulary": {"size": 8000},
        "data": {"sequence_length": 128},
        "optimization": {"learning_rate": 1e-3, "warmup_steps": 500, "batch_tokens": 4096},
        "limits": {"max_epochs": 5.0},
        "evaluation": {"every_epochs": 0.5},
    },
    "small": {
        "vocabulary": {"size": 16000},
        "data": {"sequence_length": 128},
        "optimization": {"learning_rate": 7e-4, "warmup_steps": 2000, "batch_tokens": 16384},
        "limits": {"max_steps": 100_000},
        "evaluation": {"every_steps": 2000},
    },
    "base": {
        "vocabulary": {"size": 32000},
        "data": {"sequence_length": 512},
        "optimization": {
            "learning_rate": 1e-4,
            "warmup_steps": 10_000,
            "batch_tokens": 131_072,
            "gradient_accumulation_steps": 4,
        },
        "limits": {"max_steps": 1_000_000},
        "evaluation": {"every_steps": 5000},
    },
    # Of a run with initial weights of its own task, as of translators; ``adjust_init_path`` sets the rate.
    "adapt": {
        "optimization": {"warmup_steps": 100, "warmup_fraction": 0.1, "batch_tokens": 2048},
        "limits": {"max_epochs": 10.0, "early_stopping_patience": 3},
        "evaluation": {"every_epochs": 1.0},
    },
}
DROPOUT = {"tiny": 0.1, "mini": 0.0, "small": 0.0, "base": 0.1}
"""Dropout per preset; 0 for few epochs over much text, which is faster (Geiping and Goldstein 2022)."""
ATTENTION_DROPOUT = {**DROPOUT, "base": 0.0}  #: 0 for base: the GPU kernel for packed passages has no dropout
ELECTRA_METRICS = ("loss", "detection_loss", "precision", "recall", "generator_loss", "generator_accuracy")
_REPLACEMENTS = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}  # of the selected tokens of an ELECTRA
BERT_POSITIONS = "rotary"
"""With learned positions, a small BERT only learns unigram frequencies: docs/log/2026-11-22-bert-positions.md."""


class LanguageAdaptationConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Frozen parts and layer-wise learning rates of a run with ``--init-from``."""

    freeze: tuple[LanguagePartName, ...] = ()
    """Parts of the model to freeze: embeddings, layers, output. Tied matrices belong to the embeddings, the final norm
    to the layers."""
    freeze_layers: int = Field(default=0, ge=0)
    """Number of lowest layers to freeze, together with the embeddings. 0: freeze none for this reason."""
    layerwise_lr_decay: float = Field(default=1.0, gt=0, le=1)
    """Learning rate of each layer relative to the layer above it (Howard and Ruder 2018, section 3.2); the top layer is
    trained at ``learning_rate``, the embeddings most slowly."""

    @property
    def frozen(self) -> tuple[LanguagePartName, ...]:
        """Return the parts of which no weight is trained."""
        return (*self.freeze, "embeddings") if self.freeze_layers else self.freeze


class MlmConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration of a masked language modeling run."""

    task: Literal["mlm"] = "mlm"
    """The task."""
    data: TextConfig
    """The text."""
    model: BertConfig
    """The architecture."""
    objective: Literal["mlm", "electra"] = "mlm"
    """What BERT learns to predict: masked tokens (mlm), or which tokens a small masked language model replaced
    (electra: Clark et al. 2020)."""
    masking: MaskingConfig = MaskingConfig()
    """Masking of tokens."""
    electra: ElectraConfig = ElectraConfig()
    """Generator and loss with ``objective`` electra."""
    adapter: LoraConfig | None = None
    """Adapters to train instead of the weights of ``--init-from``, e.g. ``adapter.kind=lora``. Null: train the
    weights."""
    finetuning: LanguageAdaptationConfig = LanguageAdaptationConfig()
    """Frozen parts and layer-wise learning rates of a run with ``--init-from``."""

    @model_validator(mode="after")
    def _check(self) -> MlmConfig:
        if self.objective != "electra":
            unused = ElectraConfig()
            for key, value in self.electra:
                if value != getattr(unused, key):
                    raise ValueError(f"electra.{key}={value:g} needs objective=electra")
        _check_frozen(self.finetuning, self.model, self.fsdp)
        _check_adapter(self)
        _check_rows(self.model, self.data, self.data.isolate_documents and not self.model.next_sentence)
        for key, is_set in (("model.next_sentence", self.model.next_sentence), ("fsdp", self.fsdp)):
            if is_set and self.objective == "electra":
                raise ValueError(f"objective electra cannot be combined with {key}")
        if self.vocabulary_files is None and MASK not in self.vocabulary.symbols:
            raise ValueError(f"vocabulary.symbols needs {MASK}, the mask token")
        return self

    @property
    def lora(self) -> LoraConfig | None:
        """Return the settings of adapters, if any."""
        return self.adapter

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the evaluation metrics of masked tokens, and of sentence pairs if used.

        ``loss`` is in nats, accuracies are in percent. With several files, ``accuracy_2`` is that of the second one.
        With ``objective`` electra, see ``electra.ElectraEvaluation``.
        """
        if self.objective == "electra":
            return ELECTRA_METRICS
        found = _metrics(self.data)
        return (*found, "next_accuracy") if self.model.next_sentence else found

    @property
    def usage(self) -> tuple[str, ...]:
        """Return ``finetune`` for an ELECTRA, whose generator fills masks worse."""
        return () if self.generator is None else ("finetune", "--task", "text-classification", "--train", "train.tsv")

    @property
    def generator(self) -> ElectraConfig | None:
        """Return the settings of a generator of replaced tokens, if there is one."""
        return self.electra if self.objective == "electra" else None

    @property
    def activation_floats_per_token(self) -> float:
        """Return the estimate for the encoder and any generator."""
        own = self.model.activation_floats_per_token
        if self.generator is None:
            return own
        return own + self.model.generator_architecture(self.generator.generator_size).activation_floats_per_token


class ClmConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration of a causal language modeling run."""

    task: Literal["clm"] = "clm"
    """The task."""
    data: TextConfig
    """The text."""
    direction: Direction = "left-to-right"
    """Order in which the model reads the tokens of a document."""
    model: GptConfig
    """The architecture."""
    adapter: LoraConfig | None = None
    """Adapters to train instead of the weights of ``--init-from``, e.g. ``adapter.kind=lora``. Null: train the
    weights."""
    finetuning: LanguageAdaptationConfig = LanguageAdaptationConfig()
    """Frozen parts and layer-wise learning rates of a run with ``--init-from``."""

    @model_validator(mode="after")
    def _check(self) -> ClmConfig:
        _check_frozen(self.finetuning, self.model, self.fsdp)
        _check_adapter(self)
        _check_rows(self.model, self.data, self.data.isolate_documents)
        return self

    @property
    def lora(self) -> LoraConfig | None:
        """Return the settings of adapters, if any."""
        return self.adapter

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics: ``loss`` in nats per token, accuracies in percent."""
        return _metrics(self.data)


def mlm_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset with ``[MASK]`` in its vocabulary."""
    tree = clm_preset(name, kind)
    return {**tree, "vocabulary": {**tree["vocabulary"], "symbols": [MASK]}}


def adjust_mlm_preset(tree: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset that masks all selected tokens for an ELECTRA.

    Shares that the user sets are kept. Clark et al. 2020, section 2: the generator reads [MASK] at all of them. BERT
    keeps some words, as it is fine-tuned on texts without masks; the encoder of an ELECTRA never reads one.
    """
    masking = settings.get("masking", {})
    is_set = not isinstance(masking, Mapping) or _REPLACEMENTS.keys() & masking.keys()
    return tree if is_set or settings.get("objective") != "electra" else {**tree, "masking": dict(_REPLACEMENTS)}


def clm_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset."""
    scale = SCALES[name]
    seen = {"positions": BERT_POSITIONS} if kind == "bert" else {}
    sizes = LANGUAGE_SIZES.get(kind, {}).get(name)
    model: dict[str, Any] = {}  # of "adapt", and of unknown kinds, which the schema reports
    if sizes is not None:
        dropout = {"dropout": DROPOUT[name], "attention_dropout": ATTENTION_DROPOUT[name]}
        positions = {"max_length": scale["data"]["sequence_length"]}  # no more positions than are trained
        model = {**sizes, **positions, **seen, **dropout}
    return {
        **scale,
        "optimization": {"schedule": "linear", "warmup_fraction": 0.2, "label_smoothing": 0.0, **scale["optimization"]},
        "limits": {"metric": "loss", **scale["limits"]},
        "model": {"kind": kind, **model},
    }


def _check_frozen(finetuning: LanguageAdaptationConfig, model: LanguageConfig, fsdp: bool) -> None:
    """Reject more frozen layers than there are, and runs that train nothing."""
    if finetuning.freeze_layers > model.n_layers:
        raise ValueError(f"finetuning.freeze_layers={finetuning.freeze_layers}: the model has {model.n_layers} layers")
    if not (frozen := set(finetuning.frozen)):
        return
    if fsdp:
        raise ValueError("finetuning.freeze cannot be combined with fsdp")
    # The output of a GPT with tied embeddings is the embeddings.
    if model.kind == "gpt" and model.tie_embeddings and "embeddings" in frozen:
        frozen.add("output")
    if frozen == {"embeddings", "layers", "output"}:
        raise ValueError("finetuning.freeze leaves no weights to train")


def _check_adapter(config: MlmConfig | ClmConfig) -> None:
    if config.adapter is not None and config.finetuning.frozen:
        raise ValueError("adapters freeze all weights: use adapter.maps instead of finetuning.freeze")
    check_adapter(config.adapter, config.model.kind, config.fsdp)


def _metrics(data: TextConfig) -> tuple[str, ...]:
    n = len(data.valid_files or data.files)  # files that are scored separately
    each = [f"accuracy_{number}" for number in range(1, n + 1)] if n > 1 else []
    return ("loss", "perplexity", "accuracy", "top_5", *each)


def holds_language(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint contains BERT or GPT; raise ``RunError`` if damaged."""
    model = read_tree(checkpoint).get("model")
    return isinstance(model, dict) and model.get("kind") in ("bert", "gpt")


def is_language(path: Path) -> bool:
    """Return whether a path, which need not exist, is a language-model run."""
    return is_run(path) and holds_language(RunFolder(path).checkpoint()[0])


def _check_rows(model: LanguageConfig, data: TextConfig, isolated: bool) -> None:
    """Reject overlong rows, and position-based alignments for isolated documents.

    Isolated documents share rows, so their token positions in training would differ from those in use.
    """
    check_length(model, {f"rows of data.sequence_length={data.sequence_length} tokens": data.sequence_length})
    options = model.attention_options
    placed = {"location"} | ({"feature"} if "position" in (options.first_feature, options.second_feature) else set())
    for name, _ in model.heads:
        if isolated and name in placed:
            raise ValueError(
                f"alignment {name} depends on row positions, which document packing shifts; set "
                "data.isolate_documents=false or choose another alignment"
            )
