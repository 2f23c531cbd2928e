"""Registry of tasks: names, locations of their code, and defaults. Torch-free.

Code is given as "module:symbol" below ``attnkit`` and imported on first use, so a command loads only its own task. To
add a task, create a package in ``tasks``, add an entry here, and add its name to ``names.TaskName``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, cast

from attnkit.engine.run_config import AUTO, LANGUAGE_AUTO, TRANSLATION_AUTO, PresetThresholds


# Strings rather than imports: --help reads the table and must not load torch.
def load_symbol(path: str) -> Any:
    """Import and return "module:symbol", a path below ``attnkit``."""
    module, symbol = path.split(":")
    return getattr(import_module(f"attnkit.{module}"), symbol)


@dataclass(frozen=True)
class TaskSpec:
    """Torch-free description of a task."""

    # For messages.
    description: str  #: noun phrase for a model of the task
    command: str  #: command that uses its runs
    unit: str  #: plural noun for its examples
    # Code, imported on first use.
    task_path: str  #: the ``Task`` object
    config_path: str  #: the configuration class
    # Paths of functions, as presets and defaults belong to the tasks.
    preset_path: str | None = None  #: function (preset, kind of model) -> configuration tree
    default_kind: str | None = None  #: default kind of model
    default_kind_path: str = ""  #: function (given settings) -> default kind of model, if it depends on settings
    defaults_path: str | None = None
    """For a task without presets: function (given settings) -> layers of defaults, lowest priority first."""
    counters_path: str = "engine.checkpoint_metadata:Counters"  #: schema of the counters in ``state.json``
    # Use.
    predictor_path: str | None = None
    """Function (loaded model, request, warn) -> predictor, for tasks that ``attnkit predict`` supports."""
    predict_formats: tuple[str, ...] = ()  #: input formats: the default, the one with gold labels, and others
    gold_suffixes: tuple[str, ...] = ()  #: file suffixes that select the format with gold labels
    # Tasks with several models.
    variants: Mapping[str, TaskSpec] = field(default_factory=dict)
    """Kind of model -> entry that replaces this one, for a task whose models differ in data and presets."""
    default_variant: str | None = None  #: kind of model of a new run without initial weights
    # Commands and input.
    train_command: str = "train"  #: command that trains it
    reads_streams: bool = False  #: whether input may be a stream that can be read only once, e.g. standard input
    # Required settings, and how a message asks for them.
    required_keys: tuple[str, ...] = ("data.files",)
    example: str = "--data FILE"  #: example of flags for the ``required_keys``
    input_keys: tuple[str, ...] = ("data.files", "data.valid_files")
    """Keys of files that are read several times; the lines in the files of the first key select the preset."""
    # Presets.
    preset_thresholds: PresetThresholds = AUTO
    """All presets of the task, each with the number of lines below which it is selected."""
    adjust_path: str | None = None
    """Function (preset's tree, other settings) -> tree, for a task whose presets depend on other settings."""
    lengthen_path: str | None = None
    """Function (preset's tree, lines in the training files) -> tree, for a task that trains longer on few examples."""
    init_preset: str | None = None
    """Preset of runs with initial weights of the same task; it needs such weights."""
    adjust_init_path: str | None = None
    """Function (tree of ``init_preset``, other settings) -> tree, if it depends on the model or on adapters."""
    # Initialization from other runs.
    objective_key: str | None = None
    """Key that names the training objective; only runs of the same task inherit it."""
    objective_settings: tuple[str, ...] = ()
    """Keys of the settings of one objective, which are inherited with it."""
    init_from_tasks: tuple[str, ...] = ()  #: other tasks whose runs ``--init-from`` accepts
    excluded_init_keys: tuple[str, ...] = ()  #: model keys that are not inherited from these tasks
    adapt_init_path: str | None = None
    """Function (configuration of another task's run, kind of model) -> inherited settings, if their keys differ."""
    preset_for_init_path: str | None = None
    """Function (model of the initial run) -> preset, used instead of ``preset_thresholds``."""

    @property
    def presets(self) -> tuple[str, ...]:
        """Names of the task's presets."""
        return tuple(name for _, name in self.preset_thresholds) + ((self.init_preset,) if self.init_preset else ())

    @property
    def config(self) -> type[Any]:
        """Configuration class, which satisfies ``RunSettings``."""
        return cast(type[Any], load_symbol(self.config_path))

    def preset(self, name: str, kind: str) -> dict[str, Any]:
        """Return the configuration tree of a preset for a kind of model."""
        assert self.preset_path is not None
        return cast(dict[str, Any], load_symbol(self.preset_path)(name, kind))


# Dropout depends on the data; next_sentence and tie_embeddings concern only pretraining heads.
EXCLUDED_INIT_KEYS = (
    *("dropout", "attention_dropout", "activation_dropout", "layer_dropout"),
    *("next_sentence", "tie_embeddings"),
)
"""Model keys that a fine-tuned run does not inherit from the pretrained one."""

# One task with two models: a hierarchical network trained from scratch, or a fine-tuned BERT.
HAN_CLASSIFICATION = TaskSpec(
    description="a document classifier (han)",
    command="predict",
    unit="documents",
    task_path="tasks.text_classification.task:TASK",
    config_path="tasks.text_classification.config:HanClassificationConfig",
    preset_path="tasks.text_classification.config:han_preset",
    default_kind="han",
    predictor_path="tasks.text_classification.predict:HanPredictor",
    predict_formats=("lines", "table", "pairs"),
    example="documents and labels: --data FILE.tsv",
)
# The other fine-tuning tasks differ only in names and formats.
_FINETUNED = replace(
    HAN_CLASSIFICATION,
    description="a text classifier",
    unit="texts",
    task_path="tasks.finetuning.text_classification:TASK",
    config_path="tasks.finetuning.config:TextClassificationConfig",
    preset_path="tasks.finetuning.config:text_classification_preset",
    default_kind="bert",
    predictor_path="tasks.finetuning.text_classification:TextClassificationPredictor",
    example="texts and labels: attnkit finetune RUN --task text-classification --train FILE.tsv",
    preset_thresholds=LANGUAGE_AUTO,
    init_from_tasks=("mlm",),
    excluded_init_keys=EXCLUDED_INIT_KEYS,
    preset_for_init_path="tasks.finetuning.config:preset_for_encoder",
    adjust_path="tasks.finetuning.config:adjust_for_adapters",
)

# In the order in which messages list the tasks.
TASKS: dict[str, TaskSpec] = {
    # Sequence to sequence.
    "translation": TaskSpec(
        description="a translation model",
        command="translate",
        unit="pairs",
        task_path="tasks.translation.task:TASK",
        config_path="tasks.translation.config:TranslationConfig",
        preset_path="engine.run_config:preset",
        default_kind="transformer",
        required_keys=("data.src", "data.tgt"),
        example="two files: --src a.en --tgt a.de",
        input_keys=("data.src", "data.tgt", "data.valid_src", "data.valid_tgt", "data.mix_src", "data.mix_tgt"),
        init_from_tasks=("mlm",),
        adapt_init_path="tasks.translation.bert_encoder:config_from_bert",
        preset_thresholds=TRANSLATION_AUTO,
        init_preset="adapt",
        adjust_init_path="engine.run_config:adjust_adapting",
    ),
    "autoencode": TaskSpec(
        description="an auto-encoder",
        command="embed",
        unit="rows",
        task_path="tasks.autoencoding.task:TASK",
        config_path="tasks.autoencoding.config:AutoencodeConfig",
        preset_path="tasks.autoencoding.config:autoencode_preset",
        default_kind_path="tasks.autoencoding.config:autoencode_kind",
        example="text or vectors: --data FILE",
    ),
    # Pretraining.
    "mlm": TaskSpec(
        description="a masked language model",
        command="fill-mask",
        unit="documents",
        task_path="tasks.language_modeling.task:TASK",
        config_path="tasks.language_modeling.config:MlmConfig",
        preset_path="tasks.language_modeling.config:mlm_preset",
        adjust_path="tasks.language_modeling.config:adjust_mlm_preset",
        objective_key="objective",
        objective_settings=("electra",),
        default_kind="bert",
        example="text: attnkit pretrain-mlm FILE",
        preset_thresholds=LANGUAGE_AUTO,
    ),
    "clm": TaskSpec(
        description="a language model",
        command="generate",
        unit="documents",
        task_path="tasks.language_modeling.task:TASK",
        config_path="tasks.language_modeling.config:ClmConfig",
        preset_path="tasks.language_modeling.config:clm_preset",
        default_kind="gpt",
        example="text: attnkit pretrain-clm FILE",
        preset_thresholds=LANGUAGE_AUTO,
        init_preset="adapt",
        adjust_init_path="engine.run_config:adjust_adapting",
    ),
    # Fine-tuning of a pretrained encoder.
    "text-classification": replace(
        _FINETUNED,
        variants={"han": HAN_CLASSIFICATION},
        default_variant="han",
        lengthen_path="tasks.finetuning.config:lengthened",
    ),
    "token-classification": replace(
        _FINETUNED,
        description="a tagger",
        unit="sentences",
        task_path="tasks.finetuning.token_classification:TASK",
        config_path="tasks.finetuning.config:TokenClassificationConfig",
        preset_path="tasks.finetuning.config:token_classification_preset",
        lengthen_path="tasks.finetuning.config:lengthened_tagging",
        example="tagged words: attnkit finetune RUN --task token-classification --train FILE",
        predictor_path="tasks.finetuning.predict_token_classification:TokenClassificationPredictor",
        predict_formats=("lines", "conll"),
        gold_suffixes=(".conll", ".bio", ".iob", ".iob2", ".bioes", ".bilou"),
    ),
    "question-answering": replace(
        _FINETUNED,
        description="a question-answering model",
        unit="questions",
        task_path="tasks.finetuning.question_answering:TASK",
        config_path="tasks.finetuning.config:QuestionAnsweringConfig",
        preset_path="tasks.finetuning.config:question_answering_preset",
        example="questions: attnkit finetune RUN --task question-answering --train FILE.json",
        predictor_path="tasks.finetuning.question_answering:QuestionAnsweringPredictor",
        predict_formats=("jsonl", "squad"),
        gold_suffixes=(".json",),
    ),
    # The only task with its own training loop.
    "word2vec": TaskSpec(
        description="word vectors",
        command="word2vec similar",
        unit="words",
        task_path="tasks.word2vec.task:TASK",
        config_path="tasks.word2vec.config:Word2VecConfig",
        defaults_path="tasks.word2vec.config:defaults",
        counters_path="tasks.word2vec.config:Word2VecCounters",
        example="text: attnkit word2vec train FILE -o RUN",
        input_keys=("data.files",),
        train_command="word2vec train",
        reads_streams=True,
        preset_thresholds=(),
    ),
}
"""Name of a task -> its entry."""


def task_spec(task: str, model_kind: object) -> TaskSpec:
    """Return the entry of a task for a kind of model."""
    spec = TASKS[task]
    # An unknown kind gets the task's own entry, whose schema then reports the valid kinds.
    return spec.variants.get(model_kind, spec) if isinstance(model_kind, str) else spec
