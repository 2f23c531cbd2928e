"""What the tests of ``attnkit verify`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from attnkit.analysis.verify import VerificationReport
from attnkit.checkpoints.run_folder import RunFolder


def bad(verified: VerificationReport) -> list[str]:
    return [f"{thing.name}: {thing.text}" for thing in verified.things if not thing.good]


def save_changed(run: Path, change: Callable[[dict[str, torch.Tensor]], object], file: str) -> None:
    """Save the newest checkpoint again with other tensors, under a manifest that fits them."""
    folder = RunFolder(run)
    checkpoint = folder.checkpoint("step-12")[0]
    contents = {name: checkpoint.read(name) for name in checkpoint.manifest.files}
    tensors = safetensors.torch.load(contents[file])
    change(tensors)
    folder.save(12, {**contents, file: safetensors.torch.save(tensors)})
