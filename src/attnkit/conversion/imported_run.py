"""Writing of imported models as run folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.checkpoints.checkpoint import MODEL, Content
from attnkit.config import dump_yaml
from attnkit.conversion.new_run import write_new_run
from attnkit.engine.registry import TASKS
from attnkit.io.plain_data import PlainResult

_CARD = """\
# {name}

Imported by attnkit as {kind} from the Hugging Face folder `{folder}`. It was not trained here; the
full configuration is in `config.yaml`.
"""


@dataclass(frozen=True)
class ImportResult(PlainResult):
    """A run created by an import."""

    path: Path
    command: str  #: command that uses the imported run, e.g. fill-mask, and options that it needs
    n_parameters: int
    vocab_size: int
    warnings: tuple[str, ...]  #: heads that are missing or not imported
    n_pruned: int = 0  #: entries of the target vocabulary that were left out
    n_pruned_bytes: int = 0  #: size of their weights, of both sides


@dataclass(frozen=True)
class ImportedModel:
    """A model of another system, converted, and what its run needs."""

    task: str
    config: Any
    texts: dict[str, bytes]  #: files of the checkpoint beside weights and configuration, e.g. tokenizer.json
    weights: Content  #: model.safetensors
    n_parameters: int
    vocab_size: int
    warnings: tuple[str, ...] = ()
    n_pruned: int = 0  #: entries of the target vocabulary that were left out
    n_pruned_bytes: int = 0
    command: str | None = None  #: command that uses the run; None: that of its task


def write_imported_run(folder: Path, run: Path, imported: ImportedModel) -> ImportResult:
    """Write a model imported from ``folder`` as a run with a checkpoint of step 0."""
    texts = {"config.yaml": dump_yaml(imported.config).encode(), **imported.texts}
    spec = TASKS[imported.task]
    card = _CARD.format(name=run.absolute().name, kind=spec.description, folder=folder)
    write_new_run(run, texts, {MODEL: imported.weights}, card, f"imported from {folder}")
    pruned = imported.n_pruned, imported.n_pruned_bytes
    command = imported.command or spec.command
    return ImportResult(run, command, imported.n_parameters, imported.vocab_size, imported.warnings, *pruned)
