"""What the model of a Hugging Face folder was fine-tuned for, and the run that it becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.config import validate
from attnkit.data.labels import Labels
from attnkit.engine.registry import TASKS
from attnkit.errors import RunError
from attnkit.formats.huggingface import layout
from attnkit.formats.huggingface.config import ForeignModel
from attnkit.models.heads import SequenceClassifier, SpanPredictor, TokenClassifier
from attnkit.models.language_config import BertConfig
from attnkit.tasks.finetuning.config import FinetuneConfig
from attnkit.text.conll import holds_space

_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}
_DEFAULT = 2  # labels, which config.json then does not name


@dataclass(frozen=True)
class Head:
    """What stands on an encoder."""

    task: str
    links: list[layout.Link]
    """Of the head alone."""
    labels: Labels | None
    """None for a reader."""

    @property
    def texts(self) -> dict[str, bytes]:
        """What a checkpoint holds of it besides weights."""
        return {} if self.labels is None else {"labels.json": self.labels.to_bytes()}

    def build(self, config: BertConfig, vocab_size: int) -> SequenceClassifier | TokenClassifier | SpanPredictor:
        """Return the model, of fresh weights."""
        if self.labels is None:
            return SpanPredictor(config, vocab_size)
        kind = SequenceClassifier if self.task == "text-classification" else TokenClassifier
        return kind(config, vocab_size, len(self.labels.labels))

    def configure(self, folder: Path, model: Mapping[str, Any], vocabulary: Mapping[str, Any]) -> FinetuneConfig:
        """Return the configuration of a run that would have begun with these weights."""
        kind = TASKS[self.task]
        tree = kind.preset("base", "bert")
        tree |= {"task": self.task, "data": {"files": [str(folder)]}, "model": {**model}, "preset": "base"}
        found = validate(kind.config, {**tree, "vocabulary": {**vocabulary}})
        assert isinstance(found, FinetuneConfig)
        return found


def find_head(tree: Mapping[str, Any], described: ForeignModel, names: Mapping[str, str]) -> Head | None:
    """Return the head of a folder's model; None where it has none that we have, or one whose outputs are no labels."""
    architectures = tree.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else ""
    task = next((task for end, task in _TASKS.items() if str(name).endswith(end)), None)
    if task is None or described.kind == "gpt2":
        return None
    links = layout.head_of(task, described.kind)
    if not {name for link in links for name in link.theirs} <= names.keys():
        return None
    if task == "question-answering":
        return Head(task, links, None)
    labels = None if _is_other(tree) else _labels(tree)
    if (
        task == "token-classification" and labels is not None and any(map(holds_space, labels.labels))
    ):  # tags stand between spaces
        return None
    return None if labels is None else Head(task, links, labels)


def _is_other(tree: Mapping[str, Any]) -> bool:
    """Return whether the outputs are no labels of which one is right."""
    return tree.get("problem_type") in ("regression", "multi_label_classification")


def _labels(tree: Mapping[str, Any]) -> Labels | None:
    named = tree.get("id2label", {str(i): f"LABEL_{i}" for i in range(_DEFAULT)})
    if not isinstance(named, dict) or sorted(named) != sorted(map(str, range(len(named)))):
        return None
    try:
        return Labels.parse(json.dumps({"labels": [named[str(i)] for i in range(len(named))]}).encode(), "config.json")
    except RunError:
        return None
