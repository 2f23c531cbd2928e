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
    NOT_TAKEN,
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
from attnkit.tasks.translation.bert_encoder_config import adopt
from attnkit.tasks.translation.config import TranslationConfig


@dataclass(frozen=True)
class Kind:
    """What is known of a task without torch."""

    noun: str
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
    model: Callable[[Mapping[str, Any]], str]
    """(what was given): the kind of model where nobody said it."""
    needs: tuple[str, ...] = ("data.files",)
    """Keys that somebody has to give."""
    example: str = "--data FILE"
    """How they are given."""
    texts: tuple[str, ...] = ("data.files", "data.valid_files")
    """Keys that name files, which are read several times; the first one's lines choose the preset."""
    auto: Auto = AUTO
    """Which preset they choose; all that the task has are here."""
    begins_with: tuple[str, ...] = ()
    """Other kinds of runs that one of this kind may begin with, besides its own."""
    not_taken: tuple[str, ...] = ()
    """Keys of their models that it does not take over."""
    adopt: Callable[[Mapping[str, Any], Any], dict[str, Any]] | None = None
    """(configuration of a run of another kind, kind of model asked for): what it takes over, where its keys differ."""
    fitting: Callable[[Mapping[str, Any]], str] | None = None
    """(model of the run begun with): the preset for it, in place of the one for a number of lines."""

    @property
    def presets(self) -> tuple[str, ...]:
        """Return the names of the task's presets."""
        return tuple(name for _, name in self.auto)


KINDS: dict[str, Kind] = {
    "translation": Kind(
        noun="a translation model",
        command="translate",
        unit="pairs",
        module="translation.task",
        config=TranslationConfig,
        preset=preset,
        model=lambda given: "transformer",
        needs=("data.src", "data.tgt"),
        example="two files: --src a.en --tgt a.de",
        texts=("data.src", "data.tgt", "data.valid_src", "data.valid_tgt"),
        begins_with=("mlm",),
        adopt=adopt,
    ),
    "autoencode": Kind(
        noun="an auto-encoder",
        command="embed",
        unit="rows",
        module="autoencoding.task",
        config=AutoencodeConfig,
        preset=autoencode_preset,
        model=autoencode_kind,
        example="text or vectors: --data FILE",
    ),
    "classify": Kind(
        noun="a document classifier",
        command="classify",
        unit="documents",
        module="text_classification.task",
        config=ClassifyConfig,
        preset=classify_preset,
        model=classify_kind,
        example="documents and labels: --data FILE.tsv",
    ),
    "mlm": Kind(
        noun="a masked language model",
        command="fill-mask",
        unit="documents",
        module="language_modeling.task",
        config=MlmConfig,
        preset=mlm_preset,
        model=mlm_kind,
        example="text: attnkit pretrain-mlm FILE",
        auto=LANGUAGE_AUTO,
    ),
    "clm": Kind(
        noun="a language model",
        command="generate",
        unit="documents",
        module="language_modeling.task",
        config=ClmConfig,
        preset=clm_preset,
        model=clm_kind,
        example="text: attnkit pretrain-clm FILE",
        auto=LANGUAGE_AUTO,
    ),
    "text-classification": Kind(
        noun="a classifier of texts",
        command="predict",
        unit="texts",
        module="finetuning.text_classification",
        config=TextClassifyConfig,
        preset=classify_texts_preset,
        model=finetune_kind,
        example="texts and labels: attnkit finetune RUN --task text-classification --train FILE.tsv",
        auto=LANGUAGE_AUTO,
        begins_with=("mlm",),
        not_taken=NOT_TAKEN,
        fitting=fitting_preset,
    ),
    "token-classification": Kind(
        noun="a tagger",
        command="predict",
        unit="sentences",
        module="finetuning.token_classification",
        config=TagConfig,
        preset=tag_preset,
        model=finetune_kind,
        example="tagged words: attnkit finetune RUN --task token-classification --train FILE",
        auto=LANGUAGE_AUTO,
        begins_with=("mlm",),
        not_taken=NOT_TAKEN,
        fitting=fitting_preset,
    ),
    "question-answering": Kind(
        noun="a reader that answers questions",
        command="predict",
        unit="questions",
        module="finetuning.question_answering",
        config=AnswerConfig,
        preset=answer_preset,
        model=finetune_kind,
        example="questions: attnkit finetune RUN --task question-answering --train FILE.json",
        auto=LANGUAGE_AUTO,
        begins_with=("mlm",),
        not_taken=NOT_TAKEN,
        fitting=fitting_preset,
    ),
}
"""Name -> task."""

OTHERS = {"word2vec": "word2vec similar"}
"""Kinds of runs that are trained by commands of their own -> the command that takes them."""
