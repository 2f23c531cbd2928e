"""A step of training is few calls away from the command, so that a traceback can be read."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import attnkit
from attnkit.cli.main import main

SOURCES = str(Path(attnkit.__file__).parent)


def test_a_backward_pass_is_six_frames_and_two_generators_deep(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From ``cli.train.command`` to the call of ``backward``, both included."""
    frames: list[str] = []
    generators: list[str] = []
    backward = torch.Tensor.backward

    def watched(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if not frames:
            frame = inspect.currentframe()
            while frame is not None and frames[-1:] != ["cli/train.py command"]:
                code = frame.f_code
                if code.co_filename.startswith(SOURCES):
                    frames.append(f"{code.co_filename.removeprefix(SOURCES + '/')} {code.co_name}")
                    generators.extend(frames[-1:] if code.co_flags & inspect.CO_GENERATOR else [])
                frame = frame.f_back
        return backward(tensor, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "backward", watched)
    arguments = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=1)
    monkeypatch.setattr(sys, "argv", ["attnkit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert frames[-1] == "cli/train.py command" and len(frames) <= 6, frames
    assert generators == ["training/loop.py fit", "engine/trainer.py train"]
