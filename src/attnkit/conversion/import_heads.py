"""An imported model as a run: its task, its head, its first checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import MODEL, tensors_of, to_bytes
from attnkit.config import dump_yaml, validate
from attnkit.data.labels import Labels
from attnkit.engine.registry import TASKS
from attnkit.errors import RunError
from attnkit.formats.huggingface import layout
from attnkit.formats.huggingface.config import ForeignModel
from attnkit.io import atomic
from attnkit.models.heads import SequenceClassifier, SpanPredictor, TokenClassifier
from attnkit.models.language_config import BertConfig
from attnkit.tasks.finetuning.config import FinetuneConfig
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig
from attnkit.text.conll import holds_space

Config = MlmConfig | ClmConfig | FinetuneConfig


@contextmanager
def _made(path: Path) -> Iterator[Path]:
    """Yield the folder to write into: one that appears when all is written, or the one that is there."""
    if path.exists():
        yield path
        return
    atomic.make_dirs(path.absolute().parent)
    with atomic.atomic_dir(path.absolute()) as temporary:
        yield temporary


def write_imported(path: Path, config: Config, given: Mapping[str, bytes], model: nn.Module, origin: Path) -> None:
    """Make a run: a checkpoint of its step 0, at which there is nothing of an optimizer yet."""
    texts = {"config.yaml": dump_yaml(config).encode(), **given}
    state = {"counters": _COUNTERS, "fingerprint": "", "init_from": None, "metrics_size": 0, "scores": {}}
    contents = {"state.json": json.dumps(state, sort_keys=True).encode(), MODEL: to_bytes(tensors_of(model))}
    card = _CARD.format(name=path.absolute().name, kind=TASKS[config.task].description, folder=origin)
    with _made(path) as place:
        run = RunFolder(place)
        with run.lock():
            run.save(0, {**texts, **contents})
            for name, content in {**texts, "README.md": card.encode()}.items():
                run.write_copy(name, content)
            run.write_status(Status(state="stopped", step=0, reason=f"imported from {origin}", exit_code=0))


_COUNTERS: dict[str, Any] = {
    **{"step": 0, "epoch": 0.0, "tokens": 0, "minutes": 0.0, "skipped": 0, "skipped_in_row": 0},
    **{
        "best": None,
        "best_step": None,
        "best_loss": None,
        "evals_without_improvement": 0,
        "plateau_wait": 0,
        "lr_scale": 1.0,
    },
    **{"eval_pending": False, "finished": "stopped", "updates": 0, "position": {"epoch": 0, "index": 0}},
}
_CARD = """\
# {name}

Imported by attnkit as {kind} from the Hugging Face folder `{folder}`. It was not trained here; the
whole configuration is in `config.yaml`.
"""


_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}
_DEFAULT = 2  # labels, which config.json then does not name


@dataclass(frozen=True)
class Head:
    """The head on an encoder."""

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
        """Return the configuration of a run that would have had these weights."""
        kind = TASKS[self.task]
        tree = kind.preset("base", "bert")
        tree |= {"task": self.task, "data": {"files": [str(folder)]}, "model": {**model}, "preset": "base"}
        found = validate(kind.config, {**tree, "vocabulary": {**vocabulary}})
        assert isinstance(found, FinetuneConfig)
        return found


def find_head(tree: Mapping[str, Any], described: ForeignModel, names: Mapping[str, str]) -> Head | None:
    """Return the head of a folder's model; None without a supported one."""
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
    """Return whether the outputs are not labels of which one is right."""
    return tree.get("problem_type") in ("regression", "multi_label_classification")


def _labels(tree: Mapping[str, Any]) -> Labels | None:
    named = tree.get("id2label", {str(i): f"LABEL_{i}" for i in range(_DEFAULT)})
    if not isinstance(named, dict) or sorted(named) != sorted(map(str, range(len(named)))):
        return None
    try:
        return Labels.parse(json.dumps({"labels": [named[str(i)] for i in range(len(named))]}).encode(), "config.json")
    except RunError:
        return None
