"""The table of tasks: for each its configuration, where its code lies, and how its settings are completed. Torch-free.

A new task is its configuration, its module with a ``TASK`` (``task.Task``), and its line here; its name goes to
``presets.TaskName`` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnkit.engine.presets import AUTO, Auto, preset
from attnkit.engine.run_config import RunConfig
from attnkit.tasks.autoencoding.config import AutoencodeConfig, autoencode_kind, autoencode_preset
from attnkit.tasks.finetuning.config import (
    EXCLUDED_INIT_KEYS,
    AnswerConfig,
    TagConfig,
    TextClassifyConfig,
    answer_preset,
    classify_texts_preset,
    finetune_kind,
    fitting_preset,
    tag_preset,
)
from attnkit.tasks.language_modeling.config import (
    LANGUAGE_AUTO,
    ClmConfig,
    MlmConfig,
    clm_kind,
    clm_preset,
    mlm_kind,
    mlm_preset,
)
from attnkit.tasks.text_classification.config import ClassifyConfig, classify_kind, classify_preset
from attnkit.tasks.translation.bert_encoder_config import config_from_bert
from attnkit.tasks.translation.config import TranslationConfig


@dataclass(frozen=True)
class TaskSpec:
    """What is known of a task without torch."""

    description: str
    """What its runs hold, for messages."""
    command: str
    """The one that takes its runs."""
    unit: str
    """What its data are made of, for messages."""
    module: str
    """Of ``attnkit.tasks``; it holds ``TASK``."""
    config: type[RunConfig]
    preset: Callable[[str, str], dict[str, Any]]
    """(name, kind of model): the tree of a preset."""
    default_model: Callable[[Mapping[str, Any]], str]
    """(what was given): the kind of model where nobody said it."""
    required_keys: tuple[str, ...] = ("data.files",)
    """Keys that somebody has to give."""
    example: str = "--data FILE"
    """How they are given."""
    input_keys: tuple[str, ...] = ("data.files", "data.valid_files")
    """Keys that name files, which are read several times; the first one's lines choose the preset."""
    preset_thresholds: Auto = AUTO
    """Which preset they choose; all that the task has are here."""
    init_from_tasks: tuple[str, ...] = ()
    """Other kinds of runs that one of this kind may begin with, besides its own."""
    excluded_init_keys: tuple[str, ...] = ()
    """Keys of their models that it does not take over."""
    adapt_init_config: Callable[[Mapping[str, Any], Any], dict[str, Any]] | None = None
    """(configuration of a run of another kind, kind of model asked for): what it takes over, where its keys differ."""
    preset_for_init: Callable[[Mapping[str, Any]], str] | None = None
    """(model of the run begun with): the preset for it, in place of the one for a number of lines."""

    @property
    def presets(self) -> tuple[str, ...]:
        """Return the names of the task's presets."""
        return tuple(name for _, name in self.preset_thresholds)


TASKS: dict[str, TaskSpec] = {
    "translation": TaskSpec(
        description="a translation model",
        command="translate",
        unit="pairs",
        module="translation.task",
        config=TranslationConfig,
        preset=preset,
        default_model=lambda given: "transformer",
        required_keys=("data.src", "data.tgt"),
        example="two files: --src a.en --tgt a.de",
        input_keys=("data.src", "data.tgt", "data.valid_src", "data.valid_tgt"),
        init_from_tasks=("mlm",),
        adapt_init_config=config_from_bert,
    ),
    "autoencode": TaskSpec(
        description="an auto-encoder",
        command="embed",
        unit="rows",
        module="autoencoding.task",
        config=AutoencodeConfig,
        preset=autoencode_preset,
        default_model=autoencode_kind,
        example="text or vectors: --data FILE",
    ),
    "classify": TaskSpec(
        description="a document classifier",
        command="classify",
        unit="documents",
        module="text_classification.task",
        config=ClassifyConfig,
        preset=classify_preset,
        default_model=classify_kind,
        example="documents and labels: --data FILE.tsv",
    ),
    "mlm": TaskSpec(
        description="a masked language model",
        command="fill-mask",
        unit="documents",
        module="language_modeling.task",
        config=MlmConfig,
        preset=mlm_preset,
        default_model=mlm_kind,
        example="text: attnkit pretrain-mlm FILE",
        preset_thresholds=LANGUAGE_AUTO,
    ),
    "clm": TaskSpec(
        description="a language model",
        command="generate",
        unit="documents",
        module="language_modeling.task",
        config=ClmConfig,
        preset=clm_preset,
        default_model=clm_kind,
        example="text: attnkit pretrain-clm FILE",
        preset_thresholds=LANGUAGE_AUTO,
    ),
    "text-classification": TaskSpec(
        description="a classifier of texts",
        command="predict",
        unit="texts",
        module="finetuning.text_classification",
        config=TextClassifyConfig,
        preset=classify_texts_preset,
        default_model=finetune_kind,
        example="texts and labels: attnkit finetune RUN --task text-classification --train FILE.tsv",
        preset_thresholds=LANGUAGE_AUTO,
        init_from_tasks=("mlm",),
        excluded_init_keys=EXCLUDED_INIT_KEYS,
        preset_for_init=fitting_preset,
    ),
    "token-classification": TaskSpec(
        description="a tagger",
        command="predict",
        unit="sentences",
        module="finetuning.token_classification",
        config=TagConfig,
        preset=tag_preset,
        default_model=finetune_kind,
        example="tagged words: attnkit finetune RUN --task token-classification --train FILE",
        preset_thresholds=LANGUAGE_AUTO,
        init_from_tasks=("mlm",),
        excluded_init_keys=EXCLUDED_INIT_KEYS,
        preset_for_init=fitting_preset,
    ),
    "question-answering": TaskSpec(
        description="a reader that answers questions",
        command="predict",
        unit="questions",
        module="finetuning.question_answering",
        config=AnswerConfig,
        preset=answer_preset,
        default_model=finetune_kind,
        example="questions: attnkit finetune RUN --task question-answering --train FILE.json",
        preset_thresholds=LANGUAGE_AUTO,
        init_from_tasks=("mlm",),
        excluded_init_keys=EXCLUDED_INIT_KEYS,
        preset_for_init=fitting_preset,
    ),
}
"""Name -> task."""

EXTERNAL_TASKS = {"word2vec": "word2vec similar"}
"""Kinds of runs that are trained by commands of their own -> the command that takes them."""
