"""How an imported model becomes a run: a checkpoint of step 0, and all that stands around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import MODEL, tensors_of
from attnkit.config import dump_yaml
from attnkit.engine.registry import TASKS
from attnkit.engine.weights import to_bytes
from attnkit.io import atomic
from attnkit.tasks.finetuning.config import FinetuneConfig
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig

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
