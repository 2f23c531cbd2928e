"""Beginning with another run's weights and vocabulary (``--init-from``). Knows no torch."""

from __future__ import annotations

from pathlib import Path

from attnkit.config import Layer, parse_yaml
from attnkit.runs.folder import RunFolder


def layer_of(run: Path) -> Layer:
    """Return what a run that starts from another takes over: model, vocabulary and how the two sides share it.

    Raises:
        RunError: no such run, or a damaged one.
    """
    checkpoint = RunFolder(run).checkpoint()[0]
    tree = parse_yaml(checkpoint.read("config.yaml").decode(), str(checkpoint.path / "config.yaml"))
    kept = {key: tree[key] for key in ("model", "vocabulary", "joint_vocabulary") if key in tree}
    return Layer(f"--init-from {run}", kept)
