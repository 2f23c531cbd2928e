"""Settings that a run inherits from another run, or from itself when resumed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import Layer, parse_yaml
from attnkit.engine.checkpoint_metadata import MAX_CONFIG_BYTES, read_tree
from attnkit.engine.presets import PRESETS
from attnkit.errors import RunError, UsageError
from attnkit.io.safe_read import read_regular_file

RESUMED_PREFIX = "-o "
"""Prefix of the origin of values that a resumed run takes from itself."""
VECTORS = ("embeddings", "target_embeddings")
"""Keys of a model that name word vectors."""
EMBEDDING_KEYS = (*VECTORS, "scale_embeddings")
"""Keys of initial embeddings; the weights contain them, so they are not inherited."""


def init_layer(run: Path) -> Layer:
    """Return what a run that starts from another takes over: model, vocabulary and how the two sides share it.

    Raises:
        RunError: no such run, or a damaged one.
    """
    tree = read_tree(RunFolder(run).checkpoint()[0])
    kept: dict[str, Any] = {
        key: tree[key] for key in ("task", "model", "vocabulary", "joint_vocabulary", "direction") if key in tree
    }
    if isinstance(kept.get("model"), dict):  # its weights have taken in the vectors that it began with
        kept["model"] = {key: value for key, value in kept["model"].items() if key not in EMBEDDING_KEYS}
        kept["model"] |= _learned_from(kept["model"], tree.get("data"))
    if (length := _row_length(tree)) is not None:
        kept["data"] = {"sequence_length": length}
    return Layer(f"--init-from {run}", kept)


def _learned_from(model: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return how long the rows of a language model were, where its positions have no table that says it."""
    length = data.get("sequence_length") if isinstance(data, dict) else None
    known = model.get("max_length")
    if model.get("positions") == "learned" or not isinstance(length, int) or not isinstance(known, int):
        return {}
    return {"max_length": max(known, length)}


def _row_length(tree: Mapping[str, Any]) -> int | None:
    """Return ``data.sequence_length`` of a language model's run, which its positions are made for."""
    data = tree.get("data")
    length = data.get("sequence_length") if isinstance(data, dict) else None
    return length if isinstance(length, int) else None


def inherited(init_from: Path, run: Path | None) -> Layer:
    """Return what a run takes over from another; one that goes on has it in itself, and the other may be gone."""
    if run is None or not RunFolder(run).exists() or not RunFolder(run).steps():
        return init_layer(init_from)
    return Layer(
        f"{RESUMED_PREFIX}{run}", {**init_layer(run).tree, **_lengths(read_tree(RunFolder(run).checkpoint()[0]))}
    )


def _lengths(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return how long lines and translations may be in a run that may have them from the positions it began with."""
    model = tree.get("model")
    if not isinstance(model, dict) or model.get("positions") != "learned":
        return {}
    sections = {name: tree.get(name) for name in ("data", "decoding")}
    return {
        name: {"max_length": section["max_length"]}
        for name, section in sections.items()
        if isinstance(section, dict) and "max_length" in section
    }


def preset_of(run: Path) -> str | None:
    """Return the preset of the run in a folder; None where there is no run yet, or one that names none.

    The newest checkpoint whose configuration is whole says it, before the first one the copy at the root. Whatever else
    is wrong with the folder is for those to say who open it.
    """
    folder = RunFolder(run)
    if not folder.exists():
        return None
    # The newest readable checkpoint decides; a damaged one is reported when the run is opened.
    for step in reversed(folder.steps()):
        with suppress(RunError):
            return _preset_in(read_tree(folder.checkpoint(f"step-{step}")[0]))
    with suppress(OSError, ValueError, UsageError):  # a UnicodeDecodeError is a ValueError
        return _preset_in(parse_yaml(read_regular_file(run / "config.yaml", MAX_CONFIG_BYTES).decode(), "config.yaml"))
    return None


def _preset_in(tree: Any) -> str | None:
    name = tree.get("preset") if isinstance(tree, dict) else None
    return name if name in PRESETS else None
